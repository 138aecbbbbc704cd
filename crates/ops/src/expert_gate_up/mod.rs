//! For every (row, rank): h = silu(x · gateᵀ) · (x · upᵀ) of the routed expert, read through the
//! pointer table; the two products as in op `linear`.
//!
//! | operand | content |
//! |---|---|
//! | read `codes` | i8 or i16 [rows, hidden padded to 128] |
//! | read `scales` | f32[rows, groups of 128] |
//! | read `offsets` | as written by moe_group |
//! | read `entries` | as written by moe_group |
//! | written `h` | f32[rows·top_k, inter] |
//!
//! Reads the expert pointer table; block layout: [`crate::linear::layout::Expert`].

use base::Refusal;

use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Experts of the layer.
    pub experts: usize,
    /// Chosen per row.
    pub top_k: usize,
    /// Width of the model.
    pub hidden: usize,
    /// Width of an expert.
    pub inter: usize,
    /// Format of the expert blocks.
    pub format: WeightFormat,
    /// Width of the activation codes.
    pub acts: Acts,
}

impl Op for Desc {
    const NAME: &'static str = "expert_gate_up";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![
            spec("codes", d.rows * self.acts.row_code_bytes(self.hidden)),
            spec("scales", 4 * d.rows * self.hidden.div_ceil(ACT_GROUP)),
            spec("offsets", 4 * (self.experts + 1)),
            spec("entries", 4 * d.rows * self.top_k),
        ];
        let writes = vec![spec("h", 4 * d.rows * self.top_k * self.inter)];
        Shapes { reads, writes, experts: true }
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
