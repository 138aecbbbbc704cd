//! Unpacks a weight group of a row tile into the order in which the dot kernels of every level read it.
//!
//! Packed, a row's bytes lie in lanes; unpacked, they lie in columns, so that a vector register holds all
//! rows of the tile and sums need no horizontal adds, and activations are broadcast straight from their
//! codes:
//!
//! ```text
//! bytes  (A8):  steps of 4 k:  [row 0: k k+1 k+2 k+3][row 1: …] … [row 15: …]      64 bytes
//! words (A16):  steps of 2 k:  [row 0: k k+1][row 1: …] … [row 15: …]              64 bytes of i16
//! ```
//! A group is unpacked once and used for all rows of a block, so this costs little in prefill; in decode it
//! is still several times faster than memory.

use std::arch::x86_64::*;

use super::Step;

/// Steps of 4 k in a k tile.
const TILE_STEPS: usize = 16;

/// 16 bytes of two rows, side by side.
#[inline]
#[target_feature(enable = "avx2")]
fn load_pair<const N: usize>(plane: &[u8; N], low: usize, high: usize) -> __m256i {
    let low: &[u8; 16] = plane[low..].first_chunk().expect("a plane holds eight rows");
    let high: &[u8; 16] = plane[high..].first_chunk().expect("a plane holds eight rows");
    // SAFETY: 16 readable bytes each; the loads need no alignment.
    unsafe { _mm256_loadu2_m128i(high.as_ptr().cast(), low.as_ptr().cast()) }
}

/// Stores eight rows of a step: rows 0..8 (`half` 0) or 8..16.
#[inline]
#[target_feature(enable = "avx2")]
fn store(step: &mut Step, half: usize, v: __m256i) {
    let out: &mut [u8; 32] = step[32 * half..].first_chunk_mut().expect("a step has two halves");
    // SAFETY: 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
}

/// Columns of eight rows: from 32 bytes of each row, `STRIDE` bytes apart, starting at `at`, gives vector
/// `d` with the `d`-th four bytes of rows 0..8.
#[inline]
#[target_feature(enable = "avx2")]
fn columns<const STRIDE: usize, const N: usize>(plane: &[u8; N], at: usize) -> [__m256i; 8] {
    let mut out = [_mm256_setzero_si256(); 8];
    for q in 0..2 {
        // Rows i and i + 4 share a register, so that nothing has to cross its halves later.
        let mut r = [_mm256_setzero_si256(); 4];
        for i in 0..4 {
            let low = at + 16 * q + STRIDE * i;
            r[i] = load_pair(plane, low, low + 4 * STRIDE);
        }
        let (a, b) = (_mm256_unpacklo_epi32(r[0], r[1]), _mm256_unpacklo_epi32(r[2], r[3]));
        let (c, d) = (_mm256_unpackhi_epi32(r[0], r[1]), _mm256_unpackhi_epi32(r[2], r[3]));
        out[4 * q] = _mm256_unpacklo_epi64(a, b);
        out[4 * q + 1] = _mm256_unpackhi_epi64(a, b);
        out[4 * q + 2] = _mm256_unpacklo_epi64(c, d);
        out[4 * q + 3] = _mm256_unpackhi_epi64(c, d);
    }
    out
}

/// Low and high nibbles of bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(v: __m256i) -> [__m256i; 2] {
    let mask = _mm256_set1_epi8(15);
    [_mm256_and_si256(v, mask), _mm256_and_si256(_mm256_srli_epi16::<4>(v), mask)]
}

