use shared::decision::{Decision, DecisionError};
use shared::domain::{Class, Environment, EventId, Fact, Failure, RecordedFact};
use shared::providers::{self, FactError, Provider, StoredEvent};
use shared::sealing::{Column, OpenError, Sealer};
use shared::store::{Loaded, SubjectKey};

/// What a stored event says.
pub(crate) enum Decoded {
    /// Its facts; none when its type says nothing about the ledger.
    Facts(Vec<(SubjectKey, RecordedFact)>),
    /// It cannot be understood without guessing.
    Held(FactError),
    Failed(Failure),
}

/// Opens a stored event and derives its facts.
pub(crate) fn decode(loaded: &Loaded, sealer: &Sealer) -> Decoded {
    let event = match open(loaded, sealer) {
        Ok(event) => event,
        Err(failure) => return Decoded::Failed(failure),
    };
    let told =
        if loaded.is_decision() { decided_facts(&event) } else { providers::facts(&event).map_err(Decoded::Held) };
    match told {
        Ok(facts) => Decoded::Facts(
            facts
                .into_iter()
                .zip(0_i16..)
                .map(|(fact, ordinal)| {
                    let key = SubjectKey {
                        provider: event.provider.as_str(),
                        account_key: event.account_key.clone(),
                        environment: Environment::stored(&loaded.environment),
                        subject: fact.subject.clone(),
                    };
                    let external_event_id = event.external_event_id.clone();
                    (key, RecordedFact { fact, event_id: event.event_id, external_event_id, ordinal })
                })
                .collect(),
        ),
        Err(undecoded) => undecoded,
    }
}

/// What follows from a person's decision. Its origin says that it is one, and its seal that it is ours: no provider can
/// send one.
fn decided_facts(event: &StoredEvent) -> Result<Vec<Fact>, Decoded> {
    Decision::read(&event.body).and_then(|decision| decision.facts(event)).map_err(|error| match error {
        DecisionError::Facts(error) => Decoded::Held(error),
        DecisionError::Unreadable => {
            // A newer worker may know it.
            let (class, code) = (Class::Transient, "decision_unreadable");
            Decoded::Failed(Failure { class, code, message: error.to_string() })
        }
    })
}

fn open(loaded: &Loaded, sealer: &Sealer) -> Result<StoredEvent, Failure> {
    let failure = |class, code, message: &str| Failure { class, code, message: message.to_owned() };
    let provider: Provider = loaded.provider.parse().map_err(|_| {
        failure(Class::Transient, "unknown_provider", "this version does not know the event's provider")
    })?;
    let sealed = loaded.body.as_deref().ok_or_else(|| {
        failure(Class::Permanent, "body_archived", "the raw event's partition was archived; restore it, then redrive")
    })?;
    let body = sealer.open(Column::RawBody, loaded.id, sealed).map_err(|error| match &error {
        // A worker that was not given the key yet; another one may have it.
        OpenError::UnknownKey(_) => failure(Class::Transient, "sealing_key_missing", &error.to_string()),
        OpenError::Format | OpenError::NotSealed | OpenError::Tampered | OpenError::Damaged => {
            failure(Class::Permanent, "body_unreadable", &error.to_string())
        }
    })?;
    Ok(StoredEvent {
        provider,
        account_key: loaded.provider_account_id.clone(),
        external_event_id: loaded.event_id.clone(),
        event_type: loaded.event_type.clone(),
        occurred_at: loaded.occurred_at,
        received_at: loaded.received_at,
        event_id: EventId::from(loaded.id),
        body,
    })
}
