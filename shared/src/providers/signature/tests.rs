use super::*;

const STRIPE_SECRET: &str = "whsec_test_secret_0123456789abcdef";
const STRIPE_NEW_SECRET: &str = "whsec_new_secret_fedcba9876543210";
const STRIPE_BODY: &[u8] = br#"{"id":"evt_test_1","object":"event","api_version":"2025-03-31.basil","created":1700000000,"livemode":false,"type":"charge.refunded","data":{"object":{"id":"ch_1","object":"charge"}}}"#;
const STRIPE_MAC: &str = "f7b6b9d60b476e1215f7abfb7fffd5c0c4549d79293b537d12084b3eb4cbc40f";
const STRIPE_NEW_MAC: &str = "69a6062e880f3e872d9660a6c7015067250018b5a2daed9cced5d062566b7f4d";

const STANDARD_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const STANDARD_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const STANDARD_BODY: &str = r#"{"type":"payment.succeeded","data":{"id":"pay_1","amount":1000,"note":"café"}}"#;
const STANDARD_MAC: &str = "z/cwxdBt/gYqdiqAkmpdjGH9gT8aB0qlaz0rAeN3WpU=";

const REVENUECAT_SECRET: &str = "rc_test_signing_secret_0123456789";
const REVENUECAT_BODY: &[u8] = br#"{"api_version":"1.0","event":{"app_id":"app1234","app_user_id":"user_1","currency":"USD","environment":"SANDBOX","event_timestamp_ms":1700000000123,"expiration_at_ms":1702592000000,"id":"12345678-1234-1234-1234-123456789012","original_transaction_id":"1000000000000001","period_type":"NORMAL","price":4.99,"price_in_purchased_currency":4.99,"product_id":"com.example.weekly","purchased_at_ms":1700000000000,"store":"APP_STORE","transaction_id":"1000000000000001","type":"INITIAL_PURCHASE"}}"#;
const REVENUECAT_SIGNATURE: &str = "t=1700000000,v1=e83785a23ee961cea983bd76ac97a7ed4c5e483190191a68b613f875dc8885dd";
const AUTHORIZATION: &str = "authorization:Bearer rc_0123456789abcdef";

fn at(seconds: i64) -> Time {
    Time::from_timestamp(seconds, 0).unwrap()
}

fn key(version: i32, secret: &str) -> SigningKey {
    let secret = Zeroizing::new(secret.as_bytes().to_vec());
    SigningKey { version, secret, active_from: at(0), active_until: None }
}

fn of(scheme: &Scheme) -> &[Scheme] {
    std::slice::from_ref(scheme)
}

/// The key version that fits a Stripe request at `now`.
fn stripe_at(now: i64, lines: &[&str], body: &[u8], keys: &[SigningKey]) -> Result<i32, VerifyError> {
    let headers: Vec<(&str, &[u8])> = lines.iter().map(|line| ("stripe-signature", line.as_bytes())).collect();
    verify(of(&STRIPE), &headers, body, keys, None, at(now)).map(|verified| verified.key_version())
}

fn stripe(lines: &[&str]) -> Result<i32, VerifyError> {
    stripe_at(1_700_000_000, lines, STRIPE_BODY, &[key(1, STRIPE_SECRET)])
}

fn standard_with(headers: &[(&str, &str)], body: &[u8], secret: &str, now: i64) -> Result<String, VerifyError> {
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let keys = [key(1, secret)];
    let verified = verify(of(&STANDARD_WEBHOOKS), &headers, body, &keys, None, at(now))?;
    Ok(verified.id().unwrap().to_owned())
}

fn standard(signature: &str) -> Result<String, VerifyError> {
    let headers = [("webhook-id", STANDARD_ID), ("webhook-timestamp", "1700000000"), ("webhook-signature", signature)];
    standard_with(&headers, STANDARD_BODY.as_bytes(), STANDARD_SECRET, 1_700_000_000)
}

#[test]
fn stripe_known_good_vector() {
    assert_eq!(STRIPE_BODY.len(), 182);
    assert_eq!(stripe(&[&format!("t=1700000000,v1={STRIPE_MAC}")]), Ok(1));
}

