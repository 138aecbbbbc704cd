//! Cases of `route`.

use super::{Desc, TABLE_ROWS};
use crate::Case;
use crate::conformance::{Inputs, rows};

fn case(name: &str, desc: Desc, rows: usize, logits: &[f32]) -> Case<Desc> {
    Case::new(name, desc, rows).read(logits).output().output()
}

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(110);
    let of = |experts, top_k, renormalise, factor| Desc { experts, top_k, renormalise, factor, table: false };
    let mut cases = Vec::new();
    for (name, desc, rows) in [
        ("512 experts, one row", of(512, 10, true, 1.0), 1),
        ("128 experts, many rows", of(128, 8, true, 1.0), 45),
        ("without renormalisation, with a factor", of(60, 4, false, 2.5), 9),
        ("odd number of experts", of(37, 5, true, 0.7), 9),
        ("one expert", of(1, 1, true, 1.0), 2),
        ("all experts chosen", of(33, 33, true, 1.0), 3),
    ] {
        cases.push(case(name, desc, rows, &rng.normal(rows * desc.experts)));
    }
    let desc = of(70, 6, true, 1.0);
    let coarse: Vec<f32> = rng.normal(700).iter().map(|x| x.round_ties_even()).collect();
    cases.push(case("many ties, zeros of both signs", desc, 10, &coarse));
    cases.push(case("all equal", desc, 2, &[0.25; 140]));
    cases.push(case("exponents far apart", desc, 4, &rng.spread(280)));
    cases.push(case("edges of f32", desc, 4, &rng.edges(280)));
    let mut broken = rng.normal(350);
    (broken[69], broken[70], broken[3 * 70 + 5]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
    cases.push(case("rows with NaN and infinities among good ones", desc, 5, &broken));
    by_table(&mut rng, &mut cases);
    cases
}

/// Ids from a table: rows of two sequences, on both sides of its end, and rows that are refused.
fn by_table(rng: &mut Inputs, cases: &mut Vec<Case<Desc>>) {
    let end = TABLE_ROWS as u32;
    for (name, (experts, top_k, renormalise, factor), runs) in [
        ("table, one row", (512, 10, true, 1.0), &[(0, 7, 1)][..]),
        (
            "table, two sequences around its end",
            (128, 8, true, 1.0),
            &[(0, end - 9, 20), (1, 3 * end - 2, 5)],
        ),
        ("table, odd sizes, a factor", (37, 5, false, 0.7), &[(1, 0, 11)]),
    ] {
        let desc = Desc { experts, top_k, renormalise, factor, table: true };
        let rows = rows(runs);
        let (logits, table) = (rng.normal(rows.len() * experts), rng.indices(TABLE_ROWS * top_k, experts));
        cases.push(Case::of_rows(name, desc, rows).read(&logits).read(&table).output().output());
    }
    let desc = Desc { experts: 20, top_k: 3, renormalise: true, factor: 1.0, table: true };
    let (mut logits, mut table) = (rng.normal(20 * 12), rng.indices(TABLE_ROWS * 3, 20));
    (table[4], table[3 * 3], table[3 * 9 + 2], logits[20 * 5]) = (20, u32::MAX, 21, f32::NAN);
    let name = "table, ids of no expert and NaN";
    cases.push(Case::new(name, desc, 12).read(&logits).read(&table).output().output());
}
