use super::{Told, money};
use crate::domain::{DisputeFact, DisputeStatus, Fact, FactDetail, Funds, Subject};
use crate::providers::FactError;
use crate::providers::node::Node;

/// A Dispute. Only `funds_withdrawn` and `funds_reinstated` move money. <https://docs.stripe.com/api/disputes/object>
pub(super) fn dispute(object: &Node<'_>, told: Told<'_>) -> Result<Vec<Fact>, FactError> {
    let dispute_id = object.id("id")?.ok_or_else(|| object.error("no_dispute_id", "id"))?;
    let charge_id = object.id("charge")?;
    let subject = match object.id("payment_intent")?.or(charge_id.clone()) {
        Some(payment_id) => Subject::payment(payment_id),
        None => Subject::unlinked(dispute_id.clone()),
    };
    let fact = DisputeFact {
        dispute_id,
        status: status(object)?,
        amount: money(object, "amount", object.currency("currency")?)?,
        funds: match told.event_type {
            "charge.dispute.funds_withdrawn" => Some(Funds::Withdrawn),
            "charge.dispute.funds_reinstated" => Some(Funds::Reinstated),
            _ => None,
        },
        created_at: object.seconds("created")?.unwrap_or(told.at),
        charge_id,
        reason: object.text("reason")?,
    };
    Ok(vec![Fact { subject, occurred_at: told.at, detail: FactDetail::Dispute(fact) }])
}

fn status(object: &Node<'_>) -> Result<DisputeStatus, FactError> {
    match object.text("status")?.as_deref() {
        // `warning_…` is an inquiry: the bank asks, no money has moved.
        Some("warning_needs_response" | "warning_under_review") => Ok(DisputeStatus::Inquiry),
        Some("warning_closed") => Ok(DisputeStatus::InquiryClosed),
        Some("prevented") => Ok(DisputeStatus::Prevented),
        Some("needs_response" | "appeal_needs_response") => Ok(DisputeStatus::Open),
        Some("under_review" | "appeal_under_review") => Ok(DisputeStatus::UnderReview),
        Some("won") => Ok(DisputeStatus::Won),
        Some("lost") => Ok(DisputeStatus::Lost),
        _ => Err(object.error("unknown_status", "status")),
    }
}
