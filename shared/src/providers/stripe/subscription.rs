use super::{STORE, Told};
use crate::domain::{
    Fact, FactDetail, PaymentFact, PaymentStep, Subject, SubscriptionFact, SubscriptionItem, SubscriptionStatus,
    SubscriptionStep, Time,
};
use crate::providers::FactError;
use crate::providers::node::Node;

/// A Subscription with all its items, as it stands. <https://docs.stripe.com/api/subscriptions/object>
pub(super) fn subscription(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let id = object.id("id")?.ok_or_else(|| object.error("no_subscription_id", "id"))?;
    let customer = customer(object)?.ok_or_else(|| object.error("no_app_user_id", "customer"))?;
    let items = items(object)?;
    let ending = Ending::read(object, &items)?;
    let status = status(object, told.event_type, ending.will_end)?;
    let was = told.previous.and_then(|previous| status_before(object, previous, told.event_type));
    let cancellation = object.object("cancellation_details")?;
    let fact = SubscriptionFact {
        was,
        app_user_id: Some(customer),
        store: Some(STORE.to_owned()),
        started_at: object.seconds("start_date")?.or(object.seconds("created")?),
        trial_ends_at: object.seconds("trial_end")?,
        canceled_at: object.seconds("canceled_at")?,
        ends_at: if status == SubscriptionStatus::Expired { ending.ended_at.or(Some(told.at)) } else { ending.ends_at },
        cancel_reason: cancellation.map_or(Ok(None), |details| details.text("reason"))?,
        items: Some(items),
        ..SubscriptionFact::new(SubscriptionStep::Stands(status))
    };
    Ok(vec![about(id, told, fact)])
}

fn customer(object: &Node<'_>) -> Result<Option<String>, FactError> {
    Ok(object.id("customer")?.or(object.id("customer_account")?))
}

fn status(object: &Node<'_>, event_type: &str, will_end: bool) -> Result<SubscriptionStatus, FactError> {
    let word = object.text("status")?;
    let status = standing(word.as_deref(), will_end).ok_or_else(|| object.error("unknown_status", "status"))?;
    Ok(if event_type == "customer.subscription.deleted" { SubscriptionStatus::Expired } else { status })
}

fn standing(word: Option<&str>, will_end: bool) -> Option<SubscriptionStatus> {
    Some(match word? {
        "active" | "trialing" if will_end => SubscriptionStatus::Canceled,
        "active" => SubscriptionStatus::Active,
        "trialing" => SubscriptionStatus::Trialing,
        "past_due" | "unpaid" => SubscriptionStatus::PastDue,
        "paused" => SubscriptionStatus::Paused,
        "incomplete" => SubscriptionStatus::Incomplete,
        "incomplete_expired" | "canceled" => SubscriptionStatus::Expired,
        _ => return None,
    })
}

/// The standing before an update: that of the object with its former values laid over it. What an update does not name
/// among them it did not change. <https://docs.stripe.com/api/events/object#event_object-data-previous_attributes>
fn status_before(object: &Node<'_>, previous: &Node<'_>, event_type: &str) -> Option<SubscriptionStatus> {
    if event_type != "customer.subscription.updated" {
        return None;
    }
    let holder = |key: &str| if previous.names(key) { previous } else { object };
    let word = holder("status").text("status").ok()?;
    let at_period_end = holder("cancel_at_period_end").flag("cancel_at_period_end").ok()?.unwrap_or(false);
    let cancel_at = holder("cancel_at").seconds("cancel_at").ok()?;
    standing(word.as_deref(), at_period_end || cancel_at.is_some())
}

/// When a subscription ends or ended.
struct Ending {
    /// It is cancelled, but runs on for now.
    will_end: bool,
    ends_at: Option<Time>,
    ended_at: Option<Time>,
}

impl Ending {
    fn read(object: &Node<'_>, items: &[SubscriptionItem]) -> Result<Self, FactError> {
        let at_period_end = object.flag("cancel_at_period_end")?.unwrap_or(false);
        let cancel_at = object.seconds("cancel_at")?;
        let period_end = items.iter().filter_map(|item| item.period_end).max();
        Ok(Ending {
            will_end: at_period_end || cancel_at.is_some(),
            ends_at: cancel_at.or(period_end.filter(|_| at_period_end)),
            ended_at: object.seconds("ended_at")?,
        })
    }
}

