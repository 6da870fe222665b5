//! The pure core: no IO, no clock, no JSON. `now` and randomness are arguments.

mod dispute;
mod event;
mod explain;
mod fact;
mod ledger;
mod money;
mod payment;
mod refund;
mod settle;
mod subscription;
mod transfer;

pub use dispute::{Dispute, DisputeFact, DisputeStatus, Funds};
pub use event::{Environment, EventId, Lane, Time};
pub use explain::{Effect, Explained, explain};
pub use fact::{Fact, FactDetail, RecordedFact, Subject, SubjectKind};
pub use ledger::{Ledger, Review, fold};
pub use money::{Currency, Money, MoneyError};
pub use payment::{Payment, PaymentFact, PaymentStatus, PaymentStep};
pub use refund::{Refund, RefundFact, RefundStatus};
pub use settle::{Class, Failure, Outcome, RetryPolicy, Settlement, settle};
pub use subscription::{Subscription, SubscriptionFact, SubscriptionItem, SubscriptionStatus, SubscriptionStep};
pub use transfer::TransferFact;

/// What a fact does to a state: the vocabulary of every state table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition<S> {
    /// The state becomes `S`.
    To(S),
    /// The fact agrees with the state, or is older news.
    Same,
    /// The fact contradicts the state. The state stays, and a person has to look; the reason is a stable code.
    Review(&'static str),
}

#[cfg(test)]
mod states;
