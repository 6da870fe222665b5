//! Our own vocabulary over Standard Webhooks.

use super::*;

pub(in crate::providers) fn event(id: &str, event_type: &str, at: i64, data: &str) -> StoredEvent {
    let created = START + at;
    let body = format!(
        r#"{{"id":"{id}","type":"{event_type}","account":"acct_a","created":{created},"livemode":true,"data":{data}}}"#
    );
    stored(Provider::StandardWebhooks, id, &body)
}

pub(in crate::providers) fn paying(id: &str, kind: &str, amount: i64, at: i64) -> StoredEvent {
    event(
        id,
        &format!("payment.{kind}"),
        at,
        &format!(r#"{{"payment_id":"pay_1","amount":{amount},"currency":"KRW"}}"#),
    )
}

pub(in crate::providers) fn refunding(id: &str, kind: &str, refund: &str, amount: i64, at: i64) -> StoredEvent {
    let data = format!(r#"{{"refund_id":"{refund}","payment_id":"pay_1","amount":{amount},"currency":"KRW"}}"#);
    event(id, &format!("refund.{kind}"), at, &data)
}

pub(in crate::providers) fn subscribing(id: &str, kind: &str, status: &str, at: i64) -> StoredEvent {
    let data = format!(
        r#"{{"subscription_id":"sub_1","app_user_id":"user_1","product_id":"prod_1","store":"web","status":"{status}"}}"#
    );
    event(id, &format!("subscription.{kind}"), at, &data)
}

/// What a `payment.succeeded` with these fields comes to.
pub(in crate::providers) fn paid_with(amount: &str, currency: &str) -> String {
    let data = format!(r#"{{"payment_id":"pay_1"{amount}{currency}}}"#);
    let event = event("evt_1", "payment.succeeded", 0, &data);
    match facts(&event) {
        Ok(_) => {
            let row = ledger(&[event]).remove(&Subject::payment("pay_1")).unwrap().payment.unwrap();
            format!("{} {}", row.amount.unwrap(), row.currency.unwrap())
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_late_failure_changes_nothing_and_a_later_one_is_for_a_person() {
    let success = paying("evt_2", "succeeded", 1000, 60);
    let late = [success.clone(), paying("evt_1", "failed", 1000, 0)];
    assert_eq!(payment(&late, "pay_1"), "paid 1000 of 1000, out 0+0");
    let later = [success, paying("evt_1", "failed", 1000, 90)];
    assert_eq!(payment(&later, "pay_1"), "paid 1000 of 1000, out 0+0 !failed_after_paid");
}

#[test]
fn success_counts_after_any_number_of_failures() {
    let events = [
        paying("evt_1", "failed", 1000, 0),
        paying("evt_2", "failed", 1000, 30),
        paying("evt_3", "succeeded", 1000, 60),
    ];
    assert_eq!(payment(&events[..2], "pay_1"), "failed 0 of 1000, out 0+0");
    assert_eq!(payment(&events, "pay_1"), "paid 1000 of 1000, out 0+0");
    in_any_order(&events);
}

#[test]
fn partial_refunds_add_up() {
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 600, 10),
        refunding("evt_3", "succeeded", "re_2", 400, 20),
    ];
    assert_eq!(payment(&events[..2], "pay_1"), "partially_refunded 1000 of 1000, out 600+0; re_1 succeeded 600");
    let both = "refunded 1000 of 1000, out 1000+0; re_1 succeeded 600; re_2 succeeded 400";
    assert_eq!(payment(&events, "pay_1"), both);
    assert_eq!(payment(&events[1..], "pay_1"), "unknown; re_1 succeeded 600; re_2 succeeded 400", "before its payment");
    in_any_order(&events);
    let one = [paying("evt_1", "succeeded", 1000, 0), refunding("evt_2", "succeeded", "re_1", 1, 10)];
    assert_eq!(payment(&one, "pay_1"), "partially_refunded 1000 of 1000, out 1+0; re_1 succeeded 1");
}

#[test]
fn a_refund_may_fail_days_later() {
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 1000, 10),
        refunding("evt_3", "failed", "re_1", 1000, 3000),
    ];
    assert_eq!(payment(&events[..2], "pay_1"), "refunded 1000 of 1000, out 1000+0; re_1 succeeded 1000");
    assert_eq!(payment(&events, "pay_1"), "paid 1000 of 1000, out 0+0; re_1 failed 1000");
    in_any_order(&events);
}

#[test]
fn more_out_than_in_is_stored_as_sent_and_noticed() {
    let dispute = r#"{"dispute_id":"dp_1","payment_id":"pay_1","amount":1000,"currency":"KRW"}"#;
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 1000, 10),
        event("evt_3", "dispute.lost", 20, dispute),
    ];
    let line = "refunded 1000 of 1000, out 1000+1000; re_1 succeeded 1000; dp_1 lost 1000 !more_out_than_in";
    assert_eq!(payment(&events, "pay_1"), line);
    in_any_order(&events);
    let two = [
        paying("evt_1", "succeeded", 1000, 0),
        refunding("evt_2", "succeeded", "re_1", 700, 10),
        refunding("evt_3", "succeeded", "re_2", 400, 20),
    ];
    let line = "refunded 1000 of 1000, out 1100+0; re_1 succeeded 700; re_2 succeeded 400 !more_out_than_in";
    assert_eq!(payment(&two, "pay_1"), line);
}

