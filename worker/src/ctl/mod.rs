//! The operator's tool `webhookctl`: `webhookctl <noun> <verb>`, a table for people or JSON for programs, and an exit code
//! that tells how it went.

mod audit;
mod dlq;
mod doctor;
mod endpoints;
mod error;
mod events;
mod keys;
mod ledger;
mod migrate;
mod outbox;
mod output;
mod quarantine;
mod reason;
mod secret;
mod trigger;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Parser, Subcommand};
use shared::service::SettingError;
use shared::store::{self, Connection, Pool, StoreError};

use error::{CtlError, Exit};
use output::Format;

/// How often a connection is asked for; each time waits up to a second.
const CONNECT_TRIES: usize = 3;

/// Looks after webhooks: what came in, what became of it, and what needs a person
#[derive(Debug, Parser)]
#[command(name = "webhookctl", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    noun: Noun,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 5 refused by a guard, 7 database, broker or \
                          ingress unreachable, 8 something was found, 9 doctor found a failure";

/// What every command shares.
#[derive(Debug, clap::Args)]
struct Context {
    /// A table for people, or JSON for programs
    #[arg(short, long, global = true, value_enum, default_value = "table")]
    output: Format,
    /// PostgreSQL, as postgres://user:password@host:port/database
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Who does this, for the audit log; else $USER, else the user's number
    #[arg(long, global = true, value_parser = NonEmptyStringValueParser::new())]
    actor: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Bring the database's schema to what this version needs
    Migrate(migrate::Migrate),
    /// Where accounts send their webhooks
    #[command(subcommand)]
    Endpoints(endpoints::Endpoints),
    /// The secrets that sign for endpoints
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Build a realistic event, sign it with the endpoint's key, and send it
    Trigger(trigger::Trigger),
    /// What was accepted, and what became of it
    #[command(subcommand)]
    Events(events::Events),
    /// Dead letters: events that were given up
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// What a person has to look at before it may touch the ledger
    #[command(subcommand)]
    Quarantine(quarantine::Quarantine),
    /// What is still to be published
    #[command(subcommand)]
    Outbox(outbox::Outbox),
    /// The ledger's rows, what made them, and the proof that they are right
    #[command(subcommand)]
    Ledger(ledger::Ledger),
    /// Who did what, and why
    #[command(subcommand)]
    Audit(audit::AuditLog),
    /// Prove that the books balance and that everything is alive; exit code 8 on warnings, 9 on failures
    Doctor(doctor::Doctor),
}

/// Runs the tool with the arguments of the process, its name included.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let wants_json = output::wants_json(&arguments);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Help and version come this way too; they are no errors.
        Err(error) if wants_json && error.use_stderr() => {
            let message = error.to_string();
            let message = message.trim().trim_start_matches("error: ");
            eprintln!("{}", output::error_json("usage", message));
            return Exit::Usage.into();
        }
        Err(error) => error.exit(),
    };
    match cli.noun.run(&cli.context) {
        Ok(exit) => exit.into(),
        Err(error) => {
            cli.context.complain(&error);
            error.exit().into()
        }
    }
}

impl Noun {
    fn run(self, context: &Context) -> Result<Exit, CtlError> {
        match self {
            Noun::Migrate(command) => command.run(context),
            Noun::Endpoints(verb) => verb.run(context),
            Noun::Keys(verb) => verb.run(context),
            Noun::Trigger(command) => command.run(context),
            Noun::Events(verb) => verb.run(context),
            Noun::Dlq(verb) => verb.run(context),
            Noun::Quarantine(verb) => verb.run(context),
            Noun::Outbox(verb) => verb.run(context),
            Noun::Ledger(verb) => verb.run(context),
            Noun::Audit(verb) => verb.run(context),
            Noun::Doctor(command) => command.run(context),
        }
    }
}

impl Context {
    /// A pool of at most so many connections. Nothing is connected yet.
    fn pool(&self, connections: u32) -> Result<Pool, CtlError> {
        let url = self.database_url.as_deref().ok_or_else(|| {
            SettingError::new("DATABASE_URL", "is not set; it says which database to look at, as does --database-url")
        })?;
        Ok(store::connect(url, "webhookctl", connections).map_err(|error| SettingError::new("DATABASE_URL", error))?)
    }

    /// A connection to the database, whatever state its schema is in.
    fn connection(&self) -> Result<Connection, CtlError> {
        let pool = self.pool(1)?;
        let connection = (0..CONNECT_TRIES).find_map(|_| store::get(&pool).ok());
        connection.ok_or(CtlError::Store(StoreError::Unavailable))
    }

    /// Who is to be named in the audit log.
    fn actor(&self) -> Result<String, CtlError> {
        let named = |variable| std::env::var(variable).ok().filter(|name| !name.is_empty());
        self.actor
            .clone()
            .or_else(|| named("USER"))
            .or_else(|| named("LOGNAME"))
            .or_else(user_number)
            .ok_or(CtlError::NoActor)
    }

    fn complain(&self, error: &CtlError) {
        // A statement that the database does not understand usually means a schema that is not there yet.
        let behind = match error {
            CtlError::Store(StoreError::Refused) => self.pending_migrations(),
            _ => 0,
        };
        let error = if behind > 0 { &CtlError::SchemaBehind(behind) } else { error };
        match self.output {
            Format::Table => eprintln!("error: {error}"),
            Format::Json => eprintln!("{}", output::error_json(error.code(), &error.to_string())),
        }
    }

    fn pending_migrations(&self) -> usize {
        self.connection().ok().and_then(|mut connection| store::pending_migrations(&mut connection).ok()).unwrap_or(0)
    }
}

/// Where neither --actor nor the environment names a person.
fn user_number() -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let process = std::fs::metadata("/proc/self").ok()?;
    Some(format!("uid {}", process.uid()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_that_every_command_shares_may_stand_anywhere() {
        for line in ["webhookctl -o json events list --actor kim", "webhookctl events list --actor kim -o json"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.context.output, Format::Json);
            assert_eq!(cli.context.actor().unwrap(), "kim");
        }
    }

    #[test]
    fn a_command_without_a_database_says_which_setting_is_missing() {
        let context = Context { output: Format::Table, database_url: None, actor: None };
        let error = context.connection().err().unwrap();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(error.to_string().starts_with("DATABASE_URL: is not set"), "{error}");
    }

    #[test]
    fn a_database_that_does_not_answer_has_an_exit_code_of_its_own() {
        let url = Some("postgres://nobody@127.0.0.1:1/nothing".to_owned());
        let context = Context { output: Format::Table, database_url: url, actor: None };
        assert_eq!(context.connection().err().unwrap().exit(), Exit::Unreachable);
    }
}
