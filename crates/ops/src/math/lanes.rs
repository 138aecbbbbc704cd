//! The lane tree: the one order in which long float sums are taken (docs/arithmetic.md §0).

use super::fma;

/// Lanes of the tree.
pub const LANES: usize = 128;

/// Lanes that the wide forms keep in registers at a time: eight AVX2 accumulators hide the latency of an fma.
const HELD: usize = 64;

/// Halves the lanes until one is left: `p_l = p_l + p_{l+s}` for s = 64, 32, … 1.
#[inline(always)]
fn fold(mut p: [f32; LANES]) -> f32 {
    let mut s = LANES / 2;
    while s > 0 {
        for l in 0..s {
            p[l] += p[l + s];
        }
        s /= 2;
    }
    p[0]
}

/// Σ x·y in lane-tree order: lane l takes elements l, l+128, … by fma from 0. The definition.
#[inline(always)]
pub fn lane_dot(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len(), "a dot product of vectors of one length");
    let mut p = [0.0f32; LANES];
    for i in 0..x.len() {
        p[i % LANES] = fma(x[i], y[i], p[i % LANES]);
    }
    fold(p)
}

/// Σ x in lane-tree order: lane l adds elements l, l+128, … from 0. The definition.
#[inline(always)]
pub fn lane_sum(x: &[f32]) -> f32 {
    let mut p = [0.0f32; LANES];
    for i in 0..x.len() {
        p[i % LANES] += x[i];
    }
    fold(p)
}

/// [`lane_dot`] in an order of loops that vectorises: lanes are independent until they are folded.
#[inline(always)]
pub fn lane_dot_wide(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len(), "a dot product of vectors of one length");
    let whole = x.len() - x.len() % LANES;
    let mut p = [0.0f32; LANES];
    for first in (0..LANES).step_by(HELD) {
        let mut held = [0.0f32; HELD];
        for (a, b) in x[..whole].chunks_exact(LANES).zip(y[..whole].chunks_exact(LANES)) {
            let (a, b) = (&a[first..first + HELD], &b[first..first + HELD]);
            for l in 0..HELD {
                held[l] = fma(a[l], b[l], held[l]);
            }
        }
        p[first..first + HELD].copy_from_slice(&held);
    }
    for (l, (a, b)) in x[whole..].iter().zip(&y[whole..]).enumerate() {
        p[l] = fma(*a, *b, p[l]);
    }
    fold(p)
}

/// [`lane_sum`] in an order of loops that vectorises.
#[inline(always)]
pub fn lane_sum_wide(x: &[f32]) -> f32 {
    let whole = x.len() - x.len() % LANES;
    let mut p = [0.0f32; LANES];
    for first in (0..LANES).step_by(HELD) {
        let mut held = [0.0f32; HELD];
        for a in x[..whole].chunks_exact(LANES) {
            let a = &a[first..first + HELD];
            for l in 0..HELD {
                held[l] += a[l];
            }
        }
        p[first..first + HELD].copy_from_slice(&held);
    }
    for (l, a) in x[whole..].iter().enumerate() {
        p[l] += *a;
    }
    fold(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::philox::Stream;

    #[test]
    fn wide_forms_give_the_same_bits() {
        let mut rng = Stream::new(3);
        for n in [0, 1, 5, 63, 64, 65, 127, 128, 129, 200, 256, 300, 1000, 2048, 2880] {
            let x: Vec<f32> = (0..n).map(|_| rng.normal()).collect();
            let y: Vec<f32> = (0..n).map(|_| rng.normal()).collect();
            assert_eq!(lane_dot(&x, &y).to_bits(), lane_dot_wide(&x, &y).to_bits(), "dot of {n}");
            assert_eq!(lane_sum(&x).to_bits(), lane_sum_wide(&x).to_bits(), "sum of {n}");
        }
    }

    // Lane 0 holds 2^24 and then loses each 1 to rounding; a plain ascending sum would lose none of lane 1's.
    #[test]
    fn order_is_by_lanes() {
        let mut x = vec![0.0f32; 3 * LANES];
        x[0] = 16_777_216.0;
        x[LANES] = 1.0;
        x[2 * LANES] = 1.0;
        assert_eq!(lane_sum(&x), 16_777_216.0);
        x[2 * LANES] = 0.0;
        x[1] = 1.0;
        x[LANES] = 0.0;
        x[LANES + 1] = 1.0;
        assert_eq!(lane_sum(&x), 16_777_218.0);
    }
}
