//! Pieces of rows: one pass per rank over a piece that stays in the first-level cache.

use super::{Desc, Shared};
use crate::math::sigmoid;
use crate::simd::per_level;
use crate::{HostArgs, HostExec};

/// Elements below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 1 << 11;

pub(super) fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let (rows, hidden, top_k) = (args.rows.len(), desc.hidden, desc.top_k);
    let e = args.reads.f32(0, rows * top_k * hidden);
    let weights = args.reads.f32(1, rows * top_k);
    let shared = (desc.shared != Shared::None).then(|| args.reads.f32(2, rows * hidden));
    let gate = (desc.shared == Shared::Gated).then(|| args.reads.f32(3, rows));
    let piece = |row: usize, from: usize, y: &mut [f32]| {
        y.fill(0.0);
        for entry in row * top_k..(row + 1) * top_k {
            let (weight, e) = (weights[entry], &e[entry * hidden + from..][..y.len()]);
            per_level!(exec.level, add_weighted(weight: f32, e: &[f32], y: &mut [f32]));
        }
        if let Some(shared) = shared {
            let s = &shared[row * hidden + from..][..y.len()];
            match gate {
                None => per_level!(exec.level, add(s: &[f32], y: &mut [f32])),
                Some(gate) => {
                    let weight = sigmoid(gate[row]);
                    per_level!(exec.level, add_weighted(weight: f32, s: &[f32], y: &mut [f32]));
                }
            }
        }
    };
    exec.parts_mut(args.writes.f32(0, rows * hidden), 1, GRAIN, |first, mut y| {
        let mut at = first;
        while !y.is_empty() {
            let (row, from) = (at / hidden, at % hidden);
            let (now, later) = y.split_at_mut(y.len().min(hidden - from));
            at += now.len();
            piece(row, from, now);
            y = later;
        }
    });
}

#[inline(always)]
fn add_weighted(weight: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = weight.mul_add(*x, *y);
    }
}

#[inline(always)]
fn add(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}
