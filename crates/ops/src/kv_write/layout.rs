//! Layout of a KV state, shared by `kv_write` and `attention`.
//!
//! Per sequence slot, per KV head: K codes `[context][row]`, V codes `[context][row]`, then K scales and V
//! scales `f32[context][slices]`, padded to [`HEAD_ALIGN`]. A row is one head of one token: `head_dim` codes
//! of the format's width; slices are consecutive 128s of head_dim, the last may be short. Codes are two's
//! complement, so that zeroed memory is code 0; codes past head_dim are 0.
//!
//! ```text
//! K4: per 32 codes 16 bytes      byte i: low nibble code i, high nibble code 16+i
//! K6: per 64 codes 48 bytes      bytes 0..16 and 16..32: the low four bits of codes 0..32 and 32..64, as K4
//!                                byte 32+i: upper two bits of codes i, 16+i, 32+i, 48+i
//!                                in bits 0-1, 2-3, 4-5, 6-7
//! K8: one byte a code            K16: two bytes a code, little-endian
//! ```
//! Why: one mask or shift turns sixteen bytes into sixteen consecutive codes (one AVX2 load and widening);
//! and the 32-bit word t of a K4 group holds exactly the codes that lane t of a quad needs as operand B of
//! `mma.m16n8k32` (k = 4t..4t+3 in the low nibbles, 16+4t.. in the high ones).

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

/// A KV head of a sequence starts at a multiple of this: a cache line of host and device.
pub const HEAD_ALIGN: usize = 128;

/// Largest head_dim the ops are written for (it bounds their scratch).
pub const MAX_HEAD_DIM: usize = 512;

/// head_dim is a multiple of this, so that kernels meet whole vectors only.
pub const HEAD_DIM_STEP: usize = 16;

/// K or V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Keys.
    K,
    /// Values.
    V,
}

impl KvLayout {
    /// Layout for `context` tokens per sequence.
    pub const fn new(kv_heads: usize, head_dim: usize, kv: KvFormat, context: usize) -> Self {
        KvLayout { kv_heads, head_dim, kv, context }
    }

    /// Slices of a head.
    pub const fn slices(&self) -> usize {
        self.head_dim.div_ceil(SLICE)
    }

    /// Elements of slice `i` of a head, as a range of the head's elements.
    pub fn slice(&self, i: usize) -> std::ops::Range<usize> {
        i * SLICE..((i + 1) * SLICE).min(self.head_dim)
    }

    /// K and Q of a slice of `len` elements are Hadamard-rotated.
    pub const fn rotates(&self, len: usize) -> bool {
        self.kv.rotated() && len.is_power_of_two()
    }

    /// Bytes of the codes of one head of one token, a multiple of 16 so that every row is aligned.
    pub const fn row_bytes(&self) -> usize {
        match self.kv {
            KvFormat::K4 => self.head_dim.div_ceil(32) * 16,
            KvFormat::K6 => self.head_dim.div_ceil(64) * 48,
            KvFormat::K8 => self.head_dim.next_multiple_of(16),
            KvFormat::K16 => (2 * self.head_dim).next_multiple_of(16),
        }
    }

    /// Bytes of one KV head of one sequence.
    pub const fn head_bytes(&self) -> usize {
        (2 * self.context * (self.row_bytes() + 4 * self.slices())).next_multiple_of(HEAD_ALIGN)
    }

    /// Bytes of one sequence slot.
    pub const fn sequence_bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// Where a KV head of a sequence begins in the state.
    pub const fn head_at(&self, seq: usize, head: usize) -> usize {
        seq * self.sequence_bytes() + head * self.head_bytes()
    }

    /// Where the codes of position 0 begin in a KV head; position p is `p * row_bytes()` further.
    pub const fn codes_at(&self, side: Side) -> usize {
        match side {
            Side::K => 0,
            Side::V => self.context * self.row_bytes(),
        }
    }

    /// Where the scales of position 0 begin in a KV head; position p is `p * 4 * slices()` further.
    pub const fn scales_at(&self, side: Side) -> usize {
        let scales = 2 * self.context * self.row_bytes();
        match side {
            Side::K => scales,
            Side::V => scales + self.context * 4 * self.slices(),
        }
    }

