use std::collections::BTreeSet;

use zeroize::Zeroizing;

use super::*;
use crate::domain::Lane;
use crate::providers::{sample, sign};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

fn now() -> Time {
    Time::from_timestamp(1_767_225_600, 0).unwrap()
}

fn endpoint(provider: Provider) -> Endpoint {
    Endpoint {
        id: Uuid::nil(),
        slug: "main".to_owned(),
        provider,
        account: "acct_a".to_owned(),
        other_accounts: vec!["acct_b".to_owned()],
        environment: Environment::Production,
        active: true,
        tolerance: None,
        mismatch_status: 409,
        has_unreadable_keys: false,
        keys: vec![SigningKey {
            version: 4,
            secret: secret(provider),
            active_from: Time::from_timestamp(0, 0).unwrap(),
            active_until: None,
        }],
    }
}

fn secret(provider: Provider) -> Zeroizing<Vec<u8>> {
    let mark = if provider == Provider::RevenueCat { "hmac:" } else { "" };
    Zeroizing::new(format!("{mark}{SECRET}").into_bytes())
}

/// What is looked at after an admission, owned.
#[derive(Debug, PartialEq)]
struct Admitted {
    account_key: String,
    envelope: Envelope,
    raw_sha256: [u8; 32],
}

fn deliver_to(endpoint: Endpoint, event_id: &str, body: &[u8]) -> Result<Admitted, Refusal> {
    deliver_signed(endpoint, event_id, body, body)
}

/// Signs one body and sends another.
fn deliver_signed(endpoint: Endpoint, event_id: &str, signed: &[u8], sent: &[u8]) -> Result<Admitted, Refusal> {
    let provider = endpoint.provider;
    let headers = sign(provider, &secret(provider), event_id, now(), signed).unwrap();
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let ring = KeyRing::new(vec![endpoint]);
    let inbound = Inbound { provider, endpoint_slug: "main", headers: &headers, body: sent, received_at: now() };
    admit(&inbound, &ring, now()).map(|admission| {
        assert_eq!(admission.body, sent, "the bytes stay as they came");
        assert_eq!((admission.key_version, admission.auth_method), (4, "hmac_body"));
        Admitted { account_key: admission.account_key, envelope: admission.envelope, raw_sha256: admission.raw_sha256 }
    })
}

fn stripe(body: impl AsRef<[u8]>) -> Result<Admitted, Refusal> {
    deliver_to(endpoint(Provider::Stripe), "", body.as_ref())
}

fn standard(event_id: &str, body: impl AsRef<[u8]>) -> Result<Admitted, Refusal> {
    deliver_to(endpoint(Provider::StandardWebhooks), event_id, body.as_ref())
}

const JSON: Refusal = Refusal::Envelope(EnvelopeError::Json);
const SCHEMA: Refusal = Refusal::Envelope(EnvelopeError::Schema);
const ID: Refusal = Refusal::Envelope(EnvelopeError::Id);
const TYPE: Refusal = Refusal::Envelope(EnvelopeError::Type);

#[test]
fn the_first_obstacle_answers() {
    let body = br#"{"id":"evt_1","type":"charge.succeeded","account":"acct_z"}"#;
    let of = |change: fn(&mut Endpoint)| {
        let mut endpoint = endpoint(Provider::Stripe);
        change(&mut endpoint);
        deliver_to(endpoint, "", body).unwrap_err()
    };
    assert_eq!(of(|e| e.slug = "other".to_owned()), Refusal::UnknownEndpoint);
    assert_eq!(of(|e| e.active = false), Refusal::EndpointDisabled);
    assert_eq!(of(|e| e.keys.clear()), Refusal::InactiveKey);
    assert_eq!(of(|e| e.keys[0].active_until = Some(now())), Refusal::InactiveKey);
    // Our trouble, not the sender's: they may come again.
    let unreadable = |e: &mut Endpoint| {
        e.keys.clear();
        e.has_unreadable_keys = true;
    };
    assert_eq!(of(unreadable), Refusal::Unavailable);
    let wrong = |e: &mut Endpoint| e.keys[0].secret = Zeroizing::new(b"whsec_quite_another_secret".to_vec());
    assert_eq!(of(wrong), Refusal::Signature);
    assert_eq!(of(|_| {}), Refusal::UnknownAccount);
}

