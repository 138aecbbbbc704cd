//! One row against packed codes, without unpacking them first: decode reads every weight once, so the detour
//! over columns would not pay. Registers hold lanes as packed; the row's codes are laid out likewise once
//! (each eight bytes twice, for rows g and g + 8; see [`lay`]), and the eight sums of a group are added
//! across at its end.

use std::arch::x86_64::*;

use super::avx2::{Lanes, chain, scales, to_floats};
use super::{Group, TileAcc};
use crate::linear::layout::K_TILE;

/// One row's codes as the kernels of 4-bit planes (`BYTES` false: per pair of lanes and nibble, the 32 bytes
/// that meet it) or of 8-bit planes (per half and lane, the 16 bytes that meet it) read them; each eight
/// bytes twice, for rows g and g + 8.
#[target_feature(enable = "avx2")]
pub(super) fn lay<const BYTES: bool>(codes: &[u8], out: &mut [u8]) {
    // In units of four codes, of each half of a k tile.
    let order = match BYTES {
        false => [_mm256_setr_epi32(0, 2, 0, 2, 4, 6, 4, 6), _mm256_setr_epi32(1, 3, 1, 3, 5, 7, 5, 7)],
        true => [_mm256_setr_epi32(0, 1, 0, 1, 4, 5, 4, 5), _mm256_setr_epi32(2, 3, 2, 3, 6, 7, 6, 7)],
    };
    let tiles = codes.as_chunks::<K_TILE>().0.iter().zip(out.as_chunks_mut::<{ 2 * K_TILE }>().0);
    for (codes, out) in tiles {
        for half in 0..2 {
            let v = load(codes, 32 * half);
            for i in 0..2 {
                let at = if BYTES { 64 * i + 32 * half } else { 64 * half + 32 * i };
                let out: &mut [u8; 32] = out[at..].first_chunk_mut().expect("a quarter");
                let v = _mm256_permutevar8x32_epi32(v, order[i]);
                // SAFETY: 32 writable bytes; the store needs no alignment.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) };
            }
        }
    }
}

/// How far ahead weights are fetched: hardware stops at the end of a page, and a page is read in less than
/// the time that memory takes to answer a few times.
const AHEAD: usize = 8192;

/// Asks for the cache line that is [`AHEAD`] of `bytes[at..]`. A hint: it may lie outside of the slice.
#[inline]
#[target_feature(enable = "avx2")]
fn fetch<const N: usize>(bytes: &[u8; N], at: usize) {
    let ahead = bytes.as_ptr().wrapping_add(at + AHEAD);
    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
}

#[inline]
#[target_feature(enable = "avx2")]
fn load<const N: usize>(bytes: &[u8; N], at: usize) -> __m256i {
    let bytes: &[u8; 32] = bytes[at..].first_chunk().expect("32 bytes");
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_twice<const N: usize>(bytes: &[u8; N], at: usize) -> __m256i {
    let bytes: &[u8; 16] = bytes[at..].first_chunk().expect("16 bytes");
    // SAFETY: 16 readable bytes; the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

/// Adds across: from one register per g (`[row g, row g + 8]` twice in each half) to rows 0..8 and 8..16.
#[inline]
#[target_feature(enable = "avx2")]
fn across(x: &[__m256i; 8]) -> Lanes {
    let mut s = [_mm256_setzero_si256(); 2];
    for i in 0..2 {
        let a = _mm256_hadd_epi32(x[4 * i], x[4 * i + 1]);
        let b = _mm256_hadd_epi32(x[4 * i + 2], x[4 * i + 3]);
        let (low, high) = (_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b));
        s[i] = _mm256_add_epi32(low, high);
    }
    let (a, b) = (_mm256_castsi256_ps(s[0]), _mm256_castsi256_ps(s[1]));
    // Halves hold g = 0, 1, 4, 5 and 2, 3, 6, 7.
    let even = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
    let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(a, b));
    const ORDER: i32 = 0b11_01_10_00;
    [_mm256_permute4x64_epi64::<ORDER>(even), _mm256_permute4x64_epi64::<ORDER>(odd)]
}

