//! Rows of the embedding table, exact BF16 values as f32.
//!
//! | operand | content |
//! |---|---|
//! | read `ids` | u32[rows] |
//! | read `table` | bf16[vocab, hidden] |
//! | written `x` | f32[rows, hidden] |

mod cases;
mod reference;

use base::Refusal;

use crate::limits::{MAX_WIDTH, within};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Rows of the table.
    pub vocab: usize,
    /// Columns.
    pub hidden: usize,
}

impl Op for Desc {
    const NAME: &'static str = "embed";
    const SIMD: bool = false;

    fn validate(&self) -> Result<(), Refusal> {
        within("embed.vocab", self.vocab, 1, u32::MAX as usize)?;
        within("embed.hidden", self.hidden, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("ids", 4 * d.rows), spec("table", 2 * self.vocab * self.hidden)]);
        let writes = specs([spec("x", 4 * d.rows * self.hidden)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        Cost {
            bytes_read: (d.rows * (4 + 2 * self.hidden)) as u64,
            bytes_written: (4 * d.rows * self.hidden) as u64,
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
