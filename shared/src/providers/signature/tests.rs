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

fn at(seconds: i64) -> Time {
    Time::from_timestamp(seconds, 0).unwrap()
}

fn key(version: i32, secret: &str) -> SigningKey {
    let secret = Zeroizing::new(secret.as_bytes().to_vec());
    SigningKey { version, secret, active_from: at(0), active_until: None }
}

/// The key version that fits a Stripe request at `now`.
fn stripe_at(now: i64, lines: &[&str], body: &[u8], keys: &[SigningKey]) -> Result<i32, VerifyError> {
    let headers: Vec<(&str, &[u8])> = lines.iter().map(|line| ("stripe-signature", line.as_bytes())).collect();
    verify(&STRIPE, &headers, body, keys, None, at(now)).map(|verified| verified.key_version())
}

fn stripe(lines: &[&str]) -> Result<i32, VerifyError> {
    stripe_at(1_700_000_000, lines, STRIPE_BODY, &[key(1, STRIPE_SECRET)])
}

fn standard_with(headers: &[(&str, &str)], body: &[u8], secret: &str, now: i64) -> Result<String, VerifyError> {
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let keys = [key(1, secret)];
    let verified = verify(&STANDARD_WEBHOOKS, &headers, body, &keys, None, at(now))?;
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
