use super::{Told, money};
use crate::domain::{Fact, FactDetail, RefundFact, RefundStatus, Subject};
use crate::providers::FactError;
use crate::providers::node::Node;

/// A Refund, whatever the event is called. <https://docs.stripe.com/api/refunds/object>
pub(super) fn refund(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let fact = read(object, told)?;
    let subject = match object.id("payment_intent")?.or(fact.charge_id.clone()) {
        Some(payment_id) => Subject::payment(payment_id),
        None => Subject::unlinked(fact.refund_id.clone()),
    };
    Ok(vec![Fact { subject, occurred_at: told.at, detail: FactDetail::Refund(fact) }])
}

/// The refunds inside a charge. Before 2022-11-15 a charge listed them, and for refunds of a charge there was no other
/// event; since then the list is absent unless asked for.
pub(super) fn listed(charge: &Node<'_>, payment_id: &str, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let Some(refunds) = charge.object("refunds")? else { return Ok(Vec::new()) };
    let fact = |object: &Node<'_>| {
        let detail = FactDetail::Refund(read(object, told)?);
        Ok(Fact { subject: Subject::payment(payment_id), occurred_at: told.at, detail })
    };
    refunds.list("data")?.iter().map(fact).collect()
}

fn read(object: &Node<'_>, told: Told<'_>) -> Result<RefundFact, FactError> {
    let refund_id = object.id("id")?.ok_or_else(|| object.error("no_refund_id", "id"))?;
    let status = match object.text("status")?.as_deref() {
        Some("pending" | "requires_action") => RefundStatus::Pending,
        Some("succeeded") => RefundStatus::Succeeded,
        Some("failed") => RefundStatus::Failed,
        Some("canceled") => RefundStatus::Canceled,
        _ => return Err(object.error("unknown_status", "status")),
    };
    Ok(RefundFact {
        refund_id,
        status,
        amount: money(object, "amount", object.currency("currency")?)?,
        created_at: object.seconds("created")?.unwrap_or(told.at),
        charge_id: object.id("charge")?,
        reason: object.text("reason")?,
        failure_code: object.text("failure_reason")?,
    })
}
