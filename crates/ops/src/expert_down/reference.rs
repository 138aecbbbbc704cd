//! The definition: one product per output, rows chosen by entry.

use super::Desc;
use crate::HostArgs;
use crate::linear::acts::ActRows;
use crate::linear::entries::{Entries, block};
use crate::linear::layout::Expert;
use crate::linear::reference::WeightRow;

pub(super) fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let count = args.rows.len() * desc.top_k;
    let expert = Expert::new(desc.format, desc.hidden, desc.inter);
    let input = ActRows::bind(&args.reads, 0, count, desc.inter, desc.acts);
    let entries = Entries::bind(&args.reads, 2, desc.experts, count);
    let out = args.writes.f32(0, count * desc.hidden);
    let a: Vec<_> = (0..count).map(|r| input.widened(r)).collect();
    for (e, places) in entries.routed() {
        let (codes, scales) = expert.down_of(block(&args.experts, e));
        for n in 0..desc.hidden {
            let weights = WeightRow::read(&expert.down, codes, scales, n);
            for &entry in &entries.all()[places.clone()] {
                let entry = entry as usize;
                out[entry * desc.hidden + n] = weights.product(&a[entry], input.scales(entry));
            }
        }
    }
}