#[test]
fn stripe_rotation_accepts_either_secret() {
    let both = format!("t=1700000000,v1={STRIPE_MAC},v1={STRIPE_NEW_MAC}");
    let reversed = format!("t=1700000000,v1={STRIPE_NEW_MAC},v1={STRIPE_MAC}");
    for header in [&both, &reversed] {
        assert_eq!(stripe(&[header]), Ok(1));
        assert_eq!(stripe_at(1_700_000_000, &[header], STRIPE_BODY, &[key(2, STRIPE_NEW_SECRET)]), Ok(2));
        let keys = [key(2, STRIPE_NEW_SECRET), key(1, STRIPE_SECRET)];
        assert_eq!(stripe_at(1_700_000_000, &[header], STRIPE_BODY, &keys), Ok(2), "the newest that fits");
    }
}

#[test]
fn only_active_keys_verify() {
    let header = format!("t=1700000000,v1={STRIPE_MAC}");
    let until = |seconds| SigningKey { active_until: Some(at(seconds)), ..key(1, STRIPE_SECRET) };
    let from = |seconds| SigningKey { active_from: at(seconds), ..key(1, STRIPE_SECRET) };
    let verify = |key| stripe_at(1_700_000_000, &[&header], STRIPE_BODY, &[key]);
    assert_eq!(verify(until(1_700_000_001)), Ok(1));
    assert_eq!(verify(until(1_700_000_000)), Err(VerifyError::Signature));
    assert_eq!(verify(from(1_700_000_000)), Ok(1));
    assert_eq!(verify(from(1_700_000_001)), Err(VerifyError::Signature));
}

#[test]
fn standard_webhooks_known_good_vectors() {
    assert_eq!(standard(&format!("v1,{STANDARD_MAC}")), Ok(STANDARD_ID.to_owned()));
    let published = [
        (
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            STANDARD_ID,
            "1614265330",
            r#"{"test": 2432232314}"#,
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            "1649367553",
            r#"{"email":"test@example.com","username":"test_user"}"#,
            "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
        ),
    ];
    for (secret, id, time, body, signature) in published {
        let headers = [("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", signature)];
        assert_eq!(standard_with(&headers, body.as_bytes(), secret, time.parse().unwrap()), Ok(id.to_owned()));
    }
}

#[test]
fn any_change_to_what_was_signed_is_refused() {
    let good = format!("t=1700000000,v1={STRIPE_MAC}");
    let refused = |body: &[u8]| {
        assert_eq!(
            stripe_at(1_700_000_000, &[&good], body, &[key(1, STRIPE_SECRET)]),
            Err(VerifyError::Signature),
            "{}",
            String::from_utf8_lossy(body)
        );
    };
    refused(&[STRIPE_BODY, b"\n"].concat());
    refused(&STRIPE_BODY[..STRIPE_BODY.len() - 1]);
    refused(&[b"\xEF\xBB\xBF", STRIPE_BODY].concat());
    refused(b"");
    let reordered = br#"{"object":"event","id":"evt_test_1","api_version":"2025-03-31.basil","created":1700000000,"livemode":false,"type":"charge.refunded","data":{"object":{"id":"ch_1","object":"charge"}}}"#;
    refused(reordered);
    for at in 0..STRIPE_BODY.len() {
        let mut flipped = STRIPE_BODY.to_vec();
        flipped[at] ^= 1;
        refused(&flipped);
    }
    let without_prefix = [key(1, "test_secret_0123456789abcdef")];
    assert_eq!(stripe_at(1_700_000_000, &[&good], STRIPE_BODY, &without_prefix), Err(VerifyError::Signature));
    assert_eq!(
        stripe_at(1_700_000_001, &[&good.replace("t=1700000000", "t=1700000001")], STRIPE_BODY, &without_prefix),
        Err(VerifyError::Signature)
    );
    assert_eq!(
        stripe(&[&good.replace("t=1700000000", "t=1700000001")]),
        Err(VerifyError::Signature),
        "the time is signed"
    );
}

