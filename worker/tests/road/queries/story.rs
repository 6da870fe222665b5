//! Some months of a small shop, told by events, and what the queries must find in them.

use std::collections::BTreeMap;

use chrono::{DateTime, Datelike as _, Days, Months, NaiveTime, SubsecRound as _, TimeDelta, Utc};
use serde_json::{Value, json};
use shared::providers::sample::SampleOptions;

use crate::harness::{Event, Sender, stripe};

pub const ACCOUNT: &str = "acct_main";
type Time = DateTime<Utc>;

/// Three whole months of the past, and the days just before now.
pub struct Calendar {
    now: Time,
    first: Time,
}

impl Calendar {
    pub fn today() -> Calendar {
        let now = Utc::now().trunc_subsecs(0);
        // Far enough back that the days before now lie in no month of the story.
        let month = now.date_naive().with_day(1).unwrap() - Months::new(5);
        Calendar { now, first: month.and_time(NaiveTime::MIN).and_utc() }
    }

    /// Midnight of a day of the `month`-th month, counted from 0.
    fn day(&self, month: u32, day: u64) -> Time {
        self.first + Months::new(month) + Days::new(day - 1)
    }

    fn days_ago(&self, days: i64) -> Time {
        self.now - TimeDelta::days(days)
    }

    fn month(&self, month: u32) -> String {
        self.day(month, 1).format("%Y-%m").to_string()
    }

    /// What the tests put in the place of a parameter.
    pub fn parameter(&self, name: &str, account: &str) -> String {
        match name {
            "day" => self.day(0, 15).date_naive().to_string(),
            "zone" => "UTC".to_owned(),
            "provider" => "stripe".to_owned(),
            "account" => account.to_owned(),
            "payment" => "pi_ann".to_owned(),
            "subscription" => "sub_bob".to_owned(),
            "user" => "cus_ann".to_owned(),
            "product" => "prod_basic".to_owned(),
            "from" => self.day(0, 1).to_rfc3339(),
            "until" => self.day(3, 1).to_rfc3339(),
            "at" => self.day(1, 1).to_rfc3339(),
            "month" => self.day(1, 1).date_naive().to_string(),
            _ => panic!("no value for the parameter {name}"),
        }
    }
}

/// Tells every event twice: in production, and in test mode with the same ids.
struct Teller<'a> {
    sender: &'a Sender,
}

impl Teller<'_> {
    fn event(&self, event_type: &str, suffix: &str, at: Time, options: impl Fn(&mut SampleOptions)) {
        self.changed(event_type, suffix, at, options, |_| {});
    }

    /// An event whose object differs from the sample.
    fn changed(
        &self,
        event_type: &str,
        suffix: &str,
        at: Time,
        options: impl Fn(&mut SampleOptions),
        change: impl Fn(&mut Value),
    ) {
        for livemode in [true, false] {
            let event = stripe(event_type, suffix, |o| {
                o.created = at;
                options(o);
                o.livemode = livemode;
            });
            let mut body: Value = serde_json::from_slice(&event.body).unwrap();
            change(&mut body["data"]["object"]);
            self.sender.deliver(&Event { id: event.id, body: body.to_string().into_bytes() });
        }
    }

    fn paid(&self, suffix: &str, at: Time, amount: i64, currency: &str) {
        self.event("charge.succeeded", suffix, at, money(amount, currency));
    }
}

fn money(amount: i64, currency: &str) -> impl Fn(&mut SampleOptions) {
    move |o| {
        o.amount_minor = amount;
        o.currency = currency.to_owned();
    }
}

fn of(payment: &str, amount: i64, currency: &str) -> impl Fn(&mut SampleOptions) {
    let payment = format!("pi_{payment}");
    move |o| {
        money(amount, currency)(o);
        o.payment = Some(payment.clone());
    }
}

pub fn tell(sender: &Sender, calendar: &Calendar) {
    let teller = Teller { sender };
    tell_sales(&teller, calendar);
    tell_disputes(&teller, calendar);
    tell_failures(&teller, calendar);
    tell_contradictions(&teller, calendar);
    tell_subscriptions(&teller, calendar);
}

