//! The definition of `route`.

use super::{Desc, TABLE_ROWS};
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let (experts, top_k) = (desc.experts, desc.top_k);
    let logits = args.reads.f32(0, args.rows.len() * experts);
    let ids: &mut [u32] = args.writes.slice(0, args.rows.len() * top_k);
    let weights = args.writes.f32(1, args.rows.len() * top_k);
    let table: Option<&[u32]> = desc.table.then(|| args.reads.slice(1, TABLE_ROWS * top_k));
    for row in 0..args.rows.len() {
        let logits = &logits[row * experts..][..experts];
        let ids = &mut ids[row * top_k..][..top_k];
        let weights = &mut weights[row * top_k..][..top_k];
        if !logits.iter().all(|x| x.is_finite()) {
            refuse(ids, weights);
            continue;
        }
        if let Some(table) = table {
            ids.copy_from_slice(&table[args.rows[row].pos as usize % TABLE_ROWS * top_k..][..top_k]);
            if ids.iter().any(|id| *id as usize >= experts) {
                refuse(ids, weights);
                continue;
            }
        } else {
            for rank in 0..top_k {
                ids[rank] = best(logits, &ids[..rank]);
            }
        }
        let max = logits[best(logits, &[]) as usize];
        let p: Vec<f32> = logits.iter().map(|x| math::exp(x - max)).collect();
        let sum = math::lane_sum(&p);
        for rank in 0..top_k {
            weights[rank] = p[ids[rank] as usize] / sum;
        }
        finish(desc, weights);
    }
}

/// The largest logit not taken yet; of equal ones the lowest index.
fn best(logits: &[f32], taken: &[u32]) -> u32 {
    let mut best: Option<usize> = None;
    for i in 0..logits.len() {
        if !taken.contains(&(i as u32)) && best.is_none_or(|b| logits[i] > logits[b]) {
            best = Some(i);
        }
    }
    best.expect("no more choices than experts") as u32
}

/// What a row with a logit that is not finite, or an id in its table that is no expert's, gives: ids that
/// name experts, and weights that are NaN, so that the error shows in everything that follows.
pub fn refuse(ids: &mut [u32], weights: &mut [f32]) {
    for (rank, id) in ids.iter_mut().enumerate() {
        *id = rank as u32;
    }
    weights.fill(f32::NAN);
}

/// Renormalises in ascending rank if asked for, then applies the factor.
#[inline(always)]
pub fn finish(desc: &Desc, weights: &mut [f32]) {
    if desc.renormalise {
        let mut sum = 0.0;
        for w in &*weights {
            sum += *w;
        }
        for w in &mut *weights {
            *w /= sum;
        }
    }
    for w in weights {
        *w *= desc.factor;
    }
}