/// The end of a group: the float chain.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn finish<const ZERO: bool>(group: &Group<'_>, sums: Lanes, acc: &mut [TileAcc]) {
    chain::<ZERO>(group, 0, to_floats(sums), &scales::<ZERO>(group), &mut acc[0]);
}

/// Four registers of one row's codes.
#[inline]
#[target_feature(enable = "avx2")]
fn load_codes(codes: &[u8; 128]) -> [__m256i; 4] {
    [load(codes, 0), load(codes, 32), load(codes, 64), load(codes, 96)]
}

/// Rows g and g + 8 of a 4-bit plane: four products of pairs onto `part`, in 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn rows_of_4(tile: &[u8; 512], g: usize, codes: &[__m256i; 4], part: __m256i) -> __m256i {
    let mask = _mm256_set1_epi8(15);
    fetch(tile, 64 * g);
    let (v, w) = (load(tile, 64 * g), load(tile, 64 * g + 32));
    let a = _mm256_maddubs_epi16(_mm256_and_si256(v, mask), codes[0]);
    let b = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16::<4>(v), mask), codes[1]);
    let c = _mm256_maddubs_epi16(_mm256_and_si256(w, mask), codes[2]);
    let d = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16::<4>(w), mask), codes[3]);
    _mm256_add_epi16(part, _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_add_epi16(c, d)))
}

/// I4 (`TILES` 2, as stored: +8) and H4 (`TILES` 1): 4·`TILES` products of pairs fit 16 bits. Bytes are read
/// from front to back, sums and codes stay in registers: written out, because the compiler does not unroll
/// it.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn of_4<const TILES: usize, const ZERO: bool>(
    packed: &[u8],
    group: &Group<'_>,
    acc: &mut [TileAcc],
) {
    let (tiles, codes) = (packed.as_chunks::<512>().0, group.lanes_of::<TILES>());
    let mut x = [_mm256_setzero_si256(); 8];
    for i in 0..TILES {
        let (t, c) = (&tiles[i], load_codes(&codes[i]));
        x = [
            rows_of_4(t, 0, &c, x[0]),
            rows_of_4(t, 1, &c, x[1]),
            rows_of_4(t, 2, &c, x[2]),
            rows_of_4(t, 3, &c, x[3]),
            rows_of_4(t, 4, &c, x[4]),
            rows_of_4(t, 5, &c, x[5]),
            rows_of_4(t, 6, &c, x[6]),
            rows_of_4(t, 7, &c, x[7]),
        ];
    }
    let ones = _mm256_set1_epi16(1);
    for g in 0..8 {
        x[g] = _mm256_madd_epi16(x[g], ones);
    }
    let mut sums = across(&x);
    if !ZERO {
        let correction = _mm256_set1_epi32(group.correction(0));
        sums = [_mm256_add_epi32(sums[0], correction), _mm256_add_epi32(sums[1], correction)];
    }
    finish::<ZERO>(group, sums, acc);
}

/// Rows g and g + 8 of six-bit codes: pairs of products are widened in twos, which fit 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn rows_of_6(tile: &[u8; 768], g: usize, codes: &[__m256i; 4]) -> __m256i {
    let (mask, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
    let two = _mm256_set1_epi8(0x30);
    // The two bits of a nibble move to bits 4-5: from 0-1 and 4-5 for even lanes, from 2-3 and 6-7 for odd
    // ones.
    let left = _mm256_setr_epi32(4, 4, 4, 4, 2, 2, 2, 2);
    let right = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2);
    fetch(tile, 64 * g);
    if g.is_multiple_of(2) {
        fetch(tile, 512 + 32 * g);
    }
    let mut sum = _mm256_setzero_si256();
    for pair in 0..2 {
        let v = load(tile, 64 * g + 32 * pair);
        let u = load_twice(tile, 512 + 32 * g + 16 * pair);
        let low = _mm256_and_si256(_mm256_sllv_epi32(u, left), two);
        let high = _mm256_and_si256(_mm256_srlv_epi32(u, right), two);
        let low = _mm256_or_si256(low, _mm256_and_si256(v, mask));
        let high = _mm256_or_si256(high, _mm256_and_si256(_mm256_srli_epi16::<4>(v), mask));
        let low = _mm256_maddubs_epi16(low, codes[2 * pair]);
        let high = _mm256_maddubs_epi16(high, codes[2 * pair + 1]);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(low, high), ones));
    }
    sum
}