fn tell_sales(t: &Teller<'_>, c: &Calendar) {
    let noonish = TimeDelta::hours(10);
    t.paid("ann", c.day(0, 15) + noonish, 5000, "usd");
    t.event("invoice.paid", "ann", c.day(0, 15) + noonish + TimeDelta::seconds(5), money(5000, "usd"));
    t.event("refund.created", "ann1", c.day(0, 20), of("ann", 1200, "usd"));
    t.event("refund.created", "ann2", c.day(1, 2), of("ann", 300, "usd"));
    t.paid("usd2", c.day(0, 15) + TimeDelta::hours(16), 1099, "usd");
    t.paid("krw1", c.day(0, 16) - TimeDelta::seconds(1), 15000, "krw");
    t.paid("bhd1", c.day(0, 16), 1005, "bhd");

    // A total that no refund explains, and refunds of payments that nobody has heard of.
    t.paid("total", c.day(1, 5), 2000, "usd");
    let partly = |o: &mut SampleOptions| {
        o.amount_minor = 500;
        o.payment_amount_minor = Some(2000);
    };
    t.event("charge.refunded", "total", c.day(1, 6), partly);
    t.event("refund.created", "orphan", c.day(1, 20), money(400, "usd"));
    let loose = |refund: &mut Value| {
        refund["payment_intent"] = Value::Null;
        refund["charge"] = Value::Null;
    };
    t.changed("refund.created", "loose", c.day(1, 21), money(200, "usd"), loose);
    t.event("refund.created", "young", c.now - TimeDelta::minutes(10), money(100, "usd"));
}

fn tell_disputes(t: &Teller<'_>, c: &Calendar) {
    t.paid("gone", c.day(1, 3), 8000, "usd");
    t.event("charge.dispute.created", "gone", c.day(1, 10), money(8000, "usd"));
    t.event("charge.dispute.funds_withdrawn", "gone", c.day(1, 10), money(8000, "usd"));
    t.event("charge.dispute.closed", "gone", c.day(2, 1), money(8000, "usd"));

    let hour = TimeDelta::hours(1);
    t.paid("open1", c.days_ago(20), 3000, "usd");
    t.event("charge.dispute.created", "open1", c.days_ago(12) - hour, money(3000, "usd"));
    t.event("charge.dispute.funds_withdrawn", "open1", c.days_ago(12) - hour, money(3000, "usd"));
    t.paid("open2", c.days_ago(20), 9000, "krw");
    t.event("charge.dispute.updated", "open2", c.days_ago(3) - hour, money(9000, "krw"));
    t.event("charge.dispute.created", "open3", c.days_ago(1) - hour, of("open1", 500, "usd"));
}

fn tell_failures(t: &Teller<'_>, c: &Calendar) {
    t.event("payment_intent.payment_failed", "fail1", c.days_ago(2), money(2500, "usd"));
    t.event("payment_intent.payment_failed", "fail2", c.days_ago(6), money(500, "usd"));
    t.event("charge.failed", "fail3", c.days_ago(1), money(7000, "krw"));
    // Longer ago, and paid at the second attempt.
    t.event("payment_intent.payment_failed", "fail4", c.days_ago(10), money(600, "usd"));
    t.event("payment_intent.payment_failed", "fail5", c.days_ago(4), money(800, "usd"));
    t.event("payment_intent.succeeded", "fail5", c.days_ago(3), money(800, "usd"));
}

fn tell_contradictions(t: &Teller<'_>, c: &Calendar) {
    t.event("payment_intent.canceled", "odd1", c.day(2, 5), money(700, "usd"));
    t.event("payment_intent.succeeded", "odd1", c.day(2, 6), money(700, "usd"));
    t.paid("odd2", c.day(2, 7), 4000, "usd");
    t.event("refund.failed", "odd2", c.day(2, 8), money(4000, "usd"));
    t.event("refund.updated", "odd2", c.day(2, 9), money(4000, "usd"));
    t.paid("odd3", c.day(2, 12), 1500, "usd");
    let won = |dispute: &mut Value| dispute["status"] = json!("won");
    t.changed("charge.dispute.created", "odd3", c.day(2, 13), money(1500, "usd"), won);
    t.event("charge.dispute.updated", "odd3", c.day(2, 14), money(1500, "eur"));
}

