//! y = codes · Wᵀ (+ bias): exact integer sums per weight group, then the fixed float chain of
//! docs/arithmetic.md §2.
//!
//! | operand | content |
//! |---|---|
//! | read `codes` | i8 or i16 [rows, k padded to 128] |
//! | read `scales` | f32[rows, groups of 128] |
//! | read `weight` | packed matrix: codes, then scales |
//! | read `bias` | f32[n], only if `bias` |
//! | written `y` | f32[rows, n] |

pub(crate) mod acts;
pub(crate) mod cases;
pub(crate) mod cost;
pub(crate) mod entries;
pub mod layout;
pub(crate) mod reference;
pub(crate) mod simd;

use base::Refusal;

use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::limits::{MAX_WIDTH, within};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Output features.
    pub n: usize,
    /// Input features.
    pub k: usize,
    /// Format of the packed matrix ([`layout`]).
    pub format: WeightFormat,
    /// Width of the activation codes.
    pub acts: Acts,
    /// A bias is added last.
    pub bias: bool,
}

impl Op for Desc {
    const NAME: &'static str = "linear";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("linear.n", self.n, 1, MAX_WIDTH)?;
        within("linear.k", self.k, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let mut reads = specs([
            spec("codes", d.rows * self.acts.row_code_bytes(self.k)),
            spec("scales", 4 * d.rows * self.k.div_ceil(ACT_GROUP)),
            spec("weight", layout::Matrix::new(self.format, self.n, self.k).bytes()),
        ]);
        if self.bias {
            reads.push(spec("bias", 4 * self.n));
        }
        let writes = specs([spec("y", 4 * d.rows * self.n)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let matrix = layout::Matrix::new(self.format, self.n, self.k);
        let mut cost = cost::product_cost(self, d, &matrix, self.n, d.rows);
        cost.float_ops += if self.bias { (d.rows * self.n) as u64 } else { 0 };
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

    fn warm(&self, _exec: &HostExec, dims: Dims) {
        simd::warm(&layout::Matrix::new(self.format, self.n, self.k), self.acts, dims.rows);
    }
}

#[cfg(test)]
mod tests;
