//! Seeded cases of `kv_write`.

use base::philox::Stream;
use zerocopy::IntoBytes;

use super::Desc;
use super::coding::TINY;
use super::layout::SLICE;
use crate::format::KvFormat;
use crate::{Case, Dims, Op, Row};

const CONTEXT: usize = 40;

/// All cases.
pub fn all() -> Vec<Case<Desc>> {
    let mut cases = Vec::new();
    for kv in KvFormat::ALL {
        for (kv_heads, head_dim) in [(1, 64), (2, 128), (1, 256), (3, 80), (2, 144), (1, 16), (1, 192)] {
            let desc = Desc { kv_heads, head_dim, kv };
            let name = |what: &str| format!("{} {kv_heads}x{head_dim} {what}", kv.name());
            cases.push(case(name("one row"), desc, 1, vec![row(0, 0)]));
            cases.push(case(name("two sequences"), desc, 2, vec![row(1, 39), row(0, 6)]));
            let mut rows: Vec<Row> = (3..16).map(|p| row(2, p)).collect();
            rows.extend((0..5).map(|p| row(0, p)));
            cases.push(case(name("two runs"), desc, 3, rows));
        }
    }
    cases
}

fn row(seq: u32, pos: u32) -> Row {
    Row { seq, pos }
}

fn case(name: String, desc: Desc, sequences: usize, rows: Vec<Row>) -> Case<Desc> {
    let mut random = Stream::new(name.len() as u64 * 1000 + desc.head_dim as u64);
    let dims = Dims { rows: rows.len(), context: CONTEXT, sequences };
    let bytes = desc.shapes(dims).writes[0].bytes;
    let state = (0..bytes).map(|_| random.u32() as u8).collect();
    let mut side = || {
        let heads = rows.len() * desc.kv_heads;
        let mut x: Vec<f32> = (0..heads * desc.head_dim).map(|_| random.normal()).collect();
        let slices = x.chunks_mut(desc.head_dim).flat_map(|head| head.chunks_mut(SLICE));
        slices.enumerate().for_each(|(i, slice)| special(i, slice));
        x.as_bytes().to_vec()
    };
    let reads = vec![side(), side()];
    Case { name, desc, dims, rows, reads, writes: vec![state], in_place: vec![true], experts: Vec::new() }
}

/// Makes slice `i` one of the extremes; every other one stays as it is.
pub fn special(i: usize, slice: &mut [f32]) {
    match i % 20 {
        1 => slice.fill(0.0),
        3 => slice.iter_mut().for_each(|x| *x *= TINY / 16.0),
        5 => slice.iter_mut().for_each(|x| *x *= 1e37),
        7 => slice.iter_mut().for_each(|x| *x *= 1e-42),
        9 => slice.fill(-0.0),
        // Halves of a code: they must round to even.
        11 => slice.iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 - 7.0) * 0.5),
        13 => slice[5] = f32::NAN,
        15 => slice[2] = f32::NEG_INFINITY,
        17 => slice.fill(3.0),
        18 => slice[0] = TINY,
        _ => {}
    }
}
