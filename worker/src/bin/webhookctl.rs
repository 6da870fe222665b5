//! The operator's tool.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::ctl::run(std::env::args_os().collect())
}
