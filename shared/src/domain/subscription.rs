use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{EventId, FactDetail, RecordedFact, Review, Time, Transition};

/// The standing of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionStatus {
    /// The first payment has not succeeded yet.
    Incomplete,
    Trialing,
    Active,
    /// A renewal failed; the store still grants access for a while.
    InGrace,
    /// A renewal failed and the provider is still trying.
    PastDue,
    Paused,
    /// Will not renew; runs to its end.
    Canceled,
    Expired,
    /// Ended early by the store or the provider.
    Revoked,
}

impl SubscriptionStatus {
    fn is_ended(self) -> bool {
        match self {
            SubscriptionStatus::Expired | SubscriptionStatus::Revoked => true,
            SubscriptionStatus::Incomplete
            | SubscriptionStatus::Trialing
            | SubscriptionStatus::Active
            | SubscriptionStatus::InGrace
            | SubscriptionStatus::PastDue
            | SubscriptionStatus::Paused
            | SubscriptionStatus::Canceled => false,
        }
    }
}

/// What a provider says happened to a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", content = "status", rename_all = "snake_case")]
pub enum SubscriptionStep {
    /// A renewal or first charge failed. The standing itself comes with a statement of its own.
    PaymentFailed,
    /// A period was paid for. The standing itself comes with a statement of its own.
    Paid,
    /// The provider states the standing as of `occurred_at`.
    Stands(SubscriptionStatus),
}

impl SubscriptionStep {
    pub(super) fn rank(self) -> i16 {
        match self {
            SubscriptionStep::PaymentFailed => 30,
            SubscriptionStep::Paid => 31,
            SubscriptionStep::Stands(SubscriptionStatus::Incomplete) => 32,
            SubscriptionStep::Stands(SubscriptionStatus::Trialing) => 33,
            SubscriptionStep::Stands(SubscriptionStatus::Active) => 34,
            SubscriptionStep::Stands(SubscriptionStatus::InGrace) => 35,
            SubscriptionStep::Stands(SubscriptionStatus::PastDue) => 36,
            SubscriptionStep::Stands(SubscriptionStatus::Paused) => 37,
            SubscriptionStep::Stands(SubscriptionStatus::Canceled) => 38,
            SubscriptionStep::Stands(SubscriptionStatus::Expired) => 39,
            SubscriptionStep::Stands(SubscriptionStatus::Revoked) => 40,
        }
    }
}

/// One product inside a subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionItem {
    pub product_id: String,
    pub quantity: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_start: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_end: Option<Time>,
}

/// A fact about one subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionFact {
    #[serde(flatten)]
    pub step: SubscriptionStep,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The complete set of items as of `occurred_at`; none where the event does not state it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<SubscriptionItem>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial_ends_at: Option<Time>,
    /// When the cancellation was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceled_at: Option<Time>,
    /// When access ended, or will end, where it differs from the end of the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
}

impl SubscriptionFact {
    pub fn new(step: SubscriptionStep) -> Self {
        SubscriptionFact {
            step,
            app_user_id: None,
            store: None,
            items: None,
            started_at: None,
            trial_ends_at: None,
            canceled_at: None,
            ends_at: None,
            cancel_reason: None,
        }
    }
}

/// One row of `subscription_states`: one product of one subscription.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Subscription {
    pub app_user_id: String,
    pub product_id: String,
    pub store: String,
    pub subscription_id: String,
    pub status: SubscriptionStatus,
    pub quantity: i64,
    pub started_at: Option<Time>,
    pub renewed_at: Option<Time>,
    pub expires_at: Option<Time>,
    pub trial_ends_at: Option<Time>,
    pub cancelled_at: Option<Time>,
    pub cancel_reason: Option<String>,
    pub billing_issue_at: Option<Time>,
    pub webhook_event_id: EventId,
    pub needs_review: bool,
    pub review_reason: Option<&'static str>,
}

/// The state table of subscriptions: every pair is decided on purpose.
pub(super) fn transition(now: SubscriptionStatus, step: SubscriptionStep) -> Transition<SubscriptionStatus> {
    use SubscriptionStatus as S;
    use SubscriptionStep as P;
    use Transition::{Review, Same, To};
    match (now, step) {
        (S::Expired | S::Revoked, P::Paid) => Review("paid_after_ended"),
        (S::Expired | S::Revoked, P::PaymentFailed) => Same,
        (S::Expired, P::Stands(S::Expired)) | (S::Revoked, P::Stands(S::Revoked | S::Expired)) => Same,
        (S::Expired, P::Stands(S::Revoked)) => To(S::Revoked),
        (
            S::Expired | S::Revoked,
            P::Stands(S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled),
        ) => Review("revived_after_ended"),
        (
            S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled,
            P::Paid | P::PaymentFailed,
        ) => Same,
        (
            S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled,
            P::Stands(told),
        ) => {
            if told == now {
                Same
            } else {
                To(told)
            }
        }
    }
}

