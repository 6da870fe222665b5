use std::collections::HashSet;

use chrono::SubsecRound;
use diesel::connection::Connection as _;
use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ledger::json;
use super::orphans::UNKNOWN_PAYMENT;
use super::{Audit, Bind, Sql, StoreError, SubjectKey, record_audit};
use crate::decision::Decision;
use crate::domain::{EventId, Time};

/// The name under which entries are closed that nobody had to look at.
const SYSTEM: &str = "system";

/// What an entry asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineKind {
    /// Two deliveries of one event differ: which one is right?
    Mismatch,
    /// Facts of one subject contradict each other: does the refused one apply?
    Contradiction,
    /// Refunds tell of a payment that nothing else tells of: what is it?
    UnknownPayment,
    /// An event cannot be understood: may it be tried again?
    Held,
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

/// Opens the entries of events that cannot be understood. One that was closed, because the event was to be tried again,
/// is opened again.
pub fn open_quarantine(connection: &mut PgConnection, now: Time, held: &[NewQuarantine]) -> Result<(), StoreError> {
    const OPEN: &str = "
        WITH now AS (SELECT $1 AS at)
        INSERT INTO webhook.quarantine AS known (id, reason, provider, provider_account_id, event_id, detail, opened_at)
        SELECT q.*, now.at
          FROM now, json_to_recordset($2::json)
               AS q (id uuid, reason text, provider text, provider_account_id text, event_id uuid, detail text)
        ON CONFLICT (event_id, reason) WHERE subject_id IS NULL AND reason <> 'payload_mismatch'
        DO UPDATE SET status = 'open', seen_count = known.seen_count + 1, detail = excluded.detail,
                      opened_at = excluded.opened_at, closed_at = NULL, closed_by = NULL, closed_reason = NULL
         WHERE known.status <> 'open'";
    if !held.is_empty() {
        Sql::new(OPEN, &[Bind::Time(now), Bind::Text(&json(held)?)]).run(connection)?;
    }
    Ok(())
}

/// Brings the entries of `folded` subjects to what their folds found: `contradictions` are opened, or opened again when
/// they had gone and came back, and entries are closed whose contradiction is gone.
///
/// An entry that a person closed stays closed until the fold has seen the decision.
pub fn settle_contradictions(
    connection: &mut PgConnection,
    now: Time,
    folded: &[&SubjectKey],
    contradictions: &[NewQuarantine],
) -> Result<(), StoreError> {
    // One question for each subject and reason, whichever events raise it.
    let mut asked = HashSet::new();
    let mut questions: Vec<&NewQuarantine> = Vec::with_capacity(contradictions.len());
    for q in contradictions {
        if asked.insert((&q.provider, &q.provider_account_id, q.subject_kind, &q.subject_id, q.reason)) {
            questions.push(q);
        }
    }
    let questions = json(&questions)?;
    if !contradictions.is_empty() {
        open_contradictions(connection, now, &questions)?;
    }
    if !folded.is_empty() {
        close_resolved(connection, now, folded, &questions)?;
    }
    Ok(())
}

fn open_contradictions(connection: &mut PgConnection, now: Time, questions: &str) -> Result<(), StoreError> {
    const OPEN: &str = "
        WITH now AS (SELECT $1 AS at)
        INSERT INTO webhook.quarantine AS known (id, reason, provider, provider_account_id, event_id, subject_kind, subject_id,
                                                 detail, opened_at)
        SELECT q.*, now.at
          FROM now, json_to_recordset($2::json)
               AS q (id uuid, reason text, provider text, provider_account_id text, event_id uuid, subject_kind text,
                     subject_id text, detail text)
        ON CONFLICT (provider, provider_account_id, subject_kind, subject_id, reason) WHERE subject_id IS NOT NULL
        DO UPDATE SET status = 'open', seen_count = known.seen_count + 1, event_id = excluded.event_id,
                      opened_at = excluded.opened_at, closed_at = NULL, closed_by = NULL, closed_reason = NULL,
                      decision_event_id = NULL
         WHERE known.status <> 'open'
           AND (known.decision_event_id IS NULL
                OR EXISTS (SELECT 1 FROM ledger_facts f WHERE f.event_id = known.decision_event_id))";
    Sql::new(OPEN, &[Bind::Time(now), Bind::Text(questions)]).run(connection)?;
    Ok(())
}

