//! Random weights in the form of a weight cache: codes as they come, scales such that activations keep their
//! size.

use std::ops::Range;

use arch::manifest::ExpertLayer;
use arch::{Entry, EntryKind, ExpertEntry, Part, Role};
use base::Result;
use half::{bf16, f16};
use ops::WeightFormat;
use ops::linear::layout::{Expert, Matrix, TILE_ROWS};
use weights::{Origin, Piece};

use super::random::Random;
use super::routing::Sampler;

/// Everything in the cache of a synthetic model, by seed.
pub struct Filler {
    /// Seed of all streams.
    pub seed: u64,
    /// What the routing tables are drawn by.
    pub sampler: Sampler,
}

impl Filler {
    fn stream(&self, role: Role, row: usize) -> Random {
        Random::new(self.seed, &role.to_string(), row as u64)
    }

    fn vector(&self, role: Role, len: usize) -> Vec<u8> {
        let (low, high) = range(role.part);
        let units = self.stream(role, 0).units(len);
        units.iter().flat_map(|u| ((low + (high - low) * u) as f32).to_le_bytes()).collect()
    }
}

impl Origin for Filler {
    type Room = ();

    fn dense(&self, entry: &Entry, rows: Range<usize>) -> Result<Vec<Piece>> {
        let whole = |bytes| vec![Piece { offset: 0, bytes }];
        Ok(match entry.kind {
            EntryKind::Matrix(m) => {
                let part = Matrix::new(m.format, rows.len(), m.k);
                let first = rows.start / TILE_ROWS;
                let mut codes = vec![0; part.code_bytes()];
                let mut scales = vec![0; part.scale_bytes()];
                let mut random = self.stream(entry.role, rows.start);
                matrix(&mut random, &part, &|row| row < rows.len(), &mut codes, &mut scales);
                let scales_at = (m.code_bytes() + first * m.tile_scale_bytes()) as u64;
                let codes_at = (first * m.tile_code_bytes()) as u64;
                vec![Piece { offset: codes_at, bytes: codes }, Piece { offset: scales_at, bytes: scales }]
            }
            EntryKind::Embedding { cols, .. } => {
                let mut bytes = vec![0; 2 * rows.len() * cols];
                embedding(&mut self.stream(entry.role, rows.start), &mut bytes);
                vec![Piece { offset: 2 * (rows.start * cols) as u64, bytes }]
            }
            EntryKind::Vector { len, .. } => whole(self.vector(entry.role, len)),
            EntryKind::Conv { channels, kernel } => whole(self.vector(entry.role, channels * kernel)),
            EntryKind::Table { .. } => {
                let table = self.sampler.table(self.seed, &entry.role.to_string());
                whole(table.iter().flat_map(|id| id.to_le_bytes()).collect())
            }
        })
    }

    fn room(&self, _layer: &ExpertLayer) {}

    fn expert(&self, layer: &ExpertLayer, e: &ExpertEntry, (): &mut (), block: &mut [u8]) -> Result<()> {
        let Expert { gate_up, down } = layer.block;
        let mut random =
            Random::new(self.seed, &format!("layers.{}.experts", layer.layer), u64::from(e.expert.0));
        let (gate_up_codes, rest) = block.split_at_mut(gate_up.code_bytes());
        let (down_codes, rest) = rest.split_at_mut(down.code_bytes());
        let (gate_up_scales, rest) = rest.split_at_mut(gate_up.scale_bytes());
        let (down_scales, padding) = rest.split_at_mut(down.scale_bytes());
        // Rows 0 to 7 of a tile are gates, 8 to 15 ups, of which the last tile may have fewer.
        let half = TILE_ROWS / 2;
        let is_real = |row: usize| row / TILE_ROWS * half + row % half < layer.inter;
        matrix(&mut random, &gate_up, &is_real, gate_up_codes, gate_up_scales);
        matrix(&mut random, &down, &|_| true, down_codes, down_scales);
        padding.fill(0);
        Ok(())
    }

    fn dense_bytes(&self, entry: &Entry, rows: Range<usize>) -> u64 {
        (entry.kind.bytes() * rows.len() / entry.kind.source_shape().0) as u64
    }

    fn expert_bytes(&self, layer: &ExpertLayer, _: &ExpertEntry) -> u64 {
        layer.block.bytes() as u64
    }
}

