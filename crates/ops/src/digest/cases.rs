//! Cases of `digest`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(109);
    let mut cases = Vec::new();
    for (name, width, rows) in [
        ("one row", 2048, 1),
        ("one element", 1, 3),
        ("a row of one BLAKE3 chunk", 256, 4),
        ("a row just over one chunk", 257, 4),
        ("rows of a vocabulary", 15_193, 2),
    ] {
        cases.push(Case::new(name, Desc { width }, rows).read(&rng.edges(rows * width)).output());
    }
    cases
}