fn close_resolved(
    connection: &mut PgConnection,
    now: Time,
    folded: &[&SubjectKey],
    questions: &str,
) -> Result<(), StoreError> {
    const CLOSE: &str = "
        UPDATE webhook.quarantine q
           SET status = 'released', closed_at = $1, closed_by = $2, closed_reason = 'resolved by later events'
          FROM unnest($3, $4, $5, $6) AS f (provider, account, kind, id)
         WHERE q.status = 'open' AND q.subject_id = ANY($7) AND q.subject_id = f.id AND q.subject_kind = f.kind
           AND q.provider = f.provider AND q.provider_account_id = f.account
           AND NOT EXISTS (SELECT 1
                             FROM json_to_recordset($8::json)
                                  AS r (provider text, provider_account_id text, subject_kind text, subject_id text, reason text)
                            WHERE r.provider = q.provider AND r.provider_account_id = q.provider_account_id
                              AND r.subject_kind = q.subject_kind AND r.subject_id = q.subject_id AND r.reason = q.reason)
           AND (q.reason <> $9
                OR EXISTS (SELECT 1 FROM payments p
                            WHERE p.provider = q.provider AND p.provider_account_id = q.provider_account_id
                              AND p.payment_id = q.subject_id))";
    let providers: Vec<&str> = folded.iter().map(|key| key.provider).collect();
    let accounts: Vec<&str> = folded.iter().map(|key| key.account_key.as_str()).collect();
    let kinds: Vec<&str> = folded.iter().map(|key| key.subject.kind.as_str()).collect();
    let ids: Vec<&str> = folded.iter().map(|key| key.subject.id.as_str()).collect();
    let binds = [
        Bind::Time(now),
        Bind::Text(SYSTEM),
        Bind::Texts(&providers),
        Bind::Texts(&accounts),
        Bind::Texts(&kinds),
        Bind::Texts(&ids),
        Bind::Texts(&ids),
        Bind::Text(questions),
        Bind::Text(UNKNOWN_PAYMENT),
    ];
    Sql::new(CLOSE, &binds).run(connection)?;
    Ok(())
}

/// One entry of the quarantine.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct QuarantineRow {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Text)]
    pub reason: String,
    #[diesel(sql_type = Text)]
    pub provider: String,
    #[diesel(sql_type = Text)]
    pub provider_account_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub environment: Option<String>,
    #[diesel(sql_type = SqlUuid)]
    pub event_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    pub external_event_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub event_type: Option<String>,
    /// What became of the event itself.
    #[diesel(sql_type = Nullable<Text>)]
    pub event_status: Option<String>,
    /// The later, different delivery of the event.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub raw_event_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    pub subject_kind: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub subject_id: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub seen_count: i64,
    #[diesel(sql_type = Text)]
    pub detail: String,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = Timestamptz)]
    pub opened_at: Time,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub closed_at: Option<Time>,
    #[diesel(sql_type = Nullable<Text>)]
    pub closed_by: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub closed_reason: Option<String>,
    /// The event by which the ledger learns of the decision, where it has to.
    #[diesel(sql_type = Nullable<SqlUuid>)]
    pub decision_event_id: Option<Uuid>,
}

impl QuarantineRow {
    pub fn kind(&self) -> QuarantineKind {
        match (&self.raw_event_id, &self.subject_id) {
            (Some(_), _) => QuarantineKind::Mismatch,
            (None, Some(_)) if self.reason == UNKNOWN_PAYMENT => QuarantineKind::UnknownPayment,
            (None, Some(_)) => QuarantineKind::Contradiction,
            (None, None) => QuarantineKind::Held,
        }
    }
}

const COLUMNS: &str = "
    SELECT q.id, q.reason, q.provider, q.provider_account_id, i.environment, q.event_id, i.event_id AS external_event_id,
           i.event_type, i.status AS event_status, q.raw_event_id, q.subject_kind, q.subject_id, q.seen_count, q.detail,
           q.status, q.opened_at, q.closed_at, q.closed_by, q.closed_reason, q.decision_event_id
      FROM webhook.quarantine q
      LEFT JOIN webhook.inbox i ON i.id = q.event_id";

/// The newest entries, open ones only unless `all`.
pub fn list_quarantine(connection: &mut PgConnection, all: bool, limit: i64) -> Result<Vec<QuarantineRow>, StoreError> {
    let text = format!("{COLUMNS} WHERE q.status = 'open' OR $1 = 1 ORDER BY q.opened_at DESC LIMIT $2");
    Ok(Sql::new(&text, &[Bind::Int(i32::from(all)), Bind::BigInt(limit)]).load(connection)?)
}

