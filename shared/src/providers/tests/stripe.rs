//! Stripe, over the API versions.

use serde_json::{Value, json};

use super::*;
use crate::domain::{FactDetail, SubscriptionStatus};

pub(in crate::providers) fn event(id: &str, event_type: &str, at: i64, object: Value) -> StoredEvent {
    let body = json!({ "id": id, "object": "event", "type": event_type, "created": START + at, "livemode": true,
                       "data": { "object": object } });
    stored(Provider::Stripe, "", &body.to_string())
}

fn with(mut object: Value, changes: Value) -> Value {
    object.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    object
}

pub(in crate::providers) fn charge(changes: Value) -> Value {
    let charge = json!({
        "id": "ch_1", "object": "charge", "payment_intent": "pi_1", "amount": 1000, "amount_captured": 1000,
        "amount_refunded": 0, "captured": true, "status": "succeeded", "currency": "usd", "customer": "cus_1",
    });
    with(charge, changes)
}

fn intent(changes: Value) -> Value {
    let intent = json!({
        "id": "pi_1", "object": "payment_intent", "amount": 1000, "amount_received": 1000, "currency": "usd",
        "customer": "cus_1", "latest_charge": "ch_1", "status": "succeeded",
    });
    with(intent, changes)
}

pub(in crate::providers) fn refund(id: &str, amount: i64, status: &str, created: i64) -> Value {
    json!({ "id": id, "object": "refund", "amount": amount, "currency": "usd", "charge": "ch_1",
            "payment_intent": "pi_1", "status": status, "created": START + created })
}

fn dispute(status: &str) -> Value {
    json!({ "id": "dp_1", "object": "dispute", "amount": 1000, "currency": "usd", "charge": "ch_1",
            "payment_intent": "pi_1", "status": status, "reason": "fraudulent", "created": START + 50 })
}

pub(in crate::providers) fn paid() -> [StoredEvent; 2] {
    [
        event("evt_pi", "payment_intent.succeeded", 0, intent(json!({}))),
        event("evt_ch", "charge.succeeded", 0, charge(json!({}))),
    ]
}

#[test]
fn one_payment_told_twice_is_paid_once() {
    assert_eq!(payment(&paid(), "pi_1"), "paid 10 of 10, out 0+0");
    in_any_order(&paid());
    let row = ledger(&paid()).remove(&Subject::payment("pi_1")).unwrap().payment.unwrap();
    assert_eq!(row.charge_id.as_deref(), Some("ch_1"));
    assert_eq!((row.app_user_id.as_deref(), row.store.as_deref()), (Some("cus_1"), Some("stripe")));
}

#[test]
fn references_may_be_expanded_objects_or_absent() {
    let expanded = charge(json!({ "payment_intent": { "id": "pi_1" }, "customer": { "id": "cus_1", "email": "x" } }));
    let row = ledger(&[event("evt_1", "charge.succeeded", 0, expanded)]).remove(&Subject::payment("pi_1")).unwrap();
    assert_eq!(row.payment.unwrap().app_user_id.as_deref(), Some("cus_1"));
    let alone = charge(json!({ "payment_intent": null }));
    assert_eq!(payment(&[event("evt_1", "charge.succeeded", 0, alone)], "ch_1"), "paid 10 of 10, out 0+0");
    let old = intent(json!({ "latest_charge": null, "charges": { "data": [{ "id": "ch_9" }, { "id": "ch_8" }] } }));
    let row = ledger(&[event("evt_1", "payment_intent.succeeded", 0, old)]).remove(&Subject::payment("pi_1")).unwrap();
    assert_eq!(row.payment.unwrap().charge_id.as_deref(), Some("ch_9"));
}

