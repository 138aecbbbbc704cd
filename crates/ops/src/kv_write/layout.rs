//! Layout of a KV state, shared by `kv_write` and `attention`.
//!
//! Per sequence slot, per KV head: K codes `[context][row]`, V codes `[context][row]`, then K scales and V scales
//! `f32[context][slices]`. A row is one head of one token: `head_dim` codes of the format's width, packed as
//! [`KvLayout::row_bytes`] says; slices are consecutive 128s of head_dim, the last may be short.

use crate::format::KvFormat;

/// Sizes and offsets of a KV state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Width of the codes.
    pub kv: KvFormat,
    /// Tokens per sequence.
    pub context: usize,
}

/// Elements of a head that share a scale.
pub const SLICE: usize = 128;

impl KvLayout {
    /// Layout for `context` tokens per sequence.
    pub const fn new(kv_heads: usize, head_dim: usize, kv: KvFormat, context: usize) -> Self {
        KvLayout { kv_heads, head_dim, kv, context }
    }

    /// Slices of a head.
    pub const fn slices(&self) -> usize {
        self.head_dim.div_ceil(SLICE)
    }

    /// Bytes of the codes of one head of one token, padded to 16 so that every row is aligned.
    pub const fn row_bytes(&self) -> usize {
        (self.head_dim * self.kv.bits()).div_ceil(8).div_ceil(16) * 16
    }

    /// Bytes of one KV head of one sequence.
    pub const fn head_bytes(&self) -> usize {
        2 * self.context * (self.row_bytes() + 4 * self.slices())
    }

    /// Bytes of one sequence slot.
    pub const fn sequence_bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }
}
