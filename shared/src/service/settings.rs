use std::path::PathBuf;

use clap::Args;

use crate::broker::{BrokerUrl, Topology};
use crate::sealing::Sealer;
use crate::store::{self, Pool};

/// A setting that a process cannot start with. The value is not repeated: it may be a secret.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct SettingError {
    pub name: &'static str,
    pub problem: String,
}

impl SettingError {
    pub fn new(name: &'static str, problem: impl ToString) -> Self {
        SettingError { name, problem: problem.to_string() }
    }
}

/// Where the database is.
#[derive(Debug, Clone, Args)]
pub struct DatabaseSettings {
    /// PostgreSQL, as postgres://user:password@host:port/database
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
}

impl DatabaseSettings {
    /// A pool of at most `connections`, called `application` in `pg_stat_activity`.
    pub fn pool(&self, application: &str, connections: u32) -> Result<Pool, SettingError> {
        store::connect(&self.database_url, application, connections).map_err(|e| SettingError::new("DATABASE_URL", e))
    }
}

/// Where the broker is.
#[derive(Debug, Clone, Args)]
pub struct BrokerSettings {
    /// RabbitMQ, as amqp://user:password@host:port/vhost
    #[arg(long, env = "AMQP_URL", hide_env_values = true)]
    amqp_url: String,
    /// First part of the names of all exchanges and queues; differs where several installations share a vhost
    #[arg(long, env = "AMQP_PREFIX", default_value = "webhook")]
    amqp_prefix: String,
}

impl BrokerSettings {
    pub fn url(&self) -> Result<BrokerUrl, SettingError> {
        BrokerUrl::parse(&self.amqp_url).map_err(|error| SettingError::new("AMQP_URL", error))
    }

    pub fn topology(&self) -> Result<Topology, SettingError> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        if self.amqp_prefix.is_empty() || self.amqp_prefix.len() > 64 || !self.amqp_prefix.bytes().all(fits) {
            return Err(SettingError::new("AMQP_PREFIX", "must be 1 to 64 letters, digits, '_', '-' or '.'"));
        }
        Ok(Topology::new(&self.amqp_prefix))
    }
}

/// The keys that seal bodies and secrets.
#[derive(Debug, Clone, Args)]
pub struct SealingSettings {
    /// Sealing keys, as id:base64[,id:base64…]; the first one seals, all of them open
    #[arg(long, env = "SEALING_KEYS", hide_env_values = true, conflicts_with = "sealing_keys_file")]
    sealing_keys: Option<String>,
    /// A file that holds the sealing keys
    #[arg(long, env = "SEALING_KEYS_FILE")]
    sealing_keys_file: Option<PathBuf>,
    /// Set to 1, store payloads and secrets unencrypted where there are no keys, and open such values where there are;
    /// for development only
    #[arg(long, env = "ALLOW_PLAINTEXT_PAYLOADS", default_value = "0", value_parser = ["0", "1"])]
    allow_plaintext_payloads: String,
}

impl SealingSettings {
    /// The sealer. Without keys there is none, unless plaintext was asked for in so many words.
    pub fn sealer(&self) -> Result<Sealer, SettingError> {
        let sealer = match (&self.sealing_keys, &self.sealing_keys_file) {
            (Some(keys), _) => Sealer::from_keyring(keys).map_err(|error| SettingError::new("SEALING_KEYS", error))?,
            (None, Some(file)) => {
                let keys = std::fs::read_to_string(file).map_err(|error| {
                    SettingError::new("SEALING_KEYS_FILE", format!("cannot be read: {}", error.kind()))
                })?;
                Sealer::from_keyring(&keys).map_err(|error| SettingError::new("SEALING_KEYS_FILE", error))?
            }
            (None, None) if self.allows_plaintext() => return Ok(Sealer::plaintext()),
            (None, None) => {
                return Err(SettingError::new(
                    "SEALING_KEYS",
                    "is not set, so payloads could not be encrypted. Set SEALING_KEYS or SEALING_KEYS_FILE to \
                     main:$(openssl rand -base64 32), or, for development, ALLOW_PLAINTEXT_PAYLOADS=1",
                ));
            }
        };
        Ok(if self.allows_plaintext() { sealer.opening_plaintext() } else { sealer })
    }

    fn allows_plaintext(&self) -> bool {
        self.allow_plaintext_payloads == "1"
    }
}
