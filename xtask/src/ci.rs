//! The whole check, step by step; stops at the first step that fails.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::{fuzz, tidy};

/// How long each fuzz target runs.
const FUZZ_SECONDS: u64 = 20;

/// Runs all steps. The last line printed is `N passed, N failed, N skipped`.
pub fn run(root: &Path, data: Option<&Path>) -> Result<()> {
    let data =
        data.map(|d| d.canonicalize().with_context(|| format!("no folder {}", d.display()))).transpose()?;
    let log = root.join("target/ci-skipped.txt");
    fs::create_dir_all(root.join("target"))?;
    fs::write(&log, "").with_context(|| format!("can't write {}", log.display()))?;
    let mut ci = Ci { root, data, log, rows: Vec::new(), tests: Tally::default() };
    let done = ci.steps();
    ci.summary()?;
    done
}

struct Ci<'a> {
    root: &'a Path,
    data: Option<PathBuf>,
    /// The file that tests append to when they skip themselves.
    log: PathBuf,
    rows: Vec<Row>,
    tests: Tally,
}

/// A step that ended: its name, its time and what it says of itself.
struct Row {
    name: &'static str,
    took: Duration,
    told: Result<String, ()>,
}

/// Reads a line of a test runner's summary.
type ReadTally = fn(&str) -> Option<Tally>;

