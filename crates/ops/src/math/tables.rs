//! Tables made once from f64.

use super::f64 as wide;

/// RoPE table f32[context, 2, rotary/2] (cosines, then sines of a position): the angle is `pos · inv_freq`
/// and everything is f64 until the one rounding of `cos · attention_factor` (and sin) to f32.
pub fn rope_table(inv_freq: &[f64], context: usize, attention_factor: f64) -> Vec<f32> {
    let mut table = Vec::with_capacity(context * 2 * inv_freq.len());
    for pos in 0..context {
        table.extend(inv_freq.iter().map(|f| (wide::cos(pos as f64 * f) * attention_factor) as f32));
        table.extend(inv_freq.iter().map(|f| (wide::sin(pos as f64 * f) * attention_factor) as f32));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_cosines_then_sines_of_each_position() {
        let freq = [1.0, 0.25];
        let table = rope_table(&freq, 3, 2.0);
        assert_eq!(table.len(), 3 * 2 * 2);
        assert_eq!(&table[..4], &[2.0, 2.0, 0.0, 0.0]);
        for (i, f) in freq.iter().enumerate() {
            let angle = 2.0 * f;
            assert!((f64::from(table[8 + i]) - 2.0 * angle.cos()).abs() < 1e-7);
            assert!((f64::from(table[10 + i]) - 2.0 * angle.sin()).abs() < 1e-7);
        }
    }
}
