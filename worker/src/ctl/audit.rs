use clap::Subcommand;
use shared::store;

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{table, time};

#[derive(Debug, Subcommand)]
pub(super) enum AuditLog {
    /// Show what was done last
    List {
        /// Most rows to show
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
    },
}

impl AuditLog {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let AuditLog::List { limit } = self;
        let rows = store::list_audit(&mut *context.connection()?, limit)?;
        context.print("audit.list", &rows, |rows| {
            table(&["AT", "ACTOR", "ACTION", "TARGET", "REASON"], rows, |row| {
                vec![time(row.at), row.actor.clone(), row.action.clone(), row.target.clone(), row.reason.clone()]
            })
        })?;
        Ok(Exit::Done)
    }
}
