//! One row against packed 4- and 6-bit codes, without unpacking them first: decode reads every weight once,
//! so the detour over columns would not pay. Registers hold lanes as packed; the row's codes are laid out
//! likewise once (each eight bytes twice, for rows g and g + 8), and the eight sums of a group are added
//! across at its end.

use std::arch::x86_64::*;

use super::avx2::{Lanes, chain, scales, to_floats};
use super::{Group, TileAcc};

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

/// The end of a group: sums across, then the float chain.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn finish<const ZERO: bool>(group: &Group<'_>, x: &[__m256i; 8], acc: &mut [TileAcc]) {
    let mut sums = across(x);
    if !ZERO {
        let correction = _mm256_set1_epi32(group.correction(0));
        sums = [_mm256_add_epi32(sums[0], correction), _mm256_add_epi32(sums[1], correction)];
    }
    chain::<ZERO>(group, 0, to_floats(sums), &scales::<ZERO>(group), &mut acc[0]);
}

/// I4 (`TILES` 2, as stored: +8) and H4 (`TILES` 1): 4·`TILES` products of pairs fit 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn of_4<const TILES: usize, const ZERO: bool>(
    packed: &[u8],
    group: &Group<'_>,
    acc: &mut [TileAcc],
) {
    let (tiles, codes) = (packed.as_chunks::<512>().0, group.lanes_of());
    let (mask, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
    let mut x = [_mm256_setzero_si256(); 8];
    for g in 0..8 {
        let mut part = _mm256_setzero_si256();
        for i in 0..TILES {
            for pair in 0..2 {
                let v = load(&tiles[i], 64 * g + 32 * pair);
                let (low, high) = (_mm256_and_si256(v, mask), _mm256_srli_epi16::<4>(v));
                let high = _mm256_and_si256(high, mask);
                let low = _mm256_maddubs_epi16(low, load(&codes[i], 64 * pair));
                let high = _mm256_maddubs_epi16(high, load(&codes[i], 64 * pair + 32));
                part = _mm256_add_epi16(part, _mm256_add_epi16(low, high));
            }
        }
        x[g] = _mm256_madd_epi16(part, ones);
    }
    finish::<ZERO>(group, &x, acc);
}

/// H6: two products of pairs fit 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn of_6(packed: &[u8], group: &Group<'_>, acc: &mut [TileAcc]) {
    let (tile, codes) = (&packed.as_chunks::<768>().0[0], &group.lanes_of()[0]);
    let (mask, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
    let two = _mm256_set1_epi8(0x30);
    // The two bits of a nibble move to bits 4-5: from 0-1 and 4-5 for even lanes, from 2-3 and 6-7 for odd
    // ones.
    let left = _mm256_setr_epi32(4, 4, 4, 4, 2, 2, 2, 2);
    let right = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2);
    let mut x = [_mm256_setzero_si256(); 8];
    for g in 0..8 {
        let mut sum = _mm256_setzero_si256();
        for pair in 0..2 {
            let v = load(tile, 64 * g + 32 * pair);
            let u = load_twice(tile, 512 + 32 * g + 16 * pair);
            let low = _mm256_and_si256(_mm256_sllv_epi32(u, left), two);
            let high = _mm256_and_si256(_mm256_srlv_epi32(u, right), two);
            let low = _mm256_or_si256(low, _mm256_and_si256(v, mask));
            let high = _mm256_or_si256(high, _mm256_and_si256(_mm256_srli_epi16::<4>(v), mask));
            let low = _mm256_maddubs_epi16(low, load(codes, 64 * pair));
            let high = _mm256_maddubs_epi16(high, load(codes, 64 * pair + 32));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_add_epi16(low, high), ones));
        }
        x[g] = sum;
    }
    finish::<true>(group, &x, acc);
}
