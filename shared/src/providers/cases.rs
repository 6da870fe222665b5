//! Bugs that others had with payment webhooks, as stories for the pure core. Each names the public report it comes from.
//!
//! `@n` is a time in seconds after the start. What concerns the answers over HTTP, the database or the broker is told in
//! the tests of those.

use serde_json::json;

use super::tests::generic::{event, paid_with, paying, refunding, subscribing};
use super::tests::{
    START, at, envelope_of, in_any_order, in_every_order, ledger, payment, refused, revenuecat, stripe, subscription,
};
use super::{Provider, StoredEvent, facts};
use crate::domain::{Environment, FactDetail, PaymentStatus, Subject, SubscriptionStatus};

fn changes_nothing(events: &[StoredEvent], more: &StoredEvent) {
    let with_more = [events, std::slice::from_ref(more)].concat();
    assert_eq!(ledger(&with_more), ledger(events), "{more:?}");
}

fn invoicing(id: &str, data: &str, at: i64) -> StoredEvent {
    event(id, "invoice.paid", at, data)
}

// What is the same, and what is not.

/// documenso/documenso#3204: each attempt is rebuilt with a new send time, so no field and no hash is stable. Both are
/// kept; the payment's own id makes the effect single.
#[test]
fn b21_a_fact_sent_again_under_another_id_and_time_counts_once() {
    let paid = |id: &str, sent: u32| {
        let data = format!(r#"{{"payment_id":"pay_1","amount":1000,"currency":"KRW","sent_at":{sent}}}"#);
        event(id, "payment.succeeded", 0, &data)
    };
    let events = [paid("evt_1", 1)];
    assert_eq!(payment(&events, "pay_1"), "paid 1000 of 1000, out 0+0");
    changes_nothing(&events, &paid("evt_2", 2));
}

/// Vexa-ai/vexa#519: the sender minted a fresh id for each emission, and one payment was billed four times.
#[test]
fn b22_one_fact_under_two_event_ids() {
    let twins = [paying("evt_1", "succeeded", 1000, 0), paying("evt_2", "succeeded", 1000, 0)];
    assert_eq!(payment(&twins, "pay_1"), "paid 1000 of 1000, out 0+0");
    in_every_order(&twins);
}

/// watt-mind/factory#1432: only the id was compared, and another payload was thrown away. The content is what the intake
/// compares; the second one never reaches the ledger.
#[test]
fn b23_the_same_id_with_other_content_is_noticed() {
    let body = |amount: u32| {
        let data = format!(r#"{{"payment_id":"pay_1","amount":{amount},"currency":"KRW"}}"#);
        format!(r#"{{"type":"payment.succeeded","created":{START},"data":{data}}}"#)
    };
    let hash = |amount| envelope_of(Provider::StandardWebhooks, "evt_1", &body(amount)).semantic_hash;
    assert_eq!(hash(1000), hash(1000));
    assert_ne!(hash(1000), hash(9000));
    let stripe = |amount: u32| {
        let object = format!(r#"{{"object":{{"id":"ch_1","amount":{amount}}}}}"#);
        let body = format!(r#"{{"id":"evt_1","type":"charge.succeeded","created":{START},"data":{object}}}"#);
        envelope_of(Provider::Stripe, "", &body).semantic_hash
    };
    assert_ne!(stripe(1000), stripe(9000));
}

/// cloudcreativity/laravel-stripe#2: every test event of the console has the same id. It lives in the sandbox, so it can
/// neither take the key of a live event nor touch live rows; a second type under that id differs in content.
#[test]
fn b24_test_events_that_share_one_id_stay_in_the_sandbox() {
    let test = |event_type: &str, live: bool| {
        let body = format!(r#"{{"id":"evt_00000000000000","type":"{event_type}","livemode":{live}}}"#);
        envelope_of(Provider::Stripe, "", &body)
    };
    let (one, other) = (test("charge.succeeded", false), test("charge.refunded", false));
    assert_eq!(one.environment, Some(Environment::Sandbox));
    assert_ne!(one.semantic_hash, other.semantic_hash);
    let key = |mode: Option<Environment>| mode.unwrap().account_key("acct_a");
    assert_ne!(key(one.environment), key(test("charge.succeeded", true).environment));
}

/// laravel/cashier-stripe#1678: two handlers saw no row, both inserted, and the loser's side work never ran.
#[test]
fn b26_created_and_updated_at_once() {
    let events = [subscribing("evt_1", "created", "incomplete", 0), subscribing("evt_2", "updated", "active", 1)];
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web active until -");
    in_every_order(&events);
}

/// mikefrawth/repo-health-analyzer#35: a returning customer's new subscription met the unique key of the user. Rows are
/// keyed by the subscription too, so the ended one and the new one stand side by side, and nothing is overwritten.
#[test]
fn b27_a_customer_who_returns_has_a_row_for_each_subscription() {
    let of = |id: &str, subscription: &str, kind: &str, at: i64| {
        let data = format!(
            r#"{{"subscription_id":"{subscription}","app_user_id":"user_1","product_id":"prod_1","store":"web","status":"active"}}"#
        );
        event(id, &format!("subscription.{kind}"), at, &data)
    };
    let events = [
        of("evt_1", "sub_A", "created", 0),
        of("evt_2", "sub_A", "deleted", 10),
        of("evt_3", "sub_B", "created", 100),
        of("evt_4", "sub_A", "updated", 5),
    ];
    assert_eq!(subscription(&events, "sub_A"), "user_1/prod_1/web expired until 10");
    assert_eq!(subscription(&events, "sub_B"), "user_1/prod_1/web active until -");
    in_every_order(&events);
}

// Out of order.

/// laravel/cashier-stripe#1201: `created` arrived a second later and put the paid subscription back to incomplete.
#[test]
fn b29_updated_before_created() {
    let updated = [subscribing("evt_2", "updated", "active", 1)];
    assert_eq!(subscription(&updated, "sub_1"), "user_1/prod_1/web active until -");
    changes_nothing(&updated, &subscribing("evt_1", "created", "incomplete", 0));
}

/// woocommerce/woocommerce-gateway-stripe#902: the late notice of an earlier declined attempt flipped a paid order.
#[test]
fn b31_a_late_failure_after_success() {
    let paid = paying("evt_2", "succeeded", 1000, 60);
    let late = [paid.clone(), paying("evt_1", "failed", 1000, 0)];
    assert_eq!(payment(&late, "pay_1"), "paid 1000 of 1000, out 0+0");
    in_every_order(&late);
    let later = [paid, paying("evt_1", "failed", 1000, 90)];
    assert_eq!(payment(&later, "pay_1"), "paid 1000 of 1000, out 0+0 !failed_after_paid", "never applied by itself");
    in_every_order(&later);
}

/// lunarphp/lunar#2204: the mark of a failure made the later success a no-op.
#[test]
fn b32_success_after_failure_counts() {
    let failed = |id: &str, at| {
        let data = r#"{"payment_id":"pay_1","amount":1000,"currency":"KRW","failure_code":"declined"}"#;
        event(id, "payment.failed", at, data)
    };
    let events = [failed("evt_1", 0), failed("evt_2", 30), paying("evt_3", "succeeded", 1000, 60)];
    assert_eq!(payment(&events, "pay_1"), "paid 1000 of 1000, out 0+0");
    in_every_order(&events);
    // The reason stays in the history, not on a row that is paid.
    let told = |event| facts(event).unwrap().remove(0).detail;
    let reason = |event| match told(event) {
        FactDetail::Payment(fact) => fact.failure_code,
        other => panic!("{}", other.kind()),
    };
    assert_eq!(reason(&events[0]).as_deref(), Some("declined"));
    let row = ledger(&events).remove(&Subject::payment("pay_1")).unwrap().payment.unwrap();
    assert_eq!((row.status, row.failure_code), (PaymentStatus::Paid, None));
}

/// hackerai-tech/hackerai#956: a dunning invoice paid after the end was treated as a renewal. The money is recorded, the
/// subscription stays ended, and a person is told.
#[test]
fn b33_an_invoice_paid_after_the_end() {
    let invoice = r#"{"subscription_id":"sub_1","payment_id":"pay_7","amount":2000,"currency":"KRW"}"#;
    let events = [
        subscribing("evt_0", "created", "active", 0),
        subscribing("evt_1", "deleted", "canceled", 100),
        invoicing("evt_2", invoice, 200),
    ];
    assert_eq!(payment(&events, "pay_7"), "paid 2000 of 2000, out 0+0");
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web expired until 100 !paid_after_ended");
    in_every_order(&events);
    let row = ledger(&events).remove(&Subject::payment("pay_7")).unwrap().payment.unwrap();
    assert_eq!(row.subscription_id.as_deref(), Some("sub_1"), "the review names one, the row the other");
}

/// onetimesecret/onetimesecret#3692: a delayed `updated` overwrote the end.
#[test]
fn b34_an_older_snapshot_after_the_last_one() {
    let events = [
        subscribing("evt_1", "created", "active", 0),
        subscribing("evt_2", "updated", "active", 100),
        subscribing("evt_3", "deleted", "active", 200),
    ];
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web expired until 200");
    in_every_order(&events);
    let hundredfold = [events[0].clone(), events[2].clone()].into_iter().chain(vec![events[1].clone(); 100]);
    assert_eq!(ledger(&hundredfold.collect::<Vec<_>>()), ledger(&events));
}

/// useautumn/autumn#3171: after a failed charge, a cancellation and a renewal the cancel fields stayed behind.
#[test]
fn b36_recovery_leaves_no_cancel_fields_behind() {
    let events = [
        revenuecat::initial(),
        revenuecat::event("e_issue", "BILLING_ISSUE", 10, json!({})),
        revenuecat::event("e_cancel", "CANCELLATION", 11, json!({ "cancel_reason": "BILLING_ERROR" })),
        revenuecat::renewal(20),
    ];
    let row = revenuecat::row(&events);
    assert_eq!((row.status, row.expires_at), (SubscriptionStatus::Active, Some(at(2000))));
    assert_eq!((row.cancelled_at, row.cancel_reason, row.billing_issue_at), (None, None, None));
    in_every_order(&events);
}

/// dj-stripe/dj-stripe#855: the row vanished with the subscription, and its payments lost their link.
#[test]
fn b37_deleted_deletes_nothing_of_ours() {
    let invoice = r#"{"subscription_id":"sub_1","payment_id":"pay_1","amount":2000,"currency":"KRW"}"#;
    let events = [
        subscribing("evt_1", "created", "active", 0),
        invoicing("evt_2", invoice, 1),
        subscribing("evt_3", "deleted", "canceled", 2),
    ];
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web expired until 2");
    let row = ledger(&events).remove(&Subject::payment("pay_1")).unwrap().payment.unwrap();
    assert_eq!(row.subscription_id.as_deref(), Some("sub_1"));
    changes_nothing(&events, &events[0]);
}

// Refunds.

/// woocommerce/woocommerce-gateway-stripe#2497: since 2022-11-15 a refunded charge does not list its refunds. The total
/// counts at once, without an invented refund; the refund's own event takes the place of what was unexplained.
#[test]
fn b39_a_refunded_charge_without_its_refunds() {
    let object = |refunds: serde_json::Value| {
        json!({ "id": "ch_1", "amount": 1000, "amount_refunded": 300, "refunded": false, "currency": "krw",
                "refunds": refunds })
    };
    for refunds in [json!(null), json!({ "data": [] })] {
        let mut events = vec![stripe::event("evt_1", "charge.refunded", 10, object(refunds))];
        assert_eq!(payment(&events, "ch_1"), "partially_refunded 1000 of 1000, out 300+0");
        let refund = json!({ "id": "re_1", "amount": 300, "currency": "krw", "charge": "ch_1", "status": "succeeded",
                             "created": START + 10 });
        events.push(stripe::event("evt_2", "refund.created", 10, refund));
        assert_eq!(payment(&events, "ch_1"), "partially_refunded 1000 of 1000, out 300+0; re_1 succeeded 300");
        in_every_order(&events);
    }
}

/// antiwork/gumroad#6684: refunds of 2 and 3 came with totals of 2 and 5, and 7 were booked.
#[test]
fn b40_single_refunds_and_running_totals() {
    let total = |id, refunded: i64, at| {
        stripe::event(id, "charge.refunded", at, stripe::charge(json!({ "amount_refunded": refunded })))
    };
    let [intent, charge] = stripe::paid();
    let events = [
        intent,
        charge,
        stripe::event("evt_3", "refund.created", 10, stripe::refund("re_1", 200, "succeeded", 10)),
        total("evt_4", 200, 10),
        stripe::event("evt_5", "refund.created", 20, stripe::refund("re_2", 300, "succeeded", 20)),
        total("evt_6", 500, 20),
    ];
    let line = "partially_refunded 10 of 10, out 5+0; re_1 succeeded 2; re_2 succeeded 3";
    assert_eq!(payment(&events, "pi_1"), line);
    in_every_order(&events);
}

/// nopSolutions/nopCommerce#740: 60 + 40 of 100 stayed "partially refunded".
#[test]
fn b42_partial_refunds_that_add_up_to_all() {
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 600, 10),
        refunding("evt_3", "succeeded", "re_2", 400, 20),
    ];
    assert!(payment(&events[..2], "pay_1").starts_with("partially_refunded 1000 of 1000, out 600+0"));
    assert!(payment(&events, "pay_1").starts_with("refunded 1000 of 1000, out 1000+0"));
    in_every_order(&events);
}

/// 202-ecommerce/stripe_official#55: any refund cancelled the order.
#[test]
fn b43_a_small_refund_is_neither_dropped_nor_a_cancellation() {
    let active = subscribing("evt_0", "created", "active", 0);
    let events =
        [active.clone(), paying("evt_1", "succeeded", 1000, 0), refunding("evt_2", "succeeded", "re_1", 1, 10)];
    assert_eq!(payment(&events, "pay_1"), "partially_refunded 1000 of 1000, out 1+0; re_1 succeeded 1");
    assert_eq!(subscription(&events, "sub_1"), subscription(&[active], "sub_1"));
}

/// Automattic/woocommerce-payments#3965: the refund failed a day later, and systems kept "refunded".
#[test]
fn b44_a_refund_that_fails_after_it_succeeded() {
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 1000, 10),
        refunding("evt_3", "failed", "re_1", 1000, 86_400),
    ];
    assert_eq!(payment(&events, "pay_1"), "paid 1000 of 1000, out 0+0; re_1 failed 1000");
    in_every_order(&events);
    changes_nothing(&events, &events[1]);
}

/// polarsource/polar#13751: the refund came within seconds, and the handler asserted that the payment exists.
#[test]
fn b45_a_refund_before_its_payment() {
    let events = [refunding("evt_2", "succeeded", "re_1", 300, 5), paying("evt_1", "succeeded", 1000, 0)];
    assert_eq!(payment(&events[..1], "pay_1"), "unknown; re_1 succeeded 300");
    assert_eq!(payment(&events, "pay_1"), "partially_refunded 1000 of 1000, out 300+0; re_1 succeeded 300");
    in_every_order(&events);
}

/// killbill/killbill-adyen-plugin#36: a refund of somebody else's payment filled the dead jobs. It is a row without a
/// payment, found by a query, and no failure.
#[test]
fn b46_a_refund_whose_payment_never_comes() {
    let orphan = [refunding("evt_1", "succeeded", "re_9", 300, 0)];
    assert_eq!(payment(&orphan, "pay_1"), "unknown; re_9 succeeded 300");
    let ledger = ledger(&orphan).remove(&Subject::payment("pay_1")).unwrap();
    assert!(ledger.payment.is_none() && ledger.reviews.is_empty());
}

/// juspay/hyperswitch#5298: refunds without an id of their own met in one row.
#[test]
fn b47_a_refund_without_an_id() {
    for id in [r#""refund_id":null,"#, ""] {
        let data = format!(r#"{{{id}"payment_id":"pay_1","amount":300,"currency":"KRW"}}"#);
        assert_eq!(refused(&event("evt_1", "refund.succeeded", 0, &data)), "no_refund_id at /data/refund_id");
    }
    let unlinked = |id: &str, refund: &str| {
        event(id, "refund.succeeded", 0, &format!(r#"{{"refund_id":"{refund}","amount":399,"currency":"GBP"}}"#))
    };
    let rows = ledger(&[unlinked("evt_1", "R1"), unlinked("evt_2", "R2")]);
    assert_eq!(rows.keys().cloned().collect::<Vec<_>>(), [Subject::unlinked("R1"), Subject::unlinked("R2")]);
}

/// plutov/paypal#238: refunds arrive as "-0.01". Where that is the provider's way, as it is RevenueCat's, the sign goes;
/// a negative payment is nobody's way.
#[test]
fn b48_negative_amounts() {
    let refund =
        json!({ "cancel_reason": "CUSTOMER_SUPPORT", "currency": "GBP", "price_in_purchased_currency": -3.99 });
    let events = [revenuecat::event("e_1", "CANCELLATION", 0, refund)];
    assert_eq!(payment(&events, "tx_1"), "unknown; tx_1 succeeded 3.99");
    assert_eq!(refused(&paying("evt_1", "succeeded", -500, 0)), "bad_amount at /data/amount");
    let negative = revenuecat::event("e_2", "RENEWAL", 0, json!({ "price_in_purchased_currency": -3.99 }));
    assert_eq!(refused(&negative), "bad_amount at /event/price_in_purchased_currency");
}

/// juspay/hyperswitch#10533: a refund and a lost dispute both return the money, and nothing noticed the sum.
#[test]
fn b49_more_out_than_in() {
    let lost = r#"{"dispute_id":"dp_1","payment_id":"pay_1","amount":1000,"currency":"KRW"}"#;
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 1000, 10),
        event("evt_3", "dispute.lost", 20, lost),
    ];
    let line = "refunded 1000 of 1000, out 1000+1000; re_1 succeeded 1000; dp_1 lost 1000 !more_out_than_in";
    assert_eq!(payment(&events, "pay_1"), line);
    in_every_order(&events);
    let two = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 700, 10),
        refunding("evt_3", "succeeded", "re_2", 400, 20),
    ];
    let line = "refunded 1000 of 1000, out 1100+0; re_1 succeeded 700; re_2 succeeded 400 !more_out_than_in";
    assert_eq!(payment(&two, "pay_1"), line);
    in_every_order(&two);
}

// Amounts and currencies.

fn amount(digits: &str, currency: &str) -> String {
    paid_with(&format!(r#","amount":{digits}"#), &format!(r#","currency":"{currency}""#))
}

/// Paymenter/Paymenter#1258: amounts were always divided by 100. Minor units become exact major units.
#[test]
fn b51_currencies_without_decimals() {
    assert_eq!(amount("10000", "KRW"), "10000 KRW");
    assert_eq!(amount("10000", "JPY"), "10000 JPY");
    assert_eq!(amount("10000", "USD"), "100 USD");
}

/// woocommerce/woocommerce-gateway-stripe#2720: KWD and BHD were taken for currencies of two decimals.
#[test]
fn b52_currencies_with_three_decimals() {
    assert_eq!(amount("92000", "KWD"), "92 KWD");
    assert_eq!(amount("6917282", "KWD"), "6917.282 KWD");
    assert_eq!(amount("1005", "BHD"), "1.005 BHD");
    for (digits, currency) in [("6917.282", "KWD"), ("1.005", "BHD")] {
        assert_eq!(decimal(digits, currency), format!("paid {digits} of {digits}, out 0+0"));
    }
}

/// An amount in major units, as RevenueCat writes it.
fn decimal(digits: &str, currency: &str) -> String {
    let body = format!(
        r#"{{"event":{{"id":"e","type":"NON_RENEWING_PURCHASE","event_timestamp_ms":{START}000,"transaction_id":"tx_1",
            "currency":"{currency}","price_in_purchased_currency":{digits}}}}}"#
    );
    let event = super::tests::stored(Provider::RevenueCat, "", &body);
    facts(&event).map_or_else(|error| error.to_string(), |_| payment(std::slice::from_ref(&event), "tx_1"))
}

