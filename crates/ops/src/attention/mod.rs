//! Causal attention of each row over its sequence's coded K and V (docs/arithmetic.md §4), grouped
//! query heads: query head h reads KV head h / (heads / kv_heads). A score or value scale that is not finite
//! makes the whole output of its head NaN, so that the fault surfaces where the engine looks for it.
//!
//! | operand | content |
//! |---|---|
//! | read `q` | f32[rows, heads·head_dim], after qk-norm and RoPE |
//! | read `state` | KV state of all sequence slots; the rows' own K and V are in it already |
//! | written `o` | f32[rows, heads·head_dim] |

mod cases;
mod reference;
#[cfg(target_arch = "x86_64")]
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_gemm;
#[cfg(target_arch = "x86_64")]
mod simd_softmax;
#[cfg(target_arch = "x86_64")]
mod simd_unpack;

use base::Refusal;

use crate::format::{Acts, KvFormat};
use crate::kv_write::layout::KvLayout;
use crate::kv_write::validate_heads;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Positions of a block: absolute, so that a block is the same for every row that sees it.
pub const BLOCK: usize = 64;

/// Positions of a split: its blocks merge first, then splits do.
pub const SPLIT: usize = 1024;

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
        validate_heads(self.kv_heads, self.head_dim)?;
        let hint = "check the model's config";
        if self.heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let limit = format!("a multiple of the {} KV heads", self.kv_heads);
            return Err(Refusal::value("attention heads", self.heads, limit, hint));
        }
        if !self.scale.is_finite() {
            return Err(Refusal::value("attention scale", self.scale, "a finite number", hint));
        }
        Ok(())
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([
            spec("q", 4 * d.rows * self.heads * self.head_dim),
            spec(
                "state",
                d.sequences
                    * KvLayout::new(self.kv_heads, self.head_dim, self.kv, d.context).sequence_bytes(),
            ),
        ]);
        let writes = specs([spec("o", 4 * d.rows * self.heads * self.head_dim)]);
        Shapes { reads, writes, experts: false }
    }

    /// As if every row saw the whole context, and every sequence's codes were read once.
    fn cost(&self, d: Dims) -> Cost {
        let layout = KvLayout::new(self.kv_heads, self.head_dim, self.kv, d.context);
        let (rows, context) = (d.rows as u64, d.context as u64);
        let elements = rows * (self.heads * self.head_dim) as u64;
        let token = 2 * self.kv_heads * (layout.row_bytes() + 4 * layout.slices());
        let passes = if self.acts == Acts::A16 && self.kv == KvFormat::K16 { 2 } else { 1 };
        Cost {
            bytes_read: 4 * elements + d.rows.min(d.sequences) as u64 * context * token as u64,
            bytes_written: 4 * elements,
            int_macs: 2 * passes * elements * context,
            // Per score: scaling, exp, sum, coding of P; per block and element: three operations.
            float_ops: rows * self.heads as u64 * context * 22 + 3 * elements * context / BLOCK as u64,
        }
    }

    fn cases() -> Vec<Case<Self>> {
        cases::all()
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, exec: &HostExec, args: HostArgs<'_>) {
        #[cfg(target_arch = "x86_64")]
        simd::run(self, exec, args);
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("{:?} is a level of x86-64, {} operands", exec.level, args.reads.0.len());
    }

    fn warm(&self, exec: &HostExec, dims: Dims) {
        #[cfg(target_arch = "x86_64")]
        simd::warm(self, exec, dims);
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("{:?} is a level of x86-64, {dims:?}", exec.level);
    }
}
