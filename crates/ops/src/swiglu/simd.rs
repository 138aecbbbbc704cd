//! `swiglu` in pieces of any length.

use super::Desc;
use crate::simd::per_level;
use crate::{HostArgs, HostExec, math};

/// Elements below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 1 << 13;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let elements = args.rows.len() * desc.width;
    let (gate, up) = (args.reads.f32(0, elements), args.reads.f32(1, elements));
    exec.parts_mut(args.writes.f32(0, elements), 1, GRAIN, |first, h| {
        let (gate, up) = (&gate[first..][..h.len()], &up[first..][..h.len()]);
        per_level!(exec.level, product(gate: &[f32], up: &[f32], h: &mut [f32]));
    });
}

#[inline(always)]
fn product(gate: &[f32], up: &[f32], h: &mut [f32]) {
    for ((h, gate), up) in h.iter_mut().zip(gate).zip(up) {
        *h = math::silu(*gate) * up;
    }
}
