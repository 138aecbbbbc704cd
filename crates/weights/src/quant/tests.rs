//! Properties of the quantisers, over ordinary and extreme groups.

use base::hash::Digest;
use base::philox::Stream;
use half::{bf16, f16};
use ops::format::WeightFormat;
use ops::linear::layout::{Matrix, TILE_ROWS};
use proptest::prelude::*;

use super::*;

/// Codes, scale and zero of one group.
fn quantised(format: WeightFormat, values: &[f32]) -> (Vec<i32>, f64, f64) {
    let matrix = Matrix::new(format, 1, values.len());
    let mut tile = matrix.zero_tile();
    quantise_row(&matrix, values, 0, &mut tile);
    let zero = tile.zeros.first().map_or(0.0, |z| f16::from_bits(*z).to_f64());
    tile.codes.truncate(values.len());
    (tile.codes, bf16::from_bits(tile.scales[0]).to_f64(), zero)
}

fn range(format: WeightFormat) -> (i32, i32) {
    match format {
        WeightFormat::I4 => (-8, 7),
        WeightFormat::I8 => (-127, 127),
        WeightFormat::I16 => (-32767, 32767),
        h => (0, (1 << h.bits()) - 1),
    }
}

fn energy(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum()
}

/// Squared error of codes under a scale and zero.
fn error(values: &[f32], codes: &[i32], scale: f64, zero: f64) -> f64 {
    let one = |(v, q): (&f32, &i32)| (f64::from(*v) - (f64::from(*q) - zero) * scale).powi(2);
    values.iter().zip(codes).map(one).sum()
}

/// Scale and zero of the grid whose steps just span the group: no search, nothing rounded.
fn plain_grid(format: WeightFormat, values: &[f32]) -> (f64, f64) {
    let low = values.iter().fold(0.0f64, |m, v| m.min(f64::from(*v)));
    let high = values.iter().fold(0.0f64, |m, v| m.max(f64::from(*v)));
    let (amax, top) = (high.max(-low), f64::from(range(format).1));
    match format {
        WeightFormat::I4 => (amax / 7.5, 0.0),
        WeightFormat::I8 | WeightFormat::I16 => (amax / top, 0.0),
        _ if low == high => (0.0, 0.0),
        _ => ((high - low) / top, -low * top / (high - low)),
    }
}

/// Squared error of rounding to that grid.
fn plain_error(format: WeightFormat, values: &[f32]) -> f64 {
    let ((scale, zero), (bottom, top)) = (plain_grid(format, values), range(format));
    let code = |v: &f32| ((f64::from(*v) / scale + zero).round_ties_even() as i32).clamp(bottom, top);
    error(values, &values.iter().map(code).collect::<Vec<_>>(), scale, zero)
}

fn rounded(v: f32) -> f32 {
    bf16::from_f32(v).to_f32()
}

/// `count` bf16 values about 2^e large.
fn normal(seed: u64, count: usize, e: i32) -> Vec<f32> {
    let mut random = Stream::new(seed);
    let unit = number::power_of_two(e);
    (0..count).map(|_| rounded((f64::from(random.normal()) * unit) as f32)).collect()
}

