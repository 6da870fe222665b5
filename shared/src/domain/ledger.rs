use std::collections::BTreeMap;

use rust_decimal::Decimal;

use super::review::Reviews;
use super::{
    Dispute, EventId, FactDetail, Payment, PaymentStatus, RecordedFact, Refund, Review, Subject, SubjectKind,
    Subscription, Time, Verdict, dispute, payment, refund, subscription,
};

/// The rows that the facts of one subject amount to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ledger {
    pub payment: Option<Payment>,
    pub refunds: Vec<Refund>,
    pub disputes: Vec<Dispute>,
    pub subscriptions: Vec<Subscription>,
    /// Contradictions that nobody decided about, first one first. They are not applied; a person has to look.
    pub reviews: Vec<Review>,
}

/// Folds all facts of one subject into its rows. Neither order nor repetition in the slices matter.
///
/// Decisions of people are among the facts, and apply whether they come before or after those they are about.
/// `transfers` are the facts of the users that the subject's facts name; only subscriptions read them.
pub fn fold(subject: &Subject, facts: &[RecordedFact], transfers: &[RecordedFact]) -> Ledger {
    let facts = in_order(facts);
    let mut reviews = Reviews::of(&facts);
    match subject.kind {
        SubjectKind::Payment => fold_payment(&subject.id, &facts, reviews),
        SubjectKind::Unlinked => {
            let refunds = refund::fold(None, &facts, &mut reviews);
            let disputes = dispute::fold(None, &facts, &mut reviews);
            Ledger { refunds, disputes, reviews: reviews.into_open(), ..Ledger::default() }
        }
        SubjectKind::Subscription => {
            let mut subscriptions = subscription::fold(&subject.id, &facts, &in_order(transfers), &mut reviews);
            for row in &mut subscriptions {
                row.review_reason = reviews.first_reason();
                row.needs_review = row.review_reason.is_some();
            }
            Ledger { subscriptions, reviews: reviews.into_open(), ..Ledger::default() }
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

fn fold_payment(payment_id: &str, facts: &[&RecordedFact], mut reviews: Reviews<'_>) -> Ledger {
    let mut payment = payment::fold(payment_id, facts, &mut reviews);
    let refunds = refund::fold(Some(payment_id), facts, &mut reviews);
    let disputes = dispute::fold(Some(payment_id), facts, &mut reviews);
    if let Some(payment) = &mut payment {
        total(payment, &refunds, &disputes, facts, &mut reviews);
        payment.review_reason = reviews.first_reason();
        payment.needs_review = payment.review_reason.is_some();
    }
    Ledger { payment, refunds, disputes, reviews: reviews.into_open(), ..Ledger::default() }
}

/// Derives the payment's totals, and the states that follow from them, from its refunds and disputes.
fn total(
    payment: &mut Payment,
    refunds: &[Refund],
    disputes: &[Dispute],
    facts: &[&RecordedFact],
    reviews: &mut Reviews<'_>,
) {
    // Money of another currency is a contradiction for a person to look at, not a part of any sum. Where the person vouches
    // for it, its figure counts.
    let is_ours = |currency| payment.currency.is_none_or(|ours| ours == currency);
    let mut vouched = |reason, told: Vec<&RecordedFact>, event_id| {
        reviews.verdict_on(reason, told, event_id) == Some(Verdict::Accept)
    };
    let mut refund_counts = |refund: &&Refund| {
        is_ours(refund.currency)
            || vouched("refund_currency_mismatch", told_of_refund(refund, facts), refund.webhook_event_id)
    };
    let refunds_in: Vec<&Refund> = refunds.iter().filter(&mut refund_counts).collect();
    let mut dispute_counts = |dispute: &&Dispute| {
        is_ours(dispute.currency)
            || vouched("dispute_currency_mismatch", told_of_dispute(dispute, facts), dispute.webhook_event_id)
    };
    let disputes_in: Vec<&Dispute> = disputes.iter().filter(&mut dispute_counts).collect();

    let known: Decimal = refunds_in.iter().filter(|refund| refund.status.is_money_out()).map(|r| r.amount).sum();
    let unexplained = unexplained_refunds(facts, &refunds_in);
    // Normalised, so that equal totals are equal to the letter, whichever addends they come from.
    payment.refunded_amount = (known + unexplained.map_or(Decimal::ZERO, |(_, amount)| amount)).normalize();
    payment.disputed_amount = disputes_in.iter().map(|dispute| dispute.money_out()).sum::<Decimal>().normalize();
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
        question_outflows(&refunds_in, &disputes_in, unexplained.map(|(statement, _)| statement), facts, reviews);
    }
    payment.webhook_event_id = last_change(payment, refunds, disputes, facts);
}

/// Asks about the latest of what took money out of a payment of which more is out than came in. What a person looked at
/// before is not asked about again; what is taken out after that is a new question.
fn question_outflows(
    refunds: &[&Refund],
    disputes: &[&Dispute],
    statement: Option<&RecordedFact>,
    facts: &[&RecordedFact],
    reviews: &mut Reviews<'_>,
) {
    const REASON: &str = "more_out_than_in";
    let refunds = refunds.iter().filter(|refund| refund.status.is_money_out());
    let disputes = disputes.iter().filter(|dispute| dispute.money_out() > Decimal::ZERO);
    let outflows = refunds
        .map(|refund| (told_of_refund(refund, facts), refund.webhook_event_id))
        .chain(disputes.map(|dispute| (told_of_dispute(dispute, facts), dispute.webhook_event_id)))
        .chain(statement.map(|statement| (vec![statement], statement.event_id)));
    let place = |event_id: EventId| facts.iter().rposition(|recorded| recorded.event_id == event_id);
    let questionable = outflows.filter(|(told, _)| reviews.decided(REASON, told.iter().copied()).is_none());
    if let Some((_, latest)) = questionable.max_by_key(|(_, event_id)| place(*event_id)) {
        reviews.put(REASON, latest);
    }
}

fn told_of_refund<'a>(refund: &Refund, facts: &[&'a RecordedFact]) -> Vec<&'a RecordedFact> {
    let is_it = |detail: &FactDetail| matches!(detail, FactDetail::Refund(fact) if fact.refund_id == refund.refund_id);
    facts.iter().copied().filter(|recorded| is_it(&recorded.fact.detail)).collect()
}

