//! Routing that repeats as that of real models does, and what an expert cache can make of it.
//!
//! Each layer keeps its experts on a stack, last used first, as an LRU cache would. A position draws `top_k`
//! different depths `d = ceil(λ·(-ln(1 - u·Z))^(1/s))`, `Z = 1 - exp(-(E/λ)^s)` (a Weibull distribution cut
//! at E), and puts the experts found there on top, one after the other. The depths are what decides the hits
//! of an LRU cache of any size, so that its hit curve is met by construction.

use ops::route::TABLE_ROWS;
use serde::Serialize;

use super::random::Random;

/// What was measured of a real model, and the λ and s that fit it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    experts: usize,
    top_k: usize,
    lambda: f64,
    s: f64,
    /// Experts per layer in an LRU cache, and the share of uses that find theirs there.
    lru: &'static [(usize, f64)],
    /// Share of uses whose expert served the position before, and one of the eight before.
    reuse: [Option<f64>; 2],
}

/// Fit to Qwen3-30B-A3B: 128 experts, 8 a token.
pub const OF_128: Fit = Fit {
    experts: 128,
    top_k: 8,
    lambda: 12.0,
    s: 0.65,
    lru: &[(8, 0.37), (24, 0.74), (49, 0.89), (81, 0.96)],
    reuse: [Some(0.45), Some(0.80)],
};

/// Fit to a model of 512 experts, 10 a token.
pub const OF_512: Fit = Fit {
    experts: 512,
    top_k: 10,
    lambda: 45.0,
    s: 0.5,
    lru: &[(64, 0.67), (128, 0.81)],
    reuse: [None, None],
};

/// A fit applied to a number of experts: λ and the sizes of caches in proportion to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    fit: Fit,
    experts: usize,
    top_k: usize,
    lambda: f64,
}

/// Draws of a depth that is taken already, before the free one nearest to the top is taken instead. Only
/// where a token uses nearly all experts it comes near.
const MOST_DRAWS: usize = 1000;

impl Sampler {
    /// Routing to `top_k` of `experts`.
    pub fn new(fit: Fit, experts: usize, top_k: usize) -> Sampler {
        assert!(top_k >= 1 && top_k <= experts, "the shape was checked");
        Sampler { fit, experts, top_k, lambda: fit.lambda * experts as f64 / fit.experts as f64 }
    }

    /// The table of a layer: `[TABLE_ROWS, top_k]` expert ids, those of a row all different.
    pub fn table(&self, seed: u64, name: &str) -> Vec<u32> {
        let mut draws = Draws { random: Random::new(seed, name, 0), left: Vec::new() };
        let mut stack: Vec<u32> = (0..self.experts as u32).collect();
        for i in (1..self.experts).rev() {
            stack.swap(i, (draws.unit() * (i + 1) as f64) as usize);
        }
        let z = 1.0 - libm::exp(-libm::pow(self.experts as f64 / self.lambda, self.fit.s));
        let mut table = Vec::with_capacity(TABLE_ROWS * self.top_k);
        let mut depths = Vec::with_capacity(self.top_k);
        for _ in 0..TABLE_ROWS {
            depths.clear();
            for _ in 0..self.top_k {
                let fresh =
                    (0..MOST_DRAWS).map(|_| self.depth(z, draws.unit())).find(|d| !depths.contains(d));
                let free = || (0..self.experts).find(|d| !depths.contains(d));
                depths.push(fresh.or_else(free).expect("no more uses than experts"));
            }
            // All depths count from before this position, so they are looked up before anything moves.
            let first = table.len();
            table.extend(depths.iter().map(|&d| stack[d]));
            for id in &table[first..] {
                let at = stack.iter().position(|e| e == id).expect("the stack holds all experts");
                stack[..=at].rotate_right(1);
            }
        }
        table
    }

    /// A depth from 0 to experts - 1 for a uniform number.
    fn depth(&self, z: f64, u: f64) -> usize {
        let d = self.lambda * libm::pow(-libm::log1p(-u * z), 1.0 / self.fit.s);
        (d.ceil() as usize).clamp(1, self.experts) - 1
    }

    /// Runs the tables of some layers through LRU caches and says what they hit. `tables` are as
    /// [`Sampler::table`] makes them; there is at least one.
    pub fn measure(&self, tables: &[&[u32]]) -> Routing {
        let mut counts = Counts { hits: vec![0; self.experts], reused: [0; 2], uses: 0 };
        tables.iter().for_each(|table| counts.run(table, self.top_k));
        let share = |hits: u64| hits as f64 / counts.uses as f64;
        let whole = (self.experts, self.top_k) == (self.fit.experts, self.fit.top_k);
        let lru = self.fit.lru.iter().map(|&(slots, target)| {
            let slots = (slots * self.experts).div_ceil(self.fit.experts);
            let hits = counts.hits[..slots].iter().sum();
            Lru { slots, hit_rate: share(hits), target: whole.then_some(target) }
        });
        let reuse = |i: usize, tokens| Reuse {
            tokens,
            rate: share(counts.reused[i]),
            target: self.fit.reuse[i].filter(|_| whole),
        };
        Routing {
            experts: self.experts,
            top_k: self.top_k,
            positions: TABLE_ROWS,
            layers: tables.len(),
            lambda: self.lambda,
            s: self.fit.s,
            fit_experts: self.fit.experts,
            lru: lru.collect(),
            reuse: vec![reuse(0, 1), reuse(1, 8)],
        }
    }
}

/// Uniform numbers, made some at a time.
struct Draws {
    random: Random,
    left: Vec<f64>,
}

