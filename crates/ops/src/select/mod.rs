//! Copies chosen rows of a buffer: the rows whose logits are wanted. The step's rows are the chosen
//! ones; the source has its own number of rows.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[source rows, width] |
//! | read `index` | u32[rows]: row of x |
//! | written `y` | f32[rows, width] |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

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
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("x", 0), spec("index", 4 * d.rows)];
        let writes = vec![spec("y", 4 * d.rows * self.width)];
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
