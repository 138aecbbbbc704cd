//! Every input of every scalar function against f64, and a digest of all outputs (docs/arithmetic.md §0).
//!
//! `cargo xtask sweep` runs all 2^32 inputs; the tests here run a sample. Both compare with math/sweep.txt.

use crate::math::f64 as wide;

mod run;

use crate::simd::per_level;
use crate::{Level, math};
pub use run::{Committed, Outcome, main, of_all, of_sample};

/// A scalar function of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// [`math::exp`]
    Exp,
    /// [`math::log`]
    Log,
    /// [`math::log1p`]
    Log1p,
    /// [`math::sigmoid`]
    Sigmoid,
    /// [`math::silu`]
    Silu,
    /// [`math::softplus`]
    Softplus,
    /// [`math::tanh`]
    Tanh,
    /// [`math::gelu_tanh`]
    GeluTanh,
}

/// How far a result may be from the true value: the larger of the two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// In units of the last place of the true value as a normal f32.
    pub ulps: f64,
    /// Absolute.
    pub absolute: f64,
}

impl Function {
    /// All functions.
    pub const ALL: [Function; 8] = [
        Function::Exp,
        Function::Log,
        Function::Log1p,
        Function::Sigmoid,
        Function::Silu,
        Function::Softplus,
        Function::Tanh,
        Function::GeluTanh,
    ];

    /// Name in the committed results.
    pub const fn name(self) -> &'static str {
        match self {
            Function::Exp => "exp",
            Function::Log => "log",
            Function::Log1p => "log1p",
            Function::Sigmoid => "sigmoid",
            Function::Silu => "silu",
            Function::Softplus => "softplus",
            Function::Tanh => "tanh",
            Function::GeluTanh => "gelu_tanh",
        }
    }

    /// The bound that the sweep checks.
    pub const fn bound(self) -> Bound {
        let (ulps, absolute) = match self {
            Function::Exp => (1.0, 1.3e-38),
            Function::Log => (1.0, 0.0),
            Function::Log1p => (1.5, 0.0),
            Function::Sigmoid => (2.6, 3e-39),
            Function::Silu => (2.5, 3e-37),
            Function::Softplus => (2.0, 1.3e-38),
            Function::Tanh => (1.5, 0.0),
            Function::GeluTanh => (2.5, 5e-8),
        };
        Bound { ulps, absolute }
    }

    /// The defined result.
    #[inline(always)]
    pub fn of(self, x: f32) -> f32 {
        match self {
            Function::Exp => math::exp(x),
            Function::Log => math::log(x),
            Function::Log1p => math::log1p(x),
            Function::Sigmoid => math::sigmoid(x),
            Function::Silu => math::silu(x),
            Function::Softplus => math::softplus(x),
            Function::Tanh => math::tanh(x),
            Function::GeluTanh => math::gelu_tanh(x),
        }
    }

    /// The true value in f64, from libm.
    pub fn exact(self, x: f64) -> f64 {
        match self {
            Function::Exp => wide::exp(x),
            Function::Log => wide::ln(x),
            Function::Log1p => wide::log1p(x),
            Function::Sigmoid => 1.0 / (1.0 + wide::exp(-x)),
            Function::Silu => x / (1.0 + wide::exp(-x)),
            Function::Softplus => x.max(0.0) + wide::log1p(wide::exp(-x.abs())),
            Function::Tanh => wide::tanh(x),
            Function::GeluTanh => {
                let z = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
                x / (1.0 + wide::exp(-z))
            }
        }
    }
}

/// One unit in the last place of `x` as an f32 with an unbounded exponent above and denormals below.
fn ulp(x: f64) -> f64 {
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    f64::from_bits(((exponent.clamp(-126, 127) - 23 + 1023) as u64) << 52)
}

/// Error of `got` against the true value `want`, in ulps of `want`; infinite where a special value is wrong.
pub fn error_ulps(got: f32, want: f64) -> f64 {
    let right = if want.is_nan() {
        got.to_bits() == f32::NAN.to_bits()
    } else if got.is_infinite() || want.is_infinite() {
        // Overflow starts above the largest f32.
        got.is_infinite() && f64::from(got) * want > 0.0 && want.abs() > f64::from(f32::MAX)
    } else {
        return (f64::from(got) - want).abs() / ulp(want);
    };
    if right { 0.0 } else { f64::INFINITY }
}

