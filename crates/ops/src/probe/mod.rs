//! Takes: a number of threads.
//! Gives: what this machine can do, as denominators: bytes read per second and int8 multiply-adds per second.
//! Never: knows about ops. Figures hold for this moment; compare only what was measured in one run.

mod simd;

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::Level;
use crate::simd::per_level;

/// Bytes per second that `threads` threads read together from a buffer of `bytes` bytes (choose it larger
/// than the caches): every thread sums its own part with the widest loads; the best of four passes counts,
/// from a common start to the end of the last thread.
pub fn read_bandwidth(threads: usize, bytes: usize) -> f64 {
    let level = Level::detect();
    let buffer: Vec<u64> = (0..bytes as u64 / 8).collect();
    let part = buffer.len().div_ceil(threads.max(1)).max(1);
    let pass = || {
        together(threads, |i| {
            let x = buffer.chunks(part).nth(i).unwrap_or_default();
            black_box(per_level!(level, sum(x: &[u64]) -> u64));
        })
    };
    let best = (0..4).map(|_| pass()).min().expect("four passes");
    (8 * buffer.len()) as f64 / best.as_secs_f64()
}

/// Int8 multiply-adds per second that `threads` threads do together at `level`, operands in registers: for
/// AVX2 `vpmaddubsw` + `vpmaddwd` + `vpaddd` (32 each), for AVX-512 `vpdpbusd` (64 each), in as many
/// independent chains as hide their latency; for scalar a plain loop as compiled. The best of three passes
/// of some milliseconds.
pub fn int8_dot_rate(threads: usize, level: Level) -> f64 {
    assert!(level <= Level::detect(), "SIMD level {} is not available here", level.name());
    const ROUNDS: usize = 1 << 18;
    let macs = simd::dots(level, 1);
    let pass = || {
        together(threads, |_| {
            black_box(simd::dots(level, ROUNDS));
        })
    };
    let best = (0..3).map(|_| pass()).min().expect("three passes");
    (macs * ROUNDS * threads.max(1)) as f64 / best.as_secs_f64()
}

/// Time from a common start until the last of `threads` threads has done `work`.
fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let (threads, start) = (threads.max(1), Barrier::new(threads.max(1)));
    let timed = |i: usize| {
        start.wait();
        let from = Instant::now();
        work(i);
        (from, Instant::now())
    };
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|i| scope.spawn(move || timed(i))).collect();
        started.into_iter().map(|t| t.join().expect("a measuring thread")).collect()
    });
    let from = times.iter().map(|t| t.0).min().expect("at least one thread");
    times.iter().map(|t| t.1).max().expect("at least one thread") - from
}

#[inline(always)]
fn sum(x: &[u64]) -> u64 {
    x.iter().fold(0, |sum, x| sum.wrapping_add(*x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_a_computer() {
        let bandwidth = read_bandwidth(2, 1 << 22);
        assert!((1e8..1e13).contains(&bandwidth), "{bandwidth}");
        for level in Level::available() {
            let rate = int8_dot_rate(1, level);
            assert!((1e7..1e14).contains(&rate), "{} {rate}", level.name());
        }
    }
}
