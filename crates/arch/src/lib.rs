//! Takes: a checkpoint's configuration and tensor names.
//! Gives: `Model` (plain data), the `Manifest` of what a weight cache holds, and the flat `Program` of steps.
//! Never: devices, bytes of tensors (except to compare a head with its embedding), requests, arithmetic.
//!
//! One file per family under `families/`; adding a family = one file there, one line in [`read`] and a
//! fixture.

pub mod families;
pub mod lower;
pub mod manifest;
pub mod model;
pub mod program;
pub mod recipe;
pub mod role;

pub use families::{read, read_bare};
pub use lower::lower;
pub use manifest::{Entry, EntryKind, ExpertEntry, Manifest, RowSlice, Source, Transform};
pub use model::{Attention, Ffn, GatedDelta, Layer, Mixer, Model, Moe, Rope};
pub use program::{
    Buffer, BufferId, CONTEXT_STEP, Operand, Program, RouterBuffers, Rows, StateSpec, Step, Table,
};
pub use recipe::{Profile, Recipe, RoleClass};
pub use role::{Part, Role};

#[cfg(test)]
mod tests;
