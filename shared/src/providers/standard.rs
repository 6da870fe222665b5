//! Standard Webhooks: the envelope of the specification, and a small payment vocabulary of our own for senders who
//! have none.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{self, Envelope, EnvelopeError, SearchKeys};
use super::{FactError, StoredEvent, Verified};
use crate::domain::{Fact, Lane, Time};

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    name: Cow<'a, str>,
    /// RFC 3339, as the specification has it.
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    /// Unix seconds, in our vocabulary.
    #[serde(borrow)]
    created: Option<&'a RawValue>,
    account: Option<String>,
    livemode: Option<bool>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    /// The id of the event is the signed header; this one is read only to refuse it when it is given twice.
    #[serde(borrow, rename = "id")]
    _id: Option<&'a RawValue>,
}

pub(super) fn envelope(verified: &Verified<'_>, received_at: Time) -> Result<Envelope, EnvelopeError> {
    let event: Event<'_> = envelope::read(verified.body())?;
    let occurred_at = event.timestamp.and_then(envelope::rfc3339).or_else(|| event.created.and_then(envelope::seconds));
    Ok(Envelope {
        event_id: envelope::event_id(verified.id().unwrap_or_default())?,
        event_type: envelope::event_type(&event.name)?,
        account: envelope::optional(event.account.as_deref())?,
        occurred_at: occurred_at.and_then(|time| envelope::plausible(time, received_at)),
        environment: envelope::environment(event.livemode),
        api_version: None,
        lane: lane(&event.name),
        semantic_hash: envelope::hash_parts(&[verified.id(), envelope::text_of(verified.body()).ok()]),
        keys: event.data.map(keys).unwrap_or_default(),
    })
}

fn lane(event_type: &str) -> Lane {
    match event_type.split('.').next() {
        Some("payment" | "refund" | "dispute") => Lane::Payments,
        Some("subscription" | "invoice") => Lane::Subscriptions,
        _ => Lane::Other,
    }
}

fn keys(_data: &RawValue) -> SearchKeys {
    SearchKeys::default()
}

pub(super) fn facts(_event: &StoredEvent) -> Result<Vec<Fact>, FactError> {
    Ok(Vec::new())
}
