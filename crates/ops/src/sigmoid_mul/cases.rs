//! Cases of `sigmoid_mul`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(103);
    let sizes = [
        ("one row", 2048, 1),
        ("one element", 1, 1),
        ("odd width", 77, 13),
        ("many rows, several pieces", 1031, 139),
        ("a multiple of every vector", 64, 4),
    ];
    let mut cases = Vec::new();
    for (name, width, rows) in sizes {
        let (g, x) = (rng.normal(width * rows), rng.normal(width * rows));
        cases.push(Case::new(name, Desc { width }, rows).read(&g).in_place(&x));
    }
    let (g, x) = (rng.spread(600), rng.spread(600));
    cases.push(Case::new("exponents far apart", Desc { width: 200 }, 3).read(&g).in_place(&x));
    let (g, x) = (rng.edges(2000), rng.edges(2000));
    cases.push(Case::new("edges of f32", Desc { width: 500 }, 4).read(&g).in_place(&x));
    cases
}
