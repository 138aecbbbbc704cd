//! Takes: the repository.
//! Gives: the developer's commands: the whole check, the tidy rules, fuzzing, test data.
//! Never: part of the product, and no work that `cargo` does alone.

mod data;
mod tidy;

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
    /// Checks the rules that the compiler does not: crate edges, `unsafe`, sizes, words, weight of the tree.
    Tidy {
        /// Lower the size exceptions in xtask/ratchet.txt to what is there.
        #[arg(long)]
        bless: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::PackData { from } => data::pack_all(&from, root()),
        Command::Tidy { bless } => tidy::run(root(), bless),
    }
}

/// The repository's root.
fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the repository")
}
