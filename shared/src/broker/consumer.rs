use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::ReadyChunks;
use lapin::message::Delivery as RawDelivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Consumer};
use uuid::Uuid;

use super::{BrokerError, BrokerUrl, Dispatch, Topology, UnreadableMessage};
use crate::domain::Lane;

/// How long a goodbye to the broker may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// One message, not yet acknowledged.
pub struct Delivery {
    pub dispatch: Result<Dispatch, UnreadableMessage>,
    raw: RawDelivery,
}

/// The stream of a queue, in batches of whatever is waiting.
pub struct Deliveries {
    stream: ReadyChunks<Consumer>,
    /// Dropping the connection gives every unacknowledged message back.
    connection: Connection,
    _channel: Channel,
}

impl Deliveries {
    /// Consumes a lane. At most `prefetch` messages are out unacknowledged, and a batch has at most `batch`.
    pub async fn of_lane(
        url: &BrokerUrl,
        topology: &Topology,
        lane: Lane,
        batch: usize,
        prefetch: u16,
    ) -> Result<Self, BrokerError> {
        let name = format!("hookledger worker {}", lane.as_str());
        Self::open(url, topology, &name, &topology.queue(lane), batch, prefetch).await
    }

    /// Consumes the dead queue, one message at a time.
    pub async fn of_the_dead(url: &BrokerUrl, topology: &Topology) -> Result<Self, BrokerError> {
        Self::open(url, topology, "hookledger recorder", &topology.dead(), 1, 1).await
    }

    async fn open(
        url: &BrokerUrl,
        topology: &Topology,
        name: &str,
        queue: &str,
        batch: usize,
        prefetch: u16,
    ) -> Result<Self, BrokerError> {
        let connection = url.connect(name).await?;
        let channel = connection.create_channel().await.map_err(|_| BrokerError::Lost)?;
        topology.declare(&channel).await?;
        channel.basic_qos(prefetch, BasicQosOptions::default()).await.map_err(|_| BrokerError::Lost)?;
        let consumer = channel
            .basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), FieldTable::default())
            .await
            .map_err(|_| BrokerError::Lost)?;
        Ok(Deliveries { stream: consumer.ready_chunks(batch.max(1)), connection, _channel: channel })
    }

    /// The next batch: at least one message, and whatever else has arrived.
    ///
    /// # Errors
    /// The stream ended or failed. Both mean that nobody consumes any more: open a new one.
    pub async fn next(&mut self) -> Result<Vec<Delivery>, BrokerError> {
        let chunk = self.stream.next().await.ok_or(BrokerError::Lost)?;
        let read = |raw: RawDelivery| Delivery { dispatch: Dispatch::from_bytes(&raw.data), raw };
        chunk.into_iter().map(|delivery| delivery.map(read).map_err(|_| BrokerError::Lost)).collect()
    }

    /// Gives back what is unacknowledged, and says goodbye.
    pub async fn close(self) {
        // Whether or not the broker hears it, the connection is gone afterwards.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.connection.close(200, "stopping".into())).await;
    }
}

impl Delivery {
    /// The event that the message names, if it can be read.
    pub fn event_id(&self) -> Option<Uuid> {
        self.dispatch.ok().map(|dispatch| dispatch.event_id)
    }

    /// Into the dead queue, where the recorder takes it up.
    pub async fn reject(&self) -> Result<(), BrokerError> {
        let options = BasicRejectOptions { requeue: false };
        self.raw.reject(options).await.map(|_| ()).map_err(|_| BrokerError::Lost)
    }

    /// The message is dealt with.
    pub async fn ack(&self) -> Result<(), BrokerError> {
        self.raw.ack(BasicAckOptions::default()).await.map(|_| ()).map_err(|_| BrokerError::Lost)
    }

    /// Back into the queue: somebody else takes it, or we do, later.
    pub async fn give_back(&self) -> Result<(), BrokerError> {
        let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
        self.raw.nack(options).await.map(|_| ()).map_err(|_| BrokerError::Lost)
    }
}
