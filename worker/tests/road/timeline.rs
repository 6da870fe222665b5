//! What people see of a payment or subscription: its rows, and what every event did to it.

use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use shared::providers::Provider;
use shared::providers::sample::SampleOptions;

use crate::harness::{Arrival, Loader, World};

fn shown(world: &World, kind: &str, id: &str) -> Value {
    let (code, out, err) = world.webhookctl(&["-o", "json", "ledger", "show", kind, id]);
    assert_eq!(code, 0, "{err}");
    let envelope: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(envelope["schema"], "webhookctl.ledger.show/1");
    assert_eq!(envelope["items"].as_array().unwrap().len(), 1);
    envelope["items"][0].clone()
}

/// Event type, effect and reason of each line.
fn effects(shown: &Value) -> Value {
    let line = |line: &Value| json!([line["event_type"], line["effect"], line["reason"]]);
    shown["timeline"].as_array().unwrap().iter().map(line).collect()
}

fn at(second: i64) -> impl Fn(&mut SampleOptions) {
    let created = Utc::now() - TimeDelta::days(1) + TimeDelta::seconds(second);
    move |o| {
        o.created = created;
        o.payment_amount_minor = Some(10_000);
        o.amount_minor = 2_500;
    }
}

fn arrival(provider: Provider, event_type: &str, suffix: &str, change: impl FnOnce(&mut SampleOptions)) -> Arrival {
    let mut options = SampleOptions::new(suffix, Utc::now());
    change(&mut options);
    Arrival::sample(provider, event_type, &options)
}

#[test]
fn a_payment_is_shown_with_what_every_event_did_to_it() {
    let world = World::new();
    let loader = Loader::of(&world);
    // The refund comes before its payment, whose first news comes last, and the cancellation contradicts it all.
    for (event_type, second) in [
        ("refund.created", 30),
        ("payment_intent.succeeded", 10),
        ("payment_intent.canceled", 40),
        ("payment_intent.processing", 12),
        ("payment_intent.created", 0),
    ] {
        loader.load(&[arrival(Provider::Stripe, event_type, "a", at(second))]);
    }
    let payment = shown(&world, "payment", "pi_a");
    assert_eq!(payment["payments"][0]["status"], "partially_refunded");
    assert_eq!(payment["payments"][0]["refunded_amount"], "25", "an exact decimal");
    assert_eq!(payment["refunds"][0]["refund_id"], "re_a");
    assert_eq!(
        effects(&payment),
        json!([
            ["payment_intent.created", "applied", null],
            ["payment_intent.succeeded", "applied", null],
            ["payment_intent.processing", "stale", null],
            ["refund.created", "applied", null],
            ["payment_intent.canceled", "refused", "canceled_after_paid"],
        ])
    );
    assert_eq!(shown(&world, "payment", "re_a")["subject_id"], "pi_a", "a refund leads to its payment");
    assert_eq!(shown(&world, "refund", "re_a")["subject_id"], "pi_a");

    let (code, out, err) = world.webhookctl(&["ledger", "show", "payment", "pi_a"]);
    assert_eq!(code, 0, "{err}");
    for part in ["TIMELINE", "refund re_a succeeded", "25 USD", "refused: canceled_after_paid", "evt_a_refund_created"]
    {
        assert!(out.contains(part), "{part} in\n{out}");
    }
    let nobody = ["ledger", "show", "payment", "pi_nobody"];
    assert_eq!(world.webhookctl(&nobody).0, 3);
    assert_eq!(world.webhookctl(&["ledger", "show", "payment", "pi_a", "--provider", "standard"]).0, 3);
}

#[test]
fn a_subscription_is_shown_with_the_changes_of_its_owner() {
    let world = World::new();
    let loader = Loader::of(&world);
    for (event_type, second) in [("TRANSFER", 20), ("INITIAL_PURCHASE", 10)] {
        loader.load(&[arrival(Provider::RevenueCat, event_type, "a", at(second))]);
    }
    let subscription = shown(&world, "subscription", "txn_a");
    assert_eq!(subscription["subscriptions"][0]["app_user_id"], "heir_a");
    let told = effects(&subscription);
    assert_eq!(told[0], json!(["INITIAL_PURCHASE", "applied", null]), "{told}");
    assert_eq!(told[1], json!(["TRANSFER", "applied", null]), "{told}");
}
