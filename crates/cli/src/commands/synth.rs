use std::path::PathBuf;

use anyhow::Result;
use base::Bytes;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use eval::synth::{self, Family, ShapeChoice};

use crate::interrupt;
use crate::output::{Progress, put, put_json};
use crate::settings::size;

/// Writes a random model of a real shape, for benchmarks
///
/// A BF16 folder in the form published on Hugging Face, without a tokenizer. Dimensions that are not given
/// follow from the family and the size. The content depends on the dimensions and the seed only.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// The folder to write; it must not exist
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// Family
    #[arg(long, value_parser = family(), default_value = "qwen3_moe")]
    family: Family,
    /// Bytes to come near to (8GB, 500MB, 2GiB): decides layers and experts
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Width of the residual stream
    #[arg(long, value_name = "N")]
    hidden: Option<usize>,
    /// Decoder layers
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// Experts per layer
    #[arg(long, value_name = "N")]
    num_experts: Option<usize>,
    /// Routed experts per token
    #[arg(long, value_name = "N")]
    top_k: Option<usize>,
    /// Width of an expert
    #[arg(long, value_name = "N")]
    inter: Option<usize>,
    /// Query heads
    #[arg(long, value_name = "N")]
    heads: Option<usize>,
    /// KV heads
    #[arg(long, value_name = "N")]
    kv_heads: Option<usize>,
    /// Elements of a head
    #[arg(long, value_name = "N")]
    head_dim: Option<usize>,
    /// Rows of embedding and head
    #[arg(long, value_name = "N")]
    vocab: Option<usize>,
    /// Key heads of linear attention (qwen3_next)
    #[arg(long, value_name = "N")]
    key_heads: Option<usize>,
    /// Value heads of linear attention (qwen3_next)
    #[arg(long, value_name = "N")]
    value_heads: Option<usize>,
    /// Elements of its keys and values (qwen3_next)
    #[arg(long, value_name = "N")]
    linear_dim: Option<usize>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

fn family() -> impl TypedValueParser<Value = Family> {
    PossibleValuesParser::new(Family::ALL.map(Family::name))
        .try_map(|name| Family::ALL.into_iter().find(|f| f.name() == name).ok_or(name))
}

pub fn run(args: SynthArgs) -> Result<()> {
    let choice = ShapeChoice {
        size_bytes: args.size,
        hidden: args.hidden,
        layers: args.layers,
        experts: args.num_experts,
        top_k: args.top_k,
        inter: args.inter,
        heads: args.heads,
        kv_heads: args.kv_heads,
        head_dim: args.head_dim,
        vocab: args.vocab,
        key_heads: args.key_heads,
        value_heads: args.value_heads,
        linear_dim: args.linear_dim,
    };
    let shape = choice.resolve(args.family)?;
    let working = interrupt::working();
    let mut bar = Progress::new(format!("writing {}", args.checkpoint.display()), shape.bytes());
    let written =
        synth::write(&shape, args.seed, &args.checkpoint, synth::SHARD_BYTES, working.flag(), &mut |done| {
            bar.set(done)
        })?;
    bar.finish();
    if args.json {
        return put_json(&written);
    }
    let (folder, bytes) = (written.folder.display(), Bytes(written.bytes));
    let millions = written.parameters as f64 / 1e6;
    Ok(put(&format!("{folder}: {bytes}, {millions:.0} M parameters, {} shards\n", written.shards))?)
}
