//! The law of the ledger: rows are a function of the set of facts, whatever their order and repetition.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::domain::{
    DisputeFact, DisputeStatus, Fact, Funds, Money, PaymentFact, PaymentStep, RefundFact, RefundStatus,
    SubscriptionFact, SubscriptionItem, SubscriptionStatus, SubscriptionStep,
};

fn at(second: i64) -> Time {
    Time::from_timestamp(1_767_225_600 + second, 0).unwrap()
}

fn money(minor: i64, currency: &str) -> Money {
    Money::from_minor_digits(&minor.to_string(), 2, currency.parse().unwrap()).unwrap()
}

/// Few values of everything, so that facts meet, agree and contradict one another often.
fn some_money() -> impl Strategy<Value = Money> {
    (select(vec![0, 100, 400, 600, 1000]), prop_oneof![9 => Just("USD"), 1 => Just("EUR")])
        .prop_map(|(minor, currency)| money(minor, currency))
}

fn some_id(prefix: &'static str) -> impl Strategy<Value = String> {
    (1..=2u8).prop_map(move |n| format!("{prefix}_{n}"))
}

fn second() -> impl Strategy<Value = i64> {
    0..6i64
}

fn payment_fact() -> impl Strategy<Value = FactDetail> {
    let steps = vec![
        PaymentStep::Noted,
        PaymentStep::Pending,
        PaymentStep::Failed,
        PaymentStep::Authorized,
        PaymentStep::Captured,
        PaymentStep::Canceled,
        PaymentStep::Expired,
    ];
    let amounts = (some_money(), proptest::option::of(some_money()), proptest::option::of(some_money()));
    let names = (proptest::option::of(some_id("ch")), proptest::option::of(some_id("user")));
    (select(steps), amounts, names).prop_map(|(step, (amount, captured, refunded), (charge_id, app_user_id))| {
        let amount = Some(amount);
        FactDetail::Payment(PaymentFact {
            amount,
            captured,
            refunded,
            charge_id,
            app_user_id,
            ..PaymentFact::new(step)
        })
    })
}

fn refund_fact() -> impl Strategy<Value = FactDetail> {
    let states = vec![
        RefundStatus::Pending,
        RefundStatus::Succeeded,
        RefundStatus::Failed,
        RefundStatus::Canceled,
        RefundStatus::Reversed,
    ];
    (some_id("re"), select(states), some_money(), second()).prop_map(|(refund_id, status, amount, created)| {
        FactDetail::Refund(RefundFact {
            refund_id,
            status,
            amount,
            created_at: at(created),
            charge_id: None,
            reason: None,
            failure_code: None,
        })
    })
}

fn dispute_fact() -> impl Strategy<Value = FactDetail> {
    let states = vec![
        DisputeStatus::Inquiry,
        DisputeStatus::InquiryClosed,
        DisputeStatus::Prevented,
        DisputeStatus::Open,
        DisputeStatus::UnderReview,
        DisputeStatus::Won,
        DisputeStatus::Lost,
    ];
    let funds = proptest::option::of(select(vec![Funds::Withdrawn, Funds::Reinstated]));
    (some_id("dp"), select(states), some_money(), funds, second()).prop_map(
        |(dispute_id, status, amount, funds, opened)| {
            FactDetail::Dispute(DisputeFact {
                dispute_id,
                status,
                amount,
                funds,
                created_at: at(opened),
                charge_id: None,
                reason: None,
            })
        },
    )
}

fn subscription_fact() -> impl Strategy<Value = FactDetail> {
    use SubscriptionStatus as S;
    let steps = vec![
        SubscriptionStep::Noted,
        SubscriptionStep::Paid,
        SubscriptionStep::PaymentFailed,
        SubscriptionStep::Extended,
        SubscriptionStep::RanOut,
        SubscriptionStep::Bought(S::Trialing),
        SubscriptionStep::Bought(S::Active),
        SubscriptionStep::Stands(S::Incomplete),
        SubscriptionStep::Stands(S::Trialing),
        SubscriptionStep::Stands(S::Active),
        SubscriptionStep::Stands(S::InGrace),
        SubscriptionStep::Stands(S::PastDue),
        SubscriptionStep::Stands(S::Paused),
        SubscriptionStep::Stands(S::Canceled),
        SubscriptionStep::Stands(S::Expired),
        SubscriptionStep::Stands(S::Revoked),
    ];
    let item = (some_id("prod"), 1..3i64, second()).prop_map(|(product_id, quantity, end)| SubscriptionItem {
        product_id,
        quantity,
        period_start: None,
        period_end: Some(at(end + 100)),
    });
    let items = proptest::option::of(vec(item, 0..3));
    let was = proptest::option::of(select(vec![S::Incomplete, S::Active, S::PastDue, S::Canceled]));
    (select(steps), was, items, proptest::option::of(some_id("user")), proptest::option::of(second())).prop_map(
        |(step, was, items, app_user_id, ends)| {
            let ends_at = ends.map(at);
            let fact = SubscriptionFact { was, items, app_user_id, ends_at, ..SubscriptionFact::new(step) };
            FactDetail::Subscription(fact)
        },
    )
}

