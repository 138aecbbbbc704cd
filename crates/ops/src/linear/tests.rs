//! The definition itself, held against values worked out in another way.

use half::{bf16, f16};

use super::Desc;
use super::layout::{Matrix, Tile};
use crate::conformance::bytes;
use crate::format::{Acts, WeightFormat};
use crate::{Case, Experts, HostArgs, Op, Reads, Writes};

/// Runs the reference of a case of one output and one row.
fn product(desc: Desc, codes: &[u8], scales: &[f32], tile: &Tile, bias: &[f32]) -> f32 {
    let matrix = Matrix::new(desc.format, desc.n, desc.k);
    let mut weight = vec![0; matrix.bytes()];
    let (packed, packed_scales) = weight.split_at_mut(matrix.code_bytes());
    matrix.pack_tile(tile, packed, packed_scales);
    let mut case = Case::new("one", desc, 1).read(codes).read(scales).read(&weight[..]);
    if desc.bias {
        case = case.read(bias);
    }
    let mut case = case.output();
    desc.reference(HostArgs {
        rows: &case.rows,
        context: 1,
        reads: Reads(case.reads.iter().map(Vec::as_slice).collect()),
        writes: Writes(case.writes.iter_mut().map(Vec::as_mut_slice).collect()),
        experts: Experts::default(),
    });
    f32::from_le_bytes(case.writes[0][..4].try_into().expect("one float"))
}

#[test]
fn two_groups_and_a_bias_by_hand() {
    let desc = Desc { n: 1, k: 256, format: WeightFormat::I4, acts: Acts::A8, bias: true };
    let mut tile = Matrix::new(desc.format, 1, 256).zero_tile();
    (tile.codes[0], tile.codes[1], tile.codes[200]) = (-8, 7, 5);
    (tile.scales[0], tile.scales[1]) = (bf16::from_f32(-0.5).to_bits(), bf16::from_f32(2.0).to_bits());
    let mut codes = vec![0i8; 256];
    (codes[0], codes[1], codes[200]) = (10, -3, 127);
    // (-80 - 21) · 0.25 · -0.5 + 635 · 0.5 · 2 + 1.5
    let y = product(desc, &bytes(&codes), &[0.25, 0.5], &tile, &[1.5]);
    assert_eq!(y, 12.625 + 635.0 + 1.5);
}

#[test]
fn a_zero_is_taken_from_every_code_by_hand() {
    let desc = Desc { n: 1, k: 64, format: WeightFormat::H6, acts: Acts::A16, bias: false };
    let mut tile = Matrix::new(desc.format, 1, 64).zero_tile();
    (tile.codes[0], tile.codes[63]) = (63, 1);
    (tile.scales[0], tile.zeros[0]) = (bf16::from_f32(0.5).to_bits(), f16::from_f32(2.5).to_bits());
    let mut codes = vec![0i16; 128];
    (codes[0], codes[63]) = (1000, -2000);
    // ((63 - 2.5) · 1000 + (1 - 2.5) · -2000) · 0.125 · 0.5
    let y = product(desc, &bytes(&codes), &[0.125], &tile, &[]);
    assert_eq!(y, (60_500.0 + 3_000.0) * 0.0625);
}

/// The sum of I16 × A16 does not fit 32 bits, and is rounded once.
#[test]
fn the_largest_sum_is_rounded_once() {
    let desc = Desc { n: 1, k: 128, format: WeightFormat::I16, acts: Acts::A16, bias: false };
    let mut tile = Matrix::new(desc.format, 1, 128).zero_tile();
    tile.codes[..128].fill(32767);
    tile.scales[0] = bf16::from_f32(1.0).to_bits();
    let mut codes = vec![32767i16; 128];
    codes[5] = -32766;
    let exact: i64 = 127 * 32767 * 32767 - 32766 * 32767;
    assert_eq!(product(desc, &bytes(&codes), &[1.0], &tile, &[]), exact as f32);
}
