//! `route` by rows: each choice is a vector maximum and the first place that has it.

use rayon::prelude::*;

use super::Desc;
use super::reference::{finish, refuse};
use crate::simd::per_level;
use crate::{HostArgs, HostExec, math};

/// Rows below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 8;

/// Lanes of the maximum: its order can't matter for finite numbers.
const LANES: usize = 32;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let (experts, top_k) = (desc.experts, desc.top_k);
    let logits = args.reads.f32(0, args.rows.len() * experts);
    let ids: &mut [u32] = args.writes.slice(0, args.rows.len() * top_k);
    let weights = args.writes.f32(1, args.rows.len() * top_k);
    let pieces = ids.par_chunks_mut(GRAIN * top_k).zip(weights.par_chunks_mut(GRAIN * top_k));
    pieces.zip(logits.par_chunks(GRAIN * experts)).for_each(|((ids, weights), logits)| {
        per_level!(exec.level, rows(desc: &Desc, logits: &[f32], ids: &mut [u32], weights: &mut [f32]));
    });
}

#[inline(always)]
fn rows(desc: &Desc, logits: &[f32], ids: &mut [u32], weights: &mut [f32]) {
    let mut left = vec![0.0f32; desc.experts];
    let outputs = ids.chunks_exact_mut(desc.top_k).zip(weights.chunks_exact_mut(desc.top_k));
    for (logits, (ids, weights)) in logits.chunks_exact(desc.experts).zip(outputs) {
        // amax compares bits: infinity is the largest number and NaN is above it.
        if !math::amax(logits).is_finite() {
            refuse(ids, weights);
            continue;
        }
        left.copy_from_slice(logits);
        for id in &mut *ids {
            *id = first_largest(&left);
            left[*id as usize] = f32::NEG_INFINITY;
        }
        let max = logits[ids[0] as usize];
        for (p, x) in left.iter_mut().zip(logits) {
            *p = math::exp(x - max);
        }
        let sum = math::lane_sum_wide(&left);
        for (w, id) in weights.iter_mut().zip(&*ids) {
            *w = left[*id as usize] / sum;
        }
        finish(desc, weights);
    }
}

/// Index of the largest element; of equal ones (±0 are equal) the lowest. No NaN.
#[inline(always)]
fn first_largest(x: &[f32]) -> u32 {
    let mut top = [f32::NEG_INFINITY; LANES];
    let whole = x.chunks_exact(LANES);
    for (l, v) in whole.remainder().iter().enumerate() {
        top[l] = *v;
    }
    for chunk in whole {
        for l in 0..LANES {
            top[l] = if chunk[l] > top[l] { chunk[l] } else { top[l] };
        }
    }
    let max = top.iter().fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
    x.iter().position(|v| *v == max).expect("the largest element is one of them") as u32
}
