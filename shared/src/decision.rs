//! What a person decided, as the body of an event of origin `operator`. It says everything that the ledger needs to know,
//! so a rebuild reproduces the decision even when the bytes that it is about are archived. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::domain::{DecisionFact, EventId, Fact, FactDetail, Subject, SubjectKind, Time, Verdict};
use crate::providers::{self, FactError, StoredEvent};

/// The version of the document that is written.
const VERSION: u32 = 1;

/// Who decided what, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The entry of the quarantine that it closes.
    pub quarantine_id: Uuid,
    pub decided_by: String,
    pub why: String,
    #[serde(flatten)]
    pub ruling: Ruling,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ruling", rename_all = "snake_case")]
pub enum Ruling {
    /// About facts that were refused.
    Contradiction(Contradiction),
    /// The later, different delivery of an event is projected too.
    ApplySecond(SecondDelivery),
}

/// The facts of one subject that are refused for one reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    pub subject_kind: String,
    pub subject_id: String,
    pub reason: String,
    /// The provider's ids of the events whose facts are refused.
    pub about: Vec<String>,
    pub verdict: Verdict,
}

/// What a provider sent under the id of an event that we had: a copy, because the original's partition may be archived
/// long before this one.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondDelivery {
    /// The provider's id of the event.
    pub about: String,
    pub event_type: String,
    pub occurred_at: Option<Time>,
    /// The bytes as they came, in base64.
    body: String,
}

/// The body is not a decision that this version can read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecisionError {
    #[error("the decision is not a document of the form this version knows; a newer webhookctl may have written it")]
    Unreadable,
    /// The second delivery cannot be understood without guessing.
    #[error(transparent)]
    Facts(#[from] FactError),
}

#[derive(Serialize, Deserialize)]
struct Document<D> {
    version: u32,
    #[serde(flatten)]
    decision: D,
}

impl std::fmt::Debug for SecondDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecondDelivery").field("about", &self.about).finish_non_exhaustive()
    }
}

impl SecondDelivery {
    pub fn new(about: String, event_type: String, occurred_at: Option<Time>, body: &[u8]) -> Self {
        SecondDelivery { about, event_type, occurred_at, body: STANDARD.encode(body) }
    }
}

impl Decision {
    /// The type of events that carry a decision.
    pub const EVENT_TYPE: &'static str = "operator.decision";

    /// The id of the event under which a decision is kept: what a provider's id is to its events.
    pub fn external_id(id: EventId) -> String {
        format!("{}{id}", DecisionFact::EVENT_PREFIX)
    }

    /// The bytes to store.
    pub fn to_body(&self) -> Zeroizing<Vec<u8>> {
        // Texts, numbers and ids always serialise.
        Zeroizing::new(serde_json::to_vec(&Document { version: VERSION, decision: self }).unwrap_or_default())
    }

    /// Reads what [`Decision::to_body`] wrote.
    ///
    /// # Errors
    /// [`DecisionError::Unreadable`] also where the version is another one.
    pub fn read(body: &[u8]) -> Result<Self, DecisionError> {
        #[derive(Deserialize)]
        struct Unread {}
        let version: Document<Unread> = serde_json::from_slice(body).map_err(|_| DecisionError::Unreadable)?;
        if version.version != VERSION {
            return Err(DecisionError::Unreadable);
        }
        let document: Document<Decision> = serde_json::from_slice(body).map_err(|_| DecisionError::Unreadable)?;
        Ok(document.decision)
    }

    /// The facts that follow from the decision, as facts of its own event `event`.
    pub fn facts(&self, event: &StoredEvent) -> Result<Vec<Fact>, DecisionError> {
        match &self.ruling {
            Ruling::Contradiction(contradiction) => {
                let at = event.occurred_at.unwrap_or(event.received_at);
                contradiction.facts(at).ok_or(DecisionError::Unreadable)
            }
            Ruling::ApplySecond(second) => {
                let body = STANDARD.decode(&second.body).map_err(|_| DecisionError::Unreadable)?;
                let told = StoredEvent {
                    event_type: second.event_type.clone(),
                    occurred_at: second.occurred_at,
                    body: Zeroizing::new(body),
                    ..event.clone()
                };
                Ok(providers::facts(&told)?)
            }
        }
    }
}