#[test]
fn an_attempt_may_fail_before_one_succeeds() {
    let declined = json!({ "status": "requires_payment_method", "amount_received": 0,
                           "last_payment_error": { "code": "card_declined", "decline_code": "insufficient_funds" } });
    let failed_charge = json!({ "id": "ch_0", "status": "failed", "captured": false, "amount_captured": 0,
                                "failure_code": "card_declined" });
    let mut events = vec![
        event("evt_0", "payment_intent.created", -9, intent(json!({ "status": "requires_payment_method" }))),
        event("evt_1", "charge.failed", -5, charge(failed_charge.clone())),
        event("evt_2", "payment_intent.payment_failed", -5, intent(declined)),
    ];
    assert_eq!(payment(&events, "pi_1"), "failed 0 of 10, out 0+0");
    events.extend(paid());
    // Metadata of the failed attempt is edited later.
    events.push(event("evt_4", "charge.updated", 90, charge(failed_charge)));
    assert_eq!(payment(&events, "pi_1"), "paid 10 of 10, out 0+0");
    in_any_order(&events);
    let row = ledger(&events).remove(&Subject::payment("pi_1")).unwrap().payment.unwrap();
    assert_eq!((row.charge_id.as_deref(), row.failure_code), (Some("ch_1"), None));
}

#[test]
fn an_authorization_is_not_money() {
    let held = json!({ "captured": false, "amount_captured": 0 });
    let authorized = [
        event("evt_1", "charge.succeeded", 0, charge(held)),
        event(
            "evt_2",
            "payment_intent.amount_capturable_updated",
            0,
            intent(json!({ "status": "requires_capture", "amount_received": 0 })),
        ),
    ];
    assert_eq!(payment(&authorized, "pi_1"), "authorized 0 of 10, out 0+0");
    // Letting go of it counts as refunded at Stripe, although nothing was ever taken.
    let let_go = json!({ "captured": false, "amount_captured": 0, "amount_refunded": 1000, "refunded": true });
    let canceled = json!({ "status": "canceled", "amount_received": 0, "cancellation_reason": "abandoned" });
    let released = [
        &authorized[..],
        &[
            event("evt_3", "charge.refunded", 60, charge(let_go)),
            event("evt_4", "payment_intent.canceled", 60, intent(canceled)),
        ],
    ]
    .concat();
    assert_eq!(payment(&released, "pi_1"), "canceled 0 of 10, out 0+0");
    in_any_order(&released);
    let expired = event("evt_3", "charge.expired", 60, charge(json!({ "captured": false })));
    assert_eq!(payment(&[&authorized[..], &[expired]].concat(), "pi_1"), "expired 0 of 10, out 0+0");
}

#[test]
fn what_is_not_captured_is_not_refunded() {
    let part = |refunded: i64| charge(json!({ "amount_captured": 600, "amount_refunded": refunded }));
    let captured = event("evt_2", "charge.captured", 0, part(400));
    assert_eq!(payment(std::slice::from_ref(&captured), "pi_1"), "paid 6 of 10, out 0+0");
    let refunded = [captured, event("evt_3", "charge.refunded", 60, part(500))];
    assert_eq!(payment(&refunded, "pi_1"), "partially_refunded 6 of 10, out 1+0");
    // Before 2022-11-15 the released part is listed like a refund.
    let listed = with(part(400), json!({ "refunds": { "data": [refund("re_0", 400, "succeeded", 0)] } }));
    assert_eq!(payment(&[event("evt_2", "charge.captured", 0, listed)], "pi_1"), "paid 6 of 10, out 0+0");
    let apart = event("evt_3", "charge.refunded", 60, part(100));
    assert_eq!(payment(&[apart], "pi_1"), "partially_refunded 6 of 10, out 1+0", "not counted together");
}

#[test]
fn totals_and_single_refunds_are_not_added_up() {
    let mut events = paid().to_vec();
    let total =
        |id, refunded: i64, at| event(id, "charge.refunded", at, charge(json!({ "amount_refunded": refunded })));
    events.push(total("evt_3", 200, 10));
    assert_eq!(payment(&events, "pi_1"), "partially_refunded 10 of 10, out 2+0");
    events.push(event("evt_4", "refund.created", 10, refund("re_1", 200, "succeeded", 10)));
    assert_eq!(payment(&events, "pi_1"), "partially_refunded 10 of 10, out 2+0; re_1 succeeded 2");
    events.push(total("evt_5", 500, 20));
    events.push(event("evt_6", "charge.refund.updated", 20, refund("re_2", 300, "succeeded", 20)));
    let both = "partially_refunded 10 of 10, out 5+0; re_1 succeeded 2; re_2 succeeded 3";
    assert_eq!(payment(&events, "pi_1"), both);
    in_any_order(&events);
    events.push(event("evt_7", "refund.failed", 3000, refund("re_2", 300, "failed", 20)));
    let failed = "partially_refunded 10 of 10, out 2+0; re_1 succeeded 2; re_2 failed 3";
    assert_eq!(payment(&events, "pi_1"), failed);
    in_any_order(&events);
}

