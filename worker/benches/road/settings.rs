use std::path::PathBuf;

use clap::Parser;

/// Events per second of the point of steady load.
pub const STEADY_RATE: u32 = 100;

/// Measures what the road carries. Run it with deploy/bench.
#[derive(Debug, Parser)]
#[command(name = "deploy/bench")]
pub struct Settings {
    /// How often each point is measured; the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long each point is measured, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// How many connections send at once, at the points of full load
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub connections: Vec<u16>,
    /// How many clients pgbench gets, to find its best
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 8, 16, 32, 64], value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub clients: Vec<u16>,
    /// One short round: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    pub json: bool,
    /// Exit code 1 when a target is missed
    #[arg(long)]
    pub check: bool,
    /// How many workers project
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub workers: u16,
    /// PostgreSQL, with track_commit_timestamp on; the bench creates databases of its own there
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// RabbitMQ
    #[arg(long, env = "AMQP_URL", hide_env_values = true)]
    pub amqp_url: String,
    /// The broker's process, to see what it costs
    #[arg(long, env = "BENCH_BROKER_PID")]
    pub broker_pid: Option<u32>,
    /// A folder for logs and generated scripts
    #[arg(long, env = "BENCH_FOLDER")]
    pub folder: PathBuf,
    /// Given by cargo to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

impl Settings {
    pub fn is_quick(&self) -> bool {
        self.quick
    }

    pub fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    pub fn seconds_per_point(&self) -> f64 {
        if self.quick { 1.0 } else { f64::from(self.seconds) }
    }
}
