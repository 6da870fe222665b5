//! `docs/STATES.md` shows the state tables as the code has them.

use std::iter::successors;

use serde::Serialize;

use super::{
    DisputeStatus, PaymentStatus, PaymentStep, RefundStatus, SubscriptionStatus, SubscriptionStep, Transition, dispute,
    payment, refund, subscription,
};

const DOCUMENT: &str = include_str!("../../../docs/STATES.md");

// Each list is a chain of a match: a new variant does not compile until it is put into the chain.

fn payment_statuses() -> Vec<PaymentStatus> {
    use PaymentStatus as S;
    let next = |status: &S| match status {
        S::Pending => Some(S::Authorized),
        S::Authorized => Some(S::Paid),
        S::Paid => Some(S::PartiallyRefunded),
        S::PartiallyRefunded => Some(S::Refunded),
        S::Refunded => Some(S::Failed),
        S::Failed => Some(S::Canceled),
        S::Canceled => Some(S::Expired),
        S::Expired => None,
    };
    successors(Some(S::Pending), next).collect()
}

fn payment_steps() -> Vec<PaymentStep> {
    use PaymentStep as P;
    let next = |step: &P| match step {
        P::Noted => Some(P::Pending),
        P::Pending => Some(P::Authorized),
        P::Authorized => Some(P::Captured),
        P::Captured => Some(P::Failed),
        P::Failed => Some(P::Canceled),
        P::Canceled => Some(P::Expired),
        P::Expired => None,
    };
    successors(Some(P::Noted), next).collect()
}

fn refund_statuses() -> Vec<RefundStatus> {
    use RefundStatus as S;
    let next = |status: &S| match status {
        S::Pending => Some(S::Succeeded),
        S::Succeeded => Some(S::Failed),
        S::Failed => Some(S::Canceled),
        S::Canceled => Some(S::Reversed),
        S::Reversed => None,
    };
    successors(Some(S::Pending), next).collect()
}

fn dispute_statuses() -> Vec<DisputeStatus> {
    use DisputeStatus as S;
    let next = |status: &S| match status {
        S::Inquiry => Some(S::InquiryClosed),
        S::InquiryClosed => Some(S::Prevented),
        S::Prevented => Some(S::Open),
        S::Open => Some(S::UnderReview),
        S::UnderReview => Some(S::Won),
        S::Won => Some(S::Lost),
        S::Lost => None,
    };
    successors(Some(S::Inquiry), next).collect()
}

fn subscription_statuses() -> Vec<SubscriptionStatus> {
    use SubscriptionStatus as S;
    let next = |status: &S| match status {
        S::Incomplete => Some(S::Trialing),
        S::Trialing => Some(S::Active),
        S::Active => Some(S::InGrace),
        S::InGrace => Some(S::PastDue),
        S::PastDue => Some(S::Paused),
        S::Paused => Some(S::Canceled),
        S::Canceled => Some(S::Expired),
        S::Expired => Some(S::Revoked),
        S::Revoked => None,
    };
    successors(Some(S::Incomplete), next).collect()
}

fn subscription_steps() -> Vec<SubscriptionStep> {
    use SubscriptionStep as P;
    let after =
        |status: SubscriptionStatus| subscription_statuses().into_iter().skip_while(move |s| *s != status).nth(1);
    let next = |step: &P| match step {
        P::Noted => Some(P::Paid),
        P::Paid => Some(P::PaymentFailed),
        P::PaymentFailed => Some(P::Extended),
        P::Extended => Some(P::RanOut),
        P::RanOut => Some(P::Bought(SubscriptionStatus::Incomplete)),
        P::Bought(status) => Some(after(*status).map_or(P::Stands(SubscriptionStatus::Incomplete), P::Bought)),
        P::Stands(status) => after(*status).map(P::Stands),
    };
    successors(Some(P::Noted), next).collect()
}

fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

fn step_word(step: &SubscriptionStep) -> String {
    match step {
        SubscriptionStep::Bought(status) => format!("bought: {}", word(status)),
        SubscriptionStep::Stands(status) => format!("stands: {}", word(status)),
        other => serde_json::to_value(other).unwrap()["step"].as_str().unwrap().to_owned(),
    }
}

/// A row for each fact, a column for each status.
fn table<S: Serialize + Copy, F>(
    statuses: &[S],
    facts: &[F],
    named: impl Fn(&F) -> String,
    transition: impl Fn(S, &F) -> Transition<S>,
) -> String {
    let headings: Vec<String> = statuses.iter().map(word).collect();
    let mut text = format!("| fact | {} |\n|---|{}\n", headings.join(" | "), "---|".repeat(headings.len()));
    for fact in facts {
        let cells = statuses.iter().map(|status| match transition(*status, fact) {
            Transition::To(status) => word(&status),
            Transition::Same => "·".to_owned(),
            Transition::Review(reason) => format!("! `{reason}`"),
        });
        text += &format!("| {} | {} |\n", named(fact), cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

#[test]
fn the_documented_states_are_the_code() {
    let payments = table(&payment_statuses(), &payment_steps(), word, |now, step| payment::transition(now, *step));
    let refunds = table(&refund_statuses(), &refund_statuses(), word, |now, told| refund::transition(now, *told));
    let disputes = table(&dispute_statuses(), &dispute_statuses(), word, |now, told| dispute::transition(now, *told));
    let subscriptions = table(&subscription_statuses(), &subscription_steps(), step_word, |now, step| {
        subscription::transition(now, *step)
    });
    for (heading, table) in
        [("Payments", payments), ("Refunds", refunds), ("Disputes", disputes), ("Subscriptions", subscriptions)]
    {
        let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default();
        let documented: String =
            section.lines().filter(|line| line.starts_with('|')).map(|l| format!("{l}\n")).collect();
        assert!(documented == table, "the table under \"## {heading}\" of docs/STATES.md must be:\n\n{table}");
    }
}
