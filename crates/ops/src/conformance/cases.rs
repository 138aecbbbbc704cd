//! Seeded inputs for cases.

use base::philox::Stream;
use zerocopy::{Immutable, IntoBytes};

use crate::{Case, Dims, Op, Row, Shapes};

/// Values at the edges of f32: zeros, denormals, the smallest and largest normal numbers, halves that round
/// to even.
const EDGES: [f32; 16] = [
    0.0,
    -0.0,
    f32::from_bits(1),
    f32::from_bits(0x8000_0001),
    f32::from_bits(0x007f_ffff),
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1.0,
    -1.0,
    0.5,
    -1.5,
    16_777_216.0,
    1e-30,
    -1e30,
    f32::MAX,
    f32::MIN,
];

/// Random operands from one seed.
pub struct Inputs(Stream);

impl Inputs {
    /// Inputs of `seed`.
    pub fn new(seed: u64) -> Self {
        Inputs(Stream::new(seed))
    }

    /// Roughly normal, mean 0, deviation 1: what activations look like.
    pub fn normal(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.0.normal()).collect()
    }

    /// Normal times a power of two between 2^-30 and 2^30, each its own.
    pub fn spread(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.0.normal() * f32::from_bits((self.0.below(61) + 97) << 23)).collect()
    }

    /// Edge values of f32 (finite) among normal ones.
    pub fn edges(&mut self, n: usize) -> Vec<f32> {
        let edge = |s: &mut Stream| match s.below(3) {
            0 => s.normal(),
            _ => EDGES[s.below(EDGES.len() as u32) as usize],
        };
        (0..n).map(|_| edge(&mut self.0)).collect()
    }

    /// Normal values rounded to BF16 (towards zero), as bits.
    pub fn bf16(&mut self, n: usize) -> Vec<u16> {
        (0..n).map(|_| (self.0.normal().to_bits() >> 16) as u16).collect()
    }

    /// Whole numbers in 0..below.
    pub fn indices(&mut self, n: usize, below: usize) -> Vec<u32> {
        (0..n).map(|_| self.0.below(below as u32)).collect()
    }

    /// Any bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.0.u32() as u8).collect()
    }
}

/// Operand bytes of a slice of numbers.
pub fn bytes<T: IntoBytes + Immutable>(values: &[T]) -> Vec<u8> {
    values.as_bytes().to_vec()
}

/// Rows of several sequences: `(slot, first position, rows)` each.
pub fn rows(runs: &[(u32, u32, usize)]) -> Vec<Row> {
    let run = |(seq, first, count): &(u32, u32, usize)| {
        let (seq, first) = (*seq, *first);
        (0..*count as u32).map(move |i| Row { seq, pos: first + i })
    };
    runs.iter().flat_map(run).collect()
}

impl<D: Op> Case<D> {
    /// A case without operands yet: rows of one sequence from position 0, and a context that just holds them.
    pub fn new(name: impl Into<String>, desc: D, count: usize) -> Self {
        Case::of_rows(name, desc, rows(&[(0, 0, count)]))
    }

    /// A case of the given rows; context and sequence slots just hold them.
    pub fn of_rows(name: impl Into<String>, desc: D, rows: Vec<Row>) -> Self {
        let context = rows.iter().map(|r| r.pos as usize + 1).max().unwrap_or(1);
        let sequences = rows.iter().map(|r| r.seq as usize + 1).max().unwrap_or(1);
        let dims = Dims { rows: rows.len(), context, sequences };
        let empty = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (reads, writes, in_place, experts) = empty;
        Case { name: name.into(), desc, dims, rows, reads, writes, in_place, experts }
    }

    /// Adds the next read operand.
    pub fn read<T: IntoBytes + Immutable>(mut self, values: &[T]) -> Self {
        self.reads.push(bytes(values));
        self
    }

    /// Adds the next written operand, one that carries input.
    pub fn in_place<T: IntoBytes + Immutable>(mut self, values: &[T]) -> Self {
        self.writes.push(bytes(values));
        self.in_place.push(true);
        self
    }

    /// Adds the next written operand, one that is only written.
    pub fn output(mut self) -> Self {
        let bytes = self.shapes().writes[self.writes.len()].bytes;
        self.writes.push(vec![0; bytes]);
        self.in_place.push(false);
        self
    }

    /// Operands and their bytes.
    pub fn shapes(&self) -> Shapes {
        self.desc.shapes(self.dims)
    }
}
