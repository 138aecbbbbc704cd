//! The definition of `embed`.

use super::Desc;
use crate::{HostArgs, math};

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let ids: &[u32] = args.reads.slice(0, args.rows.len());
    let table: &[u16] = args.reads.slice(1, desc.vocab * desc.hidden);
    let x = args.writes.f32(0, args.rows.len() * desc.hidden);
    for (id, x) in ids.iter().zip(x.chunks_exact_mut(desc.hidden)) {
        // The engine refuses such tokens when it takes them: this is our own mistake.
        assert!((*id as usize) < desc.vocab, "token {id} of a vocabulary of {}", desc.vocab);
        let row = &table[*id as usize * desc.hidden..][..desc.hidden];
        for i in 0..desc.hidden {
            x[i] = math::bf16(row[i]);
        }
    }
}
