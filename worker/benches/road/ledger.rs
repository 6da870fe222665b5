use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use shared::domain::{EventId, RecordedFact, Subject, fold};
use shared::providers::sample::{self, SampleOptions};
use shared::providers::{Provider, StoredEvent, facts};

use crate::driver::{self, Pace};
use crate::measure::wait_until_projected;
use crate::requests::{Requests, STORY};
use crate::stage::{self, Stage};
use crate::{Failed, failed};

/// How many workers project a backlog.
pub const WORKERS: [u16; 3] = [1, 2, 4];
const CONNECTIONS: u16 = 64;
const BACKLOG: usize = 20_000;
const QUICK_BACKLOG: usize = 2_000;
const FOLDING: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(120);

/// What the ledger takes without the road before it.
pub struct LedgerFigures {
    /// Subjects folded per second, in memory.
    pub folds_per_second: f64,
    /// Events of a prepared backlog projected per second, by the number of workers.
    pub projected_per_second: Vec<(u16, f64)>,
    pub rebuilt_events: u64,
    pub rebuilt_per_second: f64,
}

/// Measures with workers of its own; those that ran before are gone afterwards.
pub fn measure(stage: &mut Stage, quick: bool) -> Result<LedgerFigures, Failed> {
    let folds_per_second = folds()?;
    let mut projected_per_second = Vec::new();
    for workers in WORKERS {
        eprintln!("a backlog and {workers} worker(s)");
        let backlog = if quick { QUICK_BACKLOG } else { BACKLOG };
        projected_per_second.push((workers, project_backlog(stage, workers, backlog)?));
    }
    eprintln!("rebuilding the ledger");
    let report = stage.rebuild()?;
    let figure = |name: &str| report.pointer(&format!("/items/0/{name}")).and_then(serde_json::Value::as_f64);
    let (Some(events), Some(per_second)) = (figure("events"), figure("events_per_second")) else {
        return failed("the rebuild did not say how many events it read");
    };
    Ok(LedgerFigures {
        folds_per_second,
        projected_per_second,
        rebuilt_events: events as u64,
        rebuilt_per_second: per_second,
    })
}

/// Folds a payment with its refund, and a subscription, again and again.
fn folds() -> Result<f64, Failed> {
    let mut subjects: BTreeMap<Subject, Vec<RecordedFact>> = BTreeMap::new();
    let now = Utc::now();
    for event_type in STORY {
        let sample = sample::event(Provider::Stripe, event_type, &SampleOptions::new("folds", now))?;
        let event = StoredEvent {
            provider: Provider::Stripe,
            account_key: stage::ACCOUNT.to_owned(),
            external_event_id: sample.event_id,
            event_type: event_type.to_owned(),
            occurred_at: Some(now),
            received_at: now,
            event_id: EventId::at(now),
            body: sample.body.into(),
        };
        for (fact, ordinal) in facts(&event)?.into_iter().zip(0..) {
            let (event_id, external_event_id) = (event.event_id, event.external_event_id.clone());
            let recorded = RecordedFact { fact, event_id, external_event_id, ordinal };
            subjects.entry(recorded.fact.subject.clone()).or_default().push(recorded);
        }
    }
    let (started, mut folded) = (Instant::now(), 0_u64);
    while started.elapsed() < FOLDING {
        for (subject, facts) in &subjects {
            black_box(fold(black_box(subject), black_box(facts), &[]));
            folded += 1;
        }
    }
    Ok(folded as f64 / started.elapsed().as_secs_f64())
}

/// Accepts events while nobody works, waits until all are in the queues, and lets the workers at them.
fn project_backlog(stage: &mut Stage, workers: u16, events: usize) -> Result<f64, Failed> {
    stage.start_workers(0)?;
    let mut connection = stage.connection()?;
    let since = stage::number(&mut connection, "SELECT (extract(epoch FROM now()) * 1000)::bigint AS number")?;
    let requests = Arc::new(Requests::mixed(&format!("backlog{workers}"), events)?);
    let driven = driver::drive(stage.ingress, &requests, CONNECTIONS, Pace::Full, PATIENCE.as_secs_f64())?;
    if driven.sent.len() != events {
        return failed(format!("{} of {events} events of the backlog were accepted", driven.sent.len()));
    }
    let started = Instant::now();
    while stage::number(&mut connection, "SELECT count(*) AS number FROM webhook.outbox")? > 0 {
        if started.elapsed() > PATIENCE {
            return failed("the backlog did not reach the queues");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    stage::run(&mut connection, "CHECKPOINT")?;
    stage.start_workers(workers)?;
    wait_until_projected(&mut connection)?;
    let took = format!(
        "SELECT greatest(1, (extract(epoch FROM max(processed_at) - min(processed_at)) * 1000000)::bigint) AS number
           FROM webhook.inbox WHERE received_at >= to_timestamp({since} / 1000.0)"
    );
    Ok(events as f64 / (stage::number(&mut connection, &took)? as f64 / 1e6))
}
