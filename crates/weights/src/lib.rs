//! Takes: a checkpoint (or another origin of weights), the manifest of a model and a recipe.
//! Gives: one versioned, checksummed, page-aligned file of packed weights, the same bytes on every run, and a
//! reader by role and expert.
//! Never: knows about devices or requests.

mod build;
mod disk;
pub mod header;
mod journal;
mod layout;
pub mod origin;
mod pack;
pub mod quant;
pub mod reader;
mod source;
pub mod store;
#[cfg(test)]
mod tests;
mod work;

pub use build::{Options, Progress, build, build_from, ensure};
pub use header::Key;
pub use origin::{Origin, Piece};
pub use reader::{Cache, Description, Report};
pub use store::{Listed, cache_path};
