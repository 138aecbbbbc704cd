//! Documents that are generated from the program, so that they can't say anything else.

use std::path::Path;

use anyhow::{Context, Result};

use crate::output;

/// The generated document of commands and flags.
pub const CLI: &str = "docs/cli.md";

/// Writes every generated document.
pub fn write(root: &Path) -> Result<()> {
    std::fs::create_dir_all(root.join("docs"))?;
    let path = root.join(CLI);
    std::fs::write(&path, cli(root)?).with_context(|| format!("can't write {}", path.display()))?;
    println!("{CLI}");
    Ok(())
}

/// What [`CLI`] must be: the program prints it itself.
pub fn cli(root: &Path) -> Result<String> {
    output(root, "cargo", &["run", "--quiet", "--locked", "--package", "cli", "--", "docs"])
}
