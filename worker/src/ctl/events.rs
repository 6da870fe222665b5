use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use shared::providers::Provider;
use shared::store::{self, AttemptRow, DeadLetter, EventRow, FactRow, PgConnection, QuarantineRow};

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{fields, optional, section, table, time};
use super::{dlq, quarantine};

const STATUSES: [&str; 6] = ["accepted", "retrying", "processed", "ignored", "quarantined", "dead"];
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Subcommand)]
pub(super) enum Events {
    /// Show the events that came last
    List(List),
    /// Show everything about an event but its payload
    Show {
        /// Our id of the event, or the provider's
        id: String,
    },
    /// Wait until an event has a status
    Wait(Wait),
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Only events of this status
    #[arg(long, value_parser = PossibleValuesParser::new(STATUSES))]
    status: Option<String>,
    /// Only events of this provider
    #[arg(long)]
    provider: Option<Provider>,
    /// Most rows to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

#[derive(Debug, Args)]
pub(super) struct Wait {
    /// Our id of the event, or the provider's
    id: String,
    /// The status to wait for; several with commas between them
    #[arg(long, value_delimiter = ',', default_value = "processed,ignored", value_parser = PossibleValuesParser::new(STATUSES))]
    status: Vec<String>,
    /// How long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    timeout: u64,
}

/// An event with all that hangs on it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    event: EventRow,
    attempts: Vec<AttemptRow>,
    dead_letter: Option<DeadLetter>,
    quarantine: Vec<QuarantineRow>,
    facts: Vec<FactRow>,
}

impl Events {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Events::List(list) => list.run(context),
            Events::Show { id } => show(context, &id),
            Events::Wait(wait) => wait.run(context),
        }
    }
}

impl List {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let provider = self.provider.map(Provider::as_str);
        let rows = store::list_events(&mut *context.connection()?, self.status.as_deref(), provider, self.limit)?;
        context.print("events.list", &rows, summary)?;
        Ok(Exit::Done)
    }
}

fn summary(rows: &[EventRow]) -> String {
    const HEADINGS: [&str; 9] =
        ["ID", "PROVIDER", "EVENT ID", "TYPE", "STATUS", "ATTEMPTS", "REPLAYS", "RECEIVED", "ERROR"];
    table(&HEADINGS, rows, |row| {
        vec![
            row.id.to_string(),
            row.provider.clone(),
            row.event_id.clone(),
            row.event_type.clone(),
            row.status.clone(),
            row.attempt_count.to_string(),
            row.replay_count.to_string(),
            time(row.received_at),
            optional(row.last_error_code.as_deref()),
        ]
    })
}

fn show(context: &Context, id: &str) -> Result<Exit, CtlError> {
    let mut connection = context.connection()?;
    let events = store::find_event(&mut connection, id)?;
    if events.is_empty() {
        return Err(CtlError::NoEvent(id.to_owned()));
    }
    let reports: Vec<Report> =
        events.into_iter().map(|event| Report::about(&mut connection, event)).collect::<Result<_, CtlError>>()?;
    context
        .print("events.show", &reports, |reports| reports.iter().map(Report::text).collect::<Vec<_>>().join("\n\n"))?;
    Ok(Exit::Done)
}

impl Report {
    fn about(connection: &mut PgConnection, event: EventRow) -> Result<Self, CtlError> {
        Ok(Report {
            attempts: store::list_attempts(connection, event.id)?,
            dead_letter: store::find_dead_letter(connection, &event.id.to_string())?,
            quarantine: store::quarantine_of(connection, event.id)?,
            facts: store::facts_of(connection, event.id)?,
            event,
        })
    }

    fn text(&self) -> String {
        let facts = section("FACTS", &["SUBJECT", "KIND", "WHAT", "OCCURRED"], &self.facts, |fact| {
            let subject = format!("{} {}", fact.subject_kind, fact.subject_id);
            vec![subject, fact.kind.clone(), fact.what.clone(), time(fact.occurred_at)]
        });
        let letters = section("DEAD LETTER", &dlq::HEADINGS, self.dead_letter.as_slice(), dlq::cells);
        let quarantined = section("QUARANTINE", &quarantine::HEADINGS, &self.quarantine, quarantine::cells);
        format!("{}{}{facts}{letters}{quarantined}", header(&self.event), attempts(&self.attempts))
    }
}

fn header(event: &EventRow) -> String {
    let signed = event.auth_method.as_ref().map(|method| {
        let state = event.auth_state.as_deref().unwrap_or_default();
        format!("{state} by {method}, key version {}", optional(event.key_version))
    });
    let error = event
        .last_error_code
        .as_ref()
        .map(|code| format!("{code}: {}", event.last_error_message.as_deref().unwrap_or_default()));
    fields(&[
        ("id", Some(event.id.to_string())),
        ("event", Some(format!("{} / {} / {}", event.provider, event.provider_account_id, event.event_id))),
        ("type", Some(event.event_type.clone())),
        ("api version", event.api_version.clone()),
        ("environment", Some(event.environment.clone())),
        ("origin", Some(event.origin.clone())),
        ("lane", Some(event.lane.clone())),
        ("status", Some(event.status.clone())),
        ("occurred", event.occurred_at.map(time)),
        ("received", Some(time(event.received_at))),
        ("processed", event.processed_at.map(time)),
        ("next attempt", event.next_attempt_at.map(time)),
        ("attempts", Some(event.attempt_count.to_string())),
        ("replays", Some(event.replay_count.to_string())),
        ("error", error),
        ("signature", signed),
        ("app user", event.app_user_id.clone()),
        ("transaction", event.transaction_id.clone()),
        ("original", event.original_transaction_id.clone()),
        ("product", event.product_id.clone()),
        ("store", event.store.clone()),
        ("body", event.body_bytes.map(|bytes| format!("{bytes} bytes"))),
        ("body sha256", event.body_sha256.clone()),
        ("content hash", Some(event.payload_hash.clone())),
    ])
}

/// The failed attempts, as a part of a longer output.
pub(super) fn attempts(attempts: &[AttemptRow]) -> String {
    const HEADINGS: [&str; 7] = ["#", "AT", "LANE", "WORKER", "FATE", "ERROR", "MESSAGE"];
    section("FAILED ATTEMPTS", &HEADINGS, attempts, |attempt| {
        vec![
            attempt.attempt.to_string(),
            time(attempt.at),
            attempt.lane.clone(),
            attempt.worker.clone(),
            attempt.fate.clone(),
            attempt.error_code.clone(),
            attempt.error_message.clone(),
        ]
    })
}

impl Wait {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let mut connection = context.connection()?;
        let deadline = Instant::now() + Duration::from_secs(self.timeout);
        // Once found, events are looked up by our id, which is a primary key.
        let mut ids = vec![self.id.clone()];
        loop {
            let mut events = Vec::new();
            for id in &ids {
                events.extend(store::find_event(&mut connection, id)?);
            }
            if !events.is_empty() && events.iter().all(|event| self.status.contains(&event.status)) {
                context.print("events.wait", &events, summary)?;
                return Ok(Exit::Done);
            }
            if Instant::now() >= deadline {
                return Err(self.gave_up(&events));
            }
            if !events.is_empty() {
                ids = events.iter().map(|event| event.id.to_string()).collect();
            }
            sleep(POLL);
        }
    }

    fn gave_up(self, events: &[EventRow]) -> CtlError {
        match events.iter().find(|event| !self.status.contains(&event.status)) {
            Some(event) => CtlError::StillWaiting { id: self.id, status: event.status.clone(), seconds: self.timeout },
            None => CtlError::NoEvent(self.id),
        }
    }
}
