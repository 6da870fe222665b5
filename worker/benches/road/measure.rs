use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use diesel::sql_types::{BigInt, Text};
use diesel::{PgConnection, QueryableByName, RunQueryDsl, sql_query};
use shared::store::{Bind, Sql};

use crate::cpu::Shares;
use crate::driver::{self, Driven, Pace, Sent};
use crate::requests::Requests;
use crate::settings::STEADY_RATE;
use crate::stage::{self, Stage};
use crate::{Failed, failed};

/// More than any machine that this runs on will take in a second; what is not sent was only prepared.
const MOST_PER_SECOND: f64 = 15_000.0;
const STEADY_CONNECTIONS: u16 = 16;
const PATIENCE: Duration = Duration::from_secs(300);

/// What is sent at one point.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub connections: u16,
    pub pace: Pace,
}

impl Offered {
    pub fn full(connections: u16) -> Self {
        Offered { connections, pace: Pace::Full }
    }

    pub fn steady() -> Self {
        Offered { connections: STEADY_CONNECTIONS, pace: Pace::Steady(STEADY_RATE) }
    }
}

/// Waiting times in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latency {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Latency {
    /// From single times in microseconds.
    pub fn of(mut micros: Vec<i64>) -> Self {
        micros.sort_unstable();
        let at = |share: f64| {
            let index = ((micros.len() as f64 * share).ceil() as usize).saturating_sub(1);
            micros.get(index).map_or(0.0, |value| *value as f64 / 1000.0)
        };
        Latency { p50: at(0.50), p95: at(0.95), p99: at(0.99) }
    }
}

/// One point of a round.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub connections: u16,
    /// Answered 200 per second, from the first request to the last answer.
    pub accepted_per_second: f64,
    /// In the ledger per second, from the first request to the last commit.
    pub ledger_per_second: f64,
    pub answer: Latency,
    /// From sending to the commit of the ledger row.
    pub ledger: Latency,
    /// Cores kept busy until the last answer.
    pub while_sending: Shares,
    /// Processor microseconds that one event costs, until the last one is in the ledger.
    pub an_event: Shares,
}

/// How many events are accepted while the workers rest: the intake alone, as pgbench is alone. Publishing goes on.
#[derive(Debug, Clone, Copy)]
pub struct Intake {
    pub connections: u16,
    pub accepted_per_second: f64,
    pub answer: Latency,
    pub while_sending: Shares,
}

pub fn measure_intake(stage: &Stage, prefix: &str, connections: u16, seconds: f64) -> Result<Intake, Failed> {
    let requests = Arc::new(Requests::prepare(prefix, (MOST_PER_SECOND * seconds) as usize)?);
    let mut connection = stage.connection()?;
    stage::run(&mut connection, "CHECKPOINT")?;
    stage.let_workers_rest(true)?;
    let (before, started) = (stage.watched.used(), Instant::now());
    let driven = driver::drive(stage.ingress, &requests, connections, Pace::Full, seconds);
    let (sending, after) = (started.elapsed().as_secs_f64(), stage.watched.used());
    stage.let_workers_rest(false)?;
    let driven = driven?;
    expect_all_accepted(&driven)?;
    wait_until_projected(&mut connection)?;
    Ok(Intake {
        connections,
        accepted_per_second: driven.sent.len() as f64 / driven.took.as_secs_f64(),
        answer: Latency::of(driven.sent.iter().map(|sent| sent.answered_after.as_micros() as i64).collect()),
        while_sending: after.since(&before, driven.cpu).per(sending),
    })
}

/// Sends, waits until everything is in the ledger, and reads from the database when each row was committed.
pub fn measure(stage: &Stage, prefix: &str, offered: Offered, seconds: f64) -> Result<Point, Failed> {
    let most = match offered.pace {
        Pace::Full => MOST_PER_SECOND,
        Pace::Steady(rate) => f64::from(rate),
    };
    let requests = Arc::new(Requests::prepare(prefix, (most * seconds) as usize)?);
    let mut connection = stage.connection()?;
    // Every point begins just after a checkpoint, so that none pays for the one before it.
    stage::run(&mut connection, "CHECKPOINT")?;

    let watch = match offered.pace {
        Pace::Steady(_) => Some(Watch::start(stage, &requests)?),
        Pace::Full => None,
    };
    let before = stage.watched.used();
    let started = Instant::now();
    let driven = driver::drive(stage.ingress, &requests, offered.connections, offered.pace, seconds)?;
    let sending = started.elapsed().as_secs_f64();
    let after_sending = stage.watched.used();
    expect_all_accepted(&driven)?;
    wait_until_projected(&mut connection)?;
    let after_all = stage.watched.used();

    let commits = match watch {
        Some(watch) => watch.finish()?,
        None => commit_times(&mut connection, &requests)?,
    };
    let times = ledger_times(&driven.sent, &commits)?;
    let first = driven.sent.iter().map(|sent| sent.at).min().unwrap_or_default();
    let last = times.iter().map(|(_, committed)| *committed).max().unwrap_or_default();
    let count = driven.sent.len() as f64;
    Ok(Point {
        connections: offered.connections,
        accepted_per_second: count / driven.took.as_secs_f64(),
        ledger_per_second: count / ((last - first) as f64 / 1e6),
        answer: Latency::of(driven.sent.iter().map(|sent| sent.answered_after.as_micros() as i64).collect()),
        ledger: Latency::of(times.iter().map(|(sent, committed)| committed - sent).collect()),
        while_sending: after_sending.since(&before, driven.cpu).per(sending),
        an_event: after_all.since(&before, driven.cpu).per(count / 1e6),
    })
}

