use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use shared::domain::{
    Class, Failure, Lane, Ledger, Outcome, RecordedFact, RetryPolicy, Settlement, SubjectKind, settle,
};
use shared::sealing::Sealer;
use shared::service::Metrics;
use shared::store::{
    self, Connection, Ending, FailedAttempt, Loaded, NewDeadLetter, NewQuarantine, PgConnection, Pool, Settled,
    StoreError, SubjectKey,
};
use uuid::Uuid;

use crate::decode::{Decoded, decode};
use crate::folding;
use crate::metrics::{DeadLetteredLabels, FailureLabels, LagLabels, ProcessedLabels, QuarantinedLabels, WorkerMetrics};

/// How often a batch that lost against another transaction goes again before its events are tried one by one.
const CONTENDED_TRIES: u32 = 3;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Our database is away: nobody's fault, and nobody's attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseAway;

/// Projects events into the ledger.
pub struct Projector {
    pub(crate) pool: Pool,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) policy: RetryPolicy,
    /// Who we are, in the history of attempts.
    pub(crate) worker: String,
    pub(crate) metrics: WorkerMetrics,
}

/// What became of one event.
struct Report {
    event: Loaded,
    result: Result<Outcome, Failure>,
    ending: Ending,
}

impl Projector {
    /// A projector that counts into `metrics`, and signs its attempts as `worker`.
    pub fn new(pool: Pool, sealer: Arc<Sealer>, policy: RetryPolicy, worker: String, metrics: &mut Metrics) -> Self {
        Projector { pool, sealer, policy, worker, metrics: WorkerMetrics::register(metrics.registry()) }
    }

    /// Settles the events: afterwards each is processed, ignored, quarantined, waiting for a retry, or a dead letter.
    ///
    /// Tries them in one transaction. When that fails, each goes alone, so that only the guilty one suffers. Returns the
    /// events of which not even the failure could be recorded; they are as they were.
    pub fn project(&self, lane: Lane, ids: &[Uuid]) -> Result<Vec<Uuid>, DatabaseAway> {
        let failure = match self.try_batch(lane, ids) {
            Ok(reports) => {
                self.count(lane, &reports);
                return Ok(Vec::new());
            }
            Err(failure) if failure.class == Class::Unavailable => return Err(DatabaseAway),
            Err(failure) => failure,
        };
        match ids {
            [id] => self.record_failure(lane, *id, failure),
            _ => {
                let alone = ids.iter().map(|id| self.project(lane, std::slice::from_ref(id)));
                alone.collect::<Result<Vec<_>, _>>().map(|unrecorded| unrecorded.concat())
            }
        }
    }

