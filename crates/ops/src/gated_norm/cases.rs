//! Cases of `gated_norm`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

fn case(name: &str, desc: Desc, rows: usize, x: Vec<f32>, z: Vec<f32>, w: Vec<f32>) -> Case<Desc> {
    Case::new(name, desc, rows).read(&x).read(&z).read(&w).output()
}

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(102);
    let mut cases = Vec::new();
    for (name, heads, width, rows) in [
        ("one row of 32 heads", 32, 128, 1),
        ("many rows", 8, 128, 17),
        ("fewer elements than lanes", 3, 24, 5),
        ("a width that is no multiple of the lanes", 2, 200, 3),
        ("one element", 1, 1, 2),
    ] {
        let n = rows * heads * width;
        let desc = Desc { heads, width, eps: 1e-6 };
        let (x, z, w) = (rng.normal(n), rng.normal(n), rng.normal(width));
        cases.push(case(name, desc, rows, x, z, w));
    }
    let desc = Desc { heads: 2, width: 130, eps: 1e-6 };
    let (x, z, w) = (rng.spread(780), rng.spread(780), rng.normal(130));
    cases.push(case("exponents far apart", desc, 3, x, z, w.clone()));
    let (x, z) = (rng.edges(780), rng.edges(780));
    cases.push(case("edges of f32", desc, 3, x, z, w.clone()));
    cases.push(case("zeros behind open gates", desc, 1, vec![0.0; 260], vec![5.0; 260], w));
    cases
}
