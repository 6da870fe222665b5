use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::review::Reviews;
use super::transfer::owner;
use super::{EventId, FactDetail, RecordedFact, Time, Transition, Verdict};

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
    /// Nothing happened to the standing; the event adds references, or tells of a plan.
    Noted,
    /// A renewal or first charge failed. The standing itself comes with a statement of its own.
    PaymentFailed,
    /// A period was paid for. The standing itself comes with a statement of its own.
    Paid,
    /// The provider states the standing as of `occurred_at`.
    Stands(SubscriptionStatus),
    /// The period runs longer than was said. The standing stays as it is: whoever has canceled is still going to leave.
    Extended,
    /// The period is over, and nothing was bought after it. Old news once a later period is known.
    RanOut,
    /// A period was bought, first or again: it starts a subscription, renews it, or revives one that had ended.
    Bought(SubscriptionStatus),
}

impl SubscriptionStep {
    pub(super) fn rank(self) -> i16 {
        match self {
            SubscriptionStep::Noted => 29,
            SubscriptionStep::PaymentFailed => 30,
            SubscriptionStep::Paid => 31,
            // After every statement of the same instant, whose end it moves.
            SubscriptionStep::Extended => 42,
            // A charge that failed and the end of access may be told at once.
            SubscriptionStep::RanOut => 43,
            // Whoever buys in the second in which the last period ran out, or was canceled, is subscribed.
            SubscriptionStep::Bought(_) => 44,
            SubscriptionStep::Stands(status) => match status {
                SubscriptionStatus::Incomplete => 33,
                SubscriptionStatus::Trialing => 34,
                SubscriptionStatus::Active => 35,
                SubscriptionStatus::InGrace => 36,
                SubscriptionStatus::PastDue => 37,
                SubscriptionStatus::Paused => 38,
                SubscriptionStatus::Canceled => 39,
                SubscriptionStatus::Expired => 40,
                SubscriptionStatus::Revoked => 41,
            },
        }
    }

    fn states(self) -> Option<SubscriptionStatus> {
        match self {
            SubscriptionStep::Stands(status) | SubscriptionStep::Bought(status) => Some(status),
            SubscriptionStep::RanOut => Some(SubscriptionStatus::Expired),
            SubscriptionStep::Noted
            | SubscriptionStep::PaymentFailed
            | SubscriptionStep::Paid
            | SubscriptionStep::Extended => None,
        }
    }

