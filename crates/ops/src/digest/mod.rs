//! BLAKE3 of each row's bytes (little-endian f32). A run's digest is BLAKE3 over the row digests in
//! the order of positions, so it does not depend on how rows were cut into steps.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows, width] |
//! | written `digests` | u8[rows, 32] |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Elements of a row.
    pub width: usize,
}

impl Op for Desc {
    const NAME: &'static str = "digest";
    const SIMD: bool = false;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("x", 4 * d.rows * self.width)];
        let writes = vec![spec("digests", 32 * d.rows)];
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
