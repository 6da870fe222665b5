use clap::Args;
use serde::Serialize;
use shared::broker::{BrokerError, QueueState};
use shared::service::BrokerSettings;
use shared::store::{self, Books, Finding, PgConnection, StoreError, Waits};

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{table, wait};

/// How long an event or an outbox row may wait before somebody should look. Seconds.
const WORRYING_WAIT: i64 = 60;
/// How long an event may wait before it counts as stuck. Seconds.
const STUCK_WAIT: i64 = 900;
/// Weeks for which the raw store should have partitions.
const WANTED_WEEKS: i32 = 2;

/// Without AMQP_URL, which elsewhere must be set, only the queues are not looked at.
#[derive(Debug, Args)]
#[command(mut_arg("amqp_url", |arg| arg.required(false)))]
pub(super) struct Doctor {
    #[command(flatten)]
    broker: Option<BrokerSettings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Failure,
}

/// What was looked at, and how it is.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Check {
    check: String,
    result: Verdict,
    detail: String,
}

impl Check {
    fn new(check: impl Into<String>, result: Verdict, detail: impl Into<String>) -> Self {
        Check { check: check.into(), result, detail: detail.into() }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "WARNING",
            Verdict::Failure => "FAILURE",
        }
    }

    fn exit(self) -> Exit {
        match self {
            Verdict::Ok => Exit::Done,
            Verdict::Warning => Exit::Finding,
            Verdict::Failure => Exit::DoctorFailed,
        }
    }
}

impl Doctor {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let mut checks = check_database(&mut *context.connection()?)?;
        if let Some(broker) = &self.broker {
            checks.extend(check_broker(broker)?);
        }
        context.print("doctor.run", &checks, |checks| {
            table(&["CHECK", "RESULT", "DETAIL"], checks, |check| {
                vec![check.check.clone(), check.result.word().to_owned(), check.detail.clone()]
            })
        })?;
        let worst = checks.iter().map(|check| check.result).max().unwrap_or(Verdict::Ok);
        Ok(worst.exit())
    }
}

fn check_database(connection: &mut PgConnection) -> Result<Vec<Check>, CtlError> {
    let pending = store::pending_migrations(connection)?;
    let mut checks = vec![schema(pending)];
    if pending == 0 {
        checks.extend(store::in_snapshot(connection, check_rows)?);
    }
    Ok(checks)
}

/// Events move on while we look; in one snapshot they all stand still.
fn check_rows(connection: &mut PgConnection) -> Result<Vec<Check>, StoreError> {
    store::take_time(connection)?;
    let books = store::books(connection)?;
    let waits = store::waits(connection)?;
    let mut checks = vec![received(&books), kept(&books), accepted(&books)];
    checks.extend(store::inspect_laws(connection)?.into_iter().map(law));
    checks.extend([unsettled(&waits), outbox(&waits), open("open dead letters", "dlq", waits.dead_letter)]);
    checks.push(open("open quarantine", "quarantine", waits.quarantine));
    checks.push(partitions(store::weeks_ahead(connection)?));
    Ok(checks)
}

fn schema(pending: usize) -> Check {
    match pending {
        0 => Check::new("schema", Verdict::Ok, "current"),
        count => {
            let detail = format!("{count} migrations are pending, so nothing else was checked; run webhookctl migrate");
            Check::new("schema", Verdict::Failure, detail)
        }
    }
}

/// The first equation: every request ended in one of four ways.
fn received(books: &Books) -> Check {
    let Books { received, counted_accepted, counted_replayed, counted_rejected, counted_quarantined, .. } = books;
    let sum = counted_accepted + counted_replayed + counted_rejected + counted_quarantined;
    equation(
        "received",
        *received,
        sum,
        format!(
            "accepted {counted_accepted} + replayed {counted_replayed} + rejected {counted_rejected} + quarantined {counted_quarantined}"
        ),
    )
}

/// The second equation: every accepted event is somewhere.
fn accepted(books: &Books) -> Check {
    let Books { events, processed, ignored, retrying, quarantined, dead, in_flight, .. } = books;
    let sum = processed + ignored + retrying + quarantined + dead + in_flight;
    equation(
        "accepted",
        *events,
        sum,
        format!(
            "processed {processed} + ignored {ignored} + retrying {retrying} + quarantined {quarantined} + dead {dead} + in flight {in_flight}"
        ),
    )
}

fn equation(name: &str, whole: i64, sum: i64, parts: String) -> Check {
    if whole == sum {
        Check::new(name, Verdict::Ok, format!("{name} {whole} = {parts}"))
    } else {
        let missing = whole - sum;
        Check::new(name, Verdict::Failure, format!("{name} {whole} is not {parts}; the difference is {missing}"))
    }
}