/// medusajs/medusa#12789: 98.9009 owed against 98.90 captured. Rounding would choose who loses the rest.
#[test]
fn b54_more_decimals_than_the_currency_has() {
    let bad = "bad_amount at /event/price_in_purchased_currency";
    assert_eq!(decimal("98.9009", "USD"), bad);
    assert_eq!(decimal("10000.5", "KRW"), bad);
    assert_eq!(decimal("98.900", "USD"), "paid 98.9 of 98.9, out 0+0", "a zero is no decimal");
}

/// lnbits/lnbits#1069, serde-rs/json#434: columns overflowed, and integers became floats without a word.
#[test]
fn b55_big_amounts() {
    for exact in ["2147483648", "9007199254740993", "9223372036854775807"] {
        assert_eq!(amount(exact, "KRW"), format!("{exact} KRW"));
    }
    for beyond in ["9223372036854775808", "18446744073709551616", "-9223372036854775809"] {
        assert_eq!(amount(beyond, "KRW"), "bad_amount at /data/amount", "{beyond}");
    }
}

/// mysociety/alaveteli#4474: the trial's invoice of zero, without charge and payment, crashed the handler.
#[test]
fn b56_an_invoice_of_nothing() {
    let trialing = stripe::subscription_object(json!({ "status": "trialing" }));
    let invoice = json!({ "id": "in_1", "customer": "cus_1", "amount_paid": 0, "charge": null, "payment_intent": null,
                          "subscription": "sub_1" });
    let events = [
        stripe::event("evt_1", "customer.subscription.created", 0, trialing),
        stripe::event("evt_2", "invoice.paid", 0, invoice),
    ];
    assert!(subscription(&events, "sub_1").starts_with("cus_1/prod_1/stripe trialing"));
    assert_eq!(ledger(&events).keys().cloned().collect::<Vec<_>>(), [Subject::subscription("sub_1")], "no payment");
    in_every_order(&events);
}

