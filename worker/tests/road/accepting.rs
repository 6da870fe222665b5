//! What the ingress answers, and what each answer leaves behind.

use std::sync::Barrier;

use chrono::{TimeDelta, Utc};
use shared::providers::{Provider, sign};

use crate::harness::{Event, SECRET, Sender, World, post, signed, stripe};

fn sign_at(body: &[u8], secret: &str, age: TimeDelta) -> Vec<(String, String)> {
    let headers = sign(Provider::Stripe, secret.as_bytes(), "", Utc::now() - age, body).unwrap();
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn a_payment_with_its_refund_and_a_subscription_become_ledger_rows() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();

    for event_type in ["payment_intent.succeeded", "charge.succeeded"] {
        sender.deliver(&stripe(event_type, "a", |o| o.amount_minor = 5000));
    }
    for event_type in ["refund.created", "charge.refunded"] {
        sender.deliver(&stripe(event_type, "a", |o| {
            o.amount_minor = 1500;
            o.payment_amount_minor = Some(5000);
        }));
    }
    sender.deliver(&stripe("customer.subscription.created", "a", |_| {}));
    sender.deliver(&stripe("invoice.paid", "a", |_| {}));
    sender.deliver(&stripe("customer.created", "a", |_| {}));
    world.wait_until_settled();

    let payments = world.rows(
        "SELECT payment_id, status, amount, captured_amount, refunded_amount, currency, environment,
                                      provider_account_id, needs_review FROM payments",
    );
    assert_eq!(payments.len(), 1, "{payments:?}");
    assert_eq!(payments[0]["payment_id"], "pi_a");
    assert_eq!(payments[0]["status"], "partially_refunded");
    assert_eq!(payments[0]["captured_amount"], 50);
    assert_eq!(payments[0]["refunded_amount"], 15);
    assert_eq!(payments[0]["currency"], "USD");
    assert_eq!(payments[0]["environment"], "production");
    assert_eq!(payments[0]["provider_account_id"], "acct_main");
    assert_eq!(payments[0]["needs_review"], false);
    assert_eq!(world.number("SELECT count(*) FROM refunds WHERE payment_id = 'pi_a' AND amount = 15"), 1);
    assert_eq!(world.number("SELECT count(*) FROM subscription_states WHERE status = 'active'"), 1);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'processed'"), 6);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'ignored'"), 1);
    assert!(world.number("SELECT count(*) FROM subscription_event_log") >= 2);
    world.wait_for_number(0, "SELECT count(*) FROM webhook.outbox");
    world.assert_books_balance();
}

#[test]
fn each_request_gets_the_documented_answer_and_leaves_the_documented_trace() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let event = stripe("charge.succeeded", "a", |o| o.amount_minor = 1000);
    let other_amount = stripe("charge.succeeded", "a", |o| o.amount_minor = 9000);
    assert_eq!(event.id, other_amount.id);

    assert_eq!(sender.send(&event).status, 200);
    let replayed = sender.send(&event);
    assert_eq!((replayed.status, replayed.body.contains("replayed")), (200, true));
    for _ in 0..2 {
        let mismatch = sender.send(&other_amount);
        assert_eq!((mismatch.status, mismatch.body.contains("payload_mismatch")), (409, true));
    }
    let base = ingress.public();
    let mut flipped = event.body.clone();
    let last = flipped.len() - 2;
    flipped[last] ^= 1;
    let respaced = serde_json::to_vec(&serde_json::from_slice::<serde_json::Value>(&event.body).unwrap()).unwrap();
    assert_ne!(respaced, event.body);
    let unknown_account = stripe("charge.succeeded", "b", |o| o.account = Some("acct_stranger".into())).body;
    let connected = stripe("charge.succeeded", "c", |o| o.account = Some("acct_connected".into())).body;
    let large = vec![b' '; 1_048_577];
    let extra = |mut headers: Vec<(String, String)>, name: &str, value: &str| {
        headers.push((name.to_owned(), value.to_owned()));
        headers
    };
    type Case<'a> = (&'a str, u16, String, Vec<(String, String)>, &'a [u8]);
    let cases: Vec<Case<'_>> = vec![
        ("one byte flipped", 401, "stripe/main".into(), signed(&event.body), &flipped),
        ("printed anew", 401, "stripe/main".into(), signed(&event.body), &respaced),
        (
            "another secret",
            401,
            "stripe/main".into(),
            sign_at(&event.body, "whsec_other_secret_0123456789", TimeDelta::zero()),
            &event.body,
        ),
        ("old", 401, "stripe/main".into(), sign_at(&event.body, SECRET, TimeDelta::seconds(310)), &event.body),
        (
            "from the future",
            401,
            "stripe/main".into(),
            sign_at(&event.body, SECRET, TimeDelta::seconds(-310)),
            &event.body,
        ),
        ("no signature", 400, "stripe/main".into(), vec![], &event.body),
        ("signed, but not JSON", 400, "stripe/main".into(), signed(b"<xml/>"), b"<xml/>"),
        ("signed, but empty", 400, "stripe/main".into(), signed(b""), b""),
        ("unknown endpoint", 404, "stripe/nowhere".into(), signed(&event.body), &event.body),
        ("unknown provider", 404, "nobody/main".into(), signed(&event.body), &event.body),
        ("unknown account", 404, "stripe/main".into(), signed(&unknown_account), &unknown_account),
        ("connected account", 200, "stripe/main".into(), signed(&connected), &connected),
        ("encoded", 415, "stripe/main".into(), extra(signed(&event.body), "content-encoding", "gzip"), &event.body),
        ("too large", 413, "stripe/main".into(), signed(&large), &large),
    ];
    for (what, status, path, headers, body) in &cases {
        let answer = post(sender.agent(), &format!("{base}/webhooks/{path}"), headers, body);
        assert_eq!(answer.as_ref().map(|a| a.status), Some(*status), "{what}: {answer:?}");
    }
    let probe = sender.agent().get(format!("{base}/webhooks/stripe/main")).call().unwrap();
    assert_eq!(probe.status().as_u16(), 405);
    assert_eq!(probe.headers()["allow"], "POST");

    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox"), 2);
    assert_eq!(world.number("SELECT count(*) FROM webhook.replays"), 1);
    assert_eq!(world.number("SELECT replay_count FROM webhook.inbox WHERE provider_account_id = 'acct_main'"), 1);
    let quarantine = world.rows("SELECT reason, seen_count FROM webhook.quarantine");
    assert_eq!(quarantine, [serde_json::json!({"reason": "payload_mismatch", "seen_count": 2})]);
    // Both versions are kept: the accepted ones, and the differing one once.
    assert_eq!(world.number("SELECT count(*) FROM webhook.raw_events"), 3);
    // Twelve of the cases and the probe. The requests that waited for the door to open had no signature either.
    let counted = "SELECT sum(requests) FROM webhook.intake_counts
                    WHERE outcome = 'rejected' AND reason NOT IN ('missing_header', 'storage')";
    world.wait_for_number(13, counted);
    let kept = "SELECT count(*) FROM webhook.refusals WHERE reason = 'signature'";
    assert_eq!(world.number(kept), 3);
    assert_eq!(
        world
            .number("SELECT count(*) FROM webhook.events WHERE NOT signature_valid AND processing_result = 'rejected'"),
        5
    );
}

