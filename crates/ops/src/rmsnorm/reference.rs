//! The definition of `rmsnorm`.

use super::Desc;
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let elements = args.rows.len() * desc.heads * desc.width;
    let (x, w) = (args.reads.f32(0, elements), args.reads.f32(1, desc.width));
    let y = args.writes.f32(0, elements);
    for (x, y) in x.chunks_exact(desc.width).zip(y.chunks_exact_mut(desc.width)) {
        let r = inverse_rms(math::lane_dot(x, x), desc.width, desc.eps);
        for i in 0..desc.width {
            y[i] = (x[i] * r) * w[i];
        }
    }
}

/// `1 / sqrt(Σx² / H + eps)`.
#[inline(always)]
pub fn inverse_rms(squares: f32, width: usize, eps: f32) -> f32 {
    1.0 / (squares / width as f32 + eps).sqrt()
}
