//! h = silu(gate) · up, elementwise: dense and shared experts.
//!
//! | operand | content |
//! |---|---|
//! | read `gate` | f32[rows, width] |
//! | read `up` | f32[rows, width] |
//! | written `h` | f32[rows, width] |

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
    const NAME: &'static str = "swiglu";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("swiglu.width", self.width, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("gate", 4 * d.rows * self.width), spec("up", 4 * d.rows * self.width)]);
        let writes = specs([spec("h", 4 * d.rows * self.width)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        self.shapes(d).cost(0, (EXP_OPS + 3) * (d.rows * self.width) as u64)
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
