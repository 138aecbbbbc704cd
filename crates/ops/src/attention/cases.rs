//! Seeded cases of `attention`.

use base::philox::Stream;
use zerocopy::IntoBytes;

use super::Desc;
use crate::format::{Acts, KvFormat};
use crate::kv_write::layout::{KvLayout, Side};
use crate::kv_write::reference::store;
use crate::{Case, Dims, Row};

/// What is special about the data of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Data {
    Plain,
    /// All keys are the same: all scores are.
    EqualScores,
    /// Scores so far apart that most of exp is 0.
    Huge,
    /// Values that are zero at some positions, in whole blocks, in one slice.
    ZeroValues,
    /// Tiny queries, keys and values, and negative zeros.
    Tiny,
    /// One query, one key and one value that are not finite.
    NotFinite,
}

/// Rows of a case as runs: sequence, first position, rows.
type Runs<'a> = &'a [(u32, u32, u32)];

/// All cases.
pub fn all() -> Vec<Case<Desc>> {
    let mut cases = Vec::new();
    for kv in KvFormat::ALL {
        for acts in [Acts::A8, Acts::A16] {
            for (heads, kv_heads, head_dim) in [(1, 1, 64), (4, 2, 128), (4, 1, 256), (7, 1, 80), (3, 3, 16)]
            {
                let desc =
                    Desc { heads, kv_heads, head_dim, acts, kv, scale: 1.0 / (head_dim as f32).sqrt() };
                shapes(desc, &mut cases);
            }
            let desc = Desc { heads: 4, kv_heads: 2, head_dim: 144, acts, kv, scale: 0.25 };
            for data in [Data::EqualScores, Data::Huge, Data::ZeroValues, Data::Tiny, Data::NotFinite] {
                cases.push(case("decode", data, desc, 2, 200, &[(1, 0, 1), (0, 150, 1)]));
                cases.push(case("prefill", data, desc, 1, 200, &[(0, 121, 9)]));
            }
        }
    }
    cases
}

fn shapes(desc: Desc, cases: &mut Vec<Case<Desc>>) {
    let mut push = |name: &str, sequences, context, runs: Runs<'_>| {
        cases.push(case(name, Data::Plain, desc, sequences, context, runs));
    };
    push("first position", 1, 1, &[(0, 0, 1)]);
    push("block edges", 4, 130, &[(2, 62, 1), (0, 63, 1), (3, 64, 1), (1, 127, 1)]);
    push("chunk inside a block", 2, 100, &[(1, 60, 7), (0, 65, 1)]);
    push("whole prompt", 1, 70, &[(0, 0, 70)]);
    // The longest contexts with the few shapes and formats that models have.
    let formats = [(KvFormat::K4, Acts::A8), (KvFormat::K8, Acts::A8), (KvFormat::K16, Acts::A16)];
    if desc.head_dim == 128 && formats.contains(&(desc.kv, desc.acts)) {
        push("split edge", 2, 1100, &[(1, 1022, 4)]);
        push("two splits", 1, 1105, &[(0, 1101, 1)]);
    }
}

fn case(what: &str, data: Data, desc: Desc, sequences: usize, context: usize, runs: Runs<'_>) -> Case<Desc> {
    let Desc { heads, kv_heads, head_dim, acts, kv, .. } = desc;
    let name = format!("{} a{} {heads}/{kv_heads}x{head_dim} {data:?} {what}", kv.name(), acts.bits());
    let rows: Vec<Row> =
        runs.iter().flat_map(|&(seq, pos, n)| (pos..pos + n).map(move |pos| Row { seq, pos })).collect();
    let mut random = Stream::new((head_dim * 100 + heads * 10 + context) as u64);
    let mut q: Vec<f32> = (0..rows.len() * heads * head_dim).map(|_| random.normal()).collect();
    match data {
        Data::Huge => q.iter_mut().for_each(|x| *x *= 300.0),
        Data::Tiny => q.iter_mut().step_by(2).for_each(|x| *x *= -1e-30),
        // Head 1 of the last row.
        Data::NotFinite => {
            let at = q.len() - (heads - 1) * head_dim;
            q[at] = f32::INFINITY;
        }
        _ => {}
    }
    let layout = KvLayout::new(kv_heads, head_dim, kv, context);
    // Positions that were never written hold NaN scales: who reads them is found out.
    let mut state = vec![0xff; sequences * layout.sequence_bytes()];
    for &(seq, first, n) in runs {
        fill(&layout, data, &mut random, &mut state, seq as usize, (first + n) as usize);
    }
    Case {
        name,
        desc,
        dims: Dims { rows: rows.len(), context, sequences },
        rows,
        reads: vec![q.as_bytes().to_vec(), state],
        writes: vec![vec![0; 4 * q.len()]],
        in_place: vec![false],
        experts: Vec::new(),
    }
}

/// Writes positions 0..len of a sequence.
fn fill(layout: &KvLayout, data: Data, random: &mut Stream, state: &mut [u8], seq: usize, len: usize) {
    for head in 0..layout.kv_heads {
        let kv = &mut state[layout.head_at(seq, head)..][..layout.head_bytes()];
        let same: Vec<f32> = (0..layout.head_dim).map(|_| random.normal()).collect();
        for pos in 0..len {
            let mut k: Vec<f32> = (0..layout.head_dim).map(|_| noise(random)).collect();
            let mut v: Vec<f32> = (0..layout.head_dim).map(|_| noise(random)).collect();
            match data {
                Data::EqualScores => k.copy_from_slice(&same),
                Data::ZeroValues if pos % 3 == 1 || pos / 64 == 1 => v.fill(0.0),
                Data::ZeroValues => v[..layout.head_dim.min(128)].fill(-0.0),
                Data::Tiny if pos % 2 == 0 => k.fill(-0.0),
                Data::Tiny => v.iter_mut().for_each(|x| *x *= 3e-30),
                Data::NotFinite if head == 0 && pos == 70 => k[3] = f32::NAN,
                Data::NotFinite if head == 1 && pos == 125 => v[9] = f32::NEG_INFINITY,
                _ => {}
            }
            store(layout, Side::K, pos, &k, kv);
            store(layout, Side::V, pos, &v, kv);
        }
    }
}

/// Uniform with variance 1: a twelfth of the time of `normal`.
fn noise(random: &mut Stream) -> f32 {
    (random.unit() - 0.5) * 3.4641016
}
