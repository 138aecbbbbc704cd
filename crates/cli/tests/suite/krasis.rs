//! Runs the binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use base::hash::Digest;
use serde_json::Value;

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_krasis");

/// A home that the tests of one build of the binary share, so that the bundled model is unpacked and packed
/// once. Another build gets another one: nothing that it computes comes from an older program.
pub fn shared_home() -> &'static Path {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    HOME.get_or_init(|| {
        let digest = Digest::of_file(Path::new(BINARY)).unwrap().short();
        let homes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("homes");
        for old in std::fs::read_dir(&homes).into_iter().flatten().flatten() {
            if old.file_name().to_string_lossy() != digest {
                let _ = std::fs::remove_dir_all(old.path());
            }
        }
        homes.join(digest)
    })
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a run gave.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The one line of JSON on stdout of a successful run.
    pub fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        assert_eq!(self.out.lines().count(), 1, "one line: {}", self.out);
        serde_json::from_str(&self.out).unwrap()
    }

    /// A failed run: its code, and every part of the message.
    pub fn failed(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        assert_eq!(self.out, "", "nothing on stdout");
    }
}

/// A command with the shared home and no input.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(args).env("KRASIS_HOME", shared_home()).env_remove("KRASIS_LOG").stdin(Stdio::null());
    command
}

/// Runs with the shared home and an empty stdin.
pub fn krasis(args: &[&str]) -> Ran {
    ran(command(args).output().unwrap())
}

/// Runs with a home of its own.
pub fn krasis_in(home: &Path, args: &[&str]) -> Ran {
    ran(command(args).env("KRASIS_HOME", home).output().unwrap())
}

/// Runs with this on stdin.
pub fn krasis_with_input(args: &[&str], input: &[u8]) -> Ran {
    let mut command = command(args);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    ran(child.wait_with_output().unwrap())
}

fn ran(output: Output) -> Ran {
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Copies a folder of files, to break it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// A path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
