//! `add` in pieces of any length.

use super::Desc;
use crate::simd::per_level;
use crate::{HostArgs, HostExec};

/// Elements below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 1 << 16;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let elements = args.rows.len() * desc.width;
    let y = args.reads.f32(0, elements);
    exec.parts_mut(args.writes.f32(0, elements), 1, GRAIN, |first, x| {
        let y = &y[first..][..x.len()];
        per_level!(exec.level, add(y: &[f32], x: &mut [f32]));
    });
}

#[inline(always)]
fn add(y: &[f32], x: &mut [f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += *y;
    }
}
