mod compare;
mod decide;
mod diff;
mod show;
mod subject;

use chrono::Utc;
use clap::Subcommand;
use shared::domain::reason_in_words;
use shared::store::{self, PgConnection, QuarantineKind, QuarantineRow};

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{table, wait};

#[derive(Debug, Subcommand)]
pub(super) enum Quarantine {
    /// Show the entries that are open
    List {
        /// Closed entries too
        #[arg(long)]
        all: bool,
        /// Most rows to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        /// End with exit code 8 when there are any
        #[arg(long)]
        exit_code: bool,
    },
    /// Show an entry: what it asks, what it is about, and what people did about it
    Show {
        /// The entry's id, or its event's: ours or the provider's
        id: String,
    },
    /// Compare two deliveries of an event field by field; exit code 8 when they differ. Reading them is audited
    Diff(diff::Diff),
    /// Answer what an entry asks, so that it may touch the ledger
    Release(decide::Release),
    /// Answer what an entry asks, so that it stays out of the ledger
    Reject(decide::Act),
}

pub(super) const HEADINGS: [&str; 8] = ["ID", "REASON", "ABOUT", "PROVIDER", "AGE", "SEEN", "STATE", "NOTE"];

impl Quarantine {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Quarantine::List { all, limit, exit_code } => list(context, all, limit, exit_code),
            Quarantine::Show { id } => show::show(context, &id),
            Quarantine::Diff(diff) => diff.run(context),
            Quarantine::Release(release) => release.run(context),
            Quarantine::Reject(act) => act.reject(context),
        }
    }
}

fn list(context: &Context, all: bool, limit: i64, exit_code: bool) -> Result<Exit, CtlError> {
    let rows = store::list_quarantine(&mut *context.connection()?, all, limit)?;
    context.print("quarantine.list", &rows, |rows| table(&HEADINGS, rows, cells))?;
    Ok(if exit_code && !rows.is_empty() { Exit::Finding } else { Exit::Done })
}

pub(super) fn cells(row: &QuarantineRow) -> Vec<String> {
    vec![
        row.id.to_string(),
        row.reason.clone(),
        about(row),
        row.provider.clone(),
        wait((Utc::now() - row.opened_at).num_seconds()),
        row.seen_count.to_string(),
        row.status.clone(),
        note(row),
    ]
}

/// The subject of a contradiction, else the event.
fn about(row: &QuarantineRow) -> String {
    match (&row.subject_kind, &row.subject_id, &row.external_event_id) {
        (Some(kind), Some(id), _) => format!("{kind} {id}"),
        (_, _, Some(event)) => format!("event {event}"),
        (_, _, None) => format!("event {}", row.event_id),
    }
}

/// Who closed it and why; while it is open, what is wrong.
fn note(row: &QuarantineRow) -> String {
    match (&row.closed_by, &row.closed_reason, row.kind()) {
        (Some(by), Some(reason), _) => format!("{by}: {reason}"),
        (_, _, QuarantineKind::Held) => row.detail.clone(),
        (_, _, QuarantineKind::Mismatch | QuarantineKind::Contradiction | QuarantineKind::UnknownPayment) => {
            reason_in_words(&row.reason).unwrap_or_default().to_owned()
        }
    }
}

/// The one entry that a person means.
fn find(connection: &mut PgConnection, id: &str) -> Result<QuarantineRow, CtlError> {
    let found = store::find_quarantine(connection, id)?;
    let open = || found.iter().filter(|row| row.status == "open");
    match (found.as_slice(), open().count()) {
        ([], _) => Err(CtlError::NoQuarantine(id.to_owned())),
        ([only], _) => Ok(only.clone()),
        (_, 1) => open().next().cloned().ok_or_else(|| CtlError::NoQuarantine(id.to_owned())),
        (several, _) => Err(CtlError::SeveralEntries { id: id.to_owned(), count: several.len() }),
    }
}
