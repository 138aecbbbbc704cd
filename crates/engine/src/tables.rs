//! Tables made at load. All in f64 with the pinned functions, rounded once (docs/arithmetic.md §3).

use arch::Rope;
use checkpoint::RopeScaling;
use ops::math::f64 as wide;

/// The RoPE table of a model: f32 `[context, 2, rotary/2]`.
pub fn rope(rope: &Rope, context: usize) -> Vec<f32> {
    let (frequencies, factor) = frequencies(rope);
    ops::math::rope_table(&frequencies, context, factor)
}

/// Inverse frequencies of the pairs, and what cosines and sines are multiplied by.
fn frequencies(rope: &Rope) -> (Vec<f64>, f64) {
    let plain = |i: usize| wide::pow(rope.theta, -2.0 * i as f64 / rope.rotary as f64);
    let pairs = 0..rope.rotary / 2;
    match rope.scaling {
        RopeScaling::None => (pairs.map(plain).collect(), 1.0),
        RopeScaling::Linear { factor } => (pairs.map(|i| plain(i) / factor).collect(), 1.0),
        RopeScaling::Yarn {
            factor,
            original,
            beta_fast,
            beta_slow,
            attention_factor,
            mscale,
            mscale_all_dim,
            truncate,
        } => {
            let (low, high) = yarn_range(rope, original as f64, beta_fast, beta_slow, truncate);
            let frequency = |i: usize| {
                let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                plain(i) / factor * ramp + plain(i) * (1.0 - ramp)
            };
            let grown = |m: f64| if factor > 1.0 { 0.1 * m * wide::ln(factor) + 1.0 } else { 1.0 };
            let scale = attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dim) {
                (Some(m), Some(all)) => grown(m) / grown(all),
                _ => grown(1.0),
            });
            (pairs.map(frequency).collect(), scale)
        }
    }
}

/// Pairs between which YaRN goes from extrapolation to interpolation (families document, §0).
fn yarn_range(rope: &Rope, original: f64, beta_fast: f64, beta_slow: f64, truncate: bool) -> (f64, f64) {
    let dim = rope.rotary as f64;
    let correction = |turns: f64| {
        dim * wide::ln(original / (turns * 2.0 * std::f64::consts::PI)) / (2.0 * wide::ln(rope.theta))
    };
    let (mut low, mut high) = (correction(beta_fast), correction(beta_slow));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(dim - 1.0));
    if low == high {
        high += 0.001;
    }
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(scaling: RopeScaling) -> Rope {
        Rope { rotary: 64, theta: 150_000.0, scaling }
    }

    #[test]
    fn yarn_interpolates_slow_pairs_and_leaves_fast_ones() {
        let yarn = RopeScaling::Yarn {
            factor: 32.0,
            original: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: false,
        };
        let (plain, one) = frequencies(&model(RopeScaling::None));
        let (scaled, factor) = frequencies(&model(yarn));
        assert_eq!(one, 1.0);
        assert!((factor - 1.3466).abs() < 1e-4, "{factor}"); // published for gpt-oss
        assert_eq!(scaled[0], plain[0]);
        assert!((scaled[31] * 32.0 / plain[31] - 1.0).abs() < 1e-12);
        let (linear, _) = frequencies(&model(RopeScaling::Linear { factor: 4.0 }));
        assert!(linear.iter().zip(&plain).all(|(l, p)| *l == p / 4.0));
    }
}
