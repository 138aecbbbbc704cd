//! Philox4x32-10: counter-based random numbers (Salmon et al., SC'11), so that a draw depends on its key
//! and counter and on nothing that was drawn before.

/// Key and counter; each call to [`Philox::at`] is independent of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

impl Philox {
    /// Generator of a request's or test's `seed`.
    pub fn new(seed: u64) -> Self {
        Philox { key: [seed as u32, (seed >> 32) as u32] }
    }

    /// The four 32-bit numbers of `counter`.
    pub fn block(&self, counter: [u32; 4]) -> [u32; 4] {
        let (mut c, mut k) = (counter, self.key);
        for round in 0..10 {
            if round > 0 {
                k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
            }
            let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
            let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
            c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        }
        c
    }

    /// The `index`-th 32-bit number of the stream.
    pub fn at(&self, index: u64) -> u32 {
        let block = index / 4;
        self.block([block as u32, (block >> 32) as u32, 0, 0])[(index % 4) as usize]
    }
}

/// A sequential reader over a Philox stream, for tests and synthetic weights.
#[derive(Debug, Clone)]
pub struct Stream {
    philox: Philox,
    next: u64,
    block: [u32; 4],
}

impl Stream {
    /// A stream that starts at the first number of `seed`.
    pub fn new(seed: u64) -> Self {
        Stream { philox: Philox::new(seed), next: 0, block: [0; 4] }
    }

    /// Next 32 bits.
    pub fn u32(&mut self) -> u32 {
        if self.next.is_multiple_of(4) {
            let b = self.next / 4;
            self.block = self.philox.block([b as u32, (b >> 32) as u32, 0, 0]);
        }
        self.next += 1;
        self.block[((self.next - 1) % 4) as usize]
    }

    /// Uniform in 0..n (n > 0), by multiplication; the bias is below 2^-32 per value.
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.u32()) * u64::from(n)) >> 32) as u32
    }

    /// Uniform in [0, 1) with 24 bits.
    pub fn unit(&mut self) -> f32 {
        (self.u32() >> 8) as f32 * (1.0 / 16_777_216.0)
    }

    /// Roughly normal (sum of 12 uniforms minus 6): mean 0, variance 1, no transcendental functions.
    pub fn normal(&mut self) -> f32 {
        let mut sum = -6.0f32;
        for _ in 0..12 {
            sum += self.unit();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Known answers published with the generator (Random123 kat_vectors, philox4x32 10 rounds).
    #[test]
    fn known_answers() {
        assert_eq!(Philox::new(0).block([0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            Philox::new(u64::MAX).block([u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn stream_reads_the_same_numbers() {
        let mut s = Stream::new(7);
        for i in 0..10 {
            assert_eq!(s.u32(), Philox::new(7).at(i));
        }
    }
}
