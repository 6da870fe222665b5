//! The payment providers: how each signs its requests, and what its payloads mean.
//!
//! A provider is a value of [`Provider`] and an arm in a few `match`es. Signatures are data ([`signature`]); what the
//! payloads mean is a file per provider.

pub mod sample;
pub mod signature;

mod envelope;
mod node;
mod revenuecat;
mod standard;
mod stripe;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::domain::{EventId, Fact, Time};

pub use envelope::{Envelope, EnvelopeError, SearchKeys};
pub use signature::{Proof, Scheme, SecretError, SigningKey, Verified, VerifyError, check_secret, sign, verify};

/// Who sends webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Provider {
    #[serde(rename = "stripe")]
    Stripe,
    /// Anybody who signs by the Standard Webhooks specification.
    #[serde(rename = "standard")]
    StandardWebhooks,
    #[serde(rename = "revenuecat")]
    RevenueCat,
}

/// The text names no provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown provider (known: stripe, standard, revenuecat)")]
pub struct UnknownProvider;

impl Provider {
    pub const ALL: [Provider; 3] = [Provider::Stripe, Provider::StandardWebhooks, Provider::RevenueCat];

    /// The name in URLs, tables and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Stripe => "stripe",
            Provider::StandardWebhooks => "standard",
            Provider::RevenueCat => "revenuecat",
        }
    }

    /// The ways in which its requests may prove where they come from, the strongest first.
    pub fn schemes(self) -> &'static [Scheme] {
        match self {
            Provider::Stripe => std::slice::from_ref(&signature::STRIPE),
            Provider::StandardWebhooks => std::slice::from_ref(&signature::STANDARD_WEBHOOKS),
            Provider::RevenueCat => &signature::REVENUECAT,
        }
    }

    /// The header with the event id, for providers that sign it there.
    pub fn id_header(self) -> Option<&'static str> {
        self.schemes().iter().find_map(|scheme| match &scheme.proof {
            Proof::Mac(mac) => mac.id_header,
            Proof::Secret => None,
        })
    }
}

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, UnknownProvider> {
        Provider::ALL.into_iter().find(|provider| provider.as_str() == text).ok_or(UnknownProvider)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads what the intake needs to know of a verified body.
///
/// `received_at` is the yardstick for the event's own time.
///
/// # Errors
/// [`EnvelopeError`] when the bytes, though signed, are not an event of the provider.
pub fn envelope(provider: Provider, verified: &Verified<'_>, received_at: Time) -> Result<Envelope, EnvelopeError> {
    match provider {
        Provider::Stripe => stripe::envelope(verified, received_at),
        Provider::StandardWebhooks => standard::envelope(verified, received_at),
        Provider::RevenueCat => revenuecat::envelope(verified, received_at),
    }
}

/// An accepted event, as the worker finds it in the store.
#[derive(Clone)]
pub struct StoredEvent {
    pub provider: Provider,
    pub account_key: String,
    pub external_event_id: String,
    pub event_type: String,
    /// When it happened at the provider; none where the event does not say, or says something impossible.
    pub occurred_at: Option<Time>,
    pub received_at: Time,
    pub event_id: EventId,
    pub body: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for StoredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEvent")
            .field("provider", &self.provider)
            .field("external_event_id", &self.external_event_id)
            .field("event_type", &self.event_type)
            .field("event_id", &self.event_id)
            .finish_non_exhaustive()
    }
}

/// Why an event cannot be turned into facts without guessing. It becomes a quarantined event with this reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} at {pointer}")]
pub struct FactError {
    /// A stable code: `bad_amount`, `bad_currency`, `bad_time`, `bad_json`, `bad_id`, `bad_text`, `duplicate_key`,
    /// `no_payment_id`, `no_refund_id`, `no_dispute_id`, `no_subscription_id`, `no_product_id`, `no_app_user_id`,
    /// `unknown_status`, `unknown_environment`, `needs_transfer`.
    pub code: &'static str,
    /// The JSON pointer (RFC 6901) to the value at fault; never the value.
    pub pointer: String,
}

/// Derives the facts an event states. An empty list means that the type says nothing about the ledger.
///
/// # Errors
/// [`FactError`] names what cannot be understood; nothing of the event is applied then.
pub fn facts(event: &StoredEvent) -> Result<Vec<Fact>, FactError> {
    let at = event.occurred_at.unwrap_or(event.received_at);
    let (facts, time) = match event.provider {
        Provider::Stripe => (stripe::facts(event, at)?, "/created"),
        Provider::StandardWebhooks => (standard::facts(event, at)?, "/timestamp"),
        Provider::RevenueCat => (revenuecat::facts(event, at)?, "/event/event_timestamp_ms"),
    };
    // A fact without a time of its own cannot be put in order.
    if event.occurred_at.is_none() && !facts.is_empty() {
        return Err(FactError { code: "bad_time", pointer: time.to_owned() });
    }
    Ok(facts)
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
