//! The worker: takes dispatches from RabbitMQ and projects their events into the ledger.
//!
//! - [`Settings`]: what can be set.
//! - `lane`: consumes one lane, batch by batch, and settles every message.
//! - [`Projector`]: one batch in one transaction: lock, load, decode, fold, upsert, settle.
//! - `decode`: one stored event becomes facts; pure.
//! - `folding`: how subjects are locked and folded together.
//! - [`Rebuild`]: derives and folds everything again, and holds it against the ledger.
//! - `recorder`: takes what the broker gave up, tries it once more alone, and records it.
//! - `housekeeping`: gauges, and the rescue of events that a broker lost.
//! - [`ctl`]: the operator's tool `webhookctl`.

pub mod ctl;
mod decode;
mod folding;
mod housekeeping;
mod lane;
mod metrics;
mod projector;
mod rebuild;
mod recorder;
mod server;
mod settings;

pub use projector::{DatabaseAway, Projector};
pub use rebuild::{ColumnDifference, Difference, Findings, Kept, Rebuild, RebuildError, Scope, What};
pub use server::run;
pub use settings::{Command, Settings, StartError};
