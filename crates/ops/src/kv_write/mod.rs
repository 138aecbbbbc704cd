//! Codes K and V of each row and stores them in the KV state at the row's position
//! (docs/arithmetic.md §4). The state's layout is [`layout`].
//!
//! | operand | content |
//! |---|---|
//! | read `k` | f32[rows, kv_heads·head_dim], after qk-norm and RoPE |
//! | read `v` | f32[rows, kv_heads·head_dim] |
//! | written `state` | KV state of all sequence slots, in place |

pub mod layout;

use base::Refusal;

use crate::format::KvFormat;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the codes.
    pub kv: KvFormat,
}

impl Op for Desc {
    const NAME: &'static str = "kv_write";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![
            spec("k", 4 * d.rows * self.kv_heads * self.head_dim),
            spec("v", 4 * d.rows * self.kv_heads * self.head_dim),
        ];
        let writes = vec![spec(
            "state",
            d.sequences
                * layout::KvLayout::new(self.kv_heads, self.head_dim, self.kv, d.context).sequence_bytes(),
        )];
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
