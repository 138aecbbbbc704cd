//! Softmax router (docs/arithmetic.md §5): the k largest logits (ties: lower index), in descending
//! order, and their combine weights.
//!
//! | operand | content |
//! |---|---|
//! | read `logits` | f32[rows, experts] |
//! | written `ids` | u32[rows, top_k] |
//! | written `weights` | f32[rows, top_k] |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Experts of the layer.
    pub experts: usize,
    /// Chosen per row.
    pub top_k: usize,
    /// Divide the chosen weights by their sum.
    pub renormalise: bool,
    /// Multiplied to every weight last (1 for no factor: exact).
    pub factor: f32,
}

impl Op for Desc {
    const NAME: &'static str = "route";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("logits", 4 * d.rows * self.experts)];
        let writes = vec![spec("ids", 4 * d.rows * self.top_k), spec("weights", 4 * d.rows * self.top_k)];
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
