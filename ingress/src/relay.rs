use std::collections::HashSet;
use std::time::Duration;

use shared::broker::{BrokerError, BrokerUrl, Dispatch, Publisher, Topology};
use shared::service::Stop;
use shared::store::{self, ClaimedDispatch, Pool, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::metrics::{IngressMetrics, LaneLabel, PublishLabels};

/// How many messages are in flight at once.
const BATCH: usize = 256;
/// How many rows a sweep claims, and for how long: more than a batch may take to be confirmed. Seconds.
const SWEEP: i64 = 256;
const CLAIM_SECONDS: i32 = 30;
/// How often a sweep looks for due rows while nothing comes by the fast path.
const SWEEP_INTERVAL: Duration = Duration::from_millis(200);
const GAUGE_INTERVAL: Duration = Duration::from_secs(2);
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// Publishes the outbox: what was just committed by the fast path, everything else by sweeping.
pub(crate) struct Relay {
    pub pool: Pool,
    pub url: BrokerUrl,
    pub topology: Topology,
    pub metrics: IngressMetrics,
    pub fast_path: mpsc::Receiver<Dispatch>,
    pub stop: Stop,
}

impl Relay {
    /// Connects, publishes until the connection fails, and starts over, for as long as the process lives.
    pub async fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        while !self.stop.is_said() {
            match Publisher::connect(&self.url, &self.topology).await {
                Ok(publisher) => {
                    log::info!("relay: connected");
                    backoff = FIRST_BACKOFF;
                    self.metrics.broker_connected.set(1);
                    match self.publish_until_failure(&publisher).await {
                        Ok(()) => return,
                        Err(error) => log::warn!("relay: {error}; connecting anew"),
                    }
                    self.metrics.broker_connected.set(0);
                }
                Err(error) => log::warn!("relay: {error}; next try in {backoff:?}"),
            }
            // What piled up meanwhile stays in the outbox; publishing it from here too would only double it.
            while self.fast_path.try_recv().is_ok() {}
            tokio::select! {
                () = tokio::time::sleep(backoff.mul_f64(0.75 + rand::random::<f64>() / 2.0)) => {}
                () = self.stop.wait() => return,
            }
            backoff = (backoff * 2).min(LONGEST_BACKOFF);
        }
    }

    /// Returns when told to stop and what came by the fast path is published.
    async fn publish_until_failure(&mut self, publisher: &Publisher) -> Result<(), BrokerError> {
        let mut bookkeeping: Option<JoinHandle<()>> = None;
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        let mut gauges = tokio::time::interval(GAUGE_INTERVAL);
        let stop = self.stop.clone();
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            tokio::select! {
                biased;
                _ = gauges.tick() => { self.update_gauges().await; continue }
                _ = sweeps.tick() => batch = self.sweep().await,
                received = self.fast_path.recv_many(&mut batch, BATCH) => if received == 0 {
                    finish(bookkeeping).await;
                    return Ok(());
                },
                () = stop.wait() => {
                    while batch.len() < BATCH && let Ok(dispatch) = self.fast_path.try_recv() {
                        batch.push(dispatch);
                    }
                    if batch.is_empty() {
                        finish(bookkeeping).await;
                        return Ok(());
                    }
                }
            }
            if batch.is_empty() {
                continue;
            }
            if batch.len() == BATCH {
                // A backlog: look again at once instead of at the next tick.
                sweeps.reset_immediately();
            }
            let published = match publisher.publish(&batch).await {
                Ok(published) => published,
                Err(error) => {
                    self.count(&batch, "unknown", |_| true);
                    return Err(error);
                }
            };
            let refused: HashSet<Uuid> = published.refused.iter().copied().collect();
            self.count(&batch, "refused", |dispatch| refused.contains(&dispatch.dispatch_id));
            self.count(&batch, "confirmed", |dispatch| !refused.contains(&dispatch.dispatch_id));
            finish(bookkeeping.take()).await;
            let pool = self.pool.clone();
            bookkeeping = Some(tokio::task::spawn_blocking(move || {
                if let Err(error) = keep_books(&pool, &published.confirmed, &published.refused) {
                    // The rows are published again when their claim runs out; a worker tells doubles apart.
                    log::warn!("relay: the outbox was not updated: {error}");
                }
            }));
        }
    }

    async fn sweep(&self) -> Vec<Dispatch> {
        let pool = self.pool.clone();
        let claimed =
            tokio::task::spawn_blocking(move || store::claim_due(&mut *store::get(&pool)?, SWEEP, CLAIM_SECONDS));
        match claimed.await {
            Ok(Ok(rows)) => rows.into_iter().filter_map(dispatch).collect(),
            Ok(Err(error)) => {
                log::warn!("relay: no sweep: {error}");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    fn count(&self, batch: &[Dispatch], result: &'static str, counts: impl Fn(&Dispatch) -> bool) {
        for dispatch in batch.iter().filter(|dispatch| counts(dispatch)) {
            self.metrics.publishes.get_or_create(&PublishLabels { lane: dispatch.lane.as_str(), result }).inc();
        }
    }

    async fn update_gauges(&self) {
        let (pool, metrics) = (self.pool.clone(), self.metrics.clone());
        // A poller that hangs leaves the timestamp behind, and the age that alerts are made of grows: it fails safe.
        let _ = tokio::task::spawn_blocking(move || update_outbox_gauges(&pool, &metrics)).await;
    }
}

fn dispatch(row: ClaimedDispatch) -> Option<Dispatch> {
    // The database allows only lanes we know.
    Some(Dispatch { dispatch_id: row.id, event_id: row.event_id, lane: row.lane.parse().ok()? })
}

async fn finish(bookkeeping: Option<JoinHandle<()>>) {
    if let Some(task) = bookkeeping
        && task.await.is_err()
    {
        log::error!("relay: updating the outbox panicked");
    }
}

fn keep_books(pool: &Pool, confirmed: &[Uuid], refused: &[Uuid]) -> Result<(), StoreError> {
    let mut connection = store::get(pool)?;
    if !confirmed.is_empty() {
        store::delete_published(&mut connection, confirmed)?;
    }
    if !refused.is_empty() {
        log::warn!(
            "relay: the broker refused or could not route {} messages; they rest and are tried again",
            refused.len()
        );
        store::postpone(&mut connection, refused)?;
    }
    Ok(())
}

fn update_outbox_gauges(pool: &Pool, metrics: &IngressMetrics) -> Result<(), StoreError> {
    let mut connection = store::get(pool)?;
    let now = chrono::Utc::now();
    for row in store::outbox_status(&mut connection)? {
        let Ok(lane) = row.lane.parse::<shared::domain::Lane>() else { continue };
        let label = LaneLabel { lane: lane.as_str() };
        metrics.pending.get_or_create(&label).set(row.pending);
        metrics.oldest_pending.get_or_create(&label).set(row.oldest_due_at.unwrap_or(now).timestamp());
    }
    Ok(())
}
