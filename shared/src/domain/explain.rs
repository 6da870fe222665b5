use super::{Ledger, RecordedFact, Subject, SubjectKind, fold};

/// What one fact did to the rows of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changed them.
    Applied,
    /// It says what was known already.
    NoChange,
    /// It changed nothing, and came after facts that follow it.
    Stale,
    /// It contradicts what came before it. The reason is a stable code.
    Refused(&'static str),
}

/// A fact in its place of the timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained<'a> {
    pub recorded: &'a RecordedFact,
    pub effect: Effect,
    /// Why a person has to look since then, although the fact was applied.
    pub review: Option<&'static str>,
}

/// Tells what each fact did, in the order in which facts are folded: every fact is held against the fold without it and
/// without what follows it. `transfers` are those of the users that the facts name.
pub fn explain<'a>(subject: &Subject, facts: &'a [RecordedFact], transfers: &'a [RecordedFact]) -> Vec<Explained<'a>> {
    let mut all: Vec<&RecordedFact> = facts.iter().chain(transfers).collect();
    all.sort_by(|a, b| a.order().cmp(&b.order()));
    let (mut told, mut moved) = (Vec::new(), Vec::new());
    let mut before = Ledger::default();
    let mut explained = Vec::with_capacity(all.len());
    for (place, recorded) in all.iter().enumerate() {
        let list = if recorded.fact.subject.kind == SubjectKind::User { &mut moved } else { &mut told };
        list.push((*recorded).clone());
        let after = fold(subject, &told, &moved);
        // Ids of one millisecond do not tell which came first.
        let came_before = |other: &&RecordedFact| other.event_id.received_at() < recorded.event_id.received_at();
        let is_late = all.iter().copied().skip(place).any(|later| came_before(&later));
        let (effect, review) = effect(&before, &after, is_late);
        explained.push(Explained { recorded, effect, review });
        before = after;
    }
    explained
}

fn effect(before: &Ledger, after: &Ledger, is_late: bool) -> (Effect, Option<&'static str>) {
    let count = |ledger: &Ledger, reason| ledger.reviews.iter().filter(|review| review.reason == reason).count();
    let review =
        after.reviews.iter().map(|review| review.reason).find(|reason| count(after, *reason) > count(before, *reason));
    match (without_flags(before) == without_flags(after), review) {
        (false, review) => (Effect::Applied, review),
        (true, Some(reason)) => (Effect::Refused(reason), None),
        (true, None) if is_late => (Effect::Stale, None),
        (true, None) => (Effect::NoChange, None),
    }
}