/// Calls `put(step, half, codes)` for the unsigned codes of a k tile with a 4-bit plane; with `TWO_BIT` the
/// 2-bit plane of H6 follows it.
#[inline]
#[target_feature(enable = "avx2")]
fn nibble_tile<const N: usize, const TWO_BIT: bool>(
    tile: &[u8; N],
    mut put: impl FnMut(usize, usize, __m256i),
) {
    let plane: &[u8; 512] = tile.first_chunk().expect("a 4-bit plane");
    // Column 4·pair + 2·half + r of the 2-bit plane belongs to both lanes of the pair.
    let upper = match tile[512..].first_chunk() {
        Some(upper) if TWO_BIT => columns::<32, 256>(upper, 0),
        _ => [_mm256_setzero_si256(); 8],
    };
    let two = _mm256_set1_epi8(0x30);
    for pair in 0..2 {
        let packed = columns::<64, 512>(plane, 32 * pair);
        for d in 0..8 {
            let (odd, half, r) = (d / 4, d / 2 % 2, d % 2);
            let step = 4 * (2 * pair + odd) + 2 * r;
            let [mut low, mut high] = nibbles(packed[d]);
            if TWO_BIT {
                // Bits 0-1, 2-3 (low, even and odd lane), 4-5, 6-7 (high) move to bits 4-5.
                let u = upper[4 * pair + 2 * half + r];
                let (l, h) = match odd {
                    0 => (_mm256_slli_epi16::<4>(u), u),
                    _ => (_mm256_slli_epi16::<2>(u), _mm256_srli_epi16::<2>(u)),
                };
                low = _mm256_or_si256(low, _mm256_and_si256(l, two));
                high = _mm256_or_si256(high, _mm256_and_si256(h, two));
            }
            put(step, half, low);
            put(step + 1, half, high);
        }
    }
}

/// Calls `put(step, half, bytes)` for a k tile's 8-bit plane.
#[inline]
#[target_feature(enable = "avx2")]
fn byte_tile(plane: &[u8; 1024], mut put: impl FnMut(usize, usize, __m256i)) {
    for p in 0..2 {
        for pair in 0..2 {
            let packed = columns::<64, 1024>(plane, 512 * p + 32 * pair);
            for d in 0..8 {
                let (odd, half, word) = (d / 4, d / 2 % 2, d % 2);
                put(4 * (2 * pair + odd) + 2 * p + word, half, packed[d]);
            }
        }
    }
}

/// Codes of an I4 (as stored: +8) or H4 group as bytes.
#[target_feature(enable = "avx2")]
pub(super) fn bytes_of_4(group: &[u8], out: &mut [Step]) {
    let (tiles, out) = (group.as_chunks::<512>().0, out.as_chunks_mut::<TILE_STEPS>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        nibble_tile::<512, false>(tile, |step, half, v| store(&mut out[step], half, v));
    }
}

/// Codes of an H6 group as bytes.
#[target_feature(enable = "avx2")]
pub(super) fn bytes_of_6(group: &[u8], out: &mut [Step]) {
    let (tiles, out) = (group.as_chunks::<768>().0, out.as_chunks_mut::<TILE_STEPS>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        nibble_tile::<768, true>(tile, |step, half, v| store(&mut out[step], half, v));
    }
}

/// Codes of an H8 group, or of an I8 group (`SIGNED`) plus 128, as bytes.
#[target_feature(enable = "avx2")]
pub(super) fn bytes_of_8<const SIGNED: bool>(group: &[u8], out: &mut [Step]) {
    let flip = _mm256_set1_epi8(if SIGNED { -128 } else { 0 });
    let (tiles, out) = (group.as_chunks::<1024>().0, out.as_chunks_mut::<TILE_STEPS>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        byte_tile(tile, |step, half, v| store(&mut out[step], half, _mm256_xor_si256(v, flip)));
    }
}

/// As [`bytes_of_8`], as two planes of nibbles: all low ones, then all high ones.
#[target_feature(enable = "avx2")]
pub(super) fn nibbles_of_8<const SIGNED: bool>(group: &[u8], out: &mut [Step]) {
    let flip = _mm256_set1_epi8(if SIGNED { -128 } else { 0 });
    let (low, high) = out.split_at_mut(group.len() / 64);
    let (low, high) = (low.as_chunks_mut::<TILE_STEPS>().0, high.as_chunks_mut::<TILE_STEPS>().0);
    let tiles = group.as_chunks::<1024>().0;
    for i in 0..tiles.len() {
        let (tile, low, high) = (&tiles[i], &mut low[i], &mut high[i]);
        byte_tile(tile, |step, half, v| {
            let [l, h] = nibbles(_mm256_xor_si256(v, flip));
            store(&mut low[step], half, l);
            store(&mut high[step], half, h);
        });
    }
}

