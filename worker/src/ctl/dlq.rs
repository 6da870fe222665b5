use chrono::Utc;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use shared::store::{self, AttemptRow, Audit, AuditRow, DeadLetter, PgConnection};

use super::Context;
use super::error::{CtlError, Exit};
use super::events;
use super::output::{fields, optional, section, table, time};
use super::reason::Reason;

const STATUSES: [&str; 4] = ["open", "replaying", "resolved", "discarded"];

#[derive(Debug, Subcommand)]
pub(super) enum Dlq {
    /// Show the dead letters that are not closed
    List(List),
    /// Show a dead letter, its attempts, and what people did about it
    Show {
        /// The dead letter's id, or its event's: ours or the provider's
        id: String,
    },
    /// Send the event down the one road again, with a fresh budget of attempts
    Replay(Act),
    /// Close the dead letter for good; its event stays out of the ledger
    Discard(Act),
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Only those of this status; else those that are open or replaying
    #[arg(long, value_parser = PossibleValuesParser::new(STATUSES))]
    status: Option<String>,
    /// Most rows to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// End with exit code 8 when there are any
    #[arg(long)]
    exit_code: bool,
}

#[derive(Debug, Args)]
pub(super) struct Act {
    /// The dead letter's id, or its event's: ours or the provider's
    id: String,
    /// Why, for whoever reads the audit log
    #[arg(long)]
    reason: Reason,
}

/// A dead letter with all that hangs on it.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    letter: DeadLetter,
    attempts: Vec<AttemptRow>,
    history: Vec<AuditRow>,
}

impl Dlq {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Dlq::List(list) => list.run(context),
            Dlq::Show { id } => show(context, &id),
            Dlq::Replay(act) => replay(context, &act),
            Dlq::Discard(act) => discard(context, &act),
        }
    }
}

impl List {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let rows = store::list_dead_letters(&mut *context.connection()?, self.status.as_deref(), self.limit)?;
        context.print("dlq.list", &rows, |rows| table(&HEADINGS, rows, cells))?;
        Ok(if self.exit_code && !rows.is_empty() { Exit::Finding } else { Exit::Done })
    }
}

pub(super) const HEADINGS: [&str; 9] =
    ["ID", "STATUS", "GROUP", "PROVIDER", "EVENT ID", "TYPE", "ERROR", "REPLAYS", "LAST FAILED"];

pub(super) fn cells(letter: &DeadLetter) -> Vec<String> {
    let named = |text: &str| optional(Some(text).filter(|text| !text.is_empty()));
    vec![
        letter.id.to_string(),
        letter.status.clone(),
        letter.fingerprint.clone(),
        named(&letter.provider),
        named(&letter.external_event_id),
        named(&letter.event_type),
        letter.error_code.clone(),
        letter.redrives.to_string(),
        time(letter.last_failed_at),
    ]
}

fn find(connection: &mut PgConnection, id: &str) -> Result<DeadLetter, CtlError> {
    store::find_dead_letter(connection, id)?.ok_or_else(|| CtlError::NoDeadLetter(id.to_owned()))
}

fn show(context: &Context, id: &str) -> Result<Exit, CtlError> {
    let mut connection = context.connection()?;
    let letter = find(&mut connection, id)?;
    let attempts = match letter.event_id {
        Some(event) => store::list_attempts(&mut connection, event)?,
        None => Vec::new(),
    };
    let history = store::audit_of(&mut connection, &letter.id.to_string())?;
    let report = Report { letter, attempts, history };
    context.print("dlq.show", &[report], |reports| reports.iter().map(Report::text).collect())?;
    Ok(Exit::Done)
}

impl Report {
    fn text(&self) -> String {
        let history = section("HISTORY", &["AT", "ACTOR", "ACTION", "REASON"], &self.history, |row| {
            vec![time(row.at), row.actor.clone(), row.action.clone(), row.reason.clone()]
        });
        format!("{}{}{history}{}", header(&self.letter), events::attempts(&self.attempts), self.next())
    }

