//! Activations as fixed point (docs/arithmetic.md §1): codes and one scale per 128 of a row.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows·times, k] |
//! | written `codes` | i8 or i16 [rows·times, k padded to 128], padding zero |
//! | written `scales` | f32[rows·times, groups of 128] |

use base::Refusal;

use crate::format::{ACT_GROUP, Acts};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Coded rows per row of the step (experts per token for expert activations, else 1).
    pub times: usize,
    /// Elements of a coded row.
    pub k: usize,
    /// Width of the codes.
    pub acts: Acts,
}

impl Op for Desc {
    const NAME: &'static str = "code";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("x", 4 * d.rows * self.times * self.k)];
        let writes = vec![
            spec("codes", d.rows * self.times * self.acts.row_code_bytes(self.k)),
            spec("scales", 4 * d.rows * self.times * self.k.div_ceil(ACT_GROUP)),
        ];
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
