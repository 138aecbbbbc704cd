//! Seeded cases of `conv`.

use base::philox::Stream;
use zerocopy::IntoBytes;

use super::Desc;
use crate::{Case, Dims, Row};

/// All cases.
pub fn all() -> Vec<Case<Desc>> {
    let mut cases = Vec::new();
    for (channels, kernel) in [(1, 4), (37, 4), (64, 2), (100, 3), (512, 4), (300, 8)] {
        let desc = Desc { channels, kernel };
        let name = |what: &str| format!("{channels} channels, {kernel} taps, {what}");
        cases.push(case(name("one row"), desc, 1, &[(0, 0, 1)]));
        cases.push(case(name("fewer rows than taps"), desc, 2, &[(1, 7, 2)]));
        cases.push(case(name("decode of three"), desc, 4, &[(3, 9, 1), (0, 4, 1), (2, 100, 1)]));
        cases.push(case(name("two runs"), desc, 3, &[(2, 0, 70), (1, 5, 3)]));
    }
    cases
}

/// `runs`: sequence, first position, rows.
fn case(name: String, desc: Desc, sequences: usize, runs: &[(u32, u32, u32)]) -> Case<Desc> {
    let rows: Vec<Row> =
        runs.iter().flat_map(|&(seq, pos, n)| (pos..pos + n).map(move |pos| Row { seq, pos })).collect();
    let mut random = Stream::new((desc.channels * 100 + desc.kernel) as u64);
    let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.normal()).collect() };
    let mut u = floats(rows.len() * desc.channels);
    u.iter_mut().skip(3).step_by(11).for_each(|x| *x = -0.0);
    u.iter_mut().skip(1).step_by(17).for_each(|x| *x *= 1e-41);
    u.iter_mut().skip(2).step_by(19).for_each(|x| *x *= 500.0);
    let w = floats(desc.channels * desc.kernel);
    let tail = floats(sequences * (desc.kernel - 1) * desc.channels);
    let y = vec![0; u.len() * 4];
    Case {
        name,
        desc,
        dims: Dims { rows: rows.len(), context: 256, sequences },
        rows,
        reads: vec![u.as_bytes().to_vec(), w.as_bytes().to_vec()],
        writes: vec![y, tail.as_bytes().to_vec()],
        in_place: vec![false, true],
        experts: Vec::new(),
    }
}
