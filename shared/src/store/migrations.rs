use diesel::{PgConnection, RunQueryDsl};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use super::{Bind, Sql, StoreError};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../migrations");
/// Any number, the same in every version: two processes that migrate at once must take turns.
const LOCK: i64 = 4_857_663_001;

/// The schema could not be brought to where this version needs it.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "a migration failed and was rolled back; the ones before it stand. Run the SQL in migrations/ by hand to see why"
    )]
    Failed,
}

/// Applies the pending migrations and returns how many there were. Safe to run from several processes at once.
pub fn migrate_up(connection: &mut PgConnection) -> Result<usize, MigrationError> {
    locked(connection, |connection| connection.run_pending_migrations(MIGRATIONS).map(|applied| applied.len()))
}

/// Reverts every migration and returns how many there were. All data is lost.
pub fn migrate_down(connection: &mut PgConnection) -> Result<usize, MigrationError> {
    locked(connection, |connection| connection.revert_all_migrations(MIGRATIONS).map(|reverted| reverted.len()))
}

/// How many migrations this version knows that the database has not seen. Zero means the schema is current.
pub fn pending_migrations(connection: &mut PgConnection) -> Result<usize, MigrationError> {
    connection.pending_migrations(MIGRATIONS).map(|pending| pending.len()).map_err(|_| MigrationError::Failed)
}

fn locked(
    connection: &mut PgConnection,
    migrate: impl FnOnce(&mut PgConnection) -> diesel::migration::Result<usize>,
) -> Result<usize, MigrationError> {
    Sql::new("SET statement_timeout = 0", &[]).run(connection).map_err(StoreError::from)?;
    Sql::new("SELECT pg_advisory_lock($1)", &[Bind::BigInt(LOCK)]).execute(connection).map_err(StoreError::from)?;
    let result = migrate(connection).map_err(|_| MigrationError::Failed);
    Sql::new("SELECT pg_advisory_unlock($1)", &[Bind::BigInt(LOCK)]).execute(connection).map_err(StoreError::from)?;
    result
}