/// What the facts say about the subscription as a whole, before it is cut into one row per product.
struct Standing {
    status: Option<SubscriptionStatus>,
    app_user_id: Option<String>,
    store: String,
    started_at: Option<Time>,
    renewed_at: Option<Time>,
    trial_ends_at: Option<Time>,
    cancelled_at: Option<Time>,
    ends_at: Option<Time>,
    cancel_reason: Option<String>,
    billing_issue_at: Option<Time>,
    /// Every product ever seen, with its last item and, once it was taken out, when.
    items: BTreeMap<String, (SubscriptionItem, Option<Time>)>,
    because: Option<EventId>,
}

/// Folds the subscription facts among `facts`, which are in order, into one row per product, sorted by product id.
pub(super) fn fold(subscription_id: &str, facts: &[&RecordedFact], reviews: &mut Vec<Review>) -> Vec<Subscription> {
    let mut standing = Standing::unknown();
    for recorded in facts {
        let FactDetail::Subscription(fact) = &recorded.fact.detail else { continue };
        standing.apply(fact, recorded, reviews);
    }
    standing.into_rows(subscription_id)
}

impl Standing {
    fn unknown() -> Self {
        Standing {
            status: None,
            app_user_id: None,
            store: String::new(),
            started_at: None,
            renewed_at: None,
            trial_ends_at: None,
            cancelled_at: None,
            ends_at: None,
            cancel_reason: None,
            billing_issue_at: None,
            items: BTreeMap::new(),
            because: None,
        }
    }

    fn apply(&mut self, fact: &SubscriptionFact, recorded: &RecordedFact, reviews: &mut Vec<Review>) {
        let at = recorded.fact.occurred_at;
        if let Some(now) = self.status {
            match transition(now, fact.step) {
                Transition::Review(reason) => return reviews.push(Review::new(reason, recorded)),
                Transition::Same => {}
                Transition::To(status) => self.status = Some(status),
            }
        } else if let SubscriptionStep::Stands(status) = fact.step {
            self.status = Some(status);
        }
        self.because = Some(recorded.event_id);
        if fact.app_user_id.is_some() {
            self.app_user_id.clone_from(&fact.app_user_id);
        }
        if let Some(store) = &fact.store {
            self.store.clone_from(store);
        }
        match fact.step {
            SubscriptionStep::PaymentFailed => self.billing_issue_at = Some(at),
            SubscriptionStep::Paid => {
                self.renewed_at = Some(at);
                self.billing_issue_at = None;
            }
            SubscriptionStep::Stands(_) => {
                // A statement is complete: what it does not mention is no longer so.
                self.started_at = fact.started_at.or(self.started_at);
                self.trial_ends_at = fact.trial_ends_at;
                self.cancelled_at = fact.canceled_at;
                self.ends_at = fact.ends_at;
                self.cancel_reason.clone_from(&fact.cancel_reason);
            }
        }
        if let Some(items) = &fact.items {
            self.replace_items(items, at);
        }
    }

    fn replace_items(&mut self, items: &[SubscriptionItem], at: Time) {
        for (_, removed_at) in self.items.values_mut() {
            removed_at.get_or_insert(at);
        }
        for item in items {
            match self.items.get_mut(&item.product_id) {
                // Two prices of one product in one statement: one row, the quantities together.
                Some((kept, None)) => kept.quantity = kept.quantity.saturating_add(item.quantity),
                Some(entry) => *entry = (item.clone(), None),
                None => {
                    self.items.insert(item.product_id.clone(), (item.clone(), None));
                }
            }
        }
    }

    fn into_rows(self, subscription_id: &str) -> Vec<Subscription> {
        let (Some(status), Some(app_user_id), Some(because)) = (self.status, self.app_user_id, self.because) else {
            return Vec::new();
        };
        let rows = self.items.into_values().map(|(item, removed_at)| Subscription {
            app_user_id: app_user_id.clone(),
            product_id: item.product_id,
            store: self.store.clone(),
            subscription_id: subscription_id.to_owned(),
            status: if removed_at.is_some() && !status.is_ended() { SubscriptionStatus::Expired } else { status },
            quantity: item.quantity,
            started_at: self.started_at,
            renewed_at: self.renewed_at,
            expires_at: removed_at.or(self.ends_at).or(item.period_end),
            trial_ends_at: self.trial_ends_at,
            cancelled_at: self.cancelled_at,
            cancel_reason: self.cancel_reason.clone(),
            billing_issue_at: self.billing_issue_at,
            webhook_event_id: because,
            needs_review: false,
            review_reason: None,
        });
        rows.collect()
    }
}
