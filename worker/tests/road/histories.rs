//! The law of the ledger with a real database: random histories, delivered in any order, doubled, cut into batches, over
//! several workers, with redeliveries, give the rows that in-order delivery gives, to the byte.
//!
//! `HISTORIES=10000 deploy/test histories` runs more of them than the default of 100 for each kind.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use shared::domain::{Lane, RetryPolicy};
use shared::intake::{Inbound, KeyRing, admit};
use shared::providers::sample::{self, SampleOptions};
use shared::providers::{Provider, sign};
use shared::sealing::Sealer;
use shared::service::Metrics;
use shared::store::{self, AcceptEvent, Accepted, Pool};
use uuid::Uuid;
use worker::Projector;

use crate::harness::{REVENUECAT_SECRET, SEALING_KEYS, SECRET, STANDARD_SECRET, World};

/// One event of a history.
#[derive(Debug, Clone)]
struct Told {
    provider: Provider,
    event_type: &'static str,
    /// Which refund, dispute or subscription of the story it is about.
    own: u8,
    /// When: few seconds, so that ties are common.
    second: i64,
    amount: i64,
}

/// How a history is delivered.
#[derive(Debug, Clone)]
struct Delivery {
    order: Vec<Told>,
    /// After how many events each batch ends.
    cuts: Vec<usize>,
    workers: usize,
    /// Which batches come once more.
    again: Vec<bool>,
}

fn told(provider: Provider, types: &'static [&'static str]) -> impl Strategy<Value = Told> {
    (prop::sample::select(types), 0..3u8, 0..8i64, 1..20i64).prop_map(move |(event_type, own, second, amount)| Told {
        provider,
        event_type,
        own,
        second,
        amount: amount * 50,
    })
}

/// A history and a way to deliver it. One event of a type and object is told once: its id is made of them.
fn history(provider: Provider, types: &'static [&'static str]) -> impl Strategy<Value = (Vec<Told>, Delivery)> {
    prop::collection::vec(told(provider, types), 1..9)
        .prop_map(|mut events| {
            let mut known = BTreeSet::new();
            events.retain(|told| known.insert((told.event_type, told.own)));
            events.sort_by_key(|told| told.second);
            events
        })
        .prop_flat_map(|events| {
            let cuts = prop::collection::vec(1..4usize, 8);
            let again = prop::collection::vec(any::<bool>(), 8);
            (Just(events.clone()), Just(events).prop_shuffle(), cuts, 1..=4usize, again)
        })
        .prop_map(|(events, order, cuts, workers, again)| (events, Delivery { order, cuts, workers, again }))
}

/// The intake and the workers, without the network between them.
struct Road {
    world: World,
    pool: Pool,
    sealer: Arc<Sealer>,
    ring: KeyRing,
    projectors: Vec<Projector>,
    epoch: DateTime<Utc>,
}

impl Road {
    fn new() -> Road {
        let world = World::new();
        let sealer = Arc::new(Sealer::from_keyring(SEALING_KEYS).unwrap());
        let pool = store::connect(&world.database.url, "histories", 8).unwrap();
        let ring = store::load_key_ring(&mut store::get(&pool).unwrap(), &sealer).unwrap();
        let projector = |number| {
            let mut metrics = Metrics::of("test");
            Projector::new(pool.clone(), sealer.clone(), RetryPolicy::default(), format!("w{number}"), &mut metrics)
        };
        let projectors = (0..4).map(projector).collect();
        Road { world, pool: pool.clone(), sealer: sealer.clone(), ring, projectors, epoch: Utc::now() }
    }

    /// The event as the account sends it. Both accounts send the same ids, so that their rows can be compared.
    fn accept(&self, story: &str, account: &str, told: &Told) -> Uuid {
        let mut options =
            SampleOptions::new(format!("{story}n{}", told.own), self.epoch + TimeDelta::seconds(told.second));
        match told.provider {
            Provider::RevenueCat => {
                // One subscription, and users that become one another.
                options.suffix = format!("{story}n");
                options.customer = Some(format!("{}_{story}n", ["user", "heir", "other"][usize::from(told.own)]));
            }
            Provider::Stripe | Provider::StandardWebhooks => options.payment = Some(format!("pi_{story}")),
        }
        options.amount_minor = told.amount;
        options.payment_amount_minor = Some(1000);
        options.account = Some(account.to_owned());
        let mut sample = sample::event(told.provider, told.event_type, &options).unwrap();
        let secret = match told.provider {
            Provider::Stripe => SECRET,
            Provider::RevenueCat => REVENUECAT_SECRET,
            Provider::StandardWebhooks => STANDARD_SECRET,
        };
        if told.provider == Provider::RevenueCat {
            let own = format!("{}_{}", sample.event_id, told.own);
            sample.body = String::from_utf8(sample.body).unwrap().replace(&sample.event_id, &own).into_bytes();
        }
        let headers = sign(told.provider, secret.as_bytes(), &sample.event_id, Utc::now(), &sample.body).unwrap();
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let now = Utc::now();
        let inbound = Inbound {
            provider: told.provider,
            endpoint_slug: "main",
            headers: &headers,
            body: &sample.body,
            received_at: now,
        };
        let admission = admit(&inbound, &self.ring, now).unwrap();
        let event = AcceptEvent::seal(admission, &self.sealer).unwrap();
        let id = event.id;
        let accepted = store::accept(&mut store::get(&self.pool).unwrap(), Uuid::nil(), 10, &[event]).unwrap();
        assert_eq!(accepted, [Ok(Accepted::New)]);
        id.uuid()
    }

