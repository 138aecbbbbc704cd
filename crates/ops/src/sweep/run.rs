//! Running a sweep: in parallel by chunks of inputs, hashed in the order of inputs.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use base::hash::Digest;
use rayon::prelude::*;
use zerocopy::IntoBytes;

use super::{Function, apply, error_ulps};
use crate::Level;

/// Inputs that one worker takes at a time.
const CHUNK: usize = 1 << 18;
/// Chunks whose outputs are held until they are hashed.
const BATCH: u64 = 64;
/// Inputs of the sample that are spread over all bit patterns.
const SPREAD: u32 = 1 << 24;
/// Odd, so that multiples of it meet every part of the 2^32 patterns evenly: 2^32 divided by the golden
/// ratio.
const STRIDE: u32 = 0x9E37_79B1;

/// What is wrong or worst among some inputs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Findings {
    /// Largest error in ulps where the absolute bound does not hold, and its input.
    pub ulps: (f64, u32),
    /// Largest absolute error where the bound in ulps does not hold, and its input.
    pub absolute: (f64, u32),
    /// First input outside both bounds.
    pub outside: Option<u32>,
    /// First input where some level's vector code differs from the scalar code.
    pub differs: Option<u32>,
}

impl Findings {
    /// Evaluates `inputs` with the best level into `outputs` and judges every one; every other level must
    /// agree.
    pub fn of(f: Function, inputs: &[f32], outputs: &mut [f32]) -> Self {
        apply(f, Level::detect(), inputs, outputs);
        let mut found = Findings::default();
        for (x, y) in inputs.iter().zip(&*outputs) {
            found.judge(f, *x, *y);
        }
        let mut others = vec![0.0; inputs.len()];
        for level in Level::available().filter(|l| *l < Level::detect()) {
            apply(f, level, inputs, &mut others);
            let differs = |i: &usize| others[*i].to_bits() != outputs[*i].to_bits();
            let first = (0..inputs.len()).find(differs).map(|i| inputs[i].to_bits());
            found.differs = found.differs.or(first);
        }
        found
    }

    /// Takes one result into account.
    pub fn judge(&mut self, f: Function, x: f32, y: f32) {
        let want = f.exact(f64::from(x));
        let (ulps, off) = (error_ulps(y, want), (f64::from(y) - want).abs());
        let bound = f.bound();
        // Written so that a NaN counts as outside.
        let (close, near) = (ulps <= bound.ulps, off <= bound.absolute);
        if !near && ulps > self.ulps.0 {
            self.ulps = (ulps, x.to_bits());
        }
        if !close && off > self.absolute.0 {
            self.absolute = (off, x.to_bits());
        }
        if !close && !near && self.outside.is_none() {
            self.outside = Some(x.to_bits());
        }
    }

    fn join(self, later: Findings) -> Findings {
        let worse = |a: (f64, u32), b: (f64, u32)| if b.0 > a.0 { b } else { a };
        Findings {
            ulps: worse(self.ulps, later.ulps),
            absolute: worse(self.absolute, later.absolute),
            outside: self.outside.or(later.outside),
            differs: self.differs.or(later.differs),
        }
    }

    /// What is wrong, if anything.
    pub fn complaint(&self, f: Function) -> Option<String> {
        let at = |x: u32| format!("{} of {x:#010x} ({:e})", f.name(), f32::from_bits(x));
        let outside = self.outside.map(|x| format!("{} is outside its bounds {:?}", at(x), f.bound()));
        outside.or_else(|| self.differs.map(|x| format!("{} differs between scalar and vector code", at(x))))
    }
}

/// A whole sweep of one function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Worst errors.
    pub found: Findings,
    /// BLAKE3 of all outputs, 2^32 little-endian f32 in the order of their inputs' bit patterns.
    pub digest: Digest,
}

/// All 2^32 inputs, on the current worker pool.
pub fn of_all(f: Function) -> Outcome {
    let mut hasher = blake3::Hasher::new();
    let mut found = Findings::default();
    let chunks = (1u64 << 32) / CHUNK as u64;
    for batch in 0..chunks / BATCH {
        let chunk = |i: u64| {
            let first = ((batch * BATCH + i) * CHUNK as u64) as u32;
            let inputs: Vec<f32> = (0..CHUNK as u32).map(|i| f32::from_bits(first + i)).collect();
            let mut outputs = vec![0.0; CHUNK];
            let found = Findings::of(f, &inputs, &mut outputs);
            (outputs, found)
        };
        let done: Vec<(Vec<f32>, Findings)> = (0..BATCH).into_par_iter().map(chunk).collect();
        for (outputs, part) in done {
            hasher.update(outputs.as_bytes());
            found = found.join(part);
        }
    }
    Outcome { found, digest: Digest(*hasher.finalize().as_bytes()) }
}