    fn next(&self) -> String {
        let id = self.letter.id;
        match (self.letter.status.as_str(), self.letter.event_id) {
            ("open", Some(_)) => {
                format!("\n\nNEXT  webhookctl dlq replay {id} --reason '…'   or   dlq discard {id} --reason '…'")
            }
            ("open", None) => format!("\n\nNEXT  webhookctl dlq discard {id} --reason '…'"),
            ("replaying", Some(event)) => format!("\n\nNEXT  webhookctl events wait {event}"),
            _ => String::new(),
        }
    }
}

fn header(letter: &DeadLetter) -> String {
    let names = [&letter.provider, &letter.provider_account_id, &letter.external_event_id];
    let event = names.map(String::as_str).join(" / ");
    let closed = letter.closed_at.map(|at| match (&letter.closed_by, &letter.closed_reason) {
        (Some(by), Some(reason)) => format!("{} by {by}: {reason}", time(at)),
        _ => time(at),
    });
    fields(&[
        ("id", Some(letter.id.to_string())),
        ("status", Some(letter.status.clone())),
        ("event", Some(event).filter(|_| !letter.external_event_id.is_empty())),
        ("event id", letter.event_id.map(|id| id.to_string())),
        ("type", Some(letter.event_type.clone()).filter(|name| !name.is_empty())),
        ("lane", Some(letter.lane.clone())),
        ("group", Some(letter.fingerprint.clone())),
        ("error", Some(format!("{}: {}", letter.error_code, letter.error_message))),
        ("given up by", Some(format!("{} (version {})", letter.source, letter.worker_version))),
        ("failed", Some(format!("{} to {}", time(letter.first_failed_at), time(letter.last_failed_at)))),
        ("replays", Some(letter.redrives.to_string())),
        ("closed", closed),
    ])
}

fn replay(context: &Context, act: &Act) -> Result<Exit, CtlError> {
    let mut connection = context.connection()?;
    let letter = find(&mut connection, &act.id)?;
    let id = letter.id.to_string();
    let event = letter.event_id.ok_or_else(|| CtlError::NothingToReplay(id.clone()))?;
    if letter.status != "open" {
        return Err(CtlError::NotOpen { id, status: letter.status });
    }
    match store::find_event(&mut connection, &event.to_string())?.into_iter().next() {
        None => return Err(CtlError::NothingToReplay(id)),
        Some(found) if found.status != "dead" => {
            return Err(CtlError::NotDead { id: event.to_string(), status: found.status });
        }
        Some(_) => {}
    }
    let actor = context.actor()?;
    let audit = Audit { actor: &actor, reason: act.reason.as_str() };
    if !store::redrive(&mut connection, audit, Utc::now(), letter.id)? {
        return Err(overtaken(&mut connection, &id)?);
    }
    let letter = find(&mut connection, &id)?;
    context.print("dlq.replay", &[letter], |_| {
        format!(
            "event {event} is on its way again through the lane redrive, with a fresh budget of attempts.\n\
             When it succeeds, dead letter {id} becomes resolved; when it fails for good, open again.\n\
             Follow it: webhookctl events wait {event}"
        )
    })?;
    Ok(Exit::Done)
}

fn discard(context: &Context, act: &Act) -> Result<Exit, CtlError> {
    let mut connection = context.connection()?;
    let letter = find(&mut connection, &act.id)?;
    let id = letter.id.to_string();
    let actor = context.actor()?;
    let audit = Audit { actor: &actor, reason: act.reason.as_str() };
    if !store::discard(&mut connection, audit, Utc::now(), letter.id)? {
        return Err(overtaken(&mut connection, &id)?);
    }
    let letter = find(&mut connection, &id)?;
    context.print("dlq.discard", &[letter], |_| {
        format!("dead letter {id} is discarded: its event stays dead, and out of the ledger")
    })?;
    Ok(Exit::Done)
}

/// Why an act changed nothing: the letter is not open, or not any more.
fn overtaken(connection: &mut PgConnection, id: &str) -> Result<CtlError, CtlError> {
    let status = find(connection, id)?.status;
    Ok(CtlError::NotOpen { id: id.to_owned(), status })
}