fn told_of_dispute<'a>(dispute: &Dispute, facts: &[&'a RecordedFact]) -> Vec<&'a RecordedFact> {
    let is_it =
        |detail: &FactDetail| matches!(detail, FactDetail::Dispute(fact) if fact.dispute_id == dispute.dispute_id);
    facts.iter().copied().filter(|recorded| is_it(&recorded.fact.detail)).collect()
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

/// Money the provider counts as refunded although no refund of ours explains it, and the fact that says so.
///
/// Older API versions state only the running total of a charge. The latest statement is compared with the refunds that
/// counted at that moment; what is left over is a refund whose own event has not come, or never will.
fn unexplained_refunds<'a>(facts: &[&'a RecordedFact], refunds: &[&Refund]) -> Option<(&'a RecordedFact, Decimal)> {
    let statements = facts.iter().filter_map(|recorded| match &recorded.fact.detail {
        FactDetail::Payment(fact) => fact.refunded.map(|total| (*recorded, total.amount())),
        FactDetail::Refund(_)
        | FactDetail::Dispute(_)
        | FactDetail::Subscription(_)
        | FactDetail::Transfer(_)
        | FactDetail::Decision(_) => None,
    });
    // Of two statements in one second, the one that knows of more refunds is the later one.
    let place =
        |(recorded, total): &(&RecordedFact, Decimal)| (recorded.fact.occurred_at, recorded.is_decided(), *total);
    let (statement, total) = statements.max_by_key(place)?;
    let unexplained = total - refunds_counted_at(facts, refunds, statement.fact.occurred_at);
    (unexplained > Decimal::ZERO).then_some((statement, unexplained))
}

/// The sum of those of `refunds` that were pending or done at `at`, whenever their events came.
fn refunds_counted_at(facts: &[&RecordedFact], refunds: &[&Refund], at: Time) -> Decimal {
    let mut counted: BTreeMap<&str, Decimal> = BTreeMap::new();
    for recorded in facts {
        let FactDetail::Refund(fact) = &recorded.fact.detail else { continue };
        if !refunds.iter().any(|refund| refund.refund_id == fact.refund_id) {
            continue;
        }
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
