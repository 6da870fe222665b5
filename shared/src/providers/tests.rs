//! Stories: what providers send, read into facts and folded into the ledger.

pub(super) mod generic;
pub(super) mod revenuecat;
pub(super) mod stripe;

use std::collections::BTreeMap;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::domain::{Ledger, RecordedFact, Subject, SubjectKind, fold};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// 2026-01-01T00:00:00Z
pub(super) const START: i64 = 1_767_225_600;

pub(super) fn at(seconds: i64) -> Time {
    Time::from_timestamp(START + seconds, 0).unwrap()
}

/// What the intake reads of an event: signed, verified, opened.
pub(super) fn envelope_of(provider: Provider, event_id: &str, body: &str) -> Envelope {
    let received_at = at(3600);
    let secret = match provider {
        Provider::Stripe | Provider::StandardWebhooks => SECRET.to_owned(),
        Provider::RevenueCat => format!("hmac:{SECRET}"),
    };
    let headers = sign(provider, secret.as_bytes(), event_id, received_at, body.as_bytes()).unwrap();
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let secret = Zeroizing::new(secret.into_bytes());
    let keys = [SigningKey { version: 1, secret, active_from: at(0), active_until: None }];
    let verified = verify(provider.schemes(), &headers, body.as_bytes(), &keys, None, received_at).unwrap();
    envelope(provider, &verified, received_at).unwrap()
}

/// An event as the worker finds it.
pub(super) fn stored(provider: Provider, event_id: &str, body: &str) -> StoredEvent {
    let envelope = envelope_of(provider, event_id, body);
    let received_at = at(3600);
    StoredEvent {
        provider,
        account_key: "acct_a".to_owned(),
        external_event_id: envelope.event_id,
        event_type: envelope.event_type,
        occurred_at: envelope.occurred_at,
        received_at,
        event_id: EventId::at(received_at),
        body: Zeroizing::new(body.as_bytes().to_vec()),
    }
}

/// All ledger rows that the events amount to, subject by subject.
pub(super) fn ledger(events: &[StoredEvent]) -> BTreeMap<Subject, Ledger> {
    let mut subjects: BTreeMap<Subject, Vec<RecordedFact>> = BTreeMap::new();
    for event in events {
        for (ordinal, fact) in facts(event).unwrap().into_iter().enumerate() {
            let recorded = RecordedFact {
                event_id: event.event_id,
                external_event_id: event.external_event_id.clone(),
                ordinal: i16::try_from(ordinal).unwrap(),
                fact,
            };
            subjects.entry(recorded.fact.subject.clone()).or_default().push(recorded);
        }
    }
    let moved = |(subject, _): &(&Subject, &Vec<RecordedFact>)| subject.kind == SubjectKind::User;
    let transfers: Vec<RecordedFact> = subjects.iter().filter(moved).flat_map(|(_, facts)| facts.clone()).collect();
    let folded = |(subject, facts): (Subject, Vec<RecordedFact>)| {
        let ledger = fold(&subject, &facts, &transfers);
        (subject, ledger)
    };
    subjects.into_iter().map(folded).collect()
}

/// A payment with its refunds and disputes in one line: `paid 10 of 10, out 3+0; re_1 succeeded 3`.
pub(super) fn payment(events: &[StoredEvent], payment_id: &str) -> String {
    let ledger = ledger(events).remove(&Subject::payment(payment_id)).unwrap_or_default();
    let mut line = ledger.payment.map_or_else(
        || "unknown".to_owned(),
        |p| {
            let status = text_of(&p.status);
            let amount = p.amount.map_or_else(|| "?".to_owned(), |amount| amount.to_string());
            format!("{status} {} of {amount}, out {}+{}", p.captured_amount, p.refunded_amount, p.disputed_amount)
        },
    );
    for refund in &ledger.refunds {
        line += &format!("; {} {} {}", refund.refund_id, text_of(&refund.status), refund.amount);
    }
    for dispute in &ledger.disputes {
        line += &format!("; {} {} {}", dispute.dispute_id, text_of(&dispute.status), dispute.amount);
    }
    for review in &ledger.reviews {
        line += &format!(" !{}", review.reason);
    }
    line
}

pub(super) fn subscription(events: &[StoredEvent], subscription_id: &str) -> String {
    let ledger = ledger(events).remove(&Subject::subscription(subscription_id)).unwrap_or_default();
    let rows = ledger.subscriptions.iter().map(|s| {
        let expires = s.expires_at.map_or_else(|| "-".to_owned(), |time| (time.timestamp() - START).to_string());
        format!("{}/{}/{} {} until {expires}", s.app_user_id, s.product_id, s.store, text_of(&s.status))
    });
    let reviews = ledger.reviews.iter().map(|review| format!("!{}", review.reason));
    rows.chain(reviews).collect::<Vec<_>>().join(" ")
}

pub(super) fn text_of(status: &impl Serialize) -> String {
    serde_json::to_value(status).unwrap().as_str().unwrap().to_owned()
}

pub(super) fn refused(event: &StoredEvent) -> String {
    facts(event).unwrap_err().to_string()
}

/// Every order of the events gives what the given one gives.
pub(super) fn in_any_order(events: &[StoredEvent]) {
    let expected = ledger(events);
    let mut order: Vec<StoredEvent> = events.to_vec();
    for turn in 0..events.len() {
        order.rotate_left(1);
        assert_eq!(ledger(&order), expected, "rotated by {turn}");
        let reversed: Vec<StoredEvent> = order.iter().rev().cloned().collect();
        assert_eq!(ledger(&reversed), expected, "reversed after {turn}");
    }
    assert_eq!(ledger(&[events, events].concat()), expected, "twice");
}

