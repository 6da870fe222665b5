use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::{
    Dispute, EventId, FactDetail, Payment, PaymentStatus, RecordedFact, Refund, Subject, SubjectKind, Subscription,
    Time, dispute, payment, refund, subscription,
};

/// The rows that the facts of one subject amount to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    pub payment: Option<Payment>,
    pub refunds: Vec<Refund>,
    pub disputes: Vec<Dispute>,
    pub subscriptions: Vec<Subscription>,
    /// Contradictions found on the way, first one first. They are not applied; a person has to look.
    pub reviews: Vec<Review>,
}

/// A contradiction between facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// A stable code, such as `paid_after_canceled`.
    pub reason: &'static str,
    /// The event whose fact could not be applied.
    pub event_id: EventId,
}

impl Review {
    pub(super) fn new(reason: &'static str, recorded: &RecordedFact) -> Self {
        Review { reason, event_id: recorded.event_id }
    }
}

/// Folds all facts of one subject into its rows. Neither order nor repetition in the slices matter.
///
/// `transfers` are the facts of the users that the subject's facts name; only subscriptions read them.
pub fn fold(subject: &Subject, facts: &[RecordedFact], transfers: &[RecordedFact]) -> Ledger {
    let facts = in_order(facts);
    match subject.kind {
        SubjectKind::Payment => fold_payment(&subject.id, &facts),
        SubjectKind::Unlinked => {
            let mut reviews = Vec::new();
            let refunds = refund::fold(None, &facts, &mut reviews);
            let disputes = dispute::fold(None, &facts, &mut reviews);
            Ledger { refunds, disputes, reviews, ..Ledger::default() }
        }
        SubjectKind::Subscription => {
            let mut reviews = Vec::new();
            let mut subscriptions = subscription::fold(&subject.id, &facts, &in_order(transfers), &mut reviews);
            if let Some(review) = reviews.first() {
                for row in &mut subscriptions {
                    row.needs_review = true;
                    row.review_reason = Some(review.reason);
                }
            }
            Ledger { subscriptions, reviews, ..Ledger::default() }
        }
        SubjectKind::User => Ledger::default(),
    }
}

fn in_order(facts: &[RecordedFact]) -> Vec<&RecordedFact> {
    let mut facts: Vec<&RecordedFact> = facts.iter().collect();
    facts.sort_by(|a, b| a.order().cmp(&b.order()));
    // The order names a fact: the same one given twice counts once.
    facts.dedup_by(|a, b| a.order() == b.order());
    facts
}

fn fold_payment(payment_id: &str, facts: &[&RecordedFact]) -> Ledger {
    let mut reviews = Vec::new();
    let mut payment = payment::fold(payment_id, facts, &mut reviews);
    let refunds = refund::fold(Some(payment_id), facts, &mut reviews);
    let disputes = dispute::fold(Some(payment_id), facts, &mut reviews);
    if let Some(payment) = &mut payment {
        total(payment, &refunds, &disputes, facts, &mut reviews);
        if let Some(review) = reviews.first() {
            payment.needs_review = true;
            payment.review_reason = Some(review.reason);
        }
    }
    Ledger { payment, refunds, disputes, reviews, ..Ledger::default() }
}

