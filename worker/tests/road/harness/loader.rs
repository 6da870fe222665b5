use std::sync::Arc;

use chrono::{DateTime, Utc};
use shared::domain::{Lane, RetryPolicy};
use shared::intake::{Inbound, KeyRing, admit};
use shared::providers::sample::{self, SampleOptions};
use shared::providers::{Provider, sign};
use shared::sealing::Sealer;
use shared::service::Metrics;
use shared::store::{self, AcceptEvent, Accepted, Pool};
use uuid::Uuid;
use worker::Projector;

use super::{REVENUECAT_SECRET, SEALING_KEYS, SECRET, STANDARD_SECRET, World};

/// Accepts and projects events as ingress and worker do, without the network between them.
pub struct Loader {
    pool: Pool,
    sealer: Arc<Sealer>,
    ring: KeyRing,
    projector: Projector,
}

/// A signed event as it comes in, at a time of our choice.
pub struct Arrival {
    pub provider: Provider,
    pub event_id: String,
    pub body: Vec<u8>,
    pub at: DateTime<Utc>,
}

impl Arrival {
    /// A sample event that comes in as it happens.
    pub fn sample(provider: Provider, event_type: &str, options: &SampleOptions) -> Arrival {
        let sample = sample::event(provider, event_type, options).unwrap();
        Arrival { provider, event_id: sample.event_id, body: sample.body, at: Utc::now() }
    }
}

impl Loader {
    pub fn of(world: &World) -> Loader {
        let sealer = Arc::new(Sealer::from_keyring(SEALING_KEYS).unwrap());
        let pool = store::connect(&world.database.url, "loader", 4).unwrap();
        let ring = store::load_key_ring(&mut store::get(&pool).unwrap(), &sealer).unwrap();
        let policy = RetryPolicy::default();
        let projector = Projector::new(pool.clone(), sealer.clone(), policy, "loader".into(), &mut Metrics::of("test"));
        Loader { pool, sealer, ring, projector }
    }

    /// Accepts and projects all of them.
    pub fn load(&self, arrivals: &[Arrival]) {
        for batch in arrivals.chunks(250) {
            let events: Vec<AcceptEvent> = batch.iter().map(|arrival| self.admit(arrival)).collect();
            let accepted = store::accept(&mut store::get(&self.pool).unwrap(), Uuid::nil(), 10, &events).unwrap();
            assert!(accepted.iter().all(|accepted| *accepted == Ok(Accepted::New)));
            let batch: Vec<Uuid> = events.iter().map(|event| event.id.uuid()).collect();
            self.project(&batch);
        }
    }

    /// Projects events that are accepted, in one batch.
    pub fn project(&self, ids: &[Uuid]) {
        assert!(self.projector.project(Lane::Payments, ids).unwrap().is_empty());
        store::delete_published(&mut store::get(&self.pool).unwrap(), ids).unwrap();
    }

    fn admit(&self, arrival: &Arrival) -> AcceptEvent {
        let Arrival { provider, event_id, body, at } = arrival;
        let secret = match provider {
            Provider::Stripe => SECRET,
            Provider::RevenueCat => REVENUECAT_SECRET,
            Provider::StandardWebhooks => STANDARD_SECRET,
        };
        let headers = sign(*provider, secret.as_bytes(), event_id, *at, body).unwrap();
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let inbound = Inbound { provider: *provider, endpoint_slug: "main", headers: &headers, body, received_at: *at };
        AcceptEvent::seal(admit(&inbound, &self.ring, *at).unwrap(), &self.sealer).unwrap()
    }
}
