//! The `ingress` process: accepts payment webhooks.

use std::process::ExitCode;

use clap::Parser;
use ingress::Settings;

fn main() -> ExitCode {
    let settings = Settings::parse();
    match ingress::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ingress cannot run: {error}");
            ExitCode::FAILURE
        }
    }
}
