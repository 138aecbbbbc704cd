//! Takes: the repository.
//! Gives: the developer's commands: the whole check, the tidy rules, fuzzing, test data.
//! Never: part of the product, and no work that `cargo` does alone.

mod data;

use std::path::{Path, PathBuf};

use clap::Parser;

/// The developer's commands.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Recreates the committed archives of fixtures and the bundled model.
    PackData {
        /// The folder that holds `fixtures/` and `models/`.
        #[arg(long)]
        from: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::PackData { from } => data::pack_all(&from, root()),
    }
}

/// The repository's root.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
