//! I8 and I16: symmetric codes under a scale that covers the group's largest magnitude.

use half::bf16;

use super::number::{covering_step, exponent, max, min, power_of_two, to_integer};

/// Weights that share a scale.
pub const GROUP: usize = 128;
/// Exponent of the smallest bf16.
const SMALLEST: i32 = -133;

/// I8: scale amax / 127 as the nearest bf16. Rounded down, that leaves the largest weight at most 127 · 2^-8
/// < 0.5 steps beyond code 127, no more than rounding to a code may lose; where the smallest bf16 are too far
/// apart for that, the next larger one is taken. So no weight is off by more than half a step.
pub fn quantise_i8(values: &[f32], codes: &mut [i32]) -> bf16 {
    let amax = largest(values);
    let scale = if amax == 0.0 { bf16::ZERO } else { covering_step(f64::from(amax), 127.0, 0.5) };
    divide(values, scale, 127.0, codes);
    scale
}

/// I16: scale 2^(⌊log2 amax⌋ - 14), not below the smallest bf16. Weights of a bf16 source are exact down to
/// 2^-7 of the largest one; only an f32 source can reach the clamp, and loses at most one step there.
pub fn quantise_i16(values: &[f32], codes: &mut [i32]) -> bf16 {
    let amax = largest(values);
    let scale = if amax == 0.0 {
        bf16::ZERO
    } else {
        bf16::from_f64(power_of_two((exponent(amax) - 14).max(SMALLEST)))
    };
    divide(values, scale, 32767.0, codes);
    scale
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |m, v| max(v.abs(), m))
}

fn divide(values: &[f32], scale: bf16, top: f32, codes: &mut [i32]) {
    assert!(values.len() <= GROUP && codes.len() == values.len());
    if scale == bf16::ZERO {
        return codes.fill(0);
    }
    let scale = scale.to_f32();
    for (code, v) in codes.iter_mut().zip(values) {
        *code = to_integer(min(max(v / scale, -top), top));
    }
}
