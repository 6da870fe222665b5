//! Tests that put a load on the machine and take servers or processes away under it. They run one at a time.

mod crash;
mod load;
mod outage;
mod rebuild;
mod servers;