/// The entries about one event, first one first.
pub fn quarantine_of(connection: &mut PgConnection, event: Uuid) -> Result<Vec<QuarantineRow>, StoreError> {
    let text = format!("{COLUMNS} WHERE q.event_id = $1 ORDER BY q.opened_at");
    Ok(Sql::new(&text, &[Bind::Uuid(event)]).load(connection)?)
}

/// The entry with this id; else those about the event with this id, ours or the provider's, first one first.
pub fn find_quarantine(connection: &mut PgConnection, id: &str) -> Result<Vec<QuarantineRow>, StoreError> {
    let Ok(ours) = Uuid::parse_str(id) else {
        let text = format!("{COLUMNS} WHERE i.event_id = $1 ORDER BY q.opened_at");
        return Ok(Sql::new(&text, &[Bind::Text(id)]).load(connection)?);
    };
    let text = format!("{COLUMNS} WHERE q.id = $1");
    let found: Vec<QuarantineRow> = Sql::new(&text, &[Bind::Uuid(ours)]).load(connection)?;
    if found.is_empty() { quarantine_of(connection, ours) } else { Ok(found) }
}

/// One delivery of an event, as it came. The body is still sealed.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct Delivery {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Text)]
    pub event_type: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub occurred_at: Option<Time>,
    #[diesel(sql_type = Timestamptz)]
    pub received_at: Time,
    #[diesel(sql_type = Nullable<Integer>)]
    pub key_version: Option<i32>,
    #[diesel(sql_type = Integer)]
    pub body_bytes: i32,
    #[diesel(sql_type = Text)]
    pub body_sha256: String,
    #[diesel(sql_type = Binary)]
    #[serde(skip)]
    pub body: Vec<u8>,
}

/// The delivery that the raw store keeps under this id. None when its partition was archived and dropped.
pub fn find_delivery(connection: &mut PgConnection, id: Uuid) -> Result<Option<Delivery>, StoreError> {
    const FIND: &str = "
        SELECT id, event_type, occurred_at, received_at, key_version, body_bytes, encode(body_sha256, 'hex') AS body_sha256, body
          FROM webhook.raw_events WHERE id = $1 AND received_at = $2";
    let binds = [Bind::Uuid(id), Bind::Time(EventId::from(id).received_at())];
    Ok(Sql::new(FIND, &binds).load(connection)?.into_iter().next())
}

/// How a person closes an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    Released,
    Rejected,
}

impl Closing {
    fn status(self) -> &'static str {
        match self {
            Closing::Released => "released",
            Closing::Rejected => "rejected",
        }
    }

    /// What the audit log calls it.
    fn action(self) -> &'static str {
        match self {
            Closing::Released => "quarantine.release",
            Closing::Rejected => "quarantine.reject",
        }
    }
}

/// A decision that the ledger has to know of, its body already sealed for the event `id`.
#[derive(Debug, Clone)]
pub struct NewDecision {
    pub id: EventId,
    pub body_sha256: [u8; 32],
    pub body_bytes: i32,
    pub sealed_body: Vec<u8>,
}

impl NewDecision {
    pub fn new(id: EventId, body: &[u8], sealed_body: Vec<u8>) -> Self {
        let body_bytes = i32::try_from(body.len()).unwrap_or(i32::MAX);
        NewDecision { id, body_sha256: Sha256::digest(body).into(), body_bytes, sealed_body }
    }
}

/// Closes an open entry that the ledger need not hear of.
///
/// Returns false when the entry is not open any more: then nothing was changed.
pub fn close_quarantine(
    connection: &mut PgConnection,
    audit: Audit<'_>,
    now: Time,
    id: Uuid,
    closing: Closing,
) -> Result<bool, StoreError> {
    connection.transaction(|connection| close(connection, audit, now, id, closing, None))
}

/// Closes an open entry by a decision that takes the one road into the ledger, as an event of origin `operator`.
///
/// Returns false when the entry is not open any more: then nothing was changed.
pub fn decide_quarantine(
    connection: &mut PgConnection,
    audit: Audit<'_>,
    now: Time,
    id: Uuid,
    closing: Closing,
    decision: &NewDecision,
) -> Result<bool, StoreError> {
    connection.transaction(|connection| {
        let closed = close(connection, audit, now, id, closing, Some(decision.id.uuid()))?;
        if closed {
            insert_decision(connection, now, id, decision)?;
        }
        Ok(closed)
    })
}