fn expect_all_accepted(driven: &Driven) -> Result<(), Failed> {
    if driven.sent.is_empty() || !driven.refused.is_empty() {
        let refused: Vec<String> =
            driven.refused.iter().map(|(status, count)| format!("{count} times status {status}")).collect();
        return failed(format!("{} events answered 200, and besides: {}", driven.sent.len(), refused.join(", ")));
    }
    Ok(())
}

pub fn wait_until_projected(connection: &mut PgConnection) -> Result<(), Failed> {
    const UNSETTLED: &str =
        "SELECT EXISTS (SELECT FROM webhook.inbox WHERE status IN ('accepted', 'retrying'))::int::bigint
                                 AS number";
    let started = Instant::now();
    while stage::number(connection, UNSETTLED)? != 0 {
        if started.elapsed() > PATIENCE {
            return failed("accepted events were not projected in five minutes; see the worker's log");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Committed {
    #[diesel(sql_type = Text)]
    payment_id: String,
    #[diesel(sql_type = BigInt)]
    at: i64,
}

/// When each payment's row was committed, in microseconds, by the number of its request. PostgreSQL takes this time when
/// it writes the commit record, one flush before the row can be seen.
fn commit_times(connection: &mut PgConnection, requests: &Requests) -> Result<Vec<Option<i64>>, Failed> {
    let prefix = requests.payment_prefix();
    let query = format!(
        "SELECT payment_id, (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint AS at
           FROM payments WHERE starts_with(payment_id, '{prefix}')"
    );
    let mut times = vec![None; requests.len()];
    for row in sql_query(query).load::<Committed>(connection)? {
        let number = row.payment_id.strip_prefix(&prefix).and_then(|number| number.parse::<usize>().ok());
        if let Some(slot) = number.and_then(|number| times.get_mut(number)) {
            *slot = Some(row.at);
        }
    }
    Ok(times)
}

/// Sending and commit of every event, in microseconds.
fn ledger_times(sent: &[Sent], commits: &[Option<i64>]) -> Result<Vec<(i64, i64)>, Failed> {
    sent.iter()
        .map(|sent| match commits.get(sent.number).copied().flatten() {
            Some(committed) => Ok((sent.at, committed)),
            None => failed(format!("request {} was answered 200 and is not in the ledger", sent.number)),
        })
        .collect()
}

/// A reader of the ledger who looks again and again for the rows that are still missing. At a steady load this sees what
/// anyone else would see, up to the length of one look.
struct Watch {
    thread: std::thread::JoinHandle<Result<Vec<Option<i64>>, Failed>>,
    stop: Arc<AtomicBool>,
}

/// How many payments behind the newest one that was seen a look still covers.
const WINDOW: usize = 400;
const PAUSE: Duration = Duration::from_micros(500);

impl Watch {
    fn start(stage: &Stage, requests: &Arc<Requests>) -> Result<Self, Failed> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut connection, requests, stopped) = (stage.connection()?, Arc::clone(requests), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watch(&mut connection, &requests, &stopped))?;
        Ok(Watch { thread, stop })
    }

    /// Looks a last time and returns when each row was first seen.
    fn finish(self) -> Result<Vec<Option<i64>>, Failed> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| failed("the reader of the ledger panicked"))
    }
}

fn watch(connection: &mut PgConnection, requests: &Requests, stopped: &AtomicBool) -> Result<Vec<Option<i64>>, Failed> {
    const LOOK: &str = "SELECT payment_id, 0::bigint AS at FROM payments
                         WHERE provider = 'stripe' AND provider_account_id = $1 AND payment_id BETWEEN $2 AND $3";
    let prefix = requests.payment_prefix();
    let mut seen = vec![None; requests.len()];
    loop {
        let last_look = stopped.load(Ordering::Acquire);
        let first = seen.iter().position(Option::is_none).unwrap_or(seen.len());
        let (from, to) = (format!("{prefix}{first:07}"), format!("{prefix}{:07}", first + WINDOW));
        let binds = [Bind::Text(stage::ACCOUNT), Bind::Text(&from), Bind::Text(&to)];
        let rows: Vec<Committed> = Sql::new(LOOK, &binds).load(connection)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
        for row in rows {
            let number = row.payment_id.strip_prefix(&prefix).and_then(|number| number.parse::<usize>().ok());
            if let Some(slot) = number.and_then(|number| seen.get_mut(number)) {
                slot.get_or_insert(now);
            }
        }
        if last_look {
            return Ok(seen);
        }
        std::thread::sleep(PAUSE);
    }
}
