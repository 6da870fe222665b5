//! Standard Webhooks: the envelope of the specification, and a small payment vocabulary for senders who have none.
//!
//! The vocabulary: `payment.*`, `refund.*`, `dispute.*`, `subscription.*` and `invoice.*` events whose `data` names
//! `payment_id`, `refund_id`, `dispute_id` or `subscription_id`, an `amount` in ISO 4217 minor units with its
//! `currency`, and where they apply `app_user_id`, `product_id`, `store` and `status`. Times are Unix seconds.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::{self, Envelope, EnvelopeError, SearchKeys};
use super::node::Node;
use super::{FactError, StoredEvent, Verified};
use crate::domain::{
    DisputeFact, DisputeStatus, Fact, FactDetail, Lane, Money, PaymentFact, PaymentStep, RefundFact, RefundStatus,
    Subject, SubscriptionFact, SubscriptionItem, SubscriptionStatus, SubscriptionStep, Time,
};

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
    let occurred_at = match event.timestamp {
        Some(timestamp) => envelope::rfc3339(timestamp),
        None => event.created.and_then(envelope::seconds),
    };
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

fn keys(data: &RawValue) -> SearchKeys {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(borrow)]
        payment_id: Option<&'a RawValue>,
        #[serde(borrow)]
        refund_id: Option<&'a RawValue>,
        #[serde(borrow)]
        dispute_id: Option<&'a RawValue>,
        #[serde(borrow)]
        subscription_id: Option<&'a RawValue>,
        #[serde(borrow)]
        app_user_id: Option<&'a RawValue>,
        #[serde(borrow)]
        product_id: Option<&'a RawValue>,
        #[serde(borrow)]
        store: Option<&'a RawValue>,
    }
    let Ok(data) = serde_json::from_str::<Data<'_>>(data.get()) else { return SearchKeys::default() };
    let first = |candidates: &[Option<&RawValue>]| candidates.iter().find_map(|raw| envelope::search_key(*raw));
    SearchKeys {
        app_user_id: envelope::search_key(data.app_user_id),
        transaction_id: first(&[data.refund_id, data.dispute_id, data.payment_id, data.subscription_id]),
        original_transaction_id: first(&[data.payment_id, data.subscription_id, data.refund_id, data.dispute_id]),
        product_id: envelope::search_key(data.product_id),
        store: envelope::search_key(data.store),
    }
}

pub(super) fn facts(event: &StoredEvent, at: Time) -> Result<Vec<Fact>, FactError> {
    let read: fn(&Node<'_>, &str, Time) -> Result<Vec<Fact>, FactError> = match event.event_type.as_str() {
        "payment.pending" | "payment.authorized" | "payment.succeeded" | "payment.failed" | "payment.canceled"
        | "payment.expired" => payment,
        "refund.pending" | "refund.succeeded" | "refund.failed" | "refund.canceled" => refund,
        "dispute.inquiry" | "dispute.opened" | "dispute.under_review" | "dispute.won" | "dispute.lost" => dispute,
        "subscription.created" | "subscription.updated" | "subscription.deleted" => subscription,
        "invoice.paid" | "invoice.payment_failed" => invoice,
        _ => return Ok(Vec::new()),
    };
    let root = Node::root(&event.body)?;
    let data = root.object("data")?.ok_or_else(|| root.error("bad_json", "data"))?;
    read(&data, &event.event_type, at)
}

/// An amount in ISO 4217 minor units. A missing one is not zero.
fn money(data: &Node<'_>) -> Result<Money, FactError> {
    let currency = data.currency("currency")?;
    let money = data.money("amount", currency, currency.exponent())?;
    money.ok_or_else(|| data.error("bad_amount", "amount"))
}

fn payment(data: &Node<'_>, event_type: &str, at: Time) -> Result<Vec<Fact>, FactError> {
    let payment_id = data.id("payment_id")?.ok_or_else(|| data.error("no_payment_id", "payment_id"))?;
    let (step, status) = match event_type {
        "payment.succeeded" => (PaymentStep::Captured, "succeeded"),
        "payment.authorized" => (PaymentStep::Authorized, "authorized"),
        "payment.failed" => (PaymentStep::Failed, "failed"),
        "payment.canceled" => (PaymentStep::Canceled, "canceled"),
        "payment.expired" => (PaymentStep::Expired, "expired"),
        _ => (PaymentStep::Pending, "pending"),
    };
    // The type tells what happened. A status that says otherwise means that we misunderstand one of them.
    if data.text("status")?.is_some_and(|told| told != status) {
        return Err(data.error("unknown_status", "status"));
    }
    // A failure or a cancellation needs no amount; a success does.
    let amount = match step {
        PaymentStep::Captured | PaymentStep::Authorized => Some(money(data)?),
        _ if data.has("amount")? => Some(money(data)?),
        _ => None,
    };
    let detail = FactDetail::Payment(payment_fact(data, step, amount)?);
    Ok(vec![Fact { subject: Subject::payment(payment_id), occurred_at: at, detail }])
}

fn payment_fact(data: &Node<'_>, step: PaymentStep, amount: Option<Money>) -> Result<PaymentFact, FactError> {
    Ok(PaymentFact {
        amount,
        captured: amount.filter(|_| step == PaymentStep::Captured),
        app_user_id: data.id("app_user_id")?,
        product_id: data.id("product_id")?,
        subscription_id: data.id("subscription_id")?,
        store: data.text("store")?,
        failure_code: data.text("failure_code")?,
        ..PaymentFact::new(step)
    })
}

