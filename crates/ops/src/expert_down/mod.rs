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

use base::Refusal;

use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::linear::layout::Expert;
use crate::linear::{at_most, cases, limits};
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
    const NAME: &'static str = "expert_down";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        limits::experts(Self::NAME, self.experts, self.top_k)?;
        at_most("expert_down.hidden", self.hidden, limits::MAX_K)?;
        at_most("expert_down.inter", self.inter, limits::MAX_K)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![
            spec("codes", d.rows * self.top_k * self.acts.row_code_bytes(self.inter)),
            spec("scales", 4 * d.rows * self.top_k * self.inter.div_ceil(ACT_GROUP)),
            spec("offsets", 4 * (self.experts + 1)),
            spec("entries", 4 * d.rows * self.top_k),
        ];
        let writes = vec![spec("e", 4 * d.rows * self.top_k * self.hidden)];
        Shapes { reads, writes, experts: true }
    }

    fn cost(&self, d: Dims) -> Cost {
        let matrix = Expert::new(self.format, self.hidden, self.inter).down;
        let entries = d.rows * self.top_k;
        let mut cost = limits::product_cost(&matrix, self.hidden, entries);
        // At most so many experts are routed to, each read once.
        let blocks = entries.min(self.experts) as u64 * matrix.bytes() as u64;
        cost.bytes_read = self.shapes(d).read_bytes() + blocks;
        cost.bytes_written = self.shapes(d).written_bytes();
        cost
    }

    fn cases() -> Vec<Case<Self>> {
        let all = cases::EXPERT_SHAPES.iter().flat_map(|s| cases::formats().map(move |f| (s, f)));
        all.map(|(shape, (format, acts))| case(shape, format, acts)).collect()
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, _exec: &HostExec, _args: HostArgs<'_>) {
        panic!("op {} has no SIMD yet", Self::NAME)
    }
}

fn case(shape: &cases::ExpertShape, format: WeightFormat, acts: Acts) -> Case<Desc> {
    let &cases::ExpertShape { experts, top_k, hidden, inter, rows, .. } = shape;
    let desc = Desc { experts, top_k, hidden, inter, format, acts };
    let (reads, blocks) = cases::expert_operands(shape, format, acts, (rows * top_k, inter));
    let (dims, all) = cases::one_sequence(rows);
    Case {
        name: format!("{shape:?}, {format:?}, {acts:?}"),
        desc,
        dims,
        rows: all,
        reads,
        writes: vec![vec![0; 4 * rows * top_k * hidden]],
        in_place: vec![false],
        experts: blocks,
    }
}
