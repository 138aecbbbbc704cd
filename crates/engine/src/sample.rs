//! Sampling with a defined order (docs/arithmetic.md §7). A token depends on the logits, the request's own
//! history and seed, and on its position: on nothing else.

use std::collections::{BTreeMap, BTreeSet};

use base::philox::Philox;
use base::{Refusal, Result};

/// How the next token is chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 = greedy.
    pub temperature: f32,
    /// Keep the k largest; 0 = all.
    pub top_k: usize,
    /// Keep the smallest prefix whose probabilities reach this share; 1 = all.
    pub top_p: f32,
    /// Keep tokens with at least this share of the best one's probability; 0 = all.
    pub min_p: f32,
    /// Logits of tokens seen anywhere before are divided (positive) or multiplied (negative) by this; 1 =
    /// off.
    pub repetition_penalty: f32,
    /// Subtracted from logits of generated tokens.
    pub presence_penalty: f32,
    /// Subtracted from logits of generated tokens, once per occurrence.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: 0,
        }
    }
}

impl Sampling {
    /// Refuses values without a meaning.
    pub fn check(&self, vocab: usize) -> Result<(), Refusal> {
        let within = |field: &str, value: f32, low: f32, high: f32| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Refusal::value(field, value, format!("{low} to {high}"), "choose a value in this range"))
        };
        within("temperature", self.temperature, 0.0, 100.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        within("top_p", self.top_p, f32::MIN_POSITIVE, 1.0)?;
        within("repetition_penalty", self.repetition_penalty, 0.01, 100.0)?;
        within("presence_penalty", self.presence_penalty, -100.0, 100.0)?;
        within("frequency_penalty", self.frequency_penalty, -100.0, 100.0)?;
        for (id, bias) in &self.logit_bias {
            within("logit_bias", *bias, -1000.0, 1000.0)?;
            if *id as usize >= vocab {
                let limit = format!("token ids below {vocab}");
                return Err(Refusal::value("logit_bias", id, limit, "use ids of this model's tokenizer"));
            }
        }
        Ok(())
    }
}