/// Counts of tests.
#[derive(Debug, Default, PartialEq, Clone, Copy)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Ci<'_> {
    fn steps(&mut self) -> Result<()> {
        self.step("format", |ci| {
            ci.cargo(&["fmt", "--all", "--check"])?;
            ci.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
        })?;
        self.step("clippy", |ci| {
            ci.cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])
        })?;
        self.step("tidy", |ci| tidy::run(ci.root, false).map(|()| String::new()))?;
        self.step("tests", Ci::test)?;
        self.step("doctests", |ci| ci.cargo(&["test", "--locked", "--workspace", "--doc", "--quiet"]))?;
        self.step("release build", |ci| ci.cargo(&["build", "--locked", "--release"]))?;
        self.step("README's first command", Ci::first_command)?;
        self.step("fuzz", Ci::fuzz)
    }

    fn step(&mut self, name: &'static str, run: impl FnOnce(&mut Self) -> Result<String>) -> Result<()> {
        println!("\n== {name}");
        let start = Instant::now();
        let told = run(self);
        let took = start.elapsed();
        println!(
            "== {name}: {} in {:.1} s",
            if told.is_ok() { "done" } else { "FAILED" },
            took.as_secs_f64()
        );
        let (told, done) = match told {
            Ok(told) => (Ok(told), Ok(())),
            Err(error) => (Err(()), Err(error.context(format!("step `{name}` failed")))),
        };
        self.rows.push(Row { name, took, told });
        done
    }

    /// Cargo with these arguments and the environment of the tests.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("cargo");
        command.args(arguments).current_dir(self.root).env("KRASIS_SKIP_LOG", &self.log);
        command.env_remove("KRASIS_TEST_DATA").env_remove("KRASIS_HOME");
        if let Some(data) = &self.data {
            command.env("KRASIS_TEST_DATA", data);
        }
        command
    }

    fn cargo(&self, arguments: &[&str]) -> Result<String> {
        let status = self.command(arguments).status().context("can't run cargo")?;
        ensure!(status.success(), "cargo {}", arguments.join(" "));
        Ok(String::new())
    }

    fn test(&mut self) -> Result<String> {
        let probe =
            self.command(&["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        let (arguments, read): (&[&str], ReadTally) = if probe.is_ok_and(|s| s.success()) {
            (&["nextest", "run", "--locked", "--workspace", "--no-fail-fast", "--color", "never"], of_nextest)
        } else {
            println!("cargo-nextest is missing: using `cargo test`");
            (&["test", "--locked", "--workspace", "--no-fail-fast", "--bins", "--lib", "--tests"], of_cargo)
        };
        let (success, said) = self.listen(arguments)?;
        self.tests = Tally::default();
        for part in said.lines().filter_map(read) {
            self.tests.passed += part.passed;
            self.tests.failed += part.failed;
            self.tests.skipped += part.skipped;
        }
        let own = self.skipped()?.len();
        self.tests.passed -= own.min(self.tests.passed);
        self.tests.skipped += own;
        ensure!(success, "cargo {}", arguments.join(" "));
        ensure!(self.tests.passed > 0, "no test passed: was its summary read?");
        Ok(self.tests.to_string())
    }

    /// Runs cargo, shows what it says and keeps it.
    fn listen(&self, arguments: &[&str]) -> Result<(bool, String)> {
        let mut command = self.command(arguments);
        // One pipe for both streams keeps their lines in order.
        let (reader, writer) = std::io::pipe()?;
        let mut child =
            command.stderr(writer.try_clone()?).stdout(writer).spawn().context("can't run cargo")?;
        drop(command); // holds the pipe's other end open
        let mut said = String::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            said.push_str(&line);
            said.push('\n');
        }
        Ok((child.wait()?.success(), said))
    }

    /// Lines of the tests that skipped themselves, one per test.
    fn skipped(&self) -> Result<BTreeSet<String>> {
        let log = fs::read_to_string(&self.log)?;
        let mut tests = BTreeSet::new();
        Ok(log
            .lines()
            .filter(|l| tests.insert(l.split(": ").nth(1).map(str::to_string)))
            .map(str::to_string)
            .collect())
    }

    /// What the README promises must happen on a machine that has run nothing before.
    fn first_command(&mut self) -> Result<String> {
        let readme = fs::read_to_string(self.root.join("README.md"))?;
        let line = readme.lines().find(|l| l.starts_with("cargo run --release -- run "));
        let line = line.context("README.md has no line `cargo run --release -- run …`")?;
        let home = self.root.join("target/ci-home");
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        println!("{line}");
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.root).env("KRASIS_HOME", &home).stdin(Stdio::null());
        let ran = command.stderr(Stdio::inherit()).output().context("can't run sh")?;
        let said = String::from_utf8_lossy(&ran.stdout);
        println!("{said}");
        ensure!(ran.status.success(), "it ended with {}", ran.status);
        for word in ["get_weather", "Oslo"] {
            ensure!(said.contains(word), "it did not say {word}");
        }
        Ok("called get_weather for Oslo".into())
    }

    fn fuzz(&mut self) -> Result<String> {
        let programs = fuzz::build(self.root)?;
        let targets = fuzz::targets(self.root)?;
        for name in &targets {
            let target = fuzz::Target { root: self.root, name, program: programs.join(name) };
            println!("{name}: {}", target.fuzz(FUZZ_SECONDS)?);
        }
        Ok(format!("{} targets", targets.len()))
    }

    fn summary(&self) -> Result<()> {
        let skipped = self.skipped()?;
        if !skipped.is_empty() {
            println!("\nTests that skipped themselves:");
            skipped.iter().for_each(|line| println!("  {}", line.trim_start_matches("skipped: ")));
        }
        println!("\n{:<24} {:>8}", "step", "seconds");
        for row in &self.rows {
            let told = row.told.as_deref().unwrap_or("FAILED");
            println!("{:<24} {:>8.1}  {told}", row.name, row.took.as_secs_f64());
        }
        let total: Duration = self.rows.iter().map(|r| r.took).sum();
        println!("{:<24} {:>8.1}\n{}", "total", total.as_secs_f64(), self.tests);
        Ok(())
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Reads `Summary [ 1.2s] 9 tests run: 7 passed (1 slow), 1 failed, 1 timed out, 3 skipped`.
fn of_nextest(line: &str) -> Option<Tally> {
    let (_, counts) = line.trim_start().strip_prefix("Summary [")?.split_once(" run: ")?;
    counted(counts, ',')
}

/// Reads `test result: FAILED. 7 passed; 1 failed; 3 ignored; 0 measured; …`.
fn of_cargo(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counted(counts, ';')
}

fn counted(counts: &str, separator: char) -> Option<Tally> {
    let mut tally = Tally::default();
    for part in counts.split(separator) {
        let (number, word) = part.trim().split_once(' ')?;
        let Ok(number) = number.parse::<usize>() else { continue };
        match word.split(" (").next()? {
            "passed" => tally.passed += number,
            "failed" | "timed out" | "exec failed" => tally.failed += number,
            "skipped" | "ignored" => tally.skipped += number,
            _ => {}
        }
    }
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn both_summaries_are_read() {
        let tally = |passed, failed, skipped| Some(Tally { passed, failed, skipped });
        let line =
            "     Summary [   0.271s] 9 tests run: 7 passed (1 slow), 1 failed, 1 timed out, 3 skipped";
        assert_eq!(of_nextest(line), tally(7, 2, 3));
        assert_eq!(of_nextest("     Summary [   0.2s] 1 test run: 1 passed, 0 skipped"), tally(1, 0, 0));
        assert_eq!(of_nextest("        PASS [   0.016s] xtask ci::tests::x"), None);
        let line =
            "test result: FAILED. 7 passed; 1 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(of_cargo(line), tally(7, 1, 3));
        assert_eq!(of_cargo("test a ... ok"), None);
    }

    #[test]
    fn a_failing_step_is_named_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "skipped: a::b: why\nskipped: a::b: again\nskipped: c: why\n").unwrap();
        let mut ci = Ci { root: folder.path(), data: None, log, rows: Vec::new(), tests: Tally::default() };
        assert!(ci.step("one", |_| Ok("fine".into())).is_ok());
        let error = ci.step("two", |_| bail!("cause")).unwrap_err();
        assert_eq!(format!("{error:#}"), "step `two` failed: cause");
        assert_eq!(ci.rows.iter().map(|r| r.told.is_ok()).collect::<Vec<_>>(), [true, false]);
        assert_eq!(ci.skipped().unwrap().len(), 2);
    }
}