    fn try_batch(&self, lane: Lane, ids: &[Uuid]) -> Result<Vec<Report>, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            // The connection is taken inside, so that a panic drops it in the middle of its transaction, and the pool
            // with it: nobody else continues that transaction.
            match catch_unwind(AssertUnwindSafe(|| self.run_batch(lane, ids))) {
                Ok(Err(StoreError::Contended)) if tries < CONTENDED_TRIES => {}
                Ok(result) => return result.map_err(Failure::from),
                Err(_) => {
                    let message = "the worker panicked while projecting the event".to_owned();
                    return Err(Failure { class: Class::Permanent, code: "worker_panic", message });
                }
            }
        }
    }

    fn run_batch(&self, lane: Lane, ids: &[Uuid]) -> Result<Vec<Report>, StoreError> {
        let mut connection = store::get(&self.pool)?;
        store::in_transaction(&mut connection, |connection| {
            let loaded = store::load_for_processing(connection, ids)?;
            self.bury_unknown(connection, lane, ids, &loaded)?;
            let open: Vec<Loaded> = loaded.into_iter().filter(|event| !event.is_settled()).collect();
            let decoded: Vec<Decoded> = open.iter().map(|event| decode(event, &self.sealer)).collect();
            let ledger = Projection::apply(connection, &decoded)?;
            let reports: Vec<Report> = open
                .into_iter()
                .zip(&decoded)
                .map(|(event, decoded)| self.judge(lane, event, ledger.outcome(decoded), decoded.complaint()))
                .collect();
            let held: Vec<NewQuarantine> = reports.iter().filter_map(Report::quarantine).collect();
            store::open_quarantine(connection, Utc::now(), &held)?;
            let contradictions: Vec<NewQuarantine> = ledger.contradictions().collect();
            store::settle_contradictions(connection, Utc::now(), &ledger.folded(), &contradictions)?;
            let settled: Vec<Settled> = reports.iter().map(Report::settled).collect();
            store::settle_events(connection, Utc::now(), &settled)?;
            Ok(reports)
        })
    }

    /// A message may name an event that we do not have: after a restore from a backup, say.
    fn bury_unknown(
        &self,
        connection: &mut PgConnection,
        lane: Lane,
        ids: &[Uuid],
        loaded: &[Loaded],
    ) -> Result<(), StoreError> {
        for id in ids.iter().filter(|id| !loaded.iter().any(|event| event.id == **id)) {
            let letter = NewDeadLetter {
                source: "worker",
                lane: lane.as_str(),
                code: "unknown_event",
                message: format!("the message names event {id}, which the inbox does not have"),
                worker_version: VERSION,
            };
            store::bury(connection, Utc::now(), Some(*id), &letter)?;
        }
        Ok(())
    }

    /// Turns the result of an attempt into the fate of the event. `complaint` says what is wrong with a held one.
    fn judge(&self, lane: Lane, event: Loaded, result: Result<Outcome, Failure>, complaint: String) -> Report {
        let failures = u32::try_from(event.failure_count).unwrap_or(0);
        let failed = |class, code, message: String| FailedAttempt {
            attempt: event.attempt_count.saturating_add(1),
            lane: lane.as_str(),
            worker: self.worker.clone(),
            class,
            code,
            message,
        };
        let ending = match (&result, settle(&result, failures, &self.policy, rand::random())) {
            (Ok(Outcome::Held(code)), _) => Ending::Quarantined(failed("quarantined", code, complaint)),
            (Ok(Outcome::Ignored), _) => Ending::Ignored,
            (Ok(Outcome::Applied | Outcome::Noop | Outcome::Stale), _) => Ending::Processed,
            (Err(failure), Settlement::RetryAfter(delay)) => Ending::Retrying {
                failed: failed(class_name(failure.class), failure.code, failure.message.clone()),
                at: Utc::now() + TimeDelta::from_std(delay).unwrap_or(TimeDelta::minutes(10)),
            },
            // An outage is not recorded but waited for; should one come here, the event goes again at once.
            (Err(failure), Settlement::PauseAndRequeue | Settlement::Ack) => Ending::Retrying {
                failed: failed(class_name(failure.class), failure.code, failure.message.clone()),
                at: Utc::now(),
            },
            (Err(failure), Settlement::Bury(_)) => Ending::Dead {
                failed: failed(class_name(failure.class), failure.code, failure.message.clone()),
                letter: NewDeadLetter {
                    source: if failure.code == CRASH_LOOP { "broker" } else { "worker" },
                    lane: lane.as_str(),
                    code: failure.code,
                    message: failure.message.clone(),
                    worker_version: VERSION,
                },
            },
        };
        Report { event, result, ending }
    }

    /// Records that an event could not be projected, in a transaction of its own: the one that failed is rolled back.
    pub(crate) fn record_failure(&self, lane: Lane, id: Uuid, failure: Failure) -> Result<Vec<Uuid>, DatabaseAway> {
        let recorded = store::get(&self.pool).and_then(|mut connection: Connection| {
            store::in_transaction(&mut connection, |connection| {
                let loaded = store::load_for_processing(connection, &[id])?;
                let open = loaded.into_iter().filter(|event| !event.is_settled());
                let reports: Vec<Report> =
                    open.map(|event| self.judge(lane, event, Err(failure.clone()), String::new())).collect();
                let settled: Vec<Settled> = reports.iter().map(Report::settled).collect();
                store::settle_events(connection, Utc::now(), &settled)?;
                Ok(reports)
            })
        });
        match recorded {
            Ok(reports) => {
                self.count(lane, &reports);
                Ok(Vec::new())
            }
            Err(StoreError::Unavailable | StoreError::Contended) => Err(DatabaseAway),
            Err(error) => {
                log::error!("worker: event {id} failed ({failure}), and that could not be recorded: {error}");
                Ok(vec![id])
            }
        }
    }

    fn count(&self, lane: Lane, reports: &[Report]) {
        let now = Utc::now();
        for report in reports {
            let Report { event, result, ending } = report;
            let provider =
                shared::providers::Provider::ALL.into_iter().map(|p| p.as_str()).find(|p| *p == event.provider);
            let provider = provider.unwrap_or("other");
            let event_class = event.lane.parse::<Lane>().map_or("other", Lane::as_str);
            let lag = (now - event.received_at).to_std().unwrap_or_default().as_secs_f64();
            match result {
                Ok(Outcome::Held(reason)) => {
                    log::warn!("worker: event {} quarantined: {reason}", event.id);
                    self.metrics.quarantined.get_or_create(&QuarantinedLabels { provider, reason }).inc();
                }
                Ok(outcome) => {
                    let labels = ProcessedLabels { provider, event_class, outcome: outcome.as_str() };
                    self.metrics.processed.get_or_create(&labels).inc();
                    let labels = LagLabels { provider, event_class, lane: lane.as_str() };
                    self.metrics.lag.get_or_create(&labels).observe(lag);
                }
                Err(failure) => self.count_failure(provider, event, failure, ending),
            }
        }
    }

    fn count_failure(&self, provider: &'static str, event: &Loaded, failure: &Failure, ending: &Ending) {
        let error_code = failure.code;
        let dead = matches!(ending, Ending::Dead { .. });
        let retryable = if dead { "false" } else { "true" };
        self.metrics.failures.get_or_create(&FailureLabels { provider, error_code, retryable }).inc();
        if let Ending::Dead { letter, .. } = ending {
            let labels = DeadLetteredLabels { provider, error_code, source: letter.source };
            self.metrics.dead_lettered.get_or_create(&labels).inc();
        }
        let fate = if dead { "it is a dead letter now" } else { "it will be tried again" };
        log::warn!("worker: event {} failed: {failure}; {fate}", event.id);
    }
}

