use diesel::result::{DatabaseErrorKind, Error};

use crate::domain::{Class, Failure};

/// Why a database operation failed. The server's own text is never kept: its DETAIL quotes rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the database cannot be reached, is shutting down, or is read-only")]
    Unavailable,
    #[error("another transaction was in the way (deadlock, serialization or lock timeout)")]
    Contended,
    #[error("no partition of webhook.raw_events holds the time of receipt")]
    NoPartition,
    #[error("the constraint {constraint} of table {table} refuses the row")]
    Violates { table: String, constraint: String },
    #[error("the database refuses the statement or a value in it")]
    Refused,
}

impl StoreError {
    /// A stable code for metrics and dead letters.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Unavailable => "database_unavailable",
            StoreError::Contended => "database_contended",
            StoreError::NoPartition => "no_partition",
            StoreError::Violates { .. } => "constraint_violation",
            StoreError::Refused => "database_refused",
        }
    }

    /// Whether one bad row may be the cause, so that trying the rows one by one makes sense.
    pub fn is_about_the_data(&self) -> bool {
        match self {
            StoreError::Violates { .. } | StoreError::Refused | StoreError::NoPartition => true,
            StoreError::Unavailable | StoreError::Contended => false,
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let class = match error {
            StoreError::Unavailable => Class::Unavailable,
            StoreError::Contended | StoreError::NoPartition | StoreError::Refused => Class::Transient,
            StoreError::Violates { .. } => Class::Permanent,
        };
        Failure { class, code: error.code(), message: error.to_string() }
    }
}

impl From<Error> for StoreError {
    /// diesel hides the SQLSTATE behind a kind; where the kind says nothing, libpq's unlocalised words decide.
    fn from(error: Error) -> StoreError {
        let Error::DatabaseError(kind, info) = error else {
            return match error {
                // The transaction manager saw the connection break in the middle of a transaction.
                Error::BrokenTransactionManager | Error::NotInTransaction | Error::AlreadyInTransaction => {
                    StoreError::Unavailable
                }
                Error::RollbackErrorOnCommit { commit_error, .. } => StoreError::from(*commit_error),
                _ => StoreError::Refused,
            };
        };
        let message = info.message();
        match kind {
            DatabaseErrorKind::SerializationFailure => StoreError::Contended,
            DatabaseErrorKind::ClosedConnection
            | DatabaseErrorKind::ReadOnlyTransaction
            | DatabaseErrorKind::UnableToSendCommand => StoreError::Unavailable,
            DatabaseErrorKind::CheckViolation if message.starts_with("no partition of relation") => {
                StoreError::NoPartition
            }
            DatabaseErrorKind::UniqueViolation
            | DatabaseErrorKind::ForeignKeyViolation
            | DatabaseErrorKind::NotNullViolation
            | DatabaseErrorKind::CheckViolation => StoreError::Violates {
                table: info.table_name().unwrap_or("?").to_owned(),
                constraint: info.constraint_name().or(info.column_name()).unwrap_or("?").to_owned(),
            },
            _ => by_message(message),
        }
    }
}

fn by_message(message: &str) -> StoreError {
    // A full lock table is contention too: the same events fit when they go one by one.
    const CONTENDED: [&str; 5] = [
        "deadlock detected",
        "could not serialize",
        "lock timeout",
        "canceling statement due to statement timeout",
        "out of shared memory",
    ];
    const UNAVAILABLE: [&str; 13] = [
        "terminating connection",
        "the database system is",
        "server closed the connection",
        "connection to server",
        "could not connect",
        "no connection to the server",
        "SSL connection has been closed",
        "SSL SYSCALL error",
        "could not receive data",
        "could not send data",
        "read-only transaction",
        "too many clients",
        "remaining connection slots",
    ];
    const EXHAUSTED: [&str; 2] = ["out of memory", "No space left"];
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
    if says(&CONTENDED) {
        StoreError::Contended
    } else if says(&UNAVAILABLE) || says(&EXHAUSTED) {
        StoreError::Unavailable
    } else {
        StoreError::Refused
    }
}