fn tell_subscriptions(t: &Teller<'_>, c: &Calendar) {
    let subscription = |event_type: &str, who: &str, at: Time, start: Time, change: &dyn Fn(&mut Value)| {
        t.changed(
            event_type,
            who,
            at,
            |_| {},
            |object| {
                object["start_date"] = json!(start.timestamp());
                change(object);
            },
        );
    };
    let (created, updated) = ("customer.subscription.created", "customer.subscription.updated");
    let (paused, deleted) = ("customer.subscription.paused", "customer.subscription.deleted");
    let as_it_is = |_: &mut Value| {};
    subscription(created, "ann", c.day(0, 10), c.day(0, 10), &as_it_is);
    subscription(updated, "ann", c.days_ago(1), c.day(0, 10), &as_it_is);
    subscription(created, "bob", c.day(0, 20), c.day(0, 20), &as_it_is);
    subscription(deleted, "bob", c.day(1, 14), c.day(0, 20), &as_it_is);
    // Canceled, and running out in three and in twenty days.
    let leaving = |object: &mut Value| {
        object["cancel_at_period_end"] = json!(true);
        object["canceled_at"] = object["created"].clone();
        object["cancellation_details"]["reason"] = json!("cancellation_requested");
    };
    subscription(updated, "cat", c.days_ago(27), c.day(1, 20), &leaving);
    subscription(updated, "dan", c.days_ago(10), c.day(1, 25), &leaving);
    subscription(paused, "eve", c.day(1, 20), c.day(0, 5), &as_it_is);
    let plus = |object: &mut Value| object["items"]["data"][0]["price"]["product"] = json!("prod_plus");
    subscription(created, "fay", c.day(0, 12), c.day(0, 12), &plus);
    subscription(created, "odd", c.day(2, 1), c.day(2, 1), &as_it_is);
    subscription(deleted, "odd", c.day(2, 10), c.day(2, 1), &as_it_is);
    subscription(updated, "odd", c.day(2, 11), c.day(2, 1), &as_it_is);
}

