//! Derives the facts of all raw events again, folds them, and holds the result against the ledger; writes what they say
//! when asked to.
//!
//! Nothing is copied: the events are read in the order of their ids beside the stored facts, the facts in the order of
//! their subjects beside the rows. Only subjects that differ are put together again from all of their events. So memory
//! does not grow with the ledger, and the tables are not written to unless something is to be repaired.

mod derivation;
mod difference;
mod findings;
mod named;
mod repair;
mod scan;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use shared::domain::{EventId, Subject, SubjectKind, Time};
use shared::providers::Provider;
use shared::sealing::Sealer;
use shared::store::{self, Audit, Candidate, Connection, PgConnection, Pool, StoreError, SubjectKey};
use uuid::Uuid;

use crate::folding::fold_all;
use derivation::Derivation;
use repair::repair;
use scan::Tally;

pub use difference::{ColumnDifference, Difference, What};
pub use findings::{Findings, Kept};

/// How many subjects are put together again at once, and how many are repaired in one transaction.
const EXAMINED: i64 = 200;
const REPAIRED: i64 = 50;
/// How often a repair that lost against another transaction goes again.
const CONTENDED_TRIES: u32 = 5;
/// Users come first: what they own is folded from what was found out about them.
const KINDS: [SubjectKind; 4] =
    [SubjectKind::User, SubjectKind::Payment, SubjectKind::Unlinked, SubjectKind::Subscription];

/// What is looked at.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Events and rows of this provider only.
    pub provider: Option<Provider>,
    /// Only the subjects that events received since then speak of.
    pub since: Option<Time>,
    /// Only this subject. Its events are those that its facts name, those whose search keys name it, its charges or its user,
    /// and what people decided about them.
    pub subject: Option<Subject>,
}

/// Why a rebuild did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    #[error("{0}")]
    Store(StoreError),
    #[error("no event and no row of the ledger knows the subject")]
    UnknownSubject,
    #[error("another part of the rebuild failed")]
    Stopped,
}

impl From<StoreError> for RebuildError {
    fn from(error: StoreError) -> Self {
        RebuildError::Store(error)
    }
}

/// A rebuild. It keeps a session of its own, with the list of subjects that differ.
pub struct Rebuild {
    pool: Pool,
    connection: Connection,
    sealer: Arc<Sealer>,
    scope: Scope,
    /// How many differences are told; all are counted.
    limit: usize,
}

impl Rebuild {
    /// Prepares a rebuild, for which `pool` has to lend three connections.
    pub fn begin(pool: Pool, sealer: Arc<Sealer>, scope: Scope, limit: usize) -> Result<Self, RebuildError> {
        let mut connection = store::get(&pool)?;
        store::begin_rebuild(&mut connection)?;
        Ok(Rebuild { pool, connection, sealer, scope, limit })
    }

    /// How many events there are to read.
    pub fn count_events(&mut self) -> Result<u64, RebuildError> {
        let (first, providers) = (self.first(), self.providers());
        Ok(store::count_settled(&mut self.connection, first, &providers)?)
    }