/// Chooses tokens of one request.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    philox: Philox,
    /// (token, times it was generated) by token; prompt tokens count 0. Has room for the whole vocabulary:
    /// choosing allocates nothing.
    seen: Vec<(u32, u32)>,
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler for a request with this prompt.
    pub fn new(sampling: Sampling, prompt: &[u32], vocab: usize) -> Result<Self, Refusal> {
        sampling.check(vocab)?;
        let mut seen = Vec::with_capacity(vocab);
        if sampling.repetition_penalty != 1.0 {
            let distinct: BTreeSet<u32> = prompt.iter().copied().collect();
            seen.extend(distinct.into_iter().map(|id| (id, 0)));
        }
        let philox = Philox::new(sampling.seed);
        Ok(Sampler { sampling, philox, seen, candidates: Vec::with_capacity(vocab) })
    }

    /// Chooses the token at `position` from `logits` `[vocab]`, and remembers it.
    pub fn next(&mut self, logits: &[f32], position: usize) -> u32 {
        self.candidates.clear();
        self.candidates.extend(logits.iter().zip(0u32..).map(|(l, id)| (*l, id)));
        self.adjust();
        let token = if self.sampling.temperature == 0.0 {
            // Ties go to the lower index: only a strictly larger logit replaces the best.
            let best = self.candidates.iter().copied().reduce(|a, b| if b.0 > a.0 { b } else { a });
            best.expect("a vocabulary is not empty").1
        } else {
            self.draw(position)
        };
        match self.seen.binary_search_by_key(&token, |(id, _)| *id) {
            Ok(at) => self.seen[at].1 += 1,
            Err(at) => self.seen.insert(at, (token, 1)),
        }
        token
    }

    /// Penalties, then bias.
    fn adjust(&mut self) {
        let s = &self.sampling;
        for (id, times) in &self.seen {
            let Some((logit, _)) = self.candidates.get_mut(*id as usize) else { continue };
            if s.repetition_penalty != 1.0 {
                *logit =
                    if *logit > 0.0 { *logit / s.repetition_penalty } else { *logit * s.repetition_penalty };
            }
            if *times > 0 {
                *logit -= s.presence_penalty;
                *logit -= s.frequency_penalty * *times as f32;
            }
        }
        for (id, bias) in &s.logit_bias {
            self.candidates[*id as usize].0 += bias;
        }
    }

    /// Temperature, top-k, top-p, min-p, then one draw. Candidates are sorted by logit, then id; sums run in
    /// that order.
    fn draw(&mut self, position: usize) -> u32 {
        let s = &self.sampling;
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        for (logit, _) in &mut self.candidates {
            *logit /= s.temperature;
            // A zero must not sort below its twin because of a sign.
            *logit += 0.0;
        }
        if s.top_k > 0 && s.top_k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(s.top_k - 1, order);
            self.candidates.truncate(s.top_k);
        }
        self.candidates.sort_unstable_by(order);
        let best = self.candidates[0].0;
        let mut total = 0.0f32;
        for (weight, _) in &mut self.candidates {
            *weight = ops::math::exp(*weight - best);
            total += *weight;
        }
        self.cut(total);
        let total: f32 = self.candidates.iter().fold(0.0, |sum, (w, _)| sum + w);
        let unit = (self.philox.at(4 * position as u64) >> 8) as f32 * (1.0 / 16_777_216.0);
        let target = unit * total;
        let mut sum = 0.0;
        for (weight, id) in &self.candidates {
            sum += weight;
            if sum > target {
                return *id;
            }
        }
        self.candidates.last().expect("at least one candidate is kept").1
    }

    /// top-p, then min-p, on weights relative to the best; at least one candidate stays.
    fn cut(&mut self, total: f32) {
        if self.sampling.top_p < 1.0 {
            let reach = self.sampling.top_p * total;
            let mut sum = 0.0;
            let keep = self.candidates.iter().position(|(w, _)| {
                sum += w;
                sum >= reach
            });
            self.candidates.truncate(keep.map_or(self.candidates.len(), |k| k + 1));
        }
        let least = self.sampling.min_p;
        let keep = self.candidates.iter().take_while(|(w, _)| *w >= least).count();
        self.candidates.truncate(keep.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(sampling: Sampling) -> Sampler {
        Sampler::new(sampling, &[1, 2], 5).unwrap()
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        let mut s = sampler(Sampling::default());
        assert_eq!(s.next(&[0.0, 3.0, 3.0, -1.0, 2.0], 0), 1);
    }

    #[test]
    fn penalties_and_bias_act_before_the_choice() {
        let mut s = sampler(Sampling { frequency_penalty: 1.0, ..Sampling::default() });
        assert_eq!(s.next(&[0.0, 3.0, 2.5, 0.0, 0.0], 0), 1);
        assert_eq!(s.next(&[0.0, 3.0, 2.5, 0.0, 0.0], 1), 2, "one occurrence costs 1");
        let mut s = sampler(Sampling { repetition_penalty: 2.0, ..Sampling::default() });
        assert_eq!(s.next(&[1.0, 1.9, 0.0, 0.0, 0.0], 0), 0, "prompt tokens count as seen");
        let bias = BTreeMap::from([(3, 10.0)]);
        let mut s = sampler(Sampling { logit_bias: bias, ..Sampling::default() });
        assert_eq!(s.next(&[1.0, 1.9, 0.0, 0.0, 0.0], 0), 3);
    }

    #[test]
    fn a_draw_depends_on_seed_and_position_alone() {
        let logits = [0.5, 0.4, 0.3, 0.2, 0.1];
        let with = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
        let mut warm = sampler(with(9));
        for position in 0..20 {
            warm.next(&logits, position);
        }
        let picks: Vec<u32> = (0..40).map(|p| sampler(with(9)).next(&logits, p)).collect();
        assert_eq!(warm.next(&logits, 7), picks[7]);
        assert!((0..5).all(|id| picks.contains(&id)), "all tokens are drawn at times: {picks:?}");
        let other: Vec<u32> = (0..40).map(|p| sampler(with(10)).next(&logits, p)).collect();
        assert_ne!(picks, other);
    }

    #[test]
    fn cuts_keep_what_they_say() {
        let logits = [4.0, 3.0, 2.0, 1.0, 0.0];
        let drawn = |sampling: Sampling| {
            let mut seen: Vec<u32> = (0..300).map(|p| sampler(sampling.clone()).next(&logits, p)).collect();
            seen.sort_unstable();
            seen.dedup();
            seen
        };
        let hot = Sampling { temperature: 50.0, ..Sampling::default() };
        assert_eq!(drawn(Sampling { top_k: 2, ..hot.clone() }), [0, 1]);
        assert_eq!(drawn(Sampling { top_p: 0.5, ..hot.clone() }), [0, 1, 2]);
        let cold = Sampling { temperature: 1.0, ..Sampling::default() };
        assert_eq!(drawn(Sampling { min_p: 0.3, ..cold }), [0, 1]);
        assert_eq!(drawn(hot), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (sampling, field) in [
            (Sampling { temperature: -1.0, ..Sampling::default() }, "temperature"),
            (Sampling { temperature: f32::NAN, ..Sampling::default() }, "temperature"),
            (Sampling { top_p: 0.0, ..Sampling::default() }, "top_p"),
            (Sampling { min_p: 1.5, ..Sampling::default() }, "min_p"),
            (Sampling { logit_bias: BTreeMap::from([(5, 1.0)]), ..Sampling::default() }, "logit_bias"),
        ] {
            let error = Sampler::new(sampling, &[], 5).unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
    }
}