/// What each query of the page must answer, by its heading.
pub fn answers(c: &Calendar) -> BTreeMap<&'static str, Vec<String>> {
    let (at, ago) = (|month, day| c.day(month, day).to_rfc3339(), |days| c.days_ago(days).to_rfc3339());
    let ann_paid = (c.day(0, 15) + TimeDelta::hours(10)).to_rfc3339();
    let ann_billed = (c.day(0, 15) + TimeDelta::hours(10) + TimeDelta::seconds(5)).to_rfc3339();
    let (refunded1, refunded2) = (at(0, 20), at(1, 2));
    let months = [c.month(0), c.month(1), c.month(2)];
    let [first, second, third] = &months;
    let answers: [(&str, Vec<String>); 16] = [
        ("Paid today, by currency", texts(["KRW | 1 | 15000", "USD | 2 | 60.99"])),
        (
            "Refunds of a payment",
            vec![
                format!("re_ann1 | succeeded | USD | 12 | {refunded1} | {refunded1} | 50 | 15"),
                format!("re_ann2 | succeeded | USD | 3 | {refunded2} | {refunded2} | 50 | 15"),
            ],
        ),
        (
            "Events of a payment, in order",
            vec![
                format!("{ann_paid} | charge.succeeded | payment | captured | USD | 50 | evt_ann_charge_succeeded"),
                format!("{ann_billed} | invoice.paid | payment | noted | - | - | evt_ann_invoice_paid"),
                format!("{refunded1} | refund.created | refund | succeeded | USD | 12 | evt_ann1_refund_created"),
                format!("{refunded2} | refund.created | refund | succeeded | USD | 3 | evt_ann2_refund_created"),
            ],
        ),
        (
            "The event behind a row",
            vec![format!(
                "pi_ann | partially_refunded | refund.created | evt_ann2_refund_created | {refunded2} | processed"
            )],
        ),
        (
            "Net revenue by month and currency",
            vec![
                format!("{first} | BHD | 1.005 | 0 | 0 | 1.005"),
                format!("{first} | KRW | 15000 | 0 | 0 | 15000"),
                format!("{first} | USD | 60.99 | 12 | 0 | 48.99"),
                format!("{second} | USD | 100 | 9 | 0 | 91"),
                format!("{third} | USD | 55 | 0 | 80 | -25"),
            ],
        ),
        (
            "What is left of a month's sales",
            vec![
                format!("{first} | BHD | 1.005 | 0 | 0 | 1.005"),
                format!("{first} | KRW | 15000 | 0 | 0 | 15000"),
                format!("{first} | USD | 60.99 | 15 | 0 | 45.99"),
                format!("{second} | USD | 100 | 5 | 80 | 15"),
                format!("{third} | USD | 55 | 0 | 0 | 55"),
            ],
        ),
        ("Refund totals that no refund explains", texts(["stripe | acct_main | pi_total | USD | 5 | 0"])),
        (
            "Failed payments of the last 7 days, by failure code",
            texts(["insufficient_funds | USD | 2 | 30", "card_declined | KRW | 1 | 7000"]),
        ),
        (
            "Refunds without a payment",
            vec![
                format!("stripe | acct_main | re_orphan | pi_orphan | succeeded | USD | 4 | {}", at(1, 20)),
                format!("stripe | acct_main | re_loose | - | succeeded | USD | 2 | {}", at(1, 21)),
            ],
        ),
        (
            "What needs review",
            texts([
                "dispute | stripe | acct_main | dp_odd3 | won | dispute_currency_changed",
                "payment | stripe | acct_main | pi_odd3 | paid | dispute_currency_changed",
                "payment | stripe | acct_main | pi_odd1 | canceled | paid_after_canceled",
                "payment | stripe | acct_main | pi_odd2 | paid | refund_succeeded_after_failed",
                "refund | stripe | acct_main | re_odd2 | failed | refund_succeeded_after_failed",
                "subscription | stripe | acct_main | sub_odd | expired | revived_after_ended",
            ]),
        ),
        (
            "Open disputes, oldest first",
            texts([
                "dp_open1 | pi_open1 | cus_open1 | open | fraudulent | 12 | USD | 30 | true | 35",
                "dp_open2 | pi_open2 | cus_open2 | under_review | fraudulent | 3 | KRW | 9000 | false | 9000",
                "dp_open3 | pi_open1 | cus_open1 | open | fraudulent | 1 | USD | 5 | false | 35",
            ]),
        ),
        (
            "Active subscribers of a product at a date",
            vec![
                format!("cus_ann | sub_ann | stripe | 1 | active | {} | {}", at(0, 10), ago(-29)),
                format!("cus_bob | sub_bob | stripe | 1 | expired | {} | {}", at(0, 20), at(1, 14)),
            ],
        ),
        (
            "History of a subscription",
            vec![
                format!("{} | customer.subscription.created | stands | active | prod_basic", at(0, 20)),
                format!("{} | customer.subscription.deleted | stands | expired | prod_basic", at(1, 14)),
            ],
        ),
        (
            "Subscriptions that end in the next 7 days",
            vec![format!("cus_cat | prod_basic | sub_cat | {} | {} | cancellation_requested", ago(-3), ago(27))],
        ),
        (
            "Subscriptions that ended in a month",
            vec![format!(
                "prod_basic | cus_bob | sub_bob | expired | {} | {} | cancellation_requested",
                at(0, 20),
                at(1, 14)
            )],
        ),
        (
            "A customer's whole history",
            vec![
                format!("{} | subscription | sub_ann | active | - | -", at(0, 10)),
                format!("{ann_paid} | payment | pi_ann | partially_refunded | USD | 50"),
                format!("{refunded1} | refund | re_ann1 | succeeded | USD | 12"),
                format!("{refunded2} | refund | re_ann2 | succeeded | USD | 3"),
            ],
        ),
    ];
    answers.into()
}

fn texts<const N: usize>(lines: [&str; N]) -> Vec<String> {
    lines.map(str::to_owned).into()
}