#[test]
fn every_standing_of_a_refund_has_its_word() {
    for (status, expected) in [
        ("pending", "partially_refunded 10 of 10, out 2+0; re_1 pending 2"),
        ("requires_action", "partially_refunded 10 of 10, out 2+0; re_1 pending 2"),
        ("succeeded", "partially_refunded 10 of 10, out 2+0; re_1 succeeded 2"),
        ("failed", "paid 10 of 10, out 0+0; re_1 failed 2"),
        ("canceled", "paid 10 of 10, out 0+0; re_1 canceled 2"),
    ] {
        let mut events = paid().to_vec();
        events.push(event("evt_3", "refund.updated", 10, refund("re_1", 200, status, 10)));
        assert_eq!(payment(&events, "pi_1"), expected);
    }
}

#[test]
fn two_totals_in_one_second() {
    let of = |id, refunded: i64| event(id, "charge.updated", 10, charge(json!({ "amount_refunded": refunded })));
    for (first, second) in [("evt_a", "evt_b"), ("evt_b", "evt_a")] {
        assert_eq!(payment(&[of(first, 0), of(second, 300)], "pi_1"), "partially_refunded 10 of 10, out 3+0");
    }
}

#[test]
fn refunds_listed_inside_a_charge_or_not() {
    let bare = json!({ "id": "ch_1", "amount": 1000, "amount_refunded": 300, "refunded": false, "currency": "krw" });
    let without = |object| payment(&[event("evt_1", "charge.refunded", 0, object)], "ch_1");
    assert_eq!(without(bare.clone()), "partially_refunded 1000 of 1000, out 300+0");
    assert_eq!(without(with(bare.clone(), json!({ "refunds": null }))), "partially_refunded 1000 of 1000, out 300+0");
    // Before 2022-11-15.
    let listed = json!({ "amount_refunded": 300, "refunds": { "data": [refund("re_1", 300, "succeeded", 0)] } });
    let events = [event("evt_1", "charge.refunded", 0, charge(listed))];
    assert_eq!(payment(&events, "pi_1"), "partially_refunded 10 of 10, out 3+0; re_1 succeeded 3");
    let missing = with(bare, json!({ "amount_refunded": null }));
    let error = refused(&event("evt_1", "charge.refunded", 0, missing));
    assert_eq!(error, "bad_amount at /data/object/amount_refunded");
}

#[test]
fn a_dispute_costs_money_from_withdrawal_to_reinstatement() {
    let mut events = paid().to_vec();
    let mut told = |id, kind: &str, at, status| {
        events.push(event(id, &format!("charge.dispute.{kind}"), at, dispute(status)));
        in_any_order(&events);
        payment(&events, "pi_1")
    };
    assert_eq!(told("evt_1", "created", 50, "needs_response"), "paid 10 of 10, out 0+0; dp_1 open 10");
    assert_eq!(told("evt_2", "funds_withdrawn", 50, "needs_response"), "paid 10 of 10, out 0+10; dp_1 open 10");
    assert_eq!(told("evt_3", "updated", 60, "under_review"), "paid 10 of 10, out 0+10; dp_1 under_review 10");
    assert_eq!(told("evt_4", "closed", 70, "won"), "paid 10 of 10, out 0+10; dp_1 won 10");
    assert_eq!(told("evt_5", "funds_reinstated", 71, "won"), "paid 10 of 10, out 0+0; dp_1 won 10");
    let inquiry = [event("evt_1", "charge.dispute.created", 50, dispute("warning_needs_response"))];
    assert_eq!(payment(&inquiry, "pi_1"), "unknown; dp_1 inquiry 10");
    let odd = event("evt_1", "charge.dispute.updated", 50, dispute("paused_by_moon"));
    assert_eq!(refused(&odd), "unknown_status at /data/object/status");
}

