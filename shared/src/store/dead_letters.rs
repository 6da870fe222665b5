use diesel::connection::Connection as _;
use diesel::sql_types::{Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use uuid::Uuid;

use super::{Audit, Bind, Sql, StoreError, record_audit};
use crate::domain::Time;

/// Why an event is given up.
#[derive(Debug, Clone)]
pub struct NewDeadLetter {
    /// `worker` (judged hopeless) or `broker` (workers died with it, or the message was unreadable).
    pub source: &'static str,
    pub lane: &'static str,
    pub code: &'static str,
    pub message: String,
    pub worker_version: &'static str,
}

/// Writes the dead letter of an event, or reopens it when it failed again after a redrive. A message that names no event
/// gets one too: it shall not be lost without a trace.
pub fn bury(
    connection: &mut PgConnection,
    now: Time,
    event: Option<Uuid>,
    letter: &NewDeadLetter,
) -> Result<(), StoreError> {
    const INSERT: &str = "
        WITH input AS (SELECT $1 AS id, $2 AS event_id, $3 AS lane, $4 AS source, $5 AS code, $6 AS message,
                              $7 AS worker_version, $8 AS at)
        INSERT INTO webhook.dead_letters (id, event_id, provider, provider_account_id, external_event_id, event_type, lane,
                                          source, error_code, error_message, fingerprint, worker_version, first_failed_at,
                                          last_failed_at)
        SELECT n.id, n.event_id, coalesce(i.provider, ''), coalesce(i.provider_account_id, ''), coalesce(i.event_id, ''),
               coalesce(i.event_type, ''), n.lane, n.source, n.code, n.message,
               left(encode(sha256(convert_to(n.code || ' ' || coalesce(i.provider || ' ' || i.event_type, ''), 'UTF8')), 'hex'), 8),
               n.worker_version,
               coalesce((SELECT min(a.at) FROM webhook.attempts a WHERE a.event_id = n.event_id), n.at), n.at
          FROM input n LEFT JOIN webhook.inbox i ON i.id = n.event_id
        ON CONFLICT (event_id) DO UPDATE
           SET status = 'open', closed_at = NULL, closed_by = NULL, closed_reason = NULL, lane = excluded.lane,
               source = excluded.source, error_code = excluded.error_code, error_message = excluded.error_message,
               fingerprint = excluded.fingerprint, worker_version = excluded.worker_version,
               last_failed_at = excluded.last_failed_at";
    let binds = [
        Bind::Uuid(Uuid::now_v7()),
        Bind::OptionalUuid(event),
        Bind::Text(letter.lane),
        Bind::Text(letter.source),
        Bind::Text(letter.code),
        Bind::Text(&letter.message),
        Bind::Text(letter.worker_version),
        Bind::Time(now),
    ];
    Sql::new(INSERT, &binds).run(connection)?;
    Ok(())
}

/// A dead letter as people look at it.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct DeadLetter {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub event_id: Option<Uuid>,
    #[diesel(sql_type = Text)]
    pub provider: String,
    #[diesel(sql_type = Text)]
    pub provider_account_id: String,
    #[diesel(sql_type = Text)]
    pub external_event_id: String,
    #[diesel(sql_type = Text)]
    pub event_type: String,
    #[diesel(sql_type = Text)]
    pub lane: String,
    #[diesel(sql_type = Text)]
    pub source: String,
    #[diesel(sql_type = Text)]
    pub error_code: String,
    #[diesel(sql_type = Text)]
    pub error_message: String,
    #[diesel(sql_type = Text)]
    pub fingerprint: String,
    #[diesel(sql_type = Text)]
    pub worker_version: String,
    #[diesel(sql_type = Integer)]
    pub redrives: i32,
    #[diesel(sql_type = Timestamptz)]
    pub first_failed_at: Time,
    #[diesel(sql_type = Timestamptz)]
    pub last_failed_at: Time,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub closed_at: Option<Time>,
    #[diesel(sql_type = Nullable<Text>)]
    pub closed_by: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub closed_reason: Option<String>,
}

const COLUMNS: &str = "
    SELECT id, event_id, provider, provider_account_id, external_event_id, event_type, lane, source, error_code,
           error_message, fingerprint, worker_version, redrives, first_failed_at, last_failed_at, status, closed_at,
           closed_by, closed_reason
      FROM webhook.dead_letters";

