//! RevenueCat's vocabulary.

use serde_json::{Value, json};

use super::*;
use crate::domain::{FactDetail, Lane, Subscription};

/// Events of one subscription: period 1 lasts from 0 to 1000 seconds, and is paid with tx_1, which names it for ever.
pub(in crate::providers) fn event(id: &str, event_type: &str, at: i64, changes: Value) -> StoredEvent {
    let mut event = json!({
        "id": id, "type": event_type, "event_timestamp_ms": (START + at) * 1000, "environment": "PRODUCTION",
        "app_id": "app_1", "app_user_id": "user_1", "product_id": "prod_1", "store": "APP_STORE",
        "period_type": "NORMAL", "transaction_id": "tx_1", "original_transaction_id": "tx_1", "currency": "USD",
        "purchased_at_ms": START * 1000, "expiration_at_ms": (START + 1000) * 1000, "price": 0,
        "price_in_purchased_currency": 0,
    });
    event.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    stored(Provider::RevenueCat, "", &json!({ "api_version": "1.0", "event": event }).to_string())
}

fn paying(transaction: &str, start: i64, end: i64) -> Value {
    json!({ "transaction_id": transaction, "price": 9.99, "price_in_purchased_currency": 9.99,
            "purchased_at_ms": (START + start) * 1000, "expiration_at_ms": (START + end) * 1000 })
}

pub(in crate::providers) fn initial() -> StoredEvent {
    event("e_initial", "INITIAL_PURCHASE", 0, paying("tx_1", 0, 1000))
}

pub(in crate::providers) fn renewal(at: i64) -> StoredEvent {
    event("e_renewal", "RENEWAL", at, paying("tx_2", 1000, 2000))
}

fn transfer(id: &str, at: i64, from: &str, to: &str) -> StoredEvent {
    transferring(id, at, json!([from]), json!([to, "alias"]))
}

pub(in crate::providers) fn transferring(id: &str, at: i64, from: Value, to: Value) -> StoredEvent {
    let body = json!({ "event": { "id": id, "type": "TRANSFER", "store": "APP_STORE", "transferred_from": from,
                                  "transferred_to": to, "event_timestamp_ms": (START + at) * 1000 } });
    stored(Provider::RevenueCat, "", &body.to_string())
}

fn line(events: &[StoredEvent]) -> String {
    subscription(events, "tx_1")
}

pub(in crate::providers) fn row(events: &[StoredEvent]) -> Subscription {
    ledger(events).remove(&Subject::subscription("tx_1")).unwrap().subscriptions.remove(0)
}

fn kinds(event: &StoredEvent) -> Vec<&'static str> {
    facts(event).unwrap().iter().map(|fact| fact.detail.kind()).collect()
}

#[test]
fn a_purchase_is_a_payment_and_a_subscription() {
    let events = [initial()];
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 1000");
    assert_eq!(payment(&events, "tx_1"), "paid 9.99 of 9.99, out 0+0");
    let subscription = row(&events);
    assert_eq!((subscription.started_at, subscription.renewed_at), (Some(at(0)), None));
    assert_eq!(subscription.subscription_id, "tx_1");
    let paid = ledger(&events).remove(&Subject::payment("tx_1")).unwrap().payment.unwrap();
    assert_eq!((paid.app_user_id.as_deref(), paid.product_id.as_deref()), (Some("user_1"), Some("prod_1")));
    assert_eq!((paid.subscription_id.as_deref(), paid.store.as_deref()), (Some("tx_1"), Some("APP_STORE")));
}

#[test]
fn a_renewal_is_a_payment_of_its_own() {
    let events = [initial(), renewal(1000)];
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 2000");
    assert_eq!(payment(&events, "tx_2"), "paid 9.99 of 9.99, out 0+0");
    assert_eq!((row(&events).started_at, row(&events).renewed_at), (Some(at(0)), Some(at(1000))));
    in_every_order(&events);
}

