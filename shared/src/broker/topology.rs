//! The exchanges and queues. Names and arguments work unchanged on RabbitMQ 3.10 to 4.x.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, ExchangeKind};

use super::{BrokerError, BrokerUrl};
use crate::domain::Lane;

/// A worker that dies with a message gives it back. After this many times the broker takes it out of the lane.
const DELIVERY_LIMIT: i64 = 20;
/// The dead queue has no limit; what "no limit" is called differs between versions, a large number does not.
const NO_LIMIT: i64 = 1 << 40;

/// The names of one installation's exchanges and queues.
#[derive(Debug, Clone)]
pub struct Topology {
    prefix: String,
}

/// The broker has something under one of our names that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the broker does not let us declare {name}: it exists with other arguments, or our user may not configure it. \
         Compare it with docs/ARCHITECTURE.md; nothing was changed"
)]
pub struct TopologyError {
    name: String,
}

/// How full a queue is, and whether anybody takes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    pub ready: u32,
    pub consumers: u32,
}

impl Topology {
    /// `prefix` is `webhook` unless several installations share a broker.
    pub fn new(prefix: &str) -> Self {
        Topology { prefix: prefix.to_owned() }
    }

    /// The topic exchange that everything is published to.
    pub(super) fn exchange(&self) -> &str {
        &self.prefix
    }

    /// The queue of a lane; also the routing key that leads to it.
    pub(super) fn queue(&self, lane: Lane) -> String {
        format!("{}.{}", self.prefix, lane.as_str())
    }

    /// Where the broker puts what workers died with: an exchange and a queue of one name.
    pub(super) fn dead(&self) -> String {
        format!("{}.dead", self.prefix)
    }

    /// Declares everything. What is there already, with the same arguments, is left as it is.
    pub(super) async fn declare(&self, channel: &Channel) -> Result<(), TopologyError> {
        let dead = self.dead();
        declare_exchange(channel, &dead, ExchangeKind::Fanout).await?;
        declare_queue(channel, &dead, &dead, "", &[("x-delivery-limit", AMQPValue::LongLongInt(NO_LIMIT))]).await?;
        declare_exchange(channel, self.exchange(), ExchangeKind::Topic).await?;
        for lane in Lane::ALL {
            let queue = self.queue(lane);
            let arguments = [
                ("x-delivery-limit", AMQPValue::LongLongInt(DELIVERY_LIMIT)),
                ("x-dead-letter-exchange", AMQPValue::LongString(dead.as_str().into())),
                // A dead letter must not be dropped because its queue is away for a moment.
                ("x-dead-letter-strategy", AMQPValue::LongString("at-least-once".into())),
                ("x-overflow", AMQPValue::LongString("reject-publish".into())),
            ];
            declare_queue(channel, &queue, self.exchange(), &queue, &arguments).await?;
        }
        Ok(())
    }

    /// Asks the broker about the lanes' queues and, last, the dead queue.
    pub async fn inspect(&self, url: &BrokerUrl) -> Result<Vec<(String, QueueState)>, BrokerError> {
        let connection = url.connect("hookledger inspect").await?;
        let channel = connection.create_channel().await.map_err(|_| BrokerError::Lost)?;
        let mut states = Vec::new();
        for name in Lane::ALL.map(|lane| self.queue(lane)).into_iter().chain([self.dead()]) {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::durable() };
            let queue = channel
                .queue_declare(name.as_str().into(), passive, FieldTable::default())
                .await
                .map_err(|_| TopologyError { name: name.clone() })?;
            states.push((name, QueueState { ready: queue.message_count(), consumers: queue.consumer_count() }));
        }
        Ok(states)
    }
}

async fn declare_exchange(channel: &Channel, name: &str, kind: ExchangeKind) -> Result<(), TopologyError> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await;
    declared.map_err(|_| TopologyError { name: format!("exchange {name}") })
}

async fn declare_queue(
    channel: &Channel,
    name: &str,
    exchange: &str,
    routing_key: &str,
    arguments: &[(&str, AMQPValue)],
) -> Result<(), TopologyError> {
    let failed = || TopologyError { name: format!("queue {name}") };
    let mut table = FieldTable::default();
    table.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    for (key, value) in arguments {
        table.insert((*key).into(), value.clone());
    }
    channel.queue_declare(name.into(), QueueDeclareOptions::durable(), table).await.map_err(|_| failed())?;
    let options = QueueBindOptions::default();
    let bound =
        channel.queue_bind(name.into(), exchange.into(), routing_key.into(), options, FieldTable::default()).await;
    bound.map_err(|_| failed())
}
