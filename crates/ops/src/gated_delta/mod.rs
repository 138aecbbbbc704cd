//! Gated DeltaNet by its step recurrence (docs/arithmetic.md §6): L2-normalised q and k, decay and
//! beta, state update, output; value head h uses key head h / (value_heads / key_heads).
//!
//! | operand | content |
//! |---|---|
//! | read `qkv` | f32[rows, all q | all k | all v], after conv and silu |
//! | read `ba` | f32[rows, all b | all a] |
//! | read `decay` | f32[value_heads]: -exp(A_log), made at build |
//! | read `dt_bias` | f32[value_heads] |
//! | written `o` | f32[rows, value_heads·dv] |
//! | written `state` | f32[sequences, value_heads, dk, dv], in place |

mod cases;
mod reference;
mod simd;

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, math, spec, specs};

/// Lanes of a dot product over the state's rows.
pub const LANES: usize = 16;

/// Largest dk the op is written for (it bounds its scratch).
pub const MAX_DK: usize = 512;

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Heads of q and k.
    pub key_heads: usize,
    /// Heads of v, and of the state.
    pub value_heads: usize,
    /// Elements of a key, rows of the state.
    pub dk: usize,
    /// Elements of a value, columns of the state.
    pub dv: usize,
}

impl Desc {
    /// Elements of a row of `qkv`.
    pub const fn qkv_width(&self) -> usize {
        2 * self.key_heads * self.dk + self.value_heads * self.dv
    }
}

/// Factor of the normalised q: dk^-1/2 in f64, rounded once.
pub fn query_scale(dk: usize) -> f32 {
    (1.0 / math::f64::sqrt(dk as f64)) as f32
}

impl Op for Desc {
    const NAME: &'static str = "gated_delta";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        let hint = "check the model's config";
        if self.key_heads == 0 {
            return Err(Refusal::value("linear key heads", self.key_heads, "at least 1", hint));
        }
        if self.value_heads == 0 || !self.value_heads.is_multiple_of(self.key_heads) {
            let limit = format!("a multiple of the {} key heads", self.key_heads);
            return Err(Refusal::value("linear value heads", self.value_heads, limit, hint));
        }
        if self.dk == 0 || !self.dk.is_multiple_of(LANES) || self.dk > MAX_DK {
            let limit = format!("a multiple of {LANES} up to {MAX_DK}");
            return Err(Refusal::value("linear key head_dim", self.dk, limit, hint));
        }
        if self.dv == 0 {
            return Err(Refusal::value("linear value head_dim", self.dv, "at least 1", hint));
        }
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([
            spec("qkv", 4 * d.rows * self.qkv_width()),
            spec("ba", 4 * d.rows * 2 * self.value_heads),
            spec("decay", 4 * self.value_heads),
            spec("dt_bias", 4 * self.value_heads),
        ]);
        let writes = specs([
            spec("o", 4 * d.rows * self.value_heads * self.dv),
            spec("state", 4 * d.sequences * self.value_heads * self.dk * self.dv),
        ]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let rows = d.rows as u64;
        let state = (self.value_heads * self.dk * self.dv) as u64;
        let states = 4 * d.rows.min(d.sequences) as u64 * state;
        Cost {
            bytes_read: 4 * rows * (self.qkv_width() + 2 * self.value_heads) as u64 + states,
            bytes_written: 4 * rows * (self.value_heads * self.dv) as u64 + states,
            int_macs: 0,
            // Decay, two dots and one update of each element of the state.
            float_ops: 7 * rows * state,
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

    fn warm(&self, _exec: &HostExec, _dims: Dims) {
        simd::warm(self);
    }
}
