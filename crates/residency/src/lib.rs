//! Takes: how many slots there are, which experts a step or a layer group needs.
//! Gives: which slot each expert is in, what to copy where, what is evicted for it.
//! Never: touches devices, copies or requests: decisions only.

mod directory;
mod policy;
mod stream;
#[cfg(test)]
mod tests;

pub use directory::{Directory, Key, Load, Resolved};
pub use policy::loads_on_demand;
pub use stream::Stream;
