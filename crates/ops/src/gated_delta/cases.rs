//! Seeded cases of `gated_delta`.

use base::philox::Stream;
use zerocopy::IntoBytes;

use super::Desc;
use crate::{Case, Dims, Row};

/// All cases.
pub fn all() -> Vec<Case<Desc>> {
    let shapes = [(1, 1, 64, 64), (2, 2, 128, 128), (1, 2, 128, 48), (2, 8, 64, 128), (1, 4, 16, 5)];
    let mut cases = Vec::new();
    for (key_heads, value_heads, dk, dv) in shapes {
        let desc = Desc { key_heads, value_heads, dk, dv };
        let name = |what: &str| format!("{key_heads}:{value_heads} heads, {dk}x{dv}, {what}");
        cases.push(case(name("one row"), desc, 1, &[(0, 0, 1)]));
        cases.push(case(name("decode of three"), desc, 4, &[(3, 9, 1), (0, 4, 1), (2, 100, 1)]));
        cases.push(case(name("two runs"), desc, 3, &[(2, 0, 37), (1, 5, 3)]));
    }
    cases
}

/// `runs`: sequence, first position, rows.
fn case(name: String, desc: Desc, sequences: usize, runs: &[(u32, u32, u32)]) -> Case<Desc> {
    let rows: Vec<Row> =
        runs.iter().flat_map(|&(seq, pos, n)| (pos..pos + n).map(move |pos| Row { seq, pos })).collect();
    let mut random = Stream::new((desc.dk * 1000 + desc.dv * 10 + desc.value_heads) as u64);
    let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.normal()).collect() };
    let width = desc.qkv_width();
    let mut qkv = floats(rows.len() * width);
    // Row 1: a zero q and k; row 2: denormal ones.
    qkv.chunks_mut(width).skip(1).step_by(5).for_each(|row| row[..2 * desc.key_heads * desc.dk].fill(0.0));
    let tiny = |row: &mut [f32]| row.iter_mut().for_each(|x| *x *= 1e-40);
    qkv.chunks_mut(width).skip(2).step_by(7).for_each(tiny);
    let mut ba = floats(rows.len() * 2 * desc.value_heads);
    // Gates that forget everything, and ones that keep everything.
    ba.iter_mut().step_by(7).for_each(|x| *x *= 60.0);
    let decay: Vec<f32> = floats(desc.value_heads).iter().map(|x| -(x * x) - 0.01).collect();
    let dt_bias = floats(desc.value_heads);
    let state = floats(sequences * desc.value_heads * desc.dk * desc.dv);
    let bytes = |x: Vec<f32>| x.as_bytes().to_vec();
    Case {
        name,
        desc,
        dims: Dims { rows: rows.len(), context: 256, sequences },
        writes: vec![vec![0; 4 * rows.len() * desc.value_heads * desc.dv], bytes(state)],
        rows,
        reads: vec![bytes(qkv), bytes(ba), bytes(decay), bytes(dt_bias)],
        in_place: vec![false, true],
        experts: Vec::new(),
    }
}