    /// Packs one row: `codes` is `head_dim` long, `out` `row_bytes`.
    pub fn pack_row(&self, codes: &[i32], out: &mut [u8]) {
        assert_eq!(codes.len(), self.head_dim);
        assert_eq!(out.len(), self.row_bytes());
        out.fill(0);
        for (e, &code) in codes.iter().enumerate() {
            match self.kv {
                KvFormat::K4 => put_nibble(out, e / 32 * 16, e, code),
                KvFormat::K6 => {
                    put_nibble(out, e / 64 * 48 + e % 64 / 32 * 16, e, code);
                    out[e / 64 * 48 + 32 + e % 16] |= (code as u8 >> 4 & 3) << (e % 64 / 16 * 2);
                }
                KvFormat::K8 => out[e] = code as u8,
                KvFormat::K16 => out[2 * e..][..2].copy_from_slice(&(code as i16).to_le_bytes()),
            }
        }
    }

    /// The codes of one row; the inverse of [`KvLayout::pack_row`].
    pub fn unpack_row(&self, row: &[u8], codes: &mut [i32]) {
        assert_eq!(codes.len(), self.head_dim);
        assert_eq!(row.len(), self.row_bytes());
        for (e, code) in codes.iter_mut().enumerate() {
            *code = match self.kv {
                KvFormat::K4 => sign_extend(get_nibble(row, e / 32 * 16, e), 4),
                KvFormat::K6 => {
                    let low = get_nibble(row, e / 64 * 48 + e % 64 / 32 * 16, e);
                    let upper = row[e / 64 * 48 + 32 + e % 16] >> (e % 64 / 16 * 2) & 3;
                    sign_extend(low | upper << 4, 6)
                }
                KvFormat::K8 => i32::from(row[e] as i8),
                KvFormat::K16 => i32::from(i16::from_le_bytes([row[2 * e], row[2 * e + 1]])),
            };
        }
    }
}

fn put_nibble(out: &mut [u8], group: usize, e: usize, code: i32) {
    let value = code as u8 & 15;
    out[group + e % 16] |= if e % 32 < 16 { value } else { value << 4 };
}

fn get_nibble(row: &[u8], group: usize, e: usize) -> u8 {
    let byte = row[group + e % 16];
    if e % 32 < 16 { byte & 15 } else { byte >> 4 }
}

fn sign_extend(code: u8, bits: u32) -> i32 {
    i32::from((code << (8 - bits)) as i8 >> (8 - bits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::philox::Stream;

    #[test]
    fn every_code_comes_back_and_rows_are_aligned() {
        for kv in KvFormat::ALL {
            for head_dim in [16, 64, 80, 128, 192, 256] {
                let layout = KvLayout::new(2, head_dim, kv, 3);
                assert_eq!(layout.row_bytes() % 16, 0);
                assert_eq!(layout.head_bytes() % HEAD_ALIGN, 0);
                let mut random = Stream::new(3);
                let (low, count) = (-kv.max_code() - 1, 1 << kv.bits());
                let codes: Vec<i32> = (0..head_dim).map(|_| low + random.below(count) as i32).collect();
                let mut row = vec![0xA5; layout.row_bytes()];
                layout.pack_row(&codes, &mut row);
                let mut back = vec![0; head_dim];
                layout.unpack_row(&row, &mut back);
                assert_eq!(codes, back, "{kv:?} {head_dim}");
            }
        }
    }

    #[test]
    fn parts_of_a_head_do_not_overlap() {
        let layout = KvLayout::new(2, 144, KvFormat::K6, 5);
        let codes = 5 * layout.row_bytes();
        assert_eq!(layout.codes_at(Side::V), codes);
        assert_eq!(layout.scales_at(Side::K), 2 * codes);
        assert_eq!(layout.scales_at(Side::V), 2 * codes + 5 * 4 * 2);
        assert!(layout.scales_at(Side::V) + 5 * 4 * 2 <= layout.head_bytes());
        assert_eq!(layout.slice(1), 128..144);
        assert!(layout.rotates(128) && layout.rotates(16) && !layout.rotates(80));
    }
}
