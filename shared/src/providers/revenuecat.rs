//! RevenueCat: purchases of the app stores and of web billing, told in one vocabulary.
//!
//! "Event Types and Fields" and "Common Webhook Flows", <https://www.revenuecat.com/docs/integrations/webhooks>. With
//! `store` `STRIPE` the same money may reach us through a Stripe endpoint too. It is not counted twice: the rows of each
//! provider are kept apart by their key, and a sum over money names the provider it is about.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{self, Envelope, EnvelopeError, SearchKeys};
use super::node::Node;
use super::{FactError, StoredEvent, Verified};
use crate::domain::{
    Environment, Fact, FactDetail, Lane, Money, PaymentFact, PaymentStep, RefundFact, RefundStatus, Subject,
    SubscriptionFact, SubscriptionItem, SubscriptionStatus, SubscriptionStep, Time, TransferFact,
};

/// What was paid, or given back, in the currency of the purchase. `price` is that amount in US dollars, rounded.
const PRICE: &str = "price_in_purchased_currency";
/// More ids than one customer has. Further ones would not fit the numbering of an event's facts.
const MAX_TRANSFERRED: usize = 1000;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    event: Event<'a>,
    api_version: Option<String>,
}

/// Everything but id and type may be absent: a transfer names no user, a promotion no app.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    name: Cow<'a, str>,
    app_id: Option<String>,
    #[serde(borrow)]
    event_timestamp_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    environment: Option<&'a RawValue>,
    /// What events about virtual currency have in its place.
    #[serde(borrow)]
    purchase_environment: Option<&'a RawValue>,
    #[serde(borrow)]
    app_user_id: Option<&'a RawValue>,
    #[serde(borrow)]
    transaction_id: Option<&'a RawValue>,
    #[serde(borrow)]
    original_transaction_id: Option<&'a RawValue>,
    #[serde(borrow)]
    product_id: Option<&'a RawValue>,
    #[serde(borrow)]
    store: Option<&'a RawValue>,
    #[serde(borrow)]
    price: Option<&'a RawValue>,
    #[serde(borrow)]
    price_in_purchased_currency: Option<&'a RawValue>,
    #[serde(borrow)]
    purchased_at_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    expiration_at_ms: Option<&'a RawValue>,
}

pub(super) fn envelope(verified: &Verified<'_>, received_at: Time) -> Result<Envelope, EnvelopeError> {
    let Body { event, api_version } = envelope::read(verified.body())?;
    let occurred_at = event.event_timestamp_ms.and_then(envelope::milliseconds);
    Ok(Envelope {
        event_id: envelope::event_id(&event.id)?,
        event_type: envelope::event_type(&event.name)?,
        account: envelope::optional(event.app_id.as_deref())?,
        occurred_at: occurred_at.and_then(|time| envelope::plausible(time, received_at)),
        environment: event.environment.or(event.purchase_environment).and_then(environment),
        api_version: envelope::optional(api_version.as_deref())?,
        lane: lane(&event.name),
        semantic_hash: event.semantic_hash(),
        keys: SearchKeys {
            app_user_id: envelope::search_key(event.app_user_id),
            transaction_id: envelope::search_key(event.transaction_id),
            original_transaction_id: envelope::search_key(event.original_transaction_id),
            product_id: envelope::search_key(event.product_id),
            store: envelope::search_key(event.store),
        },
    })
}

impl Event<'_> {
    /// A retry keeps id and time. Whether it keeps the rest, such as the user's attributes and aliases, is not promised.
    fn semantic_hash(&self) -> [u8; 32] {
        envelope::hash_parts(&[
            Some(self.id.as_ref()),
            Some(self.name.as_ref()),
            self.app_id.as_deref(),
            self.event_timestamp_ms.map(RawValue::get),
            self.transaction_id.map(RawValue::get),
            self.product_id.map(RawValue::get),
            self.price.map(RawValue::get),
            self.price_in_purchased_currency.map(RawValue::get),
            self.purchased_at_ms.map(RawValue::get),
            self.expiration_at_ms.map(RawValue::get),
        ])
    }
}

