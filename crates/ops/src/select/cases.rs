//! Cases of `select`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(108);
    let mut cases = Vec::new();
    for (name, width, source, index) in [
        ("the last row of a chunk", 2048, 7, vec![6]),
        ("one row, one column", 1, 1, vec![0]),
        ("ends of several sequences", 33, 20, vec![4, 5, 19]),
        ("all rows", 64, 5, vec![0, 1, 2, 3, 4]),
        ("any order, with repeats", 10, 6, vec![5, 0, 5, 5, 2, 1, 3]),
    ] {
        let x = rng.edges(source * width);
        cases.push(Case::new(name, Desc { width }, index.len()).read(&x).read::<u32>(&index).output());
    }
    cases
}
