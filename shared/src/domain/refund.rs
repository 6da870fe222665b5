use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::review::Reviews;
use super::{Currency, EventId, FactDetail, Money, RecordedFact, Time, Transition, Verdict};

/// The standing of a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundStatus {
    Pending,
    Succeeded,
    Failed,
    Canceled,
    /// The money came back to us after the refund was done.
    Reversed,
}

impl RefundStatus {
    pub(super) fn rank(self) -> i16 {
        match self {
            RefundStatus::Pending => 10,
            RefundStatus::Succeeded => 11,
            RefundStatus::Canceled => 12,
            RefundStatus::Failed => 13,
            RefundStatus::Reversed => 14,
        }
    }

    /// Whether the money is out, or on its way out. Providers count a pending refund as refunded.
    pub fn is_money_out(self) -> bool {
        match self {
            RefundStatus::Pending | RefundStatus::Succeeded => true,
            RefundStatus::Failed | RefundStatus::Canceled | RefundStatus::Reversed => false,
        }
    }
}

/// A fact about one refund.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefundFact {
    pub refund_id: String,
    pub status: RefundStatus,
    pub amount: Money,
    /// When the refund was asked for, which may be long before the fact.
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
}

/// One row of `refunds`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refund {
    pub refund_id: String,
    /// The payment it belongs to; none where the provider names none.
    pub payment_id: Option<String>,
    pub charge_id: Option<String>,
    pub status: RefundStatus,
    pub currency: Currency,
    pub amount: Decimal,
    pub reason: Option<String>,
    pub failure_code: Option<String>,
    pub requested_at: Time,
    pub refunded_at: Option<Time>,
    pub failed_at: Option<Time>,
    pub webhook_event_id: EventId,
    pub needs_review: bool,
    pub review_reason: Option<&'static str>,
}

/// The state table of refunds: every pair is decided on purpose.
pub(super) fn transition(now: RefundStatus, told: RefundStatus) -> Transition<RefundStatus> {
    use RefundStatus as S;
    use Transition::{Review, Same, To};
    match (now, told) {
        (S::Pending, S::Pending) => Same,
        (S::Pending, S::Succeeded | S::Failed | S::Canceled | S::Reversed) => To(told),

        (S::Succeeded, S::Pending | S::Succeeded) => Same,
        // A bank may hand the money back days after the refund counted as done.
        (S::Succeeded, S::Failed | S::Canceled | S::Reversed) => To(told),

        (S::Failed, S::Pending | S::Failed | S::Canceled | S::Reversed) => Same,
        (S::Failed, S::Succeeded) => Review("refund_succeeded_after_failed"),

        (S::Canceled, S::Pending | S::Failed | S::Canceled | S::Reversed) => Same,
        (S::Canceled, S::Succeeded) => Review("refund_succeeded_after_canceled"),

        (S::Reversed, S::Pending | S::Failed | S::Canceled | S::Reversed) => Same,
        // The store refunds the same purchase a second time.
        (S::Reversed, S::Succeeded) => To(told),
    }
}

/// Folds the refund facts among `facts`, which are in order, into one row per refund, sorted by refund id.
pub(super) fn fold(payment_id: Option<&str>, facts: &[&RecordedFact], reviews: &mut Reviews<'_>) -> Vec<Refund> {
    let mut refunds: std::collections::BTreeMap<&str, Refund> = std::collections::BTreeMap::new();
    for recorded in facts {
        let FactDetail::Refund(fact) = &recorded.fact.detail else { continue };
        let row =
            refunds.entry(&fact.refund_id).or_insert_with(|| Refund::requested(fact, payment_id, recorded.event_id));
        let before = row.clone();
        row.apply(fact, recorded, reviews);
        if *row != before {
            row.webhook_event_id = recorded.event_id;
        }
    }
    refunds.into_values().collect()
}

impl Refund {
    fn requested(fact: &RefundFact, payment_id: Option<&str>, because: EventId) -> Self {
        Refund {
            refund_id: fact.refund_id.clone(),
            payment_id: payment_id.map(str::to_owned),
            charge_id: None,
            status: RefundStatus::Pending,
            currency: fact.amount.currency(),
            amount: fact.amount.amount(),
            reason: None,
            failure_code: None,
            requested_at: fact.created_at,
            refunded_at: None,
            failed_at: None,
            webhook_event_id: because,
            needs_review: false,
            review_reason: None,
        }
    }

    fn apply(&mut self, fact: &RefundFact, recorded: &RecordedFact, reviews: &mut Reviews<'_>) {
        let at = recorded.fact.occurred_at;
        if fact.amount.currency() != self.currency && !self.accepts("refund_currency_changed", recorded, reviews) {
            return;
        }
        match transition(self.status, fact.status) {
            Transition::Review(reason) if !self.accepts(reason, recorded, reviews) => return,
            Transition::Review(_) => self.enter(fact.status, at),
            Transition::Same => {}
            Transition::To(status) => self.enter(status, at),
        }
        self.currency = fact.amount.currency();
        self.amount = fact.amount.amount();
        self.requested_at = self.requested_at.min(fact.created_at);
        self.charge_id = fact.charge_id.clone().or_else(|| self.charge_id.take());
        self.reason = fact.reason.clone().or_else(|| self.reason.take());
        self.failure_code = fact.failure_code.clone().or_else(|| self.failure_code.take());
    }

    fn enter(&mut self, status: RefundStatus, at: Time) {
        self.status = status;
        match status {
            RefundStatus::Succeeded => {
                self.refunded_at = Some(at);
                self.failed_at = None;
            }
            RefundStatus::Failed | RefundStatus::Canceled | RefundStatus::Reversed => {
                self.failed_at = Some(at);
                self.refunded_at = None;
            }
            RefundStatus::Pending => {}
        }
    }

    /// Whether a fact that contradicts is applied after all. As long as nobody decided about it, the row says so.
    fn accepts(&mut self, reason: &'static str, recorded: &RecordedFact, reviews: &mut Reviews<'_>) -> bool {
        let verdict = reviews.verdict(reason, recorded);
        if verdict.is_none() {
            self.needs_review = true;
            self.review_reason.get_or_insert(reason);
        }
        verdict == Some(Verdict::Accept)
    }
}
