//! Symmetric coding of one slice and the Hadamard rotation: shared by the reference of `kv_write` (K, V) and
//! of `attention` (Q, P's range).

/// A slice whose largest magnitude is below this has scale 0 and codes 0 (docs/arithmetic.md §0): 2^-100.
pub const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// Codes one slice: `scale = amax / max_code`, `code = clamp(rint(x * (max_code / amax)), ±max_code)`;
/// returns the scale. A slice that holds a NaN or an infinity gets codes 0 and the NaN scale `0x7fc00000`,
/// so that every score that uses it is NaN.
pub fn code_slice(x: &[f32], max_code: i32, codes: &mut [i32]) -> f32 {
    assert_eq!(x.len(), codes.len());
    // The largest magnitude by its bits: the same in any order, and a NaN is larger than any number.
    let amax = f32::from_bits(x.iter().map(|v| v.abs().to_bits()).max().unwrap_or(0));
    codes.fill(0);
    if !amax.is_finite() {
        return f32::NAN;
    }
    if amax < TINY {
        return 0.0;
    }
    let q = max_code as f32;
    let inv = q / amax;
    for (x, code) in x.iter().zip(codes) {
        *code = (x * inv).round_ties_even().clamp(-q, q) as i32;
    }
    amax / q
}

/// Hadamard rotation in place, `x.len()` a power of two: for strides 1, 2, 4, … ascending, every pair
/// `(a, b)` that is one stride apart becomes `(a + b, a - b)`. Unscaled: H·H = len·I, so the other side of a
/// dot product is multiplied by 1/len, a power of two.
pub fn rotate(x: &mut [f32]) {
    assert!(x.len().is_power_of_two());
    let mut stride = 1;
    while stride < x.len() {
        for pair in x.chunks_exact_mut(2 * stride) {
            let (low, high) = pair.split_at_mut(stride);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        stride *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_the_documented_one() {
        assert_eq!(f32::NAN.to_bits(), 0x7fc0_0000);
        let mut codes = [7; 3];
        assert!(code_slice(&[1.0, f32::NEG_INFINITY, 0.0], 7, &mut codes).is_nan());
        assert_eq!(codes, [0; 3]);
    }

    #[test]
    fn codes_by_hand() {
        let mut codes = [9; 4];
        // 127/2 = 63.5: 1.0 is 63.5, which rounds to the even 64.
        assert_eq!(code_slice(&[-2.0, 1.0, -0.0, 0.5], 127, &mut codes), 2.0 / 127.0);
        assert_eq!(codes, [-127, 64, 0, 32]);
        assert_eq!(code_slice(&[TINY, 0.0, 0.0, -TINY / 2.0], 7, &mut codes), TINY / 7.0);
        assert_eq!(codes, [7, 0, 0, -4]);
        assert_eq!(code_slice(&[TINY / 2.0; 4], 7, &mut codes), 0.0);
        assert_eq!(codes, [0; 4]);
    }

    #[test]
    fn rotation_is_the_hadamard_matrix_and_its_own_inverse() {
        let mut x = [0.0; 8];
        for (column, bits) in [(5usize, 0b101usize), (3, 0b011)] {
            x.fill(0.0);
            x[column] = 1.0;
            rotate(&mut x);
            for (row, v) in x.iter().enumerate() {
                let sign = if (row & bits).count_ones() % 2 == 0 { 1.0 } else { -1.0 };
                assert_eq!(*v, sign, "row {row} of column {column}");
            }
            rotate(&mut x);
            assert_eq!(x[column], 8.0);
        }
    }
}
