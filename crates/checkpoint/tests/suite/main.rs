//! All integration tests but those that measure the process, in one binary.

mod build;
mod config;
mod fixtures;
mod folder_faults;
mod header_faults;
mod hostile;
mod reads;
mod rope;
mod writer;
