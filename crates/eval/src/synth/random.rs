//! Random bytes fast enough to fill caches with: four xoshiro256++ generators side by side, one stream for
//! each unit of a cache, so that bytes depend on seed, name and place only.

/// Generators side by side: their steps are vector operations.
const LANES: usize = 4;
/// Bytes of one step of all.
const STEP: usize = 8 * LANES;

/// A stream of random bytes.
pub struct Random {
    state: [[u64; LANES]; 4],
}

impl Random {
    /// The stream of unit `index` of what is called `name`, under `seed`.
    pub fn new(seed: u64, name: &str, index: u64) -> Random {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&seed.to_le_bytes()).update(&index.to_le_bytes()).update(name.as_bytes());
        let mut bytes = [0u8; 4 * STEP];
        hasher.finalize_xof().fill(&mut bytes);
        let mut words = bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
        let mut state = [[0; LANES]; 4];
        state.iter_mut().flatten().for_each(|s| *s = words.next().expect("a word for each"));
        Random { state }
    }

    /// Next number of each generator.
    #[inline(always)]
    fn step(&mut self) -> [u64; LANES] {
        let [a, b, c, d] = &mut self.state;
        let mut out = [0; LANES];
        for l in 0..LANES {
            out[l] = a[l].wrapping_add(d[l]).rotate_left(23).wrapping_add(a[l]);
            let t = b[l] << 17;
            c[l] ^= a[l];
            d[l] ^= b[l];
            b[l] ^= c[l];
            a[l] ^= d[l];
            c[l] ^= t;
            d[l] = d[l].rotate_left(45);
        }
        out
    }

    /// Fills `out`. What a last step gives beyond its end is dropped.
    pub fn fill(&mut self, out: &mut [u8]) {
        // Copies of a length that is known here are moves; of others each would be a call.
        let (chunks, rest) = out.as_chunks_mut::<STEP>();
        for chunk in chunks {
            let words = self.step();
            let (parts, _) = chunk.as_chunks_mut::<8>();
            for l in 0..LANES {
                parts[l] = words[l].to_le_bytes();
            }
        }
        if !rest.is_empty() {
            let words = self.step();
            for (bytes, word) in rest.chunks_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
        }
    }

    /// `count` numbers in [0, 1) with 53 bits.
    pub fn units(&mut self, count: usize) -> Vec<f64> {
        let mut bytes = vec![0; 8 * count];
        self.fill(&mut bytes);
        let unit = |b: &[u8]| {
            let word = u64::from_le_bytes(b.try_into().expect("8 bytes"));
            (word >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
        };
        bytes.chunks_exact(8).map(unit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xoshiro256++ as its authors give it, one lane.
    fn plain(state: &mut [u64; 4]) -> u64 {
        let out = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let t = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= t;
        state[3] = state[3].rotate_left(45);
        out
    }

    #[test]
    fn the_lanes_are_the_published_generator() {
        // The first numbers from the state 1, 2, 3, 4, as other implementations publish them.
        let mut state = [1, 2, 3, 4];
        let first: Vec<u64> = (0..3).map(|_| plain(&mut state)).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223]);
        let mut random = Random::new(3, "x", 9);
        for lane in 0..LANES {
            let mut state = [0, 1, 2, 3].map(|i| random.state[i][lane]);
            let mut copy = Random { state: random.state };
            for _ in 0..20 {
                assert_eq!(copy.step()[lane], plain(&mut state));
            }
        }
        random.step();
    }

    #[test]
    fn streams_differ_by_seed_name_and_index_and_do_not_depend_on_cuts() {
        let bytes = |seed, name, index| {
            let mut out = [0u8; 1000];
            Random::new(seed, name, index).fill(&mut out);
            out
        };
        let one = bytes(1, "a", 0);
        assert_eq!(one, bytes(1, "a", 0));
        for other in [bytes(2, "a", 0), bytes(1, "b", 0), bytes(1, "a", 1)] {
            assert!(one.iter().zip(&other).filter(|(a, b)| a == b).count() < 30);
        }
        let mut short = [0u8; 900];
        Random::new(1, "a", 0).fill(&mut short);
        assert_eq!(short, one[..900]);
        let units = Random::new(1, "a", 0).units(20_000);
        let mean = units.iter().sum::<f64>() / 20_000.0;
        assert!((mean - 0.5).abs() < 0.01 && units.iter().all(|u| (0.0..1.0).contains(u)), "{mean}");
    }
}
