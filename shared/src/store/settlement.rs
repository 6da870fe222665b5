use chrono::SubsecRound;
use diesel::PgConnection;
use serde::Serialize;
use uuid::Uuid;

use super::ledger::json;
use super::{Bind, NewDeadLetter, Sql, StoreError, dead_letters};
use crate::domain::Time;

/// How an event leaves a worker's hands.
#[derive(Debug, Clone)]
pub struct Settled {
    pub id: Uuid,
    pub ending: Ending,
    /// Whether the event failed before: then a dead letter may be waiting for this result.
    pub failed_before: bool,
}

/// The ways an event can leave a worker's hands.
#[derive(Debug, Clone)]
pub enum Ending {
    /// Its facts are in the ledger.
    Processed,
    /// It carries nothing for the ledger.
    Ignored,
    /// A person has to look before it may touch the ledger.
    Quarantined(FailedAttempt),
    /// It is tried again then.
    Retrying { failed: FailedAttempt, at: Time },
    /// It is given up until a person redrives it.
    Dead { failed: FailedAttempt, letter: NewDeadLetter },
}

/// A failed attempt, for the history.
#[derive(Debug, Clone)]
pub struct FailedAttempt {
    /// The number of this attempt, from one.
    pub attempt: i32,
    pub lane: &'static str,
    pub worker: String,
    pub class: &'static str,
    pub code: &'static str,
    pub message: String,
}

#[derive(Serialize)]
struct InboxRow<'a> {
    id: Uuid,
    status: &'static str,
    failures: i32,
    next_attempt_at: Option<Time>,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    processed_at: Option<Time>,
}

#[derive(Serialize)]
struct AttemptRow<'a> {
    event_id: Uuid,
    attempt: i32,
    at: Time,
    lane: &'static str,
    worker: &'a str,
    class: &'static str,
    error_code: &'static str,
    error_message: &'a str,
    fate: &'static str,
}

#[derive(Serialize)]
struct RetryRow {
    id: Uuid,
    event_id: Uuid,
    due_at: Time,
}

impl Ending {
    fn status(&self) -> &'static str {
        match self {
            Ending::Processed => "processed",
            Ending::Ignored => "ignored",
            Ending::Quarantined(_) => "quarantined",
            Ending::Retrying { .. } => "retrying",
            Ending::Dead { .. } => "dead",
        }
    }

    fn failed(&self) -> Option<(&FailedAttempt, &'static str)> {
        match self {
            Ending::Processed | Ending::Ignored => None,
            Ending::Quarantined(failed) => Some((failed, "quarantined")),
            Ending::Retrying { failed, .. } => Some((failed, "retry")),
            Ending::Dead { failed, .. } => Some((failed, "dead")),
        }
    }
}

/// Writes what became of events: status, history, retries, dead letters. Part of the transaction that did the work.
pub fn settle_events(connection: &mut PgConnection, now: Time, settled: &[Settled]) -> Result<(), StoreError> {
    // PostgreSQL keeps microseconds. It rounds a time in JSON and is handed a bound one cut off: what is one instant here
    // must not become two there.
    let now = now.trunc_subsecs(6);
    update_inbox(connection, now, settled)?;
    resolve_redriven(connection, now, settled)?;
    insert_attempts(connection, now, settled)?;
    schedule_retries(connection, settled)?;
    for settled in settled {
        if let Ending::Dead { letter, .. } = &settled.ending {
            dead_letters::bury(connection, now, Some(settled.id), letter)?;
        }
    }
    Ok(())
}

fn update_inbox(connection: &mut PgConnection, now: Time, settled: &[Settled]) -> Result<(), StoreError> {
    const UPDATE: &str = "
        UPDATE webhook.inbox i
           SET status = s.status, attempt_count = i.attempt_count + 1, failure_count = i.failure_count + s.failures,
               next_attempt_at = s.next_attempt_at, last_error_code = s.error_code, last_error_message = s.error_message,
               processed_at = s.processed_at
          FROM json_to_recordset($1::json)
               AS s (id uuid, status text, failures integer, next_attempt_at timestamptz, error_code text,
                     error_message text, processed_at timestamptz)
         WHERE i.id = s.id AND i.id = ANY($2)";
    let rows = settled.iter().map(|settled| {
        let failed = settled.ending.failed().map(|(failed, _)| failed);
        InboxRow {
            id: settled.id,
            status: settled.ending.status(),
            failures: i32::from(failed.is_some()),
            next_attempt_at: if let Ending::Retrying { at, .. } = settled.ending { Some(at) } else { None },
            error_code: failed.map(|failed| failed.code),
            error_message: failed.map(|failed| failed.message.as_str()),
            processed_at: failed.is_none().then_some(now),
        }
    });
    let json = json(&rows.collect::<Vec<_>>())?;
    // Named as an array too: the planner reads a key's index for an array, but guesses how long a JSON text is.
    let ids: Vec<Uuid> = settled.iter().map(|settled| settled.id).collect();
    Sql::new(UPDATE, &[Bind::Text(&json), Bind::Uuids(&ids)]).run(connection)?;
    Ok(())
}