/// Facts of one subject, each from an event of its own; arrival ids do not follow the order of events.
fn recorded(subject: Subject, details: impl Strategy<Value = FactDetail>) -> impl Strategy<Value = Vec<RecordedFact>> {
    vec((second(), details), 1..9).prop_map(move |told| {
        let fact = |(n, (second, detail)): (usize, (i64, FactDetail))| RecordedFact {
            fact: Fact { subject: subject.clone(), occurred_at: at(second), detail },
            event_id: EventId::at(at(0)),
            external_event_id: format!("evt_{n}"),
            ordinal: 0,
        };
        told.into_iter().enumerate().map(fact).collect()
    })
}

/// A set of facts, and the same set in another order with repetitions.
fn retold(
    facts: impl Strategy<Value = Vec<RecordedFact>>,
) -> impl Strategy<Value = (Vec<RecordedFact>, Vec<RecordedFact>)> {
    facts.prop_flat_map(|facts| {
        let again = vec(select(facts.clone()), 0..facts.len() + 1);
        let all = again.prop_map({
            let facts = facts.clone();
            move |again| [facts.clone(), again].concat()
        });
        (Just(facts), all.prop_shuffle())
    })
}

fn payment_story() -> impl Strategy<Value = Vec<RecordedFact>> {
    recorded(Subject::payment("pay_1"), prop_oneof![payment_fact(), refund_fact(), dispute_fact()])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_payment_is_a_function_of_the_set_of_its_facts((facts, retold) in retold(payment_story())) {
        let subject = Subject::payment("pay_1");
        prop_assert_eq!(fold(&subject, &retold, &[]), fold(&subject, &facts, &[]));
    }

    #[test]
    fn a_subscription_is_a_function_of_the_set_of_its_facts(
        (facts, retold) in retold(recorded(Subject::subscription("sub_1"), subscription_fact())),
    ) {
        let subject = Subject::subscription("sub_1");
        prop_assert_eq!(fold(&subject, &retold, &[]), fold(&subject, &facts, &[]));
    }

    #[test]
    fn unlinked_money_is_a_function_of_the_set_of_its_facts(
        (facts, retold) in retold(recorded(Subject::unlinked("re_1"), prop_oneof![refund_fact(), dispute_fact()])),
    ) {
        let subject = Subject::unlinked("re_1");
        prop_assert_eq!(fold(&subject, &retold, &[]), fold(&subject, &facts, &[]));
    }

    /// Whatever is told, totals are never negative, and what a payment calls refunded its refunds or a statement explain.
    #[test]
    fn totals_never_go_below_what_is_known(facts in payment_story()) {
        let ledger = fold(&Subject::payment("pay_1"), &facts, &[]);
        if let Some(payment) = ledger.payment {
            let is_ours = |currency| payment.currency.is_none_or(|ours| ours == currency);
            let out = ledger.refunds.iter().filter(|r| r.status.is_money_out() && is_ours(r.currency));
            let known: Decimal = out.map(|r| r.amount).sum();
            let strangers = ledger.refunds.iter().any(|r| !is_ours(r.currency)) || ledger.disputes.iter().any(|d| !is_ours(d.currency));
            prop_assert!(!strangers || payment.needs_review);
            prop_assert!(payment.refunded_amount >= known);
            prop_assert!(payment.disputed_amount >= Decimal::ZERO);
            prop_assert_eq!(payment.needs_review, !ledger.reviews.is_empty());
            prop_assert!(facts.iter().any(|fact| fact.event_id == payment.webhook_event_id));
        }
    }
}

#[test]
fn a_fact_given_twice_counts_once_among_the_contradictions() {
    let fact = |id: &str, second, step| RecordedFact {
        fact: Fact {
            subject: Subject::payment("pay_1"),
            occurred_at: at(second),
            detail: FactDetail::Payment(PaymentFact { amount: Some(money(1000, "USD")), ..PaymentFact::new(step) }),
        },
        event_id: EventId::at(at(second)),
        external_event_id: id.to_owned(),
        ordinal: 0,
    };
    let canceled = fact("evt_1", 0, PaymentStep::Canceled);
    let paid = fact("evt_2", 9, PaymentStep::Captured);
    let ledger = fold(&Subject::payment("pay_1"), &[paid.clone(), canceled, paid.clone()], &[]);
    assert_eq!(ledger.reviews, [Review { reason: "paid_after_canceled", event_id: paid.event_id }]);
    assert_eq!(ledger.payment.unwrap().status, PaymentStatus::Canceled);
}