/// profullstack/coinpayportal#205: a missing amount was zero, and a capture of 140 dollars was booked as 0.00.
#[test]
fn b57_a_missing_amount_is_not_zero() {
    let bad = "bad_amount at /data/amount";
    assert_eq!(paid_with("", r#","currency":"USD""#), bad);
    for missing in ["null", r#""""#, "{}"] {
        assert_eq!(amount(missing, "USD"), bad, "{missing}");
    }
    assert_eq!(decimal("null", "USD"), "bad_amount at /event/price_in_purchased_currency");
}

/// airbytehq/airbyte#3527: one value comes as 5000, "5000", 5000.0 and 5e3. Minor units are integers here: the first is
/// an amount, and nothing else is guessed.
#[test]
fn b58_forms_of_a_number() {
    assert_eq!(amount("5000", "KRW"), "5000 KRW");
    for other in [r#""5000""#, "5000.0", "5e3", r#""5,000""#, r#"" 5000""#, r#""0x1388""#, r#""5000abc""#, "true"] {
        assert_eq!(amount(other, "KRW"), "bad_amount at /data/amount", "{other}");
    }
}

/// An unofficial code with another scale appears (MUSD, a millionth of a dollar); providers differ in case.
#[test]
fn b59_forms_of_a_currency() {
    for code in ["usd", "USD", "Usd"] {
        assert_eq!(amount("100", code), "1 USD");
    }
    for code in ["MUSD", "", "XXX", "₩"] {
        assert_eq!(amount("181560000", code), "bad_currency at /data/currency", "{code}");
    }
    assert_eq!(paid_with(r#","amount":1"#, r#","currency":null"#), "bad_currency at /data/currency");
    let dollars = r#"{"refund_id":"re_1","payment_id":"pay_1","amount":100,"currency":"USD"}"#;
    let events = [paying("evt_1", "succeeded", 1000, 0), event("evt_2", "refund.succeeded", 5, dollars)];
    assert!(payment(&events, "pay_1").ends_with("!refund_currency_mismatch"));
    in_every_order(&events);
}

// Times.

/// mozilla/addons#8679: milliseconds read as seconds (year 54065), and the other way round (1970). Such a time would win
/// or lose every comparison for ever, so the event has none, and a person looks.
#[test]
fn b60_the_wrong_unit_of_time() {
    let data = r#"{"payment_id":"pay_1","amount":1000,"currency":"KRW"}"#;
    let body = format!(r#"{{"type":"payment.succeeded","created":{START}000,"data":{data}}}"#);
    let milliseconds = super::tests::stored(Provider::StandardWebhooks, "evt_1", &body);
    assert_eq!((milliseconds.occurred_at, refused(&milliseconds).as_str()), (None, "bad_time at /timestamp"));
    let seconds = revenuecat::event("e_1", "RENEWAL", 0, json!({ "event_timestamp_ms": START }));
    let place = "bad_time at /event/event_timestamp_ms";
    assert_eq!((seconds.occurred_at, refused(&seconds).as_str()), (None, place));
    let expiring = revenuecat::event("e_1", "RENEWAL", 0, json!({ "expiration_at_ms": START + 1000 }));
    assert_eq!(refused(&expiring), "bad_time at /event/expiration_at_ms");
}

/// RevenueCat/purchases-flutter#370: what never ends expires never, in 2222, or at 0.
#[test]
fn b62_for_ever() {
    let expiring =
        |end: serde_json::Value| revenuecat::event("e_1", "INITIAL_PURCHASE", 0, json!({ "expiration_at_ms": end }));
    for (end, expected) in
        [(json!(null), None), (json!(7_952_342_400_000_i64), Some(2222)), (json!(253_402_300_799_999_i64), Some(9999))]
    {
        let expires_at = revenuecat::row(&[expiring(end)]).expires_at;
        assert_eq!(expires_at.map(|time| chrono::Datelike::year(&time)), expected);
    }
    for absurd in [json!(0), json!(-1), json!(i64::MAX), json!(253_402_300_800_000_i64), json!("2222-01-01")] {
        assert_eq!(refused(&expiring(absurd)), "bad_time at /event/expiration_at_ms");
    }
}

/// voltrue2/in-app-purchase#223 and others: parsers accept one spelling of an offset. The profile is RFC 3339. Another
/// spelling is no time: the event is kept, and held for a person instead of being put in the order of its arrival.
#[test]
fn b63_spellings_of_an_offset_and_the_hour_that_comes_twice() {
    let at = |timestamp: &str| {
        let body = format!(r#"{{"type":"payment.succeeded","timestamp":"{timestamp}"}}"#);
        envelope_of(Provider::StandardWebhooks, "evt_1", &body).occurred_at
    };
    let instant = at("2025-10-26T15:14:39.688Z");
    assert!(instant.is_some());
    for same in ["2025-10-26T17:14:39.688+02:00", "2025-10-26T17:14:39.688000000+02:00", "2025-10-26t15:14:39.688z"] {
        assert_eq!(at(same), instant, "{same}");
    }
    for digits in ["", ".123", ".12345", ".123456789"] {
        assert!(at(&format!("2025-10-26T02:30:00{digits}Z")).is_some(), "{digits}");
    }
    let (summer, winter) = (at("2025-10-26T02:30:00+02:00").unwrap(), at("2025-10-26T02:30:00+01:00").unwrap());
    assert_eq!((winter - summer).num_seconds(), 3600);
    for unknown in ["2025-10-26T17:14:39.688+0200", "2018-10-21 10:20:15 Etc/GMT", "2025-10-26T17:14:39"] {
        assert_eq!(at(unknown), None, "{unknown}");
    }
}

// Modes and shapes.

/// pay-rails/pay#999: test objects reached live handlers. The mode belongs to the account under which event and rows are
/// kept, so a test event can neither move live rows nor take the key of a live one.
#[test]
fn b66_a_test_event_on_the_live_endpoint() {
    let of = |live: bool| {
        let body = format!(r#"{{"type":"payment.succeeded","created":{START},"livemode":{live}}}"#);
        envelope_of(Provider::StandardWebhooks, "evt_1", &body).environment.unwrap().account_key("acct_a")
    };
    assert_eq!((of(false), of(true)), ("acct_a:sandbox".to_owned(), "acct_a".to_owned()));
    let of = |mode: &str| {
        let body = format!(r#"{{"event":{{"id":"e","type":"RENEWAL","environment":"{mode}"}}}}"#);
        envelope_of(Provider::RevenueCat, "", &body).environment.unwrap().account_key("app_1")
    };
    assert_eq!((of("SANDBOX"), of("PRODUCTION")), ("app_1:sandbox".to_owned(), "app_1".to_owned()));
}

/// RevenueCat/docs#762: a TRANSFER has neither user nor product.
#[test]
fn b76_a_known_type_without_the_usual_fields() {
    let moved = revenuecat::transferring("e_moved", 500, json!(["user_1"]), json!(["user_2"]));
    let rows = ledger(std::slice::from_ref(&moved));
    assert!(rows.values().all(|ledger| ledger.subscriptions.is_empty()), "no row of nobody");
    let events = [revenuecat::initial(), moved];
    assert_eq!(subscription(&events, "tx_1"), "user_2/prod_1/APP_STORE active until 1000");
    in_any_order(&events);
    let empty = revenuecat::transferring("e_moved", 500, json!([]), json!([]));
    assert_eq!(refused(&empty), "needs_transfer at /event/transferred_from");
}