/// A redriven dead letter is resolved by the success it was redriven for. An event that ends in quarantine instead is
/// asked about there, and its letter must not wait for ever.
fn resolve_redriven(connection: &mut PgConnection, now: Time, settled: &[Settled]) -> Result<(), StoreError> {
    const RESOLVE: &str = "
        UPDATE webhook.dead_letters SET status = 'resolved', closed_at = $1
         WHERE event_id = ANY($2) AND status IN ('replaying', 'open')";
    let is_final = |ending: &Ending| !matches!(ending, Ending::Retrying { .. } | Ending::Dead { .. });
    let candidates: Vec<Uuid> =
        settled.iter().filter(|s| s.failed_before && is_final(&s.ending)).map(|s| s.id).collect();
    if !candidates.is_empty() {
        Sql::new(RESOLVE, &[Bind::Time(now), Bind::Uuids(&candidates)]).run(connection)?;
    }
    Ok(())
}

fn insert_attempts(connection: &mut PgConnection, now: Time, settled: &[Settled]) -> Result<(), StoreError> {
    const INSERT: &str = "
        INSERT INTO webhook.attempts SELECT * FROM json_populate_recordset(NULL::webhook.attempts, $1::json)";
    let rows: Vec<AttemptRow<'_>> = settled
        .iter()
        .filter_map(|settled| settled.ending.failed().map(|(failed, fate)| (settled.id, failed, fate)))
        .map(|(event_id, failed, fate)| AttemptRow {
            event_id,
            attempt: failed.attempt,
            at: now,
            lane: failed.lane,
            worker: &failed.worker,
            class: failed.class,
            error_code: failed.code,
            error_message: &failed.message,
            fate,
        })
        .collect();
    if !rows.is_empty() {
        Sql::new(INSERT, &[Bind::Text(&json(&rows)?)]).run(connection)?;
    }
    Ok(())
}

/// A retry keeps the lane of its event.
fn schedule_retries(connection: &mut PgConnection, settled: &[Settled]) -> Result<(), StoreError> {
    const INSERT: &str = "
        INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at)
        SELECT r.id, r.event_id, i.lane, 'retry', r.due_at
          FROM json_to_recordset($1::json) AS r (id uuid, event_id uuid, due_at timestamptz)
          JOIN webhook.inbox i ON i.id = r.event_id";
    let rows: Vec<RetryRow> = settled
        .iter()
        .filter_map(|settled| match settled.ending {
            Ending::Retrying { at, .. } => Some(RetryRow { id: Uuid::now_v7(), event_id: settled.id, due_at: at }),
            _ => None,
        })
        .collect();
    if !rows.is_empty() {
        Sql::new(INSERT, &[Bind::Text(&json(&rows)?)]).run(connection)?;
    }
    Ok(())
}

/// An event, or a contradiction between the facts of one subject, that a person has to look at.
#[derive(Debug, Clone, Serialize)]
pub struct NewQuarantine {
    pub id: Uuid,
    pub reason: &'static str,
    pub provider: String,
    pub provider_account_id: String,
    pub event_id: Uuid,
    pub subject_kind: Option<&'static str>,
    pub subject_id: Option<String>,
    pub detail: String,
}

/// Opens quarantine entries. One that is there already, open or closed, stays as it is.
pub fn open_quarantine(connection: &mut PgConnection, now: Time, entries: &[NewQuarantine]) -> Result<(), StoreError> {
    const INSERT: &str = "
        WITH now AS (SELECT $1 AS at)
        INSERT INTO webhook.quarantine (id, reason, provider, provider_account_id, event_id, subject_kind, subject_id, detail,
                                        opened_at)
        SELECT q.*, now.at
          FROM now, json_to_recordset($2::json)
               AS q (id uuid, reason text, provider text, provider_account_id text, event_id uuid, subject_kind text,
                     subject_id text, detail text)
        ON CONFLICT DO NOTHING";
    if !entries.is_empty() {
        Sql::new(INSERT, &[Bind::Time(now), Bind::Text(&json(entries)?)]).run(connection)?;
    }
    Ok(())
}
