//! Blocks of stored K and V as panels of i16 pairs for [`super::simd_gemm`].

use std::arch::x86_64::*;

use super::BLOCK;
use super::simd_gemm::PANEL;
use crate::format::KvFormat;
use crate::kv_write::layout::{KvLayout, SLICE, Side};

/// Two codes of each of a panel's columns.
pub type Pairs = [[i16; 2]; PANEL];

/// One block of one KV head, unpacked.
#[derive(Default)]
pub struct Block {
    /// `[slice][key panel][pair of elements]`, of [`Block::key_pairs`] a slice.
    pub k: Vec<Pairs>,
    /// `[element panel][pair of positions]`.
    pub v: Vec<Pairs>,
    /// `[slice][position]`, 0 past the block's last position.
    pub k_scales: Vec<[f32; BLOCK]>,
    /// Likewise.
    pub v_scales: Vec<[f32; BLOCK]>,
}

/// Panels of keys in a block.
pub const KEY_PANELS: usize = BLOCK / PANEL;
/// Pairs of positions in a block.
pub const POSITION_PAIRS: usize = BLOCK / 2;

impl Block {
    /// Where the panels of slice `s` begin in `k`.
    pub const fn key_panels_at(s: usize) -> usize {
        s * KEY_PANELS * SLICE / 2
    }

    /// Where the panels of element `e` (a multiple of [`PANEL`]) begin in `v`.
    pub const fn value_panels_at(e: usize) -> usize {
        e / PANEL * POSITION_PAIRS
    }

    /// Makes room for heads of this layout.
    pub fn fit(&mut self, layout: &KvLayout) {
        self.k.resize(Self::key_panels_at(layout.slices()), [[0; 2]; PANEL]);
        self.v.resize(Self::value_panels_at(layout.head_dim), [[0; 2]; PANEL]);
        self.k_scales.resize(layout.slices(), [0.0; BLOCK]);
        self.v_scales.resize(layout.slices(), [0.0; BLOCK]);
    }

    /// Unpacks positions `first..first + count` of a KV head. Panels beyond `count` keep what they held:
    /// their columns are masked.
    ///
    /// # Safety
    /// Needs AVX2.
    #[target_feature(enable = "avx2")]
    pub unsafe fn load(&mut self, layout: &KvLayout, head: &[u8], first: usize, count: usize) {
        self.fit(layout);
        spread(&head[layout.scales_at(Side::K) + 4 * first * layout.slices()..], count, &mut self.k_scales);
        spread(&head[layout.scales_at(Side::V) + 4 * first * layout.slices()..], count, &mut self.v_scales);
        // SAFETY: the caller promises AVX2.
        unsafe {
            match layout.kv {
                KvFormat::K4 => self.codes::<4>(layout, head, first, count),
                KvFormat::K6 => self.codes::<6>(layout, head, first, count),
                KvFormat::K8 => self.codes::<8>(layout, head, first, count),
                KvFormat::K16 => self.codes::<16>(layout, head, first, count),
            }
        }
    }

    /// # Safety
    /// Needs AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn codes<const BITS: u32>(&mut self, layout: &KvLayout, head: &[u8], first: usize, count: usize) {
        let row_bytes = layout.row_bytes();
        let rows = |side| &head[layout.codes_at(side) + first * row_bytes..][..count * row_bytes];
        let (k, v) = (rows(Side::K), rows(Side::V));
        // Rows in the order of memory, for the prefetcher.
        for key in (0..count).step_by(8) {
            let mut rows = [k.as_ptr(); 8];
            for (i, r) in rows.iter_mut().enumerate() {
                *r = row(k, row_bytes, key + i);
            }
            for e in (0..layout.head_dim).step_by(PANEL) {
                let at = Self::key_panels_at(e / SLICE) + key / PANEL * (SLICE / 2) + e % SLICE / 2;
                let out = self.k[at..][..8].as_mut_ptr().cast::<__m256i>();
                // SAFETY: AVX2 by the caller; rows are whole, `e` lies in them, and eight pairs of panels
                // follow `out`, of which eight keys are a half.
                unsafe { transpose::<BITS>(&rows, e, out.add(key % PANEL / 8)) };
            }
        }
        for pair in 0..count.div_ceil(2) {
            let (even, odd) = (row(v, row_bytes, 2 * pair), row(v, row_bytes, 2 * pair + 1));
            for e in (0..layout.head_dim).step_by(PANEL) {
                let out = self.v[Self::value_panels_at(e) + pair].as_mut_ptr().cast::<__m256i>();
                // SAFETY: as above; a pair of positions of a panel is two vectors.
                unsafe {
                    let (a, b) = (widen::<BITS>(even, e), widen::<BITS>(odd, e));
                    let (low, high) = (_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
                    _mm256_storeu_si256(out, _mm256_permute2x128_si256::<0x20>(low, high));
                    _mm256_storeu_si256(out.add(1), _mm256_permute2x128_si256::<0x31>(low, high));
                }
            }
        }
    }
}