/// Groups of every kind the world holds: bell-shaped, one outlier, constant, of one sign, sparse.
fn groups() -> impl Strategy<Value = Vec<f32>> {
    (any::<u64>(), 1usize..=128, -140i32..=120, 0u32..6, any::<bool>()).prop_map(|(seed, n, e, kind, odd)| {
        let mut x = normal(seed, n, e);
        let (first, at) = (x[0], seed as usize % n);
        match kind {
            1 => x[at] = rounded(x[at] * 100.0),
            2 => x.fill(first),
            3 => x.iter_mut().for_each(|v| *v = -v.abs()),
            4 => x.iter_mut().enumerate().for_each(|(i, v)| *v = if i % 7 == 0 { *v } else { 0.0 }),
            5 => x.iter_mut().for_each(|v| *v = v.signum() * first.abs()),
            _ => (),
        }
        if odd {
            x.iter_mut().for_each(|v| *v *= 1.000_37); // more bits than bf16 holds
        }
        x
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn codes_stay_in_range_and_close(x in groups()) {
        for format in WeightFormat::ALL {
            let x = &x[..x.len().min(format.group())];
            let (codes, scale, zero) = quantised(format, x);
            let (bottom, top) = range(format);
            prop_assert!(codes.iter().all(|q| (bottom..=top).contains(q)), "{format:?}: {codes:?}");
            let zeros = 0.0..=f64::from(top);
            prop_assert!(scale.is_finite() && zeros.contains(&zero), "{format:?} {scale} {zero}");
            prop_assert!(scale >= 0.0 || format == WeightFormat::I4);
            // Half a step of the plain grid for each weight; for I16 a whole one, as the power of two is
            // smaller than it by up to a factor 2. bf16 rounds a scale by up to 2^-8, which moves every
            // weight in proportion; f16 rounds a zero of H8 by up to 1/16 code. The smallest bf16 are 2^-133
            // apart.
            let (step, n) = (plain_grid(format, x).0, x.len() as f64);
            let half = step * if format == WeightFormat::I16 { 1.0 } else { 0.5 };
            let zero_off = step * if format == WeightFormat::H8 { 1.0 / 16.0 } else { 1.0 / 64.0 };
            let tiny = f64::from(top + 1) * number::power_of_two(-133);
            let most = n * ((half + zero_off).powi(2) + tiny.powi(2)) + energy(x) / 32768.0;
            let found = error(x, &codes, scale, zero);
            prop_assert!(found <= most, "{format:?}: {found:e}, at most {most:e}; scale {scale:e} {zero}");
        }
    }

    #[test]
    fn i8_and_i16_are_off_by_half_a_step_at_most(x in groups()) {
        for format in [WeightFormat::I8, WeightFormat::I16] {
            let (codes, scale, _) = quantised(format, &x);
            for (v, q) in x.iter().zip(&codes) {
                let off = (f64::from(*v) - f64::from(*q) * scale).abs();
                // The quotient v / scale is rounded once before it is rounded to a code.
                let most = if format == WeightFormat::I16 && q.abs() == 32767 { 1.0 } else { 0.501 };
                prop_assert!(off <= most * scale, "{format:?}: {v:e} became {q} · {scale:e}");
            }
        }
    }

    #[test]
    fn doubling_the_weights_doubles_the_scale(seed in any::<u64>(), n in 1usize..=128, e in -60i32..60) {
        for format in WeightFormat::ALL {
            let n = n.min(format.group());
            let (one, other) = (normal(seed, n, 0), normal(seed, n, e));
            let (codes, scale, zero) = quantised(format, &one);
            let expected = (codes, scale * number::power_of_two(e), zero);
            prop_assert_eq!(quantised(format, &other), expected, "{:?}", format);
        }
    }

    #[test]
    fn a_grid_of_16_levels_comes_back_exactly(seed in any::<u64>(), e in -100i32..100, top in 7i32..=8) {
        let mut random = Stream::new(seed);
        let unit = number::power_of_two(e);
        let mut x: Vec<f32> = (0..128).map(|_| {
            let code = (random.below(2 * top as u32) as i32 - top).max(-8);
            (f64::from(code) * unit) as f32
        }).collect();
        x[5] = (f64::from(-top) * unit) as f32;
        for sign in [1.0, -1.0] {
            let x: Vec<f32> = x.iter().map(|v| v * sign).collect();
            let (codes, scale, _) = quantised(WeightFormat::I4, &x);
            prop_assert_eq!(error(&x, &codes, scale, 0.0), 0.0);
        }
    }
}

#[test]
fn i4_keeps_a_bell_curve_above_20_2_db() {
    let x = normal(11, 128 * 4000, -6);
    let (mut noise, mut signal) = (0.0, 0.0);
    for group in x.chunks(128) {
        let (codes, scale, _) = quantised(WeightFormat::I4, group);
        noise += error(group, &codes, scale, 0.0);
        signal += energy(group);
    }
    let snr_db = 10.0 * (signal / noise).log10();
    assert!(snr_db >= 20.45, "{snr_db:.3} dB; an exhaustive search reaches 20.51");
}

#[test]
fn hqq_beats_the_plain_range() {
    for (format, gain_db) in [(WeightFormat::H4, 0.6), (WeightFormat::H6, 0.4), (WeightFormat::H8, 0.3)] {
        let x = normal(12, 64 * 2000, -6);
        let (mut noise, mut plain) = (0.0, 0.0);
        for group in x.chunks(64) {
            let (codes, scale, zero) = quantised(format, group);
            noise += error(group, &codes, scale, zero);
            plain += plain_error(format, group);
        }
        let gain = 10.0 * (plain / noise).log10();
        assert!(gain >= gain_db, "{format:?}: {gain:.3} dB");
    }
}

#[test]
fn groups_of_zeros_have_scale_zero() {
    for format in WeightFormat::ALL {
        for x in [vec![0.0; format.group()], vec![-0.0; 3]] {
            assert_eq!(quantised(format, &x), (vec![0; x.len()], 0.0, 0.0), "{format:?}");
        }
    }
}

#[test]
fn the_largest_and_smallest_numbers_survive() {
    let smallest = f32::from_bits(1);
    for format in WeightFormat::ALL {
        for x in [[f32::MAX, -f32::MAX, 1.0], [smallest, -smallest, 0.0], [f32::MAX, smallest, 0.0]] {
            let (codes, scale, zero) = quantised(format, &x);
            let (found, limit) = (error(&x, &codes, scale, zero), energy(&x) * 0.01);
            assert!(found <= limit.max(number::power_of_two(-262)), "{format:?} {x:?}: {codes:?} {scale:e}");
        }
    }
}

#[test]
fn a_row_is_groups_and_padding() {
    for format in WeightFormat::ALL {
        let k = 128 + 40;
        let matrix = Matrix::new(format, 3, k);
        let mut tile = matrix.zero_tile();
        let rows: Vec<Vec<f32>> = (0..3).map(|i| normal(20 + i, k, -5)).collect();
        for (r, row) in rows.iter().enumerate() {
            quantise_row(&matrix, row, r, &mut tile);
        }
        for r in 0..TILE_ROWS {
            let codes = &tile.codes[r * matrix.k_padded()..][..matrix.k_padded()];
            let scales = &tile.scales[r * matrix.groups()..][..matrix.groups()];
            assert!(codes[k..].iter().all(|c| *c == 0), "{format:?}: padded columns");
            if r >= 3 {
                assert!(
                    codes.iter().all(|c| *c == 0) && scales.iter().all(|s| *s == 0),
                    "{format:?}: padded rows"
                );
                continue;
            }
            for (g, group) in rows[r].chunks(format.group()).enumerate() {
                let (alone, scale, _) = quantised(format, group);
                assert_eq!(codes[g * format.group()..][..group.len()], alone);
                assert_eq!(bf16::from_bits(scales[g]).to_f64(), scale);
            }
            assert_eq!(scales[k.div_ceil(format.group())..].iter().filter(|s| **s != 0).count(), 0);
        }
        clear(&mut tile);
        assert_eq!(tile, matrix.zero_tile());
    }
}

#[test]
fn not_finite_is_found_where_it_is() {
    let mut x = normal(1, 300, 100);
    assert_eq!(not_finite(&x), None);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        x[217] = bad;
        assert_eq!(not_finite(&x), Some(217));
    }
    assert_eq!(not_finite(&[f32::MAX; 300]), None);
}

/// The same codes and scales on every machine and for ever: another digest is another weight cache, and needs
/// a new arithmetic version.
#[test]
fn results_are_pinned() {
    let digests = WeightFormat::ALL.map(|format| {
        let mut bytes = Vec::new();
        for (i, e) in [-9, -3, 0, 7, -120, 110].into_iter().enumerate() {
            let matrix = Matrix::new(format, 16, 1000);
            let mut tile = matrix.zero_tile();
            for r in 0..TILE_ROWS {
                quantise_row(&matrix, &normal((100 * i + r) as u64, 1000, e), r, &mut tile);
            }
            bytes.extend(tile.codes.iter().flat_map(|c| c.to_le_bytes()));
            bytes.extend(tile.scales.iter().chain(&tile.zeros).flat_map(|s| s.to_le_bytes()));
        }
        format!("{} {}", format.name(), Digest::of(&bytes).short())
    });
    assert_eq!(digests, PINNED);
}

const PINNED: [&str; 6] = [
    "i4 d1e165dee21134f7",
    "h4 bcdb80a942dbd0a2",
    "h6 4631b4b5e59644f6",
    "h8 7c53f7348cf001c8",
    "i8 e6f5d43b6ceb59fd",
    "i16 a231d5f8fad934e4",
];