/// Dead letters, the latest failure first; those of one status, or the ones that are not closed.
pub fn list_dead_letters(
    connection: &mut PgConnection,
    status: Option<&str>,
    limit: i64,
) -> Result<Vec<DeadLetter>, StoreError> {
    let text = format!(
        "{COLUMNS} WHERE CASE coalesce($1, '') WHEN '' THEN closed_at IS NULL ELSE status = coalesce($2, '') END
         ORDER BY last_failed_at DESC LIMIT $3"
    );
    let binds = [Bind::OptionalText(status), Bind::OptionalText(status), Bind::BigInt(limit)];
    Ok(Sql::new(&text, &binds).load(connection)?)
}

/// The dead letter with this id, or that of the event with this id (ours or the provider's).
pub fn find_dead_letter(connection: &mut PgConnection, id: &str) -> Result<Option<DeadLetter>, StoreError> {
    let by_ours = format!("{COLUMNS} WHERE id = $1 OR event_id = $2");
    let by_theirs = format!("{COLUMNS} WHERE external_event_id = $1 ORDER BY last_failed_at DESC");
    let found: Vec<DeadLetter> = match Uuid::parse_str(id) {
        Ok(uuid) => Sql::new(&by_ours, &[Bind::Uuid(uuid), Bind::Uuid(uuid)]).load(connection)?,
        Err(_) => Sql::new(&by_theirs, &[Bind::Text(id)]).load(connection)?,
    };
    Ok(found.into_iter().next())
}

/// Sends an open dead letter down the one road again, with a fresh budget of attempts. Its history stays.
///
/// Returns false when the letter is not open any more, or names no event: then nothing was changed.
pub fn redrive(connection: &mut PgConnection, audit: Audit<'_>, now: Time, id: Uuid) -> Result<bool, StoreError> {
    const TAKE: &str = "
        UPDATE webhook.dead_letters SET status = 'replaying', redrives = redrives + 1
         WHERE id = $1 AND status = 'open' AND event_id IS NOT NULL";
    const RESTART: &str = "
        WITH input AS (SELECT $1 AS dead_letter, $2 AS dispatch, $3 AS now),
        restarted AS (
            UPDATE webhook.inbox i
               SET status = 'retrying', next_attempt_at = n.now, failure_count = 0, suspect_count = 0
              FROM input n JOIN webhook.dead_letters d ON d.id = n.dead_letter
             WHERE i.id = d.event_id AND i.status = 'dead'
            RETURNING i.id, n.dispatch, n.now
        )
        INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at)
        SELECT dispatch, id, 'redrive', 'redrive', now FROM restarted";
    connection.transaction(|connection| {
        if Sql::new(TAKE, &[Bind::Uuid(id)]).run(connection)? == 0 {
            return Ok(false);
        }
        let binds = [Bind::Uuid(id), Bind::Uuid(Uuid::now_v7()), Bind::Time(now)];
        if Sql::new(RESTART, &binds).run(connection)? == 0 {
            // An open letter whose event is not dead: the books do not agree, and replaying would make it worse.
            return Err(StoreError::Refused);
        }
        record_audit(connection, audit, "dlq.replay", &id.to_string())?;
        Ok(true)
    })
}

/// Closes an open dead letter for good. The event stays dead, and its facts stay out of the ledger.
///
/// Returns false when the letter is not open any more: then nothing was changed.
pub fn discard(connection: &mut PgConnection, audit: Audit<'_>, now: Time, id: Uuid) -> Result<bool, StoreError> {
    const CLOSE: &str = "
        UPDATE webhook.dead_letters SET status = 'discarded', closed_at = $1, closed_by = $2, closed_reason = $3
         WHERE id = $4 AND status = 'open'";
    connection.transaction(|connection| {
        let binds = [Bind::Time(now), Bind::Text(audit.actor), Bind::Text(audit.reason), Bind::Uuid(id)];
        if Sql::new(CLOSE, &binds).run(connection)? == 0 {
            return Ok(false);
        }
        record_audit(connection, audit, "dlq.discard", &id.to_string())?;
        Ok(true)
    })
}
