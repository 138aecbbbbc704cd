//! Groups (row, rank) pairs by expert, so that an expert's weights are read once per step. Integers
//! only; the grouping cannot change a bit of any result.
//!
//! | operand | content |
//! |---|---|
//! | read `ids` | u32[rows, top_k] |
//! | written `offsets` | u32[experts + 1]: entries of expert e are offsets[e]..offsets[e+1] |
//! | written `entries` | u32[rows·top_k]: row·top_k + rank, by expert, then ascending |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Experts of the layer.
    pub experts: usize,
    /// Chosen per row.
    pub top_k: usize,
}

impl Op for Desc {
    const NAME: &'static str = "moe_group";
    const SIMD: bool = false;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("ids", 4 * d.rows * self.top_k)];
        let writes = vec![spec("offsets", 4 * (self.experts + 1)), spec("entries", 4 * d.rows * self.top_k)];
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
