use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use diesel::sql_types::{BigInt, Integer, Text};
use diesel::{Connection, PgConnection, QueryableByName, RunQueryDsl, sql_query};
use shared::domain::Environment;
use shared::providers::{self, Provider};
use shared::sealing::Sealer;
use shared::store::{self, Audit, NewEndpoint};

use crate::cpu::{self, Watched};
use crate::requests::SECRET;
use crate::settings::Settings;
use crate::{Failed, failed};

const SEALING_KEYS: &str = "bench:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The account that all events come from.
pub const ACCOUNT: &str = "acct_bench";
const PATIENCE: Duration = Duration::from_secs(60);

/// The running system.
pub struct Stage {
    pub database_url: String,
    pub ingress: SocketAddr,
    pub watched: Watched,
    pub folder: PathBuf,
    amqp_url: String,
    workers: Vec<Process>,
    /// It lives as long as the stage.
    _ingress: Process,
}

/// One of our binaries. It is killed with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

#[derive(QueryableByName)]
struct Words {
    #[diesel(sql_type = Text)]
    words: String,
}

#[derive(QueryableByName)]
struct Pid {
    #[diesel(sql_type = Integer)]
    pid: i32,
}

impl Stage {
    /// An empty, migrated database with the endpoint `stripe/bench`, one ingress, and the workers.
    pub fn set_up(settings: &Settings) -> Result<Stage, Failed> {
        let database_url = create_database(&settings.database_url, "bench")?;
        let mut connection = PgConnection::establish(&database_url)?;
        if words(&mut connection, "SELECT current_setting('track_commit_timestamp') AS words")? != "on" {
            return failed("the PostgreSQL server must run with track_commit_timestamp = on");
        }
        add_endpoint(&mut connection)?;
        let postgres = sql_query("SELECT pg_backend_pid() AS pid").get_result::<Pid>(&mut connection)?.pid;

        let environment = environment(&database_url, &settings.amqp_url);
        let folder = &settings.folder;
        let (ingress, ingress_addresses) = start("ingress", &[], folder, "ingress", &environment)?;
        let mut watched = Watched { ingress: ingress.0.id(), broker: settings.broker_pid, ..Watched::default() };
        watched.postgres = cpu::parent_of(postgres).unwrap_or_default();
        let public = ingress_addresses.lines().find_map(|line| line.strip_prefix("public="));
        let address = public.ok_or_else(|| Failed("the ingress did not say where it listens".to_owned()))?.parse()?;
        let mut stage = Stage {
            database_url,
            ingress: address,
            watched,
            folder: folder.clone(),
            amqp_url: settings.amqp_url.clone(),
            workers: Vec::new(),
            _ingress: ingress,
        };
        stage.start_workers(settings.workers)?;
        Ok(stage)
    }

    /// Puts `count` workers in the place of those that run.
    pub fn start_workers(&mut self, count: u16) -> Result<(), Failed> {
        self.workers.clear();
        self.watched.workers.clear();
        for number in 1..=count {
            let environment = environment(&self.database_url, &self.amqp_url);
            let (worker, _) = start("worker", &["run"], &self.folder, &format!("worker-{number}"), &environment)?;
            self.watched.workers.push(worker.0.id());
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Lets the workers rest, or work again, without taking their connections away.
    pub fn let_workers_rest(&self, rest: bool) -> Result<(), Failed> {
        for worker in &self.workers {
            let signal = if rest { "-STOP" } else { "-CONT" };
            if !Command::new("kill").args([signal, &worker.0.id().to_string()]).status()?.success() {
                return failed("a worker has ended; see its log");
            }
        }
        Ok(())
    }

    /// What `webhookctl ledger rebuild` says of itself.
    pub fn rebuild(&self) -> Result<serde_json::Value, Failed> {
        let output = Command::new(binary("webhookctl"))
            .args(["-o", "json", "ledger", "rebuild"])
            .envs(environment(&self.database_url, &self.amqp_url))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        if !output.status.success() {
            return failed(format!("the rebuild found differences, or failed ({})", output.status));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    pub fn connection(&self) -> Result<PgConnection, Failed> {
        Ok(PgConnection::establish(&self.database_url)?)
    }
}

fn environment<'a>(database_url: &'a str, amqp_url: &'a str) -> [(&'static str, &'a str); 7] {
    [
        ("DATABASE_URL", database_url),
        ("AMQP_URL", amqp_url),
        ("AMQP_PREFIX", "bench"),
        ("SEALING_KEYS", SEALING_KEYS),
        ("INGRESS_LISTEN", "127.0.0.1:0"),
        ("INGRESS_ADMIN_LISTEN", "127.0.0.1:0"),
        ("WORKER_ADMIN_LISTEN", "127.0.0.1:0"),
    ]
}

/// Creates a database, migrates it, and returns its URL.
pub fn create_database(server_url: &str, name: &str) -> Result<String, Failed> {
    let mut server = PgConnection::establish(server_url)?;
    run(&mut server, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))?;
    run(&mut server, &format!("CREATE DATABASE {name}"))?;
    let (base, _) = server_url.rsplit_once('/').ok_or_else(|| Failed("DATABASE_URL names no database".to_owned()))?;
    let url = format!("{base}/{name}");
    store::migrate_up(&mut PgConnection::establish(&url)?)?;
    Ok(url)
}

pub fn run(connection: &mut PgConnection, statement: &str) -> Result<(), Failed> {
    sql_query(statement).execute(connection)?;
    Ok(())
}

pub fn number(connection: &mut PgConnection, query: &str) -> Result<i64, Failed> {
    Ok(sql_query(query).get_result::<Number>(connection)?.number)
}

pub fn words(connection: &mut PgConnection, query: &str) -> Result<String, Failed> {
    Ok(sql_query(query).get_result::<Words>(connection)?.words)
}

fn add_endpoint(connection: &mut PgConnection) -> Result<(), Failed> {
    let endpoint = NewEndpoint {
        provider: Provider::Stripe,
        slug: "bench",
        account: ACCOUNT,
        other_accounts: &[],
        environment: Environment::Production,
        tolerance_seconds: None,
        mismatch_status: 409,
    };
    let audit = Audit { actor: "bench", reason: "set up by the bench" };
    let secret = providers::check_secret(Provider::Stripe, SECRET)?;
    store::add_endpoint(connection, &Sealer::from_keyring(SEALING_KEYS)?, audit, &endpoint, &secret)?;
    Ok(())
}

/// The binaries lie beside each other.
fn binary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_worker")).with_file_name(name)
}

/// Starts a binary and waits until it has said what it listens on.
fn start(
    program: &str,
    arguments: &[&str],
    folder: &Path,
    name: &str,
    environment: &[(&str, &str)],
) -> Result<(Process, String), Failed> {
    let address_file = folder.join(format!("{name}.addresses"));
    let log = folder.join(format!("{name}.log"));
    // One of an earlier run would be believed.
    let _ = std::fs::remove_file(&address_file);
    let child = Command::new(binary(program))
        .args(arguments)
        .envs(environment.iter().copied())
        .env(format!("{}_ADDRESS_FILE", program.to_uppercase()), &address_file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log)?)
        .spawn()?;
    let mut process = Process(child);
    let started = Instant::now();
    while started.elapsed() < PATIENCE && process.0.try_wait()?.is_none() {
        if let Ok(addresses) = std::fs::read_to_string(&address_file) {
            return Ok((process, addresses));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    failed(format!("{name} did not start; see {}", log.display()))
}
