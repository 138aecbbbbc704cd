//! Every input of every scalar function of the arithmetic contract.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Where the results are committed.
const RESULTS: &str = "crates/ops/src/math/sweep.txt";

/// Builds and runs the op library's example of that name: a process of its own, as nothing of the product is
/// built into this program.
pub fn run(root: &Path, functions: &[String], bless: bool) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["run", "--locked", "--release", "--package", "ops", "--example", "sweep", "--"]);
    if bless {
        cargo.args(["--write", RESULTS]);
    }
    let status = cargo.args(functions).current_dir(root).status().context("can't run cargo")?;
    ensure!(status.success(), "the sweep of {} found something wrong", named(functions));
    Ok(())
}

fn named(functions: &[String]) -> String {
    if functions.is_empty() { "all functions".into() } else { functions.join(", ") }
}
