//! Softmax router (docs/arithmetic.md §5): the k largest logits (ties: lower index), in descending
//! order, and their combine weights.
//!
//! | operand | content |
//! |---|---|
//! | read `logits` | f32[rows, experts] |
//! | written `ids` | u32[rows, top_k] |
//! | written `weights` | f32[rows, top_k] |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::limits::{MAX_WIDTH, positive, within};
use crate::math::EXP_OPS;
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
        within("route.experts", self.experts, 1, MAX_WIDTH)?;
        within("route.top_k", self.top_k, 1, self.experts)?;
        positive("route.factor", self.factor)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("logits", 4 * d.rows * self.experts)];
        let writes = vec![spec("ids", 4 * d.rows * self.top_k), spec("weights", 4 * d.rows * self.top_k)];
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        // Softmax of all, and a comparison of every expert per choice.
        let row = self.experts * (EXP_OPS as usize + 2 + self.top_k) + 3 * self.top_k;
        self.shapes(d).cost(0, (d.rows * row) as u64)
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