/// `y = f(x)` for every element, with the vector code of `level`.
pub fn apply(f: Function, level: Level, x: &[f32], y: &mut [f32]) {
    per_level!(level, body(f: Function, x: &[f32], y: &mut [f32]))
}

#[inline(always)]
fn body(f: Function, x: &[f32], y: &mut [f32]) {
    match f {
        Function::Exp => map(x, y, math::exp),
        Function::Log => map(x, y, math::log),
        Function::Log1p => map(x, y, math::log1p),
        Function::Sigmoid => map(x, y, math::sigmoid),
        Function::Silu => map(x, y, math::silu),
        Function::Softplus => map(x, y, math::softplus),
        Function::Tanh => map(x, y, math::tanh),
        Function::GeluTanh => map(x, y, math::gelu_tanh),
    }
}

#[inline(always)]
fn map(x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = f(*x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The whole sweep takes an hour of a core; this sample meets every exponent and every edge.
    #[test]
    fn a_sample_of_each_function_has_the_committed_digest_on_every_level() {
        let committed = Committed::here();
        for f in Function::ALL {
            for level in Level::available().filter(|l| *l > Level::Scalar || Level::detect() == *l) {
                let digest = of_sample(f, level).to_string();
                assert_eq!(Some(&digest), committed.sample(f), "{} on {}", f.name(), level.name());
            }
        }
    }

    #[test]
    fn a_sample_of_each_function_keeps_its_bound_and_is_the_same_in_scalar_code() {
        let inputs: Vec<f32> = (0..1u32 << 20).map(|i| f32::from_bits(i.wrapping_mul(4095))).collect();
        for f in Function::ALL {
            let found = run::Findings::of(f, &inputs, &mut vec![0.0; inputs.len()]);
            assert_eq!(found.complaint(f), None);
        }
    }

    #[test]
    fn the_document_states_these_bounds() {
        let document = include_str!("../../../docs/arithmetic.md");
        for f in Function::ALL {
            let Bound { ulps, absolute } = f.bound();
            let row = format!("| {} | {ulps} | {absolute:e} |", f.name());
            assert!(document.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_planted_error_is_found() {
        let inputs = [0.5f32, 1.0, 2.0];
        let mut found = run::Findings::default();
        for (x, flipped) in inputs.iter().zip([0, 0, 4]) {
            let y = f32::from_bits(math::exp(*x).to_bits() ^ flipped);
            found.judge(Function::Exp, *x, y);
        }
        assert_eq!(found.outside, Some(2.0f32.to_bits()));
        assert!(found.complaint(Function::Exp).is_some_and(|c| c.contains("0x40000000")));
    }

    #[test]
    fn special_values() {
        let nan = f32::NAN.to_bits();
        for f in Function::ALL {
            assert_eq!(f.of(f32::from_bits(0xffc1_2345)).to_bits(), nan, "{}", f.name());
        }
        assert_eq!([math::exp(0.0), math::exp(-0.0)], [1.0, 1.0]);
        assert_eq!([math::exp(-87.31), math::exp(f32::NEG_INFINITY)], [0.0, 0.0]);
        assert_eq!([math::exp(88.73), math::exp(f32::INFINITY)], [f32::INFINITY; 2]);
        assert!(math::exp(88.722_83).is_finite());
        assert_eq!([math::log(1.0), math::log1p(0.0), math::log1p(-0.0)].map(f32::to_bits), [0; 3]);
        assert_eq!([math::log(0.0), math::log(-0.0), math::log1p(-1.0)], [f32::NEG_INFINITY; 3]);
        assert_eq!([math::log(f32::INFINITY), math::log1p(f32::INFINITY)], [f32::INFINITY; 2]);
        assert_eq!([math::log(-1.0), math::log1p(-1.5)].map(f32::to_bits), [nan; 2]);
        assert_eq!([math::sigmoid(0.0), math::sigmoid(90.0), math::sigmoid(-90.0)], [0.5, 1.0, 0.0]);
        assert_eq!([math::tanh(-20.0), math::tanh(20.0)], [-1.0, 1.0]);
        assert_eq!(math::tanh(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!([math::softplus(-90.0), math::softplus(100.0)], [0.0, 100.0]);
    }
}
