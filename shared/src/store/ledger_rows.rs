//! The ledger as people look at it.

use diesel::sql_types::{SmallInt, Text, Timestamptz};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

/// One of the tables that the business reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerTable {
    Payments,
    Refunds,
    Disputes,
    Subscriptions,
}

impl LedgerTable {
    pub fn name(self) -> &'static str {
        match self {
            LedgerTable::Payments => "payments",
            LedgerTable::Refunds => "refunds",
            LedgerTable::Disputes => "disputes",
            LedgerTable::Subscriptions => "subscription_states",
        }
    }

    /// Exact numbers, which JSON would make inexact.
    fn amounts(self) -> &'static [&'static str] {
        match self {
            LedgerTable::Payments => &["amount", "captured_amount", "refunded_amount", "disputed_amount"],
            LedgerTable::Refunds | LedgerTable::Disputes => &["amount"],
            LedgerTable::Subscriptions => &[],
        }
    }
}

#[derive(QueryableByName)]
struct JsonRow {
    #[diesel(sql_type = Text)]
    row: String,
}

/// The rows that changed last, the latest first, of one provider where given. Each has all columns by their names, the
/// amounts as exact decimal text.
pub fn ledger_rows(
    connection: &mut PgConnection,
    table: LedgerTable,
    provider: Option<&str>,
    limit: i64,
) -> Result<Vec<Map<String, Value>>, StoreError> {
    let amounts: Vec<String> = table.amounts().iter().map(|column| format!(", '{column}', t.{column}::text")).collect();
    let text = format!(
        "SELECT (to_jsonb(t) || jsonb_build_object('provider', t.provider{}))::text AS row
           FROM {} t WHERE t.provider = coalesce($1, t.provider) ORDER BY t.webhook_event_id DESC LIMIT $2",
        amounts.concat(),
        table.name()
    );
    let rows: Vec<JsonRow> = Sql::new(&text, &[Bind::OptionalText(provider), Bind::BigInt(limit)]).load(connection)?;
    rows.iter().map(|json| serde_json::from_str(&json.row).map_err(|_| StoreError::Refused)).collect()
}

/// What an event said, and about what.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct FactRow {
    #[diesel(sql_type = SmallInt)]
    pub ordinal: i16,
    #[diesel(sql_type = Text)]
    pub subject_kind: String,
    #[diesel(sql_type = Text)]
    pub subject_id: String,
    /// `payment`, `refund`, `dispute` or `subscription`.
    #[diesel(sql_type = Text)]
    pub kind: String,
    /// What happened to it: a step, or else a status.
    #[diesel(sql_type = Text)]
    pub what: String,
    #[diesel(sql_type = Timestamptz)]
    pub occurred_at: Time,
}

/// The facts of an event, in the order in which it states them. None unless it is processed.
pub fn facts_of(connection: &mut PgConnection, event: Uuid) -> Result<Vec<FactRow>, StoreError> {
    const LIST: &str = "
        SELECT ordinal, subject_kind, subject_id, fact ->> 'kind' AS kind,
               concat_ws(' ', fact ->> 'step', fact ->> 'status') AS what, occurred_at
          FROM ledger_facts WHERE event_id = $1 ORDER BY ordinal, subject_kind, subject_id";
    Ok(Sql::new(LIST, &[Bind::Uuid(event)]).load(connection)?)
}
