//! Dot kernels and float chain for AVX-512 with VNNI: one register of sixteen outputs. Groups are unpacked
//! by the AVX2 code; `vpdpbusd` and `vpdpwssd` add into 32 bits without saturating, so that every format is
//! one plane.

use std::arch::x86_64::*;

use super::avx2::single;
use super::{Codes, Group, Kernel, Step, TileAcc, unpack};
use crate::format::{Acts, WeightFormat};

/// Rows that are multiplied together: weight registers are loaded once for all of them.
const TOGETHER: usize = 8;

/// How this level runs a pair of formats.
pub(super) fn kernel(format: WeightFormat, acts: Acts) -> Kernel {
    use WeightFormat::*;
    type Parts = (unsafe fn(&[u8], &mut [Step]), unsafe fn(&Group<'_>, &mut [TileAcc]), usize, i32);
    let (unpack, rows, steps, offset): Parts = match (acts, format) {
        (Acts::A8, I4) => (unpack::bytes_of_4, rows::<32, false, true>, 32, 8),
        (Acts::A8, H4) => (unpack::bytes_of_4, rows::<16, true, true>, 16, 0),
        (Acts::A8, H6) => (unpack::bytes_of_6, rows::<16, true, true>, 16, 0),
        (Acts::A8, H8) => (unpack::bytes_of_8::<false>, rows::<16, true, true>, 16, 0),
        (Acts::A8, I8) => (unpack::bytes_of_8::<true>, rows::<32, false, true>, 32, 128),
        (Acts::A8, I16) => (unpack::words_of_16, rows::<64, false, false>, 64, 0),
        (Acts::A16, I4) => (unpack::words_of_i4, rows::<64, false, false>, 64, 0),
        (Acts::A16, H4) => (unpack::words_of_h4, rows::<32, true, false>, 32, 0),
        (Acts::A16, H6) => (unpack::words_of_6, rows::<32, true, false>, 32, 0),
        (Acts::A16, H8) => (unpack::words_of_8::<false>, rows::<32, true, false>, 32, 0),
        (Acts::A16, I8) => (unpack::words_of_8::<true>, rows::<64, false, false>, 64, 0),
        (Acts::A16, I16) => (unpack::words_of_16, rows_split_words, 64, 0),
    };
    Kernel { unpack, rows, steps, offset, codes: Codes::of(format, acts), single: single(format, acts) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(step: &Step) -> __m512i {
    // SAFETY: a step has 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(step.as_ptr().cast()) }
}

/// Sixteen 16-bit values: scales or zeros of a group.
#[inline]
#[target_feature(enable = "avx2")]
fn load_halves(bytes: &[u8]) -> __m256i {
    let bytes: &[u8; 32] = bytes.first_chunk().expect("sixteen values");
    // SAFETY: 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Scales and zeros of a group, as floats.
struct Scales {
    scale: __m512,
    /// Negated; only for H formats.
    minus_zero: __m512,
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn scales<const ZERO: bool>(group: &Group<'_>) -> Scales {
    let wide = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(load_halves(group.scales)));
    let mut out = Scales { scale: _mm512_castsi512_ps(wide), minus_zero: _mm512_setzero_ps() };
    if ZERO {
        let zero = _mm512_cvtph_ps(load_halves(&group.scales[32..]));
        out.minus_zero = _mm512_xor_ps(zero, _mm512_set1_ps(-0.0));
    }
    out
}

/// acc = fma(u, scale, acc) with u = t·sa, or fma(-zero, Σa, t)·sa.
#[inline]
#[target_feature(enable = "avx512f")]
fn chain<const ZERO: bool>(group: &Group<'_>, i: usize, t: __m512, s: &Scales, acc: &mut TileAcc) {
    let mut u = t;
    if ZERO {
        u = _mm512_fmadd_ps(s.minus_zero, _mm512_set1_ps(group.sum(i)), u);
    }
    u = _mm512_mul_ps(u, _mm512_set1_ps(group.scale(i)));
    // SAFETY: sixteen readable and writable floats; no alignment needed.
    unsafe {
        let v = _mm512_fmadd_ps(u, s.scale, _mm512_loadu_ps(acc.as_ptr()));
        _mm512_storeu_ps(acc.as_mut_ptr(), v);
    }
}

/// Unpacked steps · codes for `T` rows: u8·s8 (`BYTES`) or s16·s16. `S` sums per row, because an
/// instruction's result is only there some cycles later; integer sums may be taken apart.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot<const T: usize, const S: usize, const STEPS: usize, const BYTES: bool>(
    steps: &[Step; STEPS],
    codes: &[&[[u8; 4]; STEPS]; T],
) -> [__m512i; T] {
    let mut acc = [[_mm512_setzero_si512(); S]; T];
    let parts = steps.as_chunks::<S>().0;
    for index in 0..parts.len() {
        let steps = &parts[index];
        let mut now = [&[[0; 4]; S]; T];
        for t in 0..T {
            now[t] = &codes[t].as_chunks().0[index];
        }
        for j in 0..S {
            let w = load(&steps[j]);
            for t in 0..T {
                let a = _mm512_set1_epi32(i32::from_le_bytes(now[t][j]));
                acc[t][j] = match BYTES {
                    true => _mm512_dpbusd_epi32(acc[t][j], w, a),
                    false => _mm512_dpwssd_epi32(acc[t][j], w, a),
                };
            }
        }
    }
    let mut out = [_mm512_setzero_si512(); T];
    for t in 0..T {
        for j in 0..S {
            out[t] = _mm512_add_epi32(out[t], acc[t][j]);
        }
    }
    out
}

#[inline]
fn steps_of<'a, const STEPS: usize>(group: &Group<'a>) -> &'a [Step; STEPS] {
    group.steps.first_chunk().expect("a group of steps")
}

#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn block<const T: usize, const S: usize, const STEPS: usize, const ZERO: bool, const BYTES: bool>(
    group: &Group<'_>,
    first: usize,
    s: &Scales,
    acc: &mut [TileAcc],
) {
    let codes = group.codes_of::<T, STEPS>(first);
    let sums = dot::<T, S, STEPS, BYTES>(steps_of(group), &codes);
    for t in 0..T {
        let mut sum = sums[t];
        if BYTES && !ZERO {
            sum = _mm512_add_epi32(sum, _mm512_set1_epi32(group.correction(first + t)));
        }
        chain::<ZERO>(group, first + t, _mm512_cvtepi32_ps(sum), s, &mut acc[first + t]);
    }
}

/// A8 against codes unpacked as bytes (`BYTES`), or words of codes against words of weights, one of
/// them of at most 8 bits.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn rows<const STEPS: usize, const ZERO: bool, const BYTES: bool>(group: &Group<'_>, acc: &mut [TileAcc]) {
    let s = scales::<ZERO>(group);
    let together = acc.len() / TOGETHER * TOGETHER;
    let mut first = 0;
    while first < together {
        block::<TOGETHER, 2, STEPS, ZERO, BYTES>(group, first, &s, acc);
        first += TOGETHER;
    }
    for i in together..acc.len() {
        block::<1, 8, STEPS, ZERO, BYTES>(group, i, &s, acc);
    }
}

