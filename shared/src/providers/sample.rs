//! Realistic sample events, for people who try things out, for tests and for the bench.

use super::Provider;
use crate::domain::Time;

/// What a sample tells. Samples with the same `suffix` belong to one story: they share the payment, its charge, the
/// customer and the subscription.
#[derive(Debug, Clone)]
pub struct SampleOptions {
    /// Letters and digits from which all ids are derived.
    pub suffix: String,
    /// The payment to speak of, for further refunds and disputes of an earlier story; else the one of this story.
    pub payment: Option<String>,
    /// The amount of what the sample is about (the payment, the refund, the dispute), in the provider's minor units.
    pub amount_minor: i64,
    /// The amount of the whole payment, where the sample is about a part of it; else `amount_minor`.
    pub payment_amount_minor: Option<i64>,
    pub currency: String,
    /// The customer; else the one of this story.
    pub customer: Option<String>,
    pub created: Time,
    pub account: Option<String>,
    pub livemode: bool,
}

/// An event to be signed and sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub event_id: String,
    pub body: Vec<u8>,
}

/// There is no sample of the type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no sample of this event type (known for {provider}: {})", types(*provider).join(", "))]
pub struct UnknownSample {
    pub provider: Provider,
}

/// The event types of which there are samples.
pub fn types(_provider: Provider) -> &'static [&'static str] {
    &[]
}

/// Builds a sample event.
///
/// # Errors
/// [`UnknownSample`] lists the types there are.
pub fn event(provider: Provider, _event_type: &str, _options: &SampleOptions) -> Result<Sample, UnknownSample> {
    Err(UnknownSample { provider })
}