/// What makes the first equation more than a sum: requests are counted in the transaction that keeps them.
fn kept(books: &Books) -> Check {
    let pairs = [
        ("accepted", books.counted_accepted, books.accepted, "events from providers"),
        ("replayed", books.counted_replayed, books.replayed, "replays"),
        ("quarantined", books.counted_quarantined, books.mismatched, "differing deliveries"),
    ];
    let wrong: Vec<String> = pairs
        .iter()
        .filter(|(_, counted, rows, _)| counted != rows)
        .map(|(name, counted, rows, what)| format!("{counted} requests counted as {name}, but {rows} {what} kept"))
        .collect();
    if wrong.is_empty() {
        Check::new("kept", Verdict::Ok, "what was counted as accepted, replayed and quarantined is there, row by row")
    } else {
        Check::new("kept", Verdict::Failure, wrong.join("; "))
    }
}

fn law(finding: Finding) -> Check {
    match finding.example {
        None => Check::new(finding.law, Verdict::Ok, finding.says),
        Some(example) => {
            let count = finding.offenders;
            let detail =
                format!("{count} rows break this: {}; one of them: webhookctl events show {example}", finding.says);
            Check::new(finding.law, Verdict::Failure, detail)
        }
    }
}

fn unsettled(waits: &Waits) -> Check {
    match waits.event {
        None => Check::new("unsettled", Verdict::Ok, "no event waits for a worker"),
        Some(seconds) => {
            let result = match seconds {
                seconds if seconds > STUCK_WAIT => Verdict::Failure,
                seconds if seconds > WORRYING_WAIT => Verdict::Warning,
                _ => Verdict::Ok,
            };
            let detail = format!("the oldest event that waits for a worker has waited {}", wait(seconds));
            Check::new("unsettled", result, detail)
        }
    }
}

fn outbox(waits: &Waits) -> Check {
    let failing = waits.failing;
    let age = waits.outbox.map(|seconds| format!("the oldest row has waited {} for the broker", wait(seconds)));
    let refused = (failing > 0).then(|| format!("the broker refused or could not route {failing} rows"));
    let worrying = failing > 0 || waits.outbox.is_some_and(|seconds| seconds > WORRYING_WAIT);
    let result = if worrying { Verdict::Warning } else { Verdict::Ok };
    let words: Vec<String> = age.into_iter().chain(refused).collect();
    Check::new(
        "outbox",
        result,
        if words.is_empty() { "nothing waits for the broker".to_owned() } else { words.join("; ") },
    )
}

/// Work for people is no fault of the system: it is told, and the exit code stays.
fn open(name: &str, noun: &str, oldest: Option<i64>) -> Check {
    let detail = match oldest {
        None => "none".to_owned(),
        Some(seconds) => format!("the oldest has waited {} for a person; webhookctl {noun} list", wait(seconds)),
    };
    Check::new(name, Verdict::Ok, detail)
}

fn partitions(weeks_ahead: i32) -> Check {
    let result = match weeks_ahead {
        ..0 => Verdict::Failure,
        0..WANTED_WEEKS => Verdict::Warning,
        WANTED_WEEKS.. => Verdict::Ok,
    };
    let detail = match weeks_ahead {
        ..0 => "the raw store has no partition for this week; the next event has to create it".to_owned(),
        weeks => format!("the raw store has partitions for {weeks} more weeks (wanted: {WANTED_WEEKS} or more)"),
    };
    Check::new("partitions", result, detail)
}

