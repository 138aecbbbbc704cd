//! The definition of `swiglu`.

use super::Desc;
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let elements = args.rows.len() * desc.width;
    let (gate, up) = (args.reads.f32(0, elements), args.reads.f32(1, elements));
    let h = args.writes.f32(0, elements);
    for i in 0..elements {
        h[i] = math::silu(gate[i]) * up[i];
    }
}
