use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use shared::intake::KeyRing;
use shared::sealing::Sealer;
use shared::service::Stop;
use shared::store::{self, EndpointStoreError, Pool};

/// How often the database is asked whether an endpoint or key has changed.
const REFRESH: Duration = Duration::from_secs(1);

/// The endpoints and keys that requests are verified against. When the database is away the last snapshot stays.
#[derive(Clone, Default)]
pub(crate) struct Endpoints {
    /// None until the first snapshot: until then nothing can be verified.
    ring: Arc<ArcSwap<Option<KeyRing>>>,
}

impl Endpoints {
    pub fn snapshot(&self) -> Arc<Option<KeyRing>> {
        self.ring.load_full()
    }

    /// Looks for changes until told to stop.
    pub async fn keep_fresh(self, pool: Pool, sealer: Arc<Sealer>, stop: Stop) {
        let mut seen = None;
        let mut ticks = tokio::time::interval(REFRESH);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.wait() => return,
            }
            let (pool, sealer) = (pool.clone(), sealer.clone());
            let read = tokio::task::spawn_blocking(move || read_if_changed(&pool, &sealer, seen)).await;
            match read {
                Ok(Ok(Some((revision, ring)))) => {
                    log::info!("endpoints: revision {revision}, {} endpoints", ring.endpoints().count());
                    self.ring.store(Arc::new(Some(ring)));
                    seen = Some(revision);
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => log::warn!("endpoints: keeping the last snapshot: {error}"),
                Err(_) => log::error!("endpoints: reading them panicked; keeping the last snapshot"),
            }
        }
    }
}

fn read_if_changed(
    pool: &Pool,
    sealer: &Sealer,
    seen: Option<i64>,
) -> Result<Option<(i64, KeyRing)>, EndpointStoreError> {
    let mut connection = store::get(pool)?;
    // The revision first: a change between the two reads is then seen again at the next look, not missed.
    let revision = store::revision(&mut connection)?;
    if seen == Some(revision) {
        return Ok(None);
    }
    Ok(Some((revision, store::load_key_ring(&mut connection, sealer)?)))
}
