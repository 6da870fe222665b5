//! RabbitMQ: the only room with lapin.
//!
//! Messages carry ids, never payloads: the row is the truth, and a message that comes twice is harmless.

mod connection;
mod consumer;
mod message;
mod publisher;
mod topology;

pub use connection::{BrokerError, BrokerUrl, BrokerUrlError};
pub use consumer::{Deliveries, Delivery};
pub use message::{Dispatch, UnreadableMessage};
pub use publisher::{Published, Publisher};
pub use topology::{QueueState, Topology, TopologyError};
