//! Rotary position embedding, half-split pairs, on the first `rotary` elements of every head, in
//! place (docs/arithmetic.md §3).
//!
//! | operand | content |
//! |---|---|
//! | read `table` | f32[context, 2, rotary/2]: cosines, then sines of a position |
//! | written `x` | f32[rows, heads·head_dim], in place |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Heads per row.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rotated elements of a head, even.
    pub rotary: usize,
}

impl Op for Desc {
    const NAME: &'static str = "rope";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("table", 4 * d.context * self.rotary)];
        let writes = vec![spec("x", 4 * d.rows * self.heads * self.head_dim)];
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