fn check_broker(settings: &BrokerSettings) -> Result<Vec<Check>, CtlError> {
    let (url, topology) = (settings.url()?, settings.topology()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let queues = runtime.map_err(|error| CtlError::System(error.kind()))?.block_on(topology.inspect(&url));
    Ok(match queues {
        Ok(mut queues) => {
            let dead = queues.pop().map(|(name, state)| dead_queue(&name, state));
            queues.iter().map(|(name, state)| lane_queue(name, *state)).chain(dead).collect()
        }
        Err(BrokerError::Topology(_)) => {
            let detail =
                "a queue of ours is missing, or we may not look at it; ingress and worker declare it when they connect";
            vec![Check::new("broker", Verdict::Failure, detail)]
        }
        Err(error) => vec![Check::new("broker", Verdict::Failure, error.to_string())],
    })
}

fn lane_queue(name: &str, state: QueueState) -> Check {
    let QueueState { ready, consumers } = state;
    let result = if consumers == 0 { Verdict::Warning } else { Verdict::Ok };
    Check::new(format!("queue {name}"), result, format!("{ready} messages wait for {consumers} consumers"))
}

fn dead_queue(name: &str, state: QueueState) -> Check {
    let QueueState { ready, consumers } = state;
    let result = if consumers == 0 || ready > 0 { Verdict::Warning } else { Verdict::Ok };
    let detail = format!("{ready} messages that workers died with wait for {consumers} recorders");
    Check::new(format!("queue {name}"), result, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKS: Books = Books {
        received: 12,
        counted_accepted: 8,
        counted_replayed: 1,
        counted_rejected: 2,
        counted_quarantined: 1,
        accepted: 8,
        replayed: 1,
        mismatched: 1,
        events: 8,
        in_flight: 1,
        retrying: 1,
        processed: 3,
        ignored: 1,
        quarantined: 1,
        dead: 1,
    };
    const NOTHING_WAITS: Waits = Waits { event: None, outbox: None, dead_letter: None, quarantine: None, failing: 0 };

    #[test]
    fn balanced_books_are_shown_as_the_two_equations() {
        assert_eq!(received(&BOOKS).detail, "received 12 = accepted 8 + replayed 1 + rejected 2 + quarantined 1");
        assert_eq!(
            accepted(&BOOKS).detail,
            "accepted 8 = processed 3 + ignored 1 + retrying 1 + quarantined 1 + dead 1 + in flight 1"
        );
        assert_eq!([received(&BOOKS), kept(&BOOKS), accepted(&BOOKS)].map(|check| check.result), [Verdict::Ok; 3]);
    }

    #[test]
    fn one_missing_event_is_a_failure_with_its_numbers() {
        let check = accepted(&Books { events: 9, ..BOOKS });
        assert_eq!(check.result, Verdict::Failure);
        assert!(check.detail.ends_with("the difference is 1"), "{}", check.detail);
        let check = kept(&Books { accepted: 7, ..BOOKS });
        assert_eq!(check.result, Verdict::Failure);
        assert_eq!(check.detail, "8 requests counted as accepted, but 7 events from providers kept");
        assert_eq!(kept(&Books { replayed: 2, ..BOOKS }).result, Verdict::Failure);
        assert_eq!(kept(&Books { mismatched: 0, ..BOOKS }).result, Verdict::Failure);
        assert_eq!(received(&Books { received: 11, ..BOOKS }).result, Verdict::Failure);
    }

    #[test]
    fn a_broken_law_names_an_offender() {
        let finding = |offenders, example: Option<&str>| Finding {
            law: "facts",
            says: "processed events have facts",
            offenders,
            example: example.map(str::to_owned),
        };
        assert_eq!(law(finding(0, None)).result, Verdict::Ok);
        let broken = law(finding(3, Some("id-1")));
        assert_eq!(broken.result, Verdict::Failure);
        assert!(
            broken.detail.starts_with("3 rows break this") && broken.detail.ends_with("events show id-1"),
            "{}",
            broken.detail
        );
    }

    #[test]
    fn waits_worry_only_when_they_are_long() {
        let event = |seconds| unsettled(&Waits { event: Some(seconds), ..NOTHING_WAITS }).result;
        assert_eq!([60, 61, 900, 901].map(event), [Verdict::Ok, Verdict::Warning, Verdict::Warning, Verdict::Failure]);
        assert_eq!(unsettled(&NOTHING_WAITS).result, Verdict::Ok);
        let rows = |seconds| outbox(&Waits { outbox: Some(seconds), ..NOTHING_WAITS }).result;
        assert_eq!([60, 61].map(rows), [Verdict::Ok, Verdict::Warning]);
        assert_eq!(outbox(&Waits { failing: 1, ..NOTHING_WAITS }).result, Verdict::Warning);
        assert_eq!(open("open dead letters", "dlq", Some(1_000_000)).result, Verdict::Ok);
    }

    #[test]
    fn partitions_must_exist_and_should_exist_ahead() {
        let results = [-1, 0, 1, 2, 52].map(|weeks| partitions(weeks).result);
        use Verdict::{Failure, Ok, Warning};
        assert_eq!(results, [Failure, Warning, Warning, Ok, Ok]);
    }

    #[test]
    fn queues_need_consumers_and_the_dead_queue_is_empty() {
        let state = |ready, consumers| QueueState { ready, consumers };
        assert_eq!(lane_queue("webhook.payments", state(5, 1)).result, Verdict::Ok);
        assert_eq!(lane_queue("webhook.payments", state(0, 0)).result, Verdict::Warning);
        assert_eq!(dead_queue("webhook.dead", state(0, 1)).result, Verdict::Ok);
        assert_eq!(dead_queue("webhook.dead", state(1, 1)).result, Verdict::Warning);
        assert_eq!(dead_queue("webhook.dead", state(0, 0)).result, Verdict::Warning);
    }

    #[test]
    fn the_queues_are_looked_at_where_the_broker_is_known() {
        use clap::Parser;
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            doctor: Doctor,
        }
        let given = Line::try_parse_from(["doctor", "--amqp-url", "amqp://localhost"]).unwrap();
        assert!(given.doctor.broker.is_some());
        if std::env::var_os("AMQP_URL").is_none() {
            assert!(Line::try_parse_from(["doctor"]).unwrap().doctor.broker.is_none());
        }
    }

    #[test]
    fn the_worst_check_decides_the_exit_code() {
        let exits = [Verdict::Ok, Verdict::Warning, Verdict::Failure].map(|verdict| verdict.exit().number());
        assert_eq!(exits, [0, 8, 9]);
        assert!(Verdict::Ok < Verdict::Warning && Verdict::Warning < Verdict::Failure);
        assert_eq!(schema(1).result, Verdict::Failure);
    }
}
