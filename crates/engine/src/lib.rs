//! Takes: a lowered program, a weight cache and options.
//! Gives: a running model: prefill in chunks, decode of several sequences, sampling, digests, statistics.
//! Never: HTTP, terminals, files (the cache is opened by `weights`).
//!
//! The only crate that acts. The chunk loop, sequence slots and cancellation exist once, here, above
//! [`host::HostExecutor`], which binds a program to memory and runs its steps.

mod engine;
mod generate;
mod host;
pub mod sample;
mod stats;
mod tables;
mod weight_source;

pub use engine::{Engine, Observer, Options, Seq, Wanted};
pub use generate::{Finish, GenerateOptions, Generated, generate};
pub use stats::{KindStats, Stats};
pub use weight_source::WeightSource;
