use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

use shared::broker::Dispatch;
use shared::store::{self, AcceptEvent, Accepted, Connection, Pool, StoreError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// How many events one transaction takes at most. More brings no more throughput, only longer waits.
const BATCH: usize = 256;
/// How long the relay has to publish what was just committed, before any sweep may. Seconds.
const CLAIM_SECONDS: i32 = 10;

/// An event that waits to be committed, and whoever waits for the answer.
pub(crate) struct Waiting {
    pub event: AcceptEvent,
    pub answer: oneshot::Sender<Outcome>,
}

/// What became of one event.
pub(crate) type Outcome = Result<Accepted, StoreError>;

/// Where handlers leave verified events.
pub(crate) type Queue = flume::Sender<Waiting>;

/// The threads that commit. They end when every [`Queue`] is dropped and what was in it is answered.
pub(crate) struct Writers {
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts `count` threads. New events' dispatches go to `fast_path`.
    pub fn start(
        count: u8,
        queue_length: usize,
        pool: &Pool,
        fast_path: &mpsc::Sender<Dispatch>,
    ) -> std::io::Result<(Queue, Writers)> {
        let (queue, waiting) = flume::bounded(queue_length);
        let start = |number| {
            let writer =
                Writer { id: Uuid::now_v7(), pool: pool.clone(), connection: None, fast_path: fast_path.clone() };
            let waiting = waiting.clone();
            std::thread::Builder::new().name(format!("writer-{number}")).spawn(move || writer.run(&waiting))
        };
        let threads = (0..count).map(start).collect::<std::io::Result<_>>()?;
        Ok((queue, Writers { threads }))
    }

    /// Waits until everything that was queued is answered.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("writer: a thread panicked");
            }
        }
    }
}

struct Writer {
    /// Names this writer's rows of `intake_counts`.
    id: Uuid,
    pool: Pool,
    connection: Option<Connection>,
    fast_path: mpsc::Sender<Dispatch>,
}

impl Writer {
    /// Takes one event and whatever else is waiting, commits, answers, and again. No timer: at low load a batch is one
    /// event, and under load batches grow by themselves.
    fn run(mut self, waiting: &flume::Receiver<Waiting>) {
        while let Ok(first) = waiting.recv() {
            let mut events = Vec::with_capacity(BATCH);
            let mut answers = Vec::with_capacity(BATCH);
            for Waiting { event, answer } in std::iter::once(first).chain(waiting.try_iter()).take(BATCH) {
                events.push(event);
                answers.push(answer);
            }
            let outcomes = catch_unwind(AssertUnwindSafe(|| self.commit(&events))).unwrap_or_else(|_| {
                // The connection may be in the middle of a transaction; the pool throws it away.
                self.connection = None;
                log::error!("writer: committing {} events panicked", events.len());
                vec![Err(StoreError::Refused); events.len()]
            });
            for ((event, outcome), answer) in events.iter().zip(outcomes).zip(answers) {
                if outcome == Ok(Accepted::New) {
                    self.hand_to_relay(event);
                }
                // A handler that gave up does not take its answer; the provider will send the event again.
                let _ = answer.send(outcome);
            }
        }
    }

    fn commit(&mut self, events: &[AcceptEvent]) -> Vec<Outcome> {
        match self.accept(events) {
            Ok(outcomes) => outcomes,
            // One row is to blame: only it shall suffer.
            Err(error) if error.is_about_the_data() && events.len() > 1 => {
                events.iter().map(|event| self.accept_one(event)).collect()
            }
            Err(error) => {
                log::warn!("writer: {} events not stored: {error}", events.len());
                vec![Err(error); events.len()]
            }
        }
    }

    fn accept_one(&mut self, event: &AcceptEvent) -> Outcome {
        let outcomes = self.accept(std::slice::from_ref(event)).inspect_err(|error| {
            log::warn!("writer: event {} not stored: {error}", event.id);
        })?;
        outcomes.into_iter().next().unwrap_or(Err(StoreError::Refused))
    }

    /// Tries twice: a connection that went stale is replaced, and a deadlock victim goes again. Trying again is safe, even
    /// when the first try was committed and only its answer got lost.
    fn accept(&mut self, events: &[AcceptEvent]) -> Result<Vec<Outcome>, StoreError> {
        match self.accept_once(events) {
            Err(StoreError::Unavailable | StoreError::Contended) => self.accept_once(events),
            other => other,
        }
    }

    fn accept_once(&mut self, events: &[AcceptEvent]) -> Result<Vec<Outcome>, StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(store::get(&self.pool)?),
        };
        let result = store::accept(connection, self.id, CLAIM_SECONDS, events);
        if matches!(result, Err(StoreError::Unavailable)) {
            self.connection = None;
        }
        result
    }

    /// When the relay is behind, the sweep finds the row after its claim ran out.
    fn hand_to_relay(&self, event: &AcceptEvent) {
        let dispatch = Dispatch { dispatch_id: event.id.uuid(), event_id: event.id.uuid(), lane: event.lane };
        let _ = self.fast_path.try_send(dispatch);
    }
}
