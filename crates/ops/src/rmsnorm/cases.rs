//! Cases of `rmsnorm`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

fn case(name: &str, desc: Desc, rows: usize, x: Vec<f32>, w: Vec<f32>) -> Case<Desc> {
    Case::new(name, desc, rows).read(&x).read(&w).output()
}

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(101);
    let mut cases = Vec::new();
    for (name, heads, width, rows) in [
        ("one row of a whole layer", 1, 2048, 1),
        ("many rows", 1, 2048, 19),
        ("a width that is no multiple of the lanes", 1, 2880, 3),
        ("fewer elements than lanes", 3, 20, 5),
        ("heads of 128", 16, 128, 7),
        ("heads of 256", 2, 256, 4),
        ("one element", 1, 1, 3),
        ("one more element than the lanes", 1, 129, 2),
    ] {
        let desc = Desc { heads, width, eps: 1e-6 };
        let x = rng.normal(rows * heads * width);
        let w = rng.normal(width);
        cases.push(case(name, desc, rows, x, w));
    }
    let desc = Desc { heads: 2, width: 200, eps: 1e-5 };
    let w = rng.normal(200);
    cases.push(case("exponents far apart", desc, 3, rng.spread(1200), w.clone()));
    cases.push(case("edges of f32", desc, 3, rng.edges(1200), w.clone()));
    cases.push(case("zeros", desc, 2, vec![0.0; 800], w));
    cases
}
