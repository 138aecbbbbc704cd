//! The commands, one file each.

mod bench;
mod build;
mod cache;
mod compare;
mod docs;
mod models;
mod plan;
mod quality;
mod run;
mod synth;

use clap::{Parser, Subcommand};

/// Krasis runs mixture-of-experts language models with exact integer arithmetic.
#[derive(Debug, Parser)]
#[command(name = "krasis", version, max_term_width = 100)]
#[command(
    after_help = "Files are kept under KRASIS_HOME (default ~/.cache/krasis). KRASIS_LOG=debug tells more.
Exit codes: 0 done, 1 a file or the machine failed, 2 wrong usage, 3 refused, 130 cancelled."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(run::RunArgs),
    Build(build::BuildArgs),
    Models(models::ModelsArgs),
    Cache(cache::CacheArgs),
    Plan(plan::PlanArgs),
    Bench(bench::BenchArgs),
    Compare(compare::CompareArgs),
    Quality(quality::QualityArgs),
    Synth(synth::SynthArgs),
    Docs(docs::DocsArgs),
}

/// Runs a command.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Build(args) => build::run(args),
        Command::Models(args) => models::run(args),
        Command::Cache(args) => cache::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Quality(args) => quality::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Docs(args) => docs::run(args),
    }
}
