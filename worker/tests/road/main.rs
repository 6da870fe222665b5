//! The road from outside: HTTP in, SQL out, on real servers. `deploy/test` starts the servers.

mod harness;

mod accepting;
mod dead_letters;
mod heavy;
mod order;
mod sdk;
mod store;
mod visibility;
