use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use shared::service::{BrokerSettings, DatabaseSettings, LogSettings, SealingSettings, SettingError};

/// Accepts payment webhooks: verifies, commits, answers, publishes.
#[derive(Debug, Clone, Parser)]
#[command(name = "ingress", version)]
pub struct Settings {
    #[command(flatten)]
    pub database: DatabaseSettings,
    #[command(flatten)]
    pub broker: BrokerSettings,
    #[command(flatten)]
    pub sealing: SealingSettings,
    #[command(flatten)]
    pub logs: LogSettings,
    /// Public listener; port 0 takes a free one
    #[arg(long, env = "INGRESS_LISTEN", default_value = "127.0.0.1:8080")]
    pub ingress_listen: String,
    /// Private listener: /live, /ready, /metrics
    #[arg(long, env = "INGRESS_ADMIN_LISTEN", default_value = "127.0.0.1:9080")]
    pub ingress_admin_listen: String,
    /// A file to write the bound addresses to, for scripts
    #[arg(long, env = "INGRESS_ADDRESS_FILE")]
    pub ingress_address_file: Option<PathBuf>,
    /// Largest accepted body, in bytes
    #[arg(long, env = "INGRESS_BODY_LIMIT", default_value_t = 1_048_576, value_parser = clap::value_parser!(u32).range(1024..=16_777_216))]
    pub ingress_body_limit: u32,
    /// How long a body may take to arrive, in seconds
    #[arg(long, env = "INGRESS_BODY_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub ingress_body_seconds: u64,
    /// Threads that commit events, each with a database connection of its own
    #[arg(long, env = "INGRESS_WRITERS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub ingress_writers: u8,
    /// Verified events that may wait for a writer; beyond that the answer is 503
    #[arg(long, env = "INGRESS_QUEUE", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub ingress_queue: u32,
}

impl Settings {
    pub(crate) fn body_limit(&self) -> usize {
        usize::try_from(self.ingress_body_limit).unwrap_or(usize::MAX)
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.ingress_body_seconds)
    }

    pub(crate) fn queue_length(&self) -> usize {
        usize::try_from(self.ingress_queue).unwrap_or(usize::MAX)
    }
}

/// Why the process cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("{0}: the address cannot be bound ({1})")]
    Bind(&'static str, std::io::ErrorKind),
    #[error("INGRESS_ADDRESS_FILE: cannot be written ({0})")]
    AddressFile(std::io::ErrorKind),
    #[error("the operating system refuses a thread or a signal handler ({0})")]
    System(std::io::ErrorKind),
}
