use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shared::domain::{Lane, RetryPolicy};
use shared::service::{BrokerSettings, DatabaseSettings, LogSettings, SealingSettings, SettingError};

/// Projects accepted events into the ledger.
#[derive(Debug, Clone, Parser)]
#[command(name = "worker", version)]
pub struct Settings {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Work until told to stop
    Run(RunSettings),
}

#[derive(Debug, Clone, Args)]
pub struct RunSettings {
    #[command(flatten)]
    pub database: DatabaseSettings,
    #[command(flatten)]
    pub broker: BrokerSettings,
    #[command(flatten)]
    pub sealing: SealingSettings,
    #[command(flatten)]
    pub logs: LogSettings,
    /// Which lanes to work on
    #[arg(long, env = "WORKER_LANES", value_delimiter = ',', default_value = "payments,subscriptions,other,redrive")]
    pub lanes: Vec<Lane>,
    /// Private listener: /live, /ready, /metrics; port 0 takes a free one
    #[arg(long, env = "WORKER_ADMIN_LISTEN", default_value = "127.0.0.1:9081")]
    pub worker_admin_listen: String,
    /// A file to write the bound address to, for scripts
    #[arg(long, env = "WORKER_ADDRESS_FILE")]
    pub worker_address_file: Option<PathBuf>,
    /// Most events that one transaction takes
    #[arg(long, env = "WORKER_BATCH", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub worker_batch: u16,
    /// Attempts before an event becomes a dead letter
    #[arg(long, env = "WORKER_ATTEMPTS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub worker_attempts: u32,
    /// Wait after the first failure, in seconds; it doubles after each further one
    #[arg(long, env = "WORKER_FIRST_RETRY_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub worker_first_retry_seconds: u64,
}

impl RunSettings {
    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: self.worker_attempts,
            first_delay: Duration::from_secs(self.worker_first_retry_seconds),
            ..RetryPolicy::default()
        }
    }
}

/// Why the process cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("WORKER_ADMIN_LISTEN: the address cannot be bound ({0})")]
    Bind(std::io::ErrorKind),
    #[error("WORKER_ADDRESS_FILE: cannot be written ({0})")]
    AddressFile(std::io::ErrorKind),
}