/// Releases an open entry by sending its event down the one road again, with a fresh budget of attempts.
///
/// Returns false when the entry is not open any more: then nothing was changed.
pub fn retry_quarantined(
    connection: &mut PgConnection,
    audit: Audit<'_>,
    now: Time,
    id: Uuid,
) -> Result<bool, StoreError> {
    const RESTART: &str = "
        WITH input AS (SELECT $1 AS quarantine, $2 AS dispatch, $3 AS now),
        restarted AS (
            UPDATE webhook.inbox i
               SET status = 'retrying', next_attempt_at = n.now, failure_count = 0, suspect_count = 0
              FROM input n JOIN webhook.quarantine q ON q.id = n.quarantine
             WHERE i.id = q.event_id AND i.status = 'quarantined'
            RETURNING i.id, n.dispatch, n.now
        )
        INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at)
        SELECT dispatch, id, 'redrive', 'redrive', now FROM restarted";
    connection.transaction(|connection| {
        if !close(connection, audit, now, id, Closing::Released, None)? {
            return Ok(false);
        }
        let binds = [Bind::Uuid(id), Bind::Uuid(Uuid::now_v7()), Bind::Time(now)];
        if Sql::new(RESTART, &binds).run(connection)? == 0 {
            // An open entry whose event is not quarantined: the books do not agree, and trying would make it worse.
            return Err(StoreError::Refused);
        }
        Ok(true)
    })
}

fn close(
    connection: &mut PgConnection,
    audit: Audit<'_>,
    now: Time,
    id: Uuid,
    closing: Closing,
    decision: Option<Uuid>,
) -> Result<bool, StoreError> {
    const CLOSE: &str = "
        UPDATE webhook.quarantine
           SET status = $1, closed_at = $2, closed_by = $3, closed_reason = $4, decision_event_id = $5
         WHERE id = $6 AND status = 'open'";
    let binds = [
        Bind::Text(closing.status()),
        Bind::Time(now),
        Bind::Text(audit.actor),
        Bind::Text(audit.reason),
        Bind::OptionalUuid(decision),
        Bind::Uuid(id),
    ];
    let closed = Sql::new(CLOSE, &binds).run(connection)? > 0;
    if closed {
        record_audit(connection, audit, closing.action(), &id.to_string())?;
    }
    Ok(closed)
}

/// The event belongs to the account, and takes the lane, of the event that the entry is about.
fn insert_decision(
    connection: &mut PgConnection,
    now: Time,
    quarantine: Uuid,
    decision: &NewDecision,
) -> Result<(), StoreError> {
    const INSERT: &str = "
        WITH input AS (
            SELECT $1 AS id, $2 AS quarantine, $3 AS event_id, $4 AS event_type, $5 AS occurred_at, $6 AS received_at,
                   $7 AS sha256, $8 AS body_bytes, $9 AS body
        ), about AS (
            SELECT n.*, i.endpoint_id, i.provider, i.provider_account_id, i.environment, i.lane
              FROM input n
              JOIN webhook.quarantine q ON q.id = n.quarantine
              JOIN webhook.inbox i ON i.id = q.event_id
        ), gate AS (
            INSERT INTO webhook.inbox (id, endpoint_id, provider, provider_account_id, environment, event_id, event_type,
                                       origin, lane, occurred_at, received_at, payload_hash)
            SELECT id, endpoint_id, provider, provider_account_id, environment, event_id, event_type, 'operator', lane,
                   occurred_at, received_at, sha256
              FROM about
        ), raw AS (
            INSERT INTO webhook.raw_events (id, received_at, endpoint_id, provider, provider_account_id, environment,
                                            event_id, event_type, origin, occurred_at, auth_method, auth_state,
                                            body_sha256, payload_hash, body_bytes, body)
            SELECT id, received_at, endpoint_id, provider, provider_account_id, environment, event_id, event_type,
                   'operator', occurred_at, 'operator', 'verified', sha256, sha256, body_bytes, body
              FROM about
        )
        INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at)
        SELECT id, id, lane, 'first', received_at FROM about";
    let received_at = decision.id.received_at();
    Sql::new("SELECT webhook.ensure_raw_partition($1)", &[Bind::Time(received_at)]).run(connection)?;
    let external_id = Decision::external_id(decision.id);
    let binds = [
        Bind::Uuid(decision.id.uuid()),
        Bind::Uuid(quarantine),
        Bind::Text(&external_id),
        Bind::Text(Decision::EVENT_TYPE),
        Bind::Time(now.trunc_subsecs(6)),
        Bind::Time(received_at),
        Bind::Bytes(&decision.body_sha256),
        Bind::Int(decision.body_bytes),
        Bind::Bytes(&decision.sealed_body),
    ];
    // None where the event is not in the inbox, which is never pruned.
    if Sql::new(INSERT, &binds).run(connection)? == 0 { Err(StoreError::Refused) } else { Ok(()) }
}
