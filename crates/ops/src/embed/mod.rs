//! Rows of the embedding table, exact BF16 values as f32.
//!
//! | operand | content |
//! |---|---|
//! | read `ids` | u32[rows] |
//! | read `table` | bf16[vocab, hidden] |
//! | written `x` | f32[rows, hidden] |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

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
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("ids", 4 * d.rows), spec("table", 2 * self.vocab * self.hidden)];
        let writes = vec![spec("x", 4 * d.rows * self.hidden)];
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, _d: Dims) -> Cost {
        Cost::default()
    }

    fn cases() -> Vec<Case<Self>> {
        Vec::new()
    }

    fn reference(&self, _args: HostArgs<'_>) {
        panic!("op {} has no reference yet", Self::NAME)
    }

    fn simd(&self, _exec: &HostExec, _args: HostArgs<'_>) {
        panic!("op {} has no SIMD yet", Self::NAME)
    }
}