/// Every order at all; for small stories.
pub(super) fn in_every_order(events: &[StoredEvent]) {
    assert!(events.len() <= 6, "{} events have too many orders", events.len());
    let expected = ledger(events);
    for order in permutations(events.len()) {
        let told: Vec<StoredEvent> = order.iter().map(|at| events[*at].clone()).collect();
        assert_eq!(ledger(&told), expected, "{order:?}");
    }
}

fn permutations(length: usize) -> Vec<Vec<usize>> {
    let Some(last) = length.checked_sub(1) else { return vec![Vec::new()] };
    let insert = |order: Vec<usize>| {
        (0..length).map(move |place| {
            let mut longer = order.clone();
            longer.insert(place, last);
            longer
        })
    };
    permutations(last).into_iter().flat_map(insert).collect()
}

#[test]
fn providers_have_one_name_each() {
    for provider in Provider::ALL {
        assert_eq!(provider.as_str().parse(), Ok(provider));
        assert_eq!(serde_json::to_value(provider).unwrap(), provider.as_str());
    }
    assert_eq!("Stripe".parse::<Provider>(), Err(UnknownProvider));
}

/// The samples that carry nothing for the ledger.
fn says_nothing(event_type: &str) -> bool {
    const REVENUECAT: [&str; 7] = [
        "TEST",
        "INVOICE_ISSUANCE",
        "VIRTUAL_CURRENCY_TRANSACTION",
        "EXPERIMENT_ENROLLMENT",
        "SUBSCRIBER_ALIAS",
        "PURCHASE_REDEEMED",
        "PAYWALL_IMPRESSION",
    ];
    ["customer.created", "customer.updated"].contains(&event_type) || REVENUECAT.contains(&event_type)
}

/// An event of the provider that says nothing.
fn plain(provider: Provider) -> StoredEvent {
    match provider {
        Provider::Stripe | Provider::StandardWebhooks => stored(provider, "msg_1", r#"{"id":"msg_1","type":"t"}"#),
        Provider::RevenueCat => stored(provider, "", r#"{"event":{"id":"msg_1","type":"t"}}"#),
    }
}

#[test]
fn every_sample_is_a_proper_event_that_can_be_read() {
    for provider in Provider::ALL {
        for event_type in sample::types(provider) {
            let options = sample::SampleOptions::new("s1", at(0));
            let sample = sample::event(provider, event_type, &options).unwrap();
            let event = stored(provider, &sample.event_id, std::str::from_utf8(&sample.body).unwrap());
            let named = event_type.split('/').next().unwrap();
            assert_eq!((&event.event_type[..], &event.external_event_id), (named, &sample.event_id));
            assert_eq!(event.occurred_at, Some(at(0)));
            let facts = facts(&event).unwrap_or_else(|error| panic!("{event_type}: {error}"));
            assert_eq!(facts.is_empty(), says_nothing(event_type), "{event_type}");
            assert_eq!(sample::event(provider, event_type, &options).unwrap(), sample, "the same bytes each time");
        }
    }
    let unknown = sample::event(Provider::Stripe, "payment.teleported", &sample::SampleOptions::new("s", at(0)));
    assert!(unknown.unwrap_err().to_string().contains("charge.succeeded"));
}

#[test]
fn an_error_names_the_place_and_never_the_value() {
    let body = r#"{"id":"evt_1","type":"refund.updated","created":1767225600,"data":{"object":{"id":"re_1","status":"secret"}}}"#;
    let error = facts(&stored(Provider::Stripe, "", body)).unwrap_err();
    assert_eq!(error.to_string(), "unknown_status at /data/object/status");
    assert!(!format!("{:?}", stored(Provider::Stripe, "", body)).contains("secret"));
}

proptest! {
    #[test]
    fn no_bytes_break_the_readers(
        body in proptest::collection::vec(any::<u8>(), 0..300),
        of in 0usize..96,
        age in 0i64..1000,
    ) {
        for provider in Provider::ALL {
            let types = sample::types(provider);
            let event = StoredEvent {
                event_type: types[of % types.len()].split('/').next().unwrap().to_owned(),
                occurred_at: Some(at(0) - TimeDelta::days(age)),
                body: Zeroizing::new(body.clone()),
                ..plain(provider)
            };
            prop_assert_eq!(facts(&event).is_err(), !says_nothing(&event.event_type));
        }
    }

    /// Proper events with one byte replaced: whatever comes out, it is an answer.
    #[test]
    fn no_damage_breaks_the_readers(of in 0usize..96, place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        for provider in Provider::ALL {
            let types = sample::types(provider);
            let event_type = types[of % types.len()];
            let mut sample = sample::event(provider, event_type, &sample::SampleOptions::new("s1", at(0))).unwrap();
            let place = place.index(sample.body.len());
            sample.body[place] = byte;
            let event = StoredEvent {
                event_type: event_type.split('/').next().unwrap().to_owned(),
                occurred_at: Some(at(0)),
                body: Zeroizing::new(sample.body),
                ..plain(provider)
            };
            if let Err(error) = facts(&event) {
                prop_assert!(!error.code.is_empty());
            }
        }
    }
}
