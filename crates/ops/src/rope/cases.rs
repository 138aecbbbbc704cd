//! Cases of `rope`.

use super::Desc;
use crate::conformance::{Inputs, rows};
use crate::{Case, math};

/// Rows of several sequences, each run given as (slot, first position, rows).
fn case(name: &str, desc: Desc, runs: &[(u32, u32, usize)], rng: &mut Inputs, edges: bool) -> Case<Desc> {
    let case = Case::of_rows(name, desc, rows(runs));
    let base = 10_000.0;
    let freq = |i| 1.0 / math::f64::pow(base, f64::from(2 * i) / desc.rotary as f64);
    let inv_freq: Vec<f64> = (0..desc.rotary as u32 / 2).map(freq).collect();
    let table = math::rope_table(&inv_freq, case.dims.context, 1.0);
    let elements = case.rows.len() * desc.heads * desc.head_dim;
    let x = if edges { rng.edges(elements) } else { rng.normal(elements) };
    case.read(&table).in_place(&x)
}

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(106);
    let of = |heads, head_dim, rotary| Desc { heads, head_dim, rotary };
    vec![
        case("one row, whole heads", of(4, 128, 128), &[(0, 37, 1)], &mut rng, false),
        case("a quarter of each head", of(16, 256, 64), &[(0, 0, 5)], &mut rng, false),
        case(
            "sequences at other positions",
            of(3, 64, 64),
            &[(2, 9, 3), (0, 0, 4), (1, 70, 1)],
            &mut rng,
            false,
        ),
        case("one pair", of(2, 3, 2), &[(0, 4, 3)], &mut rng, false),
        case("odd numbers of pairs", of(5, 30, 26), &[(1, 2, 6)], &mut rng, false),
        case("many rows, several pieces", of(2, 128, 96), &[(0, 0, 150)], &mut rng, false),
        case("edges of f32", of(2, 40, 24), &[(0, 11, 9)], &mut rng, true),
    ]
}
