//! Softmax router (docs/arithmetic.md §5): the k largest logits (ties: lower index), in descending
//! order, and their combine weights. With a table, the ids come from it instead, by the rows' positions, and
//! only the weights from the logits: routing of synthetic models.
//!
//! | operand | content |
//! |---|---|
//! | read `logits` | f32[rows, experts] |
//! | read `table` | u32[[`TABLE_ROWS`], top_k], only with `table` |
//! | written `ids` | u32[rows, top_k] |
//! | written `weights` | f32[rows, top_k] |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::limits::{MAX_WIDTH, positive, within};
use crate::math::EXP_OPS;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Positions of a routing table: row `p mod TABLE_ROWS` of it serves position p.
pub const TABLE_ROWS: usize = 8192;

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
    /// The ids are those of a table, whatever the logits are.
    pub table: bool,
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
        let mut reads = specs([spec("logits", 4 * d.rows * self.experts)]);
        if self.table {
            reads.push(spec("table", 4 * TABLE_ROWS * self.top_k));
        }
        let writes = specs([spec("ids", 4 * d.rows * self.top_k), spec("weights", 4 * d.rows * self.top_k)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        // Softmax of all, and a comparison of every expert per choice. Of a table, one row is read per row.
        let row = self.experts * (EXP_OPS as usize + 2 + self.top_k) + 3 * self.top_k;
        let mut cost = Desc { table: false, ..*self }.shapes(d).cost(0, (d.rows * row) as u64);
        cost.bytes_read += if self.table { 4 * (d.rows * self.top_k) as u64 } else { 0 };
        cost
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

    fn warm(&self, _exec: &HostExec, _dims: Dims) {
        simd::warm(self);
    }
}