#[test]
fn a_refund_needs_an_id_and_may_lack_a_payment() {
    let lacking = |data: &str| event("evt_1", "refund.succeeded", 0, data);
    let body = r#""payment_id":"pay_1","amount":300,"currency":"KRW"}"#;
    assert_eq!(refused(&lacking(&format!("{{{body}"))), "no_refund_id at /data/refund_id");
    assert_eq!(refused(&lacking(&format!(r#"{{"refund_id":null,{body}"#))), "no_refund_id at /data/refund_id");
    assert_eq!(refused(&lacking(&format!(r#"{{"refund_id":"",{body}"#))), "bad_id at /data/refund_id");
    assert_eq!(refused(&lacking(&format!(r#"{{"refund_id":"a\u0000b",{body}"#))), "bad_id at /data/refund_id");
    let unlinked = lacking(r#"{"refund_id":"re_9","amount":300,"currency":"KRW"}"#);
    let row = ledger(&[unlinked]).remove(&Subject::unlinked("re_9")).unwrap().refunds.remove(0);
    assert_eq!((row.refund_id.as_str(), row.payment_id), ("re_9", None));
}

#[test]
fn amounts_are_minor_units_of_their_currency() {
    for (amount, currency, expected) in [
        ("10000", "KRW", "10000 KRW"),
        ("10000", "JPY", "10000 JPY"),
        ("10000", "USD", "100 USD"),
        ("1099", "usd", "10.99 USD"),
        ("1099", "Usd", "10.99 USD"),
        ("92000", "KWD", "92 KWD"),
        ("6917282", "KWD", "6917.282 KWD"),
        ("1005", "BHD", "1.005 BHD"),
        ("0", "USD", "0 USD"),
        ("2147483648", "KRW", "2147483648 KRW"),
        ("9007199254740993", "KRW", "9007199254740993 KRW"),
        ("9223372036854775807", "KRW", "9223372036854775807 KRW"),
        ("9223372036854775807", "BHD", "9223372036854775.807 BHD"),
    ] {
        let told = paid_with(&format!(r#","amount":{amount}"#), &format!(r#","currency":"{currency}""#));
        assert_eq!(told, expected);
    }
}

#[test]
fn anything_else_is_no_amount() {
    let currency = r#","currency":"KRW""#;
    assert_eq!(paid_with("", currency), "bad_amount at /data/amount");
    for amount in [
        "null",
        r#""""#,
        "{}",
        "[]",
        "true",
        "-500",
        "9223372036854775808",
        "18446744073709551616",
        "-9223372036854775809",
        "5000.0",
        "5e3",
        r#""5000""#,
        r#""5,000""#,
        r#"" 5000""#,
        r#""0x1388""#,
        r#""5000abc""#,
        "1e400",
    ] {
        assert_eq!(paid_with(&format!(r#","amount":{amount}"#), currency), "bad_amount at /data/amount", "{amount}");
    }
    let twice = r#","amount":100,"amount":999"#;
    assert_eq!(paid_with(twice, currency), "duplicate_key at /data/amount");
}

#[test]
fn only_iso_codes_are_currencies() {
    for currency in [
        "",
        r#","currency":null"#,
        r#","currency":"""#,
        r#","currency":"XXX""#,
        r#","currency":"MUSD""#,
        r#","currency":"₩""#,
        r#","currency":5"#,
        r#","currency":"usd ""#,
    ] {
        assert_eq!(paid_with(r#","amount":181560000"#, currency), "bad_currency at /data/currency", "{currency}");
    }
    let events = [
        paying("evt_1", "succeeded", 1000, 0),
        event(
            "evt_2",
            "refund.succeeded",
            5,
            r#"{"refund_id":"re_1","payment_id":"pay_1","amount":100,"currency":"USD"}"#,
        ),
    ];
    assert!(payment(&events, "pay_1").ends_with("!refund_currency_mismatch"));
}

#[test]
fn an_impossible_time_is_for_a_person() {
    let mut event = paying("evt_1", "succeeded", 1000, 0);
    event.occurred_at = None;
    assert_eq!(refused(&event), "bad_time at /timestamp");
    let data = r#"{"subscription_id":"s","app_user_id":"u","product_id":"p","status":"active","period_end":PE}"#;
    let ending = |end: &str| super::facts(&self::event("e", "subscription.updated", 0, &data.replace("PE", end)));
    for fine in ["null", "1767225600", "7952342400", "253402300799"] {
        assert!(ending(fine).is_ok(), "{fine}");
    }
    for bad in ["0", "-1", "1767225600000", "9223372036854775807", r#""2026-01-01""#] {
        assert_eq!(ending(bad).unwrap_err().to_string(), "bad_time at /data/period_end", "{bad}");
    }
}

#[test]
fn ids_are_kept_byte_for_byte() {
    let ids = ["pay_x", "pay_X", "caf\u{e9}", "cafe\u{301}", "trailing ", "it's", "100%", "a;b", "💥"];
    let events: Vec<StoredEvent> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| {
            let data = format!(r#"{{"payment_id":"{id}","amount":1,"currency":"KRW"}}"#);
            event(&format!("evt_{n}"), "payment.succeeded", 0, &data)
        })
        .collect();
    let ledger = ledger(&events);
    assert_eq!(ledger.len(), ids.len());
    for id in ids {
        assert_eq!(ledger[&Subject::payment(id)].payment.as_ref().unwrap().payment_id, id);
    }
    let long = format!(r#"{{"payment_id":"{}","amount":1,"currency":"KRW"}}"#, "x".repeat(256));
    assert_eq!(refused(&event("evt_1", "payment.succeeded", 0, &long)), "bad_id at /data/payment_id");
}

#[test]
fn unknown_words_are_not_guessed() {
    assert_eq!(facts(&event("evt_1", "payment.teleported", 0, "{}")), Ok(vec![]));
    let moon = subscribing("evt_1", "updated", "paused_by_moon", 1);
    assert_eq!(refused(&moon), "unknown_status at /data/status");
    let partly = r#"{"payment_id":"pay_1","amount":1,"currency":"KRW","status":"partially_authorized"}"#;
    assert_eq!(refused(&event("evt_1", "payment.succeeded", 0, partly)), "unknown_status at /data/status");
    let nobody = r#"{"subscription_id":"sub_1","product_id":"prod_1","status":"active"}"#;
    assert_eq!(refused(&event("evt_1", "subscription.created", 0, nobody)), "no_app_user_id at /data/app_user_id");
    assert_eq!(refused(&event("evt_1", "payment.succeeded", 0, "null")), "bad_json at /data");
    assert_eq!(refused(&event("evt_1", "payment.succeeded", 0, "[]")), "bad_json at /data");
}

#[test]
fn an_older_word_never_beats_a_newer_one() {
    let events = [subscribing("evt_2", "updated", "active", 1), subscribing("evt_1", "created", "incomplete", 0)];
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web active until -");
    let events = [
        subscribing("evt_1", "created", "active", 0),
        subscribing("evt_3", "deleted", "canceled", 200),
        subscribing("evt_2", "updated", "active", 100),
    ];
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web expired until 200");
    in_any_order(&events);
}

#[test]
fn a_payment_after_the_end_is_recorded_and_revives_nothing() {
    let invoice =
        r#"{"invoice_id":"inv_1","subscription_id":"sub_1","payment_id":"pay_7","amount":2000,"currency":"KRW"}"#;
    let events = [
        subscribing("evt_0", "created", "active", 0),
        subscribing("evt_1", "deleted", "canceled", 100),
        event("evt_2", "invoice.paid", 200, invoice),
    ];
    assert_eq!(payment(&events, "pay_7"), "paid 2000 of 2000, out 0+0");
    assert_eq!(subscription(&events, "sub_1"), "user_1/prod_1/web expired until 100 !paid_after_ended");
    let trial = r#"{"invoice_id":"inv_1","subscription_id":"sub_1","payment_id":null,"amount":0,"currency":"KRW"}"#;
    let facts = facts(&event("evt_1", "invoice.paid", 0, trial)).unwrap();
    assert_eq!(facts.iter().map(|fact| fact.detail.kind()).collect::<Vec<_>>(), ["subscription"]);
}