/// The code of events that workers died with.
pub(crate) const CRASH_LOOP: &str = "crash_loop";

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Unavailable | Class::Transient => "transient",
        Class::Permanent => "permanent",
    }
}

impl Report {
    fn settled(&self) -> Settled {
        Settled { id: self.event.id, ending: self.ending.clone(), failed_before: self.event.attempt_count > 0 }
    }

    /// The entry of an event that cannot be understood.
    fn quarantine(&self) -> Option<NewQuarantine> {
        let Ending::Quarantined(failed) = &self.ending else { return None };
        Some(NewQuarantine {
            id: Uuid::now_v7(),
            reason: failed.code,
            provider: self.event.provider.clone(),
            provider_account_id: self.event.provider_account_id.clone(),
            event_id: self.event.id,
            subject_kind: None,
            subject_id: None,
            detail: failed.message.clone(),
        })
    }
}

/// What a batch did to the ledger.
#[derive(Default)]
struct Projection {
    facts: BTreeMap<SubjectKey, Vec<RecordedFact>>,
    ledgers: Vec<(SubjectKey, Ledger)>,
    changed: HashSet<SubjectKey>,
    /// Subscriptions that were folded because their users moved, though no event of the batch names them.
    moved: BTreeSet<SubjectKey>,
}

impl Projection {
    /// Records the facts, folds every subject they touch from all its facts, and brings the rows up to date.
    fn apply(connection: &mut PgConnection, decoded: &[Decoded]) -> Result<Self, StoreError> {
        let new: Vec<&(SubjectKey, RecordedFact)> = decoded.iter().flat_map(Decoded::facts).collect();
        if new.is_empty() {
            return Ok(Projection::default());
        }
        let named: BTreeSet<SubjectKey> = new.iter().map(|(key, _)| key.clone()).collect();
        let moved = folding::lock(connection, &named)?;
        store::insert_facts(connection, &new)?;
        let subjects: Vec<&SubjectKey> = named.union(&moved).collect();
        let facts = store::load_facts(connection, &subjects)?;
        let ledgers = folding::fold_all(connection, facts.iter().map(|(key, facts)| (*key, facts)), &BTreeMap::new())?;
        let changed = store::upsert_ledgers(connection, &ledgers)?.into_iter().cloned().collect();
        let ledgers = ledgers.into_iter().map(|(key, ledger)| (key.clone(), ledger)).collect();
        let facts = facts.into_iter().map(|(key, facts)| (key.clone(), facts)).collect();
        Ok(Projection { facts, ledgers, changed, moved })
    }

    /// What one event of the batch came to.
    fn outcome(&self, decoded: &Decoded) -> Result<Outcome, Failure> {
        match decoded {
            Decoded::Failed(failure) => Err(failure.clone()),
            Decoded::Held(error) => Ok(Outcome::Held(error.code)),
            Decoded::Facts(facts) if facts.is_empty() => Ok(Outcome::Ignored),
            Decoded::Facts(facts) if facts.iter().any(|(key, _)| self.is_changed(key)) => Ok(Outcome::Applied),
            Decoded::Facts(facts) if facts.iter().all(|(key, fact)| self.is_old_news(key, fact)) => Ok(Outcome::Stale),
            Decoded::Facts(_) => Ok(Outcome::Noop),
        }
    }

    /// A user has no rows; what changes are those of the subscriptions that moved.
    fn is_changed(&self, key: &SubjectKey) -> bool {
        match key.subject.kind {
            SubjectKind::User => self.moved.iter().any(|subscription| self.changed.contains(subscription)),
            SubjectKind::Payment | SubjectKind::Unlinked | SubjectKind::Subscription => self.changed.contains(key),
        }
    }

    fn is_old_news(&self, key: &SubjectKey, fact: &RecordedFact) -> bool {
        self.facts.get(key).is_some_and(|all| all.iter().any(|other| other.order() > fact.order()))
    }

    fn folded(&self) -> Vec<&SubjectKey> {
        self.ledgers.iter().map(|(key, _)| key).collect()
    }

    /// The entries of facts that contradict each other.
    fn contradictions(&self) -> impl Iterator<Item = NewQuarantine> {
        folding::contradictions(self.ledgers.iter().map(|(key, ledger)| (key, ledger)))
    }
}

impl Decoded {
    fn facts(&self) -> &[(SubjectKey, RecordedFact)] {
        match self {
            Decoded::Facts(facts) => facts,
            Decoded::Held(_) | Decoded::Failed(_) => &[],
        }
    }

    /// What is wrong with an event that cannot be understood: a code and a place, never a value.
    fn complaint(&self) -> String {
        match self {
            Decoded::Held(error) => error.to_string(),
            Decoded::Facts(_) | Decoded::Failed(_) => String::new(),
        }
    }
}
