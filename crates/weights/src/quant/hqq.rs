//! H4, H6, H8: unsigned codes under a bf16 scale and an f16 zero; a weight is `(code - zero) · scale`.
//!
//! HQQ alternates between codes and zero under a fixed scale. Its proximal step is idle here: with its usual
//! parameters it acts on residuals above 0.17 only, which no real weight has, so that the zero is the
//! least-squares fit to the codes. This fits scale **and** zero to the codes by least squares, from several
//! first ranges, and keeps the pair with the smallest squared error. On attention weights of trained models
//! that is 0.34 dB (H4), 0.15 dB (H6) and 0.26 dB (H8) better than fitting the zero alone.

use half::{bf16, f16};

use super::number::{
    covering_step, exponent, lanes, max, min, power_of_two, rint, to_bf16, to_f16, to_integer,
};

/// Weights that share a scale and a zero.
pub const GROUP: usize = 64;
/// First ranges tried: the full range without so many steps, half of them at each end.
const CUTS: [f64; 4] = [0.0, 0.8, 1.7, 2.6];
/// Fits from each first range.
const FITS: usize = 3;

/// The group in units of 2^e (1 to 2 at the largest magnitude), with room for zeros behind a short one.
struct Scaled {
    x: [f32; GROUP],
    count: usize,
    unit: f64,
}

/// Scale and zero, and the squared error under them, in the group's units.
#[derive(Clone, Copy)]
struct Fit {
    scale: bf16,
    zero: f16,
    error: f64,
}

/// Codes, scale and zero of up to 64 finite values; codes are 0..2^bits-1. All zero: scale, zero and codes 0.
pub fn quantise(bits: usize, values: &[f32], codes: &mut [i32]) -> (bf16, f16) {
    assert!(values.len() <= GROUP && codes.len() == values.len());
    let low = values.iter().fold(0.0f32, |m, v| min(*v, m));
    let high = values.iter().fold(0.0f32, |m, v| max(*v, m));
    if low == high {
        codes.fill(0);
        return (bf16::ZERO, f16::ZERO);
    }
    let e = exponent(max(-low, high));
    let (unit, shrink) = (power_of_two(e), power_of_two(-e));
    let mut scaled = Scaled { x: [0.0; GROUP], count: values.len(), unit };
    for (x, v) in scaled.x.iter_mut().zip(values) {
        *x = (f64::from(*v) * shrink) as f32;
    }
    let top = ((1u32 << bits) - 1) as f32;
    let best = scaled.search(f64::from(low), f64::from(high), top);
    let (scale, zero) = ((best.scale.to_f64() * shrink) as f32, best.zero.to_f32());
    for (code, x) in codes.iter_mut().zip(&scaled.x) {
        *code = to_integer(min(max(x / scale + zero, 0.0), top));
    }
    (best.scale, best.zero)
}

impl Scaled {
    /// The best of all first ranges and their fits. `top` is the largest code.
    fn search(&self, low: f64, high: f64, top: f32) -> Fit {
        let steps = f64::from(top);
        let mut best = Fit { scale: bf16::ZERO, zero: f16::ZERO, error: f64::INFINITY };
        for cut in CUTS {
            let cut = cut / steps * (high - low);
            let mut scale = covering_step(high - low - cut, steps, 1.0);
            let mut zero = bounded((-low - cut / 2.0) / scale.to_f64(), top);
            for _ in 0..=FITS {
                let residuals = self.residuals((scale.to_f64() / self.unit) as f32, zero.to_f32(), top);
                let error = residuals.squares * (scale.to_f64() / self.unit).powi(2);
                if error < best.error {
                    best = Fit { scale, zero, error };
                }
                let Some((slope, offset)) = residuals.line(self.count as f64) else { break };
                scale = to_bf16(scale.to_f64() * (1.0 + slope));
                if scale.to_f64() <= 0.0 || !scale.is_finite() {
                    break;
                }
                zero = bounded((zero.to_f64() - offset) / (1.0 + slope), top);
            }
        }
        best
    }

    /// What the codes leave over, in units of `scale`. The zeros behind a short group count as weights of no
    /// residual with code 0.
    fn residuals(&self, scale: f32, zero: f32, top: f32) -> Residuals {
        let inverse = 1.0 / scale;
        let (mut r1, mut r2, mut rq) = ([0.0f32; 8], [0.0f32; 8], [0.0f32; 8]);
        let (mut q1, mut q2) = ([0.0f32; 8], [0.0f32; 8]);
        let whole = self.count / 8 * 8;
        let mut add = |l: usize, x: f32| {
            let place = x * inverse + zero;
            let q = rint(min(max(place, 0.0), top));
            let r = place - q;
            r1[l] += r;
            r2[l] += r * r;
            rq[l] += r * q;
            q1[l] += q;
            q2[l] += q * q;
        };
        for x in self.x[..whole].chunks_exact(8) {
            for l in 0..8 {
                add(l, x[l]);
            }
        }
        for (l, x) in self.x[whole..self.count].iter().enumerate() {
            add(l, *x);
        }
        Residuals {
            sum: lanes(&r1),
            squares: lanes(&r2),
            by_code: lanes(&rq),
            codes: lanes(&q1),
            code_squares: lanes(&q2),
        }
    }
}

/// Sums over a group: residual r and code q.
struct Residuals {
    sum: f64,
    squares: f64,
    by_code: f64,
    codes: f64,
    code_squares: f64,
}

impl Residuals {
    /// Slope and offset of the least-squares line r ≈ offset + slope · q; a slope of 0 if all codes are
    /// equal. None if there is nothing left to fit.
    fn line(&self, n: f64) -> Option<(f64, f64)> {
        if self.squares == 0.0 {
            return None;
        }
        let spread = self.code_squares * n - self.codes * self.codes;
        let slope = if spread > 0.0 { (self.by_code * n - self.sum * self.codes) / spread } else { 0.0 };
        (slope > -1.0).then(|| (slope, (self.sum - slope * self.codes) / n))
    }
}

/// The zero as f16 inside the codes' range, so that weight 0 is always inside.
fn bounded(zero: f64, top: f32) -> f16 {
    to_f16(min(max(zero as f32, 0.0), top))
}
