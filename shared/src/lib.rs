//! Payment webhooks in, an exact ledger out.
//!
//! The cast, in the order an event meets it:
//!
//! - [`intake`]: bytes and headers become an [`intake::Admission`] or a [`intake::Refusal`]; pure.
//! - [`providers`]: how each provider signs, and what its payloads mean; pure.
//! - [`domain`]: money, facts, the folds that turn a set of facts into ledger rows, and the fate of a message; pure.
//! - [`decision`]: what a person decided about an event in quarantine, as an event of its own; pure.
//! - [`sealing`]: bodies and secrets are compressed, encrypted and bound to the row they belong to; pure.
//! - `store` (feature `store`): the only place that speaks to PostgreSQL.
//! - `service` (feature `service`): settings, logs, private listener and stop signal of the long-running processes.
//! - `broker` (feature `broker`): the only place that speaks to RabbitMQ.
//!
//! ```text
//! Inbound -> Verified -> Admission -> Accepted          ingress: bytes to a committed row
//! Dispatch -> StoredEvent -> [Fact] -> Ledger           worker: row to ledger
//! Outcome | Failure -> Settlement                       worker: what becomes of the message
//! ```

pub mod decision;
pub mod domain;
pub mod intake;
pub mod providers;
pub mod sealing;

#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "service")]
pub mod service;
#[cfg(feature = "store")]
pub mod store;
