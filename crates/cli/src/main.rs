//! Takes: a command line.
//! Gives: the program `krasis`: answers, reports and exit codes (0 done, 1 the world failed, 2 wrong usage,
//! 3 refused, 130 cancelled).
//! Never: touches tensors.

mod bundled;
mod commands;
mod exit;
mod home;
mod interrupt;
mod load;
mod output;
mod settings;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    let done = logging().and_then(|()| commands::run(cli.command));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

/// Logs of the level that KRASIS_LOG asks for (`debug`, `engine=trace`, …) go to stderr; warnings without it.
fn logging() -> anyhow::Result<()> {
    let filter = match std::env::var("KRASIS_LOG") {
        Ok(wish) => EnvFilter::try_new(&wish).map_err(|e| {
            exit::usage(format!("KRASIS_LOG: {wish} is no filter ({e}); try KRASIS_LOG=debug"))
        })?,
        Err(_) => EnvFilter::new("warn"),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    Ok(())
}