#[test]
fn b17_fifty_identical_deliveries_at_once_are_one_event() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let event = stripe("charge.succeeded", "a", |_| {});
    let barrier = Barrier::new(50);
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                barrier.wait();
                sender.deliver(&event);
            });
        }
    });
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox"), 1);
    assert_eq!(world.number("SELECT count(*) FROM webhook.raw_events"), 1);
    assert_eq!(world.number("SELECT count(*) FROM webhook.replays"), 49);
    assert_eq!(world.number("SELECT count(*) FROM payments"), 1);
    world.assert_books_balance();
}

#[test]
fn b66_test_mode_and_live_mode_never_meet() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    for livemode in [false, true] {
        sender.deliver(&stripe("charge.succeeded", "a", |o| o.livemode = livemode));
    }
    world.wait_until_settled();
    let rows = world.rows("SELECT environment, provider_account_id FROM payments ORDER BY environment");
    assert_eq!(
        rows,
        [
            serde_json::json!({"environment": "production", "provider_account_id": "acct_main"}),
            serde_json::json!({"environment": "sandbox", "provider_account_id": "acct_main:sandbox"}),
        ]
    );
}

#[test]
fn a_payload_that_cannot_be_understood_is_quarantined_and_nothing_is_guessed() {
    let world = World::new();
    let (ingress, _worker) = (world.ingress(), world.worker());
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    for (suffix, from, to) in [("a", "\"amount\":1099", "\"amount\":null"), ("b", "\"usd\"", "\"€€€\"")] {
        let event = stripe("charge.succeeded", suffix, |_| {});
        let text = String::from_utf8(event.body).unwrap();
        let compact = serde_json::to_string(&serde_json::from_str::<serde_json::Value>(&text).unwrap()).unwrap();
        assert!(compact.contains(from), "{compact}");
        sender.deliver(&Event { id: event.id, body: compact.replace(from, to).into_bytes() });
    }
    world.wait_until_settled();
    assert_eq!(world.number("SELECT count(*) FROM payments"), 0);
    let reasons = world.rows("SELECT reason FROM webhook.quarantine ORDER BY reason");
    assert_eq!(reasons, [serde_json::json!({"reason": "bad_amount"}), serde_json::json!({"reason": "bad_currency"})]);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE status = 'quarantined'"), 2);
    world.assert_books_balance();
}

#[test]
fn a_standard_webhooks_event_is_accepted_by_its_signed_id() {
    let world = World::new();
    let ingress = world.ingress();
    let sender = Sender::to(&ingress);
    sender.wait_until_open();
    let body = br#"{"type":"user.created","timestamp":"2026-01-01T00:00:00Z","data":{}}"#;
    let secret = shared::providers::check_secret(Provider::StandardWebhooks, crate::harness::STANDARD_SECRET).unwrap();
    let headers = sign(Provider::StandardWebhooks, &secret, "msg_1", Utc::now(), body).unwrap();
    let mut headers: Vec<(String, String)> = headers.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
    let url = format!("{}/webhooks/standard/main", ingress.public());
    assert_eq!(post(sender.agent(), &url, &headers, body).unwrap().status, 200);
    // The id is part of what is signed.
    headers.iter_mut().filter(|(name, _)| name == "webhook-id").for_each(|(_, value)| *value = "msg_2".into());
    assert_eq!(post(sender.agent(), &url, &headers, body).unwrap().status, 401);
    assert_eq!(world.number("SELECT count(*) FROM webhook.inbox WHERE event_id = 'msg_1'"), 1);
}
