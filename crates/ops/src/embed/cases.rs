//! Cases of `embed`.

use super::Desc;
use crate::Case;
use crate::conformance::Inputs;

pub fn all() -> Vec<Case<Desc>> {
    let mut rng = Inputs::new(107);
    let mut cases = Vec::new();
    for (name, vocab, hidden, rows) in [
        ("one row", 50, 2048, 1),
        ("many rows with repeats", 9, 64, 40),
        ("odd width", 11, 37, 6),
        ("one token, one column", 1, 1, 2),
    ] {
        let (ids, table) = (rng.indices(rows, vocab), rng.bf16(vocab * hidden));
        cases.push(Case::new(name, Desc { vocab, hidden }, rows).read(&ids).read(&table).output());
    }
    // Every BF16 bit pattern that is a number: zeros, denormals, the largest, infinities.
    let table: Vec<u16> = (0..=u16::MAX).map(|b| if b & 0x7fff > 0x7f80 { 0 } else { b }).collect();
    let ids: Vec<u32> = (0..256).rev().collect();
    let desc = Desc { vocab: 256, hidden: 256 };
    cases.push(Case::new("every number", desc, 256).read(&ids).read(&table).output());
    cases
}