#[test]
fn money_objects_that_name_no_payment_are_kept_apart() {
    let alone = with(refund("re_9", 300, "succeeded", 0), json!({ "charge": null, "payment_intent": null }));
    let facts = facts(&event("evt_1", "refund.created", 0, alone)).unwrap();
    assert_eq!(facts[0].subject, Subject::unlinked("re_9"));
    let by_charge = with(dispute("lost"), json!({ "payment_intent": null }));
    let facts = super::facts(&event("evt_1", "charge.dispute.closed", 0, by_charge)).unwrap();
    assert_eq!(facts[0].subject, Subject::payment("ch_1"));
}

#[test]
fn decimals_are_those_of_the_api() {
    for (currency, amount, expected) in [
        ("jpy", "10000", "10000"),
        ("krw", "10000", "10000"),
        ("usd", "10000", "100"),
        ("isk", "100", "1"),
        ("ugx", "100", "1"),
        ("huf", "10000", "100"),
        ("mga", "500", "500"),
        ("kwd", "92000", "92"),
        ("bhd", "1005", "1.005"),
        ("clp", "990", "990"),
        ("USD", "9007199254740993", "90071992547409.93"),
    ] {
        let body = format!(
            r#"{{"id":"evt_1","type":"payment_intent.succeeded","created":{START},"data":{{"object":{{"id":"pi_1","amount":{amount},"amount_received":{amount},"currency":"{currency}"}}}}}}"#
        );
        let line = payment(&[stored(Provider::Stripe, "", &body)], "pi_1");
        assert_eq!(line, format!("paid {expected} of {expected}, out 0+0"), "{currency}");
    }
}