/// The version of the key, and what the event is authenticated by.
fn revenuecat(
    headers: &[(&str, &str)],
    body: &[u8],
    keys: &[SigningKey],
    now: i64,
) -> Result<(i32, &'static str), VerifyError> {
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let verified = verify(&REVENUECAT, &headers, body, keys, None, at(now))?;
    Ok((verified.key_version(), verified.auth_method()))
}

const SIGNATURE_HEADER: &str = "x-revenuecat-webhook-signature";

#[test]
fn revenuecat_known_good_vector() {
    assert_eq!(REVENUECAT_BODY.len(), 490);
    let keys = [key(3, &format!("hmac:{REVENUECAT_SECRET}"))];
    let send = |header: &str, body: &[u8], now| revenuecat(&[(SIGNATURE_HEADER, header)], body, &keys, now);
    assert_eq!(send(REVENUECAT_SIGNATURE, REVENUECAT_BODY, 1_700_000_300), Ok((3, "hmac_body")));
    assert_eq!(send(REVENUECAT_SIGNATURE, REVENUECAT_BODY, 1_700_000_301), Err(VerifyError::Timestamp));
    assert_eq!(send(REVENUECAT_SIGNATURE, REVENUECAT_BODY, 1_699_999_699), Err(VerifyError::Timestamp));
    let longer = [REVENUECAT_BODY, b" "].concat();
    assert_eq!(send(REVENUECAT_SIGNATURE, &longer, 1_700_000_000), Err(VerifyError::Signature));
    let lower_scheme = REVENUECAT_SIGNATURE.replace("v1=", "v0=");
    assert_eq!(send(&lower_scheme, REVENUECAT_BODY, 1_700_000_000), Err(VerifyError::Signature));
    let marked = [key(3, &format!("hmac:hmac:{REVENUECAT_SECRET}"))];
    let answer = revenuecat(&[(SIGNATURE_HEADER, REVENUECAT_SIGNATURE)], REVENUECAT_BODY, &marked, 1_700_000_000);
    assert_eq!(answer, Err(VerifyError::Signature), "the mark is no part of the key");
}

#[test]
fn a_static_header_is_compared_whole() {
    let keys = [key(1, AUTHORIZATION), key(2, "authorization:0123456789abcdef")];
    let send = |value: &str| revenuecat(&[("authorization", value)], b"{}", &keys, 1_700_000_000);
    assert_eq!(send("Bearer rc_0123456789abcdef"), Ok((1, "static_header")));
    assert_eq!(send("  Bearer rc_0123456789abcdef "), Ok((1, "static_header")), "blanks around are the wire's");
    assert_eq!(send("0123456789abcdef"), Ok((2, "static_header")), "during a rotation either value counts");
    for wrong in [
        "bearer rc_0123456789abcdef",
        "Bearer  rc_0123456789abcdef",
        "Bearer rc_0123456789abcde",
        "Bearer rc_0123456789abcdef0",
        "Bearer rc_0123456789abcdef, Bearer rc_0123456789abcdef",
        "rc_0123456789abcdef",
        "Bearer",
        AUTHORIZATION,
        "Bearer 0123456789abcdef",
        "\u{1F4A5}",
        &"0".repeat(100 * 1024),
    ] {
        assert_eq!(send(wrong), Err(VerifyError::Signature), "{wrong:.80}");
    }
    for missing in
        [&[][..], &[("authorization", "")], &[("authorization", "  "), ("x-authorization", "0123456789abcdef")]]
    {
        let answer = revenuecat(missing, b"{}", &keys, 1_700_000_000);
        assert_eq!(answer, Err(VerifyError::MissingHeader("authorization")));
    }
    let two = [("authorization", "junk"), ("authorization", "0123456789abcdef")];
    assert_eq!(revenuecat(&two, b"{}", &keys, 1_700_000_000), Ok((2, "static_header")), "any line counts");
    // No clock and no MAC: the same header stands for any body, at any time the key is active.
    let forever = revenuecat(&[("authorization", "0123456789abcdef")], b"other", &keys, 4_000_000_000);
    assert_eq!(forever, Ok((2, "static_header")));
    let until = SigningKey { active_until: Some(at(1_700_000_000)), ..key(1, AUTHORIZATION) };
    let retired = revenuecat(&[("authorization", "Bearer rc_0123456789abcdef")], b"{}", &[until], 1_700_000_000);
    assert_eq!(retired, Err(VerifyError::Signature));
}

