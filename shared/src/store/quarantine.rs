use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

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
    #[diesel(sql_type = SqlUuid)]
    pub event_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    pub external_event_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub event_type: Option<String>,
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
}

const COLUMNS: &str = "
    SELECT q.id, q.reason, q.provider, q.provider_account_id, q.event_id, i.event_id AS external_event_id, i.event_type,
           q.subject_kind, q.subject_id, q.seen_count, q.detail, q.status, q.opened_at
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
