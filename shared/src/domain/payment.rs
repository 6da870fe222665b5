use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::review::Reviews;
use super::{Currency, DisputeStatus, EventId, Money, RecordedFact, Time, Transition, Verdict};

/// The standing of a payment. `PartiallyRefunded` and `Refunded` are derived from its refunds; no fact sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentStatus {
    Pending,
    Authorized,
    Paid,
    PartiallyRefunded,
    Refunded,
    Failed,
    Canceled,
    Expired,
}

/// What a provider says happened to a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentStep {
    /// Nothing happened to the money; the event adds references (a subscription, a customer).
    Noted,
    Pending,
    Failed,
    Authorized,
    Captured,
    Canceled,
    Expired,
}

impl PaymentStep {
    pub(super) fn rank(self) -> i16 {
        match self {
            PaymentStep::Noted => 0,
            PaymentStep::Pending => 1,
            PaymentStep::Failed => 2,
            PaymentStep::Authorized => 3,
            PaymentStep::Captured => 4,
            PaymentStep::Expired => 5,
            PaymentStep::Canceled => 6,
        }
    }

    fn states(self) -> Option<PaymentStatus> {
        match self {
            PaymentStep::Noted => None,
            PaymentStep::Pending => Some(PaymentStatus::Pending),
            PaymentStep::Failed => Some(PaymentStatus::Failed),
            PaymentStep::Authorized => Some(PaymentStatus::Authorized),
            PaymentStep::Captured => Some(PaymentStatus::Paid),
            PaymentStep::Canceled => Some(PaymentStatus::Canceled),
            PaymentStep::Expired => Some(PaymentStatus::Expired),
        }
    }
}

/// A fact about a payment. Amounts are what the provider states as of `occurred_at`, not increments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaymentFact {
    pub step: PaymentStep,
    /// What was asked for or authorized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<Money>,
    /// Captured so far, in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured: Option<Money>,
    /// Refunded so far, in total. It covers refunds whose own events have not come, or never come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refunded: Option<Money>,
    /// When the purchase was made, for providers that may use a payment's id again: two purchases are not one payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purchased_at: Option<Time>,
    /// The provider's id of the single attempt or charge, where a payment has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The provider's code for a failure or cancellation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_code: Option<String>,
}

impl PaymentFact {
    pub fn new(step: PaymentStep) -> Self {
        PaymentFact {
            step,
            amount: None,
            captured: None,
            refunded: None,
            purchased_at: None,
            charge_id: None,
            app_user_id: None,
            product_id: None,
            subscription_id: None,
            store: None,
            failure_code: None,
        }
    }
}

/// One row of `payments`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Payment {
    pub payment_id: String,
    pub status: PaymentStatus,
    pub currency: Option<Currency>,
    pub amount: Option<Decimal>,
    pub captured_amount: Decimal,
    pub refunded_amount: Decimal,
    pub disputed_amount: Decimal,
    pub dispute_status: Option<DisputeStatus>,
    pub charge_id: Option<String>,
    pub app_user_id: Option<String>,
    pub product_id: Option<String>,
    pub subscription_id: Option<String>,
    pub store: Option<String>,
    pub failure_code: Option<String>,
    pub authorized_at: Option<Time>,
    pub paid_at: Option<Time>,
    pub canceled_at: Option<Time>,
    pub webhook_event_id: EventId,
    pub needs_review: bool,
    pub review_reason: Option<&'static str>,
}

/// The state table of payments: every pair is decided on purpose.
pub(super) fn transition(now: PaymentStatus, step: PaymentStep) -> Transition<PaymentStatus> {
    use PaymentStatus as S;
    use PaymentStep as P;
    use Transition::{Review, Same, To};
    match (now, step) {
        (
            S::Pending
            | S::Authorized
            | S::Paid
            | S::PartiallyRefunded
            | S::Refunded
            | S::Failed
            | S::Canceled
            | S::Expired,
            P::Noted,
        ) => Same,

        (S::Pending, P::Pending) => Same,
        (S::Pending, P::Failed) => To(S::Failed),
        (S::Pending, P::Authorized) => To(S::Authorized),
        (S::Pending, P::Captured) => To(S::Paid),
        (S::Pending, P::Canceled) => To(S::Canceled),
        (S::Pending, P::Expired) => To(S::Expired),

        // A failed attempt is not the end of a payment: the customer tries another card.
        (S::Failed, P::Pending) => To(S::Pending),
        (S::Failed, P::Failed) => Same,
        (S::Failed, P::Authorized) => To(S::Authorized),
        (S::Failed, P::Captured) => To(S::Paid),
        (S::Failed, P::Canceled) => To(S::Canceled),
        (S::Failed, P::Expired) => To(S::Expired),

        (S::Authorized, P::Pending | P::Authorized) => Same,
        (S::Authorized, P::Failed) => To(S::Failed),
        (S::Authorized, P::Captured) => To(S::Paid),
        (S::Authorized, P::Canceled) => To(S::Canceled),
        (S::Authorized, P::Expired) => To(S::Expired),

        (S::Paid | S::PartiallyRefunded | S::Refunded, P::Pending | P::Authorized | P::Captured) => Same,
        (S::Paid | S::PartiallyRefunded | S::Refunded, P::Failed) => Review("failed_after_paid"),
        (S::Paid | S::PartiallyRefunded | S::Refunded, P::Canceled) => Review("canceled_after_paid"),
        (S::Paid | S::PartiallyRefunded | S::Refunded, P::Expired) => Review("expired_after_paid"),

        (S::Canceled, P::Pending | P::Failed | P::Canceled | P::Expired) => Same,
        (S::Canceled, P::Authorized) => Review("authorized_after_canceled"),
        (S::Canceled, P::Captured) => Review("paid_after_canceled"),

        (S::Expired, P::Pending | P::Failed | P::Expired) => Same,
        (S::Expired, P::Canceled) => To(S::Canceled),
        (S::Expired, P::Authorized) => Review("authorized_after_expired"),
        (S::Expired, P::Captured) => Review("paid_after_expired"),
    }
}