impl Draws {
    fn unit(&mut self) -> f64 {
        if self.left.is_empty() {
            self.left = self.random.units(1024);
        }
        self.left.pop().expect("just made")
    }
}

/// What LRU caches of all sizes do with the uses of experts, counted at once: one of `n` slots holds the `n`
/// experts used last, so that a use hits if fewer than `n` others were used since.
struct Counts {
    /// By how many others were used since.
    hits: Vec<u64>,
    /// Served the position before, one of the eight before.
    reused: [u64; 2],
    uses: u64,
}

impl Counts {
    /// One layer, from a cold start.
    fn run(&mut self, table: &[u32], top_k: usize) {
        let mut recent: Vec<u32> = Vec::new();
        let mut last_position = vec![None::<usize>; self.hits.len()];
        for (position, ids) in table.chunks_exact(top_k).enumerate() {
            for &id in ids {
                match recent.iter().position(|e| *e == id) {
                    Some(depth) => {
                        self.hits[depth] += 1;
                        recent[..=depth].rotate_right(1);
                    }
                    None => recent.insert(0, id),
                }
                let ago = last_position[id as usize].replace(position).map(|before| position - before);
                self.reused[0] += u64::from(ago == Some(1));
                self.reused[1] += u64::from(ago.is_some_and(|ago| ago <= 8));
            }
            self.uses += ids.len() as u64;
        }
    }
}

/// What the routing of a model is like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Routing {
    /// Experts of a layer.
    pub experts: usize,
    /// Used by a token.
    pub top_k: usize,
    /// Positions of the table.
    pub positions: usize,
    /// Layers with a table.
    pub layers: usize,
    /// Scale of the depths, in proportion to the experts.
    pub lambda: f64,
    /// Their shape.
    pub s: f64,
    /// Experts of the model that was measured; of other numbers there are no targets.
    pub fit_experts: usize,
    /// LRU caches, cold at the start.
    pub lru: Vec<Lru>,
    /// Experts that come again.
    pub reuse: Vec<Reuse>,
}

/// Hits of an LRU cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lru {
    /// Experts that it holds of each layer.
    pub slots: usize,
    /// Share of uses that find theirs in it.
    pub hit_rate: f64,
    /// The same, measured on a real model.
    pub target: Option<f64>,
}

/// Uses of experts that served shortly before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reuse {
    /// Within so many tokens.
    pub tokens: usize,
    /// Share of uses.
    pub rate: f64,
    /// The same, measured on a real model.
    pub target: Option<f64>,
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;

    #[test]
    fn the_hit_curves_are_those_of_the_measured_models() {
        for (fit, curve) in [(OF_128, &[0.37, 0.74, 0.91, 0.97][..]), (OF_512, &[0.68, 0.82][..])] {
            let sampler = Sampler::new(fit, fit.experts, fit.top_k);
            let tables = [0, 1].map(|layer| sampler.table(7, &format!("layers.{layer}")));
            let routing = sampler.measure(&[&tables[0], &tables[1]]);
            for (lru, expected) in routing.lru.iter().zip(curve) {
                let (target, hit) = (lru.target.unwrap(), lru.hit_rate);
                assert!((hit - target).abs() < 0.03 && (hit - expected).abs() < 0.02, "{lru:?}");
            }
            for reuse in routing.reuse.iter().filter(|r| r.target.is_some()) {
                assert!((reuse.rate - reuse.target.unwrap()).abs() < 0.03, "{reuse:?}");
            }
        }
    }

    /// The counts against a cache that is a queue, and sets of what the last positions used.
    #[test]
    fn counting_depths_is_simulating_caches() {
        let sampler = Sampler::new(OF_128, 32, 4);
        let table = sampler.table(1, "x");
        let measured = sampler.measure(&[&table]);
        for lru in &measured.lru {
            let (mut queue, mut hits) = (VecDeque::new(), 0);
            for id in &table {
                match queue.iter().position(|e| e == id) {
                    Some(at) => {
                        hits += 1;
                        queue.remove(at);
                    }
                    None if queue.len() == lru.slots => drop(queue.pop_front()),
                    None => (),
                }
                queue.push_back(*id);
            }
            assert_eq!(lru.hit_rate, f64::from(hits) / table.len() as f64, "{} slots", lru.slots);
        }
        assert_eq!(measured.lru.iter().map(|l| l.slots).collect::<Vec<_>>(), [2, 6, 13, 21]);
        let rows: Vec<&[u32]> = table.chunks_exact(4).collect();
        for reuse in &measured.reuse {
            let again = (1..rows.len()).map(|t| {
                let before = &rows[t.saturating_sub(reuse.tokens)..t];
                let before: BTreeSet<u32> = before.iter().flat_map(|r| r.iter().copied()).collect();
                rows[t].iter().filter(|e| before.contains(e)).count()
            });
            assert_eq!(reuse.rate, again.sum::<usize>() as f64 / table.len() as f64);
        }
    }

    #[test]
    fn rows_are_different_experts_and_layers_and_seeds_differ() {
        for (experts, top_k) in [(1, 1), (8, 8), (8, 2), (512, 10)] {
            let sampler = Sampler::new(OF_512, experts, top_k);
            let table = sampler.table(3, "layers.0");
            assert_eq!(table.len(), TABLE_ROWS * top_k);
            for row in table.chunks_exact(top_k) {
                let set: BTreeSet<u32> = row.iter().copied().filter(|id| (*id as usize) < experts).collect();
                assert_eq!(set.len(), top_k);
            }
            assert_eq!(table, sampler.table(3, "layers.0"));
            if experts > 2 {
                assert!(table != sampler.table(4, "layers.0") && table != sampler.table(3, "layers.1"));
            }
        }
    }
}
