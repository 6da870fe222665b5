//! The plain way: the rows of the accept path, one event a transaction, by pgbench.

use std::path::PathBuf;
use std::process::Command;

use diesel::{Connection, PgConnection};

use crate::measure::Latency;
use crate::settings::Settings;
use crate::stage::{self, Stage};
use crate::{Failed, failed};

/// pgbench, and a database of its own with the same schema in the same cluster.
pub struct Baseline {
    url: String,
    script: PathBuf,
    threads: usize,
}

/// One run of pgbench.
#[derive(Debug, Clone, Copy)]
pub struct BaselinePoint {
    pub clients: u16,
    pub per_second: f64,
    /// How long a transaction takes, in milliseconds.
    pub transaction: Latency,
}

impl Baseline {
    /// Takes a row that the ingress has just written as the model, so that all columns are as long as the real ones.
    pub fn set_up(stage: &Stage, settings: &Settings) -> Result<Self, Failed> {
        let url = stage::create_database(&settings.database_url, "baseline")?;
        let script = stage.folder.join("baseline.sql");
        std::fs::write(&script, stage::words(&mut stage.connection()?, SCRIPT)?)?;
        let threads = std::thread::available_parallelism()?.get();
        Ok(Baseline { url, script, threads })
    }

    pub fn run(&self, clients: u16, seconds: f64, folder: &std::path::Path) -> Result<BaselinePoint, Failed> {
        let mut connection = PgConnection::establish(&self.url)?;
        stage::run(&mut connection, "CHECKPOINT")?;
        // Ids go on where the last run ended.
        let first = stage::number(&mut connection, "SELECT count(*) AS number FROM webhook.inbox")?;
        let logs = folder.join(format!("pgbench-{clients}"));
        remove_logs(folder, &logs)?;
        let (url, password) = without_password(&self.url)?;
        let output = Command::new("pgbench")
            .env("PGPASSWORD", password)
            .args(["--no-vacuum", "--protocol=prepared", "--log"])
            .arg(format!("--log-prefix={}", logs.display()))
            .arg(format!("--file={}", self.script.display()))
            .arg(format!("--define=n={first}"))
            .arg(format!("--client={clients}"))
            .arg(format!("--jobs={}", self.threads.min(clients.into())))
            .arg(format!("--time={}", seconds.ceil()))
            .arg(url)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        let Some(per_second) = rate.filter(|_| output.status.success()) else {
            return failed(format!("pgbench failed: {}", String::from_utf8_lossy(&output.stderr)));
        };
        Ok(BaselinePoint { clients, per_second, transaction: latency_of_logs(folder, &logs)? })
    }
}

/// pgbench's log files of one run: one per thread.
fn log_files(folder: &std::path::Path, prefix: &std::path::Path) -> Result<Vec<PathBuf>, Failed> {
    let prefix = format!("{}.", prefix.display());
    let paths = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths.filter(|path| path.display().to_string().starts_with(&prefix)).collect())
}

fn remove_logs(folder: &std::path::Path, prefix: &std::path::Path) -> Result<(), Failed> {
    log_files(folder, prefix)?.iter().try_for_each(|path| Ok(std::fs::remove_file(path)?))
}

/// Each line has the client, the number and the microseconds of a transaction.
fn latency_of_logs(folder: &std::path::Path, prefix: &std::path::Path) -> Result<Latency, Failed> {
    let mut micros: Vec<i64> = Vec::new();
    for path in log_files(folder, prefix)? {
        let text = std::fs::read_to_string(path)?;
        micros.extend(text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<i64>().ok()));
    }
    Ok(Latency::of(micros))
}

/// A password does not belong among the arguments of a process.
fn without_password(url: &str) -> Result<(String, String), Failed> {
    let split = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, host) = rest.rsplit_once('@')?;
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        Some((format!("{scheme}://{user}@{host}"), password.to_owned()))
    };
    split().ok_or_else(|| Failed("DATABASE_URL is not of the form postgres://user:password@host:port/name".to_owned()))
}

/// Writes pgbench's script. What does not differ between events is a constant in it, the sealed body too: pgbench sends no
/// body over the wire and computes nothing, which is to its favour. Ids grow with time, as UUIDv7 do. Each client counts
/// in a row of its own of `intake_counts`, as each writer of the ingress does.
const SCRIPT: &str = r"
    WITH model AS (
        SELECT r.*, i.lane FROM webhook.raw_events r JOIN webhook.inbox i USING (id) LIMIT 1
    ), made AS (
        SELECT m.*,
               '(lpad(:n::text, 12, ''0'') || lpad(:client_id::text, 4, ''0'') || lpad(:r::text, 16, ''0''))::uuid' AS an_id,
               format('%L || lpad(:client_id::text, 3, ''0'') || lpad(:n::text, %s, ''0'')', left(event_id, 4),
                      length(event_id) - 7) AS an_event,
               format('%L || lpad(:client_id::text, 3, ''0'') || lpad(:n::text, %s, ''0'')', left(transaction_id, 3),
                      length(transaction_id) - 6) AS a_transaction
          FROM model m
    )
    SELECT concat_ws(E'\n',
        '\set n :n + 1',
        '\set r random(0, 999999999999999)',
        'BEGIN;',
        format('INSERT INTO webhook.inbox (id, endpoint_id, provider, provider_account_id, environment, event_id, event_type, '
            || 'api_version, lane, occurred_at, received_at, payload_hash) VALUES (%s, %L, %L, %L, %L, %s, %L, %L, %L, now(), '
            || 'now(), %L);', an_id, endpoint_id, provider, provider_account_id, environment, an_event, event_type,
            api_version, lane, payload_hash),
        format('INSERT INTO webhook.raw_events (id, received_at, endpoint_id, provider, provider_account_id, environment, '
            || 'event_id, event_type, api_version, origin, occurred_at, app_user_id, transaction_id, original_transaction_id, '
            || 'product_id, store, signature, auth_method, auth_state, key_version, body_sha256, payload_hash, body_bytes, '
            || 'body) VALUES (%s, now(), %L, %L, %L, %L, %s, %L, %L, %L, now(), %L, %s, %L, %L, %L, %L, %L, %L, %s, %L, %L, '
            || '%s, %L);', an_id, endpoint_id, provider, provider_account_id, environment, an_event, event_type, api_version,
            origin, app_user_id, coalesce(a_transaction, 'NULL'), original_transaction_id, product_id, store, signature,
            auth_method, auth_state, key_version, body_sha256, payload_hash, body_bytes, body),
        format('INSERT INTO webhook.outbox (id, event_id, lane, kind, due_at, claimed_until) VALUES (%s, %s, %L, ''first'', '
            || 'now(), now() + interval ''10 seconds'');', an_id, an_id, lane),
        format('INSERT INTO webhook.intake_counts (minute, endpoint_id, writer, outcome, requests) VALUES '
            || '(date_trunc(''minute'', now()), %L, lpad(:client_id::text, 32, ''0'')::uuid, ''accepted'', 1) '
            || 'ON CONFLICT (minute, endpoint_id, writer, outcome, reason) '
            || 'DO UPDATE SET requests = intake_counts.requests + excluded.requests;', endpoint_id),
        'COMMIT;', '') AS words
      FROM made";
