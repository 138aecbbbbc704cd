//! Scalar functions of the contract (docs/arithmetic.md §0), each one fixed sequence of IEEE operations.
//!
//! They are branch-free and always inlined, so that a loop over them inside a function of [`crate::simd`]
//! becomes vector code of the same operations, hence of the same bits. `f32::max` and `min` are not used:
//! what they give for NaN and for ±0 differs between machines; selects are spelled out instead.

pub mod f64;
mod functions;
mod lanes;
mod tables;

pub use functions::{exp, gelu_tanh, log, log1p, sigmoid, silu, softplus, tanh};
pub use lanes::{LANES, lane_dot, lane_dot_wide, lane_sum, lane_sum_wide};
pub use tables::rope_table;

/// Floating-point operations of one [`exp`] (an fma counts two), for [`crate::Op::cost`].
pub const EXP_OPS: u64 = 18;

/// `a·b + c` with one rounding.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// Largest magnitude; 0 for nothing. Compares bit patterns, so the order of elements can't matter even with
/// NaN: a NaN anywhere gives NaN.
#[inline(always)]
pub fn amax(x: &[f32]) -> f32 {
    let mut top = 0u32;
    for &v in x {
        let magnitude = v.to_bits() & 0x7fff_ffff;
        top = if magnitude > top { magnitude } else { top };
    }
    f32::from_bits(top)
}

/// The f32 of a BF16 bit pattern, exactly.
#[inline(always)]
pub fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