    fn deliver_in_order(&self, story: &str, events: &[Told]) {
        for told in events {
            let id = self.accept(story, "acct_main", told);
            assert!(self.projectors[0].project(Lane::Payments, &[id]).unwrap().is_empty());
        }
    }

    fn deliver(&self, story: &str, delivery: &Delivery) {
        let ids: Vec<Uuid> = delivery.order.iter().map(|told| self.accept(story, "acct_connected", told)).collect();
        let mut batches: Vec<Vec<Uuid>> = Vec::new();
        let mut rest = ids.as_slice();
        for (cut, again) in delivery.cuts.iter().zip(&delivery.again) {
            let (batch, after) = rest.split_at(rest.len().min(*cut));
            rest = after;
            batches.push(batch.to_vec());
            if *again {
                batches.push(batch.to_vec());
            }
        }
        batches.push(rest.to_vec());
        std::thread::scope(|scope| {
            for (worker, projector) in self.projectors.iter().take(delivery.workers).enumerate() {
                let batches = batches.iter().skip(worker).step_by(delivery.workers);
                scope.spawn(move || {
                    for batch in batches.filter(|batch| !batch.is_empty()) {
                        assert!(projector.project(Lane::Payments, batch).unwrap().is_empty());
                    }
                });
            }
        });
    }

    /// Every row and fact of a story as text, without what names the account or our own ids.
    fn rows(&self, story: &str, account: &str) -> Vec<String> {
        let table = |table: &str, key: &str, event: &str| {
            format!(
                "SELECT '{table} ' || (to_jsonb(t) - '{event}' - 'provider_account_id')::text || ' by ' || i.event_id AS row
                   FROM {table} t JOIN webhook.inbox i ON i.id = t.{event}
                  WHERE t.provider_account_id = '{account}' AND t.{key} LIKE '%{story}%'"
            )
        };
        let query = [
            table("payments", "payment_id", "webhook_event_id"),
            table("refunds", "refund_id", "webhook_event_id"),
            table("disputes", "dispute_id", "webhook_event_id"),
            table("subscription_states", "subscription_id", "webhook_event_id"),
            table("ledger_facts", "external_event_id", "event_id"),
        ]
        .join(" UNION ALL ");
        let rows = self.world.rows(&format!("{query} ORDER BY 1"));
        rows.iter().map(|row| row["row"].as_str().unwrap().to_owned()).collect()
    }
}

const PAYMENT_TYPES: [&str; 16] = [
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
    "charge.succeeded",
    "charge.captured",
    "charge.updated",
    "charge.failed",
    "charge.expired",
    "charge.refunded",
    "refund.created",
    "refund.updated",
    "refund.failed",
    "charge.dispute.created",
    "charge.dispute.funds_withdrawn",
    "charge.dispute.funds_reinstated",
    "charge.dispute.closed",
];

const SUBSCRIPTION_TYPES: [&str; 6] = [
    "customer.subscription.created",
    "customer.subscription.updated",
    "customer.subscription.deleted",
    "customer.subscription.paused",
    "invoice.paid",
    "invoice.payment_failed",
];

fn check(provider: Provider, types: &'static [&'static str], cases: u32) {
    let road = Road::new();
    let count = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&history(provider, types), |(events, delivery)| {
        count.set(count.get() + 1);
        let story = format!("h{:06}h", count.get());
        road.deliver_in_order(&story, &events);
        road.deliver(&story, &delivery);
        prop_assert_eq!(road.rows(&story, "acct_main"), road.rows(&story, "acct_connected"));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(road.world.number("SELECT count(*) FROM webhook.dead_letters"), 0);
    assert!(road.world.number("SELECT count(*) FROM ledger_facts") > 0);
}

/// How many histories each of the tests runs.
fn histories() -> u32 {
    std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(100)
}

#[test]
fn random_histories_of_payments_give_the_same_rows_in_any_order() {
    check(Provider::Stripe, &PAYMENT_TYPES, histories());
}

#[test]
fn random_histories_of_subscriptions_give_the_same_rows_in_any_order() {
    check(Provider::Stripe, &SUBSCRIPTION_TYPES, histories());
}

const REVENUECAT_TYPES: [&str; 15] = [
    "INITIAL_PURCHASE",
    "INITIAL_PURCHASE/TRIAL",
    "RENEWAL",
    "NON_RENEWING_PURCHASE",
    "CANCELLATION",
    "CANCELLATION/BILLING_ERROR",
    "CANCELLATION/CUSTOMER_SUPPORT",
    "UNCANCELLATION",
    "BILLING_ISSUE",
    "EXPIRATION",
    "EXPIRATION/SUBSCRIPTION_PAUSED",
    "SUBSCRIPTION_EXTENDED",
    "PRODUCT_CHANGE",
    "REFUND_REVERSED",
    "TRANSFER",
];

#[test]
fn random_histories_of_app_store_subscriptions_and_moving_users_give_the_same_rows_in_any_order() {
    check(Provider::RevenueCat, &REVENUECAT_TYPES, histories());
}
