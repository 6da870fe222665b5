use diesel::sql_types::{BigInt, Text, Timestamptz};
use diesel::{PgConnection, QueryableByName, RunQueryDsl};
use serde::Serialize;

use super::{Bind, Sql, StoreError};
use crate::domain::Time;

/// Who does something, and why. Every change a person makes carries one.
#[derive(Debug, Clone, Copy)]
pub struct Audit<'a> {
    pub actor: &'a str,
    /// At least eight characters; the database refuses less.
    pub reason: &'a str,
}

/// Appends to the audit log, in the transaction of what it records.
pub fn record_audit(
    connection: &mut PgConnection,
    audit: Audit<'_>,
    action: &str,
    target: &str,
) -> Result<(), StoreError> {
    const INSERT: &str = "INSERT INTO webhook.audit_log (actor, action, target, reason) VALUES ($1, $2, $3, $4)";
    let binds = [Bind::Text(audit.actor), Bind::Text(action), Bind::Text(target), Bind::Text(audit.reason)];
    Sql::new(INSERT, &binds).run(connection)?;
    Ok(())
}

/// Something a person did.
#[derive(Debug, Clone, QueryableByName, Serialize)]
pub struct AuditRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Timestamptz)]
    pub at: Time,
    #[diesel(sql_type = Text)]
    pub actor: String,
    #[diesel(sql_type = Text)]
    pub action: String,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Text)]
    pub reason: String,
}

const COLUMNS: &str = "SELECT id, at, actor, action, target, reason FROM webhook.audit_log";

/// What was done last, the latest first.
pub fn list_audit(connection: &mut PgConnection, limit: i64) -> Result<Vec<AuditRow>, StoreError> {
    let text = format!("{COLUMNS} ORDER BY id DESC LIMIT $1");
    Ok(Sql::new(&text, &[Bind::BigInt(limit)]).load(connection)?)
}

/// What was done to one thing, first to last.
pub fn audit_of(connection: &mut PgConnection, target: &str) -> Result<Vec<AuditRow>, StoreError> {
    let text = format!("{COLUMNS} WHERE target = $1 ORDER BY id");
    Ok(Sql::new(&text, &[Bind::Text(target)]).load(connection)?)
}
