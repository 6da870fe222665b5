use std::sync::Arc;

use shared::broker::{BrokerError, BrokerUrl, Deliveries, Delivery, Topology};
use shared::domain::{Class, Failure, Lane};
use shared::service::Stop;
use shared::store;
use uuid::Uuid;

use crate::lane::{Backoff, bury_unreadable};
use crate::projector::{CRASH_LOOP, DatabaseAway, Projector};

/// How often an event that the broker gave up is tried alone. More than once, because a worker may be killed for reasons
/// of its own while it holds one.
const LONE_TRIES: i32 = 3;

/// Takes what the broker gave up, because workers died with it, and sees that it ends in our tables.
pub(crate) struct Recorder {
    pub url: BrokerUrl,
    pub topology: Topology,
    pub projector: Arc<Projector>,
    pub stop: Stop,
}

impl Recorder {
    /// Drains the dead queue until told to stop.
    pub async fn run(self) {
        let mut backoff = Backoff::new();
        loop {
            match Deliveries::of_the_dead(&self.url, &self.topology).await {
                Ok(deliveries) => {
                    backoff = Backoff::new();
                    match self.consume(deliveries).await {
                        Ok(()) => return,
                        Err(error) => log::warn!("recorder: {error}; connecting anew"),
                    }
                }
                Err(error) => log::warn!("recorder: {error}"),
            }
            if !backoff.wait(&self.stop).await {
                return;
            }
        }
    }

    async fn consume(&self, mut deliveries: Deliveries) -> Result<(), BrokerError> {
        loop {
            let batch = tokio::select! {
                biased;
                () = self.stop.wait() => break,
                batch = deliveries.next() => batch?,
            };
            for delivery in &batch {
                if !self.settle(delivery).await? {
                    deliveries.close().await;
                    return Ok(());
                }
            }
        }
        deliveries.close().await;
        Ok(())
    }

    /// False: told to stop.
    async fn settle(&self, delivery: &Delivery) -> Result<bool, BrokerError> {
        let mut backoff = Backoff::new();
        // Once per delivery: rounds that only wait for the database are not the event's fault.
        let mut is_marked = false;
        loop {
            let projector = Arc::clone(&self.projector);
            let dispatch = delivery.dispatch;
            let work = tokio::task::spawn_blocking(move || match dispatch {
                Ok(dispatch) if !is_marked => try_alone(&projector, dispatch.lane, dispatch.event_id),
                Ok(dispatch) => projector.project(dispatch.lane, &[dispatch.event_id]),
                Err(_) => bury_unreadable(&projector.pool, Lane::Other).map(|()| Vec::new()),
            });
            match work.await.unwrap_or(Err(DatabaseAway)) {
                Ok(unrecorded) if unrecorded.is_empty() => {
                    delivery.ack().await?;
                    return Ok(true);
                }
                Ok(_) | Err(DatabaseAway) => is_marked = dispatch.is_ok(),
            }
            if !backoff.wait(&self.stop).await {
                delivery.give_back().await?;
                return Ok(false);
            }
        }
    }
}

/// The suspect goes alone, so that the neighbours of a poison event do not die with it. It is marked first: if we die too,
/// the mark stays, and after a few of them the event is buried untried.
fn try_alone(projector: &Projector, lane: Lane, id: Uuid) -> Result<Vec<Uuid>, DatabaseAway> {
    let marked = store::get(&projector.pool).and_then(|mut connection| store::mark_suspect(&mut connection, id));
    match marked.map_err(|_| DatabaseAway)? {
        Some(suspect) if suspect.suspect_count > LONE_TRIES => {
            let message = format!("workers died with the event, and died again on {LONE_TRIES} tries with it alone");
            projector.record_failure(lane, id, Failure { class: Class::Permanent, code: CRASH_LOOP, message })
        }
        Some(_) | None => projector.project(lane, &[id]),
    }
}
