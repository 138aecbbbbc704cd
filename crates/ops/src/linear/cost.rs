//! What products cost, and the limits that expert ops share.

use base::Refusal;

use super::layout::Matrix;
use crate::limits::{MAX_WIDTH, within};
use crate::{Cost, Dims, Op};

/// Most experts of a layer.
const MAX_EXPERTS: usize = 1 << 16;

/// Refuses expert layers outside the limits.
pub(crate) fn expert_limits(op: &str, experts: usize, top_k: usize) -> Result<(), Refusal> {
    within(&format!("{op}.experts"), experts, 1, MAX_EXPERTS)?;
    within(&format!("{op}.top_k"), top_k, 1, experts)
}

/// Refuses widths outside the limits.
pub(crate) fn expert_widths(op: &str, hidden: usize, inter: usize) -> Result<(), Refusal> {
    within(&format!("{op}.hidden"), hidden, 1, MAX_WIDTH)?;
    within(&format!("{op}.inter"), inter, 1, MAX_WIDTH)
}

/// Cost of `rows` activation rows times the first `n` rows of a matrix, its operands read and written once.
pub(crate) fn product_cost<D: Op>(op: &D, d: Dims, matrix: &Matrix, n: usize, rows: usize) -> Cost {
    // Per group: conversion, scale, fma (2); with a zero also the conversion of the sum and one fma.
    let per_group = if matrix.format.has_zero() { 7 } else { 4 };
    let outputs = (rows * n) as u64;
    Cost {
        int_macs: outputs * matrix.k as u64,
        ..op.shapes(d).cost(0, outputs * (matrix.groups() * per_group) as u64)
    }
}

/// Bytes of the matrices that `rows` rows route to: each expert's is read once.
pub(crate) fn routed_bytes(matrix: &Matrix, experts: usize, entries: usize) -> u64 {
    entries.min(experts) as u64 * matrix.bytes() as u64
}
