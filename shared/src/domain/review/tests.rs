//! What people decide is part of the set of facts: it applies whether it comes before or after what it is about.

use std::collections::BTreeSet;

use super::*;
use crate::domain::{
    DisputeFact, DisputeStatus, Funds, Ledger, Money, PaymentFact, PaymentStatus, PaymentStep, RefundFact,
    RefundStatus, SubscriptionFact, SubscriptionItem, SubscriptionStatus, SubscriptionStep, Time, Transition, dispute,
    payment, reason_in_words, refund, subscription,
};

fn at(second: i64) -> Time {
    Time::from_timestamp(1_767_225_600 + second, 0).unwrap()
}

fn money(minor: i64, currency: &str) -> Money {
    Money::from_minor_digits(&minor.to_string(), 2, currency.parse().unwrap()).unwrap()
}

/// A fact that happened at `second`, of an event of its own.
fn recorded(subject: &Subject, second: i64, detail: FactDetail) -> RecordedFact {
    RecordedFact {
        fact: Fact { subject: subject.clone(), occurred_at: at(second), detail },
        event_id: EventId::at(at(1000 - second)),
        external_event_id: format!("evt_{second}"),
        ordinal: 0,
    }
}

fn paying(second: i64, step: PaymentStep, minor: i64, currency: &str) -> RecordedFact {
    let amount = Some(money(minor, currency));
    let captured = amount.filter(|_| step == PaymentStep::Captured);
    let told = PaymentFact { amount, captured, ..PaymentFact::new(step) };
    recorded(&Subject::payment("pay_1"), second, FactDetail::Payment(told))
}

fn refunding(second: i64, id: &str, status: RefundStatus, minor: i64, currency: &str) -> RecordedFact {
    let told = RefundFact {
        refund_id: id.to_owned(),
        status,
        amount: money(minor, currency),
        created_at: at(second),
        charge_id: None,
        reason: None,
        failure_code: None,
    };
    recorded(&Subject::payment("pay_1"), second, FactDetail::Refund(told))
}

fn disputing(second: i64, status: DisputeStatus, minor: i64, currency: &str) -> RecordedFact {
    let told = DisputeFact {
        dispute_id: "dp_1".to_owned(),
        status,
        amount: money(minor, currency),
        funds: (status == DisputeStatus::Open).then_some(Funds::Withdrawn),
        created_at: at(second),
        charge_id: None,
        reason: None,
    };
    recorded(&Subject::payment("pay_1"), second, FactDetail::Dispute(told))
}

fn subscribing(second: i64, step: SubscriptionStep) -> RecordedFact {
    let item = SubscriptionItem {
        product_id: "prod".to_owned(),
        quantity: 1,
        period_start: Some(at(second)),
        period_end: Some(at(second + 100)),
    };
    let told = SubscriptionFact {
        app_user_id: Some("alice".to_owned()),
        items: Some(vec![item]),
        ends_at: Some(at(second + 50)),
        ..SubscriptionFact::new(step)
    };
    let fact = recorded(&Subject::subscription("sub_1"), second, FactDetail::Subscription(told));
    RecordedFact { external_event_id: format!("evt_{second}_{step:?}"), ..fact }
}

/// A decision about `about`, the `number`th of its kind.
fn decided(number: i64, about: &RecordedFact, reason: &str, verdict: Verdict) -> RecordedFact {
    let about_id = about.external_event_id.clone();
    let detail = FactDetail::Decision(DecisionFact { about: about_id, reason: reason.to_owned(), verdict });
    let fact = recorded(&about.fact.subject, 500 + number, detail);
    RecordedFact { external_event_id: format!("decision_{number}"), ..fact }
}

fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    let Some((first, rest)) = items.split_first() else { return vec![vec![]] };
    let insert = |shorter: &Vec<T>, at: usize| {
        let mut longer = shorter.clone();
        longer.insert(at, first.clone());
        longer
    };
    permutations(rest)
        .iter()
        .flat_map(|shorter| (0..=shorter.len()).map(|at| insert(shorter, at)).collect::<Vec<_>>())
        .collect()
}