/// Folds the payment facts among `facts`, which are in order. Totals of refunds and disputes are filled in later.
pub(super) fn fold(payment_id: &str, facts: &[&RecordedFact], reviews: &mut Reviews<'_>) -> Option<Payment> {
    let mut payment: Option<Payment> = None;
    let mut is_told_of = false;
    let mut purchase: Option<(Time, Option<Money>)> = None;
    for recorded in facts {
        let super::FactDetail::Payment(fact) = &recorded.fact.detail else { continue };
        is_told_of |= fact.step != PaymentStep::Noted;
        if let Some(purchased_at) = fact.purchased_at
            && *purchase.get_or_insert((purchased_at, fact.amount)) != (purchased_at, fact.amount)
        {
            if reviews.verdict("payment_id_reused", recorded) != Some(Verdict::Accept) {
                continue;
            }
            purchase = Some((purchased_at, fact.amount));
        }
        let row = payment.get_or_insert_with(|| Payment::unknown(payment_id, recorded.event_id));
        let before = row.clone();
        row.apply(fact, recorded, reviews);
        if *row != before {
            row.webhook_event_id = recorded.event_id;
        }
    }
    // References alone are no payment: nobody has said yet that there is one.
    payment.filter(|_| is_told_of)
}

impl Payment {
    fn unknown(payment_id: &str, because: EventId) -> Self {
        Payment {
            payment_id: payment_id.to_owned(),
            status: PaymentStatus::Pending,
            currency: None,
            amount: None,
            captured_amount: Decimal::ZERO,
            refunded_amount: Decimal::ZERO,
            disputed_amount: Decimal::ZERO,
            dispute_status: None,
            charge_id: None,
            app_user_id: None,
            product_id: None,
            subscription_id: None,
            store: None,
            failure_code: None,
            authorized_at: None,
            paid_at: None,
            canceled_at: None,
            webhook_event_id: because,
            needs_review: false,
            review_reason: None,
        }
    }

    fn apply(&mut self, fact: &PaymentFact, recorded: &RecordedFact, reviews: &mut Reviews<'_>) {
        let at = recorded.fact.occurred_at;
        let differs = |money: Money| self.currency.is_some_and(|currency| currency != money.currency());
        let told = || [fact.captured, fact.amount].into_iter().flatten();
        let contradicts = told().any(differs) || told().any(|money| told().any(|o| o.currency() != money.currency()));
        if contradicts && reviews.verdict("currency_changed", recorded) != Some(Verdict::Accept) {
            return;
        }
        if !contradicts && let Some(money) = told().next() {
            self.currency.get_or_insert(money.currency());
        }
        for (ours, theirs) in [
            (&mut self.app_user_id, &fact.app_user_id),
            (&mut self.product_id, &fact.product_id),
            (&mut self.subscription_id, &fact.subscription_id),
            (&mut self.store, &fact.store),
        ] {
            if theirs.is_some() {
                ours.clone_from(theirs);
            }
        }
        match transition(self.status, fact.step) {
            Transition::Review(reason) => {
                if reviews.verdict(reason, recorded) != Some(Verdict::Accept) {
                    return;
                }
                if let Some(status) = fact.step.states() {
                    self.enter(status, at);
                }
            }
            Transition::Same => {}
            Transition::To(status) => self.enter(status, at),
        }
        // A late word about a failed attempt must not replace the amounts of the one that succeeded.
        let speaks_for_the_payment = match fact.step {
            PaymentStep::Noted => false,
            PaymentStep::Failed => self.status == PaymentStatus::Failed,
            _ => true,
        };
        if speaks_for_the_payment {
            self.state_amounts(fact);
            self.charge_id = fact.charge_id.clone().or_else(|| self.charge_id.take());
            self.failure_code = fact.failure_code.clone();
        }
    }

    /// What is stated in another currency leaves nothing of the old one.
    fn state_amounts(&mut self, fact: &PaymentFact) {
        let told = fact.captured.or(fact.amount).map(Money::currency);
        if told.is_some() && told != self.currency {
            self.currency = told;
            self.amount = None;
            self.captured_amount = Decimal::ZERO;
        }
        let ours = |money: &Money| Some(money.currency()) == self.currency;
        self.amount = fact.amount.filter(ours).map(Money::amount).or(self.amount);
        self.captured_amount = fact.captured.filter(ours).map_or(self.captured_amount, Money::amount);
    }

    /// Only a person's decision leads out of `Paid` and `Canceled`. The time of what is no longer so goes with it.
    fn enter(&mut self, status: PaymentStatus, at: Time) {
        self.status = status;
        self.paid_at = self.paid_at.filter(|_| status == PaymentStatus::Paid);
        self.canceled_at = self.canceled_at.filter(|_| status == PaymentStatus::Canceled);
        match status {
            PaymentStatus::Authorized => self.authorized_at = Some(at),
            PaymentStatus::Paid => self.paid_at = Some(at),
            PaymentStatus::Canceled => self.canceled_at = Some(at),
            PaymentStatus::Pending
            | PaymentStatus::PartiallyRefunded
            | PaymentStatus::Refunded
            | PaymentStatus::Failed
            | PaymentStatus::Expired => {}
        }
    }
}