impl Contradiction {
    fn facts(&self, at: Time) -> Option<Vec<Fact>> {
        let subject = Subject { kind: SubjectKind::parse(&self.subject_kind)?, id: self.subject_id.clone() };
        let fact = |about: &String| Fact {
            subject: subject.clone(),
            occurred_at: at,
            detail: FactDetail::Decision(DecisionFact {
                about: about.clone(),
                reason: self.reason.clone(),
                verdict: self.verdict,
            }),
        };
        Some(self.about.iter().map(fact).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Provider;
    use crate::providers::sample::{self, SampleOptions};

    fn now() -> Time {
        Time::from_timestamp(1_767_225_600, 0).unwrap()
    }

    fn decision(ruling: Ruling) -> Decision {
        Decision { quarantine_id: Uuid::nil(), decided_by: "kim".into(), why: "asked the provider".into(), ruling }
    }

    fn event(body: &[u8]) -> StoredEvent {
        let event_id = EventId::at(now());
        StoredEvent {
            provider: Provider::Stripe,
            account_key: "acct_1".into(),
            external_event_id: Decision::external_id(event_id),
            event_type: Decision::EVENT_TYPE.into(),
            occurred_at: Some(now()),
            received_at: now(),
            event_id,
            body: Zeroizing::new(body.to_vec()),
        }
    }

    #[test]
    fn a_decision_about_a_contradiction_is_a_fact_for_every_event_it_names() {
        let written = decision(Ruling::Contradiction(Contradiction {
            subject_kind: "payment".into(),
            subject_id: "pi_1".into(),
            reason: "paid_after_canceled".into(),
            about: vec!["evt_1".into(), "evt_2".into()],
            verdict: Verdict::Accept,
        }));
        let body = written.to_body();
        let read = Decision::read(&body).unwrap();
        assert_eq!(read, written);
        let facts = read.facts(&event(&body)).unwrap();
        let about: Vec<&str> = facts
            .iter()
            .map(|fact| match &fact.detail {
                FactDetail::Decision(told) => told.about.as_str(),
                _ => panic!("{fact:?}"),
            })
            .collect();
        assert_eq!(about, ["evt_1", "evt_2"]);
        assert!(facts.iter().all(|fact| fact.subject == Subject::payment("pi_1") && fact.occurred_at == now()));
    }

    #[test]
    fn the_second_delivery_is_carried_in_whole_and_says_what_it_said() {
        let second = sample::event(Provider::Stripe, "charge.succeeded", &SampleOptions::new("a", now())).unwrap();
        let carried =
            SecondDelivery::new(second.event_id.clone(), "charge.succeeded".into(), Some(now()), &second.body);
        let body = decision(Ruling::ApplySecond(carried)).to_body();
        let facts = Decision::read(&body).unwrap().facts(&event(&body)).unwrap();
        let original = StoredEvent { event_type: "charge.succeeded".into(), ..event(&second.body) };
        assert_eq!(facts, providers::facts(&original).unwrap());
        assert!(!facts.is_empty());
    }

    #[test]
    fn what_another_version_wrote_is_not_guessed_at() {
        let body = decision(Ruling::ApplySecond(SecondDelivery::new("evt".into(), "x".into(), None, b"{}"))).to_body();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(Decision::read(text.as_bytes()).is_ok());
        for other in
            [text.replace("\"version\":1", "\"version\":2"), text.replace("apply_second", "apply_third"), "[]".into()]
        {
            assert_eq!(Decision::read(other.as_bytes()), Err(DecisionError::Unreadable), "{other}");
        }
        assert!(!format!("{:?}", Decision::read(&body).unwrap()).contains("e30="), "the payload stays out of logs");
    }
}
