//! Takes: a lowered program, a weight cache and options.
//! Gives: a running model: prefill in chunks, decode of several sequences, sampling, digests, statistics.
//! Never: HTTP, terminals, files (the cache is opened by `weights`).
//!
//! The only crate that acts. Passes, chunks, the expert cache, sequence slots and cancellation exist once,
//! here, above [`executor::Executor`], which runs the steps of a program that [`bind`] bound to a device's
//! memory.

#[cfg(test)]
extern crate self as engine; // tests of the inside share helpers with those of the outside

mod bind;
mod events;
mod executor;
mod expert_cache;
mod generate;
mod host;
mod options;
mod prefill;
mod run;
mod running;
pub mod sample;
mod stats;
mod tables;
#[cfg(test)]
mod tests;
mod usage;
mod weight_source;

pub use events::{Events, Happened, What};
pub use expert_cache::Residents;
pub use generate::{Finish, GenerateOptions, Generated, generate};
pub use options::{Checks, Options};
pub use run::Observer;
pub use running::{Engine, Seq, Wanted};
pub use stats::{ExpertStats, KindStats, Stats};
pub use usage::RegionUse;
pub use weight_source::WeightSource;