fn refund(data: &Node<'_>, event_type: &str, at: Time) -> Result<Vec<Fact>, FactError> {
    let refund_id = data.id("refund_id")?.ok_or_else(|| data.error("no_refund_id", "refund_id"))?;
    let fact = RefundFact {
        refund_id: refund_id.clone(),
        status: match event_type {
            "refund.succeeded" => RefundStatus::Succeeded,
            "refund.failed" => RefundStatus::Failed,
            "refund.canceled" => RefundStatus::Canceled,
            _ => RefundStatus::Pending,
        },
        amount: money(data)?,
        created_at: data.seconds("created")?.unwrap_or(at),
        charge_id: None,
        reason: data.text("reason")?,
        failure_code: data.text("failure_code")?,
    };
    let subject = data.id("payment_id")?.map_or_else(|| Subject::unlinked(refund_id), Subject::payment);
    Ok(vec![Fact { subject, occurred_at: at, detail: FactDetail::Refund(fact) }])
}

fn dispute(data: &Node<'_>, event_type: &str, at: Time) -> Result<Vec<Fact>, FactError> {
    let dispute_id = data.id("dispute_id")?.ok_or_else(|| data.error("no_dispute_id", "dispute_id"))?;
    let fact = DisputeFact {
        dispute_id: dispute_id.clone(),
        status: match event_type {
            "dispute.opened" => DisputeStatus::Open,
            "dispute.under_review" => DisputeStatus::UnderReview,
            "dispute.won" => DisputeStatus::Won,
            "dispute.lost" => DisputeStatus::Lost,
            _ => DisputeStatus::Inquiry,
        },
        amount: money(data)?,
        funds: None,
        created_at: data.seconds("created")?.unwrap_or(at),
        charge_id: None,
        reason: data.text("reason")?,
    };
    let subject = data.id("payment_id")?.map_or_else(|| Subject::unlinked(dispute_id), Subject::payment);
    Ok(vec![Fact { subject, occurred_at: at, detail: FactDetail::Dispute(fact) }])
}

fn subscription(data: &Node<'_>, event_type: &str, at: Time) -> Result<Vec<Fact>, FactError> {
    let id = data.id("subscription_id")?.ok_or_else(|| data.error("no_subscription_id", "subscription_id"))?;
    let app_user_id = data.id("app_user_id")?.ok_or_else(|| data.error("no_app_user_id", "app_user_id"))?;
    let item = SubscriptionItem {
        product_id: data.id("product_id")?.ok_or_else(|| data.error("no_product_id", "product_id"))?,
        quantity: data.integer("quantity")?.unwrap_or(1),
        period_start: data.seconds("period_start")?,
        period_end: data.seconds("period_end")?,
    };
    let status =
        if event_type == "subscription.deleted" { SubscriptionStatus::Expired } else { subscription_status(data)? };
    let ended = (status == SubscriptionStatus::Expired).then_some(at);
    let fact = SubscriptionFact {
        app_user_id: Some(app_user_id),
        store: data.text("store")?,
        items: Some(vec![item]),
        started_at: data.seconds("started_at")?,
        trial_ends_at: data.seconds("trial_ends_at")?,
        canceled_at: data.seconds("canceled_at")?,
        ends_at: data.seconds("ends_at")?.or(ended),
        cancel_reason: data.text("cancel_reason")?,
        ..SubscriptionFact::new(SubscriptionStep::Stands(status))
    };
    Ok(vec![Fact { subject: Subject::subscription(id), occurred_at: at, detail: FactDetail::Subscription(fact) }])
}

fn subscription_status(data: &Node<'_>) -> Result<SubscriptionStatus, FactError> {
    match data.text("status")?.as_deref() {
        Some("incomplete") => Ok(SubscriptionStatus::Incomplete),
        Some("trialing") => Ok(SubscriptionStatus::Trialing),
        Some("active") => Ok(SubscriptionStatus::Active),
        Some("in_grace") => Ok(SubscriptionStatus::InGrace),
        Some("past_due") => Ok(SubscriptionStatus::PastDue),
        Some("paused") => Ok(SubscriptionStatus::Paused),
        Some("canceled") => Ok(SubscriptionStatus::Canceled),
        Some("expired") => Ok(SubscriptionStatus::Expired),
        Some("revoked") => Ok(SubscriptionStatus::Revoked),
        _ => Err(data.error("unknown_status", "status")),
    }
}

/// A paid invoice is the only event about its payment here, so it tells the money too.
fn invoice(data: &Node<'_>, event_type: &str, at: Time) -> Result<Vec<Fact>, FactError> {
    let paid_now = event_type == "invoice.paid";
    let mut facts = Vec::new();
    if let Some(id) = data.id("subscription_id")? {
        let step = if paid_now { SubscriptionStep::Paid } else { SubscriptionStep::PaymentFailed };
        let app_user_id = data.id("app_user_id")?;
        let fact = SubscriptionFact { app_user_id, store: data.text("store")?, ..SubscriptionFact::new(step) };
        let subject = Subject::subscription(id);
        facts.push(Fact { subject, occurred_at: at, detail: FactDetail::Subscription(fact) });
    }
    if let Some(payment_id) = data.id("payment_id")? {
        let step = if paid_now { PaymentStep::Captured } else { PaymentStep::Failed };
        let detail = FactDetail::Payment(payment_fact(data, step, Some(money(data)?))?);
        facts.push(Fact { subject: Subject::payment(payment_id), occurred_at: at, detail });
    }
    Ok(facts)
}
