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

use base::Refusal;

use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

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

impl Op for Desc {
    const NAME: &'static str = "gated_delta";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![
            spec("qkv", 4 * d.rows * (2 * self.key_heads * self.dk + self.value_heads * self.dv)),
            spec("ba", 4 * d.rows * 2 * self.value_heads),
            spec("decay", 4 * self.value_heads),
            spec("dt_bias", 4 * self.value_heads),
        ];
        let writes = vec![
            spec("o", 4 * d.rows * self.value_heads * self.dv),
            spec("state", 4 * d.sequences * self.value_heads * self.dk * self.dv),
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
