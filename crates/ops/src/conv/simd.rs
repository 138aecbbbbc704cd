//! `conv` across channels: loops that vectorise, with the reference's operations per channel.

use super::{Desc, MAX_KERNEL};
use crate::simd::per_level;
use crate::simd_out::Out;
use crate::{HostArgs, HostExec, args, math};

/// Channels of a piece of work: a row's part is whole cache lines, and the last rows stay in L1.
const WIDE: usize = 128;

/// Workers over (run, block of channels).
pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let (channels, kernel) = (desc.channels, desc.kernel);
    let u = args.reads.f32(0, args.rows.len() * channels);
    let w = args.reads.f32(1, channels * kernel);
    let y = Out::new(args.writes.f32(0, args.rows.len() * channels));
    let sequences = args.rows.iter().map(|r| r.seq as usize + 1).max().unwrap_or(0);
    let tails = Out::new(args.writes.f32(1, sequences * (kernel - 1) * channels));
    for (first, run) in args::runs(args.rows) {
        let tail = run[0].seq as usize * (kernel - 1) * channels;
        exec.parts(channels.div_ceil(WIDE), 1, |part| {
            for block in part {
                let from = block * WIDE;
                let block = Block {
                    from,
                    len: WIDE.min(channels - from),
                    channels,
                    kernel,
                    u: &u[first * channels..][..run.len() * channels],
                    w: &w[from * kernel..],
                    y: &y,
                    y_at: first * channels,
                    tails: &tails,
                    tail_at: tail,
                };
                per_level!(exec.level, scan(block: Block<'_>));
            }
        });
    }
}

/// A block of channels of one run.
struct Block<'a> {
    /// First channel.
    from: usize,
    /// Channels.
    len: usize,
    /// Of all blocks.
    channels: usize,
    kernel: usize,
    /// The run's inputs.
    u: &'a [f32],
    /// Taps from channel `from` on.
    w: &'a [f32],
    y: &'a Out<'a, f32>,
    /// Of the run.
    y_at: usize,
    tails: &'a Out<'a, f32>,
    /// Of the sequence.
    tail_at: usize,
}

#[inline(always)]
fn scan(b: Block<'_>) {
    let (n, past) = (b.len, b.kernel - 1);
    let mut taps = [[0.0f32; WIDE]; MAX_KERNEL];
    let mut tail = [[0.0f32; WIDE]; MAX_KERNEL];
    for j in 0..b.kernel {
        for c in 0..n {
            taps[j][c] = b.w[c * b.kernel + j];
        }
    }
    for j in 0..past {
        // SAFETY: (sequence, tail row, block of channels) belongs to this block alone.
        let old = unsafe { b.tails.part(b.tail_at + j * b.channels + b.from, n) };
        tail[j][..n].copy_from_slice(old);
    }
    let rows = b.u.len() / b.channels;
    let input = |i: usize| -> &[f32] {
        if i < past { &tail[i][..n] } else { &b.u[(i - past) * b.channels + b.from..][..n] }
    };
    for i in 0..rows {
        let mut acc = [0.0f32; WIDE];
        for j in 0..b.kernel {
            let (u, w) = (input(i + j), &taps[j]);
            for c in 0..n {
                acc[c] = math::fma(u[c], w[c], acc[c]);
            }
        }
        // SAFETY: (row, block of channels) belongs to this block alone.
        let y = unsafe { b.y.part(b.y_at + i * b.channels + b.from, n) };
        for c in 0..n {
            y[c] = math::silu(acc[c]);
        }
    }
    for j in 0..past {
        // SAFETY: as above.
        let new = unsafe { b.tails.part(b.tail_at + j * b.channels + b.from, n) };
        new.copy_from_slice(input(rows + j));
    }
}
