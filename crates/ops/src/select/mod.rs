//! Copies chosen rows of a buffer: the rows whose logits are wanted. The step's rows are the chosen
//! ones; the source has its own number of rows.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[source rows, width] |
//! | read `index` | u32[rows]: row of x |
//! | written `y` | f32[rows, width] |

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
    const NAME: &'static str = "select";
    const SIMD: bool = false;

    fn validate(&self) -> Result<(), Refusal> {
        within("select.width", self.width, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("x", 0), spec("index", 4 * d.rows)]);
        let writes = specs([spec("y", 4 * d.rows * self.width)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        Cost {
            bytes_read: (4 * d.rows * (1 + self.width)) as u64,
            bytes_written: (4 * d.rows * self.width) as u64,
            ..Cost::default()
        }
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
