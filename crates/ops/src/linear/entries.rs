//! The grouping that op `moe_group` wrote, as the expert ops read it.

use std::ops::Range;

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

    /// All entries, by expert, then ascending.
    pub fn all(&self) -> &'a [u32] {
        self.entries
    }

    /// Experts that have entries, ascending, with the places of their entries.
    pub fn routed(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<'a> {
        let ends = self.offsets.windows(2).enumerate();
        ends.map(|(e, w)| (e, w[0] as usize..w[1] as usize)).filter(|(_, places)| !places.is_empty())
    }
}

/// The block of an expert that rows route to. Its absence is a mistake of the engine.
pub(crate) fn block<'a>(experts: &Experts<'a>, expert: usize) -> &'a [u8] {
    experts.get(expert).unwrap_or_else(|| panic!("rows route to expert {expert}, whose block is not there"))
}
