use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use diesel::{Connection as _, PgConnection, QueryableByName, RunQueryDsl, sql_query};
use serde_json::Value;
use shared::store;

/// A database of its own, dropped with the value.
pub struct Database {
    pub url: String,
    name: String,
    server_url: String,
}

#[derive(QueryableByName)]
struct Json {
    #[diesel(sql_type = diesel::sql_types::Text)]
    json: String,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    number: i64,
}

impl Database {
    /// A copy of a database in which all migrations have run. The first test of a run makes it; the others wait for it.
    pub fn clone_template(server_url: &str, name: &str) -> Database {
        let mut server = connect(server_url);
        let template = format!("hookledger_template_{:x}", migrations_hash());
        execute(&mut server, "SELECT pg_advisory_lock(4857663)");
        let known = format!("SELECT count(*) AS number FROM pg_database WHERE datname = '{template}'");
        if number(&mut server, &known) == 0 {
            execute(&mut server, "DROP DATABASE IF EXISTS hookledger_half_made");
            execute(&mut server, "CREATE DATABASE hookledger_half_made");
            {
                let mut connection = connect(&with_database(server_url, "hookledger_half_made"));
                store::migrate_up(&mut connection).unwrap();
            }
            execute(&mut server, &format!("ALTER DATABASE hookledger_half_made RENAME TO {template}"));
        }
        execute(&mut server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        execute(&mut server, &format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"));
        execute(&mut server, "SELECT pg_advisory_unlock(4857663)");
        Database { url: with_database(server_url, name), name: name.to_owned(), server_url: server_url.to_owned() }
    }

    /// A database without any schema.
    pub fn empty(server_url: &str, name: &str) -> Database {
        let mut server = connect(server_url);
        execute(&mut server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
        execute(&mut server, &format!("CREATE DATABASE {name}"));
        Database { url: with_database(server_url, name), name: name.to_owned(), server_url: server_url.to_owned() }
    }

    pub fn connection(&self) -> PgConnection {
        connect(&self.url)
    }

    pub fn execute(&self, statement: &str) {
        execute(&mut self.connection(), statement);
    }

    /// The same where the database is set to refuse writes.
    pub fn execute_writable(&self, statement: &str) {
        let mut connection = self.connection();
        execute(&mut connection, "SET default_transaction_read_only = off");
        execute(&mut connection, statement);
    }

    /// Whether the database refuses the statement, and with which words.
    pub fn refusal(&self, statement: &str) -> Option<String> {
        sql_query(statement).execute(&mut self.connection()).err().map(|error| error.to_string())
    }

    pub fn rows(&self, query: &str) -> Vec<Value> {
        let query = format!("SELECT coalesce(json_agg(t), '[]')::text AS json FROM ({query}) AS t");
        let row: Json = sql_query(query).get_result(&mut self.connection()).unwrap();
        serde_json::from_str(&row.json).unwrap()
    }

    pub fn number(&self, query: &str) -> i64 {
        number(&mut self.connection(), &format!("SELECT coalesce(({query})::bigint, 0) AS number"))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Ok(mut server) = PgConnection::establish(&self.server_url) {
            let _ = sql_query(format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)).execute(&mut server);
        }
    }
}

fn connect(url: &str) -> PgConnection {
    PgConnection::establish(url).unwrap()
}

fn execute(connection: &mut PgConnection, statement: &str) {
    sql_query(statement).execute(connection).unwrap_or_else(|error| panic!("{statement}: {error}"));
}

fn number(connection: &mut PgConnection, query: &str) -> i64 {
    sql_query(query).get_result::<Number>(connection).unwrap_or_else(|error| panic!("{query}: {error}")).number
}

/// The URL with another database name.
fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let (server, _) = base.rsplit_once('/').unwrap();
    query.map_or_else(|| format!("{server}/{name}"), |query| format!("{server}/{name}?{query}"))
}

/// A template of other migrations is of no use.
fn migrations_hash() -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join("up.sql")).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}
