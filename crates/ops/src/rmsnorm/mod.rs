//! RMSNorm over each of `heads` consecutive pieces of a row (docs/arithmetic.md §3): the
//! plain layer norm has one piece, qk-norm one per head with shared weights.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows, heads·width] |
//! | read `w` | f32[width]; (1+w) families store 1+w |
//! | written `y` | f32[rows, heads·width] |

mod cases;
mod reference;
mod simd;

pub use reference::inverse_rms;

use base::Refusal;

use crate::limits::{MAX_WIDTH, positive, within};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Pieces per row.
    pub heads: usize,
    /// Elements of a piece.
    pub width: usize,
    /// Added to the mean square.
    pub eps: f32,
}

impl Op for Desc {
    const NAME: &'static str = "rmsnorm";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("rmsnorm.heads", self.heads, 1, MAX_WIDTH)?;
        within("rmsnorm.width", self.width, 1, MAX_WIDTH)?;
        positive("rmsnorm.eps", self.eps)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("x", 4 * d.rows * self.heads * self.width), spec("w", 4 * self.width)]);
        let writes = specs([spec("y", 4 * d.rows * self.heads * self.width)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        self.shapes(d).cost(0, 4 * (d.rows * self.heads * self.width) as u64)
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
