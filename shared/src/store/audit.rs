use diesel::PgConnection;

use super::{Bind, Sql, StoreError};

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
