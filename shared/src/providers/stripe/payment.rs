use super::{STORE, Told, money, refund};
use crate::domain::{Currency, Fact, FactDetail, Money, PaymentFact, PaymentStep, Subject};
use crate::providers::FactError;
use crate::providers::node::Node;

/// A PaymentIntent: one payment with all its attempts. <https://docs.stripe.com/api/payment_intents/object>
pub(super) fn intent(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let payment_id = object.id("id")?.ok_or_else(|| object.error("no_payment_id", "id"))?;
    let status = intent_status(object)?;
    let step = match told.event_type {
        "payment_intent.succeeded" => PaymentStep::Captured,
        "payment_intent.payment_failed" => PaymentStep::Failed,
        "payment_intent.canceled" => PaymentStep::Canceled,
        // It also comes when the last capture leaves nothing more to capture.
        "payment_intent.amount_capturable_updated" if status.is_none_or(|status| status == "requires_capture") => {
            PaymentStep::Authorized
        }
        "payment_intent.amount_capturable_updated" => PaymentStep::Noted,
        _ => PaymentStep::Pending,
    };
    let currency = object.currency("currency")?;
    let captured = (step == PaymentStep::Captured).then(|| money(object, "amount_received", currency));
    let failure_code = match step {
        PaymentStep::Failed => last_error(object)?,
        PaymentStep::Canceled => object.text("cancellation_reason")?,
        _ => None,
    };
    let fact = PaymentFact {
        amount: Some(money(object, "amount", currency)?),
        captured: captured.transpose()?,
        charge_id: latest_charge(object)?,
        app_user_id: object.id("customer")?,
        store: Some(STORE.to_owned()),
        failure_code,
        ..PaymentFact::new(step)
    };
    Ok(vec![about(payment_id, told, fact)])
}

/// A status that did not exist when this was written may mean anything, also for a known event.
fn intent_status(object: &Node<'_>) -> Result<Option<&'static str>, FactError> {
    const KNOWN: [&str; 9] = [
        "requires_payment_method",
        "requires_confirmation",
        "requires_action",
        "requires_capture",
        "processing",
        "succeeded",
        "canceled",
        // Before 2019-02-11.
        "requires_source",
        "requires_source_action",
    ];
    let Some(status) = object.text("status")? else { return Ok(None) };
    let known = KNOWN.into_iter().find(|known| *known == status);
    known.map(Some).ok_or_else(|| object.error("unknown_status", "status"))
}

/// Before 2022-11-15 the charges were listed, newest first; since then the newest is named.
fn latest_charge(object: &Node<'_>) -> Result<Option<String>, FactError> {
    if let Some(charge) = object.id("latest_charge")? {
        return Ok(Some(charge));
    }
    let Some(charges) = object.object("charges")? else { return Ok(None) };
    charges.list("data")?.first().map_or(Ok(None), |charge| charge.id("id"))
}

fn last_error(object: &Node<'_>) -> Result<Option<String>, FactError> {
    let Some(error) = object.object("last_payment_error")? else { return Ok(None) };
    Ok(error.text("decline_code")?.or(error.text("code")?))
}

/// A Charge: one attempt of a payment, stated as it stands. <https://docs.stripe.com/api/charges/object>
pub(super) fn charge(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let charge_id = object.id("id")?.ok_or_else(|| object.error("no_payment_id", "id"))?;
    let payment_id = object.id("payment_intent")?.unwrap_or_else(|| charge_id.clone());
    let step = charge_step(object, told.event_type)?;
    let currency = object.currency("currency")?;
    let amount = money(object, "amount", currency)?;
    let mut fact = PaymentFact {
        charge_id: Some(charge_id),
        app_user_id: object.id("customer")?,
        store: Some(STORE.to_owned()),
        ..PaymentFact::new(step)
    };
    let mut refunds = Vec::new();
    match step {
        PaymentStep::Noted => {}
        PaymentStep::Captured => {
            let totals = Totals::read(object, currency, amount, told.event_type)?;
            if totals.captured == amount {
                refunds = refund::listed(object, &payment_id, told)?;
            }
            fact.amount = Some(amount);
            fact.refunded = totals.refunded;
            fact.captured = Some(totals.captured);
        }
        PaymentStep::Failed => {
            fact.amount = Some(amount);
            fact.failure_code = object.text("failure_code")?;
        }
        _ => fact.amount = Some(amount),
    }
    let mut facts = vec![about(payment_id, told, fact)];
    facts.append(&mut refunds);
    Ok(facts)
}

fn charge_step(object: &Node<'_>, event_type: &str) -> Result<PaymentStep, FactError> {
    let captured = object.flag("captured")?.unwrap_or(true);
    let stands = match object.text("status")?.as_deref() {
        Some("succeeded") | None if captured => PaymentStep::Captured,
        Some("succeeded") | None => PaymentStep::Authorized,
        Some("pending") => PaymentStep::Pending,
        // An attempt that failed says nothing about the attempts after it; `charge.failed` itself is told below.
        Some("failed") => PaymentStep::Noted,
        Some(_) => return Err(object.error("unknown_status", "status")),
    };
    Ok(match event_type {
        "charge.failed" => PaymentStep::Failed,
        "charge.expired" => PaymentStep::Expired,
        "charge.pending" => PaymentStep::Pending,
        // The release of an authorization is told as its refund; the cancellation itself has an event of its own.
        "charge.refunded" if !captured => PaymentStep::Noted,
        _ => stands,
    })
}

/// The running totals of a captured charge.
struct Totals {
    captured: Money,
    refunded: Option<Money>,
}

impl Totals {
    /// What was authorized but not captured is released, and counted in `amount_refunded` although it was never taken
    /// ("any additional amount is automatically refunded", <https://docs.stripe.com/api/payment_intents/capture>). A
    /// total smaller than the released part cannot contain it.
    fn read(object: &Node<'_>, currency: Currency, amount: Money, event_type: &str) -> Result<Self, FactError> {
        let exponent = super::exponent(currency);
        let captured = object.money("amount_captured", currency, exponent)?.unwrap_or(amount);
        let stated = object.money("amount_refunded", currency, exponent)?;
        if stated.is_none() && event_type == "charge.refunded" {
            return Err(object.error("bad_amount", "amount_refunded"));
        }
        let released = amount.less(captured);
        let refunded =
            stated.map(|total| if total.amount() >= released.amount() { total.less(released) } else { total });
        Ok(Totals { captured, refunded })
    }
}

/// A Checkout Session only ties a payment to a customer and a subscription; the money is told by the payment itself.
/// <https://docs.stripe.com/api/checkout/sessions/object>
pub(super) fn checkout(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let Some(payment_id) = object.id("payment_intent")? else { return Ok(Vec::new()) };
    let fact = PaymentFact {
        app_user_id: object.id("customer")?.or(object.id("client_reference_id")?),
        subscription_id: object.id("subscription")?,
        store: Some(STORE.to_owned()),
        ..PaymentFact::new(PaymentStep::Noted)
    };
    Ok(vec![about(payment_id, told, fact)])
}

fn about(payment_id: String, told: Told<'_>, fact: PaymentFact) -> Fact {
    Fact { subject: Subject::payment(payment_id), occurred_at: told.at, detail: FactDetail::Payment(fact) }
}
