//! A world of its own for every test: a database cloned from a migrated template, queues under a name of their own, and
//! the real binaries as processes.

mod database;
mod loader;
mod process;
mod sender;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use shared::domain::Environment;
use shared::providers::Provider;
use shared::sealing::Sealer;
use shared::store::{self, Audit, NewEndpoint};

pub use database::Database;
pub use loader::{Arrival, Loader};
pub use process::{Process, Signal};
pub use sender::{Event, Sender, post, signed, stripe};

pub const SECRET: &str = "whsec_test_secret_0123456789abcdef";
pub const STANDARD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub const REVENUECAT_SECRET: &str = "hmac:rc_test_signing_secret_0123456789";
pub const SEALING_KEYS: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const PATIENCE: Duration = Duration::from_secs(90);

/// Servers, processes and data of one test.
pub struct World {
    pub database: Database,
    pub amqp_url: String,
    /// The first part of the names of this world's queues.
    pub prefix: String,
    pub dir: PathBuf,
    extra: Vec<(String, String)>,
}

impl World {
    /// An empty, migrated database with the endpoint `stripe/main`, and nothing running.
    pub fn new() -> World {
        let (database_url, amqp_url) = (server("DATABASE_URL"), server("AMQP_URL"));
        World::on(&database_url, &amqp_url)
    }

    /// The same on other servers.
    pub fn on(database_url: &str, amqp_url: &str) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(format!("hookledger-{name}"));
        std::fs::create_dir_all(&dir).unwrap();
        let database = Database::clone_template(database_url, &name);
        let world = World { database, amqp_url: amqp_url.to_owned(), prefix: name, dir, extra: Vec::new() };
        world.add_endpoint(Provider::Stripe, SECRET, 409);
        world.add_endpoint(Provider::StandardWebhooks, STANDARD_SECRET, 409);
        world.add_endpoint(Provider::RevenueCat, REVENUECAT_SECRET, 409);
        world
    }

    /// Sets a variable for all processes started from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.extra.push((name.to_owned(), value.to_owned()));
    }

    fn add_endpoint(&self, provider: Provider, secret: &str, mismatch_status: i16) {
        let sealer = Sealer::from_keyring(SEALING_KEYS).unwrap();
        let endpoint = NewEndpoint {
            provider,
            slug: "main",
            account: "acct_main",
            other_accounts: &["acct_connected"],
            environment: Environment::Production,
            tolerance_seconds: None,
            mismatch_status,
        };
        let audit = Audit { actor: "test", reason: "set up by a test" };
        let secret = shared::providers::check_secret(provider, secret).unwrap();
        store::add_endpoint(&mut self.database.connection(), &sealer, audit, &endpoint, &secret).unwrap();
    }

    pub fn environment(&self) -> Vec<(String, String)> {
        let fixed = [
            ("DATABASE_URL", self.database.url.as_str()),
            ("AMQP_URL", &self.amqp_url),
            ("AMQP_PREFIX", &self.prefix),
            ("SEALING_KEYS", SEALING_KEYS),
            ("INGRESS_LISTEN", "127.0.0.1:0"),
            ("INGRESS_ADMIN_LISTEN", "127.0.0.1:0"),
            ("WORKER_ADMIN_LISTEN", "127.0.0.1:0"),
            ("WORKER_FIRST_RETRY_SECONDS", "0"),
        ];
        let fixed = fixed.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        fixed.chain(self.extra.iter().cloned()).collect()
    }

    pub fn ingress(&self) -> Process {
        Process::start("ingress", &[], "INGRESS_ADDRESS_FILE", &self.dir, self.environment())
    }

    pub fn worker(&self) -> Process {
        Process::start("worker", &["run"], "WORKER_ADDRESS_FILE", &self.dir, self.environment())
    }

    /// Runs webhookctl and returns its exit code, standard output and standard error.
    pub fn webhookctl(&self, arguments: &[&str]) -> (i32, String, String) {
        process::run("webhookctl", arguments, self.environment())
    }

    /// The rows of a query, as JSON objects.
    pub fn rows(&self, query: &str) -> Vec<Value> {
        self.database.rows(query)
    }

    /// The single number that a query returns.
    pub fn number(&self, query: &str) -> i64 {
        self.database.number(query)
    }

    /// Waits until no accepted event is left unsettled.
    pub fn wait_until_settled(&self) {
        self.wait_for_number(0, "SELECT count(*) FROM webhook.inbox WHERE status IN ('accepted', 'retrying')");
    }

    pub fn wait_for_number(&self, expected: i64, query: &str) {
        wait_for(&format!("{expected} from {query}"), || self.number(query) == expected);
    }

    /// Both equations of the books, and what belongs to them, as `webhookctl doctor` sees them.
    pub fn assert_books_balance(&self) {
        let (code, out, err) = self.webhookctl(&["doctor"]);
        assert!(code == 0 || code == 8, "doctor found failures ({code}):\n{out}\n{err}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for file in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
                if file.path().extension().is_some_and(|extension| extension == "log") {
                    let text = std::fs::read_to_string(file.path()).unwrap_or_default();
                    let tail: Vec<&str> = text.lines().rev().take(30).collect();
                    let tail: Vec<&str> = tail.into_iter().rev().collect();
                    eprintln!("--- {}\n{}", file.path().display(), tail.join("\n"));
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Where a server of this run is.
fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set; run the tests with deploy/test"))
}

/// Waits on a condition.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
