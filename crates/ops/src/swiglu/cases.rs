//! Cases of `swiglu`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(105);
    let sizes = [
        ("one row", 512, 1),
        ("one element", 1, 1),
        ("odd width", 77, 13),
        ("many rows, several pieces", 1031, 67),
        ("a multiple of every vector", 64, 4),
    ];
    let mut cases = Vec::new();
    for (name, width, rows) in sizes {
        let (gate, up) = (rng.normal(width * rows), rng.normal(width * rows));
        cases.push(Case::new(name, Desc { width }, rows).read(&gate).read(&up).output());
    }
    let (gate, up) = (rng.spread(600), rng.spread(600));
    cases.push(Case::new("exponents far apart", Desc { width: 200 }, 3).read(&gate).read(&up).output());
    let (gate, up) = (rng.edges(2000), rng.normal(2000));
    cases.push(Case::new("gates at the edges of f32", Desc { width: 500 }, 4).read(&gate).read(&up).output());
    cases
}
