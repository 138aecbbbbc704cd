//! `route` by rows: each choice is a vector maximum and the first place that has it, or is read from
//! the table.

use std::cell::RefCell;

use rayon::prelude::*;

use super::reference::{finish, refuse};
use super::{Desc, TABLE_ROWS};
use crate::simd::per_level;
use crate::{HostArgs, HostExec, Row, math};

/// Rows below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 8;

/// Lanes of the maximum: its order can't matter for finite numbers.
const LANES: usize = 32;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let (experts, top_k) = (desc.experts, desc.top_k);
    let logits = args.reads.f32(0, args.rows.len() * experts);
    let ids: &mut [u32] = args.writes.slice(0, args.rows.len() * top_k);
    let weights = args.writes.f32(1, args.rows.len() * top_k);
    let table: Option<&[u32]> = desc.table.then(|| args.reads.slice(1, TABLE_ROWS * top_k));
    let pieces = ids.par_chunks_mut(GRAIN * top_k).zip(weights.par_chunks_mut(GRAIN * top_k));
    let inputs = logits.par_chunks(GRAIN * experts).zip(args.rows.par_chunks(GRAIN));
    pieces.zip(inputs).for_each(|((ids, weights), (logits, places))| {
        if let Some(table) = table {
            listed(places, table, ids);
        }
        LEFT.with_borrow_mut(|left| {
            left.resize(left.len().max(experts), 0.0);
            let left = &mut left[..experts];
            per_level!(
                exec.level,
                rows(desc: &Desc, logits: &[f32], ids: &mut [u32], weights: &mut [f32], left: &mut [f32])
            );
        });
    });
}

thread_local! {
    /// Room for one row: kept, because a decode step allocates nothing.
    static LEFT: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// See [`crate::Op::warm`].
pub fn warm(desc: &Desc) {
    LEFT.with_borrow_mut(|left| left.resize(left.len().max(desc.experts), 0.0));
}

/// Ids of the rows as the table lists them.
fn listed(places: &[Row], table: &[u32], ids: &mut [u32]) {
    let top_k = table.len() / TABLE_ROWS;
    for (place, ids) in places.iter().zip(ids.chunks_exact_mut(top_k)) {
        ids.copy_from_slice(&table[place.pos as usize % TABLE_ROWS * top_k..][..top_k]);
    }
}

/// `ids` are chosen here, or there already if they are a table's. `left` is room for one row.
#[inline(always)]
fn rows(desc: &Desc, logits: &[f32], ids: &mut [u32], weights: &mut [f32], left: &mut [f32]) {
    let outputs = ids.chunks_exact_mut(desc.top_k).zip(weights.chunks_exact_mut(desc.top_k));
    for (logits, (ids, weights)) in logits.chunks_exact(desc.experts).zip(outputs) {
        // amax compares bits: infinity is the largest number and NaN is above it.
        if !math::amax(logits).is_finite() {
            refuse(ids, weights);
            continue;
        }
        let max = logits[first_largest(logits) as usize];
        if desc.table {
            if ids.iter().any(|id| *id as usize >= desc.experts) {
                refuse(ids, weights);
                continue;
            }
        } else {
            left.copy_from_slice(logits);
            for id in &mut *ids {
                *id = first_largest(left);
                left[*id as usize] = f32::NEG_INFINITY;
            }
        }
        for (p, x) in left.iter_mut().zip(logits) {
            *p = math::exp(x - max);
        }
        let sum = math::lane_sum_wide(left);
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
