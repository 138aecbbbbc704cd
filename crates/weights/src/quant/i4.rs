//! I4: codes -8..7 under one bf16 scale of either sign, chosen by search.
//!
//! Rounding to the nearest code under `scale = amax / 7.5` spends levels on the few largest weights. The
//! search tries smaller steps and both signs (the extra level -8 can serve either end), and fits each
//! candidate's scale to its codes by least squares. For codes q and values x, the squared error of scale s is
//! Σx² - 2s·Σxq + s²·Σq²: the part that depends on q and s is called *gain* and maximised.

use half::bf16;

use super::number::{exponent, lanes, max, min, power_of_two, rint, to_bf16, to_integer};

/// Weights that share a scale.
pub const GROUP: usize = 128;
/// Step sizes tried, from 0.5 to 1.0 times amax / 7.5, each with both signs.
const STEPS: usize = 26;
/// Candidates that are refined after the first pass.
const REFINED: usize = 3;

/// Codes and scale of up to 128 finite values. All zero (or so small that no bf16 scale fits): 0 and zeros.
pub fn quantise(values: &[f32], codes: &mut [i32]) -> bf16 {
    assert!(values.len() <= GROUP && codes.len() == values.len());
    codes.fill(0);
    let amax = values.iter().fold(0.0f32, |m, v| max(v.abs(), m));
    if amax == 0.0 {
        return bf16::ZERO;
    }
    // Between 1 and 2 at the largest, exactly: neither squares nor reciprocals leave the range of f32.
    let (unit, shrink) = (power_of_two(exponent(amax)), power_of_two(-exponent(amax)));
    let mut x = [0.0f32; GROUP];
    for (x, v) in x.iter_mut().zip(values) {
        *x = (f64::from(*v) * shrink) as f32;
    }
    let mut best = (0.0, bf16::ZERO);
    for first in promising(&x, (f64::from(amax) / unit) as f32) {
        let mut scale = to_bf16(first * unit);
        for _ in 0..2 {
            let s = f64::from(scale) / unit;
            if s == 0.0 || !s.is_finite() {
                break;
            }
            let (xq, qq) = sums(&x, (1.0 / s) as f32);
            let gain = s * (2.0 * xq - s * qq);
            if gain > best.0 {
                best = (gain, scale);
            }
            if qq == 0.0 {
                break;
            }
            scale = to_bf16(xq / qq * unit);
        }
    }
    if best.1 != bf16::ZERO {
        let scale = (f64::from(best.1) / unit) as f32;
        for (code, x) in codes.iter_mut().zip(&x) {
            *code = to_integer(min(max(x / scale, -8.0), 7.0));
        }
    }
    best.1
}

/// Least-squares scales of the candidates with the largest gains, best first, earlier ones first among
/// equals.
fn promising(x: &[f32; GROUP], amax: f32) -> [f64; REFINED] {
    let mut found = [(0.0f64, 0.0f64); REFINED];
    let mut offer = |xq: f64, qq: f64| {
        if qq > 0.0 {
            let (gain, scale) = (xq * xq / qq, xq / qq);
            let at = found.iter().position(|f| gain > f.0);
            if let Some(at) = at {
                found[at..].rotate_right(1);
                found[at] = (gain, scale);
            }
        }
    };
    for i in 0..STEPS {
        let step = amax * (0.5 + 0.02 * i as f32) / 7.5;
        let [up, down] = both_signs(x, 1.0 / step);
        offer(up.0, up.1);
        offer(down.0, down.1);
    }
    found.map(|f| f.1)
}

/// Σxq and Σq² for the codes of scale 1/inverse and, by its mirrored clamp, of scale -1/inverse (whose codes
/// are the negatives of those summed here, so that xq has the sign that makes the scale positive).
fn both_signs(x: &[f32; GROUP], inverse: f32) -> [(f64, f64); 2] {
    let (mut xp, mut pp, mut xn, mut nn) = ([0.0f32; 8], [0.0f32; 8], [0.0f32; 8], [0.0f32; 8]);
    for x in x.chunks_exact(8) {
        for l in 0..8 {
            let q = rint(x[l] * inverse);
            let (p, n) = (min(max(q, -8.0), 7.0), min(max(q, -7.0), 8.0));
            xp[l] += x[l] * p;
            pp[l] += p * p;
            xn[l] += x[l] * n;
            nn[l] += n * n;
        }
    }
    // Codes of a negative scale are -n: Σx·(-n) / Σn² is negative.
    [(lanes(&xp), lanes(&pp)), (-lanes(&xn), lanes(&nn))]
}

/// Σxq and Σq² for the codes of scale 1/inverse.
fn sums(x: &[f32; GROUP], inverse: f32) -> (f64, f64) {
    let (mut xq, mut qq) = ([0.0f32; 8], [0.0f32; 8]);
    for x in x.chunks_exact(8) {
        for l in 0..8 {
            let q = min(max(rint(x[l] * inverse), -8.0), 7.0);
            xq[l] += x[l] * q;
            qq[l] += q * q;
        }
    }
    (lanes(&xq), lanes(&qq))
}
