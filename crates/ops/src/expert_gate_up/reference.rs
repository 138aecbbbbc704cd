//! The definition: two products per output, then the activation.

use super::Desc;
use crate::HostArgs;
use crate::linear::acts::ActRows;
use crate::linear::entries::{Entries, block};
use crate::linear::layout::{Expert, TILE_ROWS};
use crate::linear::reference::WeightRow;
use crate::math::silu;

pub(super) fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let (rows, count) = (args.rows.len(), args.rows.len() * desc.top_k);
    let expert = Expert::new(desc.format, desc.hidden, desc.inter);
    let input = ActRows::bind(&args.reads, 0, rows, desc.hidden, desc.acts);
    let entries = Entries::bind(&args.reads, 2, desc.experts, count);
    let h = args.writes.f32(0, count * desc.inter);
    let a: Vec<_> = (0..rows).map(|r| input.widened(r)).collect();
    for (e, places) in entries.routed() {
        let (codes, scales) = expert.gate_up_of(block(&args.experts, e));
        for i in 0..desc.inter {
            let n = Expert::gate_row(i);
            let gate = WeightRow::read(&expert.gate_up, codes, scales, n);
            let up = WeightRow::read(&expert.gate_up, codes, scales, n + TILE_ROWS / 2);
            for &entry in &entries.all()[places.clone()] {
                let row = entry as usize / desc.top_k;
                let sa = input.scales(row);
                let (g, u) = (gate.product(&a[row], sa), up.product(&a[row], sa));
                h[entry as usize * desc.inter + i] = silu(g) * u;
            }
        }
    }
}
