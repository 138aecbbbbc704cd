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

pub mod layout;

use base::Refusal;

use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

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
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let mut reads = vec![
            spec("codes", d.rows * self.acts.row_code_bytes(self.k)),
            spec("scales", 4 * d.rows * self.k.div_ceil(ACT_GROUP)),
            spec("weight", layout::Matrix::new(self.format, self.n, self.k).bytes()),
        ];
        if self.bias {
            reads.push(spec("bias", 4 * self.n));
        }
        let writes = vec![spec("y", 4 * d.rows * self.n)];
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
