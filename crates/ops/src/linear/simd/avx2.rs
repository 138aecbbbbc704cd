//! Dot kernels and float chain for AVX2, FMA and F16C: two registers of eight outputs each.

use std::arch::x86_64::*;

use super::{Codes, Group, Kernel, Single, Step, TileAcc, single, unpack};
use crate::format::{Acts, WeightFormat};

/// Rows that are multiplied together, so that a weight register is loaded once for all of them.
const TOGETHER: usize = 4;

/// Sixteen 32-bit lanes, one per row of the tile.
pub(super) type Lanes = [__m256i; 2];
/// Likewise as floats.
type Floats = [__m256; 2];

/// How this level runs a pair of formats.
///
/// Under A8, `maddubs` adds pairs of u8·s8 into i16. Four-bit codes let eight such pairs add up before they
/// are widened (15·128·2·8 < 2^15), six-bit ones two; eight-bit codes are two planes of nibbles.
pub(super) fn kernel(format: WeightFormat, acts: Acts) -> Kernel {
    use WeightFormat::*;
    type Parts = (unsafe fn(&[u8], &mut [Step]), unsafe fn(&Group<'_>, &mut [TileAcc]), usize, i32);
    let (unpack, rows, steps, offset): Parts = match (acts, format) {
        (Acts::A8, I4) => (unpack::bytes_of_4, rows_bytes::<32, 8, 1, false>, 32, 8),
        (Acts::A8, H4) => (unpack::bytes_of_4, rows_bytes::<16, 8, 1, true>, 16, 0),
        (Acts::A8, H6) => (unpack::bytes_of_6, rows_bytes::<16, 2, 1, true>, 16, 0),
        (Acts::A8, H8) => (unpack::nibbles_of_8::<false>, rows_bytes::<16, 8, 2, true>, 32, 0),
        (Acts::A8, I8) => (unpack::nibbles_of_8::<true>, rows_bytes::<32, 8, 2, false>, 64, 128),
        (Acts::A8, I16) => (unpack::words_of_16, rows_words::<64, false>, 64, 0),
        (Acts::A16, I4) => (unpack::words_of_i4, rows_words::<64, false>, 64, 0),
        (Acts::A16, H4) => (unpack::words_of_h4, rows_words::<32, true>, 32, 0),
        (Acts::A16, H6) => (unpack::words_of_6, rows_words::<32, true>, 32, 0),
        (Acts::A16, H8) => (unpack::words_of_8::<false>, rows_words::<32, true>, 32, 0),
        (Acts::A16, I8) => (unpack::words_of_8::<true>, rows_words::<64, false>, 64, 0),
        (Acts::A16, I16) => (unpack::words_of_16, rows_split_words, 64, 0),
    };
    Kernel { unpack, rows, steps, offset, codes: Codes::of(format, acts), single: single(format, acts) }
}

/// How one row alone runs, if it has a way of its own.
pub(super) fn single(format: WeightFormat, acts: Acts) -> Option<Single> {
    Some(match (acts, format) {
        (Acts::A8, WeightFormat::I4) => Single { run: single::of_4::<2, false>, lay: single::lay::<false> },
        (Acts::A8, WeightFormat::H4) => Single { run: single::of_4::<1, true>, lay: single::lay::<false> },
        (Acts::A8, WeightFormat::H6) => Single { run: single::of_6, lay: single::lay::<false> },
        (Acts::A8, WeightFormat::I8) => Single { run: single::of_8, lay: single::lay::<true> },
        _ => return None,
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(step: &Step) -> Lanes {
    let [a, b] = [step[..32].as_ptr(), step[32..].as_ptr()];
    // SAFETY: a step has 64 readable bytes; the loads need no alignment.
    unsafe { [_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(b.cast())] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn broadcast(codes: [u8; 4]) -> __m256i {
    _mm256_set1_epi32(i32::from_le_bytes(codes))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_floats(acc: &TileAcc) -> Floats {
    let [a, b] = [acc[..8].as_ptr(), acc[8..].as_ptr()];
    // SAFETY: sixteen readable floats; the loads need no alignment.
    unsafe { [_mm256_loadu_ps(a), _mm256_loadu_ps(b)] }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_floats(acc: &mut TileAcc, v: Floats) {
    let (a, b) = acc.split_at_mut(8);
    // SAFETY: eight writable floats each; the stores need no alignment.
    unsafe {
        _mm256_storeu_ps(a.as_mut_ptr(), v[0]);
        _mm256_storeu_ps(b.as_mut_ptr(), v[1]);
    }
}

/// Sixteen 16-bit values: scales or zeros of a group.
#[inline]
#[target_feature(enable = "avx2")]
fn load_halves(bytes: &[u8]) -> [__m128i; 2] {
    let bytes: &[u8; 32] = bytes.first_chunk().expect("sixteen values");
    // SAFETY: 32 readable bytes; the loads need no alignment.
    unsafe { [_mm_loadu_si128(bytes.as_ptr().cast()), _mm_loadu_si128(bytes[16..].as_ptr().cast())] }
}

/// Scales and zeros of a group, as floats.
pub(super) struct Scales {
    scale: Floats,
    /// Negated; only for H formats.
    minus_zero: Floats,
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn scales<const ZERO: bool>(group: &Group<'_>) -> Scales {
    let mut out = Scales { scale: [_mm256_setzero_ps(); 2], minus_zero: [_mm256_setzero_ps(); 2] };
    let bits = load_halves(group.scales);
    for i in 0..2 {
        let wide = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits[i]));
        out.scale[i] = _mm256_castsi256_ps(wide);
    }
    if ZERO {
        let bits = load_halves(&group.scales[32..]);
        for i in 0..2 {
            out.minus_zero[i] = _mm256_xor_ps(_mm256_cvtph_ps(bits[i]), _mm256_set1_ps(-0.0));
        }
    }
    out
}

/// acc = fma(u, scale, acc) with u = t·sa, or fma(-zero, Σa, t)·sa.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) fn chain<const ZERO: bool>(group: &Group<'_>, i: usize, t: Floats, s: &Scales, acc: &mut TileAcc) {
    let sa = _mm256_set1_ps(group.scale(i));
    let mut v = load_floats(acc);
    for h in 0..2 {
        let mut u = t[h];
        if ZERO {
            u = _mm256_fmadd_ps(s.minus_zero[h], _mm256_set1_ps(group.sum(i)), u);
        }
        v[h] = _mm256_fmadd_ps(_mm256_mul_ps(u, sa), s.scale[h], v[h]);
    }
    store_floats(acc, v);
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn to_floats(t: Lanes) -> Floats {
    [_mm256_cvtepi32_ps(t[0]), _mm256_cvtepi32_ps(t[1])]
}

/// Σ factor · (unpacked bytes · codes) for `T` rows, onto `acc`; `LIMIT` steps fit 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn dot_bytes<const T: usize, const STEPS: usize, const LIMIT: usize>(
    steps: &[Step; STEPS],
    codes: &[&[[u8; 4]; STEPS]; T],
    factor: i16,
    acc: &mut [Lanes; T],
) {
    let factor = _mm256_set1_epi16(factor);
    let parts = steps.as_chunks::<LIMIT>().0;
    for index in 0..parts.len() {
        let steps = &parts[index];
        let mut now = [&[[0; 4]; LIMIT]; T];
        for t in 0..T {
            now[t] = &codes[t].as_chunks().0[index];
        }
        let mut part = [[_mm256_setzero_si256(); 2]; T];
        for i in 0..LIMIT {
            let w = load(&steps[i]);
            for t in 0..T {
                let a = broadcast(now[t][i]);
                for h in 0..2 {
                    part[t][h] = _mm256_add_epi16(part[t][h], _mm256_maddubs_epi16(w[h], a));
                }
            }
        }
        for t in 0..T {
            for h in 0..2 {
                acc[t][h] = _mm256_add_epi32(acc[t][h], _mm256_madd_epi16(part[t][h], factor));
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block_bytes<
    const T: usize,
    const STEPS: usize,
    const LIMIT: usize,
    const PLANES: usize,
    const ZERO: bool,
>(
    group: &Group<'_>,
    first: usize,
    s: &Scales,
    acc: &mut [TileAcc],
) {
    let codes = group.codes_of::<T, STEPS>(first);
    let mut sums = [[_mm256_setzero_si256(); 2]; T];
    if !ZERO {
        for t in 0..T {
            sums[t] = [_mm256_set1_epi32(group.correction(first + t)); 2];
        }
    }
    for plane in 0..PLANES {
        let steps = group.steps[plane * STEPS..].first_chunk().expect("a plane of steps");
        dot_bytes::<T, STEPS, LIMIT>(steps, &codes, 1 << (4 * plane), &mut sums);
    }
    for t in 0..T {
        chain::<ZERO>(group, first + t, to_floats(sums[t]), s, &mut acc[first + t]);
    }
}

/// A8 against codes unpacked as bytes, in `PLANES` planes of which each next one weighs 16 times more.
#[target_feature(enable = "avx2,fma,f16c")]
fn rows_bytes<const STEPS: usize, const LIMIT: usize, const PLANES: usize, const ZERO: bool>(
    group: &Group<'_>,
    acc: &mut [TileAcc],
) {
    let s = scales::<ZERO>(group);
    let together = acc.len() / TOGETHER * TOGETHER;
    let mut first = 0;
    while first < together {
        block_bytes::<TOGETHER, STEPS, LIMIT, PLANES, ZERO>(group, first, &s, acc);
        first += TOGETHER;
    }
    for i in together..acc.len() {
        block_bytes::<1, STEPS, LIMIT, PLANES, ZERO>(group, i, &s, acc);
    }
}

/// Unpacked words · words of codes, for `T` rows.
#[inline]
#[target_feature(enable = "avx2")]
fn dot_words<const T: usize, const STEPS: usize>(
    steps: &[Step; STEPS],
    codes: &[&[[u8; 4]; STEPS]; T],
) -> [Lanes; T] {
    let mut acc = [[_mm256_setzero_si256(); 2]; T];
    for i in 0..STEPS {
        let w = load(&steps[i]);
        for t in 0..T {
            let a = broadcast(codes[t][i]);
            for h in 0..2 {
                acc[t][h] = _mm256_add_epi32(acc[t][h], _mm256_madd_epi16(w[h], a));
            }
        }
    }
    acc
}

#[inline]
fn steps_of<'a, const STEPS: usize>(group: &Group<'a>) -> &'a [Step; STEPS] {
    group.steps.first_chunk().expect("a group of steps")
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block_words<const T: usize, const STEPS: usize, const ZERO: bool>(
    group: &Group<'_>,
    first: usize,
    s: &Scales,
    acc: &mut [TileAcc],
) {
    let codes = group.codes_of::<T, STEPS>(first);
    let sums = dot_words::<T, STEPS>(steps_of(group), &codes);
    for t in 0..T {
        chain::<ZERO>(group, first + t, to_floats(sums[t]), s, &mut acc[first + t]);
    }
}

/// Words of codes against words of weights, one of them of at most 8 bits: 255·32767·64 and 128·32767·128 fit
/// 32 bits.
#[target_feature(enable = "avx2,fma,f16c")]
fn rows_words<const STEPS: usize, const ZERO: bool>(group: &Group<'_>, acc: &mut [TileAcc]) {
    let s = scales::<ZERO>(group);
    let together = acc.len() / TOGETHER * TOGETHER;
    let mut first = 0;
    while first < together {
        block_words::<TOGETHER, STEPS, ZERO>(group, first, &s, acc);
        first += TOGETHER;
    }
    for i in together..acc.len() {
        block_words::<1, STEPS, ZERO>(group, i, &s, acc);
    }
}

/// 256·upper + lower, exact in f64, rounded once.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn join(upper: __m256i, lower: __m256i) -> __m256 {
    let a = join_half(_mm256_castsi256_si128(upper), _mm256_castsi256_si128(lower));
    let b = join_half(_mm256_extracti128_si256::<1>(upper), _mm256_extracti128_si256::<1>(lower));
    _mm256_set_m128(b, a)
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn join_half(upper: __m128i, lower: __m128i) -> __m128 {
    let (upper, lower) = (_mm256_cvtepi32_pd(upper), _mm256_cvtepi32_pd(lower));
    _mm256_cvtpd_ps(_mm256_fmadd_pd(upper, _mm256_set1_pd(256.0), lower))
}

/// `T` rows, in `PLANES` = 2·T planes: upper ones, then lower ones.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block_split_words<const T: usize, const PLANES: usize>(
    group: &Group<'_>,
    first: usize,
    s: &Scales,
    acc: &mut [TileAcc],
) {
    let sums = dot_words::<PLANES, 64>(steps_of(group), &group.planes_of(first));
    for t in 0..T {
        let (upper, lower) = (sums[t], sums[T + t]);
        let joined = [join(upper[0], lower[0]), join(upper[1], lower[1])];
        chain::<false>(group, first + t, joined, s, &mut acc[first + t]);
    }
}

/// A16 against I16: each plane sums up in 32 bits (255·32768·128 < 2^31).
#[target_feature(enable = "avx2,fma,f16c")]
fn rows_split_words(group: &Group<'_>, acc: &mut [TileAcc]) {
    let s = scales::<false>(group);
    let together = acc.len() / 2 * 2;
    let mut first = 0;
    while first < together {
        block_split_words::<2, 4>(group, first, &s, acc);
        first += 2;
    }
    for i in together..acc.len() {
        block_split_words::<1, 2>(group, i, &s, acc);
    }
}
