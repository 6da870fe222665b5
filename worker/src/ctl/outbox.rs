use chrono::Utc;
use clap::Subcommand;
use shared::store;

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{optional, table, wait};

#[derive(Debug, Subcommand)]
pub(super) enum Outbox {
    /// Show, by lane, what waits for the broker
    Status,
}

impl Outbox {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let Outbox::Status = self;
        let rows = store::outbox_status(&mut *context.connection()?)?;
        let now = Utc::now();
        context.print("outbox.status", &rows, |rows| {
            table(&["LANE", "PENDING", "OLDEST", "SCHEDULED", "FAILING"], rows, |row| {
                vec![
                    row.lane.clone(),
                    row.pending.to_string(),
                    optional(row.oldest_due_at.map(|due| wait((now - due).num_seconds()))),
                    row.scheduled.to_string(),
                    row.failing.to_string(),
                ]
            })
        })?;
        Ok(Exit::Done)
    }
}