    /// The standing that the step implies where nothing else is known.
    fn implies(self) -> Option<SubscriptionStatus> {
        match self {
            // Only what runs can be extended.
            SubscriptionStep::Extended => Some(SubscriptionStatus::Active),
            other => other.states(),
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
    /// What the standing was just before, where the payload proves it: it tells statements of one second apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<SubscriptionStatus>,
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
            was: None,
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

impl SubscriptionFact {
    /// Whether it is proven that the standing did not change.
    fn leaves_it_as_it_was(&self) -> bool {
        self.was.is_some() && self.was == self.step.states()
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
    let becomes = |told| if told == now { Same } else { To(told) };
    match (now, step) {
        (
            S::Incomplete
            | S::Trialing
            | S::Active
            | S::InGrace
            | S::PastDue
            | S::Paused
            | S::Canceled
            | S::Expired
            | S::Revoked,
            P::Noted,
        ) => Same,
        (
            S::Incomplete
            | S::Trialing
            | S::Active
            | S::InGrace
            | S::PastDue
            | S::Paused
            | S::Canceled
            | S::Expired
            | S::Revoked,
            P::Bought(told),
        ) => becomes(told),

        (S::Expired | S::Revoked, P::Paid) => Review("paid_after_ended"),
        (S::Expired | S::Revoked, P::PaymentFailed | P::RanOut) => Same,
        (S::Expired | S::Revoked, P::Extended) => Review("extended_after_ended"),
        (S::Expired, P::Stands(S::Expired)) | (S::Revoked, P::Stands(S::Revoked | S::Expired)) => Same,
        (S::Expired, P::Stands(S::Revoked)) => To(S::Revoked),
        (
            S::Expired | S::Revoked,
            P::Stands(S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled),
        ) => Review("revived_after_ended"),

        (
            S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled,
            P::Paid | P::PaymentFailed | P::Extended,
        ) => Same,
        (S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled, P::RanOut) => {
            To(S::Expired)
        }
        (
            S::Incomplete | S::Trialing | S::Active | S::InGrace | S::PastDue | S::Paused | S::Canceled,
            P::Stands(told),
        ) => becomes(told),
    }
}

/// What the facts say about the subscription as a whole, before it is cut into one row per product.
#[derive(Clone, PartialEq, Default)]
struct Standing {
    status: Option<SubscriptionStatus>,
    /// The user that the facts last named, and when.
    user: Option<(String, Time)>,
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
///
/// `transfers` are the facts of users, in order: they decide whose rows these are.
pub(super) fn fold(
    subscription_id: &str,
    facts: &[&RecordedFact],
    transfers: &[&RecordedFact],
    reviews: &mut Reviews<'_>,
) -> Vec<Subscription> {
    let mut standing = Standing::default();
    // What a person decided in a second comes after what it says of itself, as it does in the order of facts.
    let instant = |recorded: &RecordedFact| (recorded.fact.occurred_at, recorded.is_decided());
    for second in facts.chunk_by(|a, b| instant(a) == instant(b)) {
        for (fact, recorded) in by_evidence(second, standing.status, reviews) {
            let before = standing.clone();
            standing.apply(fact, recorded, reviews);
            if standing != before {
                standing.because = Some(recorded.event_id);
            }
        }
    }
    standing.into_rows(subscription_id, transfers)
}

/// Orders the facts of one second. What each says of the standing before it links them into a chain; where nothing links
/// them, rank decides, and two statements that exclude each other without any evidence are marked for a person.
fn by_evidence<'a>(
    second: &[&'a RecordedFact],
    mut now: Option<SubscriptionStatus>,
    reviews: &mut Reviews<'_>,
) -> Vec<(&'a SubscriptionFact, &'a RecordedFact)> {
    let mut waiting: Vec<_> = second
        .iter()
        .filter_map(|recorded| match &recorded.fact.detail {
            FactDetail::Subscription(fact) => Some((fact, *recorded)),
            _ => None,
        })
        .collect();
    let mut ordered = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let follows = |fact: &SubscriptionFact| fact.was.is_some() && fact.was == now;
        // A fact that names a standing which another waiting fact leads to must wait for that one.
        let is_free = |fact: &SubscriptionFact| {
            fact.was.is_none()
                || !waiting.iter().any(|(other, _)| other.step.states() == fact.was && !other.leaves_it_as_it_was())
        };
        // Whatever leaves the standing as it was comes before what changes it.
        let stays = SubscriptionFact::leaves_it_as_it_was;
        let first = |wanted: &dyn Fn(&SubscriptionFact) -> bool| waiting.iter().position(|(fact, _)| wanted(fact));
        let next = first(&|fact| follows(fact) && stays(fact))
            .or_else(|| first(&follows))
            .or_else(|| first(&|fact| is_free(fact) && stays(fact)))
            .or_else(|| first(&is_free))
            .unwrap_or(0);
        let (fact, recorded) = waiting.remove(next);
        if let (Some(before), Some(told)) = (last_stated(&ordered), fact.step.states())
            && !is_evident(before, fact, told)
            // It is taken for the last word; whoever dismisses it says that it is not.
            && reviews.verdict("ambiguous_order", recorded) == Some(Verdict::Dismiss)
        {
            continue;
        }
        now = fact.step.states().or(now);
        ordered.push((fact, recorded));
    }
    ordered
}

fn last_stated(ordered: &[(&SubscriptionFact, &RecordedFact)]) -> Option<SubscriptionStatus> {
    ordered.iter().rev().find_map(|(fact, _)| fact.step.states())
}

/// Whether it is beyond doubt that a statement follows another one of the same second.
fn is_evident(before: SubscriptionStatus, fact: &SubscriptionFact, told: SubscriptionStatus) -> bool {
    let ends = told.is_ended() || matches!(fact.step, SubscriptionStep::Bought(_));
    told == before || fact.was == Some(before) || before == SubscriptionStatus::Incomplete || ends
}

impl Standing {
    fn apply(&mut self, fact: &SubscriptionFact, recorded: &RecordedFact, reviews: &mut Reviews<'_>) {
        let at = recorded.fact.occurred_at;
        if fact.step == SubscriptionStep::RanOut && self.knows_a_later_period(fact) {
            return;
        }
        let before = self.status;
        if let Some(now) = self.status {
            match transition(now, fact.step) {
                Transition::Review(reason) => {
                    if reviews.verdict(reason, recorded) != Some(Verdict::Accept) {
                        return;
                    }
                    self.status = fact.step.implies().or(self.status);
                }
                Transition::Same => {}
                Transition::To(status) => self.status = Some(status),
            }
        } else {
            self.status = fact.step.implies();
        }
        if let Some(user) = &fact.app_user_id {
            self.user = Some((user.clone(), at));
        }
        if let Some(store) = &fact.store {
            self.store.clone_from(store);
        }
        match fact.step {
            SubscriptionStep::Noted => {}
            SubscriptionStep::PaymentFailed => self.billing_issue_at = Some(at),
            SubscriptionStep::Paid => {
                self.renewed_at = Some(at);
                self.billing_issue_at = None;
            }
            SubscriptionStep::Extended => self.ends_at = self.ends_at.and(fact.ends_at).or(self.ends_at),
            SubscriptionStep::RanOut => {
                self.ends_at = fact.ends_at.or(self.ends_at);
                self.cancel_reason = self.cancel_reason.take().or_else(|| fact.cancel_reason.clone());
            }
            SubscriptionStep::Bought(_) => {
                self.renewed_at = if self.started_at.is_some() { Some(at) } else { self.renewed_at };
                self.started_at = self.started_at.or(fact.started_at).or(Some(at));
                self.billing_issue_at = None;
                self.state_dates(fact);
            }
            SubscriptionStep::Stands(_) => {
                self.started_at = fact.started_at.or(self.started_at);
                self.state_dates(fact);
                self.note_trouble(before, at);
            }
        }
        if let Some(items) = &fact.items {
            self.replace_items(items, at);
        }
    }

    /// A statement is complete: what it does not mention is no longer so.
    fn state_dates(&mut self, fact: &SubscriptionFact) {
        self.trial_ends_at = fact.trial_ends_at;
        self.cancelled_at = fact.canceled_at;
        self.ends_at = fact.ends_at;
        self.cancel_reason.clone_from(&fact.cancel_reason);
    }

    /// A standing may be all that a provider says about charges that fail, and about the end of the trouble.
    fn note_trouble(&mut self, before: Option<SubscriptionStatus>, at: Time) {
        use SubscriptionStatus::{Active, InGrace, PastDue, Trialing};
        let in_trouble = |status| matches!(status, Some(InGrace | PastDue));
        if in_trouble(self.status) {
            self.billing_issue_at.get_or_insert(at);
        } else if in_trouble(before) && matches!(self.status, Some(Active | Trialing)) {
            self.billing_issue_at = None;
        }
    }

    /// Whether a period is known that began after the one that is said to be over. The ends alone do not tell: a refund
    /// cuts a period short.
    fn knows_a_later_period(&self, over: &SubscriptionFact) -> bool {
        let began = over.items.iter().flatten().find_map(|item| item.period_start);
        let current = self.items.values().filter(|(_, removed_at)| removed_at.is_none());
        current.map(|(item, _)| item).any(|item| match (item.period_start, began) {
            (Some(known), Some(began)) => known > began,
            _ => item.period_end > over.ends_at && over.ends_at.is_some(),
        })
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

    fn into_rows(self, subscription_id: &str, transfers: &[&RecordedFact]) -> Vec<Subscription> {
        let (Some(status), Some((user, since)), Some(because)) = (self.status, self.user, self.because) else {
            return Vec::new();
        };
        let app_user_id = owner(&user, since, transfers);
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
