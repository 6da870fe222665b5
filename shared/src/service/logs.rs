use std::io::Write;

use clap::{Args, ValueEnum};

/// What is logged unless RUST_LOG says otherwise. Libraries quote addresses and peers' words, so they stay silent: what
/// matters of their failures we log ourselves.
const DEFAULT_FILTER: &str = "info,lapin=off,tracing=off,actix_server=warn,actix_http=off,r2d2=off";

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// How a process logs.
#[derive(Debug, Clone, Args)]
pub struct LogSettings {
    /// How log lines look, for people or for programs
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
}

impl LogSettings {
    /// Starts logging to standard error. RUST_LOG filters.
    pub fn start(&self) {
        let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(DEFAULT_FILTER));
        if self.log_format == LogFormat::Json {
            builder.format(|out, record| {
                let line = serde_json::json!({
                    "time": chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
                    "level": record.level().as_str(),
                    "target": record.target(),
                    "message": record.args().to_string(),
                });
                writeln!(out, "{line}")
            });
        }
        // A second call, as tests in one process make, changes nothing.
        let _ = builder.try_init();
    }
}
