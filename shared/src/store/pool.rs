use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::r2d2::R2D2Connection;
use diesel::{Connection as _, PgConnection, QueryableByName, RunQueryDsl};

use super::{Sql, StoreError};

/// A pool of connections that are ready to write.
pub type Pool = r2d2::Pool<Manager>;

/// A connection on loan from the pool.
pub type Connection = r2d2::PooledConnection<Manager>;

/// Makes connections, and refuses to lend out those that have become useless.
#[derive(Debug)]
pub struct Manager {
    url: String,
}

/// The pool could not be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error("must begin with postgres:// or postgresql://")]
    NotAUrl,
}

/// A connection could not be made or is of no use. The library's text stays out of it: it may quote the URL.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("no usable connection to the database")]
pub struct ConnectError;

impl r2d2::ManageConnection for Manager {
    type Connection = PgConnection;
    type Error = ConnectError;

    fn connect(&self) -> Result<PgConnection, ConnectError> {
        let mut connection = PgConnection::establish(&self.url).map_err(|_| ConnectError)?;
        connection.batch_execute(SESSION).map_err(|_| ConnectError)?;
        Ok(connection)
    }

    /// After a failover a session may stay on a server that only reads. Such a connection is not lent out again.
    fn is_valid(&self, connection: &mut PgConnection) -> Result<(), ConnectError> {
        #[derive(QueryableByName)]
        struct Writable {
            #[diesel(sql_type = diesel::sql_types::Bool)]
            writable: bool,
        }
        let statement = "SELECT current_setting('transaction_read_only') = 'off' AS writable";
        match Sql::new(statement, &[]).get_result::<Writable>(connection) {
            Ok(Writable { writable: true }) => Ok(()),
            Ok(Writable { writable: false }) | Err(_) => Err(ConnectError),
        }
    }

    fn has_broken(&self, connection: &mut PgConnection) -> bool {
        std::thread::panicking() || connection.is_broken()
    }
}

/// No statement may hold a lock, or a snapshot that the outbox has to wait for, for long.
///
/// Statements find their rows by key, and their plans are kept. One that was made when a table was empty, or knows the
/// outbox as the small table that it mostly is, would read all of a large one. (Costs of what is switched off look
/// enormous, and would start the compiler.)
const SESSION: &str = "SET TIME ZONE 'UTC'; SET statement_timeout = '30s'; SET lock_timeout = '10s'; \
                       SET idle_in_transaction_session_timeout = '30s'; SET enable_seqscan = off; SET jit = off;";

/// Opens a pool of at most `size` connections. Nothing is connected yet: the database may come up later.
///
/// `application` is what the connections are called in `pg_stat_activity`.
pub fn connect(url: &str, application: &str, size: u32) -> Result<Pool, PoolError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(PoolError::NotAUrl);
    }
    let mut url = url.to_owned();
    for (setting, value) in [
        ("application_name", application),
        ("connect_timeout", "3"),
        ("keepalives_idle", "15"),
        ("tcp_user_timeout", "15000"),
    ] {
        if !url.contains(&format!("{setting}=")) {
            url.push_str(if url.contains('?') { "&" } else { "?" });
            url.push_str(&format!("{setting}={value}"));
        }
    }
    let pool = r2d2::Pool::builder()
        .max_size(size.max(1))
        .min_idle(Some(0))
        .connection_timeout(Duration::from_secs(1))
        .error_handler(Box::new(r2d2::NopErrorHandler))
        .build_unchecked(Manager { url });
    Ok(pool)
}

/// Runs `work` in one transaction: all of it is committed, or nothing is.
pub fn in_transaction<T>(
    connection: &mut PgConnection,
    work: impl FnOnce(&mut PgConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.transaction(work)
}

/// Runs `look` on one unchanging picture of the database: what it reads in several statements belongs together.
pub fn in_snapshot<T>(
    connection: &mut PgConnection,
    look: impl FnOnce(&mut PgConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    in_keyed_snapshot(connection, |connection| {
        // Such a look may well be at whole tables.
        Sql::new("SET LOCAL enable_seqscan = on", &[]).run(connection)?;
        look(connection)
    })
}

/// The same for a look that finds its rows by their keys, as everything else does.
pub fn in_keyed_snapshot<T>(
    connection: &mut PgConnection,
    look: impl FnOnce(&mut PgConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.build_transaction().repeatable_read().read_only().run(look)
}

/// Takes a connection from the pool, waiting at most a second.
pub fn get(pool: &Pool) -> Result<Connection, StoreError> {
    pool.get().map_err(|_| StoreError::Unavailable)
}
