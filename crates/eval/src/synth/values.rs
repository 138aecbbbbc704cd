//! Random BF16 values: quantiles of a normal distribution, looked up by 16 random bits.

use base::philox::Philox;
use half::bf16;
use rayon::prelude::*;

/// Distribution of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    /// Normal with this mean and deviation.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
    },
    /// Uniform between the logarithms of 1 and 16 (A_log of linear attention, as published models start it).
    LogUniform,
}

/// Quantiles (i + ½) / 65536 of the standard normal distribution.
pub struct Quantiles(Vec<f64>);

impl Quantiles {
    /// Finds each by bisection of libm's erf: slow (some ten milliseconds) and plainly right.
    pub fn new() -> Self {
        let half: Vec<f64> =
            (0..32768u32).into_par_iter().map(|i| upper((f64::from(i) + 0.5) / 65536.0)).collect();
        Quantiles(half.iter().rev().map(|q| -q).chain(half.iter().copied()).collect())
    }

    /// BF16 bytes of every 16-bit number.
    pub fn table(&self, values: Values) -> Vec<[u8; 2]> {
        let entry = |(i, &q): (usize, &f64)| {
            let x = match values {
                Values::Normal { mean, deviation } => mean + q * deviation,
                Values::LogUniform => libm::log(1.0 + 15.0 * (i as f64 + 0.5) / 65536.0),
            };
            bf16::from_f64(x).to_le_bytes()
        };
        self.0.iter().enumerate().map(entry).collect()
    }
}

/// x ≥ 0 such that `above` of the standard normal distribution lies between 0 and x.
fn upper(above: f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 8.0f64);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if 0.5 * libm::erf(middle * std::f64::consts::FRAC_1_SQRT_2) < above {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Fills `out` with the values from byte `at` on (a multiple of 16) of stream `stream`: eight values per
/// Philox block, so that a value depends on its place only.
pub fn fill(out: &mut [u8], table: &[[u8; 2]], seed: u64, stream: u32, at: u64) {
    const PART: usize = 64 << 10;
    assert!(at.is_multiple_of(16) && table.len() == 1 << 16, "whole blocks and a whole table");
    let philox = Philox::new(seed);
    out.par_chunks_mut(PART).enumerate().for_each(|(i, part)| {
        let first = at / 16 + (i * PART / 16) as u64;
        for (block, piece) in (first..).zip(part.chunks_mut(16)) {
            let random = philox.block([block as u32, (block >> 32) as u32, stream, 0]);
            let mut bytes = [0u8; 16];
            for (word, four) in random.iter().zip(bytes.chunks_exact_mut(4)) {
                four[..2].copy_from_slice(&table[(word & 0xFFFF) as usize]);
                four[2..].copy_from_slice(&table[(word >> 16) as usize]);
            }
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Vec<f64> {
        bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f64()).collect()
    }

    #[test]
    fn quantiles_are_those_of_the_normal_distribution() {
        let q = Quantiles::new().0;
        assert_eq!(q.len(), 65536);
        assert!(q.windows(2).all(|w| w[0] < w[1]));
        // 84.134 % lie below one deviation, 97.725 % below two.
        assert!((q[55138] - 1.0).abs() < 1e-3 && (q[64045] - 2.0).abs() < 1e-3, "{} {}", q[55138], q[64045]);
    }

    #[test]
    fn values_have_their_distribution_and_depend_on_their_place_only() {
        let table = Quantiles::new().table(Values::Normal { mean: 0.5, deviation: 0.25 });
        let mut whole = vec![0u8; 400_006];
        fill(&mut whole, &table, 7, 3, 0);
        let values = decode(&whole);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!((mean - 0.5).abs() < 0.005 && (variance.sqrt() - 0.25).abs() < 0.005, "{mean} {variance}");
        let mut part = vec![0u8; 1000];
        fill(&mut part, &table, 7, 3, 160_000);
        assert_eq!(part, whole[160_000..161_000]);
        for (seed, stream) in [(8, 3), (7, 4)] {
            fill(&mut part, &table, seed, stream, 160_000);
            assert_ne!(part, whole[160_000..161_000]);
        }
        let log = decode(&Quantiles::new().table(Values::LogUniform).concat());
        assert!(log[0] < 1e-3 && (log[65535] - libm::log(16.0)).abs() < 1e-2);
    }
}
