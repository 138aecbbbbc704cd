//! Depthwise causal convolution over time, then silu (docs/arithmetic.md §6). The state keeps the
//! last kernel-1 unrounded input vectors of each sequence, oldest first; a new sequence starts from zeros,
//! which the caller writes.
//!
//! | operand | content |
//! |---|---|
//! | read `u` | f32[rows, channels] |
//! | read `w` | f32[channels, kernel], oldest tap first |
//! | written `y` | f32[rows, channels] |
//! | written `tail` | f32[sequences, kernel-1, channels], in place |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Most taps: the largest kernel that fits the registers of the SIMD form.
pub const MAX_KERNEL: usize = 8;

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
        let hint = "check the model's config";
        if self.channels == 0 {
            return Err(Refusal::value("conv channels", self.channels, "at least 1", hint));
        }
        if !(2..=MAX_KERNEL).contains(&self.kernel) {
            return Err(Refusal::value("conv kernel", self.kernel, format!("2 to {MAX_KERNEL} taps"), hint));
        }
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads =
            specs([spec("u", 4 * d.rows * self.channels), spec("w", 4 * self.channels * self.kernel)]);
        let writes = specs([
            spec("y", 4 * d.rows * self.channels),
            spec("tail", 4 * d.sequences * (self.kernel - 1) * self.channels),
        ]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let (rows, channels, kernel) = (d.rows as u64, self.channels as u64, self.kernel as u64);
        let tails = 4 * d.rows.min(d.sequences) as u64 * (kernel - 1) * channels;
        Cost {
            bytes_read: 4 * channels * (rows + kernel) + tails,
            bytes_written: 4 * channels * rows + tails,
            int_macs: 0,
            // silu counts as the twelve operations of its exp and two more.
            float_ops: rows * channels * (2 * kernel + 14),
        }
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
}
