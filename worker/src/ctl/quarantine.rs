use clap::Subcommand;
use shared::store::{self, QuarantineRow};

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{table, time};

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
    },
}

pub(super) const HEADINGS: [&str; 7] = ["ID", "REASON", "ABOUT", "PROVIDER", "SEEN", "STATUS", "OPENED"];

impl Quarantine {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let Quarantine::List { all, limit } = self;
        let rows = store::list_quarantine(&mut *context.connection()?, all, limit)?;
        context.print("quarantine.list", &rows, |rows| table(&HEADINGS, rows, cells))?;
        Ok(Exit::Done)
    }
}

pub(super) fn cells(row: &QuarantineRow) -> Vec<String> {
    vec![
        row.id.to_string(),
        row.reason.clone(),
        about(row),
        row.provider.clone(),
        row.seen_count.to_string(),
        row.status.clone(),
        time(row.opened_at),
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