/// The fold, after it was checked that no order of the facts gives another one.
fn folded(facts: &[RecordedFact]) -> Ledger {
    let subject = facts[0].fact.subject.clone();
    let ledger = fold(&subject, facts, &[]);
    for order in permutations(facts) {
        assert_eq!(fold(&subject, &order, &[]), ledger);
    }
    ledger
}

/// A ledger in a line: `paid 10 USD of 10, out 3+0; re_1 succeeded 3 USD`.
fn line(ledger: &Ledger) -> String {
    let mut parts = Vec::new();
    if let Some(p) = &ledger.payment {
        let amount = p.amount.map_or("?".to_owned(), |amount| amount.to_string());
        let currency = p.currency.map_or("?", |currency| currency.code());
        let totals = format!("out {}+{}", p.refunded_amount, p.disputed_amount);
        parts.push(format!("{} {} {currency} of {amount}, {totals}", word(&p.status), p.captured_amount));
    }
    parts.extend(
        ledger.refunds.iter().map(|r| format!("{} {} {} {}", r.refund_id, word(&r.status), r.amount, r.currency)),
    );
    parts.extend(
        ledger.disputes.iter().map(|d| format!("{} {} {} {}", d.dispute_id, word(&d.status), d.amount, d.currency)),
    );
    parts.extend(ledger.subscriptions.iter().map(|s| {
        let until = s.expires_at.map_or("?".to_owned(), |end| (end - at(0)).num_seconds().to_string());
        format!("{} until {until}", word(&s.status))
    }));
    parts.join("; ")
}

/// A status as the tables write it.
fn word(status: &impl Serialize) -> String {
    serde_json::to_value(status).unwrap().as_str().unwrap().to_owned()
}

/// A contradiction: its reason, the facts (the last one is refused), and what becomes of them without a decision, when
/// the refused one is accepted, and when it is dismissed.
struct Case {
    reason: &'static str,
    facts: Vec<RecordedFact>,
    refused: &'static str,
    accepted: &'static str,
    dismissed: &'static str,
}

impl Case {
    /// Of most contradictions nothing is applied, so that a dismissal changes nothing but the flag.
    fn new(reason: &'static str, facts: Vec<RecordedFact>, refused: &'static str, accepted: &'static str) -> Self {
        Case { reason, facts, refused, accepted, dismissed: refused }
    }
}