/// Scales `[position][slice]` of `count` positions as `[slice][position]`, 0 past them.
fn spread(stored: &[u8], count: usize, scales: &mut [[f32; BLOCK]]) {
    let slices = scales.len();
    let stored = &stored[..4 * count * slices];
    for (s, scales) in scales.iter_mut().enumerate() {
        for position in 0..count {
            let at = 4 * (position * slices + s);
            scales[position] = f32::from_le_bytes(stored[at..at + 4].try_into().expect("four bytes"));
        }
        scales[count..].fill(0.0);
    }
}

/// Row `i` of rows of `bytes`; past the last one the last again, for columns that are masked.
#[inline(always)]
fn row(rows: &[u8], bytes: usize, i: usize) -> *const u8 {
    rows[(i * bytes).min(rows.len() - bytes)..][..bytes].as_ptr()
}

/// Codes `e..e + 16` of a row as i16 (the layout is drawn in [`crate::kv_write::layout`]).
///
/// # Safety
/// Needs AVX2 and a whole row of a head of more than `e` elements; `e` is a multiple of 16.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn widen<const BITS: u32>(row: *const u8, e: usize) -> __m256i {
    // Four and six bits are moved to the top of the byte, widened with their sign, and moved down.
    match BITS {
        4 => {
            // SAFETY: the group that holds `e` is in the row.
            let code = unsafe { nibbles(row.add(e / 32 * 16), e % 32 >= 16) };
            _mm256_srai_epi16::<4>(_mm256_cvtepi8_epi16(_mm_slli_epi16::<4>(code)))
        }
        6 => {
            let group = e / 64 * 48;
            // SAFETY: as above.
            let low = unsafe { nibbles(row.add(group + e % 64 / 32 * 16), e % 32 >= 16) };
            // SAFETY: as above.
            let upper = unsafe { _mm_loadu_si128(row.add(group + 32).cast()) };
            let upper = _mm_srl_epi16(upper, _mm_cvtsi32_si128((e % 64 / 16 * 2) as i32));
            let upper = _mm_and_si128(upper, _mm_set1_epi8(3));
            let code = _mm_or_si128(_mm_slli_epi16::<2>(low), _mm_slli_epi16::<6>(upper));
            _mm256_srai_epi16::<2>(_mm256_cvtepi8_epi16(code))
        }
        // SAFETY: as above.
        8 => _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(row.add(e).cast()) }),
        // SAFETY: as above.
        _ => unsafe { _mm256_loadu_si256(row.add(2 * e).cast()) },
    }
}

/// Sixteen nibbles, the upper or the lower ones of sixteen bytes.
///
/// # Safety
/// Needs AVX2 and sixteen readable bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibbles(bytes: *const u8, upper: bool) -> __m128i {
    // SAFETY: the caller's promise.
    let bytes = unsafe { _mm_loadu_si128(bytes.cast()) };
    let bytes = if upper { _mm_srli_epi16::<4>(bytes) } else { bytes };
    _mm_and_si128(bytes, _mm_set1_epi8(15))
}

/// Elements `e..e + 16` of eight keys, turned so that a vector holds one pair of elements of all eight; the
/// vectors of successive pairs are two apart (a panel is sixteen keys wide).
///
/// # Safety
/// As [`widen`] for each row; `out` takes eight vectors two apart.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn transpose<const BITS: u32>(rows: &[*const u8; 8], e: usize, out: *mut __m256i) {
    // No closures: they would not be compiled for AVX2.
    let mut r = [_mm256_setzero_si256(); 8];
    for i in 0..8 {
        // SAFETY: the caller's promise.
        r[i] = unsafe { widen::<BITS>(rows[i], e) };
    }
    // Pairs of keys, then fours, then the two halves.
    let mut two = [_mm256_setzero_si256(); 8];
    for i in 0..4 {
        two[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        two[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    let mut four = [_mm256_setzero_si256(); 8];
    for half in 0..2 {
        let t = &two[4 * half..][..4];
        four[4 * half] = _mm256_unpacklo_epi64(t[0], t[2]);
        four[4 * half + 1] = _mm256_unpackhi_epi64(t[0], t[2]);
        four[4 * half + 2] = _mm256_unpacklo_epi64(t[1], t[3]);
        four[4 * half + 3] = _mm256_unpackhi_epi64(t[1], t[3]);
    }
    for i in 0..4 {
        let (a, b) = (four[i], four[4 + i]);
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_si256(out.add(2 * i), _mm256_permute2x128_si256::<0x20>(a, b));
            _mm256_storeu_si256(out.add(2 * (4 + i)), _mm256_permute2x128_si256::<0x31>(a, b));
        }
    }
}
