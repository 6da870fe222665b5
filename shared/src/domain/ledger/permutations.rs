//! Every order of small sets of facts, drawn from every kind there is.
//!
//! All sets of up to three facts, repetitions included, cover each meeting of three kinds. Larger sets, up to seven, are
//! drawn by striding through the pool, so that each fact meets neighbours near and far.

use super::*;
use crate::domain::{
    DisputeFact, DisputeStatus, Fact, Funds, Money, PaymentFact, PaymentStep, RefundFact, RefundStatus,
    SubscriptionFact, SubscriptionItem, SubscriptionStatus, SubscriptionStep, TransferFact,
};

const LARGEST: usize = 7;
const STRIDES: [usize; 3] = [1, 5, 8];

fn at(second: i64) -> Time {
    Time::from_timestamp(1_767_225_600 + second, 0).unwrap()
}

fn usd(amount: &str) -> Money {
    Money::from_major_digits(amount, 2, "USD".parse().unwrap()).unwrap()
}

/// Facts from events of their own. Neighbours share their second in turns of three, so that ties are met as well.
fn pool(told: Vec<(Subject, FactDetail)>) -> Vec<RecordedFact> {
    let fact = |(n, (subject, detail)): (i64, (Subject, FactDetail))| RecordedFact {
        fact: Fact { subject, occurred_at: at(n % 3), detail },
        event_id: EventId::at(at(n)),
        external_event_id: format!("evt_{}", n * 11 % 97),
        ordinal: 0,
    };
    (0..).zip(told).map(fact).collect()
}

fn payments() -> Vec<RecordedFact> {
    use PaymentStep as P;
    let step = |step| PaymentFact { amount: Some(usd("10")), ..PaymentFact::new(step) };
    let captured = |captured| PaymentFact { captured: Some(usd(captured)), ..step(P::Captured) };
    let paying = [
        PaymentFact { subscription_id: Some("sub_1".to_owned()), ..PaymentFact::new(P::Noted) },
        step(P::Pending),
        PaymentFact { failure_code: Some("declined".to_owned()), ..step(P::Failed) },
        step(P::Authorized),
        captured("10"),
        PaymentFact { charge_id: Some("ch_2".to_owned()), ..captured("6") },
        PaymentFact { refunded: Some(usd("4")), ..captured("10") },
        PaymentFact { purchased_at: Some(at(0)), ..captured("10") },
        PaymentFact { purchased_at: Some(at(9)), ..captured("10") },
        PaymentFact { captured: Some(Money::zero("EUR".parse().unwrap())), ..PaymentFact::new(P::Captured) },
        step(P::Canceled),
        step(P::Expired),
    ];
    let refund = |id: &str, status, amount| RefundFact {
        refund_id: id.to_owned(),
        status,
        amount: usd(amount),
        created_at: at(1),
        charge_id: None,
        reason: None,
        failure_code: None,
    };
    let refunds = [
        refund("re_1", RefundStatus::Pending, "4"),
        refund("re_1", RefundStatus::Succeeded, "4"),
        refund("re_1", RefundStatus::Failed, "4"),
        refund("re_1", RefundStatus::Canceled, "4"),
        refund("re_1", RefundStatus::Reversed, "4"),
        refund("re_2", RefundStatus::Succeeded, "7"),
    ];
    let dispute = |status, funds| DisputeFact {
        dispute_id: "dp_1".to_owned(),
        status,
        amount: usd("10"),
        funds,
        created_at: at(0),
        charge_id: None,
        reason: None,
    };
    let disputes = [
        dispute(DisputeStatus::Inquiry, None),
        dispute(DisputeStatus::InquiryClosed, None),
        dispute(DisputeStatus::Prevented, None),
        dispute(DisputeStatus::Open, None),
        dispute(DisputeStatus::Open, Some(Funds::Withdrawn)),
        dispute(DisputeStatus::UnderReview, None),
        dispute(DisputeStatus::Won, Some(Funds::Reinstated)),
        dispute(DisputeStatus::Won, None),
        dispute(DisputeStatus::Lost, None),
    ];
    let told = paying.map(FactDetail::Payment).into_iter();
    let told = told.chain(refunds.map(FactDetail::Refund)).chain(disputes.map(FactDetail::Dispute));
    pool(told.map(|detail| (Subject::payment("pay_1"), detail)).collect())
}

