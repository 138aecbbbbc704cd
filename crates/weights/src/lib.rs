//! Takes: a checkpoint, the manifest of a model and a recipe.
//! Gives: one versioned, checksummed, page-aligned file of packed weights, the same bytes on every run, and a
//! reader by role and expert.
//! Never: knows about devices or requests.

pub mod quant;