fn cases() -> Vec<Case> {
    use PaymentStep::{Authorized, Canceled, Captured, Expired, Failed};
    use SubscriptionStatus as S;
    use SubscriptionStep::{Extended, Paid, Stands};
    let usd = |second, step| paying(second, step, 1000, "USD");
    let refund = |second, status| refunding(second, "re_1", status, 400, "USD");
    let dispute = |second, status| disputing(second, status, 1000, "USD");
    let bought = |second: i64, purchased: i64, minor| {
        let fact = paying(second, Captured, minor, "USD");
        let FactDetail::Payment(told) = fact.fact.detail.clone() else { unreachable!() };
        let detail = FactDetail::Payment(PaymentFact { purchased_at: Some(at(purchased)), ..told });
        RecordedFact { fact: Fact { detail, ..fact.fact.clone() }, ..fact }
    };
    vec![
        Case::new(
            "failed_after_paid",
            vec![usd(1, Captured), usd(2, Failed)],
            "paid 10 USD of 10, out 0+0",
            "failed 10 USD of 10, out 0+0",
        ),
        Case::new(
            "canceled_after_paid",
            vec![usd(1, Captured), usd(2, Canceled)],
            "paid 10 USD of 10, out 0+0",
            "canceled 10 USD of 10, out 0+0",
        ),
        Case::new(
            "expired_after_paid",
            vec![usd(1, Captured), usd(2, Expired)],
            "paid 10 USD of 10, out 0+0",
            "expired 10 USD of 10, out 0+0",
        ),
        Case::new(
            "authorized_after_canceled",
            vec![usd(1, Canceled), usd(2, Authorized)],
            "canceled 0 USD of 10, out 0+0",
            "authorized 0 USD of 10, out 0+0",
        ),
        Case::new(
            "paid_after_canceled",
            vec![usd(1, Canceled), usd(2, Captured)],
            "canceled 0 USD of 10, out 0+0",
            "paid 10 USD of 10, out 0+0",
        ),
        Case::new(
            "authorized_after_expired",
            vec![usd(1, Expired), usd(2, Authorized)],
            "expired 0 USD of 10, out 0+0",
            "authorized 0 USD of 10, out 0+0",
        ),
        Case::new(
            "paid_after_expired",
            vec![usd(1, Expired), usd(2, Captured)],
            "expired 0 USD of 10, out 0+0",
            "paid 10 USD of 10, out 0+0",
        ),
        Case::new(
            "currency_changed",
            vec![usd(1, Captured), paying(2, Authorized, 1200, "EUR")],
            "paid 10 USD of 10, out 0+0",
            "paid 0 EUR of 12, out 0+0",
        ),
        Case::new(
            "payment_id_reused",
            vec![bought(1, 1, 1000), bought(9, 9, 1200)],
            "paid 10 USD of 10, out 0+0",
            "paid 12 USD of 12, out 0+0",
        ),
        Case::new(
            "more_out_than_in",
            vec![usd(1, Captured), refunding(2, "re_1", RefundStatus::Succeeded, 1500, "USD")],
            "refunded 10 USD of 10, out 15+0; re_1 succeeded 15 USD",
            "refunded 10 USD of 10, out 15+0; re_1 succeeded 15 USD",
        ),
        Case::new(
            "refund_currency_mismatch",
            vec![usd(1, Captured), refunding(2, "re_1", RefundStatus::Succeeded, 400, "EUR")],
            "paid 10 USD of 10, out 0+0; re_1 succeeded 4 EUR",
            "partially_refunded 10 USD of 10, out 4+0; re_1 succeeded 4 EUR",
        ),
        Case::new(
            "refund_currency_changed",
            vec![refund(2, RefundStatus::Pending), refunding(3, "re_1", RefundStatus::Succeeded, 500, "EUR")],
            "re_1 pending 4 USD",
            "re_1 succeeded 5 EUR",
        ),
        Case::new(
            "refund_succeeded_after_failed",
            vec![refund(2, RefundStatus::Failed), refund(3, RefundStatus::Succeeded)],
            "re_1 failed 4 USD",
            "re_1 succeeded 4 USD",
        ),
        Case::new(
            "refund_succeeded_after_canceled",
            vec![refund(2, RefundStatus::Canceled), refund(3, RefundStatus::Succeeded)],
            "re_1 canceled 4 USD",
            "re_1 succeeded 4 USD",
        ),
        Case::new(
            "dispute_currency_mismatch",
            vec![usd(1, Captured), disputing(2, DisputeStatus::Open, 300, "EUR")],
            "paid 10 USD of 10, out 0+0; dp_1 open 3 EUR",
            "paid 10 USD of 10, out 0+3; dp_1 open 3 EUR",
        ),
        Case::new(
            "dispute_currency_changed",
            vec![dispute(2, DisputeStatus::Inquiry), disputing(3, DisputeStatus::Open, 300, "EUR")],
            "dp_1 inquiry 10 USD",
            "dp_1 open 3 EUR",
        ),
        Case::new(
            "dispute_after_prevented",
            vec![dispute(2, DisputeStatus::Prevented), dispute(3, DisputeStatus::Lost)],
            "dp_1 prevented 10 USD",
            "dp_1 lost 10 USD",
        ),
        Case::new(
            "paid_after_ended",
            vec![subscribing(1, Stands(S::Expired)), subscribing(2, Paid)],
            "expired until 51",
            "expired until 51",
        ),
        Case::new(
            "extended_after_ended",
            vec![subscribing(1, Stands(S::Expired)), subscribing(2, Extended)],
            "expired until 51",
            "active until 52",
        ),
        Case::new(
            "revived_after_ended",
            vec![subscribing(1, Stands(S::Expired)), subscribing(2, Stands(S::Active))],
            "expired until 51",
            "active until 52",
        ),
        Case {
            reason: "ambiguous_order",
            facts: vec![subscribing(1, Stands(S::Active)), subscribing(1, Stands(S::PastDue))],
            refused: "past_due until 51",
            accepted: "past_due until 51",
            dismissed: "active until 51",
        },
    ]
}