/// 256·upper + lower, exact in f64, rounded once.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn join(upper: __m512i, lower: __m512i) -> __m512 {
    let a = join_half(_mm512_castsi512_si256(upper), _mm512_castsi512_si256(lower));
    let b = join_half(_mm512_extracti64x4_epi64::<1>(upper), _mm512_extracti64x4_epi64::<1>(lower));
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(a), b)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn join_half(upper: __m256i, lower: __m256i) -> __m256 {
    let (upper, lower) = (_mm512_cvtepi32_pd(upper), _mm512_cvtepi32_pd(lower));
    _mm512_cvtpd_ps(_mm512_fmadd_pd(upper, _mm512_set1_pd(256.0), lower))
}

/// `T` rows, in `PLANES` = 2·T planes: upper ones, then lower ones.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vnni")]
fn block_split_words<const T: usize, const PLANES: usize>(
    group: &Group<'_>,
    first: usize,
    s: &Scales,
    acc: &mut [TileAcc],
) {
    let sums = dot::<PLANES, 4, 64, false>(steps_of(group), &group.planes_of(first));
    for t in 0..T {
        chain::<false>(group, first + t, join(sums[t], sums[T + t]), s, &mut acc[first + t]);
    }
}

/// A16 against I16: each plane sums up in 32 bits.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
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
