//! Takes: the repository.
//! Gives: the developer's commands: the whole check, the tidy rules, fuzzing, test data.
//! Never: part of the product, and no work that `cargo` does alone.

mod ci;
mod data;
mod docs;
mod fuzz;
mod sweep;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;

/// The developer's commands.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Runs the whole check: format, lints, tidy, tests, the README's first command, a little fuzzing.
    Ci {
        /// The folder of large test data; tests that need it are skipped, and counted, without it.
        #[arg(long)]
        data: Option<PathBuf>,
    },
    /// Checks the rules that the compiler does not: crate edges, `unsafe`, sizes, words, weight of the tree.
    Tidy {
        /// Lower the size exceptions in xtask/ratchet.txt to what is there.
        #[arg(long)]
        bless: bool,
    },
    /// Writes the documents that are generated from the program.
    Docs,
    /// Fuzzes one target, or each in turn.
    Fuzz {
        /// How long each target runs.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Replace the committed seeds by the smallest set that covers as much as all inputs found so far.
        #[arg(long, conflicts_with = "seconds")]
        minimise: bool,
        /// A file name, without its ending, of fuzz/fuzz_targets.
        target: Option<String>,
    },
    /// Runs all 2^32 inputs of the contract's scalar functions: error bounds, and digests of all outputs.
    Sweep {
        /// Write what is found to the committed results in place of comparing with them.
        #[arg(long)]
        bless: bool,
        /// Names of functions; all, if none is given. One takes about ten minutes of a core.
        functions: Vec<String>,
    },
    /// Recreates the committed archives of fixtures and the bundled model.
    PackData {
        /// The folder that holds `fixtures/` and `models/`.
        #[arg(long)]
        from: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Ci { data } => ci::run(root(), data.as_deref()),
        Task::Tidy { bless } => tidy::run(root(), bless),
        Task::Docs => docs::write(root()),
        Task::Fuzz { seconds, minimise, target } => fuzz::run(root(), target.as_deref(), seconds, minimise),
        Task::Sweep { bless, functions } => sweep::run(root(), &functions, bless),
        Task::PackData { from } => data::pack_all(&from, root()),
    };
    // Printed without the backtrace that anyhow would add: the chain of causes says what to mend.
    done.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// The repository's root.
fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the repository")
}

/// What a program prints on its standard output.
fn output(root: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let ran = Command::new(program).args(arguments).current_dir(root).output();
    let ran = ran.with_context(|| format!("can't run {program}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), "{program} {}: {said}", arguments.join(" "));
    String::from_utf8(ran.stdout).with_context(|| format!("{program} printed no UTF-8"))
}
