//! What `cargo xtask sweep` runs: `sweep [--write FILE] [FUNCTION…]`.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let write = names.iter().position(|n| n == "--write").map(|at| {
        names.remove(at);
        if at < names.len() { PathBuf::from(names.remove(at)) } else { PathBuf::new() }
    });
    match ops::sweep::main(&names, write.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaints) => {
            eprintln!("{complaints}");
            ExitCode::FAILURE
        }
    }
}
