//! Weighted sum of the routed experts in ascending rank, then the shared expert
//! (docs/arithmetic.md §5).
//!
//! | operand | content |
//! |---|---|
//! | read `e` | f32[rows·top_k, hidden] |
//! | read `weights` | f32[rows, top_k] |
//! | read `shared` | f32[rows, hidden], unless `Shared::None` |
//! | read `gate` | f32[rows], only if `Shared::Gated`: the gate's logit |
//! | written `y` | f32[rows, hidden] |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// How a shared expert joins the routed sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shared {
    /// There is none.
    None,
    /// `acc + shared`.
    Plain,
    /// `fma(sigmoid(gate), shared, acc)`.
    Gated,
}

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Width of the model.
    pub hidden: usize,
    /// Experts per row.
    pub top_k: usize,
    /// How the shared expert joins.
    pub shared: Shared,
}

impl Op for Desc {
    const NAME: &'static str = "combine";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let mut reads =
            vec![spec("e", 4 * d.rows * self.top_k * self.hidden), spec("weights", 4 * d.rows * self.top_k)];
        if self.shared != Shared::None {
            reads.push(spec("shared", 4 * d.rows * self.hidden));
        }
        if self.shared == Shared::Gated {
            reads.push(spec("gate", 4 * d.rows));
        }
        let writes = vec![spec("y", 4 * d.rows * self.hidden)];
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
