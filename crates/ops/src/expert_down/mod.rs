//! For every (row, rank): e = h · downᵀ of the routed expert; the product as in op `linear`.
//!
//! | operand | content |
//! |---|---|
//! | read `codes` | i8 or i16 [rows·top_k, inter padded to 128] |
//! | read `scales` | f32[rows·top_k, groups of 128] |
//! | read `offsets` | as written by moe_group |
//! | read `entries` | as written by moe_group |
//! | written `e` | f32[rows·top_k, hidden] |
//!
//! Reads the expert pointer table; block layout: [`crate::linear::layout::Expert`].

mod reference;
mod simd;

use base::Refusal;

use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::linear::cases;
use crate::linear::cost::{expert_limits, expert_widths, product_cost, routed_bytes};
use crate::linear::layout::Expert;
use crate::linear::simd::warm_experts;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

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
    const NAME: &'static str = "expert_down";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        expert_limits(Self::NAME, self.experts, self.top_k)?;
        expert_widths(Self::NAME, self.hidden, self.inter)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([
            spec("codes", d.rows * self.top_k * self.acts.row_code_bytes(self.inter)),
            spec("scales", 4 * d.rows * self.top_k * self.inter.div_ceil(ACT_GROUP)),
            spec("offsets", 4 * (self.experts + 1)),
            spec("entries", 4 * d.rows * self.top_k),
        ]);
        let writes = specs([spec("e", 4 * d.rows * self.top_k * self.hidden)]);
        Shapes { reads, writes, experts: true }
    }

    fn cost(&self, d: Dims) -> Cost {
        let matrix = Expert::new(self.format, self.hidden, self.inter).down;
        let entries = d.rows * self.top_k;
        let mut cost = product_cost(self, d, &matrix, self.hidden, entries);
        cost.bytes_read += routed_bytes(&matrix, self.experts, entries);
        cost
    }

    fn cases() -> Vec<Case<Self>> {
        let all = cases::EXPERT_SHAPES.iter().flat_map(|s| cases::formats().map(move |f| (s, f)));
        all.map(|(shape, (format, acts))| case(shape, format, acts)).collect()
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, exec: &HostExec, args: HostArgs<'_>) {
        simd::run(self, exec, args);
    }

    fn warm(&self, _exec: &HostExec, dims: Dims) {
        let matrix = Expert::new(self.format, self.hidden, self.inter).down;
        warm_experts(&matrix, self.acts, self.experts, dims.rows * self.top_k);
    }
}

fn case(shape: &cases::ExpertShape, format: WeightFormat, acts: Acts) -> Case<Desc> {
    let &cases::ExpertShape { experts, top_k, hidden, inter, rows, .. } = shape;
    let desc = Desc { experts, top_k, hidden, inter, format, acts };
    let case = Case::new(format!("{shape:?}, {format:?}, {acts:?}"), desc, rows);
    cases::expert_operands(case, shape, format, acts, (rows * top_k, inter)).output()
}
