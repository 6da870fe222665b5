use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DurationRound, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use shared::domain::{EventId, Time};
use shared::intake::Refusal;
use shared::sealing::{Column, Sealer};
use shared::service::Stop;
use shared::store::{self, CountKey, NewRefusal, Pool, StoreError};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Refused requests kept per endpoint and minute. The counts beyond that stay exact.
const KEPT_PER_MINUTE: u32 = 60;
/// How much of a refused body is kept, in bytes.
const PREFIX_BYTES: usize = 512;
/// Refusals that may wait to be written. When a flood fills it, requests are still counted, only not kept.
const WAITING: usize = 4096;
const FLUSH: Duration = Duration::from_secs(1);

/// A refused request, on its way to the record.
pub(crate) struct Refused {
    pub refusal: Refusal,
    pub provider: &'static str,
    pub endpoint_id: Option<Uuid>,
    pub received_at: Time,
    pub claimed_event_id: Option<String>,
    /// The beginning of the body, and the hash and length of all of it.
    pub prefix: Vec<u8>,
    pub sha256: [u8; 32],
    pub body_bytes: usize,
}

impl Refused {
    pub fn new(refusal: Refusal, provider: &'static str, received_at: Time, body: &[u8]) -> Self {
        Refused {
            refusal,
            provider,
            endpoint_id: None,
            received_at,
            claimed_event_id: None,
            prefix: body.get(..PREFIX_BYTES).unwrap_or(body).to_vec(),
            sha256: Sha256::digest(body).into(),
            body_bytes: body.len(),
        }
    }
}

/// Where handlers report refused requests. Reporting never waits.
#[derive(Clone)]
pub(crate) struct RefusalLog {
    samples: mpsc::Sender<Refused>,
    counts: Arc<std::sync::Mutex<BTreeMap<CountKey, i64>>>,
}

/// Writes the record, a batch a second, far from the requests.
pub(crate) struct RefusalRecorder {
    samples: mpsc::Receiver<Refused>,
    counts: Arc<std::sync::Mutex<BTreeMap<CountKey, i64>>>,
    sealer: Arc<Sealer>,
    pool: Pool,
    writer: Uuid,
    /// How many were kept, by minute and endpoint.
    kept: BTreeMap<(Time, Uuid), u32>,
}

impl RefusalLog {
    pub fn new(pool: Pool, sealer: Arc<Sealer>) -> (RefusalLog, RefusalRecorder) {
        let (sender, samples) = mpsc::channel(WAITING);
        let counts = Arc::default();
        let log = RefusalLog { samples: sender, counts: Arc::clone(&counts) };
        let recorder = RefusalRecorder { samples, counts, sealer, pool, writer: Uuid::now_v7(), kept: BTreeMap::new() };
        (log, recorder)
    }

    pub fn report(&self, refused: Refused) {
        let key = CountKey {
            minute: minute_of(refused.received_at),
            endpoint_id: refused.endpoint_id.unwrap_or(Uuid::nil()),
            reason: refused.refusal.reason(),
        };
        if let Ok(mut counts) = self.counts.lock() {
            *counts.entry(key).or_insert(0) += 1;
        }
        let _ = self.samples.try_send(refused);
    }
}

fn minute_of(time: Time) -> Time {
    time.duration_trunc(TimeDelta::minutes(1)).unwrap_or(time)
}

impl RefusalRecorder {
    /// Writes until told to stop, and once more then.
    pub async fn run(mut self, stop: Stop) {
        loop {
            let stopping = tokio::select! {
                () = tokio::time::sleep(FLUSH) => false,
                () = stop.wait() => true,
            };
            self = match tokio::task::spawn_blocking(move || self.flush()).await {
                Ok(recorder) => recorder,
                Err(_) => return log::error!("refusals: writing them panicked; no more are recorded"),
            };
            if stopping {
                return;
            }
        }
    }

    fn flush(mut self) -> Self {
        let counts = self.counts.lock().map(|mut counts| std::mem::take(&mut *counts)).unwrap_or_default();
        let samples = self.take_samples();
        if counts.is_empty() && samples.is_empty() {
            return self;
        }
        if let Err(error) = self.write(&counts, &samples) {
            log::warn!("refusals: not recorded, {} samples dropped, counts kept for later: {error}", samples.len());
            if let Ok(mut waiting) = self.counts.lock() {
                for (key, count) in counts {
                    *waiting.entry(key).or_insert(0) += count;
                }
            }
        }
        self
    }

    fn write(&self, counts: &BTreeMap<CountKey, i64>, samples: &[NewRefusal]) -> Result<(), StoreError> {
        store::record_refusals(&mut *store::get(&self.pool)?, self.writer, counts, samples)
    }

    fn take_samples(&mut self) -> Vec<NewRefusal> {
        let mut samples = Vec::new();
        let past = minute_of(Utc::now()) - TimeDelta::minutes(2);
        self.kept = self.kept.split_off(&(past, Uuid::nil()));
        while let Ok(refused) = self.samples.try_recv() {
            let minute = minute_of(refused.received_at);
            let kept = self.kept.entry((minute, refused.endpoint_id.unwrap_or(Uuid::nil()))).or_insert(0);
            if *kept < KEPT_PER_MINUTE {
                *kept += 1;
                samples.extend(self.seal(refused));
            }
        }
        samples
    }

    fn seal(&self, refused: Refused) -> Option<NewRefusal> {
        let id = EventId::at(refused.received_at).uuid();
        Some(NewRefusal {
            id,
            received_at: refused.received_at,
            provider: refused.provider,
            endpoint_id: refused.endpoint_id,
            reason: refused.refusal.reason(),
            status: i16::try_from(refused.refusal.status()).ok()?,
            claimed_event_id: refused.claimed_event_id,
            body_sha256: refused.sha256,
            body_bytes: i32::try_from(refused.body_bytes).ok()?,
            sealed_prefix: self.sealer.seal(Column::RefusedBody, id, &refused.prefix).ok()?,
        })
    }
}
