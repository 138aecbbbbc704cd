//! Coverage-guided fuzzing with libFuzzer, on the stable toolchain (fuzz/README.md says how).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::output;

/// What cargo-fuzz passes, less the sanitizers: the targets are safe code, and a stable compiler has none.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Address space of a target: an input that makes it ask for more is a crash, touched or not.
const MEMORY_KIB: u64 = 2 << 20;

/// One input may take this long; a chat template may work for seconds before it is stopped.
const INPUT_SECONDS: u32 = 30;

/// Fuzzes `target`, or all, each for `seconds`; or reduces the committed seeds.
pub fn run(root: &Path, target: Option<&str>, seconds: u64, minimise: bool) -> Result<()> {
    let known = targets(root)?;
    let chosen = match target {
        Some(name) => {
            ensure!(known.iter().any(|k| k == name), "no target {name}; there are: {}", known.join(", "));
            vec![name.to_string()]
        }
        None => known,
    };
    let programs = build(root)?;
    for name in &chosen {
        let target = Target { root, name, program: programs.join(name) };
        let told = if minimise { target.minimise()? } else { target.fuzz(seconds)? };
        println!("{name}: {told}");
    }
    Ok(())
}

/// The names of all targets.
pub fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let listing = fs::read_dir(&folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in listing {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "rs") {
            names.extend(path.file_stem().and_then(|s| s.to_str()).map(str::to_string));
        }
    }
    names.sort();
    Ok(names)
}

/// Builds all targets, and gives the folder of their programs.
pub fn build(root: &Path) -> Result<PathBuf> {
    let version = output(root, "rustc", &["-vV"])?;
    let host = version.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc names no host")?;
    let folder = root.join("target/fuzz");
    let status = Command::new("cargo")
        // Named explicitly, the host is built apart from build scripts and macros, which must not be
        // instrumented.
        .args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", host])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &folder)
        .current_dir(root)
        .status()
        .context("can't run cargo")?;
    ensure!(status.success(), "the fuzz targets can't be built (a C++ compiler is needed for libFuzzer)");
    Ok(folder.join(host).join("release"))
}

/// A built target.
pub struct Target<'a> {
    pub root: &'a Path,
    pub name: &'a str,
    pub program: PathBuf,
}

impl Target<'_> {
    /// Runs for `seconds` from the seeds and all that was found before; counts inputs and edges.
    pub fn fuzz(&self, seconds: u64) -> Result<String> {
        let (corpus, artifacts) = (self.folder("corpus")?, self.folder("artifacts")?);
        let limits = [
            format!("-max_total_time={seconds}"),
            format!("-timeout={INPUT_SECONDS}"),
            format!("-artifact_prefix={}/", artifacts.display()),
            "-print_final_stats=1".to_string(),
        ];
        let said = self.start(&limits, &[&corpus, &self.seeds()])?;
        summary(&said).with_context(|| format!("libFuzzer ended without its statistics:\n{said}"))
    }

    /// Replaces the seeds by the fewest inputs that cover as much as seeds and corpus together.
    pub fn minimise(&self) -> Result<String> {
        let (corpus, kept) = (self.folder("corpus")?, self.folder("kept")?);
        self.start(&["-set_cover_merge=1".to_string()], &[&kept, &self.seeds(), &corpus])?;
        fs::remove_dir_all(self.seeds())?;
        fs::rename(&kept, self.seeds())?;
        Ok(format!("{} seeds", fs::read_dir(self.seeds())?.count()))
    }

    fn seeds(&self) -> PathBuf {
        self.root.join("fuzz/seeds").join(self.name)
    }

    fn folder(&self, kind: &str) -> Result<PathBuf> {
        let folder = self.root.join("target/fuzz").join(kind).join(self.name);
        fs::create_dir_all(&folder).with_context(|| format!("can't create {}", folder.display()))?;
        Ok(folder)
    }

    /// Runs the program under the memory limit; what it says, or an error with the end of it.
    fn start(&self, flags: &[String], folders: &[&Path]) -> Result<String> {
        let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limited]).arg(&self.program).args(flags).args(folders);
        let ran = command.current_dir(self.root).output().context("can't run sh")?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        let end = lines[lines.len().saturating_sub(60)..].join("\n");
        ensure!(ran.status.success(), "{} found an input that fails:\n{end}", self.name);
        Ok(said)
    }
}

/// Inputs run and edges covered, from libFuzzer's last lines.
fn summary(said: &str) -> Option<String> {
    let after = |mark: &str| said.rsplit_once(mark)?.1.split_whitespace().next();
    let counters = said.split_once(" inline 8-bit counters").and_then(|(s, _)| s.rsplit_once('('))?.1;
    let (runs, cover) = (after("stat::number_of_executed_units:")?, after(" cov: ")?);
    Some(format!("{runs} inputs, {cover} of {counters} edges"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_read_and_their_absence_is_noticed() {
        let said = "INFO: Loaded 1 modules   (1201 inline 8-bit counters): 1201 [0x55, 0x56),\n\
            #2\tINITED cov: 3 ft: 4 corp: 1/1b\n#9\tDONE   cov: 77 ft: 90 corp: 9/9b\n\
            stat::number_of_executed_units: 524288\n";
        assert_eq!(summary(said).unwrap(), "524288 inputs, 77 of 1201 edges");
        assert_eq!(summary("stat::number_of_executed_units: 5\n"), None, "no counters, no guidance");
    }

    #[test]
    fn each_target_has_seeds() {
        for name in targets(crate::root()).unwrap() {
            let seeds = crate::root().join("fuzz/seeds").join(&name);
            let count = fs::read_dir(&seeds).map_or(0, |listing| listing.count());
            assert!(count > 0, "{name} has no seeds");
        }
    }
}
