use std::collections::HashSet;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use uuid::Uuid;

use super::{BrokerError, BrokerUrl, Dispatch, Topology};

/// How long the broker may take to confirm a batch. After that its fate is unknown, not failed.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
const PERSISTENT: u8 = 2;

/// A connection with a channel in confirm mode.
pub struct Publisher {
    topology: Topology,
    channel: Channel,
    /// Dropping the connection closes the channel.
    _connection: Connection,
}

/// What the broker said of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Stored in a queue.
    pub confirmed: Vec<Uuid>,
    /// Refused, or sent back because no queue takes it.
    pub refused: Vec<Uuid>,
}

impl Publisher {
    /// Connects, declares the topology, and asks for confirms.
    pub async fn connect(url: &BrokerUrl, topology: &Topology) -> Result<Self, BrokerError> {
        let connection = url.connect("hookledger relay").await?;
        let channel = connection.create_channel().await.map_err(|_| BrokerError::Lost)?;
        topology.declare(&channel).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(|_| BrokerError::Lost)?;
        Ok(Publisher { topology: topology.clone(), channel, _connection: connection })
    }

    /// Publishes a batch, all in flight at once, and waits until the broker has spoken about each.
    ///
    /// lapin may hand a returned message to the confirm of another one that is in flight. So the batch is judged as a
    /// whole: what was acknowledged and is not among the returned ids is stored. A return always comes before its own
    /// acknowledgement, so when every confirm is in, every return is.
    ///
    /// # Errors
    /// After an error the fate of the batch is unknown, and this publisher is of no more use.
    pub async fn publish(&self, dispatches: &[Dispatch]) -> Result<Published, BrokerError> {
        tokio::time::timeout(CONFIRM_TIMEOUT, self.publish_unhurried(dispatches))
            .await
            .map_err(|_| BrokerError::Silent)?
    }

    async fn publish_unhurried(&self, dispatches: &[Dispatch]) -> Result<Published, BrokerError> {
        let mut in_flight = Vec::with_capacity(dispatches.len());
        for dispatch in dispatches {
            let properties = BasicProperties::default()
                .with_delivery_mode(PERSISTENT)
                .with_content_type("application/json".into())
                .with_message_id(dispatch.dispatch_id.to_string().into());
            let confirm = self
                .channel
                .basic_publish(
                    self.topology.exchange().into(),
                    self.topology.queue(dispatch.lane).into(),
                    BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() },
                    &dispatch.to_bytes(),
                    properties,
                )
                .await
                .map_err(|_| BrokerError::Lost)?;
            in_flight.push((dispatch.dispatch_id, confirm));
        }
        let (mut acknowledged, mut returned, mut refused) = (Vec::new(), HashSet::new(), Vec::new());
        for (id, confirm) in in_flight {
            let confirmation = confirm.await.map_err(|_| BrokerError::Lost)?;
            match &confirmation {
                Confirmation::Ack(_) => acknowledged.push(id),
                Confirmation::Nack(_) => refused.push(id),
                Confirmation::NotRequested => return Err(BrokerError::Lost),
            }
            if let Some(message) = confirmation.take_message() {
                let id = message.delivery.properties.message_id().as_ref().map(|id| Uuid::parse_str(id.as_str()));
                // A return that does not say whose it is makes the whole batch doubtful.
                returned.insert(id.and_then(Result::ok).ok_or(BrokerError::Lost)?);
            }
        }
        let (sent_back, confirmed) = acknowledged.into_iter().partition(|id| returned.contains(id));
        refused.extend::<Vec<Uuid>>(sent_back);
        Ok(Published { confirmed, refused })
    }
}
