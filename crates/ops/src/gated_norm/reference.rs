//! The definition of `gated_norm`.

use super::Desc;
use crate::rmsnorm::inverse_rms;
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let width = desc.width;
    let elements = args.rows.len() * desc.heads * width;
    let (x, z, w) = (args.reads.f32(0, elements), args.reads.f32(1, elements), args.reads.f32(2, width));
    let y = args.writes.f32(0, elements);
    for head in 0..args.rows.len() * desc.heads {
        let (x, z) = (&x[head * width..][..width], &z[head * width..][..width]);
        let r = inverse_rms(math::lane_dot(x, x), width, desc.eps);
        for i in 0..width {
            y[head * width + i] = ((x[i] * r) * w[i]) * math::silu(z[i]);
        }
    }
}
