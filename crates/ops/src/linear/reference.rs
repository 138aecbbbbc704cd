//! The definition of every product with a packed matrix (docs/arithmetic.md §2).

use half::{bf16, f16};

use super::Desc;
use super::acts::ActRows;
use super::layout::Matrix;
use crate::HostArgs;
use crate::format::ACT_GROUP;

/// One unpacked weight row.
pub(crate) struct WeightRow {
    codes: Vec<i32>,
    scales: Vec<f32>,
    /// Empty for formats without a zero.
    zeros: Vec<f32>,
    group: usize,
}

impl WeightRow {
    /// Row `n` of a matrix from its packed `codes` and `scales`.
    pub fn read(matrix: &Matrix, codes: &[u8], scales: &[u8], n: usize) -> Self {
        let mut row = vec![0; matrix.k_padded()];
        matrix.unpack_row(codes, n, &mut row);
        let scale = |g| bf16::from_bits(matrix.scale_bits(scales, n, g)).to_f32();
        let zero = |g| f16::from_bits(matrix.zero_bits(scales, n, g)).to_f32();
        WeightRow {
            codes: row,
            scales: (0..matrix.groups()).map(scale).collect(),
            zeros: if matrix.format.has_zero() {
                (0..matrix.groups()).map(zero).collect()
            } else {
                Vec::new()
            },
            group: matrix.format.group(),
        }
    }

    /// The row times one activation row of codes `a` (padded) and scales `sa` (one per 128).
    pub fn product(&self, a: &[i32], sa: &[f32]) -> f32 {
        assert_eq!(a.len(), self.codes.len(), "activation row and weight row have one padded length");
        let mut acc = 0.0f32;
        let groups = a.chunks_exact(self.group).zip(self.codes.chunks_exact(self.group));
        for (g, (a, w)) in groups.enumerate() {
            // A product fits i32 in every format (at most 2^15 · 2^15); the sum of I16 × A16 does not.
            let t: i64 = a.iter().zip(w).map(|(&a, &w)| i64::from(a * w)).sum();
            let sa = sa[g * self.group / ACT_GROUP];
            let u = match self.zeros.get(g) {
                None => t as f32 * sa,
                Some(&z) => {
                    let sum: i64 = a.iter().map(|&a| i64::from(a)).sum();
                    (-z).mul_add(sum as f32, t as f32) * sa
                }
            };
            acc = u.mul_add(self.scales[g], acc);
        }
        acc
    }
}

pub(super) fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let rows = args.rows.len();
    let matrix = Matrix::new(desc.format, desc.n, desc.k);
    let input = ActRows::bind(&args.reads, 0, rows, desc.k, desc.acts);
    let (codes, scales) = args.reads.bytes(2)[..matrix.bytes()].split_at(matrix.code_bytes());
    let bias = desc.bias.then(|| args.reads.f32(3, desc.n));
    let y = args.writes.f32(0, rows * desc.n);
    let a: Vec<_> = (0..rows).map(|r| input.widened(r)).collect();
    for n in 0..desc.n {
        let weights = WeightRow::read(&matrix, codes, scales, n);
        for r in 0..rows {
            let acc = weights.product(&a[r], input.scales(r));
            y[r * desc.n + n] = bias.map_or(acc, |b| acc + b[n]);
        }
    }
}
