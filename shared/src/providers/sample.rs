//! Realistic sample events, for people who try things out, for tests and for the bench.

mod revenuecat;
mod standard;
mod stripe;

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
    /// For `charge.refunded` it is the total refunded so far.
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

impl SampleOptions {
    /// A live payment of 10.99 USD at `created`.
    pub fn new(suffix: impl Into<String>, created: Time) -> Self {
        SampleOptions {
            suffix: suffix.into(),
            payment: None,
            amount_minor: 1099,
            payment_amount_minor: None,
            currency: "usd".to_owned(),
            customer: None,
            created,
            account: None,
            livemode: true,
        }
    }

    /// An id of the story: that of the payment where one is given, so that a later sample finds its charge again.
    fn story_id(&self, prefix: &str) -> String {
        let payment = self.payment.as_deref().and_then(|payment| payment.split_once('_')).map(|(_, story)| story);
        format!("{prefix}_{}", payment.unwrap_or(&self.suffix))
    }

    /// An id of this sample's own.
    fn own_id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.suffix)
    }

    fn payment_id(&self, prefix: &str) -> String {
        self.payment.clone().unwrap_or_else(|| self.own_id(prefix))
    }

    fn customer_id(&self) -> String {
        self.customer.clone().unwrap_or_else(|| self.story_id("cus"))
    }

    fn payment_amount(&self) -> i64 {
        self.payment_amount_minor.unwrap_or(self.amount_minor)
    }

    /// One event of each type in a story.
    fn event_id(&self, prefix: &str, event_type: &str) -> String {
        format!("{prefix}_{}_{}", self.suffix, event_type.replace(['.', '/'], "_"))
    }
}

/// An event to be signed and sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub event_id: String,
    pub body: Vec<u8>,
}

/// There is no sample of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no sample of this event type; {provider} has: {}", types(*provider).join(", "))]
pub struct UnknownSample {
    pub provider: Provider,
}

/// The event types of which there are samples. What follows a slash tells samples of one type apart: it is the reason
/// or kind of the event, and no part of the type's name.
pub fn types(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::Stripe => &stripe::TYPES,
        Provider::StandardWebhooks => &standard::TYPES,
        Provider::RevenueCat => &revenuecat::TYPES,
    }
}

/// Builds a sample event. The same options give the same bytes.
///
/// # Errors
/// [`UnknownSample`] lists the types there are.
pub fn event(provider: Provider, event_type: &str, options: &SampleOptions) -> Result<Sample, UnknownSample> {
    let known = types(provider).iter().find(|known| **known == event_type).ok_or(UnknownSample { provider })?;
    Ok(match provider {
        Provider::Stripe => stripe::event(known, options),
        Provider::StandardWebhooks => standard::event(known, options),
        Provider::RevenueCat => revenuecat::event(known, options),
    })
}
