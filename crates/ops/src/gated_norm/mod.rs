//! y = ((x·r)·w) · silu(z) per head, r from the RMS of x (docs/arithmetic.md §3).
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows, heads·width] |
//! | read `z` | f32[rows, heads·width] |
//! | read `w` | f32[width] |
//! | written `y` | f32[rows, heads·width] |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::limits::{MAX_WIDTH, positive, within};
use crate::math::EXP_OPS;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Heads per row.
    pub heads: usize,
    /// Elements of a head.
    pub width: usize,
    /// Added to the mean square.
    pub eps: f32,
}

impl Op for Desc {
    const NAME: &'static str = "gated_norm";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("gated_norm.heads", self.heads, 1, MAX_WIDTH)?;
        within("gated_norm.width", self.width, 1, MAX_WIDTH)?;
        positive("gated_norm.eps", self.eps)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([
            spec("x", 4 * d.rows * self.heads * self.width),
            spec("z", 4 * d.rows * self.heads * self.width),
            spec("w", 4 * self.width),
        ]);
        let writes = specs([spec("y", 4 * d.rows * self.heads * self.width)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let element = 5 + EXP_OPS + 2;
        self.shapes(d).cost(0, element * (d.rows * self.heads * self.width) as u64)
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
