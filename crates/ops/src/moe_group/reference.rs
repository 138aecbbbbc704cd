//! The definition: a counting sort by expert, stable in (row, rank).

use super::Desc;
use crate::HostArgs;

pub(super) fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let count = args.rows.len() * desc.top_k;
    let ids = args.reads.slice::<u32>(0, count);
    let offsets = args.writes.slice::<u32>(0, desc.experts + 1);
    let entries = args.writes.slice::<u32>(1, count);
    offsets.fill(0);
    for &id in ids {
        assert!((id as usize) < desc.experts, "expert id {id} of {}", desc.experts);
        offsets[id as usize + 1] += 1;
    }
    for e in 0..desc.experts {
        offsets[e + 1] += offsets[e];
    }
    // offsets[e] serves as the next free place of e; afterwards it is the start of e + 1.
    for (entry, &id) in ids.iter().enumerate() {
        let place = &mut offsets[id as usize];
        entries[*place as usize] = entry as u32;
        *place += 1;
    }
    offsets.copy_within(0..desc.experts, 1);
    offsets[0] = 0;
}
