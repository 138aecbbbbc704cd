//! The grouping that op `moe_group` wrote, as the expert ops read it.

use crate::args::{Experts, Reads};

/// Entries (row·top_k + rank) by expert.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    offsets: &'a [u32],
    entries: &'a [u32],
}

impl<'a> Entries<'a> {
    /// `count` entries of `experts` experts from the read operands `offsets` and `entries` = `offsets + 1`.
    pub fn bind(reads: &Reads<'a>, offsets: usize, experts: usize, count: usize) -> Self {
        Entries { offsets: reads.slice(offsets, experts + 1), entries: reads.slice(offsets + 1, count) }
    }

    /// Entries of one expert, ascending.
    pub fn of(&self, expert: usize) -> &'a [u32] {
        &self.entries[self.offsets[expert] as usize..self.offsets[expert + 1] as usize]
    }

    /// Experts that have entries, ascending, with them.
    pub fn routed(&self) -> impl Iterator<Item = (usize, &'a [u32])> {
        let of = *self;
        (0..self.offsets.len() - 1).map(move |e| (e, of.of(e))).filter(|(_, list)| !list.is_empty())
    }
}

/// The block of an expert that rows route to. Its absence is a mistake of the engine.
pub(crate) fn block<'a>(experts: &Experts<'a>, expert: usize) -> &'a [u8] {
    experts.get(expert).unwrap_or_else(|| panic!("rows route to expert {expert}, whose block is not there"))
}