#[test]
fn a_static_header_never_stands_in_for_a_signature() {
    let hmac = key(1, &format!("hmac:{REVENUECAT_SECRET}"));
    let keys = [hmac.clone(), key(2, AUTHORIZATION)];
    let authorized = ("authorization", "Bearer rc_0123456789abcdef");
    let now = 1_700_000_000;
    let alone = revenuecat(&[authorized], REVENUECAT_BODY, &keys, now);
    assert_eq!(alone, Err(VerifyError::MissingHeader(SIGNATURE_HEADER)));
    let beside_junk = [authorized, (SIGNATURE_HEADER, "t=1700000000,v1=00")];
    assert_eq!(revenuecat(&beside_junk, REVENUECAT_BODY, &keys, now), Err(VerifyError::Signature));
    let signed = [(SIGNATURE_HEADER, REVENUECAT_SIGNATURE), ("authorization", "junk")];
    assert_eq!(revenuecat(&signed, REVENUECAT_BODY, &keys, now), Ok((1, "hmac_body")));
    // The signing secret is no header value, and the other way round.
    assert!(revenuecat(&[("authorization", REVENUECAT_SECRET)], b"{}", &keys, now).is_err());
    let retired = [SigningKey { active_until: Some(at(now)), ..hmac }, key(2, AUTHORIZATION)];
    assert_eq!(revenuecat(&[authorized], b"{}", &retired, now), Ok((2, "static_header")));
    // A signing secret that is unusable still asks for a signature.
    let broken = [key(1, "hmac:"), key(2, AUTHORIZATION)];
    assert_eq!(revenuecat(&[authorized], b"{}", &broken, now), Err(VerifyError::MissingHeader(SIGNATURE_HEADER)));
    assert_eq!(revenuecat(&[authorized], b"{}", &[key(1, REVENUECAT_SECRET)], now), Err(VerifyError::Signature));
    for blank in ["authorization:", "authorization: ", "authorization:short"] {
        let value = blank.trim_start_matches("authorization:");
        assert!(revenuecat(&[("authorization", value)], b"{}", &[key(1, blank)], now).is_err(), "{blank:?}");
    }
}

#[test]
fn a_forger_without_a_mark_knocks_at_every_door() {
    let headers =
        sign(Provider::RevenueCat, b"0123456789abcdef0123456789abcdef", "", at(1_700_000_000), b"{}").unwrap();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(headers.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [SIGNATURE_HEADER, "authorization"]);
    for secret in [AUTHORIZATION, &format!("hmac:{REVENUECAT_SECRET}")] {
        let answer = revenuecat(&headers, b"{}", &[key(1, secret)], 1_700_000_000);
        assert_eq!(answer, Err(VerifyError::Signature));
    }
}

#[test]
fn several_signatures_of_which_one_is_good() {
    let mac = STRIPE_MAC;
    for good in [
        format!("t=1700000000,v1={STRIPE_NEW_MAC},v1={mac}"),
        format!("t=1700000000,v1=zz,v1={mac}"),
        format!("t=1700000000,v1=,v1={mac},v1={mac}"),
        format!("v1={mac},t=1700000000"),
        format!("t=1700000000, v1={mac}"),
        format!("t=1700000000,v1= {mac} "),
        format!("t=1700000000,v1={}", mac.to_uppercase()),
        format!("t=1700000000,,junk,x=1,v0=00,v1={mac}"),
    ] {
        assert_eq!(stripe(&[&good]), Ok(1), "{good}");
    }
    let many = format!("t=1700000000,{}v1={mac}", "v1=00,".repeat(15));
    assert_eq!(stripe(&[&many]), Ok(1));
    let too_many = format!("t=1700000000,{}v1={mac}", "v1=00,".repeat(200));
    assert_eq!(stripe(&[&too_many]), Err(VerifyError::Signature));
}

