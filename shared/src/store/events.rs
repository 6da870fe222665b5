use diesel::sql_types::{BigInt, Binary, Integer, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::{EventId, Time};

/// An accepted event as the worker needs it. The body is still sealed.
#[derive(Debug, Clone, QueryableByName)]
pub struct Loaded {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Text)]
    pub provider: String,
    #[diesel(sql_type = Text)]
    pub provider_account_id: String,
    #[diesel(sql_type = Text)]
    pub environment: String,
    #[diesel(sql_type = Text)]
    pub event_id: String,
    #[diesel(sql_type = Text)]
    pub event_type: String,
    #[diesel(sql_type = Text)]
    pub lane: String,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = Integer)]
    pub attempt_count: i32,
    #[diesel(sql_type = Integer)]
    pub failure_count: i32,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub occurred_at: Option<Time>,
    #[diesel(sql_type = Timestamptz)]
    pub received_at: Time,
    /// None when the partition that held it was archived and dropped.
    #[diesel(sql_type = Nullable<Binary>)]
    pub body: Option<Vec<u8>>,
}

impl Loaded {
    /// Whether an earlier delivery settled the event.
    pub fn is_settled(&self) -> bool {
        !matches!(self.status.as_str(), "accepted" | "retrying")
    }
}

/// Locks the events' inbox rows, in the order of their ids, and loads them with their bodies. Unknown ids are left out.
pub fn load_for_processing(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Loaded>, StoreError> {
    // The locks come first and in a statement of their own, so that what is read afterwards is what the last holder left.
    const LOCK: &str = "SELECT 1 FROM webhook.inbox WHERE id = ANY($1) ORDER BY id FOR UPDATE";
    const LOAD: &str = "
        SELECT i.id, i.provider, i.provider_account_id, i.environment, i.event_id, i.event_type, i.lane, i.status,
               i.attempt_count, i.failure_count, i.occurred_at, i.received_at, r.body
          FROM webhook.inbox i
          LEFT JOIN webhook.raw_events r ON r.id = i.id AND r.received_at = i.received_at AND r.received_at BETWEEN $1 AND $2
                                        AND r.id = ANY($3)
         WHERE i.id = ANY($4)
         ORDER BY i.id";
    Sql::new(LOCK, &[Bind::Uuids(ids)]).run(connection)?;
    let times = || ids.iter().map(|id| EventId::from(*id).received_at());
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    Ok(Sql::new(LOAD, &[Bind::Time(first), Bind::Time(last), Bind::Uuids(ids), Bind::Uuids(ids)]).load(connection)?)
}

/// How often the broker gave an event up because a worker died with it, this time included.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub struct Suspect {
    #[diesel(sql_type = Integer)]
    pub suspect_count: i32,
}

/// Notes that the broker gave the event up. None if the event is not known.
pub fn mark_suspect(connection: &mut PgConnection, id: Uuid) -> Result<Option<Suspect>, StoreError> {
    const MARK: &str =
        "UPDATE webhook.inbox SET suspect_count = suspect_count + 1 WHERE id = $1 RETURNING suspect_count";
    Ok(Sql::new(MARK, &[Bind::Uuid(id)]).load(connection)?.into_iter().next())
}

