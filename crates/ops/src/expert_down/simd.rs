//! Row tiles of down, for the entries of each expert.

use super::Desc;
use crate::linear::acts::ActRows;
use crate::linear::entries::{Entries, block};
use crate::linear::layout::{Expert, TILE_ROWS};
use crate::linear::simd::{Product, SharedOut, over_experts};
use crate::{HostArgs, HostExec};

pub(super) fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let count = args.rows.len() * desc.top_k;
    let layout = Expert::new(desc.format, desc.hidden, desc.inter);
    let input = ActRows::bind(&args.reads, 0, count, desc.inter, desc.acts);
    let entries = Entries::bind(&args.reads, 2, desc.experts, count);
    let e = SharedOut::new(args.writes.f32(0, count * desc.hidden));
    over_experts(exec, &entries, &layout.down, |segment, list, tiles| {
        let weights = layout.down_of(block(&args.experts, segment.expert));
        let product = Product::new(exec, layout.down, weights, input);
        product.tiles(tiles, list, |tile, acc| {
            let first = tile * TILE_ROWS;
            let width = TILE_ROWS.min(desc.hidden - first);
            for (&entry, acc) in list.iter().zip(acc) {
                // SAFETY: each (entry, row tile) is met once.
                let out = unsafe { e.piece(entry as usize * desc.hidden + first, width) };
                out.copy_from_slice(&acc[..width]);
            }
        });
    });
}