/// Since 2025-03-31 each item has a period of its own; before, the subscription had one for all.
fn items(object: &Node<'_>) -> Result<Vec<SubscriptionItem>, FactError> {
    let start = object.seconds("current_period_start")?;
    let end = object.seconds("current_period_end")?;
    let listed = object.object("items")?.map_or(Ok(Vec::new()), |items| items.list("data"))?;
    if listed.is_empty() {
        return Err(object.error("no_product_id", "items"));
    }
    let item = |item: &Node<'_>| {
        Ok(SubscriptionItem {
            product_id: product(item)?.ok_or_else(|| item.error("no_product_id", "price"))?,
            // A metered item has no quantity.
            quantity: item.integer("quantity")?.unwrap_or(1),
            period_start: item.seconds("current_period_start")?.or(start),
            period_end: item.seconds("current_period_end")?.or(end),
        })
    };
    listed.iter().map(item).collect()
}

/// The product of a price, or of a plan, which came before prices; a plan from before products is its own.
fn product(item: &Node<'_>) -> Result<Option<String>, FactError> {
    for key in ["price", "plan"] {
        let Some(node) = item.object(key)? else { continue };
        if let Some(product) = node.id("product")? {
            return Ok(Some(product));
        }
        if let Some(id) = node.id("id")? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// An Invoice tells that a subscription's period was paid for, or not, and which payment that was. The money itself is
/// told by the payment. <https://docs.stripe.com/api/invoices/object>
pub(super) fn invoice(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let subscription_id = subscription_of(object)?;
    let customer = customer(object)?;
    let mut facts = Vec::new();
    if let Some(id) = &subscription_id {
        let failed = told.event_type == "invoice.payment_failed";
        let step = if failed { SubscriptionStep::PaymentFailed } else { SubscriptionStep::Paid };
        let store = Some(STORE.to_owned());
        let fact = SubscriptionFact { app_user_id: customer.clone(), store, ..SubscriptionFact::new(step) };
        facts.push(about(id.clone(), told, fact));
    }
    let product_id = first_product(object)?;
    for payment_id in payments_of(object)? {
        let fact = PaymentFact {
            app_user_id: customer.clone(),
            product_id: product_id.clone(),
            subscription_id: subscription_id.clone(),
            store: Some(STORE.to_owned()),
            ..PaymentFact::new(PaymentStep::Noted)
        };
        let detail = FactDetail::Payment(fact);
        facts.push(Fact { subject: Subject::payment(payment_id), occurred_at: told.at, detail });
    }
    Ok(facts)
}

/// Since 2025-03-31 under `parent`, before at the top.
fn subscription_of(invoice: &Node<'_>) -> Result<Option<String>, FactError> {
    if let Some(id) = invoice.id("subscription")? {
        return Ok(Some(id));
    }
    let Some(parent) = invoice.object("parent")? else { return Ok(None) };
    let Some(details) = parent.object("subscription_details")? else { return Ok(None) };
    details.id("subscription")
}

/// Since 2025-03-31 in `payments`, which may be left out; before at the top.
fn payments_of(invoice: &Node<'_>) -> Result<Vec<String>, FactError> {
    let mut ids = Vec::new();
    let listed = invoice.object("payments")?.map_or(Ok(Vec::new()), |payments| payments.list("data"))?;
    for entry in &listed {
        if let Some(payment) = entry.object("payment")? {
            ids.extend(payment.id("payment_intent")?.or(payment.id("charge")?));
        }
    }
    if ids.is_empty() {
        ids.extend(invoice.id("payment_intent")?.or(invoice.id("charge")?));
    }
    ids.dedup();
    Ok(ids)
}

/// The product of the first line: under `pricing` since 2025-03-31, under `price` or `plan` before.
fn first_product(invoice: &Node<'_>) -> Result<Option<String>, FactError> {
    let lines = invoice.object("lines")?.map_or(Ok(Vec::new()), |lines| lines.list("data"))?;
    let Some(line) = lines.first() else { return Ok(None) };
    let details = line.object("pricing")?.map_or(Ok(None), |pricing| pricing.object("price_details"))?;
    match details.map_or(Ok(None), |details| details.id("product"))? {
        Some(product) => Ok(Some(product)),
        None => product(line),
    }
}

fn about(id: String, told: Told<'_>, fact: SubscriptionFact) -> Fact {
    Fact { subject: Subject::subscription(id), occurred_at: told.at, detail: FactDetail::Subscription(fact) }
}
