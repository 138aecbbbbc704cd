//! `conv` across channels: loops that vectorise, with the reference's operations per channel.

use super::{Desc, MAX_KERNEL};
use crate::simd::per_level;
use crate::simd_out::Out;
use crate::{HostArgs, HostExec, args, math};

/// Channels of a piece of work: half a page of each row, so that rows far apart cost few look-ups of pages,
/// and the taps and the last rows stay in L1.
const WIDE: usize = 512;

/// Channels whose sums are held in registers.
const HELD: usize = 16;

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
        let mut inputs = [&[][..]; MAX_KERNEL];
        for j in 0..b.kernel {
            inputs[j] = input(i + j);
        }
        // SAFETY: (row, block of channels) belongs to this block alone.
        let y = unsafe { b.y.part(b.y_at + i * b.channels + b.from, n) };
        let next = if i + 1 < rows { input(i + b.kernel) } else { &[] };
        fetch(next);
        let mut c = 0;
        while c + HELD <= n {
            channels::<HELD>(&inputs[..b.kernel], &taps, c, y);
            c += HELD;
        }
        while c < n {
            channels::<1>(&inputs[..b.kernel], &taps, c, y);
            c += 1;
        }
    }
    for j in 0..past {
        // SAFETY: as above.
        let new = unsafe { b.tails.part(b.tail_at + j * b.channels + b.from, n) };
        new.copy_from_slice(input(rows + j));
    }
}

/// Asks for a row's part before it is needed: rows are pages apart, which the prefetcher does not follow.
#[inline(always)]
fn fetch(row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for c in (0..row.len()).step_by(16) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64; a prefetch of an address in the slice touches nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().add(c).cast()) };
    }
}

/// Outputs of channels `c..c + N` of one row.
#[inline(always)]
fn channels<const N: usize>(inputs: &[&[f32]], taps: &[[f32; WIDE]; MAX_KERNEL], c: usize, y: &mut [f32]) {
    let mut acc = [0.0f32; N];
    for j in 0..inputs.len() {
        let u: &[f32; N] = inputs[j][c..][..N].try_into().expect("N channels");
        let w: &[f32; N] = taps[j][c..][..N].try_into().expect("N channels");
        for i in 0..N {
            acc[i] = math::fma(u[i], w[i], acc[i]);
        }
    }
    let y: &mut [f32; N] = (&mut y[c..][..N]).try_into().expect("N channels");
    for i in 0..N {
        y[i] = math::silu(acc[i]);
    }
}
