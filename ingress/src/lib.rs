//! The ingress: verifies a webhook on its raw bytes, commits it, answers, and publishes its id.
//!
//! - [`Settings`]: what can be set.
//! - `webhook`: the one public handler, from socket to answer.
//! - `reply`: what is answered, and what is counted.
//! - `endpoints`: the snapshot of endpoints and keys that requests are verified against.
//! - `writer`: the threads that commit, many events at a time.
//! - `relay`: publishes the outbox; the broker may be away as long as it likes.
//! - `refusals`: keeps a bounded record of what was refused, off the hot path.

mod endpoints;
mod metrics;
mod refusals;
mod relay;
mod reply;
mod server;
mod settings;
mod webhook;
mod writer;

pub use server::run;
pub use settings::{Settings, StartError};