/// Both environments of an app have the same `app_id`. A word we do not know is none; [`facts`] holds such an event.
fn environment(raw: &RawValue) -> Option<Environment> {
    match raw.get() {
        r#""PRODUCTION""# => Some(Environment::Production),
        r#""SANDBOX""# => Some(Environment::Sandbox),
        _ => None,
    }
}

/// Nearly every event that matters is about a subscription, and some about its payment as well: in one lane they do not
/// wait for each other's subjects across workers.
fn lane(event_type: &str) -> Lane {
    if reader(event_type).is_some() { Lane::Subscriptions } else { Lane::Other }
}

type Reader = fn(&Node<'_>, Time) -> Result<Vec<Fact>, FactError>;

/// Who reads an event of this type; none where it says nothing about the ledger: `TEST`, an unpaid `INVOICE_ISSUANCE`,
/// virtual currency, experiments, paywalls, aliases, and types that did not exist when this was written.
fn reader(event_type: &str) -> Option<Reader> {
    Some(match event_type {
        "INITIAL_PURCHASE" | "RENEWAL" => subscribed,
        "NON_RENEWING_PURCHASE" => bought_once,
        "TEMPORARY_ENTITLEMENT_GRANT" => granted,
        "CANCELLATION" => canceled,
        "UNCANCELLATION" => uncanceled,
        "BILLING_ISSUE" => charge_failed,
        "SUBSCRIPTION_EXTENDED" => extended,
        "EXPIRATION" => expired,
        "PRODUCT_CHANGE" | "SUBSCRIPTION_PAUSED" => announced,
        "REFUND_REVERSED" => refund_reversed,
        "TRANSFER" => transferred,
        _ => return None,
    })
}

pub(super) fn facts(stored: &StoredEvent, at: Time) -> Result<Vec<Fact>, FactError> {
    let Some(read) = reader(&stored.event_type) else { return Ok(Vec::new()) };
    let root = Node::root(&stored.body)?;
    let event = root.object("event")?.ok_or_else(|| root.error("bad_json", "event"))?;
    // It was stored under the endpoint's environment, which may be the wrong one.
    if !matches!(event.text("environment")?.as_deref(), None | Some("PRODUCTION" | "SANDBOX")) {
        return Err(event.error("unknown_environment", "environment"));
    }
    read(&event, at)
}

/// A period was bought. The price is zero for trials, and for what RevenueCat itself gives away.
fn subscribed(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let (subscription_id, subscription) = bought(event, running(event)?)?;
    let mut facts = payment(event, at, Some(&subscription_id))?;
    facts.push(about_subscription(subscription_id, at, subscription));
    Ok(facts)
}

/// The statement that a period was bought; it must say by whom and of what.
fn bought(event: &Node<'_>, status: SubscriptionStatus) -> Result<(String, SubscriptionFact), FactError> {
    let mut fact = subscription(event, SubscriptionStep::Bought(status))?;
    if fact.app_user_id.is_none() {
        return Err(event.error("no_app_user_id", "app_user_id"));
    }
    let Some(item) = fact.items.iter().flatten().next() else {
        return Err(event.error("no_product_id", "product_id"));
    };
    fact.started_at = item.period_start;
    Ok((subscription_id(event)?, fact))
}

/// A consumable, or something for life: no subscription.
fn bought_once(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    payment(event, at, None)
}

/// At most a day of access while a store does not answer, without money. The purchase that follows may be of another
/// transaction, and then of another subscription: this one ends on its own. Where it does not say whose or what it is,
/// as the published sample does not, nothing can be written down, and the purchase tells all of it.
fn granted(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let named = event.has("original_transaction_id")? || event.has("store")?;
    if !(named && event.has("app_user_id")? && event.has("product_id")?) {
        return Ok(Vec::new());
    }
    let (subscription_id, subscription) = bought(event, running(event)?)?;
    Ok(vec![about_subscription(subscription_id, at, subscription)])
}

/// "Cancellation and Expiration Reasons": a refund (`CUSTOMER_SUPPORT`) does not mean that the subscription will not
/// renew, and a failed charge (`BILLING_ERROR`) is told with the same word; the standing then comes with `BILLING_ISSUE`.
fn canceled(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let reason = event.text("cancel_reason")?;
    match reason.as_deref() {
        Some("CUSTOMER_SUPPORT") => refund(event, at, RefundStatus::Succeeded),
        Some("BILLING_ERROR") => {
            let fact = subscription(event, SubscriptionStep::PaymentFailed)?;
            Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
        }
        _ => {
            let mut fact = subscription(event, SubscriptionStep::Stands(SubscriptionStatus::Canceled))?;
            fact.canceled_at = Some(at);
            fact.ends_at = event.milliseconds("expiration_at_ms")?;
            fact.cancel_reason = reason;
            Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
        }
    }
}

fn uncanceled(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let fact = subscription(event, SubscriptionStep::Stands(running(event)?))?;
    Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
}

/// Not an end: the store may grant access for a while, and goes on charging.
fn charge_failed(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let grace_ends = event.milliseconds("grace_period_expiration_at_ms")?;
    let status = if grace_ends.is_some() { SubscriptionStatus::InGrace } else { SubscriptionStatus::PastDue };
    let mut fact = subscription(event, SubscriptionStep::Stands(status))?;
    fact.ends_at = grace_ends;
    Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
}

fn extended(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let mut fact = subscription(event, SubscriptionStep::Extended)?;
    fact.ends_at = event.milliseconds("expiration_at_ms")?;
    Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
}

/// The end of access: of a subscription, or, at the Play Store, until a paused one resumes.
fn expired(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let reason = event.text("expiration_reason")?;
    let step = match reason.as_deref() {
        Some("SUBSCRIPTION_PAUSED") => SubscriptionStep::Stands(SubscriptionStatus::Paused),
        _ => SubscriptionStep::RanOut,
    };
    let mut fact = subscription(event, step)?;
    fact.ends_at = event.milliseconds("expiration_at_ms")?.or(Some(at));
    fact.cancel_reason = reason;
    Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
}

/// An intent, for the end of the period: another product, or a pause. What becomes of it comes with a renewal or an
/// expiration.
fn announced(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let fact = SubscriptionFact { items: None, ..subscription(event, SubscriptionStep::Noted)? };
    Ok(vec![about_subscription(subscription_id(event)?, at, fact)])
}

fn refund_reversed(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    refund(event, at, RefundStatus::Reversed)
}

/// Purchases moved to another customer, who may go by several ids; so may the one they moved from. Which purchases, the
/// event does not say.
fn transferred(event: &Node<'_>, at: Time) -> Result<Vec<Fact>, FactError> {
    let from = event.ids("transferred_from")?;
    let to = event.ids("transferred_to")?;
    if from.is_empty() || from.len() > MAX_TRANSFERRED {
        return Err(event.error("needs_transfer", "transferred_from"));
    }
    let Some(to) = to.first() else { return Err(event.error("needs_transfer", "transferred_to")) };
    let moved = from.into_iter().filter(|user| user != to).map(|user| Fact {
        subject: Subject::user(user),
        occurred_at: at,
        detail: FactDetail::Transfer(TransferFact { to: to.clone() }),
    });
    Ok(moved.collect())
}

/// The first transaction names a subscription through all its renewals. Where there is none, store, product and user
/// do; store and product have no slash in their names, so the three parts cannot be taken for others.
fn subscription_id(event: &Node<'_>) -> Result<String, FactError> {
    if let Some(id) = event.id("original_transaction_id")? {
        return Ok(id);
    }
    match (event.text("store")?, event.id("product_id")?, event.id("app_user_id")?) {
        (Some(store), Some(product), Some(user)) => Ok(format!("{store}/{product}/{user}")),
        _ => Err(event.error("no_subscription_id", "original_transaction_id")),
    }
}

/// What every event about a subscription tells: its user, and the period it is in.
fn subscription(event: &Node<'_>, step: SubscriptionStep) -> Result<SubscriptionFact, FactError> {
    let ends = event.milliseconds("expiration_at_ms")?;
    let starts = event.milliseconds("purchased_at_ms")?;
    let trial = running(event)? == SubscriptionStatus::Trialing;
    let item = |product_id| SubscriptionItem { product_id, quantity: 1, period_start: starts, period_end: ends };
    Ok(SubscriptionFact {
        app_user_id: event.id("app_user_id")?,
        store: event.text("store")?,
        items: event.id("product_id")?.map(|product_id| vec![item(product_id)]),
        trial_ends_at: ends.filter(|_| trial),
        ..SubscriptionFact::new(step)
    })
}

fn running(event: &Node<'_>) -> Result<SubscriptionStatus, FactError> {
    Ok(match event.text("period_type")?.as_deref() {
        Some("TRIAL") => SubscriptionStatus::Trialing,
        _ => SubscriptionStatus::Active,
    })
}

/// The money of a purchase; none where nothing was paid. An unknown price of something that costs money is not zero.
fn payment(event: &Node<'_>, at: Time, subscription_id: Option<&str>) -> Result<Vec<Fact>, FactError> {
    let Some(digits) = event.digits(PRICE)? else {
        return if is_free(event)? { Ok(Vec::new()) } else { Err(event.error("bad_amount", PRICE)) };
    };
    let Some(paid) = money(event, digits)? else { return Ok(Vec::new()) };
    let fact = PaymentFact {
        amount: Some(paid),
        captured: Some(paid),
        purchased_at: event.milliseconds("purchased_at_ms")?,
        app_user_id: event.id("app_user_id")?,
        product_id: event.id("product_id")?,
        subscription_id: subscription_id.map(str::to_owned),
        store: event.text("store")?,
        ..PaymentFact::new(PaymentStep::Captured)
    };
    let subject = Subject::payment(transaction_id(event)?);
    Ok(vec![Fact { subject, occurred_at: at, detail: FactDetail::Payment(fact) }])
}

/// Whether it is no surprise that the price is not known: trials, what RevenueCat gives away, what a family shares.
fn is_free(event: &Node<'_>) -> Result<bool, FactError> {
    let free_period = matches!(event.text("period_type")?.as_deref(), Some("TRIAL" | "PROMOTIONAL"));
    let given = event.text("store")?.as_deref() == Some("PROMOTIONAL");
    Ok(free_period || given || event.flag("is_family_share")? == Some(true))
}

/// A transaction is refunded as a whole, so its refund goes by the same id, which is all that a reversal names as well.
/// The price is negative for a refund, positive for its reversal.
fn refund(event: &Node<'_>, at: Time, status: RefundStatus) -> Result<Vec<Fact>, FactError> {
    let digits = event.digits(PRICE)?.ok_or_else(|| event.error("bad_amount", PRICE))?;
    let Some(amount) = money(event, digits.strip_prefix('-').unwrap_or(digits))? else { return Ok(Vec::new()) };
    let transaction_id = transaction_id(event)?;
    let fact = RefundFact {
        refund_id: transaction_id.clone(),
        status,
        amount,
        created_at: at,
        charge_id: None,
        reason: event.text("cancel_reason")?,
        failure_code: None,
    };
    let subject = Subject::payment(transaction_id);
    Ok(vec![Fact { subject, occurred_at: at, detail: FactDetail::Refund(fact) }])
}

fn transaction_id(event: &Node<'_>) -> Result<String, FactError> {
    event.id("transaction_id")?.ok_or_else(|| event.error("no_payment_id", "transaction_id"))
}

/// An amount in major units; none where it is zero, for which there may be no currency.
fn money(event: &Node<'_>, digits: &str) -> Result<Option<Money>, FactError> {
    if digits.bytes().all(|byte| matches!(byte, b'0' | b'.' | b'-')) {
        return Ok(None);
    }
    let currency = event.currency("currency")?;
    let money = Money::from_major_digits(digits, currency.exponent(), currency);
    money.map(Some).map_err(|_| event.error("bad_amount", PRICE))
}

fn about_subscription(id: String, at: Time, fact: SubscriptionFact) -> Fact {
    Fact { subject: Subject::subscription(id), occurred_at: at, detail: FactDetail::Subscription(fact) }
}
