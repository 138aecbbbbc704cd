//! The definition of `rope`.

use super::Desc;
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let half = desc.rotary / 2;
    let table = args.reads.f32(0, args.context * desc.rotary);
    let x = args.writes.f32(0, args.rows.len() * desc.heads * desc.head_dim);
    for (i, row) in args.rows.iter().enumerate() {
        let angles = &table[row.pos as usize * desc.rotary..][..desc.rotary];
        for head in 0..desc.heads {
            let x = &mut x[(i * desc.heads + head) * desc.head_dim..][..desc.rotary];
            for j in 0..half {
                let (cos, sin) = (angles[j], angles[half + j]);
                (x[j], x[half + j]) = turn(x[j], x[half + j], cos, sin);
            }
        }
    }
}

/// One pair turned by its angle.
#[inline(always)]
pub fn turn(x1: f32, x2: f32, cos: f32, sin: f32) -> (f32, f32) {
    (math::fma(x1, cos, -(x2 * sin)), math::fma(x2, cos, x1 * sin))
}
