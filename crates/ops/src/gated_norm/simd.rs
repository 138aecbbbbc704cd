//! `gated_norm` by heads.

use super::Desc;
use crate::rmsnorm::inverse_rms;
use crate::simd::per_level;
use crate::{HostArgs, HostExec, math};

/// Elements below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 1 << 13;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let (width, eps) = (desc.width, desc.eps);
    let elements = args.rows.len() * desc.heads * width;
    let (x, z, w) = (args.reads.f32(0, elements), args.reads.f32(1, elements), args.reads.f32(2, width));
    exec.parts_mut(args.writes.f32(0, elements), width, GRAIN.div_ceil(width), |first, y| {
        let (x, z) = (&x[first * width..][..y.len()], &z[first * width..][..y.len()]);
        per_level!(exec.level, norms(x: &[f32], z: &[f32], w: &[f32], eps: f32, y: &mut [f32]));
    });
}

#[inline(always)]
fn norms(x: &[f32], z: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    let width = w.len();
    let heads = x.chunks_exact(width).zip(z.chunks_exact(width)).zip(y.chunks_exact_mut(width));
    for ((x, z), y) in heads {
        let r = inverse_rms(math::lane_dot_wide(x, x), width, eps);
        for i in 0..width {
            y[i] = ((x[i] * r) * w[i]) * math::silu(z[i]);
        }
    }
}