/// Lowest and highest value of an f32 part, as kernels use it.
fn range(part: Part) -> (f64, f64) {
    match part {
        // -exp(A_log) as published models start it, and biases of steps between 0.0025 and 0.13.
        Part::DeltaDecay => (-16.0, -1.0),
        Part::DeltaDtBias => (-6.0, -2.0),
        Part::DeltaConv => (-0.8, 0.8),
        Part::AttnQBias | Part::AttnGateBias | Part::AttnKBias | Part::AttnVBias | Part::AttnOBias => {
            (-0.05, 0.05)
        }
        // Norms, near the value that does nothing.
        _ => (0.95, 1.05),
    }
}

/// bf16 of either sign between 1/8 and 2 in size: sign, two bits of exponent and mantissa as they come.
fn embedding(random: &mut Random, out: &mut [u8]) {
    random.fill(out);
    for value in out.as_chunks_mut::<2>().0 {
        *value = ((u16::from_le_bytes(*value) & 0x81FF) + (124 << 7)).to_le_bytes();
    }
}

/// Codes and scales of a matrix whose rows are real where `is_real` says so; the others, and columns beyond
/// k, are padding: zeros.
fn matrix(
    random: &mut Random,
    m: &Matrix,
    is_real: &dyn Fn(usize) -> bool,
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let table = scale_table(m.format, m.k);
    let all_real = m.k == m.k_padded() && (0..m.row_tiles() * TILE_ROWS).all(is_real);
    if !all_real {
        return padded(random, m, is_real, &table, codes, scales);
    }
    fill_codes(random, m.format, m.k_tile_bytes(), codes);
    let zero = middle(m.format).to_le_bytes();
    let mut picks = vec![0u8; scales.len() / 2];
    random.fill(&mut picks);
    let mut picks = picks.iter();
    for group in scales.chunks_exact_mut(m.group_scale_bytes()) {
        let (scales, zeros) = group.split_at_mut(2 * TILE_ROWS);
        for (scale, pick) in scales.as_chunks_mut::<2>().0.iter_mut().zip(&mut picks) {
            *scale = table[usize::from(pick % SCALES as u8)];
        }
        zeros.as_chunks_mut::<2>().0.fill(zero);
    }
}

/// As [`matrix`], code by code.
fn padded(
    random: &mut Random,
    m: &Matrix,
    is_real: &dyn Fn(usize) -> bool,
    table: &[[u8; 2]; SCALES],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let (low, count) = code_range(m.format);
    let tiles =
        codes.chunks_exact_mut(m.tile_code_bytes()).zip(scales.chunks_exact_mut(m.tile_scale_bytes()));
    for (i, (codes, scales)) in tiles.enumerate() {
        let mut tile = m.zero_tile();
        let groups = m.groups();
        for row in (0..TILE_ROWS).filter(|row| is_real(i * TILE_ROWS + row)) {
            let units = random.units(m.k + groups);
            let (of_codes, of_scales) = units.split_at(m.k);
            for (code, unit) in tile.codes[row * m.k_padded()..].iter_mut().zip(of_codes) {
                *code = low + (unit * f64::from(count)) as i32;
            }
            for g in 0..m.k.div_ceil(m.format.group()) {
                let pick = (of_scales[g] * SCALES as f64) as usize;
                tile.scales[row * groups + g] = u16::from_le_bytes(table[pick]);
                if m.format.has_zero() {
                    tile.zeros[row * groups + g] = middle(m.format);
                }
            }
        }
        m.pack_tile(&tile, codes, scales);
    }
}

/// Lowest code and number of codes.
const fn code_range(format: WeightFormat) -> (i32, u32) {
    match format {
        WeightFormat::I4 => (-8, 16),
        WeightFormat::I8 => (-127, 255),
        WeightFormat::I16 => (-32767, 65535),
        WeightFormat::H4 | WeightFormat::H6 | WeightFormat::H8 => (0, 1 << format.bits()),
    }
}

/// Packed codes: any bits are codes, except the lowest signed byte, which no format has.
fn fill_codes(random: &mut Random, format: WeightFormat, k_tile_bytes: usize, codes: &mut [u8]) {
    random.fill(codes);
    let mend = |bytes: &mut [u8]| bytes.iter_mut().for_each(|b| *b += u8::from(*b == 0x80));
    match format {
        WeightFormat::I4 | WeightFormat::H4 | WeightFormat::H6 | WeightFormat::H8 => (),
        WeightFormat::I8 => mend(codes),
        WeightFormat::I16 => codes.chunks_exact_mut(k_tile_bytes).for_each(|t| mend(&mut t[..1024])),
    }
}

