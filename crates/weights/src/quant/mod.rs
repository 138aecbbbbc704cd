//! Quantisers: a group of f32 weights to codes and a rounded scale (docs/arithmetic.md §2).
//!
//! Scales and zeros are rounded first, codes are computed against the rounded values. Every quantiser is a
//! pure function of its group with one order of operations and no fused multiply-add, so that its result is
//! the same on every machine: sums run in lanes whose order is written, and the language does not reassociate
//! them.

pub mod hqq;
pub mod i4;
pub mod int;
pub mod number;
#[cfg(test)]
mod tests;

use ops::format::WeightFormat;
use ops::linear::layout::{Matrix, Tile};

/// Empties a tile: zero codes, scales and zeros.
pub fn clear(tile: &mut Tile) {
    tile.codes.fill(0);
    tile.scales.fill(0);
    tile.zeros.fill(0);
}

/// Quantises `values` (`k` finite weights) into row `row` of a tile of `matrix`. What lies beyond k is left
/// alone.
pub fn quantise_row(matrix: &Matrix, values: &[f32], row: usize, tile: &mut Tile) {
    assert_eq!(values.len(), matrix.k, "a row of the matrix");
    let (format, groups) = (matrix.format, matrix.groups());
    let codes = &mut tile.codes[row * matrix.k_padded()..][..matrix.k];
    let size = format.group();
    for (g, (values, codes)) in values.chunks(size).zip(codes.chunks_mut(size)).enumerate() {
        let at = row * groups + g;
        tile.scales[at] = match format {
            WeightFormat::I4 => i4::quantise(values, codes),
            WeightFormat::I8 => int::quantise_i8(values, codes),
            WeightFormat::I16 => int::quantise_i16(values, codes),
            WeightFormat::H4 | WeightFormat::H6 | WeightFormat::H8 => {
                let (scale, zero) = hqq::quantise(format.bits(), values, codes);
                tile.zeros[at] = zero.to_bits();
                scale
            }
        }
        .to_bits();
    }
}

/// Index of the first value that is not finite.
pub fn not_finite(values: &[f32]) -> Option<usize> {
    // Without a branch per value: x · 0 is 0 for finite x and NaN otherwise.
    let sum: f32 = values.iter().map(|v| v * 0.0).fold(0.0, |a, b| a + b);
    if sum == 0.0 { None } else { values.iter().position(|v| !v.is_finite()) }
}