/// H6.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn of_6(packed: &[u8], group: &Group<'_>, acc: &mut [TileAcc]) {
    let (t, c) = (&packed.as_chunks::<768>().0[0], load_codes(&group.lanes_of::<1>()[0]));
    let x = [
        rows_of_6(t, 0, &c),
        rows_of_6(t, 1, &c),
        rows_of_6(t, 2, &c),
        rows_of_6(t, 3, &c),
        rows_of_6(t, 4, &c),
        rows_of_6(t, 5, &c),
        rows_of_6(t, 6, &c),
        rows_of_6(t, 7, &c),
    ];
    finish::<true>(group, across(&x), acc);
}

/// Rows g and g + 8 of one half of an 8-bit plane, as words, onto `sum`.
#[inline]
#[target_feature(enable = "avx2")]
fn rows_of_8(half: &[u8; 512], g: usize, codes: &[__m256i; 4], sum: __m256i) -> __m256i {
    fetch(half, 64 * g);
    let mut sum = sum;
    for t in 0..4 {
        let weights: &[u8; 16] = half[64 * g + 16 * t..].first_chunk().expect("16 bytes");
        // SAFETY: 16 readable bytes; the load needs no alignment.
        let weights = _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(weights.as_ptr().cast()) });
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(weights, codes[t]));
    }
    sum
}

/// Adds across: from `[row g ×4, row g + 8 ×4]` per g to rows 0..8 and 8..16.
#[inline]
#[target_feature(enable = "avx2")]
fn across_halves(x: &[__m256i; 8]) -> Lanes {
    let mut s = [_mm256_setzero_si256(); 2];
    for i in 0..2 {
        let a = _mm256_hadd_epi32(x[4 * i], x[4 * i + 1]);
        let b = _mm256_hadd_epi32(x[4 * i + 2], x[4 * i + 3]);
        s[i] = _mm256_hadd_epi32(a, b);
    }
    [_mm256_permute2x128_si256::<0x20>(s[0], s[1]), _mm256_permute2x128_si256::<0x31>(s[0], s[1])]
}

/// I8.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn of_8(packed: &[u8], group: &Group<'_>, acc: &mut [TileAcc]) {
    let (halves, codes) = (packed.as_chunks::<512>().0, group.lanes_of::<2>());
    let mut x = [_mm256_setzero_si256(); 8];
    for half in 0..4 {
        let (h, bytes) = (&halves[half], codes[half / 2].as_chunks::<16>().0);
        let mut c = [_mm256_setzero_si256(); 4];
        for t in 0..4 {
            let bytes = bytes[4 * (half % 2) + t].as_ptr();
            // SAFETY: 16 readable bytes; the load needs no alignment.
            c[t] = _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(bytes.cast()) });
        }
        x = [
            rows_of_8(h, 0, &c, x[0]),
            rows_of_8(h, 1, &c, x[1]),
            rows_of_8(h, 2, &c, x[2]),
            rows_of_8(h, 3, &c, x[3]),
            rows_of_8(h, 4, &c, x[4]),
            rows_of_8(h, 5, &c, x[5]),
            rows_of_8(h, 6, &c, x[6]),
            rows_of_8(h, 7, &c, x[7]),
        ];
    }
    finish::<false>(group, across_halves(&x), acc);
}
