//! Measures of how far two sets of logits are apart. All in f64 with the pinned libm, so that a report is the
//! same on every machine.

/// Relative root mean square ‖a−b‖ / ‖b‖ over everything added.
#[derive(Debug, Clone, Copy, Default)]
pub struct RelativeRms {
    error: f64,
    norm: f64,
}

impl RelativeRms {
    /// Adds a row of ours and the row that it is measured against.
    pub fn add(&mut self, ours: &[f32], theirs: &[f32]) {
        assert_eq!(ours.len(), theirs.len(), "rows of equal length");
        for (&a, &b) in ours.iter().zip(theirs) {
            let (a, b) = (f64::from(a), f64::from(b));
            self.error += (a - b) * (a - b);
            self.norm += b * b;
        }
    }

    /// The measure; 0 if both sides are all zero or nothing was added.
    pub fn value(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { (self.error / self.norm).sqrt() }
    }
}

/// A mean over everything added.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    /// Adds one value.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// The sum so far.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// The mean, if anything was added.
    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Index of the largest value; of equal ones the first.
pub fn argmax(row: &[f32]) -> u32 {
    let mut best = 0;
    for (i, &x) in row.iter().enumerate() {
        if x > row[best] {
            best = i;
        }
    }
    best as u32
}

/// Logarithm of the sum of exponentials.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&x| libm::exp(f64::from(x) - max)).sum();
    max + libm::log(sum)
}

/// Negative log-likelihood, in nats, of `target` under `logits`.
pub fn nll(logits: &[f32], target: u32) -> f64 {
    log_sum_exp(logits) - f64::from(logits[target as usize])
}

/// KL(reference‖ours) in nats, the reference as log-probabilities. They may be rounded (a witness stores
/// f16), so the sum of their probabilities need not be exactly 1 and the result may fall slightly below 0.
pub fn kl_of_logprobs(reference: &[f32], ours: &[f32]) -> f64 {
    assert_eq!(reference.len(), ours.len(), "rows of equal length");
    let norm = log_sum_exp(ours);
    let term = |(&r, &o): (&f32, &f32)| {
        let r = f64::from(r);
        let p = libm::exp(r);
        // A probability that underflows takes part with nothing, whatever its logarithm.
        if p == 0.0 { 0.0 } else { p * (r - (f64::from(o) - norm)) }
    };
    reference.iter().zip(ours).map(term).sum()
}

/// KL(reference‖ours) in nats of two rows of logits.
pub fn kl_of_logits(reference: &[f32], ours: &[f32]) -> f64 {
    assert_eq!(reference.len(), ours.len(), "rows of equal length");
    let (norm_r, norm_o) = (log_sum_exp(reference), log_sum_exp(ours));
    let term = |(&r, &o): (&f32, &f32)| {
        let log_p = f64::from(r) - norm_r;
        libm::exp(log_p) * (log_p - (f64::from(o) - norm_o))
    };
    reference.iter().zip(ours).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn relative_rms_is_the_ratio_of_norms() {
        let mut rms = RelativeRms::default();
        assert_eq!(rms.value(), 0.0);
        rms.add(&[3.0, 4.0], &[3.0, 4.0]);
        assert_eq!(rms.value(), 0.0);
        rms.add(&[1.0], &[0.0]);
        assert!(close(rms.value(), 0.2), "{}", rms.value());
        rms.add(&[f32::NAN], &[1.0]);
        assert!(rms.value().is_nan());
    }

    #[test]
    fn the_first_of_equal_largest_values_wins() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, -1.0]), 1);
        assert_eq!(argmax(&[-5.0]), 0);
    }

    #[test]
    fn likelihoods_of_a_known_row() {
        // Probabilities 1/4, 1/4, 1/2.
        let logits = [0.0, 0.0, std::f32::consts::LN_2];
        assert!(close(nll(&logits, 2), std::f64::consts::LN_2));
        assert!(close(nll(&logits, 0), 2.0 * std::f64::consts::LN_2));
        let shifted: Vec<f32> = logits.iter().map(|x| x + 80.0).collect();
        assert!((nll(&shifted, 2) - std::f64::consts::LN_2).abs() < 1e-4);
    }

    #[test]
    fn divergence_is_zero_only_for_the_same_distribution() {
        let (a, b) = ([0.0, 1.0, 2.0], [2.0, 1.0, 0.0]);
        assert!(close(kl_of_logits(&a, &a), 0.0));
        // p = softmax(a), KL = Σ p (a − b) since both have the same normaliser.
        let z: f64 = [0.0f64, 1.0, 2.0].iter().map(|x| x.exp()).sum();
        let expected = (0.0f64.exp() * -2.0 + 2.0f64.exp() * 2.0) / z;
        assert!(close(kl_of_logits(&a, &b), expected), "{}", kl_of_logits(&a, &b));
        let logprobs: Vec<f32> = a.iter().map(|&x| (f64::from(x) - z.ln()) as f32).collect();
        assert!(close(kl_of_logprobs(&logprobs, &b), expected));
        assert!(kl_of_logprobs(&[0.0, f32::NEG_INFINITY], &[0.0, 0.0]).is_finite());
    }
}