/// The rows without what only says that a person has to look.
fn without_flags(ledger: &Ledger) -> Ledger {
    let mut rows = Ledger { reviews: Vec::new(), ..ledger.clone() };
    let flags = rows.payment.iter_mut().map(|row| (&mut row.needs_review, &mut row.review_reason));
    let flags = flags.chain(rows.refunds.iter_mut().map(|row| (&mut row.needs_review, &mut row.review_reason)));
    let flags = flags.chain(rows.disputes.iter_mut().map(|row| (&mut row.needs_review, &mut row.review_reason)));
    let flags = flags.chain(rows.subscriptions.iter_mut().map(|row| (&mut row.needs_review, &mut row.review_reason)));
    for (needs_review, reason) in flags {
        *needs_review = false;
        *reason = None;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        EventId, Fact, FactDetail, Money, PaymentFact, PaymentStep, RefundFact, RefundStatus, SubscriptionFact,
        SubscriptionItem, SubscriptionStatus, SubscriptionStep, Time, TransferFact,
    };

    fn at(second: i64) -> Time {
        Time::from_timestamp(1_767_225_600 + second, 0).unwrap()
    }

    fn usd(minor: i64) -> Money {
        Money::from_minor_digits(&minor.to_string(), 2, "USD".parse().unwrap()).unwrap()
    }

    /// A fact that happened at `second` and came as number `arrival`.
    fn fact(subject: Subject, second: i64, arrival: i64, detail: FactDetail) -> RecordedFact {
        RecordedFact {
            fact: Fact { subject, occurred_at: at(second), detail },
            event_id: EventId::at(at(1000 + arrival)),
            external_event_id: format!("evt_{second}_{arrival}"),
            ordinal: 0,
        }
    }

    fn payment(second: i64, arrival: i64, step: PaymentStep) -> RecordedFact {
        let money = Some(usd(1000));
        let captured = money.filter(|_| step == PaymentStep::Captured);
        let told = PaymentFact { amount: money, captured, ..PaymentFact::new(step) };
        fact(Subject::payment("pi_1"), second, arrival, FactDetail::Payment(told))
    }

    fn refund(second: i64, arrival: i64, minor: i64) -> RecordedFact {
        let told = RefundFact {
            refund_id: "re_1".to_owned(),
            status: RefundStatus::Succeeded,
            amount: usd(minor),
            created_at: at(second),
            charge_id: None,
            reason: None,
            failure_code: None,
        };
        fact(Subject::payment("pi_1"), second, arrival, FactDetail::Refund(told))
    }

    fn effects(facts: &[RecordedFact]) -> Vec<(Effect, Option<&'static str>)> {
        let explained = explain(&Subject::payment("pi_1"), facts, &[]);
        explained.iter().map(|explained| (explained.effect, explained.review)).collect()
    }

    #[test]
    fn a_timeline_tells_what_every_fact_did_whatever_the_order_of_arrival() {
        // The payment came last, and a repetition of it after the refund.
        let facts = [refund(5, 0, 400), payment(2, 2, PaymentStep::Captured), payment(3, 1, PaymentStep::Captured)];
        assert_eq!(effects(&facts), [(Effect::Applied, None), (Effect::Stale, None), (Effect::Applied, None)]);
        let explained = explain(&Subject::payment("pi_1"), &facts, &[]);
        assert_eq!(explained[0].recorded, &facts[1]);
        assert_eq!(explained[2].recorded, &facts[0]);
    }

    #[test]
    fn a_repetition_in_order_changes_nothing_and_a_contradiction_is_refused_with_its_reason() {
        let facts = [
            payment(1, 1, PaymentStep::Canceled),
            payment(2, 2, PaymentStep::Canceled),
            payment(3, 3, PaymentStep::Captured),
            payment(4, 4, PaymentStep::Captured),
        ];
        let refused = (Effect::Refused("paid_after_canceled"), None);
        assert_eq!(effects(&facts), [(Effect::Applied, None), (Effect::NoChange, None), refused, refused]);
    }

    #[test]
    fn what_is_applied_may_still_need_a_person() {
        let facts = [payment(1, 1, PaymentStep::Captured), refund(2, 2, 1500)];
        assert_eq!(effects(&facts), [(Effect::Applied, None), (Effect::Applied, Some("more_out_than_in"))]);
    }

    #[test]
    fn a_transfer_is_part_of_the_timeline_of_what_it_moves() {
        let item = SubscriptionItem { product_id: "prod".into(), quantity: 1, period_start: None, period_end: None };
        let told = SubscriptionFact {
            app_user_id: Some("alice".into()),
            items: Some(vec![item]),
            ..SubscriptionFact::new(SubscriptionStep::Stands(SubscriptionStatus::Active))
        };
        let bought = [fact(Subject::subscription("sub_1"), 1, 1, FactDetail::Subscription(told))];
        let moves = |from: &str, second| {
            let detail = FactDetail::Transfer(TransferFact { to: "bob".into() });
            fact(Subject::user(from), second, second, detail)
        };
        let transfers = [moves("alice", 2), moves("carol", 3)];
        let explained = explain(&Subject::subscription("sub_1"), &bought, &transfers);
        let effects: Vec<Effect> = explained.iter().map(|explained| explained.effect).collect();
        assert_eq!(effects, [Effect::Applied, Effect::Applied, Effect::NoChange]);
    }
}
