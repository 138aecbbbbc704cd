//! x = x · sigmoid(g), elementwise, in place: attention's output gate (docs/arithmetic.md §3).
//!
//! | operand | content |
//! |---|---|
//! | read `g` | f32[rows, width] |
//! | written `x` | f32[rows, width], in place |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

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
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("g", 4 * d.rows * self.width)];
        let writes = vec![spec("x", 4 * d.rows * self.width)];
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
