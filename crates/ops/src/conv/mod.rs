//! Depthwise causal convolution over time, then silu (docs/arithmetic.md §6). The state keeps the
//! last kernel-1 unrounded input vectors of each sequence, oldest first.
//!
//! | operand | content |
//! |---|---|
//! | read `u` | f32[rows, channels] |
//! | read `w` | f32[channels, kernel], oldest tap first |
//! | written `y` | f32[rows, channels] |
//! | written `tail` | f32[sequences, kernel-1, channels], in place |

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Channels.
    pub channels: usize,
    /// Taps.
    pub kernel: usize,
}

impl Op for Desc {
    const NAME: &'static str = "conv";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![spec("u", 4 * d.rows * self.channels), spec("w", 4 * self.channels * self.kernel)];
        let writes = vec![
            spec("y", 4 * d.rows * self.channels),
            spec("tail", 4 * d.sequences * (self.kernel - 1) * self.channels),
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