#[test]
fn several_header_lines_are_all_considered() {
    let good = format!("t=1700000000,v1={STRIPE_MAC}");
    assert_eq!(stripe(&["t=1700000000,v1=00", &good]), Ok(1));
    assert_eq!(stripe(&[&good, "t=1700000000,v1=00"]), Ok(1));
    assert_eq!(stripe(&[&good, ""]), Ok(1));
    assert_eq!(stripe(&[&good, "t=1699999999,v1=00"]), Err(VerifyError::Timestamp), "the lines disagree");
}

#[test]
fn other_schemes_and_encodings_never_count() {
    use base64::Engine;
    let base64 = STANDARD.encode(hex::decode(STRIPE_MAC).unwrap());
    for bad in [
        format!("t=1700000000,v0={STRIPE_MAC}"),
        format!("t=1700000000,v0={STRIPE_MAC},v1=00"),
        format!("t=1700000000,V1={STRIPE_MAC}"),
        format!("t=1700000000,v1={base64}"),
        format!("t=1700000000,v1={}", &STRIPE_MAC[..32]),
        format!("t=1700000000,v1={STRIPE_MAC}zz"),
        format!("t=1700000000,v1={STRIPE_MAC}00"),
        format!("t=1700000000,v1=={STRIPE_MAC}"),
        format!("t=1700000000,{STRIPE_MAC}"),
        "t=1700000000,v1=".to_owned(),
        "t=1700000000".to_owned(),
    ] {
        assert_eq!(stripe(&[&bad]), Err(VerifyError::Signature), "{bad}");
    }
}

#[test]
fn an_absent_or_empty_header_is_missing() {
    for lines in [&[][..], &[""], &["   "], &["", " "]] {
        assert_eq!(stripe(lines), Err(VerifyError::MissingHeader("stripe-signature")), "{lines:?}");
    }
    let all = [("webhook-id", STANDARD_ID), ("webhook-timestamp", "1700000000"), ("webhook-signature", "v1,AA==")];
    for missing in 0..all.len() {
        for empty in [false, true] {
            let mut headers = all.to_vec();
            let name = headers[missing].0;
            if empty {
                headers[missing].1 = "";
            } else {
                headers.remove(missing);
            }
            let answer = standard_with(&headers, b"{}", STANDARD_SECRET, 1_700_000_000);
            assert_eq!(answer, Err(VerifyError::MissingHeader(name)));
        }
    }
}

#[test]
fn the_signed_time_is_plain_digits_and_given_once() {
    let mac = STRIPE_MAC;
    for bad in [
        "t=1e9",
        "t=99999999999999999999999",
        "t=1234567890123",
        "t=-1",
        "t=+1700000000",
        "t=",
        "t=01700000000",
        "t= 1700000000",
        "t=1700000000 ",
        "t=1700000000.0",
        "t=0x6553f100",
        "t=1_700_000_000",
        "t=١٧٠٠٠٠٠٠٠٠",
        "t=1700000000abc",
        "t=1700000000,t=1699990001",
        "t=1700000000,t=1700000000",
        "x=1700000000",
    ] {
        assert_eq!(stripe(&[&format!("{bad},v1={mac}")]), Err(VerifyError::Timestamp), "{bad}");
    }
}

#[test]
fn the_tolerance_is_absolute_and_includes_its_edge() {
    let header = format!("t=1700000000,v1={STRIPE_MAC}");
    let keys = [key(1, STRIPE_SECRET)];
    for (age, expected) in [
        (0, Ok(1)),
        (300, Ok(1)),
        (-300, Ok(1)),
        (301, Err(VerifyError::Timestamp)),
        (-301, Err(VerifyError::Timestamp)),
        (-3600, Err(VerifyError::Timestamp)),
    ] {
        assert_eq!(stripe_at(1_700_000_000 + age, &[&header], STRIPE_BODY, &keys), expected, "age {age}");
    }
    let headers = [("stripe-signature", header.as_bytes())];
    let within = |seconds, now| {
        verify(of(&STRIPE), &headers, STRIPE_BODY, &keys, Some(Duration::from_secs(seconds)), at(now)).is_ok()
    };
    assert!(within(3600, 1_700_003_600));
    assert!(!within(10, 1_700_000_011));
}