fn subscriptions() -> Vec<RecordedFact> {
    use SubscriptionStatus as S;
    use SubscriptionStep as P;
    let period = |product: &str, start, end| {
        let (period_start, period_end) = (Some(at(start)), Some(at(end)));
        Some(vec![SubscriptionItem { product_id: product.to_owned(), quantity: 1, period_start, period_end }])
    };
    let of = |step, user: &str, items| SubscriptionFact {
        app_user_id: Some(user.to_owned()),
        items,
        ..SubscriptionFact::new(step)
    };
    let stands = |status| of(P::Stands(status), "u1", period("prod_1", 0, 100));
    let told = [
        SubscriptionFact::new(P::Noted),
        SubscriptionFact::new(P::PaymentFailed),
        SubscriptionFact::new(P::Paid),
        SubscriptionFact { ends_at: Some(at(150)), ..of(P::Extended, "u1", period("prod_1", 0, 150)) },
        SubscriptionFact { ends_at: Some(at(100)), ..of(P::RanOut, "u1", period("prod_1", 0, 100)) },
        of(P::Bought(S::Trialing), "u1", period("prod_1", 0, 100)),
        of(P::Bought(S::Active), "u2", period("prod_2", 100, 200)),
        stands(S::Incomplete),
        stands(S::Trialing),
        stands(S::Active),
        SubscriptionFact { was: Some(S::PastDue), ..stands(S::Active) },
        SubscriptionFact { was: Some(S::Active), ..stands(S::PastDue) },
        SubscriptionFact { ends_at: Some(at(110)), ..stands(S::InGrace) },
        stands(S::PastDue),
        stands(S::Paused),
        SubscriptionFact { canceled_at: Some(at(1)), ends_at: Some(at(100)), ..stands(S::Canceled) },
        stands(S::Expired),
        stands(S::Revoked),
    ];
    let moved = |from: &str, to: &str| (Subject::user(from), FactDetail::Transfer(TransferFact { to: to.to_owned() }));
    let moves = [moved("u1", "u2"), moved("u2", "u3"), moved("u3", "u1"), moved("u1", "u4")];
    let told = told.into_iter().map(|fact| (Subject::subscription("sub_1"), FactDetail::Subscription(fact)));
    pool(told.chain(moves).collect())
}

fn fold_all(subject: &Subject, facts: &[RecordedFact]) -> Ledger {
    let (own, transfers): (Vec<_>, Vec<_>) = facts.iter().cloned().partition(|fact| fact.fact.subject == *subject);
    fold(subject, &own, &transfers)
}

/// Heap's way through all orders: each differs from the one before by one exchange.
fn in_every_order(facts: &mut [RecordedFact], upto: usize, check: &mut impl FnMut(&[RecordedFact])) {
    if upto <= 1 {
        return check(facts);
    }
    for turn in 0..upto {
        in_every_order(facts, upto - 1, check);
        let other = if upto.is_multiple_of(2) { turn } else { 0 };
        facts.swap(other, upto - 1);
    }
}

/// The number of orders looked at.
fn order_changes_nothing(subject: &Subject, mut facts: Vec<RecordedFact>) -> usize {
    let expected = fold_all(subject, &facts);
    let (mut orders, length) = (0, facts.len());
    in_every_order(&mut facts, length, &mut |order| {
        orders += 1;
        assert_eq!(fold_all(subject, order), expected, "{order:#?}");
    });
    orders
}

/// Index sets: all of up to three, with repetitions, then larger ones by strides.
fn draws(pool: usize) -> Vec<Vec<usize>> {
    let mut draws: Vec<Vec<usize>> = Vec::new();
    for a in 0..pool {
        draws.push(vec![a]);
        for b in a..pool {
            draws.push(vec![a, b]);
            draws.extend((b..pool).map(|c| vec![a, b, c]));
        }
    }
    for size in 4..=LARGEST {
        // A set of seven has 5040 orders: fewer of them.
        let pace = if size == LARGEST { 6 } else { 1 };
        for start in (0..pool).step_by(pace) {
            draws.extend(STRIDES.map(|stride| (0..size).map(|n| (start + n * stride) % pool).collect()));
        }
    }
    draws
}

fn prove(subject: &Subject, pool: &[RecordedFact]) {
    let draws = draws(pool.len());
    let mut largest_drawn = vec![false; pool.len()];
    let mut orders = 0;
    for draw in draws {
        for index in draw.iter().filter(|_| draw.len() > 3) {
            largest_drawn[*index] = true;
        }
        orders += order_changes_nothing(subject, draw.iter().map(|index| pool[*index].clone()).collect());
    }
    assert!(largest_drawn.iter().all(|drawn| *drawn), "every kind of fact is met in company");
    assert!(orders > 100_000, "{orders}");
}

#[test]
fn no_order_of_up_to_seven_facts_changes_a_payment() {
    prove(&Subject::payment("pay_1"), &payments());
}

#[test]
fn no_order_of_up_to_seven_facts_changes_a_subscription() {
    prove(&Subject::subscription("sub_1"), &subscriptions());
}

/// Every kind is in a pool: a new one breaks a match here.
#[test]
fn the_pools_hold_every_kind_of_fact() {
    let mut kinds: std::collections::BTreeSet<i16> = std::collections::BTreeSet::new();
    for recorded in payments().iter().chain(&subscriptions()) {
        match &recorded.fact.detail {
            FactDetail::Payment(_) | FactDetail::Refund(_) | FactDetail::Dispute(_) => {}
            FactDetail::Subscription(_) | FactDetail::Transfer(_) => {}
        }
        kinds.insert(recorded.fact.detail.rank());
    }
    let missing: Vec<i16> = (0..=6).chain(10..=14).chain(33..=44).filter(|rank| !kinds.contains(rank)).collect();
    assert_eq!(missing, Vec::<i16>::new(), "ranks of payments, refunds and standings");
}
