//! The road from outside: HTTP in, SQL out, on real servers. `deploy/test` starts the servers.

// A test that meets an error has failed; the helpers of the tests may say so as shortly as the tests themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod harness;

mod accepting;
mod cases;
mod dead_letters;
mod heavy;
mod histories;
mod order;
mod quarantine;
mod queries;
mod rebuild;
mod sdk;
mod store;
mod timeline;
mod visibility;
