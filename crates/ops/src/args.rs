//! How operands reach an op on the host: byte views, bound by the engine from its regions.

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most operands an op may have on either side.
pub const MAX_OPERANDS: usize = 8;

/// Where a row of a step belongs. Rows of one sequence are adjacent and ascend by one in position; a
/// sequence appears in one run of rows only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Row {
    /// Slot of the sequence in every state.
    pub seq: u32,
    /// Absolute position of the token in its sequence.
    pub pos: u32,
}

/// Operands an op reads.
pub struct Reads<'a>(pub ArrayVec<&'a [u8], MAX_OPERANDS>);

/// Operands an op writes (some are also read: in place).
pub struct Writes<'a>(pub ArrayVec<&'a mut [u8], MAX_OPERANDS>);

/// Everything an op gets on the host.
pub struct HostArgs<'a> {
    /// One entry per row of this run.
    pub rows: &'a [Row],
    /// Tokens that one sequence's KV state can hold.
    pub context: usize,
    /// Operands in the order of the op's documentation.
    pub reads: Reads<'a>,
    /// Likewise.
    pub writes: Writes<'a>,
    /// The layer's expert pointer table.
    pub experts: Experts<'a>,
}

/// The pointer table of one layer: where each expert's block is, as an offset into one piece of memory (the
/// mapped cache file, or a device's slots).
#[derive(Debug, Clone, Copy, Default)]
pub struct Experts<'a> {
    /// The memory that holds all blocks that are there.
    pub memory: &'a [u8],
    /// Offset of each expert's block, by expert id; [`Experts::ABSENT`] = not there.
    pub offsets: &'a [u64],
    /// Bytes of a block.
    pub block_bytes: usize,
}

impl<'a> Experts<'a> {
    /// Offset of an expert that is not there.
    pub const ABSENT: u64 = u64::MAX;

    /// Block of `expert`; `None` = not there: no row may route to it.
    pub fn get(&self, expert: usize) -> Option<&'a [u8]> {
        let offset = self.offsets[expert];
        (offset != Self::ABSENT).then(|| &self.memory[offset as usize..][..self.block_bytes])
    }
}

impl<'a> Reads<'a> {
    /// Operand `i` as bytes.
    pub fn bytes(&self, i: usize) -> &'a [u8] {
        self.0[i]
    }

    /// The first `len` elements of operand `i`. Panics if the view is too short or misaligned: the engine
    /// checks every binding against [`crate::Op::shapes`] when it binds a program.
    pub fn slice<T: FromBytes + Immutable + KnownLayout>(&self, i: usize, len: usize) -> &'a [T] {
        let bytes = self.0[i];
        let (head, _) = <[T]>::ref_from_prefix_with_elems(bytes, len)
            .unwrap_or_else(|_| panic!("read operand {i}: {} bytes for {len} elements", bytes.len()));
        head
    }

    /// The first `len` floats of operand `i`.
    pub fn f32(&self, i: usize, len: usize) -> &'a [f32] {
        self.slice(i, len)
    }
}

impl<'a> Writes<'a> {
    /// Takes operand `i` as bytes; a second take of the same operand gives an empty slice.
    pub fn bytes(&mut self, i: usize) -> &'a mut [u8] {
        std::mem::take(&mut self.0[i])
    }

    /// Takes the first `len` elements of operand `i`. Panics as [`Reads::slice`] does.
    pub fn slice<T: FromBytes + IntoBytes + KnownLayout>(&mut self, i: usize, len: usize) -> &'a mut [T] {
        let bytes = std::mem::take(&mut self.0[i]);
        let have = bytes.len();
        let (head, _) = <[T]>::mut_from_prefix_with_elems(bytes, len)
            .unwrap_or_else(|_| panic!("written operand {i}: {have} bytes for {len} elements"));
        head
    }

    /// Takes the first `len` floats of operand `i`.
    pub fn f32(&mut self, i: usize, len: usize) -> &'a mut [f32] {
        self.slice(i, len)
    }
}

/// Splits rows into runs of one sequence: `(first row, rows)`, in order.
pub fn runs(rows: &[Row]) -> impl Iterator<Item = (usize, &[Row])> {
    let mut start = 0;
    rows.chunk_by(|a, b| a.seq == b.seq).map(move |run| {
        let first = start;
        start += run.len();
        debug_assert!(run.windows(2).all(|w| w[1].pos == w[0].pos + 1), "positions ascend by one in a run");
        (first, run)
    })
}
