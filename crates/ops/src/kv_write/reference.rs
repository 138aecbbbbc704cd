//! The definition of `kv_write`.

use super::Desc;
use super::coding::{code_slice, rotate};
use super::layout::{KvLayout, Side};
use crate::HostArgs;

/// Rows one after the other.
pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let layout = KvLayout::new(desc.kv_heads, desc.head_dim, desc.kv, args.context);
    let width = desc.kv_heads * desc.head_dim;
    let k = args.reads.f32(0, args.rows.len() * width);
    let v = args.reads.f32(1, args.rows.len() * width);
    let state = args.writes.bytes(0);
    for (i, row) in args.rows.iter().enumerate() {
        let (seq, pos) = (row.seq as usize, row.pos as usize);
        assert!(pos < args.context, "position {pos} lies outside a context of {}", args.context);
        for head in 0..desc.kv_heads {
            let at = i * width + head * desc.head_dim;
            let out = &mut state[layout.head_at(seq, head)..][..layout.head_bytes()];
            store(&layout, Side::K, pos, &k[at..][..desc.head_dim], out);
            store(&layout, Side::V, pos, &v[at..][..desc.head_dim], out);
        }
    }
}

/// Codes one head of one token and stores it at `pos` of `head` (one KV head of one sequence).
pub fn store(layout: &KvLayout, side: Side, pos: usize, x: &[f32], head: &mut [u8]) {
    let mut codes = vec![0; layout.head_dim];
    for s in 0..layout.slices() {
        let range = layout.slice(s);
        let mut slice = x[range.clone()].to_vec();
        if side == Side::K && layout.rotates(slice.len()) {
            rotate(&mut slice);
        }
        let scale = code_slice(&slice, layout.kv.max_code(), &mut codes[range]);
        let at = layout.scales_at(side) + 4 * (pos * layout.slices() + s);
        head[at..][..4].copy_from_slice(&scale.to_le_bytes());
    }
    let at = layout.codes_at(side) + pos * layout.row_bytes();
    layout.pack_row(&codes, &mut head[at..][..layout.row_bytes()]);
}