#[test]
fn a_trial_costs_nothing_until_it_converts() {
    let trial = event("e_1", "INITIAL_PURCHASE", 0, json!({ "period_type": "TRIAL" }));
    assert_eq!(kinds(&trial), ["subscription"]);
    let events = [trial, renewal(1000)];
    assert_eq!(line(&events[..1]), "user_1/prod_1/APP_STORE trialing until 1000");
    assert_eq!(row(&events[..1]).trial_ends_at, Some(at(1000)));
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 2000");
    in_every_order(&events);
}

#[test]
fn amounts_are_what_was_paid_in_the_currency_of_the_purchase() {
    let paid = |changes: &str| {
        let body = format!(
            r#"{{"event":{{"id":"e","type":"NON_RENEWING_PURCHASE","event_timestamp_ms":{START}000,"app_user_id":"user_1",
                "product_id":"coins","store":"PLAY_STORE","transaction_id":"GPA.1",{changes}}}}}"#
        );
        let event = stored(Provider::RevenueCat, "", &body);
        facts(&event).map(|_| payment(&[event], "GPA.1")).unwrap_or_else(|error| error.to_string())
    };
    let cad = r#""currency":"CAD","price":25.487,"price_in_purchased_currency":32.99"#;
    assert_eq!(paid(cad), "paid 32.99 of 32.99, out 0+0", "the price in dollars is not what was paid");
    let exact = r#""currency":"USD","price_in_purchased_currency":90071992547409.93"#;
    assert_eq!(paid(exact), "paid 90071992547409.93 of 90071992547409.93, out 0+0");
    assert_eq!(paid(r#""currency":"KRW","price_in_purchased_currency":9900.0"#), "paid 9900 of 9900, out 0+0");
    assert_eq!(paid(r#""currency":"KWD","price_in_purchased_currency":1.005"#), "paid 1.005 of 1.005, out 0+0");
    let bad = "bad_amount at /event/price_in_purchased_currency";
    for wrong in ["98.9009", "-1", "1e3", r#""4.99""#, "{}", "true", "99999999999999999999"] {
        let told = paid(&format!(r#""currency":"USD","price_in_purchased_currency":{wrong}"#));
        assert_eq!(told, bad, "{wrong}");
    }
    assert_eq!(paid(r#""currency":"KRW","price_in_purchased_currency":10000.5"#), bad);
    let bad_currency = "bad_currency at /event/currency";
    assert_eq!(paid(r#""currency":null,"price_in_purchased_currency":4.99"#), bad_currency);
    assert_eq!(paid(r#""currency":"CRD","price_in_purchased_currency":4.99"#), bad_currency);
    // Unknown is not zero, where money must have moved.
    assert_eq!(paid(r#""currency":"USD","price":4.99"#), bad);
    assert_eq!(paid(r#""currency":"USD","price":null,"price_in_purchased_currency":null"#), bad);
    for free in [
        r#""price_in_purchased_currency":0"#,
        r#""price_in_purchased_currency":0.00,"currency":null"#,
        r#""price_in_purchased_currency":null,"period_type":"PROMOTIONAL""#,
        r#""price_in_purchased_currency":null,"period_type":"TRIAL""#,
        r#""price_in_purchased_currency":null,"is_family_share":true"#,
    ] {
        assert_eq!(paid(free), "unknown", "{free}");
    }
    let twice = r#""currency":"USD","price_in_purchased_currency":1,"price_in_purchased_currency":2"#;
    let body = Zeroizing::new(format!(r#"{{"event":{{{twice}}}}}"#).into_bytes());
    let event = StoredEvent { event_type: "NON_RENEWING_PURCHASE".to_owned(), body, ..renewal(0) };
    assert_eq!(refused(&event), "duplicate_key at /event/price_in_purchased_currency");
}

#[test]
fn a_money_event_needs_a_transaction() {
    let nameless =
        |event_type| event("e", event_type, 0, json!({ "transaction_id": null, "price_in_purchased_currency": 5 }));
    for event_type in ["INITIAL_PURCHASE", "NON_RENEWING_PURCHASE", "REFUND_REVERSED"] {
        assert_eq!(refused(&nameless(event_type)), "no_payment_id at /event/transaction_id", "{event_type}");
    }
}

#[test]
fn two_purchases_under_one_transaction_are_for_a_person() {
    let again = event("e_2", "RENEWAL", 1000, paying("tx_1", 1000, 2000));
    let events = [initial(), again];
    assert_eq!(payment(&events, "tx_1"), "paid 9.99 of 9.99, out 0+0 !payment_id_reused");
    in_every_order(&events);
    let dearer = with_price("e_3", 19.99);
    assert_eq!(payment(&[initial(), dearer], "tx_1"), "paid 9.99 of 9.99, out 0+0 !payment_id_reused");
    let same = with_price("e_4", 9.99);
    assert_eq!(payment(&[initial(), same], "tx_1"), "paid 9.99 of 9.99, out 0+0");
}

fn with_price(id: &str, price: f64) -> StoredEvent {
    let mut changes = paying("tx_1", 0, 1000);
    changes["price_in_purchased_currency"] = json!(price);
    event(id, "INITIAL_PURCHASE", 5, changes)
}

#[test]
fn a_refund_is_no_end_and_a_cancellation_is_no_refund() {
    let given_back =
        json!({ "cancel_reason": "CUSTOMER_SUPPORT", "price": -9.99, "price_in_purchased_currency": -9.99 });
    let refund = event("e_refund", "CANCELLATION", 300, given_back);
    assert_eq!(kinds(&refund), ["refund"]);
    let events = [initial(), refund];
    assert_eq!(payment(&events, "tx_1"), "refunded 9.99 of 9.99, out 9.99+0; tx_1 succeeded 9.99");
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 1000");
    in_every_order(&events);
    for reason in ["UNSUBSCRIBE", "DEVELOPER_INITIATED", "PRICE_INCREASE", "UNKNOWN", "SUBSCRIPTION_PAUSED"] {
        let events = [initial(), event("e_cancel", "CANCELLATION", 300, json!({ "cancel_reason": reason }))];
        assert_eq!(payment(&events, "tx_1"), "paid 9.99 of 9.99, out 0+0");
        assert_eq!(line(&events), "user_1/prod_1/APP_STORE canceled until 1000");
        let row = row(&events);
        assert_eq!((row.cancelled_at, row.cancel_reason.as_deref()), (Some(at(300)), Some(reason)));
    }
    let unknown = json!({ "cancel_reason": "CUSTOMER_SUPPORT", "price_in_purchased_currency": null });
    let error = refused(&event("e", "CANCELLATION", 300, unknown));
    assert_eq!(error, "bad_amount at /event/price_in_purchased_currency");
    let nothing = json!({ "cancel_reason": "CUSTOMER_SUPPORT" });
    assert_eq!(facts(&event("e", "CANCELLATION", 300, nothing)), Ok(vec![]), "a trial has nothing to give back");
}

#[test]
fn a_refund_may_be_reversed_and_given_again() {
    let given_back = |id, at| {
        let changes = json!({ "cancel_reason": "CUSTOMER_SUPPORT", "price_in_purchased_currency": -9.99 });
        event(id, "CANCELLATION", at, changes)
    };
    let reversed = event("e_reversed", "REFUND_REVERSED", 400, json!({ "price_in_purchased_currency": 9.99 }));
    let mut events = vec![initial(), given_back("e_refund", 300), reversed];
    assert_eq!(payment(&events, "tx_1"), "paid 9.99 of 9.99, out 0+0; tx_1 reversed 9.99");
    in_every_order(&events);
    events.push(given_back("e_again", 500));
    assert_eq!(payment(&events, "tx_1"), "refunded 9.99 of 9.99, out 9.99+0; tx_1 succeeded 9.99");
    in_every_order(&events);
}

#[test]
fn a_refund_cuts_its_period_short() {
    let cut = json!({ "expiration_at_ms": (START + 300) * 1000, "expiration_reason": "CUSTOMER_SUPPORT" });
    let events = [initial(), event("e_end", "EXPIRATION", 301, cut)];
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE expired until 300");
    assert_eq!(row(&events).cancel_reason.as_deref(), Some("CUSTOMER_SUPPORT"));
    in_every_order(&events);
}

#[test]
fn access_ends_once_and_a_late_word_of_it_ends_nothing_new() {
    let ended = |at| event("e_end", "EXPIRATION", at, json!({ "expiration_reason": "UNSUBSCRIBE" }));
    let cancel = event("e_cancel", "CANCELLATION", 300, json!({ "cancel_reason": "UNSUBSCRIBE" }));
    let resumed = event("e_uncancel", "UNCANCELLATION", 400, json!({}));
    let mut events = vec![initial(), cancel.clone()];
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE canceled until 1000");
    events.push(resumed.clone());
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 1000");
    assert_eq!((row(&events).cancelled_at, row(&events).cancel_reason), (None, None));
    // Generated an hour late, after the renewal.
    events.extend([renewal(1000), ended(3000)]);
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 2000");
    in_every_order(&events);
    let left = [initial(), cancel, ended(1001)];
    assert_eq!(line(&left), "user_1/prod_1/APP_STORE expired until 1000");
    in_every_order(&left);
    // Whoever comes back is subscribed again.
    let back = [&left[..], &[event("e_back", "RENEWAL", 5000, paying("tx_9", 5000, 6000))]].concat();
    assert_eq!(line(&back), "user_1/prod_1/APP_STORE active until 6000");
    in_every_order(&back);
}

#[test]
fn a_failed_charge_is_not_the_end() {
    let issue =
        |grace: Value| event("e_issue", "BILLING_ISSUE", 1000, json!({ "grace_period_expiration_at_ms": grace }));
    let graceful = [initial(), issue(json!((START + 1500) * 1000))];
    assert_eq!(line(&graceful), "user_1/prod_1/APP_STORE in_grace until 1500");
    assert_eq!(row(&graceful).billing_issue_at, Some(at(1000)));
    let hard = [initial(), issue(json!(null))];
    assert_eq!(line(&hard), "user_1/prod_1/APP_STORE past_due until 1000");
    assert_eq!(row(&hard).billing_issue_at, Some(at(1000)));
    let canceled = event("e_cancel", "CANCELLATION", 1000, json!({ "cancel_reason": "BILLING_ERROR" }));
    for end in [true, false] {
        let last = if end { event("e_end", "EXPIRATION", 1500, json!({})) } else { renewal(1400) };
        let events = [&graceful[..], &[canceled.clone(), last]].concat();
        let expected = if end { "expired until 1000" } else { "active until 2000" };
        assert_eq!(line(&events), format!("user_1/prod_1/APP_STORE {expected}"));
        assert_eq!(row(&events).billing_issue_at.is_some(), end);
        assert_eq!(row(&events).cancelled_at, None);
        in_every_order(&events);
    }
    // Without grace all three come at once, in any order.
    let at_once = [initial(), issue(json!(null)), canceled, event("e_end", "EXPIRATION", 1000, json!({}))];
    assert_eq!(line(&at_once), "user_1/prod_1/APP_STORE expired until 1000");
    assert_eq!(row(&at_once).billing_issue_at, Some(at(1000)));
    in_every_order(&at_once);
}

#[test]
fn a_pause_begins_with_the_end_of_the_period() {
    let announced = event("e_pause", "SUBSCRIPTION_PAUSED", 500, json!({ "auto_resume_at_ms": (START + 9000) * 1000 }));
    let paused = event("e_paused", "EXPIRATION", 1000, json!({ "expiration_reason": "SUBSCRIPTION_PAUSED" }));
    let resumed = event("e_resumed", "RENEWAL", 9000, paying("tx_3", 9000, 10_000));
    let events = [initial(), announced, paused, resumed];
    assert_eq!(line(&events[..2]), "user_1/prod_1/APP_STORE active until 1000");
    assert_eq!(line(&events[..3]), "user_1/prod_1/APP_STORE paused until 1000");
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE active until 10000");
    in_every_order(&events);
}

#[test]
fn an_extension_moves_the_end_and_nothing_else() {
    let longer = event("e_longer", "SUBSCRIPTION_EXTENDED", 500, json!({ "expiration_at_ms": (START + 1700) * 1000 }));
    assert_eq!(line(&[initial(), longer.clone()]), "user_1/prod_1/APP_STORE active until 1700");
    let canceled = event("e_cancel", "CANCELLATION", 300, json!({ "cancel_reason": "UNSUBSCRIBE" }));
    let events = [initial(), canceled, longer.clone()];
    assert_eq!(line(&events), "user_1/prod_1/APP_STORE canceled until 1700", "extended, and still going to leave");
    assert_eq!(row(&events).cancelled_at, Some(at(300)));
    in_every_order(&events);
    assert_eq!(line(&[longer]), "user_1/prod_1/APP_STORE active until 1700", "only what runs can be extended");
}

#[test]
fn a_change_of_product_is_an_intent_until_it_is_bought() {
    let change = event("e_change", "PRODUCT_CHANGE", 500, json!({ "new_product_id": "prod_2" }));
    let mut bought = paying("tx_2", 1000, 2000);
    bought["product_id"] = json!("prod_2");
    let events = [initial(), change, event("e_bought", "RENEWAL", 1000, bought)];
    assert_eq!(line(&events[..2]), "user_1/prod_1/APP_STORE active until 1000");
    let both = "user_1/prod_1/APP_STORE expired until 1000 user_1/prod_2/APP_STORE active until 2000";
    assert_eq!(line(&events), both);
    in_every_order(&events);
    assert_eq!(line(&events[1..2]), "", "an intent alone makes no row");
}

#[test]
fn something_for_life_is_a_payment_alone() {
    let mut changes = paying("tx_5", 0, 0);
    changes["expiration_at_ms"] = json!(null);
    let events = [event("e_1", "NON_RENEWING_PURCHASE", 0, changes)];
    assert_eq!(kinds(&events[0]), ["payment"]);
    let paid = ledger(&events).remove(&Subject::payment("tx_5")).unwrap().payment.unwrap();
    assert_eq!(paid.subscription_id, None);
}

#[test]
fn a_grant_lasts_as_long_as_it_says() {
    let grant = |changes| event("e_grant", "TEMPORARY_ENTITLEMENT_GRANT", 0, changes);
    let named = grant(json!({ "price": null, "price_in_purchased_currency": null }));
    assert_eq!(kinds(&named), ["subscription"]);
    assert_eq!(line(std::slice::from_ref(&named)), "user_1/prod_1/APP_STORE active until 1000");
    in_every_order(&[named, event("e_1", "INITIAL_PURCHASE", 60, paying("tx_1", 60, 1060))]);
    for missing in ["app_user_id", "product_id"] {
        assert_eq!(facts(&grant(json!({ missing: null }))), Ok(vec![]), "{missing}");
    }
    assert_eq!(facts(&grant(json!({ "original_transaction_id": null, "store": null }))), Ok(vec![]));
}

#[test]
fn purchases_follow_their_user() {
    let moved = transfer("e_moved", 500, "user_1", "user_2");
    for moment in [0, 500] {
        let bought = event("e_initial", "INITIAL_PURCHASE", moment, paying("tx_1", 0, 1000));
        let events = [bought, moved.clone()];
        assert_eq!(line(&events), "user_2/prod_1/APP_STORE active until 1000");
        in_every_order(&events);
    }
    let bought_later = event("e_initial", "INITIAL_PURCHASE", 600, paying("tx_1", 0, 1000));
    assert_eq!(line(&[moved.clone(), bought_later]), "user_1/prod_1/APP_STORE active until 1000", "bought afterwards");
    // From one to the next, and back again.
    let chain = [
        initial(),
        moved,
        transfer("e_on", 600, "user_2", "user_3"),
        transfer("e_other", 650, "user_9", "user_8"),
        transfer("e_back", 700, "user_3", "user_1"),
    ];
    assert_eq!(line(&chain[..3]), "user_3/prod_1/APP_STORE active until 1000");
    assert_eq!(line(&chain[..4]), "user_3/prod_1/APP_STORE active until 1000");
    assert_eq!(line(&chain), "user_1/prod_1/APP_STORE active until 1000");
    in_every_order(&chain);
    // The next renewal names the new user by itself.
    let mut renewed = paying("tx_2", 1000, 2000);
    renewed["app_user_id"] = json!("user_3");
    let events = [&chain[..3], &[event("e_renewed", "RENEWAL", 1000, renewed)]].concat();
    assert_eq!(line(&events), "user_3/prod_1/APP_STORE active until 2000");
    in_every_order(&events);
}

#[test]
fn a_customer_goes_by_several_ids() {
    let moved = transferring("e_moved", 500, json!(["anonymous", "user_1", "user_2"]), json!(["user_2", "alias"]));
    let told = facts(&moved).unwrap();
    let from: Vec<&str> = told.iter().map(|fact| fact.subject.id.as_str()).collect();
    assert_eq!(from, ["anonymous", "user_1"], "nobody moves to themselves");
    assert!(told.iter().all(|fact| matches!(&fact.detail, FactDetail::Transfer(t) if t.to == "user_2")));
    assert_eq!(line(&[initial(), moved]), "user_2/prod_1/APP_STORE active until 1000");
    for (from, to, place) in [
        (json!([]), json!(["u2"]), "/event/transferred_from"),
        (json!(null), json!(["u2"]), "/event/transferred_from"),
        (json!(["u1"]), json!([]), "/event/transferred_to"),
        (json!(vec!["u1"; 1001]), json!(["u2"]), "/event/transferred_from"),
    ] {
        assert_eq!(refused(&transferring("e", 0, from, to)), format!("needs_transfer at {place}"));
    }
    let odd = transferring("e", 0, json!(["u1", ""]), json!(["u2"]));
    assert_eq!(refused(&odd), "bad_id at /event/transferred_from");
    let scalar = transferring("e", 0, json!("u1"), json!(["u2"]));
    assert_eq!(refused(&scalar), "bad_json at /event/transferred_from");
}

#[test]
fn a_subscription_without_a_first_transaction_is_named_by_what_it_is() {
    let mut changes = paying("tx_1", 0, 1000);
    changes["original_transaction_id"] = json!(null);
    let events = [event("e_1", "INITIAL_PURCHASE", 0, changes.clone())];
    let named = subscription(&events, "APP_STORE/prod_1/user_1");
    assert_eq!(named, "user_1/prod_1/APP_STORE active until 1000");
    changes["store"] = json!(null);
    let nameless = event("e_1", "INITIAL_PURCHASE", 0, changes);
    assert_eq!(refused(&nameless), "no_subscription_id at /event/original_transaction_id");
    let nobody = event("e_1", "INITIAL_PURCHASE", 0, json!({ "app_user_id": null }));
    assert_eq!(refused(&nobody), "no_app_user_id at /event/app_user_id");
    let nothing = event("e_1", "RENEWAL", 0, json!({ "product_id": null }));
    assert_eq!(refused(&nothing), "no_product_id at /event/product_id");
    // A change of standing is understood without either; it makes no row of its own.
    let bare = event("e_2", "CANCELLATION", 300, json!({ "product_id": null, "app_user_id": null }));
    assert_eq!(line(std::slice::from_ref(&bare)), "");
    assert_eq!(line(&[initial(), bare]), "user_1/prod_1/APP_STORE canceled until 1000");
}

#[test]
fn an_environment_nobody_knows_is_for_a_person() {
    let odd = event("e_1", "INITIAL_PURCHASE", 0, json!({ "environment": "STAGING" }));
    assert_eq!(refused(&odd), "unknown_environment at /event/environment");
    assert!(facts(&event("e_1", "INITIAL_PURCHASE", 0, json!({ "environment": null }))).is_ok());
    assert_eq!(facts(&event("e_1", "PAYWALL_CLOSE", 0, json!({ "environment": "STAGING" }))), Ok(vec![]));
    let bare = StoredEvent { body: Zeroizing::new(b"{}".to_vec()), ..renewal(0) };
    assert_eq!(refused(&bare), "bad_json at /event");
}

#[test]
fn samples_of_one_story_belong_together() {
    let tell = |event_type: &str, day: i64| {
        let options = sample::SampleOptions::new("s1", at(day * 86_400));
        let sample = sample::event(Provider::RevenueCat, event_type, &options).unwrap();
        StoredEvent {
            event_type: event_type.split('/').next().unwrap().to_owned(),
            external_event_id: sample.event_id,
            occurred_at: Some(options.created),
            body: Zeroizing::new(sample.body),
            ..renewal(0)
        }
    };
    let subscribed = |events: &[StoredEvent]| {
        let row = ledger(events).remove(&Subject::subscription("txn_s1")).unwrap().subscriptions.remove(0);
        format!("{} {} {}", row.app_user_id, text_of(&row.status), row.product_id)
    };
    let mut events = vec![tell("INITIAL_PURCHASE", 0), tell("RENEWAL", 30), tell("CANCELLATION", 31)];
    assert_eq!(subscribed(&events), "cus_s1 canceled com.example.pro.monthly");
    events.push(tell("UNCANCELLATION", 32));
    assert_eq!(subscribed(&events), "cus_s1 active com.example.pro.monthly");
    events.push(tell("CANCELLATION/CUSTOMER_SUPPORT", 33));
    assert_eq!(payment(&events, "txn_s1"), "refunded 10.99 of 10.99, out 10.99+0; txn_s1 succeeded 10.99");
    assert_eq!(payment(&events, "txn_s1_renewal"), "paid 10.99 of 10.99, out 0+0");
    events.push(tell("TRANSFER", 34));
    assert_eq!(subscribed(&events), "heir_s1 active com.example.pro.monthly");
    in_any_order(&events);
}

#[test]
fn a_retry_means_the_same_whatever_is_added_to_the_user() {
    let envelope = |changes: Value| {
        let mut event = json!({ "id": "e_1", "type": "RENEWAL", "app_id": "app_1", "event_timestamp_ms": START * 1000,
                                "transaction_id": "tx_1", "product_id": "prod_1", "price": 4.99,
                                "price_in_purchased_currency": 4.99, "purchased_at_ms": START * 1000,
                                "expiration_at_ms": null, "aliases": ["a"], "environment": "SANDBOX" });
        event.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        envelope_of(Provider::RevenueCat, "", &json!({ "api_version": "1.0", "event": event }).to_string())
    };
    let first = envelope(json!({}));
    let again = envelope(json!({ "aliases": ["a", "b"], "subscriber_attributes": { "$email": { "value": "x" } } }));
    assert_eq!(first.semantic_hash, again.semantic_hash);
    for other in [
        json!({ "price_in_purchased_currency": 5.99 }),
        json!({ "transaction_id": "tx_2" }),
        json!({ "expiration_at_ms": START * 1000 }),
        json!({ "event_timestamp_ms": START * 1000 + 1 }),
    ] {
        assert_ne!(first.semantic_hash, envelope(other.clone()).semantic_hash, "{other}");
    }
    assert_eq!((first.account.as_deref(), first.api_version.as_deref()), (Some("app_1"), Some("1.0")));
    assert_eq!((first.lane, first.occurred_at), (Lane::Subscriptions, Some(at(0))));
    assert_eq!(first.environment, Some(crate::domain::Environment::Sandbox));
    let other = envelope(json!({ "type": "TEST", "app_id": null, "environment": null }));
    assert_eq!((other.lane, other.account, other.environment), (Lane::Other, None, None));
    let virtual_currency = json!({ "environment": null, "purchase_environment": "PRODUCTION" });
    assert_eq!(envelope(virtual_currency).environment, Some(crate::domain::Environment::Production));
    for absurd in ["78789789798798", "1767225600", "0", "-1", "9223372036854775807", "1767225600000.5"] {
        let body = format!(r#"{{"event":{{"id":"e","type":"RENEWAL","event_timestamp_ms":{absurd}}}}}"#);
        assert_eq!(envelope_of(Provider::RevenueCat, "", &body).occurred_at, None, "{absurd}");
    }
}
