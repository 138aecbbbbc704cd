//! Takes: sizes of named regions.
//! Gives: a device's memory as arenas of regions, and checked views of them. Today the host device; the CUDA
//! device will stand beside it with the same interface.
//! Never: model words, policy.

pub mod arena;

pub use arena::{Arena, RegionId, Span};