#[test]
fn hostile_headers_are_refused_and_nothing_breaks() {
    let long = "a".repeat(100 * 1024);
    let lines: [&[u8]; 6] = [
        long.as_bytes(),
        b"t=1700000000,v1=\xE9\xE9",
        b"\xFF\xFE=,=,,=",
        b",,,,====",
        b"v1=v1=v1=t=",
        "t=1700000000,v1=\u{1F4A5}".as_bytes(),
    ];
    for line in lines {
        let answer = verify(
            of(&STRIPE),
            &[("stripe-signature", line)],
            STRIPE_BODY,
            &[key(1, STRIPE_SECRET)],
            None,
            at(1_700_000_000),
        );
        assert!(answer.is_err(), "{}", String::from_utf8_lossy(line));
    }
    let commas = format!("t=1700000000{}", ",v1=0".repeat(20_000));
    assert_eq!(stripe(&[&commas]), Err(VerifyError::Signature));
}

#[test]
fn standard_webhooks_forms() {
    let mac = STANDARD_MAC;
    for good in [
        format!("v1,{mac}"),
        format!("  v1,AAAA  v1,{mac}"),
        format!("v1a,AAAA junk v1,{mac}"),
        format!("v1,{mac} v1,{mac}"),
    ] {
        assert!(standard(&good).is_ok(), "{good}");
    }
    for bad in [
        format!("v1a,{mac}"),
        format!("v2,{mac}"),
        format!("v1={mac}"),
        mac.to_owned(),
        "v1,".to_owned(),
        format!("v1,{}", mac.trim_end_matches('=')),
        format!("v1,{mac}="),
        format!("v1,{mac},extra"),
        format!("v1,{}", mac.replace('+', "-").replace('/', "_")),
        // The same bytes with other unused bits in the last character.
        format!("v1,{}", mac.replace("U=", "V=")),
    ] {
        assert_eq!(standard(&bad), Err(VerifyError::Signature), "{bad}");
    }
}

#[test]
fn standard_webhooks_signs_the_id() {
    let send = |id: &str| {
        let signature = format!("v1,{STANDARD_MAC}");
        let headers = [("webhook-id", id), ("webhook-timestamp", "1700000000"), ("webhook-signature", &signature)];
        standard_with(&headers, STANDARD_BODY.as_bytes(), STANDARD_SECRET, 1_700_000_000)
    };
    assert_eq!(send("msg_other"), Err(VerifyError::Signature));
    for bad in ["msg.1", "msg\u{0}1", &"x".repeat(256)] {
        assert_eq!(send(bad), Err(VerifyError::BadHeader("webhook-id")), "{bad}");
    }
    let twice = [
        ("webhook-id", STANDARD_ID),
        ("webhook-id", "msg_other"),
        ("webhook-timestamp", "1700000000"),
        ("webhook-signature", "v1,AA=="),
    ];
    let answer = standard_with(&twice, b"{}", STANDARD_SECRET, 1_700_000_000);
    assert_eq!(answer, Err(VerifyError::BadHeader("webhook-id")));
}

