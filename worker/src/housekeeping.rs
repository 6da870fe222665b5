use std::time::Duration;

use chrono::{TimeDelta, Utc};
use shared::broker::{BrokerUrl, Topology};
use shared::service::Stop;
use shared::store::{self, Pool, StoreError};

use crate::metrics::WorkerMetrics;

const GAUGE_INTERVAL: Duration = Duration::from_secs(5);
const RESCUE_INTERVAL: Duration = Duration::from_secs(60);
/// An event may be on its way for this long before anybody asks where it is. Minutes.
const STALE_MINUTES: i64 = 10;
const ORPHAN_INTERVAL: Duration = Duration::from_secs(600);
/// How long a refund may wait for its payment before a person is asked.
const ORPHAN_HOURS: i64 = 24;
const RESCUED_AT_ONCE: i64 = 1000;

/// Keeps the gauges current until told to stop.
pub(crate) async fn keep_gauges(pool: Pool, metrics: WorkerMetrics, stop: Stop) {
    while pause(GAUGE_INTERVAL, &stop).await {
        let (pool, metrics) = (pool.clone(), metrics.clone());
        // When the look fails, the timestamps stay behind and the ages that alerts are made of grow: that fails safe.
        let _ = tokio::task::spawn_blocking(move || update_gauges(&pool, &metrics)).await;
    }
}

fn update_gauges(pool: &Pool, metrics: &WorkerMetrics) -> Result<(), StoreError> {
    let mut connection = store::get(pool)?;
    let backlog = store::backlog(&mut connection)?;
    let now = Utc::now();
    metrics.oldest_unprocessed.set(backlog.oldest_unprocessed_at.unwrap_or(now).timestamp());
    metrics.oldest_dead_letter.set(backlog.oldest_dead_letter_at.unwrap_or(now).timestamp());
    metrics.dead_letters_open.set(backlog.dead_letters_open);
    metrics.quarantine_open.set(backlog.quarantine_open);
    metrics.partitions_ahead.set(store::weeks_ahead(&mut connection)?.into());
    Ok(())
}

/// Finds events that a broker lost after it had confirmed them, until told to stop.
pub(crate) async fn rescue(pool: Pool, url: BrokerUrl, topology: Topology, stop: Stop) {
    while pause(RESCUE_INTERVAL, &stop).await {
        // Only when every queue is empty can an old unsettled event not be waiting in one.
        let Ok(queues) = topology.inspect(&url).await else { continue };
        if queues.iter().any(|(_, queue)| queue.ready > 0) {
            continue;
        }
        let pool = pool.clone();
        let rescued = tokio::task::spawn_blocking(move || {
            let stale_since = Utc::now() - TimeDelta::minutes(STALE_MINUTES);
            store::rescue_stranded(&mut *store::get(&pool)?, stale_since, RESCUED_AT_ONCE)
        });
        if let Ok(Ok(count @ 1..)) = rescued.await {
            log::warn!("rescue: {count} events were in no queue and in no outbox; they are published again");
        }
    }
}

/// Finds refunds whose payment nobody has told us of, until told to stop.
pub(crate) async fn watch_for_orphans(pool: Pool, stop: Stop) {
    while pause(ORPHAN_INTERVAL, &stop).await {
        let pool = pool.clone();
        let found = tokio::task::spawn_blocking(move || {
            let now = Utc::now();
            store::quarantine_orphans(&mut *store::get(&pool)?, now, now - TimeDelta::hours(ORPHAN_HOURS))
        });
        match found.await {
            Ok(Ok(count @ 1..)) => log::warn!("orphans: {count} payments are refunded but unknown; see the quarantine"),
            Ok(Err(error)) => log::warn!("orphans: not looked for: {error}"),
            Ok(Ok(0)) | Err(_) => {}
        }
    }
}

async fn pause(interval: Duration, stop: &Stop) -> bool {
    tokio::select! {
        () = tokio::time::sleep(interval) => true,
        () = stop.wait() => false,
    }
}