/// Derives the payment's totals, and the states that follow from them, from its refunds and disputes.
fn total(
    payment: &mut Payment,
    refunds: &[Refund],
    disputes: &[Dispute],
    facts: &[&RecordedFact],
    reviews: &mut Vec<Review>,
) {
    // Money of another currency is a contradiction for a person to look at, not a part of any sum.
    let counts = |currency| payment.currency.is_none_or(|ours| ours == currency);
    let out = refunds.iter().filter(|refund| refund.status.is_money_out() && counts(refund.currency));
    let known: Decimal = out.map(|refund| refund.amount).sum();
    let disputed: Decimal = disputes.iter().filter(|dispute| counts(dispute.currency)).map(Dispute::money_out).sum();
    let strange_refunds =
        refunds.iter().filter(|r| !counts(r.currency)).map(|r| ("refund_currency_mismatch", r.webhook_event_id));
    let strange_disputes =
        disputes.iter().filter(|d| !counts(d.currency)).map(|d| ("dispute_currency_mismatch", d.webhook_event_id));
    reviews.extend(strange_refunds.chain(strange_disputes).map(|(reason, event_id)| Review { reason, event_id }));

    // Normalised, so that equal totals are equal to the letter, whichever addends they come from.
    payment.refunded_amount = (known + unexplained_refunds(facts)).normalize();
    payment.disputed_amount = disputed.normalize();
    payment.dispute_status = disputes.iter().map(|d| d.status).max_by_key(|status| status.urgency());

    if payment.status == PaymentStatus::Paid && payment.refunded_amount > Decimal::ZERO {
        payment.status = if payment.refunded_amount >= payment.captured_amount {
            PaymentStatus::Refunded
        } else {
            PaymentStatus::PartiallyRefunded
        };
    }
    let settled =
        matches!(payment.status, PaymentStatus::Paid | PaymentStatus::PartiallyRefunded | PaymentStatus::Refunded);
    if settled && payment.refunded_amount + payment.disputed_amount > payment.captured_amount {
        reviews.push(Review { reason: "more_out_than_in", event_id: payment.webhook_event_id });
    }
    payment.webhook_event_id = last_change(payment, refunds, disputes, facts);
}

/// The payment row changes with its own facts and with those of its refunds and disputes; the latest change counts.
fn last_change(payment: &Payment, refunds: &[Refund], disputes: &[Dispute], facts: &[&RecordedFact]) -> EventId {
    let changed = |event: EventId| {
        event == payment.webhook_event_id
            || refunds.iter().any(|r| r.webhook_event_id == event)
            || disputes.iter().any(|d| d.webhook_event_id == event)
    };
    facts.iter().rev().map(|f| f.event_id).find(|event| changed(*event)).unwrap_or(payment.webhook_event_id)
}

/// Money the provider counts as refunded although no refund of ours explains it.
///
/// Older API versions state only the running total of a charge. The latest statement is compared with the refunds that
/// counted at that moment; what is left over is a refund whose own event has not come, or never will.
fn unexplained_refunds(facts: &[&RecordedFact]) -> Decimal {
    let statements = facts.iter().filter_map(|recorded| match &recorded.fact.detail {
        FactDetail::Payment(fact) => fact.refunded.map(|total| (recorded.fact.occurred_at, total.amount())),
        FactDetail::Refund(_) | FactDetail::Dispute(_) | FactDetail::Subscription(_) | FactDetail::Transfer(_) => None,
    });
    // Of two statements in one second, the one that knows of more refunds is the later one.
    let statement = statements.max();
    let Some((at, total)) = statement else { return Decimal::ZERO };
    (total - refunds_counted_at(facts, at)).max(Decimal::ZERO)
}

/// The sum of the refunds that were pending or done at `at`, whenever their events came.
fn refunds_counted_at(facts: &[&RecordedFact], at: Time) -> Decimal {
    let mut counted: BTreeMap<&str, Decimal> = BTreeMap::new();
    for recorded in facts {
        let FactDetail::Refund(fact) = &recorded.fact.detail else { continue };
        let amount = if fact.status.is_money_out() { fact.amount.amount() } else { Decimal::ZERO };
        if recorded.fact.occurred_at <= at {
            counted.insert(&fact.refund_id, amount);
        } else if fact.created_at <= at {
            // Its earlier events did not come; it was asked for by then, so it counted, even if it failed since.
            counted.entry(&fact.refund_id).or_insert(fact.amount.amount());
        }
    }
    counted.into_values().sum()
}

#[cfg(test)]
mod permutations;
#[cfg(test)]
mod tests;
