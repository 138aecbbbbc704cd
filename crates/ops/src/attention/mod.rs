//! Causal attention of each row over its sequence's coded K and V (docs/arithmetic.md §4), grouped
//! query heads: query head h reads KV head h / (heads / kv_heads).
//!
//! | operand | content |
//! |---|---|
//! | read `q` | f32[rows, heads·head_dim], after qk-norm and RoPE |
//! | read `state` | KV state of all sequence slots; the rows' own K and V are in it already |
//! | written `o` | f32[rows, heads·head_dim] |

use base::Refusal;

use crate::format::{Acts, KvFormat};
use crate::kv_write::layout::KvLayout;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of Q codes, and with it of P.
    pub acts: Acts,
    /// Width of the stored codes.
    pub kv: KvFormat,
    /// Multiplied to every score: f32(head_dim^-1/2) unless the family says otherwise.
    pub scale: f32,
}

impl Op for Desc {
    const NAME: &'static str = "attention";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = vec![
            spec("q", 4 * d.rows * self.heads * self.head_dim),
            spec(
                "state",
                d.sequences
                    * KvLayout::new(self.kv_heads, self.head_dim, self.kv, d.context).sequence_bytes(),
            ),
        ];
        let writes = vec![spec("o", 4 * d.rows * self.heads * self.head_dim)];
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
