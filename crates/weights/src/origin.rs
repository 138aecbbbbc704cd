//! What a cache's content is made from.

use std::ops::Range;

use arch::manifest::ExpertLayer;
use arch::{Entry, ExpertEntry};
use base::Result;

/// Bytes for a place in a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// From the section's start.
    pub offset: u64,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Makes the units of a cache, on several threads and in any order: what it gives may depend on its arguments
/// only. Implemented for the tensors of a checkpoint; random models have their own.
pub trait Origin: Sync {
    /// Memory that one thread keeps from one expert to the next.
    type Room;

    /// Rows `rows` of a dense entry (of a packed matrix: whole row tiles, the last perhaps short) as pieces
    /// of its section that together are all of those rows. Errors: what it is made from can't be used.
    fn dense(&self, entry: &Entry, rows: Range<usize>) -> Result<Vec<Piece>>;
    /// Memory for the experts of a layer.
    fn room(&self, layer: &ExpertLayer) -> Self::Room;
    /// Overwrites all of `block` with an expert, as [`ops::linear::layout::Expert`] describes it. Errors as
    /// above.
    fn expert(
        &self,
        layer: &ExpertLayer,
        expert: &ExpertEntry,
        room: &mut Self::Room,
        block: &mut [u8],
    ) -> Result<()>;
    /// Bytes that `dense` works through, for progress.
    fn dense_bytes(&self, entry: &Entry, rows: Range<usize>) -> u64;
    /// Bytes that `expert` works through.
    fn expert_bytes(&self, layer: &ExpertLayer, expert: &ExpertEntry) -> u64;
}
