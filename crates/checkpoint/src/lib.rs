//! Takes: an untrusted folder in the form published on Hugging Face (config.json, safetensors shards).
//! Gives: a checked namespace of tensors with exact reads, and a config reader that knows what nobody read.
//! Never: knows about devices, model families or quantisation policy.

pub mod config;
pub mod dtype;
pub mod folder;
mod index;
pub mod json;
mod read;
pub mod rope;
pub mod safetensors;

pub use config::Config;
pub use dtype::Dtype;
pub use folder::{Checkpoint, eos_ids, synthetic_with_tensors};
pub use rope::{Rope, RopeScaling};
pub use safetensors::TensorInfo;

/// Key of config.json that makes a folder one of a synthetic model: it has no tensors, only a weight cache
/// that `krasis synth` wrote.
pub const SYNTHETIC: &str = "krasis_synth";
/// Version of the rule by which such weights are made up, in that section: raised whenever the same shape and
/// seed give other bytes.
pub const SYNTHETIC_VERSION: usize = 1;
/// Most bytes of a safetensors header or of a shard index. The reference implementation has the same cap.
pub const MAX_HEADER_BYTES: usize = 100_000_000;
/// Most bytes of config.json or generation_config.json.
pub const MAX_CONFIG_BYTES: usize = 4 << 20;
/// Most tensors of one folder. The largest published model (FP8, 384 experts, 61 layers) has about 150,000.
pub const MAX_TENSORS: usize = 1 << 20;
/// Most entries of a header's free text.
pub const MAX_METADATA: usize = 4096;
/// Most dimensions of one tensor.
pub const MAX_RANK: usize = 8;
/// Most bytes of a tensor's name.
pub const MAX_NAME_BYTES: usize = 1024;
/// Most shards of one folder.
pub const MAX_SHARDS: usize = 4096;
/// Tensors may be separated by fewer bytes than this, for alignment.
pub const MAX_PADDING_BYTES: u64 = 64;
