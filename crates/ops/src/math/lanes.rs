//! The lane tree: the one order in which long float sums are taken (docs/arithmetic.md §0).

use super::fma;

/// Lanes of the tree.
pub const LANES: usize = 128;

/// Eight lanes: the wide forms are written in these and without iterators, whose calls the compiler does not
/// always inline into functions of a SIMD level; so the accumulators stay in registers.
type Eight = [f32; 8];

/// Eights that the wide forms add up at a time: eight AVX2 accumulators hide the latency of an fma.
const HELD: usize = 8;

/// Halves the lanes until one is left: `p_l = p_l + p_{l+s}` for s = 64, 32, … 1. The definition.
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

#[inline(always)]
fn add(a: Eight, b: Eight) -> Eight {
    let mut sum = a;
    for l in 0..8 {
        sum[l] = a[l] + b[l];
    }
    sum
}

/// [`fold`] by eights. A call of its own: inlined, the compiler takes it apart into single additions.
#[inline(never)]
fn fold_wide(p: &[Eight; LANES / 8]) -> f32 {
    let mut q = [[0.0; 8]; 8];
    for v in 0..8 {
        q[v] = add(p[v], p[v + 8]);
    }
    let q = [add(q[0], q[4]), add(q[1], q[5]), add(q[2], q[6]), add(q[3], q[7])];
    let q = add(add(q[0], q[2]), add(q[1], q[3]));
    let q = [q[0] + q[4], q[1] + q[5], q[2] + q[6], q[3] + q[7]];
    (q[0] + q[2]) + (q[1] + q[3])
}

/// Adds elements to their lanes in an order of loops that vectorises: lanes are independent until they are
/// folded. `step(x, y, lane)`.
#[inline(always)]
fn in_lanes(x: &[f32], y: &[f32], step: impl Fn(f32, f32, f32) -> f32) -> f32 {
    assert_eq!(x.len(), y.len(), "vectors of one length");
    let whole = x.len() / LANES * LANES;
    let mut p = [[0.0f32; 8]; LANES / 8];
    let mut first = 0;
    while first < LANES / 8 {
        let mut held = [[0.0f32; 8]; HELD];
        let mut at = 8 * first;
        while at + 8 * HELD <= whole {
            let (x, y) = (&x[at..at + 8 * HELD], &y[at..at + 8 * HELD]);
            let mut v = 0;
            while v < HELD {
                let mut l = 0;
                while l < 8 {
                    held[v][l] = step(x[8 * v + l], y[8 * v + l], held[v][l]);
                    l += 1;
                }
                v += 1;
            }
            at += LANES;
        }
        let mut v = 0;
        while v < HELD {
            p[first + v] = held[v];
            v += 1;
        }
        first += HELD;
    }
    for i in whole..x.len() {
        let lane = &mut p[(i - whole) / 8][i % 8];
        *lane = step(x[i], y[i], *lane);
    }
    fold_wide(&p)
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

/// [`lane_dot`] for SIMD.
#[inline(always)]
pub fn lane_dot_wide(x: &[f32], y: &[f32]) -> f32 {
    in_lanes(x, y, fma)
}

/// [`lane_sum`] for SIMD.
#[inline(always)]
pub fn lane_sum_wide(x: &[f32]) -> f32 {
    in_lanes(x, x, |x, _, lane| lane + x)
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
