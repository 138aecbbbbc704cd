//! `rope` by rows: the two halves of a head are two streams.

use super::Desc;
use super::reference::turn;
use crate::simd::per_level;
use crate::{HostArgs, HostExec, Row};

/// Elements below which a hand-over to another worker costs more than it saves.
const GRAIN: usize = 1 << 14;

pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let width = desc.heads * desc.head_dim;
    let table = args.reads.f32(0, args.context * desc.rotary);
    let x = args.writes.f32(0, args.rows.len() * width);
    exec.parts_mut(x, width, GRAIN.div_ceil(width), |first, x| {
        let rows = &args.rows[first..][..x.len() / width];
        per_level!(exec.level, turns(desc: &Desc, rows: &[Row], table: &[f32], x: &mut [f32]));
    });
}

#[inline(always)]
fn turns(desc: &Desc, rows: &[Row], table: &[f32], x: &mut [f32]) {
    let half = desc.rotary / 2;
    for (row, x) in rows.iter().zip(x.chunks_exact_mut(desc.heads * desc.head_dim)) {
        let angles = &table[row.pos as usize * desc.rotary..][..desc.rotary];
        let (cos, sin) = angles.split_at(half);
        for head in x.chunks_exact_mut(desc.head_dim) {
            let (x1, x2) = head[..desc.rotary].split_at_mut(half);
            for j in 0..half {
                (x1[j], x2[j]) = turn(x1[j], x2[j], cos[j], sin[j]);
            }
        }
    }
}
