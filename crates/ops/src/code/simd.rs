//! Codes in pieces of whole groups.

use super::Desc;
use super::reference::{code, scale_and_inverse};
use crate::format::{ACT_GROUP, Acts};
use crate::linear::simd::SharedOut;
use crate::math::amax;
use crate::simd::per_level;
use crate::{HostArgs, HostExec};

/// Groups below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 32;

pub(super) fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let rows = args.rows.len() * desc.times;
    let groups = desc.k.div_ceil(ACT_GROUP);
    let x = args.reads.f32(0, rows * desc.k);
    let codes = args.writes.slice::<u8>(0, rows * desc.acts.row_code_bytes(desc.k));
    let scales = SharedOut::new(args.writes.f32(1, rows * groups));
    let (unit, acts, q) = (ACT_GROUP * desc.acts.code_bytes(), desc.acts, desc.acts.max_code() as f32);
    exec.parts_mut(codes, unit, GRAIN, |first, codes| {
        // SAFETY: the scales of the groups of this piece, which is disjoint from all others.
        let scales = unsafe { scales.piece(first, codes.len() / unit) };
        for (i, (codes, scale)) in codes.chunks_exact_mut(unit).zip(scales).enumerate() {
            let (row, from) = ((first + i) / groups, (first + i) % groups * ACT_GROUP);
            let x = &x[row * desc.k + from..][..ACT_GROUP.min(desc.k - from)];
            *scale = match acts {
                Acts::A8 => per_level!(exec.level, group8(x: &[f32], q: f32, codes: &mut [u8]) -> f32),
                Acts::A16 => per_level!(exec.level, group16(x: &[f32], q: f32, codes: &mut [u8]) -> f32),
            };
        }
    });
}

/// Codes of one group as bytes; gives its scale.
#[inline(always)]
fn group8(x: &[f32], q: f32, codes: &mut [u8]) -> f32 {
    let (scale, inverse) = scale_and_inverse(amax(x), q);
    let (now, padding) = codes.split_at_mut(x.len());
    for (out, x) in now.iter_mut().zip(x) {
        *out = code(*x, inverse, q) as i8 as u8;
    }
    padding.fill(0);
    scale
}

/// Codes of one group as words; gives its scale.
#[inline(always)]
fn group16(x: &[f32], q: f32, codes: &mut [u8]) -> f32 {
    let (scale, inverse) = scale_and_inverse(amax(x), q);
    let (now, padding) = codes.split_at_mut(2 * x.len());
    for (out, x) in now.as_chunks_mut::<2>().0.iter_mut().zip(x) {
        *out = code(*x, inverse, q).to_le_bytes();
    }
    padding.fill(0);
    scale
}
