//! Rotary position embedding, half-split pairs, on the first `rotary` elements of every head, in
//! place (docs/arithmetic.md §3).
//!
//! | operand | content |
//! |---|---|
//! | read `table` | f32[context, 2, rotary/2]: cosines, then sines of a position |
//! | written `x` | f32[rows, heads·head_dim], in place |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::limits::{MAX_WIDTH, within};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Heads per row.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rotated elements of a head, even.
    pub rotary: usize,
}

impl Op for Desc {
    const NAME: &'static str = "rope";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("rope.heads", self.heads, 1, MAX_WIDTH)?;
        within("rope.head_dim", self.head_dim, 2, MAX_WIDTH)?;
        within("rope.rotary", self.rotary, 2, self.head_dim)?;
        if !self.rotary.is_multiple_of(2) {
            return Err(Refusal::value("rope.rotary", self.rotary, "even", "pairs are rotated"));
        }
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("table", 4 * d.context * self.rotary)]);
        let writes = specs([spec("x", 4 * d.rows * self.heads * self.head_dim)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        // The table is read one position per row, and only the rotated part of a head is touched.
        let turned = 4 * d.rows * self.heads * self.rotary;
        Cost {
            bytes_read: (4 * d.rows * self.rotary + turned) as u64,
            bytes_written: turned as u64,
            int_macs: 0,
            float_ops: 3 * (d.rows * self.heads * self.rotary) as u64,
        }
    }

    fn cases() -> Vec<Case<Self>> {
        cases::all()
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, exec: &HostExec, args: HostArgs<'_>) {
        simd::run(self, exec, args);
    }
}