/// Stores a byte step as its two word steps; `upper` holds the words' upper bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn store_words(out: &mut [Step; 2 * TILE_STEPS], step: usize, half: usize, lower: __m256i, upper: __m256i) {
    let rows_a = _mm256_castsi256_ps(_mm256_unpacklo_epi8(lower, upper));
    let rows_b = _mm256_castsi256_ps(_mm256_unpackhi_epi8(lower, upper));
    let first = _mm256_shuffle_ps::<0b10_00_10_00>(rows_a, rows_b);
    let second = _mm256_shuffle_ps::<0b11_01_11_01>(rows_a, rows_b);
    store(&mut out[2 * step], half, _mm256_castps_si256(first));
    store(&mut out[2 * step + 1], half, _mm256_castps_si256(second));
}

/// The upper bytes of signed bytes widened to words.
#[inline]
#[target_feature(enable = "avx2")]
fn signs(v: __m256i) -> __m256i {
    _mm256_cmpgt_epi8(_mm256_setzero_si256(), v)
}

/// Codes of an I4 group as words.
#[target_feature(enable = "avx2")]
pub(super) fn words_of_i4(group: &[u8], out: &mut [Step]) {
    let eight = _mm256_set1_epi8(8);
    let (tiles, out) = (group.as_chunks::<512>().0, out.as_chunks_mut::<{ 2 * TILE_STEPS }>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        nibble_tile::<512, false>(tile, |step, half, v| {
            let v = _mm256_sub_epi8(v, eight);
            store_words(out, step, half, v, signs(v));
        });
    }
}

/// Codes of an H4 group as words.
#[target_feature(enable = "avx2")]
pub(super) fn words_of_h4(group: &[u8], out: &mut [Step]) {
    let (tiles, out) = (group.as_chunks::<512>().0, out.as_chunks_mut::<{ 2 * TILE_STEPS }>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        nibble_tile::<512, false>(tile, |step, half, v| {
            store_words(out, step, half, v, _mm256_setzero_si256())
        });
    }
}

/// Codes of an H6 group as words.
#[target_feature(enable = "avx2")]
pub(super) fn words_of_6(group: &[u8], out: &mut [Step]) {
    let (tiles, out) = (group.as_chunks::<768>().0, out.as_chunks_mut::<{ 2 * TILE_STEPS }>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        nibble_tile::<768, true>(tile, |step, half, v| {
            store_words(out, step, half, v, _mm256_setzero_si256())
        });
    }
}

/// Codes of an I8 (`SIGNED`) or H8 group as words.
#[target_feature(enable = "avx2")]
pub(super) fn words_of_8<const SIGNED: bool>(group: &[u8], out: &mut [Step]) {
    let (tiles, out) = (group.as_chunks::<1024>().0, out.as_chunks_mut::<{ 2 * TILE_STEPS }>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        byte_tile(tile, |step, half, v| {
            let upper = if SIGNED { signs(v) } else { _mm256_setzero_si256() };
            store_words(out, step, half, v, upper);
        });
    }
}

/// Codes of an I16 group as words.
#[target_feature(enable = "avx2")]
pub(super) fn words_of_16(group: &[u8], out: &mut [Step]) {
    let (tiles, out) = (group.as_chunks::<2048>().0, out.as_chunks_mut::<{ 2 * TILE_STEPS }>().0);
    for i in 0..tiles.len() {
        let (tile, out) = (&tiles[i], &mut out[i]);
        let mut uppers = [[_mm256_setzero_si256(); 2]; TILE_STEPS];
        let planes = tile.as_chunks::<1024>().0;
        byte_tile(&planes[0], |step, half, v| uppers[step][half] = v);
        byte_tile(&planes[1], |step, half, v| store_words(out, step, half, v, uppers[step][half]));
    }
}
