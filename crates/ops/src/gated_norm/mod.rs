//! y = ((x·r)·w) · silu(z) per head, r from the RMS of x (docs/arithmetic.md §3).
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows, heads·width] |
//! | read `z` | f32[rows, heads·width] |
//! | read `w` | f32[width] |
//! | written `y` | f32[rows, heads·width] |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

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
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![
            spec("x", 4 * d.rows * self.heads * self.width),
            spec("z", 4 * d.rows * self.heads * self.width),
            spec("w", 4 * self.width),
        ];
        let writes = vec![spec("y", 4 * d.rows * self.heads * self.width)];
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
