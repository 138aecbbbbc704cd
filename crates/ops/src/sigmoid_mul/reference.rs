//! The definition of `sigmoid_mul`.

use super::Desc;
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let elements = args.rows.len() * desc.width;
    let g = args.reads.f32(0, elements);
    let x = args.writes.f32(0, elements);
    for i in 0..elements {
        x[i] *= math::sigmoid(g[i]);
    }
}
