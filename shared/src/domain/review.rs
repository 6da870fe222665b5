use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{EventId, Fact, FactDetail, RecordedFact, Subject, fold};

/// A contradiction between facts.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    /// A stable code, such as `paid_after_canceled`; [`super::reason_in_words`] says what it means.
    pub reason: &'static str,
    /// The event whose fact could not be applied.
    pub event_id: EventId,
}

/// What a person makes of a fact that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is applied after all: the state becomes what the fact states, whatever the state table says.
    Accept,
    /// It stays out of the ledger, and nobody needs to look again.
    Dismiss,
}

/// A fact about facts: what a person decided about the refused ones of an event. The subject is theirs.
///
/// It is one of the subject's facts, so it may come before those it is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionFact {
    /// The provider's id of the event whose fact is refused.
    pub about: String,
    /// The code for which it is refused. Another contradiction of the same event is another question.
    pub reason: String,
    pub verdict: Verdict,
}

impl DecisionFact {
    /// What the ids of events begin with by which a person decided. In ties, their facts are folded last.
    ///
    /// A provider that chose such an id for an event of its own would only win ties by it.
    pub const EVENT_PREFIX: &'static str = "decision_";

    pub(super) const RANK: i16 = 70;
}

/// What people decided about a subject, and what is left for them to decide.
pub(super) struct Reviews<'a> {
    decided: BTreeMap<(&'a str, &'a str), Verdict>,
    open: Vec<Review>,
}

impl<'a> Reviews<'a> {
    /// `facts` are all of the subject, in order: of two decisions about the same fact, the later one counts.
    pub(super) fn of(facts: &[&'a RecordedFact]) -> Self {
        let decided = facts.iter().filter_map(|recorded| match &recorded.fact.detail {
            FactDetail::Decision(fact) => Some(((fact.about.as_str(), fact.reason.as_str()), fact.verdict)),
            FactDetail::Payment(_)
            | FactDetail::Refund(_)
            | FactDetail::Dispute(_)
            | FactDetail::Subscription(_)
            | FactDetail::Transfer(_) => None,
        });
        Reviews { decided: decided.collect(), open: Vec::new() }
    }

    /// What a person decided about a fact that contradicts. As long as nobody did, it is put before them.
    pub(super) fn verdict(&mut self, reason: &'static str, recorded: &RecordedFact) -> Option<Verdict> {
        self.verdict_on(reason, [recorded], recorded.event_id)
    }

    /// The same for several facts that raise one question, of which `event_id` is to be shown.
    pub(super) fn verdict_on<'b>(
        &mut self,
        reason: &'static str,
        facts: impl IntoIterator<Item = &'b RecordedFact>,
        event_id: EventId,
    ) -> Option<Verdict> {
        let verdict = self.decided(reason, facts);
        if verdict.is_none() {
            self.put(reason, event_id);
        }
        verdict
    }

    /// What a person decided about any of the facts.
    pub(super) fn decided<'b>(
        &self,
        reason: &'static str,
        facts: impl IntoIterator<Item = &'b RecordedFact>,
    ) -> Option<Verdict> {
        let verdict =
            |recorded: &RecordedFact| self.decided.get(&(recorded.external_event_id.as_str(), reason)).copied();
        facts.into_iter().filter_map(verdict).last()
    }

    /// Puts a contradiction before a person.
    pub(super) fn put(&mut self, reason: &'static str, event_id: EventId) {
        self.open.push(Review { reason, event_id });
    }

    /// The code of the first contradiction that nobody decided about.
    pub(super) fn first_reason(&self) -> Option<&'static str> {
        self.open.first().map(|review| review.reason)
    }

    pub(super) fn into_open(self) -> Vec<Review> {
        self.open
    }
}

/// The provider's ids of the events that a decision has to name so that nothing known is left to ask under `reason`.
///
/// `facts` and `transfers` are what the subject is folded from. Several events may raise one question: a charge and its
/// payment both say "paid" after a cancellation.
pub fn events_in_question(
    subject: &Subject,
    facts: &[RecordedFact],
    transfers: &[RecordedFact],
    reason: &str,
) -> Vec<String> {
    let (mut told, mut named) = (facts.to_vec(), Vec::new());
    loop {
        let reviews = fold(subject, &told, transfers).reviews;
        let asked = reviews.iter().filter(|review| review.reason == reason).map(|review| review.event_id);
        let about = |event_id| facts.iter().find(|fact| fact.event_id == event_id).map(|fact| &fact.external_event_id);
        let new: Vec<String> = asked.filter_map(about).filter(|about| !named.contains(*about)).cloned().collect();
        if new.is_empty() {
            return named;
        }
        // As if they were dismissed: that changes no row, and shows what would be asked next.
        told.extend(facts.first().into_iter().flat_map(|like| new.iter().map(|about| dismissed(like, about, reason))));
        named.extend(new);
    }
}

fn dismissed(like: &RecordedFact, about: &str, reason: &str) -> RecordedFact {
    let decision = DecisionFact { about: about.to_owned(), reason: reason.to_owned(), verdict: Verdict::Dismiss };
    let detail = FactDetail::Decision(decision);
    let fact = Fact { detail, ..like.fact.clone() };
    RecordedFact { fact, external_event_id: format!("{}{about}", DecisionFact::EVENT_PREFIX), ..like.clone() }
}

#[cfg(test)]
mod tests;