    fn providers(&self) -> Vec<&'static str> {
        Provider::ALL
            .into_iter()
            .filter(|p| self.scope.provider.is_none_or(|only| only == *p))
            .map(Provider::as_str)
            .collect()
    }

    /// The id after which events are read.
    fn first(&self) -> Uuid {
        self.scope.since.map_or(Uuid::nil(), |since| EventId::before(since).uuid())
    }

    /// Finds all differences, and changes nothing. `on_events` is told how many events have been read.
    pub fn find(&mut self, on_events: &(dyn Fn(u64) + Sync)) -> Result<Findings, RebuildError> {
        let started = Instant::now();
        let tally = match self.scope.subject.clone() {
            Some(subject) => self.name(&subject)?,
            None => self.scan(on_events)?,
        };
        let mut findings = Findings { events: tally.events, facts: tally.facts, ..Findings::default() };
        findings.kept = tally.kept.into_iter().map(|(code, events)| Kept { code, events }).collect();
        self.examine(&mut findings)?;
        findings.take_time(started.elapsed());
        Ok(findings)
    }

    /// Reads everything that is in scope, and notes the subjects that may differ.
    fn scan(&mut self, on_events: &(dyn Fn(u64) + Sync)) -> Result<Tally, RebuildError> {
        let (first, touched, providers) = (self.first(), self.scope.since.is_some(), self.providers());
        let Rebuild { pool, connection, sealer, .. } = self;
        let (suspects, found) = mpsc::sync_channel(4);
        std::thread::scope(|scope| {
            let ledger = suspects.clone();
            let events = scope.spawn(|| {
                let (suspects, mut connection) = (suspects, store::get(pool)?);
                scan::events(&mut connection, sealer, &providers, first, touched, on_events, &suspects)
            });
            let rows = scope.spawn(|| {
                let (suspects, mut connection) = (ledger, store::get(pool)?);
                // Whoever asks for the recently touched gets them from the events.
                for provider in providers.iter().filter(|_| !touched) {
                    scan::rows(&mut connection, provider, &suspects)?;
                    scan::unfounded(&mut connection, provider, &suspects)?;
                }
                Ok(())
            });
            for candidates in found {
                store::note_candidates(connection, &candidates)?;
            }
            joined(rows)?;
            joined(events)
        })
    }

    /// Notes one subject.
    fn name(&mut self, subject: &Subject) -> Result<Tally, RebuildError> {
        let mut tally = Tally::default();
        let provider = self.scope.provider.map(Provider::as_str);
        let found = named::find(&mut self.connection, &self.sealer, subject, provider, &mut tally)?;
        if found.is_empty() {
            return Err(RebuildError::UnknownSubject);
        }
        store::note_candidates(&mut self.connection, &found)?;
        Ok(tally)
    }

    /// Puts every noted subject together again, and keeps on the list only those that differ.
    fn examine(&mut self, findings: &mut Findings) -> Result<(), RebuildError> {
        let Rebuild { connection, sealer, limit, .. } = self;
        let mut corrected = BTreeMap::new();
        for_each_batch(connection, EXAMINED, |connection, batch| {
            let (derivation, rows) = store::in_keyed_snapshot(connection, |connection| {
                let derivation = Derivation::of(connection, sealer, batch)?;
                let ledgers = fold_all(connection, derivation.facts.iter(), &corrected)?;
                let rows = store::compare_rows(connection, &ledgers)?;
                Ok((derivation, rows))
            })?;
            let differing = derivation.differing(&rows);
            let same: Vec<&SubjectKey> = batch.iter().map(|s| &s.key).filter(|key| !differing.contains(key)).collect();
            store::drop_candidates(connection, &same)?;
            for user in differing.iter().filter(|key| key.subject.kind == SubjectKind::User) {
                let owned = store::subscriptions_of_users(connection, user, &[&user.subject.id])?;
                let owned: Vec<_> = owned.into_iter().map(|key| Candidate { key, events: Vec::new() }).collect();
                store::note_candidates(connection, &owned)?;
                corrected.insert((*user).clone(), derivation.facts.get(*user).cloned().unwrap_or_default());
            }
            findings.take(*limit, differing.len(), &derivation, &rows);
            Ok(())
        })
    }

    /// Writes what the raw events say of the subjects that [`Rebuild::find`] found, and says how many it repaired.
    ///
    /// Each batch is one transaction that holds its subjects as a worker does, with its own line in the audit log.
    pub fn apply(&mut self, audit: Audit<'_>) -> Result<u64, RebuildError> {
        let Rebuild { connection, sealer, .. } = self;
        let mut repaired = 0;
        for_each_batch(connection, REPAIRED, |connection, batch| {
            let mut tries = 0;
            loop {
                tries += 1;
                match store::in_transaction(connection, |connection| repair(connection, sealer, batch, audit)) {
                    Err(StoreError::Contended) if tries < CONTENDED_TRIES => {}
                    result => {
                        repaired += result?;
                        return Ok(());
                    }
                }
            }
        })?;
        Ok(repaired)
    }
}

/// What a thread came to. One that panicked has told so on standard error.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, RebuildError>>) -> Result<T, RebuildError> {
    thread.join().unwrap_or(Err(RebuildError::Stopped))
}

/// Runs `work` over all subjects on the list of this session.
fn for_each_batch(
    connection: &mut PgConnection,
    size: i64,
    mut work: impl FnMut(&mut PgConnection, &[Candidate]) -> Result<(), RebuildError>,
) -> Result<(), RebuildError> {
    for kind in KINDS {
        let mut after: Option<SubjectKey> = None;
        loop {
            let batch = store::noted_candidates(connection, kind, after.as_ref(), size)?;
            let Some(last) = batch.last() else { break };
            after = Some(last.key.clone());
            work(connection, &batch)?;
        }
    }
    Ok(())
}
