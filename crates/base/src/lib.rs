//! Takes: bytes, files and counters of the operating system.
//! Gives: units, the two error enums, checksums, file mappings, Philox random numbers, tables of text.
//! Never: knows about models or devices.

pub mod counting_alloc;
pub mod error;
pub mod hash;
pub mod mmap;
pub mod os;
pub mod philox;
pub mod table;
pub mod units;

pub use error::{Error, FileFault, Refusal, Result, WorldError};
pub use units::{Bytes, ExpertId, LayerId, SlotId, Tokens};

/// Version of the arithmetic contract (docs/arithmetic.md). Stored in weight caches and bench records;
/// any change of a defined result raises it.
pub const ARITHMETIC_VERSION: u32 = 1;
