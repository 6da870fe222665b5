use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use shared::broker::{BrokerError, BrokerUrl, Deliveries, Delivery, Topology};
use shared::domain::Lane;
use shared::service::Stop;
use shared::store::{self, NewDeadLetter, Pool};
use uuid::Uuid;

use crate::metrics::LaneLabel;
use crate::projector::{DatabaseAway, Projector};

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Consumes one lane.
#[derive(Clone)]
pub(crate) struct LaneConsumer {
    pub lane: Lane,
    pub url: BrokerUrl,
    pub topology: Topology,
    pub projector: Arc<Projector>,
    pub batch: u16,
    pub stop: Stop,
}

/// Waits that grow while something is away.
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Self {
        Backoff(FIRST_BACKOFF)
    }

    /// Waits, unless told to stop. Returns whether to go on.
    pub async fn wait(&mut self, stop: &Stop) -> bool {
        let wait = self.0.mul_f64(0.75 + rand::random::<f64>() / 2.0);
        self.0 = (self.0 * 2).min(LONGEST_BACKOFF);
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = stop.wait() => false,
        }
    }
}

impl LaneConsumer {
    /// Connects, consumes until the connection fails, and starts over, until told to stop.
    pub async fn run(self) {
        let lane = self.lane.as_str();
        let connected = self.projector.metrics.consumer_connected.get_or_create_owned(&LaneLabel { lane });
        let mut backoff = Backoff::new();
        loop {
            let prefetch = self.batch.saturating_mul(2);
            match Deliveries::of_lane(&self.url, &self.topology, self.lane, self.batch.into(), prefetch).await {
                Ok(deliveries) => {
                    log::info!("lane {lane}: consuming");
                    connected.set(1);
                    backoff = Backoff::new();
                    let end = self.consume(deliveries).await;
                    connected.set(0);
                    match end {
                        Ok(()) => return,
                        Err(error) => log::warn!("lane {lane}: {error}; connecting anew"),
                    }
                }
                Err(error) => log::warn!("lane {lane}: {error}"),
            }
            if !backoff.wait(&self.stop).await {
                return;
            }
        }
    }

    /// Takes batches until told to stop. The batch in hand is finished; what was only prefetched goes back.
    async fn consume(&self, mut deliveries: Deliveries) -> Result<(), BrokerError> {
        loop {
            let batch = tokio::select! {
                biased;
                () = self.stop.wait() => break,
                batch = deliveries.next() => batch?,
            };
            if !self.settle(&batch).await? {
                break;
            }
        }
        deliveries.close().await;
        Ok(())
    }

    /// Has the batch projected, holding it through outages of the database, and acknowledges it. False: told to stop.
    async fn settle(&self, batch: &[Delivery]) -> Result<bool, BrokerError> {
        let ids: Vec<Uuid> = batch.iter().filter_map(Delivery::event_id).collect();
        let mut unreadable = batch.iter().filter(|delivery| delivery.dispatch.is_err()).count();
        let mut backoff = Backoff::new();
        let unrecorded = loop {
            let work = if unreadable > 0 { self.bury_one().await } else { self.project(ids.clone()).await.map(Some) };
            match work {
                Ok(Some(unrecorded)) => break unrecorded,
                Ok(None) => {
                    unreadable -= 1;
                    continue;
                }
                Err(DatabaseAway) => {
                    log::warn!("lane {}: the database is away; holding {} events", self.lane.as_str(), batch.len());
                }
            }
            if !backoff.wait(&self.stop).await {
                for delivery in batch {
                    delivery.give_back().await?;
                }
                return Ok(false);
            }
        };
        for delivery in batch {
            // An event whose failure cannot be written down must not hold up the lane: the recorder keeps trying.
            if delivery.event_id().is_some_and(|id| unrecorded.contains(&id)) {
                delivery.reject().await?;
            } else {
                delivery.ack().await?;
            }
        }
        Ok(true)
    }

    async fn bury_one(&self) -> Result<Option<Vec<Uuid>>, DatabaseAway> {
        let (projector, lane) = (Arc::clone(&self.projector), self.lane);
        let work = tokio::task::spawn_blocking(move || bury_unreadable(&projector.pool, lane));
        work.await.unwrap_or(Err(DatabaseAway)).map(|()| None)
    }

    async fn project(&self, mut ids: Vec<Uuid>) -> Result<Vec<Uuid>, DatabaseAway> {
        let (projector, lane) = (Arc::clone(&self.projector), self.lane);
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(ids);
        }
        let work = tokio::task::spawn_blocking(move || projector.project(lane, &ids));
        // A panic outside the projection: nothing is acknowledged, and the batch is tried again.
        work.await.unwrap_or(Err(DatabaseAway))
    }
}

/// A message that is none of ours cannot be processed, and must not be lost without a trace either.
pub(crate) fn bury_unreadable(pool: &Pool, lane: Lane) -> Result<(), DatabaseAway> {
    let letter = NewDeadLetter {
        source: "broker",
        lane: lane.as_str(),
        code: "unreadable_message",
        message: "a message in the queue is not a dispatch that this version can read".to_owned(),
        worker_version: env!("CARGO_PKG_VERSION"),
    };
    log::warn!("lane {}: unreadable message buried", lane.as_str());
    store::get(pool)
        .and_then(|mut connection| store::bury(&mut connection, Utc::now(), None, &letter))
        .map_err(|_| DatabaseAway)
}
