use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::review::Reviews;
use super::{Currency, EventId, FactDetail, Money, RecordedFact, Time, Transition, Verdict};

/// The standing of a dispute (chargeback). An inquiry asks questions; no money has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisputeStatus {
    Inquiry,
    InquiryClosed,
    Prevented,
    Open,
    UnderReview,
    Won,
    Lost,
}

/// The money legs of a dispute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Funds {
    Withdrawn,
    Reinstated,
}

/// A fact about one dispute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisputeFact {
    pub dispute_id: String,
    pub status: DisputeStatus,
    pub amount: Money,
    /// Set by the events that move money.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub funds: Option<Funds>,
    /// When the dispute was opened, which may be long before the fact.
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl DisputeFact {
    pub(super) fn rank(&self) -> i16 {
        let status = match self.status {
            DisputeStatus::Inquiry => 20,
            DisputeStatus::InquiryClosed => 21,
            DisputeStatus::Prevented => 22,
            DisputeStatus::Open => 23,
            DisputeStatus::UnderReview => 25,
            DisputeStatus::Won => 27,
            DisputeStatus::Lost => 29,
        };
        status + i16::from(self.funds.is_some())
    }
}

/// One row of `disputes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dispute {
    pub dispute_id: String,
    /// The payment it belongs to; none where the provider names none.
    pub payment_id: Option<String>,
    pub charge_id: Option<String>,
    pub status: DisputeStatus,
    pub currency: Currency,
    pub amount: Decimal,
    pub reason: Option<String>,
    pub opened_at: Time,
    pub funds_withdrawn_at: Option<Time>,
    pub funds_reinstated_at: Option<Time>,
    pub closed_at: Option<Time>,
    pub webhook_event_id: EventId,
    pub needs_review: bool,
    pub review_reason: Option<&'static str>,
}

/// The state table of disputes: every pair is decided on purpose.
pub(super) fn transition(now: DisputeStatus, told: DisputeStatus) -> Transition<DisputeStatus> {
    use DisputeStatus as S;
    use Transition::{Review, Same, To};
    match (now, told) {
        (S::Inquiry, S::Inquiry) => Same,
        (S::Inquiry, S::InquiryClosed | S::Prevented | S::Open | S::UnderReview | S::Won | S::Lost) => To(told),

        (S::InquiryClosed, S::Inquiry | S::InquiryClosed) => Same,
        // A closed inquiry may still become a chargeback.
        (S::InquiryClosed, S::Prevented | S::Open | S::UnderReview | S::Won | S::Lost) => To(told),

        (S::Prevented, S::Inquiry | S::InquiryClosed | S::Prevented) => Same,
        (S::Prevented, S::Open | S::UnderReview | S::Won | S::Lost) => Review("dispute_after_prevented"),

        (S::Open, S::Inquiry | S::InquiryClosed | S::Open) => Same,
        (S::Open, S::Prevented | S::UnderReview | S::Won | S::Lost) => To(told),

        (S::UnderReview, S::Inquiry | S::InquiryClosed | S::UnderReview) => Same,
        (S::UnderReview, S::Open | S::Prevented | S::Won | S::Lost) => To(told),

        (S::Won, S::Inquiry | S::InquiryClosed | S::Prevented | S::Won) => Same,
        // The card network may reopen a decided case: arbitration, appeal.
        (S::Won, S::Open | S::UnderReview | S::Lost) => To(told),

        (S::Lost, S::Inquiry | S::InquiryClosed | S::Prevented | S::Lost) => Same,
        (S::Lost, S::Open | S::UnderReview | S::Won) => To(told),
    }
}

/// Folds the dispute facts among `facts`, which are in order, into one row per dispute, sorted by dispute id.
pub(super) fn fold(payment_id: Option<&str>, facts: &[&RecordedFact], reviews: &mut Reviews<'_>) -> Vec<Dispute> {
    let mut disputes: std::collections::BTreeMap<&str, Dispute> = std::collections::BTreeMap::new();
    for recorded in facts {
        let FactDetail::Dispute(fact) = &recorded.fact.detail else { continue };
        let row =
            disputes.entry(&fact.dispute_id).or_insert_with(|| Dispute::opened(fact, payment_id, recorded.event_id));
        let before = row.clone();
        row.apply(fact, recorded, reviews);
        if *row != before {
            row.webhook_event_id = recorded.event_id;
        }
    }
    disputes.into_values().collect()
}

impl Dispute {
    fn opened(fact: &DisputeFact, payment_id: Option<&str>, because: EventId) -> Self {
        Dispute {
            dispute_id: fact.dispute_id.clone(),
            payment_id: payment_id.map(str::to_owned),
            charge_id: None,
            status: fact.status,
            currency: fact.amount.currency(),
            amount: fact.amount.amount(),
            reason: None,
            opened_at: fact.created_at,
            funds_withdrawn_at: None,
            funds_reinstated_at: None,
            closed_at: None,
            webhook_event_id: because,
            needs_review: false,
            review_reason: None,
        }
    }

    fn apply(&mut self, fact: &DisputeFact, recorded: &RecordedFact, reviews: &mut Reviews<'_>) {
        let at = recorded.fact.occurred_at;
        if fact.amount.currency() != self.currency && !self.accepts("dispute_currency_changed", recorded, reviews) {
            return;
        }
        match transition(self.status, fact.status) {
            Transition::Review(reason) if !self.accepts(reason, recorded, reviews) => return,
            Transition::Review(_) => self.status = fact.status,
            Transition::Same => {}
            Transition::To(status) => self.status = status,
        }
        self.closed_at = if self.status.is_closed() { self.closed_at.or(Some(at)) } else { None };
        self.currency = fact.amount.currency();
        self.amount = fact.amount.amount();
        self.opened_at = self.opened_at.min(fact.created_at);
        self.charge_id = fact.charge_id.clone().or_else(|| self.charge_id.take());
        self.reason = fact.reason.clone().or_else(|| self.reason.take());
        match fact.funds {
            Some(Funds::Withdrawn) => {
                self.funds_withdrawn_at = Some(at);
                self.funds_reinstated_at = None;
            }
            Some(Funds::Reinstated) => self.funds_reinstated_at = Some(at),
            None => {}
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

    /// What is gone from the merchant's balance because of this dispute.
    pub(super) fn money_out(&self) -> Decimal {
        let withdrawn = self.funds_withdrawn_at.is_some() || self.status == DisputeStatus::Lost;
        if withdrawn && self.funds_reinstated_at.is_none() { self.amount } else { Decimal::ZERO }
    }
}

impl DisputeStatus {
    fn is_closed(self) -> bool {
        match self {
            DisputeStatus::InquiryClosed | DisputeStatus::Prevented | DisputeStatus::Won | DisputeStatus::Lost => true,
            DisputeStatus::Inquiry | DisputeStatus::Open | DisputeStatus::UnderReview => false,
        }
    }

    /// Which of several disputes speaks for the payment: an open one before a lost, a lost before a won one.
    pub(super) fn urgency(self) -> u8 {
        match self {
            DisputeStatus::Open => 6,
            DisputeStatus::UnderReview => 5,
            DisputeStatus::Lost => 4,
            DisputeStatus::Inquiry => 3,
            DisputeStatus::Won => 2,
            DisputeStatus::Prevented => 1,
            DisputeStatus::InquiryClosed => 0,
        }
    }
}
