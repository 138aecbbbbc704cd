//! Takes: sizes of named regions, copies to make.
//! Gives: a device's memory as arenas of regions, checked views of them, a copy queue with events. Today the
//! host device; the CUDA device will stand beside it with the same interface.
//! Never: model words, policy.

pub mod arena;
pub mod copy;

pub use arena::{Arena, RegionId, Span};
pub use copy::{CopyQueue, Event, POISON, Pace};
