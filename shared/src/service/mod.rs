//! What every long-running process has: settings, logs, a private listener, and the signal to stop.

mod admin;
mod logs;
mod metrics;
mod settings;
mod stop;

pub use admin::{AdminListener, Readiness};
pub use logs::{LogFormat, LogSettings};
pub use metrics::{Metrics, seconds_histogram};
pub use settings::{BrokerSettings, DatabaseSettings, SealingSettings, SettingError};
pub use stop::Stop;