/// Digest of the outputs of the sample, computed by `level`: inputs at a fixed stride, then both neighbours
/// of every power of two and of every constant that the functions branch at.
pub fn of_sample(f: Function, level: Level) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let mut hash = |inputs: &[f32]| {
        let mut outputs = vec![0.0; inputs.len()];
        apply(f, level, inputs, &mut outputs);
        hasher.update(outputs.as_bytes());
    };
    for first in (0..SPREAD).step_by(CHUNK) {
        let input = |i: u32| f32::from_bits(i.wrapping_mul(STRIDE));
        hash(&(first..first + CHUNK as u32).map(input).collect::<Vec<f32>>());
    }
    hash(&edges());
    Digest(*hasher.finalize().as_bytes())
}

/// Zeros, denormals, powers of two, infinities, NaN and thresholds with their neighbours, of both signs.
fn edges() -> Vec<f32> {
    let powers = (0..=255u32).map(|exponent| exponent << 23);
    let thresholds = [87.3, 88.722_83, 89.0, 103.98, 0.625, 9.01, std::f32::consts::FRAC_1_SQRT_2];
    let middles = powers.chain(thresholds.into_iter().map(f32::to_bits));
    let near = middles.flat_map(|b| [b.wrapping_sub(2), b.wrapping_sub(1), b, b + 1, b + 2]);
    near.flat_map(|b| [b, b ^ 0x8000_0000]).map(f32::from_bits).collect()
}

/// The committed results.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    lines: Vec<Vec<String>>,
}

impl Committed {
    /// Those of this build.
    pub fn here() -> Self {
        Committed::parse(include_str!("../math/sweep.txt"))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        Committed { lines: lines.map(|l| l.split_whitespace().map(str::to_string).collect()).collect() }
    }

    fn column(&self, f: Function, column: usize) -> Option<&String> {
        self.lines.iter().find(|l| l.first().is_some_and(|name| name == f.name()))?.get(column)
    }

    /// Digest of all outputs.
    pub fn all(&self, f: Function) -> Option<&String> {
        self.column(f, 1)
    }

    /// Digest of the sample's outputs.
    pub fn sample(&self, f: Function) -> Option<&String> {
        self.column(f, 2)
    }
}

/// One line of the committed results.
fn line(f: Function, outcome: &Outcome) -> String {
    let Findings { ulps, absolute, .. } = outcome.found;
    let mut line = format!("{} {} {}", f.name(), outcome.digest, of_sample(f, Level::detect()));
    let _ = write!(line, " {:.4}@{:08x} {:.2e}@{:08x}", ulps.0, ulps.1, absolute.0, absolute.1);
    line
}

/// The command: sweeps the named functions (all, if none is named), prints a line for each as in the
/// committed file, and gives what is wrong. With `write`, lines are also put into that file in place of
/// comparing with it.
pub fn main(names: &[String], write: Option<&Path>) -> Result<(), String> {
    let known = |n: &String| Function::ALL.iter().any(|f| f.name() == n);
    if let Some(name) = names.iter().find(|n| !known(n)) {
        let all = Function::ALL.map(Function::name).join(", ");
        return Err(format!("{name}: not one of {all}"));
    }
    let levels: Vec<&str> = Level::available().map(Level::name).collect();
    eprintln!("levels compared: {}; {} threads", levels.join(", "), rayon::current_num_threads());
    let committed = Committed::here();
    let mut complaints = Vec::new();
    for f in Function::ALL.into_iter().filter(|f| names.is_empty() || names.iter().any(|n| n == f.name())) {
        let start = Instant::now();
        let outcome = of_all(f);
        let line = line(f, &outcome);
        println!("{line}");
        eprintln!("{}: {:.0} s", f.name(), start.elapsed().as_secs_f64());
        complaints.extend(outcome.found.complaint(f));
        match write {
            Some(path) => put(path, f, &line).map_err(|e| format!("{}: {e}", path.display()))?,
            None if committed.all(f) == Some(&outcome.digest.to_string()) => {}
            None => complaints.push(format!("{}: not the committed digest", f.name())),
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

/// Replaces or appends a function's line.
fn put(path: &Path, f: Function, line: &str) -> std::io::Result<()> {
    let mut lines: Vec<String> = std::fs::read_to_string(path)?.lines().map(str::to_string).collect();
    match lines.iter_mut().find(|l| l.split_whitespace().next() == Some(f.name())) {
        Some(old) => *old = line.to_string(),
        None => lines.push(line.to_string()),
    }
    std::fs::write(path, lines.join("\n") + "\n")
}
