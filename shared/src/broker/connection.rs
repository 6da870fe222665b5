use std::fmt;
use std::time::Duration;

use lapin::{Connection, ConnectionProperties};

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds. The broker's own default of a minute leaves a dead connection unnoticed for two and a half.
const HEARTBEAT: &str = "heartbeat=10";

/// Where the broker is. Printing it shows no password.
#[derive(Clone)]
pub struct BrokerUrl(String);

/// The text is not an AMQP address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must begin with amqp:// or amqps://")]
pub struct BrokerUrlError;

impl BrokerUrl {
    /// Adds a heartbeat of ten seconds where the address sets none.
    pub fn parse(url: &str) -> Result<Self, BrokerUrlError> {
        if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
            return Err(BrokerUrlError);
        }
        let mut url = url.to_owned();
        if !url.contains("heartbeat=") {
            url.push_str(if url.contains('?') { "&" } else { "?" });
            url.push_str(HEARTBEAT);
        }
        Ok(BrokerUrl(url))
    }

    /// Opens a connection that shows up in the broker's lists as `name`. It does not reconnect by itself: a connection
    /// that fails is dropped with everything on it, and whoever owned it starts anew.
    pub(super) async fn connect(&self, name: &str) -> Result<Connection, BrokerError> {
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        match tokio::time::timeout(CONNECT_TIMEOUT, Connection::connect(&self.0, properties)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(_)) | Err(_) => Err(BrokerError::Unreachable),
        }
    }
}

impl fmt::Debug for BrokerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrokerUrl")
    }
}

/// Why the broker is of no use right now. The library's own text is never kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    #[error("the broker cannot be reached, or refuses us")]
    Unreachable,
    #[error("the connection to the broker was lost")]
    Lost,
    #[error("the broker did not confirm in time")]
    Silent,
    #[error(transparent)]
    Topology(#[from] super::TopologyError),
}
