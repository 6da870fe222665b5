use serde::{Deserialize, Serialize};

use super::{DecisionFact, DisputeFact, EventId, PaymentFact, RefundFact, SubscriptionFact, Time, TransferFact};

/// What a fact is about, within one provider account. All facts of one subject are folded together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    pub kind: SubjectKind,
    pub id: String,
}

/// The kinds of subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubjectKind {
    /// A payment with its refunds and disputes: they share totals, so they are folded together.
    Payment,
    /// A refund or dispute that names no payment.
    Unlinked,
    /// A subscription with all its items.
    Subscription,
    /// A user, of whom it is told that their purchases moved to another. No rows of its own: the fold of every
    /// subscription of the user reads it.
    User,
}

impl SubjectKind {
    pub fn as_str(self) -> &'static str {
        match self {
            SubjectKind::Payment => "payment",
            SubjectKind::Unlinked => "unlinked",
            SubjectKind::Subscription => "subscription",
            SubjectKind::User => "user",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [SubjectKind::Payment, SubjectKind::Unlinked, SubjectKind::Subscription, SubjectKind::User]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

impl Subject {
    pub fn payment(id: impl Into<String>) -> Self {
        Subject { kind: SubjectKind::Payment, id: id.into() }
    }

    pub fn unlinked(id: impl Into<String>) -> Self {
        Subject { kind: SubjectKind::Unlinked, id: id.into() }
    }

    pub fn subscription(id: impl Into<String>) -> Self {
        Subject { kind: SubjectKind::Subscription, id: id.into() }
    }

    pub fn user(id: impl Into<String>) -> Self {
        Subject { kind: SubjectKind::User, id: id.into() }
    }
}

/// One thing a provider told us happened. An adapter derives it from one event; it never changes afterwards.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    pub subject: Subject,
    /// When it happened at the provider. Arrival order decides nothing.
    pub occurred_at: Time,
    pub detail: FactDetail,
}

/// What happened. The serialised form is what `ledger_facts.fact` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FactDetail {
    Payment(PaymentFact),
    Refund(RefundFact),
    Dispute(DisputeFact),
    Subscription(SubscriptionFact),
    Transfer(TransferFact),
    Decision(DecisionFact),
}

impl FactDetail {
    /// `payment`, `refund`, `dispute`, `subscription`, `transfer` or `decision`.
    pub fn kind(&self) -> &'static str {
        match self {
            FactDetail::Payment(_) => "payment",
            FactDetail::Refund(_) => "refund",
            FactDetail::Dispute(_) => "dispute",
            FactDetail::Subscription(_) => "subscription",
            FactDetail::Transfer(_) => "transfer",
            FactDetail::Decision(_) => "decision",
        }
    }

    /// Orders facts of one second: a state that follows another in life ranks after it.
    pub fn rank(&self) -> i16 {
        match self {
            FactDetail::Payment(fact) => fact.step.rank(),
            FactDetail::Refund(fact) => fact.status.rank(),
            FactDetail::Dispute(fact) => fact.rank(),
            FactDetail::Subscription(fact) => fact.step.rank(),
            FactDetail::Transfer(_) => TransferFact::RANK,
            FactDetail::Decision(_) => DecisionFact::RANK,
        }
    }
}

/// A fact together with the event it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedFact {
    pub fact: Fact,
    /// Our id of the event. It follows arrival, so it never takes part in ordering.
    pub event_id: EventId,
    /// The provider's id of the event: the last, arbitrary but arrival-free, tie-breaker.
    pub external_event_id: String,
    /// The position of the fact among those of its event.
    pub ordinal: i16,
}

impl RecordedFact {
    /// The total order in which facts are folded: time, who says it, rank, then ids that do not depend on arrival.
    pub fn order(&self) -> (Time, bool, i16, &str, i16) {
        let rank = self.fact.detail.rank();
        (self.fact.occurred_at, self.is_decided(), rank, &self.external_event_id, self.ordinal)
    }

    /// Whether a person put the fact into the ledger. In its second, such a fact has the last word.
    pub fn is_decided(&self) -> bool {
        self.external_event_id.starts_with(DecisionFact::EVENT_PREFIX)
    }
}