/// Further providers are further data: published vectors of two other families, and milliseconds.
#[test]
fn a_new_scheme_is_a_stanza() {
    let check = |scheme: &Scheme, line: &str, secret: &str, body: &str, now: i64| {
        verify(of(scheme), &[(scheme.header, line.as_bytes())], body.as_bytes(), &[key(1, secret)], None, at(now))
            .map(|verified| verified.key_version())
    };
    let with = |header, mac| Scheme { header, proof: Proof::Mac(mac), ..STRIPE };
    let github = MacScheme { form: Form::Prefixed("sha256="), timestamp: None, signed: &[Part::Body], ..STRIPE_LIKE };
    let github = with("x-hub-signature-256", github);
    let mac = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let secret = "It's a Secret to Everybody";
    assert_eq!(check(&github, &format!("sha256={mac}"), secret, "Hello, World!", 0), Ok(1));
    assert_eq!(check(&github, &format!("sha256= {mac}"), secret, "Hello, World!", 0), Ok(1));
    assert_eq!(check(&github, &format!("sha1={mac}"), secret, "Hello, World!", 0), Err(VerifyError::Signature));

    let paddle = MacScheme {
        form: Form::Pairs { separator: b';', signature: "h1" },
        timestamp: Some(Timestamp {
            place: Place::Pair("ts"),
            unit: Unit::Seconds,
            tolerance: Duration::from_secs(300),
        }),
        signed: &[Part::Timestamp, Part::Text(":"), Part::Body],
        ..STRIPE_LIKE
    };
    let paddle = with("paddle-signature", paddle);
    let line = "ts=1700000000;h1=d551b17be19e8ed77f5b633169dbd63cc06e62b4bf607db521275f525f238aa2";
    assert_eq!(check(&paddle, line, "pdl_ntfset_01hkdummy_secret", STANDARD_BODY, 1_700_000_000), Ok(1));

    let unit = Timestamp { place: Place::Pair("t"), unit: Unit::Milliseconds, tolerance: Duration::from_secs(300) };
    let millis = with("stripe-signature", MacScheme { timestamp: Some(unit), ..STRIPE_LIKE });
    let signed = |scheme: &Scheme, time| scheme.sign(STRIPE_SECRET.as_bytes(), "", time, b"{}").unwrap()[0].1.clone();
    let now = at(1_700_000_000);
    assert_eq!(check(&millis, &signed(&millis, now), STRIPE_SECRET, "{}", now.timestamp()), Ok(1));
    assert_eq!(
        check(&millis, &signed(&millis, now), STRIPE_SECRET, "{}", now.timestamp() + 301),
        Err(VerifyError::Timestamp)
    );
    // The unit is the scheme's, never guessed: both mix-ups carry a fitting MAC.
    assert_eq!(
        check(&millis, &signed(&STRIPE, now), STRIPE_SECRET, "{}", now.timestamp()),
        Err(VerifyError::Timestamp)
    );
    assert_eq!(
        check(&STRIPE, &signed(&millis, now), STRIPE_SECRET, "{}", now.timestamp()),
        Err(VerifyError::Timestamp)
    );
}

#[test]
fn what_we_sign_we_verify() {
    use Provider::{RevenueCat as R, StandardWebhooks as W, Stripe as S};
    let hmac = format!("hmac:{REVENUECAT_SECRET}");
    for (provider, secret, auth_method) in [
        (S, STANDARD_SECRET, "hmac_body"),
        (W, STANDARD_SECRET, "hmac_body"),
        (R, &hmac, "hmac_body"),
        (R, AUTHORIZATION, "static_header"),
    ] {
        let stored = check_secret(provider, &format!(" {secret}\n")).unwrap();
        assert_eq!(&stored[..], secret.as_bytes(), "white space around a secret is not part of it");
        let headers = sign(provider, &stored, "msg_1", at(1_700_000_000), b"{}").unwrap();
        let lines: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let keys = [key(7, secret)];
        let verified = verify(provider.schemes(), &lines, b"{}", &keys, None, at(1_700_000_000)).unwrap();
        assert_eq!((verified.body(), verified.key_version(), verified.auth_method()), (&b"{}"[..], 7, auth_method));
        assert_eq!(verified.id().is_some(), provider == W);
        assert_eq!(verified.signature_header().is_some(), auth_method == "hmac_body");
    }
}

