//! Operands of a case in memory as the engine would bind them: aligned to 64 bytes, each with a guard behind
//! it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Case, Experts, HostArgs, Op, Reads, Shapes, Writes};

/// Guard bytes behind an operand. The op sees them: views may be longer than an op's own size.
const GUARD: usize = 64;

/// Alignment of every region of the engine.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes at an aligned address, then at least [`GUARD`] bytes of poison.
struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl Aligned {
    fn new(content: &[u8], poison: u8) -> Self {
        let mut aligned = Aligned::poisoned(content.len(), poison);
        aligned.all_mut()[..content.len()].copy_from_slice(content);
        aligned
    }

    fn poisoned(len: usize, poison: u8) -> Self {
        Aligned { lines: vec![Line([poison; 64]); (len + GUARD).div_ceil(64)], len }
    }

    fn all(&self) -> &[u8] {
        self.lines.as_bytes()
    }

    fn all_mut(&mut self) -> &mut [u8] {
        self.lines.as_mut_bytes()
    }

    fn split(&self) -> (&[u8], &[u8]) {
        self.all().split_at(self.len)
    }
}

/// Copies of a case's operands.
pub struct Bound<'a, D> {
    case: &'a Case<D>,
    reads: Vec<Aligned>,
    writes: Vec<Aligned>,
    blocks: Aligned,
    offsets: Vec<u64>,
    block_bytes: usize,
}

impl<'a, D: Op> Bound<'a, D> {
    /// Guards, and written operands that carry no input, are filled with `poison`.
    pub fn new(case: &'a Case<D>, shapes: &Shapes, poison: u8) -> Self {
        let lengths = (case.reads.len(), case.writes.len(), case.in_place.len());
        let asked = (shapes.reads.len(), shapes.writes.len(), shapes.writes.len());
        assert_eq!(lengths, asked, "{} ({}): number of operands", D::NAME, case.name);
        for (spec, read) in shapes.reads.iter().zip(&case.reads) {
            assert!(read.len() >= spec.bytes, "{} ({}): read {} is too short", D::NAME, case.name, spec.name);
        }
        let writes = (shapes.writes.iter().enumerate()).map(|(i, spec)| match case.in_place[i] {
            true => {
                let len = case.writes[i].len();
                assert_eq!(len, spec.bytes, "{} ({}): bytes of {}", D::NAME, case.name, spec.name);
                Aligned::new(&case.writes[i], poison)
            }
            false => Aligned::poisoned(spec.bytes, poison),
        });
        let writes = writes.collect();
        let reads = case.reads.iter().map(|r| Aligned::new(r, poison)).collect();
        let (blocks, offsets, block_bytes) = place(&case.experts, poison);
        Bound { case, reads, writes, blocks, offsets, block_bytes }
    }

    /// What the op gets.
    pub fn args(&mut self) -> HostArgs<'_> {
        HostArgs {
            rows: &self.case.rows,
            context: self.case.dims.context,
            reads: Reads(self.reads.iter().map(Aligned::all).collect()),
            writes: Writes(self.writes.iter_mut().map(Aligned::all_mut).collect()),
            experts: Experts {
                memory: self.blocks.all(),
                offsets: &self.offsets,
                block_bytes: self.block_bytes,
            },
        }
    }

    /// Read operand `i` and what lies behind it.
    pub fn read(&self, i: usize) -> (&[u8], &[u8]) {
        self.reads[i].split()
    }

    /// Written operand `i` and what lies behind it.
    pub fn written(&self, i: usize) -> (&[u8], &[u8]) {
        self.writes[i].split()
    }
}

/// Places blocks in descending order of experts, as nothing may depend on their order, with poison between
/// them.
fn place(experts: &[Option<Vec<u8>>], poison: u8) -> (Aligned, Vec<u64>, usize) {
    let block_bytes = experts.iter().flatten().map(Vec::len).max().unwrap_or(0);
    let stride = (block_bytes + GUARD).next_multiple_of(64);
    let mut memory = Aligned::poisoned(experts.iter().flatten().count() * stride, poison);
    let mut offsets = vec![Experts::ABSENT; experts.len()];
    let mut at = 0;
    for (expert, block) in experts.iter().enumerate().rev() {
        let Some(block) = block else { continue };
        assert_eq!(block.len(), block_bytes, "blocks of a layer have one size");
        memory.all_mut()[at..at + block_bytes].copy_from_slice(block);
        offsets[expert] = at as u64;
        at += stride;
    }
    (memory, offsets, block_bytes)
}
