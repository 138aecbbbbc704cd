//! Row tiles of gate|up: a tile's first eight outputs are gates, its last eight the ups that belong to them.

use super::Desc;
use crate::linear::acts::ActRows;
use crate::linear::entries::{Entries, block};
use crate::linear::layout::{Expert, TILE_ROWS};
use crate::linear::simd::{BlockRows, Product, SharedOut, TileAcc, over_experts};
use crate::math::silu;
use crate::simd::per_level;
use crate::{HostArgs, HostExec};

/// Outputs of the op in a row tile.
const WIDTH: usize = TILE_ROWS / 2;

pub(super) fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let (rows, count) = (args.rows.len(), args.rows.len() * desc.top_k);
    let layout = Expert::new(desc.format, desc.hidden, desc.inter);
    let input = ActRows::bind(&args.reads, 0, rows, desc.hidden, desc.acts);
    let entries = Entries::bind(&args.reads, 2, desc.experts, count);
    let h = SharedOut::new(args.writes.f32(0, count * desc.inter));
    over_experts(exec, &entries, &layout.gate_up, |segment, list, tiles| {
        let weights = layout.gate_up_of(block(&args.experts, segment.expert));
        let product = Product::new(exec, layout.gate_up, weights, input);
        let rows = BlockRows::new(list.iter().map(|entry| entry / desc.top_k as u32));
        product.tiles(tiles, rows.get(), |tile, acc| {
            per_level!(exec.level, activate(acc: &mut [TileAcc]));
            let first = tile * WIDTH;
            let width = WIDTH.min(desc.inter - first);
            for (&entry, acc) in list.iter().zip(acc) {
                // SAFETY: each (entry, row tile) is met once.
                let out = unsafe { h.piece(entry as usize * desc.inter + first, width) };
                out.copy_from_slice(&acc[..width]);
            }
        });
    });
}

/// Puts silu(gate)·up in the gates' places.
#[inline(always)]
fn activate(acc: &mut [TileAcc]) {
    for acc in acc {
        let (gate, up) = acc.split_at_mut(WIDTH);
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = silu(*gate) * *up;
        }
    }
}