/// Different scales of a matrix.
const SCALES: usize = 128;

/// Scales around the one under which uniform codes are weights of variance 1/k: a product then has the
/// variance of its input. I4 has both signs, which evens out that its codes have a mean of -1/2.
fn scale_table(format: WeightFormat, k: usize) -> [[u8; 2]; SCALES] {
    let (_, count) = code_range(format);
    let deviation = f64::from(count) / 12f64.sqrt();
    let usual = 1.0 / ((k as f64).sqrt() * deviation);
    std::array::from_fn(|i| {
        let scale = match format {
            WeightFormat::I16 => 2f64.powi(libm::log2(usual).round() as i32),
            _ => usual * (0.75 + 0.5 * (i / 2) as f64 / (SCALES / 2) as f64),
        };
        let sign = if format == WeightFormat::I4 && i % 2 == 1 { -1.0 } else { 1.0 };
        bf16::from_f64(sign * scale).to_le_bytes()
    })
}

/// Bits of the zero in the middle of the codes (f16, exact).
fn middle(format: WeightFormat) -> u16 {
    let (_, count) = code_range(format);
    f16::from_f32((count - 1) as f32 / 2.0).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes and weights of the matrix, rows and columns as packed.
    fn weights(m: &Matrix, codes: &[u8], scales: &[u8]) -> Vec<(i32, f64)> {
        let mut row = vec![0; m.k_padded()];
        let mut out = Vec::new();
        for n in 0..m.row_tiles() * TILE_ROWS {
            m.unpack_row(codes, n, &mut row);
            for (i, code) in row.iter().enumerate() {
                let group = i / m.format.group();
                let scale = bf16::from_bits(m.scale_bits(scales, n, group)).to_f64();
                let zero = match m.format.has_zero() {
                    true => f16::from_bits(m.zero_bits(scales, n, group)).to_f64(),
                    false => 0.0,
                };
                let (low, count) = code_range(m.format);
                assert!((low..low + count as i32).contains(code), "{:?}: {code}", m.format);
                out.push((*code, (f64::from(*code) - zero) * scale));
            }
        }
        out
    }

    #[test]
    fn weights_of_every_format_keep_the_variance_of_their_input() {
        for format in WeightFormat::ALL {
            for (n, k) in [(64, 512), (50, 400)] {
                let m = Matrix::new(format, n, k);
                let (mut codes, mut scales) = (vec![0xAA; m.code_bytes()], vec![0xAA; m.scale_bytes()]);
                let mut random = Random::new(1, "matrix", 0);
                matrix(&mut random, &m, &|row| row < n, &mut codes, &mut scales);
                let all = weights(&m, &codes, &scales);
                let columns = m.k_padded();
                let is_real = |i: &usize| i / columns < n && i % columns < k;
                let (real, padding): (Vec<_>, Vec<_>) = (0..all.len()).partition(is_real);
                assert!(padding.iter().all(|i| all[*i].0 == 0), "{format:?} {n} {k}");
                let mean = real.iter().map(|i| all[*i].1).sum::<f64>() / (n * k) as f64;
                let variance = real.iter().map(|i| all[*i].1.powi(2)).sum::<f64>() / (n * k) as f64;
                let (mean, gain) = (mean * (k as f64).sqrt(), variance * k as f64);
                // Powers of two are off by up to a factor of √2.
                let slack = if format == WeightFormat::I16 { 2.1 } else { 1.1 };
                assert!(mean.abs() < 0.05, "{format:?}: {mean}");
                assert!(gain < slack && gain > 1.0 / slack, "{format:?} {n} {k}: {gain}");
            }
        }
    }

    #[test]
    fn embeddings_are_small_numbers_of_both_signs() {
        let mut bytes = vec![0; 20_000];
        embedding(&mut Random::new(1, "embedding", 0), &mut bytes);
        let values: Vec<f32> =
            bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
        assert!(values.iter().all(|v| (0.125..2.0).contains(&v.abs())));
        assert!((values.iter().sum::<f32>() / 10_000.0).abs() < 0.05);
    }
}
