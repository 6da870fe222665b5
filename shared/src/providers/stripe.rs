//! Stripe: snapshot events of the API versions from before 2022-11-15 to after 2025-03-31.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{self, Envelope, EnvelopeError, SearchKeys};
use super::{FactError, StoredEvent, Verified};
use crate::domain::{Fact, Lane, Time};

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    name: Cow<'a, str>,
    account: Option<String>,
    #[serde(borrow)]
    created: Option<&'a RawValue>,
    livemode: Option<bool>,
    api_version: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

pub(super) fn envelope(verified: &Verified<'_>, received_at: Time) -> Result<Envelope, EnvelopeError> {
    let event: Event<'_> = envelope::read(verified.body())?;
    let livemode = event.livemode.map(|live| if live { "true" } else { "false" });
    Ok(Envelope {
        event_id: envelope::event_id(&event.id)?,
        event_type: envelope::event_type(&event.name)?,
        account: envelope::optional(event.account.as_deref())?,
        occurred_at: event.created.and_then(occurred_at).and_then(|time| envelope::plausible(time, received_at)),
        environment: envelope::environment(event.livemode),
        api_version: envelope::optional(event.api_version.as_deref())?,
        lane: lane(&event.name),
        // `pending_webhooks` counts down from delivery to delivery, and `request` may be left out of a re-send.
        semantic_hash: envelope::hash_parts(&[
            Some(event.id.as_ref()),
            Some(event.name.as_ref()),
            livemode,
            event.created.map(RawValue::get),
            event.api_version.as_deref(),
            event.account.as_deref(),
            event.data.map(RawValue::get),
        ]),
        keys: event.data.map(keys).unwrap_or_default(),
    })
}

/// Unix seconds; thin events (`v2.core.event`) write RFC 3339 instead.
fn occurred_at(created: &RawValue) -> Option<Time> {
    envelope::seconds(created).or_else(|| envelope::rfc3339(created))
}

fn lane(event_type: &str) -> Lane {
    let of = |prefixes: &[&str]| prefixes.iter().any(|prefix| event_type.starts_with(prefix));
    if of(&["payment_intent.", "charge.", "refund.", "checkout."]) {
        Lane::Payments
    } else if of(&["customer.subscription.", "invoice."]) {
        Lane::Subscriptions
    } else {
        Lane::Other
    }
}

fn keys(_data: &RawValue) -> SearchKeys {
    SearchKeys::default()
}

pub(super) fn facts(_event: &StoredEvent) -> Result<Vec<Fact>, FactError> {
    Ok(Vec::new())
}
