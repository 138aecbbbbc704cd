//! Sizes that products are written for, and what they cost.

use base::Refusal;

use super::layout::Matrix;
use crate::Cost;

/// Most output features: no real matrix comes near, and every byte count stays far below 2^63.
pub(crate) const MAX_N: usize = 1 << 24;
/// Most input features.
pub(crate) const MAX_K: usize = 1 << 20;
/// Most experts of a layer.
pub(crate) const MAX_EXPERTS: usize = 1 << 16;

/// Refuses sizes outside 1..=limit.
pub(crate) fn at_most(field: &str, value: usize, limit: usize) -> Result<(), Refusal> {
    if (1..=limit).contains(&value) {
        return Ok(());
    }
    Err(Refusal::value(field, value, format!("1 to {limit}"), "check the model's configuration"))
}

/// Refuses expert layers outside the limits.
pub(crate) fn experts(op: &str, experts: usize, top_k: usize) -> Result<(), Refusal> {
    at_most(&format!("{op}.experts"), experts, MAX_EXPERTS)?;
    at_most(&format!("{op}.top_k"), top_k, experts)
}

/// Operations of `rows` activation rows times the first `n` rows of a matrix; bytes are left at 0.
pub(crate) fn product_cost(matrix: &Matrix, n: usize, rows: usize) -> Cost {
    // Per group: conversion, scale, fma (2); with a zero also the conversion of the sum and one fma.
    let per_group = if matrix.format.has_zero() { 7 } else { 4 };
    Cost {
        int_macs: (rows * n) as u64 * matrix.k as u64,
        float_ops: (rows * n) as u64 * (matrix.groups() * per_group) as u64,
        ..Cost::default()
    }
}
