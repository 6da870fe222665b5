//! Stripe: snapshot events of the API versions from before 2022-11-15 to after 2025-03-31.

mod dispute;
mod payment;
mod refund;
mod subscription;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{self, Envelope, EnvelopeError, SearchKeys};
use super::node::Node;
use super::{FactError, StoredEvent, Verified};
use crate::domain::{Currency, Fact, Lane, Money, Time};

/// What the `store` columns say.
const STORE: &str = "stripe";

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

/// The ids people search by. They are a convenience: what cannot be read is left out.
fn keys(data: &RawValue) -> SearchKeys {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        object: Object<'a>,
    }
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        customer: Option<&'a RawValue>,
        #[serde(borrow)]
        payment_intent: Option<&'a RawValue>,
        #[serde(borrow)]
        charge: Option<&'a RawValue>,
        #[serde(borrow)]
        subscription: Option<&'a RawValue>,
        #[serde(borrow)]
        parent: Option<&'a RawValue>,
        #[serde(borrow)]
        items: Option<&'a RawValue>,
    }
    let Ok(Data { object }) = serde_json::from_str::<Data<'_>>(data.get()) else { return SearchKeys::default() };
    let id = envelope::search_key(object.id);
    let belongs_to = envelope::search_key(object.payment_intent)
        .or_else(|| envelope::search_key(object.charge))
        .or_else(|| envelope::search_key(object.subscription))
        .or_else(|| object.parent.and_then(subscription_of_parent))
        .or_else(|| id.clone());
    SearchKeys {
        app_user_id: envelope::search_key(object.customer),
        transaction_id: id,
        original_transaction_id: belongs_to,
        product_id: object.items.and_then(first_product),
        store: Some(STORE.to_owned()),
    }
}

fn subscription_of_parent(parent: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Parent<'a> {
        #[serde(borrow)]
        subscription_details: Details<'a>,
    }
    #[derive(Deserialize)]
    struct Details<'a> {
        #[serde(borrow)]
        subscription: Option<&'a RawValue>,
    }
    let parent: Parent<'_> = serde_json::from_str(parent.get()).ok()?;
    envelope::search_key(parent.subscription_details.subscription)
}

fn first_product(items: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Items<'a> {
        #[serde(borrow)]
        data: Vec<Item<'a>>,
    }
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        price: Price<'a>,
    }
    #[derive(Deserialize)]
    struct Price<'a> {
        #[serde(borrow)]
        product: Option<&'a RawValue>,
    }
    let items: Items<'_> = serde_json::from_str(items.get()).ok()?;
    envelope::search_key(items.data.first()?.price.product)
}

/// What a reader of objects is told about the event around the object.
#[derive(Clone, Copy)]
struct Told<'a> {
    event_type: &'a str,
    at: Time,
    /// The former values of the fields that the event changed.
    previous: Option<&'a Node<'a>>,
}

/// "Types of events", <https://docs.stripe.com/api/events/types>. The name says what happened, the object how things
/// stand since; names mislead: `charge.refund.updated` carries a refund, `charge.dispute.*` a dispute.
pub(super) fn facts(event: &StoredEvent, at: Time) -> Result<Vec<Fact>, FactError> {
    let read: fn(&Node<'_>, Told<'_>) -> Result<Vec<Fact>, FactError> = match event.event_type.as_str() {
        "payment_intent.created"
        | "payment_intent.processing"
        | "payment_intent.requires_action"
        | "payment_intent.amount_capturable_updated"
        | "payment_intent.succeeded"
        | "payment_intent.payment_failed"
        | "payment_intent.canceled" => payment::intent,
        "charge.pending" | "charge.succeeded" | "charge.captured" | "charge.updated" | "charge.refunded"
        | "charge.failed" | "charge.expired" => payment::charge,
        "checkout.session.completed"
        | "checkout.session.async_payment_succeeded"
        | "checkout.session.async_payment_failed"
        | "checkout.session.expired" => payment::checkout,
        "refund.created" | "refund.updated" | "refund.failed" | "charge.refund.updated" => refund::refund,
        "charge.dispute.created"
        | "charge.dispute.updated"
        | "charge.dispute.closed"
        | "charge.dispute.funds_withdrawn"
        | "charge.dispute.funds_reinstated" => dispute::dispute,
        "customer.subscription.created"
        | "customer.subscription.updated"
        | "customer.subscription.deleted"
        | "customer.subscription.paused"
        | "customer.subscription.resumed"
        | "customer.subscription.trial_will_end"
        | "customer.subscription.pending_update_applied"
        | "customer.subscription.pending_update_expired" => subscription::subscription,
        "invoice.paid" | "invoice.payment_succeeded" | "invoice.payment_failed" => subscription::invoice,
        _ => return Ok(Vec::new()),
    };
    let root = Node::root(&event.body)?;
    let data = root.object("data")?.ok_or_else(|| root.error("bad_json", "data"))?;
    let object = data.object("object")?.ok_or_else(|| data.error("bad_json", "object"))?;
    // Evidence only: an event whose former values cannot be read still says how things stand now.
    let previous = data.object("previous_attributes").ok().flatten();
    read(&object, Told { event_type: &event.event_type, at, previous: previous.as_ref() })
}

/// An amount that must be there: a missing one is not zero.
fn money(object: &Node<'_>, key: &str, currency: Currency) -> Result<Money, FactError> {
    let money = object.money(key, currency, exponent(currency))?;
    money.ok_or_else(|| object.error("bad_amount", key))
}

/// The decimals of Stripe's minor unit: "Supported currencies", <https://docs.stripe.com/currencies>.
///
/// ISK and UGX have none in ISO 4217, but the API keeps two for them.
fn exponent(currency: Currency) -> u32 {
    match currency.code() {
        "BIF" | "CLP" | "DJF" | "GNF" | "JPY" | "KMF" | "KRW" | "MGA" | "PYG" | "RWF" | "VND" | "VUV" | "XAF"
        | "XOF" | "XPF" => 0,
        "BHD" | "JOD" | "KWD" | "OMR" | "TND" => 3,
        _ => 2,
    }
}
