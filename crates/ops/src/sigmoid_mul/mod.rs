//! x = x · sigmoid(g), elementwise, in place: attention's output gate (docs/arithmetic.md §3).
//!
//! | operand | content |
//! |---|---|
//! | read `g` | f32[rows, width] |
//! | written `x` | f32[rows, width], in place |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::limits::{MAX_WIDTH, within};
use crate::math::EXP_OPS;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Elements of a row.
    pub width: usize,
}

impl Op for Desc {
    const NAME: &'static str = "sigmoid_mul";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("sigmoid_mul.width", self.width, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("g", 4 * d.rows * self.width)]);
        let writes = specs([spec("x", 4 * d.rows * self.width)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let shapes = self.shapes(d);
        shapes.cost(shapes.writes[0].bytes, (EXP_OPS + 3) * (d.rows * self.width) as u64)
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
