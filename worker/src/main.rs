//! The `worker` process: projects accepted events into the ledger.

use std::process::ExitCode;

use clap::Parser;
use worker::Settings;

fn main() -> ExitCode {
    match worker::run(Settings::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}
