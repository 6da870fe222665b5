//! Looks for subjects that may differ. Every page is one unchanging picture of the database: an event is settled, its
//! facts are recorded and its rows are written in one transaction, so that live traffic never looks like a difference.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::SyncSender;

use shared::domain::RecordedFact;
use shared::sealing::Sealer;
use shared::store::{self, Candidate, LedgerTable, Loaded, PgConnection, StoreError, StoredFact, SubjectKey};
use uuid::Uuid;

use super::RebuildError;
use crate::decode::{Decoded, decode};
use crate::folding::fold_all;

const EVENTS: i64 = 2_000;
const FACTS: i64 = 4_000;
const ROWS: i64 = 10_000;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub events: u64,
    pub facts: u64,
    /// Events from which no facts could be derived, by the reason.
    pub kept: BTreeMap<&'static str, u64>,
}

/// Where suspects go. Nobody takes them any more when the rebuild has failed elsewhere.
pub(super) type Suspects = SyncSender<Vec<Candidate>>;

fn send(suspects: &Suspects, found: Vec<Candidate>) -> Result<(), RebuildError> {
    if found.is_empty() { Ok(()) } else { suspects.send(found).map_err(|_| RebuildError::Stopped) }
}

/// Derives the facts of all events after `after` again and holds them against the stored ones.
///
/// With `touched`, every subject that the events speak of is a suspect.
pub(super) fn events(
    connection: &mut PgConnection,
    sealer: &Sealer,
    providers: &[&str],
    mut after: Uuid,
    touched: bool,
    on_events: &(dyn Fn(u64) + Sync),
    suspects: &Suspects,
) -> Result<Tally, RebuildError> {
    let mut tally = Tally::default();
    loop {
        let (events, facts) = store::in_keyed_snapshot(connection, |connection| {
            let events = store::settled_events(connection, after, providers, EVENTS)?;
            let last = last_of_full(&events, EVENTS).map_or(Uuid::max(), |event| event.id);
            let facts = store::facts_of_events(connection, after, last, providers)?;
            Ok((events, facts))
        })?;
        send(suspects, compare_facts(&events, &facts, sealer, touched, &mut tally))?;
        on_events(tally.events);
        match last_of_full(&events, EVENTS) {
            Some(last) => after = last.id,
            None => return Ok(tally),
        }
    }
}

/// The last of a page, unless it is the last page.
fn last_of_full<T>(page: &[T], limit: i64) -> Option<&T> {
    page.last().filter(|_| i64::try_from(page.len()).is_ok_and(|length| length >= limit))
}

fn compare_facts(
    events: &[Loaded],
    facts: &[StoredFact],
    sealer: &Sealer,
    touched: bool,
    tally: &mut Tally,
) -> Vec<Candidate> {
    let mut stored: HashMap<Uuid, Vec<&StoredFact>> = HashMap::new();
    for fact in facts {
        stored.entry(fact.event_id).or_default().push(fact);
    }
    let mut suspects: BTreeMap<SubjectKey, Vec<Uuid>> = BTreeMap::new();
    for event in events {
        let known = stored.remove(&event.id).unwrap_or_default();
        let Some(derived) = tally.take(decode(event, sealer)) else { continue };
        let agrees = |(key, recorded): &(SubjectKey, RecordedFact)| known.iter().any(|fact| fact.says(key, recorded));
        if touched || known.len() != derived.len() || !derived.iter().all(agrees) {
            let subjects = derived.into_iter().map(|(key, _)| key).chain(known.iter().filter_map(|fact| fact.key()));
            subjects.for_each(|key| suspects.entry(key).or_default().push(event.id));
        }
    }
    // What is left comes from no settled event.
    for key in stored.into_values().flatten().filter_map(StoredFact::key) {
        suspects.entry(key).or_default();
    }
    suspects.into_iter().map(|(key, events)| Candidate { key, events }).collect()
}

impl Tally {
    /// Counts an event and returns its facts, unless they cannot be derived.
    pub fn take(&mut self, decoded: Decoded) -> Option<Vec<(SubjectKey, RecordedFact)>> {
        self.events += 1;
        let code = match decoded {
            Decoded::Facts(facts) => {
                self.facts += u64::try_from(facts.len()).unwrap_or(0);
                return Some(facts);
            }
            Decoded::Held(error) => error.code,
            Decoded::Failed(failure) => failure.code,
        };
        *self.kept.entry(code).or_default() += 1;
        None
    }
}

/// Folds all stored facts again and holds the rows against what they amount to.
pub(super) fn rows(
    connection: &mut PgConnection,
    provider: &'static str,
    suspects: &Suspects,
) -> Result<(), RebuildError> {
    let mut after = None;
    loop {
        let (found, last) = store::in_keyed_snapshot(connection, |connection| {
            let page = whole_subjects(connection, provider, after.as_ref())?;
            let last = page.last().and_then(StoredFact::key);
            Ok((compare_rows(connection, &page)?, last))
        })?;
        send(suspects, found)?;
        match last {
            Some(last) => after = Some(last),
            None => return Ok(()),
        }
    }
}

/// The next facts, those of the last subject complete.
fn whole_subjects(
    connection: &mut PgConnection,
    provider: &str,
    after: Option<&SubjectKey>,
) -> Result<Vec<StoredFact>, StoreError> {
    let mut page = store::facts_after(connection, provider, after, FACTS)?;
    let Some(cut) = last_of_full(&page, FACTS).and_then(StoredFact::key) else { return Ok(page) };
    if page.first().and_then(StoredFact::key).as_ref() == Some(&cut) {
        return store::stored_facts(connection, &[&cut]);
    }
    page.retain(|fact| fact.key().as_ref() != Some(&cut));
    Ok(page)
}

fn compare_rows(connection: &mut PgConnection, page: &[StoredFact]) -> Result<Vec<Candidate>, StoreError> {
    let mut suspects = Vec::new();
    let mut facts: BTreeMap<SubjectKey, Vec<RecordedFact>> = BTreeMap::new();
    for stored in page {
        let Some(key) = stored.key() else { continue };
        match stored.recorded(&key.subject) {
            Ok(recorded) => facts.entry(key).or_default().push(recorded),
            Err(_) => suspects.push(Candidate { key, events: vec![stored.event_id] }),
        }
    }
    let ledgers = fold_all(connection, facts.iter(), &BTreeMap::new())?;
    let differing = store::compare_rows(connection, &ledgers)?;
    suspects.extend(differing.into_iter().map(|row| Candidate { key: row.key, events: Vec::new() }));
    Ok(suspects)
}

/// Looks for rows of which no fact tells.
pub(super) fn unfounded(
    connection: &mut PgConnection,
    provider: &'static str,
    suspects: &Suspects,
) -> Result<(), RebuildError> {
    for table in LedgerTable::ALL {
        let mut after = Vec::new();
        loop {
            let page = store::unfounded_rows(connection, table, provider, &after, ROWS)?;
            send(suspects, page.subjects.into_iter().map(|key| Candidate { key, events: Vec::new() }).collect())?;
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
    }
    Ok(())
}