#[test]
fn the_raw_bytes_are_verified_and_kept() {
    let raw = b"{ \"b\":1.10,  \"id\":\"evt_1\",\"type\":\"payment.succeeded\",\"u\":\"\\u00e9\\/\" }\n";
    let minified = br#"{"b":1.1,"id":"evt_1","type":"payment.succeeded","u":"\u00e9/"}"#;
    let kept = stripe(raw).unwrap();
    assert_eq!(kept.raw_sha256, <[u8; 32]>::from(Sha256::digest(raw)));
    assert_eq!(deliver_signed(endpoint(Provider::Stripe), "", raw, minified), Err(Refusal::Signature));
    let utf8 = stripe(r#"{"id":"evt_2","type":"payment.succeeded","name":"결제😀é"}"#).unwrap();
    let escaped =
        stripe(r#"{"id":"evt_2","type":"payment.succeeded","name":"\uacb0\uc81c\ud83d\ude00\u00e9"}"#).unwrap();
    assert_ne!(utf8.raw_sha256, escaped.raw_sha256);
}

#[test]
fn a_byte_order_mark_is_signed_and_kept_but_not_read() {
    let event: &[u8] = br#"{"id":"evt_1","type":"charge.succeeded"}"#;
    let marked = [b"\xEF\xBB\xBF", event].concat();
    assert_eq!(stripe(&marked).unwrap().envelope, stripe(event).unwrap().envelope);
    assert_eq!(deliver_signed(endpoint(Provider::Stripe), "", event, &marked), Err(Refusal::Signature));
}

#[test]
fn what_is_not_an_event_answers_400() {
    let long_type = format!(r#"{{"id":"evt_1","type":"{}"}}"#, "t".repeat(10_240));
    for (body, refusal) in [
        ("", JSON),
        ("   ", JSON),
        ("null", SCHEMA),
        (r#""x""#, SCHEMA),
        ("5", SCHEMA),
        ("[]", SCHEMA),
        (r#"["evt_1","charge.succeeded",null,null,null,null,null]"#, SCHEMA),
        ("{}", SCHEMA),
        (r#"{"id":"e","type":"t"} x"#, JSON),
        (r#"{"id":"e","type":"t"}{"#, JSON),
        ("{“id”:1}", JSON),
        ("<xml/>", JSON),
        ("payload=%7B%22id%22%3A%22evt_1%22%7D", JSON),
        (r#"{"id":"e"}"#, SCHEMA),
        (r#"{"id":"e","type":5}"#, SCHEMA),
        (r#"{"id":5,"type":"t"}"#, SCHEMA),
        (r#"{"id":null,"type":"t"}"#, SCHEMA),
        (r#"{"id":"e","type":""}"#, TYPE),
        (r#"{"id":"e","type":"a\u0000b"}"#, TYPE),
        (&long_type, TYPE),
        (r#"{"id":"","type":"t"}"#, ID),
        (r#"{"id":"evt\u00001","type":"t"}"#, ID),
        (r#"{"id":"evt_1","id":"evt_2","type":"t"}"#, SCHEMA),
        (r#"{"id":"evt_1","type":"t","type":"u"}"#, SCHEMA),
        (r#"{"id":"evt_1","type":"t","account":"acct_a","account":"acct_b"}"#, SCHEMA),
        (r#"{"id":"evt_1","type":"t","livemode":"true"}"#, SCHEMA),
        (r#"{"id":"evt_1","type":"t","account":""}"#, SCHEMA),
    ] {
        assert_eq!(stripe(body), Err(refusal), "{body:.80}");
        assert_eq!(refusal.status(), 400);
    }
    for body in [
        &b"{\"id\":\"e\",\"type\":\"t\",\"n\":\"\x00\"}"[..],
        b"{\"id\":\"e\",\"type\":\"t\",\"n\":\"\xFF\xFE\"}",
        b"{\"id\":\"e\",\"type\":\"t\",\"n\":\"\xED\xA0\x80\"}",
    ] {
        assert_eq!(stripe(body), Err(JSON));
    }
}

#[test]
fn odd_but_proper_json_is_accepted() {
    for body in [
        r#"{"id":"evt_1","type":"payment.teleported"}"#,
        r#"{"id":"evt_1","type":"t","note":"a\u0000b"}"#,
        r#"{"id":"evt_1","type":"t","note":"a\\u0000b"}"#,
        r#"{"id":"evt_1","type":"t","note":"\ud83d"}"#,
        r#"{"id":"evt_1","type":"t","ignored":{"a":1,"a":2}}"#,
        r#"{"id":"evt_1","type":"t","account":null,"livemode":null,"data":null,"created":null}"#,
    ] {
        assert_eq!(stripe(body).map(|a| a.envelope.event_id), Ok("evt_1".to_owned()), "{body}");
    }
}

#[test]
fn nesting_is_limited_wherever_it_is() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"id":"evt_1","type":"t","data":{{"object":{{}}}},"z":{open}{close}}}"#)
    };
    for depth in [100, 119, 126] {
        assert!(stripe(nested(depth)).is_ok(), "{depth}");
    }
    for depth in [127, 200, 50_000, 400_000] {
        assert_eq!(stripe(nested(depth)), Err(JSON), "{depth}");
    }
    let brackets_in_text = format!(r#"{{"id":"evt_1","type":"t","z":"\"{}"}}"#, "[".repeat(1000));
    assert!(stripe(brackets_in_text).is_ok());
}

#[test]
fn ids_are_exact_and_limited() {
    let id =
        |length: usize| (0..length).map(|at| char::from(b'a' + u8::try_from(at * 7 % 26).unwrap())).collect::<String>();
    let body = |id: &str| format!(r#"{{"id":{},"type":"t"}}"#, serde_json::to_string(id).unwrap());
    assert_eq!(stripe(body(&id(255))).unwrap().envelope.event_id, id(255));
    for length in [256, 300, 2_000, 2_700, 5_000, 100_000] {
        assert_eq!(stripe(body(&id(length))), Err(ID), "{length}");
    }
    assert!(standard(&id(255), br#"{"type":"t"}"#).is_ok());
    assert_eq!(standard(&id(256), br#"{"type":"t"}"#), Err(Refusal::BadHeader("webhook-id")));
    let odd = ["evt_aB", "evt_Ab", "caf\u{e9}", "cafe\u{301}", "trailing ", "it's", "100%", "a;b", "💥"];
    let kept: BTreeSet<String> = odd.iter().map(|id| stripe(body(id)).unwrap().envelope.event_id).collect();
    assert_eq!(kept, odd.iter().map(|id| (*id).to_owned()).collect());
}

#[test]
fn an_unsigned_delivery_header_decides_nothing() {
    let body = br#"{"id":"evt_1","type":"charge.succeeded"}"#;
    let signed = sign(Provider::Stripe, SECRET.as_bytes(), "", now(), body).unwrap();
    let ring = KeyRing::new(vec![endpoint(Provider::Stripe)]);
    for extra in [Some(("x-delivery-id", &b"a"[..])), Some(("webhook-id", b"b")), None] {
        let mut headers: Vec<(&str, &[u8])> = signed.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        headers.extend(extra);
        let inbound =
            Inbound { provider: Provider::Stripe, endpoint_slug: "main", headers: &headers, body, received_at: now() };
        assert_eq!(admit(&inbound, &ring, now()).unwrap().envelope.event_id, "evt_1");
    }
}

#[test]
fn accounts_and_environments_never_meet() {
    let key = |account: &str, mode: &str| {
        stripe(format!(r#"{{"id":"evt_1","type":"t"{account}{mode}}}"#)).map(|admitted| admitted.account_key)
    };
    let (live, test) = (r#","livemode":true"#, r#","livemode":false"#);
    assert_eq!(key("", live), Ok("acct_a".to_owned()));
    assert_eq!(key("", ""), Ok("acct_a".to_owned()), "no flag: the endpoint's environment");
    assert_eq!(key("", test), Ok("acct_a:sandbox".to_owned()));
    assert_eq!(key(r#","account":"acct_a""#, live), Ok("acct_a".to_owned()));
    assert_eq!(key(r#","account":"acct_b""#, test), Ok("acct_b:sandbox".to_owned()));
    assert_eq!(key(r#","account":"acct_zzz""#, live), Err(Refusal::UnknownAccount));
    assert_eq!(key(r#","account":"ACCT_A""#, live), Err(Refusal::UnknownAccount));
    let sandbox = Endpoint { environment: Environment::Sandbox, ..endpoint(Provider::Stripe) };
    let admitted = deliver_to(sandbox, "", br#"{"id":"evt_1","type":"t"}"#).unwrap();
    assert_eq!(admitted.account_key, "acct_a:sandbox");
}

#[test]
fn an_impossible_time_is_no_time() {
    let day = 86_400;
    for (created, expected) in [
        ("1767225600".to_owned(), true),
        ((1_767_225_600 + 2 * day).to_string(), true),
        ((1_767_225_600 + 2 * day + 1).to_string(), false),
        ((1_767_225_600 - 3650 * day).to_string(), true),
        ((1_767_225_600 - 3654 * day).to_string(), false),
        ("1767225600000".to_owned(), false),
        ("0".to_owned(), false),
        ("-1".to_owned(), false),
        ("1767225600.5".to_owned(), false),
        ("99999999999999999999999".to_owned(), false),
        (r#""1767225600""#.to_owned(), false),
        ("{}".to_owned(), false),
    ] {
        let admitted = stripe(format!(r#"{{"id":"evt_1","type":"t","created":{created}}}"#)).unwrap();
        assert_eq!(admitted.envelope.occurred_at.is_some(), expected, "{created}");
    }
}

#[test]
fn standard_webhooks_write_their_time_in_words() {
    let at = |timestamp: &str| {
        let body = format!(r#"{{"type":"t","timestamp":{timestamp},"created":1767225601}}"#);
        standard("msg_1", body).unwrap().envelope.occurred_at.map(|time| time.timestamp())
    };
    assert_eq!(at(r#""2026-01-01T00:00:00Z""#), Some(1_767_225_600));
    assert_eq!(at(r#""2026-01-01T00:00:00.123456789Z""#), Some(1_767_225_600));
    assert_eq!(at(r#""2026-01-01T09:00:00+09:00""#), Some(1_767_225_600));
    assert_eq!(at(r#""2026-01-01T00:00:00""#), None, "no offset: nobody knows when");
    assert_eq!(at(r#""yesterday""#), None);
    assert_eq!(at("1767225600"), None);
    assert_eq!(at("null"), Some(1_767_225_601), "our own vocabulary says `created`");
}

#[test]
fn deliveries_of_one_event_mean_the_same_and_another_amount_does_not() {
    let event = |amount: u32, pending: u32| {
        let data = format!(r#"{{"object":{{"id":"ch_1","amount":{amount}}}}}"#);
        let body = format!(
            r#"{{"id":"evt_1","type":"charge.succeeded","created":1767225600,"livemode":true,"data":{data},"pending_webhooks":{pending},"request":{{"id":null}}}}"#
        );
        stripe(body).unwrap()
    };
    let (first, again, other) = (event(1000, 2), event(1000, 1), event(1001, 2));
    assert_ne!(first.raw_sha256, again.raw_sha256);
    assert_eq!(first.envelope.semantic_hash, again.envelope.semantic_hash);
    assert_ne!(first.envelope.semantic_hash, other.envelope.semantic_hash);
    // The borders between the parts count.
    let hash = |body: &str| stripe(body).unwrap().envelope.semantic_hash;
    assert_ne!(hash(r#"{"id":"ab","type":"c"}"#), hash(r#"{"id":"a","type":"bc"}"#));
    assert_ne!(hash(r#"{"id":"a","type":"b","livemode":true}"#), hash(r#"{"id":"a","type":"b","livemode":false}"#));
    assert_ne!(hash(r#"{"id":"a","type":"b"}"#), hash(r#"{"id":"a","type":"b","livemode":true}"#));
}

#[test]
fn events_are_found_by_what_people_know() {
    let find = |provider, event_type: &str| {
        let sample = sample::event(provider, event_type, &sample::SampleOptions::new("x1", now())).unwrap();
        let endpoint = endpoint(provider);
        let envelope = deliver_to(endpoint, &sample.event_id, &sample.body).unwrap().envelope;
        assert_eq!((envelope.event_id.as_str(), envelope.event_type.as_str()), (sample.event_id.as_str(), event_type));
        let keys = envelope.keys;
        let or_dash = |key: Option<String>| key.unwrap_or_else(|| "-".to_owned());
        let found = [keys.app_user_id, keys.transaction_id, keys.original_transaction_id, keys.product_id, keys.store];
        (envelope.lane, found.map(or_dash).join(" "))
    };
    use Provider::{RevenueCat as R, StandardWebhooks as W, Stripe as S};
    for (provider, event_type, lane, keys) in [
        (S, "payment_intent.succeeded", Lane::Payments, "cus_x1 pi_x1 pi_x1 - stripe"),
        (S, "charge.succeeded", Lane::Payments, "cus_x1 ch_x1 pi_x1 - stripe"),
        (S, "refund.created", Lane::Payments, "- re_x1 pi_x1 - stripe"),
        (S, "charge.dispute.created", Lane::Payments, "- dp_x1 pi_x1 - stripe"),
        (S, "checkout.session.completed", Lane::Payments, "cus_x1 cs_x1 pi_x1 - stripe"),
        (S, "customer.subscription.created", Lane::Subscriptions, "cus_x1 sub_x1 sub_x1 prod_basic stripe"),
        (S, "invoice.paid", Lane::Subscriptions, "cus_x1 in_x1 sub_x1 - stripe"),
        (S, "customer.created", Lane::Other, "- cus_x1 cus_x1 - stripe"),
        (W, "payment.succeeded", Lane::Payments, "cus_x1 pay_x1 pay_x1 prod_basic web"),
        (W, "refund.succeeded", Lane::Payments, "- re_x1 pay_x1 - -"),
        (W, "subscription.created", Lane::Subscriptions, "cus_x1 sub_x1 sub_x1 prod_basic web"),
        (W, "customer.updated", Lane::Other, "cus_x1 - - - -"),
        (R, "RENEWAL", Lane::Subscriptions, "cus_x1 txn_x1_renewal txn_x1 com.example.pro.monthly APP_STORE"),
        (R, "CANCELLATION", Lane::Subscriptions, "cus_x1 txn_x1 txn_x1 com.example.pro.monthly APP_STORE"),
        (R, "TRANSFER", Lane::Subscriptions, "- - - - APP_STORE"),
        (R, "TEST", Lane::Other, "cus_x1 txn_x1 txn_x1 com.example.pro.monthly APP_STORE"),
    ] {
        assert_eq!(find(provider, event_type), (lane, keys.to_owned()), "{event_type}");
    }
}

#[test]
fn a_thin_event_is_kept() {
    let body = r#"{"id":"evt_test_65","object":"v2.core.event","type":"v1.charge.refunded","livemode":true,"created":"2026-01-01T00:00:00.000Z","related_object":{"id":"ch_1","type":"charge","url":"/v1/charges/ch_1"}}"#;
    let envelope = stripe(body).unwrap().envelope;
    assert_eq!((envelope.event_id.as_str(), envelope.lane), ("evt_test_65", Lane::Other));
    assert_eq!(envelope.occurred_at, Some(now()));
}

#[test]
fn the_kept_header_is_short_and_storable() {
    let long = "v1=".repeat(1000);
    let headers: Vec<(&str, &[u8])> = vec![("a", b"t=1,v1=\xE9\x00\x07"), ("b", b"no"), ("a", long.as_bytes())];
    let kept = kept_header(&headers, "a");
    assert!(kept.len() <= KEPT_HEADER_BYTES, "{}", kept.len());
    assert!(kept.starts_with("t=1,v1=\u{FFFD}\nv1=v1="), "{kept:.40}");
    assert_eq!(kept_header(&headers, "c"), "");
    let wide = "é".repeat(3000);
    assert!(kept_header(&[("a", wide.as_bytes())], "a").len() <= KEPT_HEADER_BYTES);
    let broken = vec![0xFF; 3000];
    assert!(kept_header(&[("a", &broken)], "a").len() <= KEPT_HEADER_BYTES);
}

#[test]
fn a_claimed_id_is_harmless() {
    let claim = |body: &[u8]| {
        let provider = Provider::Stripe;
        Inbound { provider, endpoint_slug: "main", headers: &[], body, received_at: now() }.claimed_id()
    };
    assert_eq!(claim(b"{\n  \"id\": \"evt_1\",\n").as_deref(), Some("evt_1"));
    for odd in [
        &b""[..],
        b"{\"id\":",
        b"{\"id\":5",
        b"{\"id\":\"",
        b"{\"id\":\"\"",
        b"\"id\":\"a\nb\"",
        b"\"id\":\"<script>\"",
        b"\"id\":\"\xFF\"",
    ] {
        assert_eq!(claim(odd), None);
    }
    assert_eq!(claim(format!("{{\"id\":\"{}\"}}", "x".repeat(65)).as_bytes()), None);
    let headers: &[(&str, &[u8])] = &[("webhook-id", b"msg_1")];
    let provider = Provider::StandardWebhooks;
    let inbound = Inbound { provider, endpoint_slug: "main", headers, body: b"", received_at: now() };
    assert_eq!(inbound.claimed_id().as_deref(), Some("msg_1"));
}

/// An endpoint of RevenueCat's, for these stored secrets.
fn revenuecat_endpoint(secrets: &[&str]) -> Endpoint {
    let key = |(version, secret): (i32, &&str)| SigningKey {
        version,
        secret: Zeroizing::new(secret.as_bytes().to_vec()),
        active_from: Time::from_timestamp(0, 0).unwrap(),
        active_until: None,
    };
    Endpoint {
        account: "app_1".to_owned(),
        keys: (4..).zip(secrets).map(key).collect(),
        ..endpoint(Provider::RevenueCat)
    }
}

#[test]
fn a_header_that_is_the_secret_is_never_kept() {
    let (value, signing) = ("Bearer rc_0123456789abcdef", "rc_test_signing_secret");
    let (open, signed) = (format!("authorization:{value}"), format!("hmac:{signing}"));
    let body = br#"{"event":{"id":"e_1","type":"TEST","environment":"SANDBOX"}}"#;
    let send = |headers: &[(&str, &[u8])], secrets: &[&str]| {
        let ring = KeyRing::new(vec![revenuecat_endpoint(secrets)]);
        let provider = Provider::RevenueCat;
        let inbound = Inbound { provider, endpoint_slug: "main", headers, body, received_at: now() };
        let kept = |admission: Admission<'_>| {
            assert!(!format!("{admission:?}").contains(value));
            (admission.auth_method, admission.signature_header, admission.account_key)
        };
        admit(&inbound, &ring, now()).map(kept)
    };
    let authorized = [("authorization", value.as_bytes())];
    let account = "app_1:sandbox".to_owned();
    assert_eq!(send(&authorized, &[&open]), Ok(("static_header", WITHHELD.to_owned(), account.clone())));
    assert_eq!(send(&authorized, &[&open, &signed]), Err(Refusal::MissingHeader("x-revenuecat-webhook-signature")));
    assert_eq!(send(&[("authorization", b"junk")], &[&open]), Err(Refusal::Signature));
    assert_eq!(send(&[], &[&open]), Err(Refusal::MissingHeader("authorization")));
    let headers = sign(Provider::RevenueCat, signed.as_bytes(), "", now(), body).unwrap();
    let mut both: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    both.extend(authorized);
    let (method, kept, _) = send(&both, &[&open, &signed]).unwrap();
    assert_eq!((method, kept.starts_with("t=1767225600,v1=")), ("hmac_body", true));
}

#[test]
fn revenuecat_names_the_app_or_nothing() {
    let secret = "authorization:Bearer rc_0123456789abcdef";
    let send = |event: &str| {
        let body = format!(r#"{{"api_version":"1.0","event":{event}}}"#);
        let headers: [(&str, &[u8]); 1] = [("authorization", b"Bearer rc_0123456789abcdef")];
        let ring = KeyRing::new(vec![revenuecat_endpoint(&[secret])]);
        let provider = Provider::RevenueCat;
        let inbound =
            Inbound { provider, endpoint_slug: "main", headers: &headers, body: body.as_bytes(), received_at: now() };
        admit(&inbound, &ring, now()).map(|admission| (admission.account_key, admission.envelope.lane))
    };
    let kept = |account: &str, lane| Ok((account.to_owned(), lane));
    assert_eq!(send(r#"{"id":"e","type":"TEST","app_id":"app_1"}"#), kept("app_1", Lane::Other));
    let sandbox = r#"{"id":"e","type":"RENEWAL","app_id":"app_1","environment":"SANDBOX"}"#;
    assert_eq!(send(sandbox), kept("app_1:sandbox", Lane::Subscriptions));
    assert_eq!(send(r#"{"id":"e","type":"TRANSFER","environment":"PRODUCTION"}"#), kept("app_1", Lane::Subscriptions));
    assert_eq!(send(r#"{"id":"e","type":"TEST","app_id":"app_9"}"#), Err(Refusal::UnknownAccount));
    for (event, refusal) in [
        ("5", SCHEMA),
        ("null", SCHEMA),
        ("[]", SCHEMA),
        (r#"{"type":"TEST"}"#, SCHEMA),
        (r#"{"id":"e"}"#, SCHEMA),
        (r#"{"id":"","type":"TEST"}"#, ID),
        (r#"{"id":"e","type":""}"#, TYPE),
        (r#"{"id":"e","id":"f","type":"TEST"}"#, SCHEMA),
        (r#"{"id":"e","type":"TEST","app_id":5}"#, SCHEMA),
    ] {
        assert_eq!(send(event), Err(refusal), "{event}");
    }
}

/// The table of docs/STATUS-CODES.md: status and reason of each row that names one.
fn documented() -> Vec<(u16, String)> {
    let rows = include_str!("../../../docs/STATUS-CODES.md")
        .lines()
        .filter(|line| line.starts_with("| 4") || line.starts_with("| 5"));
    let row = |line: &str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let status = cells.next().unwrap().parse().unwrap();
        (status, cells.next().unwrap().trim_matches('`').to_owned())
    };
    rows.map(row).collect()
}

#[test]
fn the_documented_table_is_the_code() {
    let mut documented = documented();
    let mut coded: Vec<(u16, String)> =
        Refusal::ALL.iter().map(|refusal| (refusal.status(), refusal.reason().to_owned())).collect();
    // Not a refusal: the event is kept.
    coded.push((409, "payload_mismatch".to_owned()));
    documented.sort();
    coded.sort();
    assert_eq!(documented, coded);
}

#[test]
fn every_refusal_is_listed_once() {
    const KINDS: usize = 17 + EnvelopeError::ALL.len();
    /// A new variant breaks this match: count it in `KINDS` and list it in `Refusal::ALL`.
    fn counted(refusal: Refusal) {
        match refusal {
            Refusal::UnknownProvider | Refusal::UnknownEndpoint | Refusal::Method | Refusal::TooSlow => {}
            Refusal::TooLarge | Refusal::Encoded | Refusal::HeadersTooLarge | Refusal::BadRequest => {}
            Refusal::RateLimited | Refusal::EndpointDisabled | Refusal::InactiveKey => {}
            Refusal::MissingHeader(_) | Refusal::BadHeader(_) | Refusal::Signature | Refusal::Timestamp => {}
            Refusal::UnknownAccount | Refusal::Unavailable => {}
            Refusal::Envelope(EnvelopeError::Json | EnvelopeError::Schema) => {}
            Refusal::Envelope(EnvelopeError::Id | EnvelopeError::Type) => {}
        }
    }
    Refusal::ALL.into_iter().for_each(counted);
    let reasons: BTreeSet<&str> = Refusal::ALL.iter().map(|refusal| refusal.reason()).collect();
    assert_eq!(reasons.len(), KINDS);
    assert_eq!(Refusal::ALL.len(), KINDS);
    assert!(Refusal::ALL.iter().all(|refusal| (400..600).contains(&refusal.status()) && refusal.status() != 500));
}
