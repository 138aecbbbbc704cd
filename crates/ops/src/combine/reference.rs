//! The definition of the sum of experts (docs/arithmetic.md §5).

use super::{Desc, Shared};
use crate::HostArgs;
use crate::math::sigmoid;

pub(super) fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let (rows, hidden) = (args.rows.len(), desc.hidden);
    let e = args.reads.f32(0, rows * desc.top_k * hidden);
    let weights = args.reads.f32(1, rows * desc.top_k);
    let shared = (desc.shared != Shared::None).then(|| args.reads.f32(2, rows * hidden));
    let gate = (desc.shared == Shared::Gated).then(|| args.reads.f32(3, rows));
    let y = args.writes.f32(0, rows * hidden);
    for r in 0..rows {
        for i in 0..hidden {
            let mut acc = 0.0f32;
            for rank in 0..desc.top_k {
                let entry = r * desc.top_k + rank;
                acc = weights[entry].mul_add(e[entry * hidden + i], acc);
            }
            if let Some(shared) = shared {
                let s = shared[r * hidden + i];
                acc = match gate {
                    None => acc + s,
                    Some(gate) => sigmoid(gate[r]).mul_add(s, acc),
                };
            }
            y[r * hidden + i] = acc;
        }
    }
}