/// An event as people look at it. Nothing of the payload but the ids the ledger is keyed by.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct EventRow {
    #[diesel(sql_type = SqlUuid)]
    pub id: Uuid,
    #[diesel(sql_type = Text)]
    pub provider: String,
    #[diesel(sql_type = Text)]
    pub provider_account_id: String,
    #[diesel(sql_type = Text)]
    pub environment: String,
    #[diesel(sql_type = Text)]
    pub event_id: String,
    #[diesel(sql_type = Text)]
    pub event_type: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub api_version: Option<String>,
    #[diesel(sql_type = Text)]
    pub origin: String,
    #[diesel(sql_type = Text)]
    pub lane: String,
    #[diesel(sql_type = Text)]
    pub status: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub occurred_at: Option<Time>,
    #[diesel(sql_type = Timestamptz)]
    pub received_at: Time,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub processed_at: Option<Time>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub next_attempt_at: Option<Time>,
    #[diesel(sql_type = Integer)]
    pub attempt_count: i32,
    #[diesel(sql_type = BigInt)]
    pub replay_count: i64,
    #[diesel(sql_type = Nullable<Text>)]
    pub last_error_code: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub last_error_message: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub app_user_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub transaction_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub original_transaction_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub product_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub store: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub auth_method: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub auth_state: Option<String>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub key_version: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub body_bytes: Option<i32>,
    #[diesel(sql_type = Nullable<Text>)]
    pub body_sha256: Option<String>,
    /// The hash of what the event says, by which replays are told from mismatches.
    #[diesel(sql_type = Text)]
    pub payload_hash: String,
}

const COLUMNS: &str = "
    SELECT i.id, i.provider, i.provider_account_id, i.environment, i.event_id, i.event_type, i.api_version, i.origin, i.lane,
           i.status, i.occurred_at, i.received_at, i.processed_at, i.next_attempt_at, i.attempt_count, i.replay_count,
           i.last_error_code, i.last_error_message, r.app_user_id, r.transaction_id, r.original_transaction_id,
           r.product_id, r.store, r.auth_method, r.auth_state, r.key_version, r.body_bytes,
           encode(r.body_sha256, 'hex') AS body_sha256, encode(i.payload_hash, 'hex') AS payload_hash
      FROM webhook.inbox i
      LEFT JOIN webhook.raw_events r ON r.id = i.id AND r.received_at = i.received_at";

/// The newest events, of one status and provider where given.
pub fn list_events(
    connection: &mut PgConnection,
    status: Option<&str>,
    provider: Option<&str>,
    limit: i64,
) -> Result<Vec<EventRow>, StoreError> {
    let text = format!(
        "{COLUMNS} WHERE i.status = coalesce($1, i.status) AND i.provider = coalesce($2, i.provider)
         ORDER BY i.id DESC LIMIT $3"
    );
    let binds = [Bind::OptionalText(status), Bind::OptionalText(provider), Bind::BigInt(limit)];
    Ok(Sql::new(&text, &binds).load(connection)?)
}

/// The events with our id or the provider's id `id`: several when two accounts use the same one.
pub fn find_event(connection: &mut PgConnection, id: &str) -> Result<Vec<EventRow>, StoreError> {
    let by_ours = format!("{COLUMNS} WHERE i.id = $1");
    let by_theirs = format!("{COLUMNS} WHERE i.event_id = $1 ORDER BY i.id");
    let found = match Uuid::parse_str(id) {
        Ok(uuid) => Sql::new(&by_ours, &[Bind::Uuid(uuid)]).load(connection)?,
        Err(_) => Vec::new(),
    };
    if found.is_empty() { Ok(Sql::new(&by_theirs, &[Bind::Text(id)]).load(connection)?) } else { Ok(found) }
}

/// One failed attempt.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct AttemptRow {
    #[diesel(sql_type = Integer)]
    pub attempt: i32,
    #[diesel(sql_type = Timestamptz)]
    pub at: Time,
    #[diesel(sql_type = Text)]
    pub lane: String,
    #[diesel(sql_type = Text)]
    pub worker: String,
    #[diesel(sql_type = Text)]
    pub class: String,
    #[diesel(sql_type = Text)]
    pub error_code: String,
    #[diesel(sql_type = Text)]
    pub error_message: String,
    #[diesel(sql_type = Text)]
    pub fate: String,
}

/// The failed attempts of an event, first one first.
pub fn list_attempts(connection: &mut PgConnection, event: Uuid) -> Result<Vec<AttemptRow>, StoreError> {
    const LIST: &str = "SELECT attempt, at, lane, worker, class, error_code, error_message, fate
                          FROM webhook.attempts WHERE event_id = $1 ORDER BY attempt";
    Ok(Sql::new(LIST, &[Bind::Uuid(event)]).load(connection)?)
}
