use clap::Args;
use serde::Serialize;
use shared::store::{self, PgConnection};

use super::Context;
use super::error::{CtlError, Exit};

#[derive(Debug, Args)]
pub(super) struct Migrate {
    /// Take the whole schema away again
    #[arg(long)]
    down_all: bool,
    /// With --down-all: although the database holds events
    #[arg(long, requires = "down_all")]
    delete_all_data: bool,
}

#[derive(Serialize)]
struct Migrated {
    direction: &'static str,
    migrations: usize,
}

impl Migrate {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let mut connection = context.connection()?;
        let migrated = if self.down_all {
            if !self.delete_all_data && holds_events(&mut connection) {
                return Err(CtlError::HoldsData);
            }
            Migrated { direction: "down", migrations: store::migrate_down(&mut connection)? }
        } else {
            Migrated { direction: "up", migrations: store::migrate_up(&mut connection)? }
        };
        let Migrated { direction, migrations } = migrated;
        context.print(&format!("migrate.{direction}"), &[migrated], |_| match (direction, migrations) {
            ("up", 0) => "the schema is current; nothing to do".to_owned(),
            ("up", count) => format!("{count} migrations applied; the schema is current"),
            (_, count) => format!("{count} migrations reverted; the schema is gone"),
        })?;
        Ok(Exit::Done)
    }
}

/// A database without our tables holds none.
fn holds_events(connection: &mut PgConnection) -> bool {
    store::list_events(connection, None, None, 1).is_ok_and(|events| !events.is_empty())
}
