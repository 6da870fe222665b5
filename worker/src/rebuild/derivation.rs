use std::collections::{BTreeMap, BTreeSet, HashMap};

use shared::domain::RecordedFact;
use shared::sealing::Sealer;
use shared::store::{self, Candidate, PgConnection, RowDifference, StoreError, StoredFact, SubjectKey};
use uuid::Uuid;

use super::Difference;
use crate::decode::{Decoded, decode};

/// How many events are opened at once.
const EVENTS: usize = 1000;

/// What the raw events say of some subjects, and where the stored facts say otherwise.
#[derive(Default)]
pub(super) struct Derivation {
    /// All facts of each subject that should be stored, those included that cannot be derived again.
    pub facts: BTreeMap<SubjectKey, Vec<RecordedFact>>,
    /// Facts that are stored, but that no event states so.
    pub wrong: Vec<(SubjectKey, StoredFact)>,
    /// Facts that are not stored so.
    pub missing: Vec<(SubjectKey, RecordedFact)>,
    /// The events that were read, by whether they state facts.
    pub telling: Vec<Uuid>,
    pub silent: Vec<Uuid>,
    /// Events that cannot be understood any more, or whose bodies are gone. Their facts stay.
    kept: BTreeSet<Uuid>,
}

impl Derivation {
    /// Derives the facts of the subjects again, from every event that is known to speak of them.
    pub fn of(connection: &mut PgConnection, sealer: &Sealer, subjects: &[Candidate]) -> Result<Self, StoreError> {
        let stored = store::stored_facts(connection, &subjects.iter().map(|s| &s.key).collect::<Vec<_>>())?;
        let named = subjects.iter().flat_map(|subject| subject.events.iter().copied());
        let events: BTreeSet<Uuid> = stored.iter().map(|fact| fact.event_id).chain(named).collect();
        let facts = subjects.iter().map(|subject| (subject.key.clone(), Vec::new())).collect();
        let mut derivation = Derivation { facts, ..Derivation::default() };
        for ids in events.into_iter().collect::<Vec<_>>().chunks(EVENTS) {
            for event in store::settled_events_among(connection, ids)? {
                derivation.take(event.id, decode(&event, sealer));
            }
        }
        derivation.compare(stored);
        Ok(derivation)
    }

    fn take(&mut self, event: Uuid, decoded: Decoded) {
        let Decoded::Facts(facts) = decoded else {
            self.kept.insert(event);
            return;
        };
        let list = if facts.is_empty() { &mut self.silent } else { &mut self.telling };
        list.push(event);
        for (key, recorded) in facts {
            if let Some(known) = self.facts.get_mut(&key) {
                known.push(recorded);
            }
        }
    }

    fn compare(&mut self, stored: Vec<StoredFact>) {
        let mut unknown: HashMap<(SubjectKey, Uuid, i16), RecordedFact> = HashMap::new();
        for (key, facts) in &self.facts {
            let name = |recorded: &RecordedFact| (key.clone(), recorded.event_id.uuid(), recorded.ordinal);
            unknown.extend(facts.iter().map(|recorded| (name(recorded), recorded.clone())));
        }
        for fact in stored {
            let Some(key) = fact.key() else { continue };
            if self.kept.contains(&fact.event_id) {
                // What does not even read cannot be folded.
                self.facts.entry(key.clone()).or_default().extend(fact.recorded(&key.subject));
                continue;
            }
            let name = (key, fact.event_id, fact.ordinal);
            if unknown.get(&name).is_some_and(|derived| fact.says(&name.0, derived)) {
                unknown.remove(&name);
            } else {
                self.wrong.push((name.0, fact));
            }
        }
        self.missing = unknown.into_iter().map(|((key, ..), recorded)| (key, recorded)).collect();
        self.missing.sort_by(|a, b| (&a.0, a.1.order()).cmp(&(&b.0, b.1.order())));
    }

    /// The differences between what is stored and what is derived.
    pub fn differences(&self) -> Vec<Difference> {
        let is_same = |stored: &StoredFact, derived: &RecordedFact| {
            stored.event_id == derived.event_id.uuid() && stored.ordinal == derived.ordinal
        };
        let wrong = self.wrong.iter().map(|(key, fact)| {
            let mut derived = self.missing.iter().filter(|(other, _)| other == key).map(|(_, recorded)| recorded);
            Difference::of_fact(key, Some(fact), derived.find(|recorded| is_same(fact, recorded)))
        });
        let missing = self
            .missing
            .iter()
            .filter(|(key, recorded)| !self.wrong.iter().any(|(other, fact)| other == key && is_same(fact, recorded)));
        wrong.chain(missing.map(|(key, recorded)| Difference::of_fact(key, None, Some(recorded)))).collect()
    }

    /// The subjects of which facts or rows differ.
    pub fn differing<'a>(&'a self, rows: &'a [RowDifference]) -> BTreeSet<&'a SubjectKey> {
        let wrong = self.wrong.iter().map(|(key, _)| key);
        let missing = self.missing.iter().map(|(key, _)| key);
        wrong.chain(missing).chain(rows.iter().map(|row| &row.key)).collect()
    }
}
