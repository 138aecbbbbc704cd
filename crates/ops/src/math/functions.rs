//! exp and its family. The coefficients are minimax fits rounded to f32 one after the other (the rest
//! refitted after each); the sweep checks every one of the 2^32 inputs of each function against f64.

use super::fma;

/// log2(e).
const LOG2E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln 2 cut to 15 significant bits, so that `n·LN2_HI` is exact for every n of `exp`.
const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
/// ln 2 - LN2_HI.
const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);
/// ln 2.
const LN2: f32 = f32::from_bits(0x3f31_7218);
/// Below this `exp` gives 0: all results above it are normal numbers.
const EXP_LOWEST: f32 = -87.3;
/// Above this `exp` gives +inf: the largest input whose exponential is below 2^128.
const EXP_HIGHEST: f32 = f32::from_bits(0x42b1_7217);
/// 1.5·2^23: added to a small whole number it leaves that number in the low bits.
const ROUNDER: f32 = 12_582_912.0;
/// `(e^r - 1 - r) / r²`, lowest power first, |r| ≤ ln2/2.
const EXP: [u32; 5] = [0x3eff_fffe, 0x3e2a_aa49, 0x3d2a_ac57, 0x3c09_1cc1, 0x3ab5_2795];
/// `((ln(1+f) - f) / f² + 1/2) / f`, lowest power first, √½ - 1 ≤ f < √2 - 1.
const LOG: [u32; 8] =
    [0x3eaa_aaaa, 0xbe80_0114, 0x3e4c_d00e, 0xbe2a_3907, 0x3e11_6c74, 0xbe06_c328, 0x3e02_b136, 0xbd9c_5f92];
/// `(tanh(a) - a) / a³` in powers of a², lowest first, a ≤ [`TANH_SPLIT`].
const TANH: [u32; 5] = [0xbeaa_aa99, 0x3e08_837f, 0xbd5c_1bc9, 0x3ca9_051d, 0xbbba_b68a];
/// From here on `tanh` goes through `exp`.
const TANH_SPLIT: f32 = 0.625;
/// Bits of √½: mantissas are taken from [√½, √2).
const SQRT_HALF: u32 = 0x3f35_04f3;
/// Sign and exponent of an f32.
const EXPONENT: u32 = 0xff80_0000;
/// 2^-23.
const ULP_OF_ONE: f32 = f32::from_bits(0x3400_0000);
/// 2·√(2/π).
const GELU_1: f32 = f32::from_bits(0x3fcc_422a);
/// 2·√(2/π)·0.044715.
const GELU_3: f32 = f32::from_bits(0x3d92_2279);

/// Horner's scheme in fma from the highest power down.
#[inline(always)]
fn horner<const N: usize>(coefficients: [u32; N], x: f32) -> f32 {
    let mut p = f32::from_bits(coefficients[N - 1]);
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        p = fma(p, x, f32::from_bits(coefficients[i]));
    }
    p
}

/// Makes every NaN the one quiet NaN 0x7fc00000, so that results are bits on every machine.
#[inline(always)]
fn one_nan(x: f32) -> f32 {
    if x.is_nan() { f32::NAN } else { x }
}

/// e^x. Below -87.3 it gives 0, at overflow +inf.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let n = (x * LOG2E).round_ties_even();
    let r = fma(n, -LN2_LO, fma(n, -LN2_HI, x));
    let p = fma(fma(horner(EXP, r), r, 1.0), r, 1.0);
    // n sits in the low bits of n + ROUNDER; shifted, it is what 2^n adds to the exponent field.
    let shift = (n + ROUNDER).to_bits() << 23;
    let y = f32::from_bits(p.to_bits().wrapping_add(shift));
    let y = if x < EXP_LOWEST { 0.0 } else { y };
    let y = if x > EXP_HIGHEST { f32::INFINITY } else { y };
    if x.is_nan() { f32::NAN } else { y }
}

/// `ln(1+f) + k·ln 2` for a mantissa 1+f in [√½, √2).
#[inline(always)]
fn log_of_parts(f: f32, k: f32) -> f32 {
    let p = fma(horner(LOG, f), f, -0.5);
    fma(k, LN2, fma(p, f * f, f))
}

/// Natural logarithm: -inf for ±0, NaN below 0.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let small = x < f32::MIN_POSITIVE;
    let bits = (if small { x * 8_388_608.0 } else { x }).to_bits();
    let e = bits.wrapping_sub(SQRT_HALF) & EXPONENT;
    let m = f32::from_bits(bits.wrapping_sub(e));
    let k = fma(e as i32 as f32, ULP_OF_ONE, if small { -23.0 } else { 0.0 });
    let y = log_of_parts(m - 1.0, k);
    let y = if x == f32::INFINITY { f32::INFINITY } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

/// `ln(1+x)`: -inf for -1, NaN below -1, +0 for ±0.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let e = (1.0 + x).to_bits().wrapping_sub(SQRT_HALF) & EXPONENT;
    // 1+x = 2^k·(1+f), so f = x·2^-k + (2^-k - 1): the rounding of 1+x never enters.
    let scaled = f32::from_bits(x.to_bits().wrapping_sub(e));
    let less_one = fma(0.25, f32::from_bits(4.0f32.to_bits().wrapping_sub(e)), -1.0);
    let y = log_of_parts(scaled + less_one, e as i32 as f32 * ULP_OF_ONE);
    let y = if x == f32::INFINITY { f32::INFINITY } else { y };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if x >= -1.0 { y } else { f32::NAN }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    one_nan(1.0 / (1.0 + exp(-x)))
}

/// `x / (1 + e^-x)`; NaN for -inf.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    one_nan(x / (1.0 + exp(-x)))
}

/// `max(x, 0) + log1p(e^-|x|)`.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    one_nan(positive + log1p(exp(-x.abs())))
}

/// Hyperbolic tangent: an odd polynomial below 0.625, `1 - 2/(1 + e^2|x|)` above, then the sign of x.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let near = fma(horner(TANH, z) * z, a, a);
    let far = 1.0 - 2.0 / (1.0 + exp(a + a));
    let y = if a < TANH_SPLIT { near } else { far };
    let signed = f32::from_bits(y.to_bits() | (x.to_bits() & 0x8000_0000));
    if x.is_nan() { f32::NAN } else { signed }
}

/// `x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`, written as `x / (1 + e^-z)` with z twice that argument: the
/// same function without the cancellation at negative x. NaN for -inf.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let z = x * fma(x * x, GELU_3, GELU_1);
    one_nan(x / (1.0 + exp(-z)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_states_these_constants() {
        let document = include_str!("../../../../docs/arithmetic.md");
        let single = [LOG2E, LN2, LN2_HI, LN2_LO, EXP_HIGHEST, GELU_1, GELU_3].map(f32::to_bits);
        let constants = single.into_iter().chain([SQRT_HALF]).map(|c| vec![c]);
        for list in constants.chain([EXP.to_vec(), LOG.to_vec(), TANH.to_vec()]) {
            let words: Vec<String> = list.iter().map(|c| format!("{c:08x}")).collect();
            let words = format!("`{}`", words.join(" "));
            assert!(document.contains(&words), "{words}");
        }
    }
}
