mod rebuild;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value};
use shared::providers::Provider;
use shared::store::{self, LedgerTable};

use super::Context;
use super::error::{CtlError, Exit};
use super::output::{optional, table};

#[derive(Debug, Subcommand)]
pub(super) enum Ledger {
    /// Show the rows that changed last
    Rows(Rows),
    /// Show a payment or subscription, and what every event did to it
    Show(show::Show),
    /// Derive and fold everything again from the raw events, and hold it against the ledger; exit code 8 when it differs
    Rebuild(rebuild::Rebuild),
}

#[derive(Debug, Args)]
pub(super) struct Rows {
    table: Table,
    /// Only rows of this provider
    #[arg(long)]
    provider: Option<Provider>,
    /// Most rows to show
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    Payments,
    Refunds,
    Disputes,
    Subscriptions,
}

/// A heading, and the column below it.
type Shown = (&'static str, &'static str);

impl Table {
    const ALL: [Table; 4] = [Table::Payments, Table::Refunds, Table::Disputes, Table::Subscriptions];

    fn stored(self) -> LedgerTable {
        match self {
            Table::Payments => LedgerTable::Payments,
            Table::Refunds => LedgerTable::Refunds,
            Table::Disputes => LedgerTable::Disputes,
            Table::Subscriptions => LedgerTable::Subscriptions,
        }
    }

    fn print(self, rows: &[Map<String, Value>]) -> String {
        let headings: Vec<&str> = self.shown().iter().map(|(heading, _)| *heading).collect();
        table(&headings, rows, |row| self.shown().iter().map(|(_, column)| cell(row, column)).collect())
    }

    /// What people see of a row. Programs get all of it.
    fn shown(self) -> &'static [Shown] {
        match self {
            Table::Payments => &[
                ("PAYMENT", "payment_id"),
                ("STATUS", "status"),
                ("AMOUNT", "amount"),
                ("CAPTURED", "captured_amount"),
                ("REFUNDED", "refunded_amount"),
                ("DISPUTED", "disputed_amount"),
                ("CURRENCY", "currency"),
                ("APP USER", "app_user_id"),
                ("PAID AT", "paid_at"),
                ("REVIEW", "review_reason"),
            ],
            Table::Refunds => &[
                ("REFUND", "refund_id"),
                ("PAYMENT", "payment_id"),
                ("STATUS", "status"),
                ("AMOUNT", "amount"),
                ("CURRENCY", "currency"),
                ("REASON", "reason"),
                ("REFUNDED AT", "refunded_at"),
                ("REVIEW", "review_reason"),
            ],
            Table::Disputes => &[
                ("DISPUTE", "dispute_id"),
                ("PAYMENT", "payment_id"),
                ("STATUS", "status"),
                ("AMOUNT", "amount"),
                ("CURRENCY", "currency"),
                ("REASON", "reason"),
                ("OPENED AT", "opened_at"),
                ("CLOSED AT", "closed_at"),
                ("REVIEW", "review_reason"),
            ],
            Table::Subscriptions => &[
                ("APP USER", "app_user_id"),
                ("PRODUCT", "product_id"),
                ("SUBSCRIPTION", "subscription_id"),
                ("STORE", "store"),
                ("STATUS", "status"),
                ("EXPIRES AT", "expires_at"),
                ("CANCELLED AT", "cancelled_at"),
                ("REVIEW", "review_reason"),
            ],
        }
    }
}

impl Ledger {
    pub fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Ledger::Rows(rows) => rows.run(context),
            Ledger::Show(show) => show.run(context),
            Ledger::Rebuild(rebuild) => rebuild.run(context),
        }
    }
}

impl Rows {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        let Rows { table: asked, provider, limit } = self;
        let provider = provider.map(Provider::as_str);
        let rows = store::ledger_rows(&mut *context.connection()?, asked.stored(), provider, limit)?;
        context.print("ledger.rows", &rows, |rows| asked.print(rows))?;
        Ok(Exit::Done)
    }
}

fn cell(row: &Map<String, Value>, column: &str) -> String {
    match row.get(column) {
        None | Some(Value::Null) => optional(None::<&str>),
        // The database writes times in UTC with their offset; tables elsewhere show a Z.
        Some(Value::String(text)) if column.ends_with("_at") => text.replace("+00:00", "Z"),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