#[test]
fn a_decision_settles_every_contradiction_in_either_way_and_in_any_order() {
    for Case { reason, facts, refused, accepted, dismissed } in cases() {
        let about = facts.last().unwrap();
        let open = folded(&facts);
        assert_eq!(line(&open), refused, "{reason}");
        assert_eq!(open.reviews, [Review { reason, event_id: about.event_id }], "{reason}");
        for (verdict, expected) in [(Verdict::Accept, accepted), (Verdict::Dismiss, dismissed)] {
            let ledger = folded(&[facts.clone(), vec![decided(1, about, reason, verdict)]].concat());
            assert_eq!(line(&ledger), expected, "{reason} {verdict:?}");
            assert_eq!(ledger.reviews, [], "{reason} {verdict:?}");
            let flags = ledger.payment.iter().map(|row| row.needs_review);
            let flags = flags.chain(ledger.refunds.iter().map(|row| row.needs_review));
            let flags = flags.chain(ledger.disputes.iter().map(|row| row.needs_review));
            let mut flags = flags.chain(ledger.subscriptions.iter().map(|row| row.needs_review));
            assert!(!flags.any(|needs_review| needs_review), "{reason} {verdict:?}");
        }
    }
}

/// Every reason that a state table gives, over all pairs, and those that the folds give beside the tables.
fn all_reasons() -> BTreeSet<&'static str> {
    use DisputeStatus as D;
    use PaymentStatus as P;
    use PaymentStep as PS;
    use RefundStatus as R;
    use SubscriptionStatus as S;
    use SubscriptionStep as SS;
    fn review<T>(transition: Transition<T>) -> Option<&'static str> {
        match transition {
            Transition::Review(reason) => Some(reason),
            Transition::To(_) | Transition::Same => None,
        }
    }
    let payments =
        [P::Pending, P::Authorized, P::Paid, P::PartiallyRefunded, P::Refunded, P::Failed, P::Canceled, P::Expired];
    let steps = [PS::Noted, PS::Pending, PS::Failed, PS::Authorized, PS::Captured, PS::Canceled, PS::Expired];
    let refunds = [R::Pending, R::Succeeded, R::Failed, R::Canceled, R::Reversed];
    let disputes = [D::Inquiry, D::InquiryClosed, D::Prevented, D::Open, D::UnderReview, D::Won, D::Lost];
    let standings =
        [S::Incomplete, S::Trialing, S::Active, S::InGrace, S::PastDue, S::Paused, S::Canceled, S::Expired, S::Revoked];
    let simple = [SS::Noted, SS::PaymentFailed, SS::Paid, SS::Extended, SS::RanOut];
    let told = simple.into_iter().chain(standings.map(SS::Stands)).chain(standings.map(SS::Bought));
    let told: Vec<SubscriptionStep> = told.collect();

    let mut reasons = BTreeSet::from([
        "currency_changed",
        "payment_id_reused",
        "more_out_than_in",
        "refund_currency_changed",
        "refund_currency_mismatch",
        "dispute_currency_changed",
        "dispute_currency_mismatch",
        "ambiguous_order",
    ]);
    reasons.extend(payments.iter().flat_map(|p| steps.iter().filter_map(|s| review(payment::transition(*p, *s)))));
    reasons.extend(refunds.iter().flat_map(|a| refunds.iter().filter_map(|b| review(refund::transition(*a, *b)))));
    reasons.extend(disputes.iter().flat_map(|a| disputes.iter().filter_map(|b| review(dispute::transition(*a, *b)))));
    reasons.extend(standings.iter().flat_map(|s| told.iter().filter_map(|t| review(subscription::transition(*s, *t)))));
    reasons
}

#[test]
fn every_reason_can_be_decided_and_has_words_for_people() {
    let decided: BTreeSet<&str> = cases().iter().map(|case| case.reason).collect();
    assert_eq!(decided, all_reasons());
    for reason in all_reasons() {
        assert!(reason_in_words(reason).is_some_and(|words| words.len() > 20), "{reason}");
    }
    assert_eq!(reason_in_words("nothing_we_know"), None);
}

