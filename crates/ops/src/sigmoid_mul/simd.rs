//! `sigmoid_mul` in pieces of any length.

use super::Desc;
use crate::simd::per_level;
use crate::{HostArgs, HostExec, math};

/// Elements below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 1 << 13;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let elements = args.rows.len() * desc.width;
    let g = args.reads.f32(0, elements);
    exec.parts_mut(args.writes.f32(0, elements), 1, GRAIN, |first, x| {
        let g = &g[first..][..x.len()];
        per_level!(exec.level, gate(g: &[f32], x: &mut [f32]));
    });
}

#[inline(always)]
fn gate(g: &[f32], x: &mut [f32]) {
    for (x, g) in x.iter_mut().zip(g) {
        *x *= math::sigmoid(*g);
    }
}
