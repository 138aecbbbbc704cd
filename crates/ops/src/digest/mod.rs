//! BLAKE3 of each row's bytes (little-endian f32). A run's digest is BLAKE3 over the row digests in
//! the order of positions, so it does not depend on how rows were cut into steps.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows, width] |
//! | written `digests` | u8[rows, 32] |

mod cases;
mod reference;

use base::Refusal;

use crate::limits::{MAX_WIDTH, within};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Elements of a row.
    pub width: usize,
}

impl Op for Desc {
    const NAME: &'static str = "digest";
    const SIMD: bool = false;

    fn validate(&self) -> Result<(), Refusal> {
        within("digest.width", self.width, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("x", 4 * d.rows * self.width)]);
        let writes = specs([spec("digests", 32 * d.rows)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        self.shapes(d).cost(0, 0)
    }

    fn cases() -> Vec<Case<Self>> {
        cases::all()
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, _exec: &HostExec, _args: HostArgs<'_>) {
        unreachable!("op {} only moves bytes", Self::NAME)
    }
}