#[test]
fn a_decision_is_about_one_event_and_one_reason() {
    let canceled = paying(1, PaymentStep::Canceled, 1000, "USD");
    let (charge, intent) =
        (paying(2, PaymentStep::Captured, 1000, "USD"), paying(3, PaymentStep::Captured, 1000, "USD"));
    let facts = vec![canceled, charge.clone(), intent.clone()];
    let reason = "paid_after_canceled";
    let with = |decisions: &[RecordedFact]| folded(&[facts.clone(), decisions.to_vec()].concat());
    let dismissed = with(&[decided(1, &charge, reason, Verdict::Dismiss)]);
    assert_eq!(dismissed.reviews, [Review { reason, event_id: intent.event_id }]);
    let other_reason = with(&[decided(1, &charge, "paid_after_expired", Verdict::Dismiss)]);
    assert_eq!(other_reason.reviews.len(), 2);
    // What comes after the accepted one no longer contradicts.
    assert_eq!(with(&[decided(1, &charge, reason, Verdict::Accept)]).reviews, []);
}

#[test]
fn of_two_decisions_the_later_one_counts() {
    let facts = vec![paying(1, PaymentStep::Canceled, 1000, "USD"), paying(2, PaymentStep::Captured, 1000, "USD")];
    let decisions = |first, second| {
        let reason = "paid_after_canceled";
        let all = [facts.clone(), vec![decided(1, &facts[1], reason, first), decided(2, &facts[1], reason, second)]];
        folded(&all.concat()).payment.unwrap().status
    };
    assert_eq!(decisions(Verdict::Accept, Verdict::Dismiss), PaymentStatus::Canceled);
    assert_eq!(decisions(Verdict::Dismiss, Verdict::Accept), PaymentStatus::Paid);
}

#[test]
fn a_decision_names_every_event_that_raises_the_question() {
    let subject = Subject::payment("pay_1");
    let questioned = |facts: &[RecordedFact], reason| events_in_question(&subject, facts, &[], reason);
    let twice = [
        paying(1, PaymentStep::Canceled, 1000, "USD"),
        paying(2, PaymentStep::Captured, 1000, "USD"),
        paying(3, PaymentStep::Captured, 1000, "USD"),
    ];
    assert_eq!(questioned(&twice, "paid_after_canceled"), ["evt_2", "evt_3"]);
    assert_eq!(questioned(&twice, "more_out_than_in"), [""; 0]);
    assert_eq!(questioned(&[], "more_out_than_in"), [""; 0]);
    let refunded = [
        paying(1, PaymentStep::Captured, 1000, "USD"),
        refunding(2, "re_1", RefundStatus::Succeeded, 700, "USD"),
        refunding(3, "re_2", RefundStatus::Succeeded, 700, "USD"),
    ];
    assert_eq!(questioned(&refunded, "more_out_than_in"), ["evt_3", "evt_2"]);
}

#[test]
fn what_is_taken_out_after_a_decision_is_a_new_question() {
    let reason = "more_out_than_in";
    let refund = |second, id, status, minor| refunding(second, id, status, minor, "USD");
    let mut facts = vec![paying(1, PaymentStep::Captured, 1000, "USD"), refund(2, "re_1", RefundStatus::Pending, 1500)];
    facts.push(decided(1, &facts[1], reason, Verdict::Accept));
    assert_eq!(folded(&facts).reviews, []);
    // The refund that was looked at goes on; that is nothing new.
    facts.push(refund(3, "re_1", RefundStatus::Succeeded, 1500));
    assert_eq!(folded(&facts).reviews, []);
    let another = refund(4, "re_2", RefundStatus::Succeeded, 100);
    facts.push(another.clone());
    assert_eq!(folded(&facts).reviews, [Review { reason, event_id: another.event_id }]);
}

#[test]
fn what_a_person_adds_has_the_last_word_of_its_second() {
    let first = refunding(2, "re_1", RefundStatus::Failed, 400, "USD");
    // By rank, a success would come before a failure.
    let second = refunding(2, "re_1", RefundStatus::Pending, 900, "USD");
    let second = RecordedFact { external_event_id: "decision_1".to_owned(), ..second };
    let ledger = folded(&[first, second]);
    assert_eq!(line(&ledger), "re_1 failed 9 USD");

    let stands = |status| subscribing(1, SubscriptionStep::Stands(status));
    let added = RecordedFact { external_event_id: "decision_1".to_owned(), ..stands(SubscriptionStatus::Active) };
    let ledger = folded(&[stands(SubscriptionStatus::PastDue), added]);
    assert_eq!((line(&ledger).as_str(), ledger.reviews.len()), ("active until 51", 0));
}
