//! How much the road carries, against the plain way to write the same rows. Started by `deploy/bench`, which brings up
//! private servers and builds the release binaries.
//!
//! - `requests`: signed events, ready to be sent.
//! - `driver`: sends them over raw connections, and counts what it costs itself.
//! - `stage`: the running system: databases, ingress, workers.
//! - `measure`: one point of a round: what was sent, answered, and seen in the ledger.
//! - `baseline`: the same rows written by pgbench, one event a transaction.
//! - `ledger`: folds, the projection of a backlog, and the rebuild.
//! - `cpu`: which process the processor worked for.
//! - `report`: medians, ratios, the table and the JSON object.
#![allow(clippy::as_conversions, reason = "durations and rates become figures for people")]

mod baseline;
mod cpu;
mod driver;
mod ledger;
mod measure;
mod null;
mod report;
mod requests;
mod settings;
mod stage;

use std::process::ExitCode;

use clap::Parser;

use crate::baseline::Baseline;
use crate::measure::{Offered, measure, measure_intake};
use crate::report::Report;
use crate::settings::Settings;
use crate::stage::Stage;

/// What went wrong, in words.
#[derive(Debug)]
struct Failed(String);

impl<E: std::error::Error> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed(error.to_string())
    }
}

fn failed<T>(words: impl Into<String>) -> Result<T, Failed> {
    Err(Failed(words.into()))
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    match run(&settings) {
        Ok(report) => {
            let met = report.targets_met();
            report.print(settings.json);
            if settings.check && !met { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(Failed(words)) => {
            eprintln!("bench: {words}");
            ExitCode::FAILURE
        }
    }
}

/// The rounds, interleaved: whatever the machine does besides, it does to every kind of point alike.
fn run(settings: &Settings) -> Result<Report, Failed> {
    let mut stage = Stage::set_up(settings)?;
    let seconds = settings.seconds_per_point();
    eprintln!("warming up");
    measure(&stage, "warm", Offered::full(16), seconds.min(2.0))?;
    let baseline = Baseline::set_up(&stage, settings)?;
    let mut report = Report::new(&stage, settings)?;
    for round in 1..=settings.rounds() {
        for connections in settings.connections.iter().copied() {
            eprintln!("round {round}: {connections} connections");
            report.null.push(null::measure(connections, seconds.min(2.0))?);
            report.intake.push(measure_intake(&stage, &format!("r{round}i{connections}"), connections, seconds)?);
            let point = measure(&stage, &format!("r{round}c{connections}"), Offered::full(connections), seconds)?;
            report.full.push(point);
        }
        eprintln!("round {round}: {} events a second", settings::STEADY_RATE);
        report.steady.push(measure(&stage, &format!("r{round}steady"), Offered::steady(), seconds * 2.0)?);
        for clients in settings.clients.iter().copied() {
            eprintln!("round {round}: pgbench with {clients} clients");
            report.pgbench.push(baseline.run(clients, seconds, &stage.folder)?);
        }
    }
    report.ledger = Some(ledger::measure(&mut stage, settings.is_quick())?);
    Ok(report)
}
