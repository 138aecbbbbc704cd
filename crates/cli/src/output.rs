//! What a person or a pipe sees: progress, and dimmed text on terminals only.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

pub use base::table::table;
use base::{Bytes, WorldError};
use engine::RegionUse;
use indicatif::{ProgressBar, ProgressStyle};

/// Progress of one piece of work in bytes, on stderr: a bar on a terminal, else a line a second at most.
pub struct Progress {
    label: String,
    total: u64,
    bar: Option<ProgressBar>,
    started: Instant,
    told: Instant,
}

impl Progress {
    /// Work of `total` bytes.
    pub fn new(label: impl Into<String>, total: u64) -> Self {
        let label = label.into();
        let bar = stderr().is_terminal().then(|| {
            let template = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
            let style = ProgressStyle::with_template(template).expect("a valid template");
            ProgressBar::new(total).with_style(style).with_message(label.clone())
        });
        let now = Instant::now();
        Progress { label, total, bar, started: now, told: now }
    }

    /// So many bytes are done.
    pub fn set(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        if self.told.elapsed() >= Duration::from_secs(1) {
            self.told = Instant::now();
            eprintln!("{}: {} of {}", self.label, Bytes(done), Bytes(self.total));
        }
    }

    /// The work is over: says how long it took if that was long enough to be noticed.
    pub fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.started.elapsed().as_secs_f64();
        if seconds >= 1.0 {
            eprintln!("{}: {} in {seconds:.1} s", self.label, Bytes(self.total));
        }
    }
}

/// The regions of a device's memory and what of them was in use.
pub fn memory(regions: &[RegionUse]) -> String {
    let row = |r: &RegionUse| {
        let share = 100.0 * r.peak_bytes as f64 / r.bytes.max(1) as f64;
        vec![r.name.to_string(), Bytes(r.bytes).to_string(), format!("{share:.1} % in use at most")]
    };
    table(&regions.iter().map(row).collect::<Vec<_>>(), &[false, true, false])
}

/// Writes text to stdout at once. A closed pipe is an error that ends the program quietly.
pub fn put(text: &str) -> Result<(), WorldError> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| WorldError::io("write to", Path::new("stdout"), e))
}

/// Writes a JSON value as one line to stdout.
pub fn put_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(put(&(serde_json::to_string(value)? + "\n"))?)
}

/// Text of lesser weight on stderr: dimmed on a terminal.
pub fn murmur(text: &str) {
    let mut err = stderr().lock();
    // Nobody can be told that stderr is closed.
    let _ = if err.is_terminal() { write!(err, "\x1b[2m{text}\x1b[0m") } else { write!(err, "{text}") };
    let _ = err.flush();
}

/// A line for people on stderr.
pub fn note(text: &str) {
    murmur(&format!("{text}\n"));
}
