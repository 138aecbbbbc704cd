//! Codes K and V of each row and stores them in the KV state at the row's position
//! (docs/arithmetic.md §4). The state's layout is [`layout`]; K of the 4- and 6-bit formats is
//! Hadamard-rotated, V never is: a rotated V would need the inverse rotation of every output.
//!
//! | operand | content |
//! |---|---|
//! | read `k` | f32[rows, kv_heads·head_dim], after qk-norm and RoPE |
//! | read `v` | f32[rows, kv_heads·head_dim] |
//! | written `state` | KV state of all sequence slots, in place |

mod cases;
pub mod coding;
pub mod layout;
pub mod reference;
pub(crate) mod simd;

use base::Refusal;

use crate::format::KvFormat;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};
use layout::KvLayout;

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

/// Refuses heads that the kernels are not written for; shared with `attention`.
pub fn validate_heads(kv_heads: usize, head_dim: usize) -> Result<(), Refusal> {
    if kv_heads == 0 {
        return Err(Refusal::value("kv_heads", kv_heads, "at least 1", "check the model's config"));
    }
    let step = layout::HEAD_DIM_STEP;
    if head_dim == 0 || !head_dim.is_multiple_of(step) || head_dim > layout::MAX_HEAD_DIM {
        let limit = format!("a multiple of {step} up to {}", layout::MAX_HEAD_DIM);
        return Err(Refusal::value("head_dim", head_dim, limit, "this model's attention has no kernels"));
    }
    Ok(())
}

impl Op for Desc {
    const NAME: &'static str = "kv_write";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        validate_heads(self.kv_heads, self.head_dim)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([
            spec("k", 4 * d.rows * self.kv_heads * self.head_dim),
            spec("v", 4 * d.rows * self.kv_heads * self.head_dim),
        ]);
        let layout = KvLayout::new(self.kv_heads, self.head_dim, self.kv, d.context);
        let writes = specs([spec("state", d.sequences * layout.sequence_bytes())]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let layout = KvLayout::new(self.kv_heads, self.head_dim, self.kv, d.context);
        let heads = (2 * d.rows * self.kv_heads) as u64;
        let elements = heads * self.head_dim as u64;
        // Magnitude, product and rounding of each element, and log2(slice) butterflies of K.
        let rotation = if self.kv.rotated() { self.head_dim.min(layout::SLICE).ilog2() / 2 } else { 0 };
        Cost {
            bytes_read: 4 * elements,
            bytes_written: heads * (layout.row_bytes() + 4 * layout.slices()) as u64,
            int_macs: 0,
            float_ops: elements * u64::from(3 + rotation),
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