#[test]
fn a_missing_amount_is_not_zero() {
    let told = |change: Value| refused(&event("evt_1", "payment_intent.succeeded", 0, intent(change)));
    assert_eq!(told(json!({ "amount_received": null })), "bad_amount at /data/object/amount_received");
    assert_eq!(told(json!({ "amount": "1000" })), "bad_amount at /data/object/amount");
    assert_eq!(told(json!({ "amount": 10.5 })), "bad_amount at /data/object/amount");
    assert_eq!(told(json!({ "currency": "musd" })), "bad_currency at /data/object/currency");
    assert_eq!(told(json!({ "id": null })), "no_payment_id at /data/object/id");
    assert_eq!(told(json!({ "status": "paused_by_moon" })), "unknown_status at /data/object/status");
    let charge = |change: Value| refused(&event("evt_1", "charge.succeeded", 0, super::stripe::charge(change)));
    assert_eq!(charge(json!({ "amount": null })), "bad_amount at /data/object/amount");
    assert_eq!(charge(json!({ "status": "partially_authorized" })), "unknown_status at /data/object/status");
    let refund = |change: Value| {
        refused(&event("evt_1", "refund.created", 0, with(super::stripe::refund("re_1", 1, "succeeded", 0), change)))
    };
    assert_eq!(refund(json!({ "id": null })), "no_refund_id at /data/object/id");
    assert_eq!(refund(json!({ "amount": null })), "bad_amount at /data/object/amount");
    assert_eq!(refund(json!({ "amount": -1 })), "bad_amount at /data/object/amount");
    assert_eq!(refund(json!({ "status": null })), "unknown_status at /data/object/status");
    let no_object = stored(Provider::Stripe, "", r#"{"id":"evt_1","type":"charge.succeeded","created":1767225600}"#);
    assert_eq!(refused(&no_object), "bad_json at /data");
}

#[test]
fn an_impossible_time_matters_only_where_there_are_facts() {
    let body = |event_type: &str| {
        let object = r#"{"id":"pi_1","amount":1,"amount_received":1,"currency":"usd"}"#;
        let created = "1767225600000";
        format!(r#"{{"id":"evt_1","type":"{event_type}","created":{created},"data":{{"object":{object}}}}}"#)
    };
    let timeless = stored(Provider::Stripe, "", &body("payment_intent.succeeded"));
    assert_eq!(refused(&timeless), "bad_time at /created");
    assert_eq!(facts(&stored(Provider::Stripe, "", &body("payment_intent.pondered"))), Ok(vec![]));
    assert_eq!(facts(&stored(Provider::Stripe, "", &body("checkout.session.completed"))), Ok(vec![]));
}

pub(in crate::providers) fn subscription_object(changes: Value) -> Value {
    let item = |product: &str, end: i64| {
        json!({ "id": "si_1", "price": { "id": "price_1", "product": product }, "quantity": 2,
                "current_period_start": START, "current_period_end": START + end })
    };
    let object = json!({
        "id": "sub_1", "object": "subscription", "customer": "cus_1", "status": "active", "start_date": START,
        "cancel_at_period_end": false, "items": { "data": [item("prod_1", 1000), item("prod_2", 2000)] },
    });
    with(object, changes)
}

fn subscribing(event_type: &str, changes: Value) -> String {
    let event_type = format!("customer.subscription.{event_type}");
    subscription(&[event("evt_1", &event_type, 100, subscription_object(changes))], "sub_1")
}

#[test]
fn a_subscription_has_a_row_for_each_product() {
    let both = "cus_1/prod_1/stripe active until 1000 cus_1/prod_2/stripe active until 2000";
    assert_eq!(subscribing("created", json!({})), both);
    // Before 2025-03-31, with the period at the top.
    let old = json!({ "current_period_start": START, "current_period_end": START + 1500,
                      "items": { "data": [{ "price": { "id": "price_1", "product": { "id": "prod_1" } } }] } });
    assert_eq!(subscribing("created", old), "cus_1/prod_1/stripe active until 1500");
    // Before prices there were plans, before products plans stood alone.
    let plan = json!({ "items": { "data": [{ "plan": { "id": "gold", "product": "prod_1" } }] } });
    assert_eq!(subscribing("created", plan), "cus_1/prod_1/stripe active until -");
    let bare = json!({ "items": { "data": [{ "plan": { "id": "gold", "product": null } }] } });
    assert_eq!(subscribing("created", bare), "cus_1/gold/stripe active until -");
}

#[test]
fn every_standing_has_its_word() {
    let one = |changes: Value| {
        let item = json!({ "data": [{ "price": { "product": "prod_1" }, "current_period_end": START + 1000 }] });
        subscribing("updated", with(changes, json!({ "items": item }))).replace("cus_1/prod_1/stripe ", "")
    };
    for (status, expected) in [
        ("active", "active until 1000"),
        ("trialing", "trialing until 1000"),
        ("past_due", "past_due until 1000"),
        ("unpaid", "past_due until 1000"),
        ("paused", "paused until 1000"),
        ("incomplete", "incomplete until 1000"),
        ("incomplete_expired", "expired until 100"),
        ("canceled", "expired until 100"),
    ] {
        assert_eq!(one(json!({ "status": status })), expected, "{status}");
    }
    assert_eq!(one(json!({ "cancel_at_period_end": true })), "canceled until 1000");
    let both = "cus_1/prod_1/stripe canceled until 2000 cus_1/prod_2/stripe canceled until 2000";
    assert_eq!(subscribing("updated", json!({ "cancel_at_period_end": true })), both, "the last period decides");
    assert_eq!(one(json!({ "status": "trialing", "cancel_at": START + 700 })), "canceled until 700");
    assert_eq!(one(json!({ "status": "past_due", "cancel_at": START + 700 })), "past_due until 700");
    assert_eq!(one(json!({ "status": "canceled", "ended_at": START + 90 })), "expired until 90");
    assert!(subscribing("deleted", json!({})).contains("expired until 100"));
}

/// An update with the former values of what it changed.
fn updating(id: &str, at: i64, changes: Value, previous: Value) -> StoredEvent {
    let body = json!({ "id": id, "object": "event", "type": "customer.subscription.updated", "created": START + at,
                       "data": { "object": subscription_object(changes), "previous_attributes": previous } });
    stored(Provider::Stripe, "", &body.to_string())
}

fn told_before(event: &StoredEvent) -> Option<SubscriptionStatus> {
    match facts(event).unwrap().remove(0).detail {
        FactDetail::Subscription(fact) => fact.was,
        other => panic!("{}", other.kind()),
    }
}

#[test]
fn an_update_says_how_things_stood_before_it() {
    use SubscriptionStatus as S;
    let was = |changes, previous| told_before(&updating("evt_1", 0, changes, previous));
    assert_eq!(was(json!({}), json!({ "status": "incomplete" })), Some(S::Incomplete));
    assert_eq!(was(json!({}), json!({ "metadata": {} })), Some(S::Active), "what is not named did not change");
    let leaving = json!({ "cancel_at_period_end": true });
    assert_eq!(was(leaving.clone(), json!({ "cancel_at_period_end": false })), Some(S::Active));
    assert_eq!(was(leaving, json!({ "metadata": {} })), Some(S::Canceled));
    assert_eq!(was(json!({}), json!({ "cancel_at_period_end": true })), Some(S::Canceled));
    assert_eq!(was(json!({}), json!({ "cancel_at": START + 900, "cancel_at_period_end": false })), Some(S::Canceled));
    let scheduled = json!({ "cancel_at": START + 900 });
    assert_eq!(was(scheduled, json!({ "cancel_at": null, "status": "trialing" })), Some(S::Trialing));
    // Evidence that cannot be read is none, and no reason to hold the event.
    for unreadable in [json!({ "status": "paused_by_moon" }), json!({ "status": 5 }), json!({ "status": null })] {
        assert_eq!(was(json!({}), unreadable), None);
    }
    assert_eq!(was(json!({}), json!(null)), None);
    assert_eq!(was(json!({}), json!(5)), None);
    let created = event("evt_1", "customer.subscription.created", 0, subscription_object(json!({})));
    assert_eq!(told_before(&created), None);
}

#[test]
fn updates_of_one_second_are_told_apart_by_what_was_before() {
    let late = |id, previous: &str| updating(id, 5, json!({ "status": "past_due" }), json!({ "status": previous }));
    let paid = |id, previous: &str| updating(id, 5, json!({}), json!({ "status": previous }));
    let created = event("evt_0", "customer.subscription.created", 0, subscription_object(json!({})));
    for (first, second) in [("evt_a", "evt_b"), ("evt_b", "evt_a")] {
        let recovered = [created.clone(), late(first, "active"), paid(second, "past_due")];
        assert!(subscription(&recovered, "sub_1").starts_with("cus_1/prod_1/stripe active"));
        in_every_order(&recovered);
        let overdue = [
            event("evt_0", "customer.subscription.created", 0, overdue_object()),
            paid(first, "past_due"),
            late(second, "active"),
        ];
        assert!(subscription(&overdue, "sub_1").starts_with("cus_1/prod_1/stripe past_due"));
        in_every_order(&overdue);
        for events in [recovered, overdue] {
            assert!(ledger(&events)[&Subject::subscription("sub_1")].reviews.is_empty());
        }
        // An update of something else comes before the one that changes the standing, whatever their ranks.
        let renamed = || updating(second, 5, json!({}), json!({ "metadata": { "name": "x" } }));
        let trial = updating(first, 5, json!({ "status": "trialing" }), json!({ "status": "active" }));
        for events in [vec![renamed(), trial.clone()], vec![created.clone(), renamed(), trial]] {
            assert!(subscription(&events, "sub_1").starts_with("cus_1/prod_1/stripe trialing"));
            assert!(ledger(&events)[&Subject::subscription("sub_1")].reviews.is_empty());
            in_every_order(&events);
        }
        // Without evidence a person is asked.
        let silent = [
            created.clone(),
            updating(first, 5, json!({ "status": "past_due" }), json!(null)),
            updating(second, 5, json!({}), json!(null)),
        ];
        assert!(subscription(&silent, "sub_1").ends_with("!ambiguous_order"));
        in_every_order(&silent);
    }
}

fn overdue_object() -> Value {
    subscription_object(json!({ "status": "past_due" }))
}

#[test]
fn a_standing_alone_tells_of_a_billing_issue() {
    let issue = |events: &[StoredEvent]| {
        ledger(events).remove(&Subject::subscription("sub_1")).unwrap().subscriptions.remove(0).billing_issue_at
    };
    let update = |id, at, status: &str| updating(id, at, json!({ "status": status }), json!(null));
    let events = [
        event("evt_1", "customer.subscription.created", 0, subscription_object(json!({}))),
        update("evt_2", 50, "past_due"),
        update("evt_3", 60, "unpaid"),
        update("evt_4", 70, "active"),
    ];
    assert_eq!(issue(&events[..2]), Some(at(50)));
    assert_eq!(issue(&events[..3]), Some(at(50)), "since the first");
    assert_eq!(issue(&events), None);
    let invoice = json!({ "id": "in_1", "customer": "cus_1", "subscription": "sub_1" });
    let told_both_ways =
        [&events[..1], &[event("evt_5", "invoice.payment_failed", 49, invoice)], &events[1..2]].concat();
    assert_eq!(issue(&told_both_ways), Some(at(49)));
}

#[test]
fn a_subscription_must_say_whose_and_what() {
    let told = |change| refused(&event("evt_1", "customer.subscription.updated", 0, subscription_object(change)));
    assert_eq!(told(json!({ "status": "paused_by_moon" })), "unknown_status at /data/object/status");
    assert_eq!(told(json!({ "customer": null })), "no_app_user_id at /data/object/customer");
    assert_eq!(told(json!({ "items": null })), "no_product_id at /data/object/items");
    assert_eq!(told(json!({ "items": { "data": [{}] } })), "no_product_id at /data/object/items/data/0/price");
    assert_eq!(told(json!({ "items": { "data": [5] } })), "bad_json at /data/object/items/data/0");
    assert_eq!(told(json!({ "cancel_at": START * 1000 })), "bad_time at /data/object/cancel_at");
}

#[test]
fn an_invoice_ties_payment_and_subscription() {
    let basil = json!({
        "id": "in_1", "customer": "cus_1", "amount_paid": 1000,
        "parent": { "subscription_details": { "subscription": "sub_1" } },
        "payments": { "data": [{ "payment": { "type": "payment_intent", "payment_intent": "pi_1" } }] },
        "lines": { "data": [{ "pricing": { "price_details": { "product": "prod_1" } } }] },
    });
    let old = json!({
        "id": "in_1", "customer": "cus_1", "amount_paid": 1000, "subscription": "sub_1", "payment_intent": "pi_1",
        "charge": "ch_1", "lines": { "data": [{ "price": { "id": "price_1", "product": "prod_1" } }] },
    });
    for invoice in [basil, old] {
        let mut events = paid().to_vec();
        events.push(event("evt_in", "invoice.paid", 1, invoice));
        events.push(event("evt_sub", "customer.subscription.created", 0, subscription_object(json!({}))));
        let mut ledger = ledger(&events);
        let row = ledger.remove(&Subject::payment("pi_1")).unwrap().payment.unwrap();
        assert_eq!(row.subscription_id.as_deref(), Some("sub_1"));
        assert_eq!(row.product_id.as_deref(), Some("prod_1"));
        assert_eq!(row.webhook_event_id, events[2].event_id);
        let rows = ledger.remove(&Subject::subscription("sub_1")).unwrap().subscriptions;
        assert_eq!(rows[0].renewed_at, Some(at(1)));
        in_any_order(&events);
    }
}

#[test]
fn a_free_invoice_makes_no_payment() {
    let trial = json!({ "id": "in_1", "customer": "cus_1", "amount_paid": 0, "charge": null, "payment_intent": null,
                        "subscription": "sub_1" });
    let facts = facts(&event("evt_1", "invoice.paid", 0, trial)).unwrap();
    assert_eq!(facts.iter().map(|fact| &fact.subject).collect::<Vec<_>>(), [&Subject::subscription("sub_1")]);
}

#[test]
fn a_failed_renewal_is_a_billing_issue_until_one_succeeds() {
    let invoice = json!({ "id": "in_1", "customer": "cus_1", "subscription": "sub_1" });
    let mut events = vec![
        event("evt_1", "customer.subscription.created", 0, subscription_object(json!({}))),
        event("evt_2", "invoice.payment_failed", 50, invoice.clone()),
    ];
    let issue = |events: &[StoredEvent]| {
        ledger(events).remove(&Subject::subscription("sub_1")).unwrap().subscriptions.remove(0).billing_issue_at
    };
    assert_eq!(issue(&events), Some(at(50)));
    events.push(event("evt_3", "invoice.paid", 60, invoice));
    assert_eq!(issue(&events), None);
}

#[test]
fn a_checkout_names_the_customer() {
    let session = json!({ "id": "cs_1", "payment_intent": "pi_1", "client_reference_id": "user_7" });
    let mut events = vec![event("evt_1", "checkout.session.completed", 0, session)];
    events.push(event("evt_2", "payment_intent.succeeded", 0, intent(json!({ "customer": null }))));
    let row = ledger(&events).remove(&Subject::payment("pi_1")).unwrap().payment.unwrap();
    assert_eq!(row.app_user_id.as_deref(), Some("user_7"));
    assert_eq!(payment(&events, "pi_1"), "paid 10 of 10, out 0+0");
    let subscribing = json!({ "id": "cs_1", "payment_intent": null, "subscription": "sub_1" });
    assert_eq!(facts(&event("evt_1", "checkout.session.completed", 0, subscribing)), Ok(vec![]));
}

#[test]
fn fields_nobody_reads_may_be_anything() {
    let body = format!(
        r#"{{"id":"evt_1","type":"charge.succeeded","created":{START},"data":{{"object":{{"id":"ch_1","amount":1000,"currency":"usd","note":"\ud83d","metadata":{{"a":"\u0000","a":5}},"outcome":5,"outcome":6}}}}}}"#
    );
    assert_eq!(payment(&[stored(Provider::Stripe, "", &body)], "ch_1"), "paid 10 of 10, out 0+0");
    assert_eq!(facts(&stored(Provider::Stripe, "", r#"{"id":"evt_1","type":"payment.teleported"}"#)), Ok(vec![]));
    let thin =
        r#"{"id":"evt_1","object":"v2.core.event","type":"v1.charge.refunded","created":"2026-01-01T00:00:00Z"}"#;
    assert_eq!(facts(&stored(Provider::Stripe, "", thin)), Ok(vec![]));
}

#[test]
fn samples_of_one_story_belong_together() {
    let tell = |event_type: &str, change: fn(&mut sample::SampleOptions)| {
        let mut options = sample::SampleOptions::new("s1", at(0));
        change(&mut options);
        let sample = sample::event(Provider::Stripe, event_type, &options).unwrap();
        stored(Provider::Stripe, "", std::str::from_utf8(&sample.body).unwrap())
    };
    let events = [
        tell("payment_intent.succeeded", |_| {}),
        tell("charge.succeeded", |_| {}),
        tell("refund.created", |o| (o.amount_minor, o.created) = (300, at(60))),
        tell("charge.refunded", |o| (o.amount_minor, o.payment_amount_minor, o.created) = (300, Some(1099), at(60))),
        tell("refund.created", |o| {
            o.suffix = "s2".to_owned();
            o.payment = Some("pi_s1".to_owned());
            (o.amount_minor, o.created) = (99, at(90));
        }),
        tell("invoice.paid", |o| o.created = at(5)),
        tell("customer.subscription.created", |_| {}),
    ];
    let line = "partially_refunded 10.99 of 10.99, out 3.99+0; re_s1 succeeded 3; re_s2 succeeded 0.99";
    assert_eq!(payment(&events, "pi_s1"), line);
    assert!(subscription(&events, "sub_s1").starts_with("cus_s1/prod_basic/stripe active"));
    in_any_order(&events);
    let size = tell("charge.succeeded", |_| {}).body.len();
    assert!((1_800..4_000).contains(&size), "a charge has the size of a real one: {size}");
}
