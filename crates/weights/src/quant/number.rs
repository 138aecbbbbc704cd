//! Number formats of scales and zeros, and rounding, the same on every machine.

use half::{bf16, f16};

/// Adding and subtracting this rounds a number of magnitude below 2^22 to an integer, halves to even: what
/// `rint` does, in two additions that every machine has as vector instructions.
const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23

/// `x` rounded to an integer, halves to even; |x| < 2^22.
#[inline(always)]
pub fn rint(x: f32) -> f32 {
    (x + ROUND) - ROUND
}

/// `x` rounded to an integer, halves to even; |x| < 2^22. (A cast would also test for NaN and saturate.)
#[inline(always)]
pub fn to_integer(x: f32) -> i32 {
    (x + ROUND).to_bits() as i32 - ROUND.to_bits() as i32
}

/// The smaller one; unlike `f32::min` a single instruction, as neither is a NaN here.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The larger one.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// ⌊log2 x⌋ of a finite x > 0, denormals included.
pub fn exponent(x: f32) -> i32 {
    // Every f32 is a normal number in f64.
    (f64::from(x).to_bits() >> 52) as i32 - 1023
}

/// 2^e for -1022 <= e <= 1023.
pub fn power_of_two(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The nearest bf16, by way of f32, halves to even.
pub fn to_bf16(x: f64) -> bf16 {
    bf16::from_f32(x as f32)
}

/// The nearest bf16 to span / steps; the next larger one where the nearest would leave more than `slack`
/// steps of the span outside. (The relative error of a normal bf16 is at most 2^-8, so that this happens near
/// the smallest bf16 only, where the nearest may also be 0.)
pub fn covering_step(span: f64, steps: f64, slack: f64) -> bf16 {
    let nearest = to_bf16(span / steps);
    if nearest.to_f64() * (steps + slack) >= span { nearest } else { bf16::from_bits(nearest.to_bits() + 1) }
}

/// The nearest f16 of a number in 0..=255.
pub fn to_f16(x: f32) -> f16 {
    f16::from_f32(x)
}

/// Sum of four lanes in a fixed order, in f64.
#[inline(always)]
pub fn lanes(sum: &[f32; 8]) -> f64 {
    let s = sum.map(f64::from);
    ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}