#[test]
fn unusable_secrets_are_refused_with_a_reason() {
    use Provider::{RevenueCat as R, StandardWebhooks as W, Stripe as S};
    for (provider, secret, error) in [
        (S, "", SecretError::Empty),
        (W, "  \n", SecretError::Empty),
        (S, "whsec_short", SecretError::TooShort),
        (W, "whsec_", SecretError::TooShort),
        (W, "whsec_AAECAwQFBgcICQoLDA0O", SecretError::TooShort),
        (W, "whsec_not base64 at all, really", SecretError::Blanks),
        (W, "v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", SecretError::NotBase64("whsec_")),
        (W, "whsec_xyz!xyz!xyz!xyz!xyz!xyz!xyz!", SecretError::NotBase64("whsec_")),
        (S, "whsec_one_0123456789\nwhsec_two_0123456789", SecretError::Blanks),
        (S, "sk_live_0123456789abcdef", SecretError::ApiKey),
        (W, "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=", SecretError::ApiKey),
        (R, REVENUECAT_SECRET, SecretError::Unmarked(R)),
        (R, "basic:0123456789abcdef", SecretError::Unmarked(R)),
        (R, "hmac", SecretError::Unmarked(R)),
        (R, "h\u{e9}ac:0123456789abcdef", SecretError::Unmarked(R)),
        (R, "hmac:", SecretError::Empty),
        (R, "authorization:  ", SecretError::Empty),
        (R, "hmac:short", SecretError::TooShort),
        (R, "hmac:0123456789 abcdef", SecretError::Blanks),
        (R, "authorization:short", SecretError::Guessable),
        (R, "authorization:Bearer 0123456789", SecretError::Guessable),
        (R, "authorization:Bearer 0123456789\n0123456789abcdef", SecretError::NotAHeaderValue),
        (R, "authorization:Bearer caf\u{e9}_0123456789abcdef", SecretError::NotAHeaderValue),
        (R, "hmac:sk_0123456789abcdef", SecretError::ApiKey),
    ] {
        assert_eq!(check_secret(provider, secret).unwrap_err(), error, "{secret:?}");
    }
    assert!(check_secret(W, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_ok(), "the prefix may be missing");
    for (given, stored) in [
        ("Authorization: Bearer 0123456789abcdef ", "authorization:Bearer 0123456789abcdef"),
        ("HMAC: 0123456789abcdef", "hmac:0123456789abcdef"),
    ] {
        assert_eq!(check_secret(R, given).unwrap()[..], *stored.as_bytes(), "{given}");
    }
    let sentence = check_secret(R, REVENUECAT_SECRET).unwrap_err().to_string();
    assert_eq!(
        sentence,
        "revenuecat authenticates in several ways; write hmac: or authorization: in front of the secret to say which"
    );
}

#[test]
fn a_blank_stored_secret_verifies_nothing() {
    for blank in ["", "   ", "whsec_"] {
        let mut mac = Hmac::<Sha256>::new_from_slice(blank.as_bytes()).unwrap();
        mac.update(b"1700000000.{}");
        let header = format!("t=1700000000,v1={}", hex::encode(mac.finalize().into_bytes()));
        assert_eq!(stripe_at(1_700_000_000, &[&header], b"{}", &[key(1, blank)]), Err(VerifyError::Signature));
    }
}

#[test]
fn a_key_does_not_print_its_secret() {
    let printed = format!("{:?}", key(3, STRIPE_SECRET));
    assert!(printed.contains("version: 3"));
    assert!(!printed.contains("whsec") && !printed.contains("119, 104, 115"));
}

proptest::proptest! {
    #[test]
    fn no_header_breaks_the_verifier(
        lines in proptest::collection::vec(proptest::collection::vec(proptest::num::u8::ANY, 0..200), 0..4),
        text in "[tvh10-9=,; .]{0,80}",
    ) {
        for (scheme, secret) in [
            (&STRIPE, STANDARD_SECRET),
            (&STANDARD_WEBHOOKS, STANDARD_SECRET),
            (&REVENUECAT[0], "hmac:0123456789abcdef"),
            (&REVENUECAT[1], AUTHORIZATION),
        ] {
            let names =
                ["stripe-signature", "webhook-signature", "webhook-id", "webhook-timestamp", SIGNATURE_HEADER, "authorization"];
            let mut headers: Vec<(&str, &[u8])> = Vec::new();
            for name in names {
                headers.extend(lines.iter().map(|line| (name, line.as_slice())));
                headers.push((name, text.as_bytes()));
            }
            let answer = verify(of(scheme), &headers, b"{}", &[key(1, secret)], None, at(1_700_000_000));
            proptest::prop_assert!(answer.is_err());
        }
    }
}
