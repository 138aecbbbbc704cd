//! View of coded activation rows, shared by `linear` and the expert ops.

use crate::args::Reads;
use crate::format::{ACT_GROUP, Acts};

/// Rows of activation codes and their scales.
#[derive(Clone, Copy)]
pub(crate) struct ActRows<'a> {
    pub acts: Acts,
    /// i8 or little-endian i16, `row_bytes` per row.
    codes: &'a [u8],
    /// `groups` per row.
    scales: &'a [f32],
    row_bytes: usize,
    groups: usize,
}

impl<'a> ActRows<'a> {
    /// `rows` coded rows of `k` values from the read operands `codes` and `scales` = `codes + 1`.
    pub fn bind(reads: &Reads<'a>, codes: usize, rows: usize, k: usize, acts: Acts) -> Self {
        let (row_bytes, groups) = (acts.row_code_bytes(k), k.div_ceil(ACT_GROUP));
        let bytes = &reads.bytes(codes)[..rows * row_bytes];
        ActRows { acts, codes: bytes, scales: reads.f32(codes + 1, rows * groups), row_bytes, groups }
    }

    /// Codes of one row as stored, padding included.
    #[inline(always)]
    pub fn codes(&self, row: usize) -> &'a [u8] {
        &self.codes[row * self.row_bytes..][..self.row_bytes]
    }

    /// Scales of one row, one per 128 codes.
    #[inline(always)]
    pub fn scales(&self, row: usize) -> &'a [f32] {
        &self.scales[row * self.groups..][..self.groups]
    }

    /// Codes of one row as integers.
    pub fn widened(&self, row: usize) -> Vec<i32> {
        let bytes = self.codes(row);
        match self.acts {
            Acts::A8 => bytes.iter().map(|&b| i32::from(b as i8)).collect(),
            Acts::A16 => bytes.as_chunks::<2>().0.iter().map(|&b| i32::from(i16::from_le_bytes(b))).collect(),
        }
    }
}
