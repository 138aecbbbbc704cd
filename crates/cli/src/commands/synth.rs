use std::path::PathBuf;

use anyhow::Result;
use base::Bytes;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use eval::synth::{self, Family, ShapeChoice};

use crate::interrupt;
use crate::output::{Progress, put, put_json};

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

/// `8GB`, `500MB`, `2GiB`, `1.5GB` or plain bytes.
fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
    let (number, factor) = unit.map_or((text, 1.0), |(name, f)| (text.trim_end_matches(name), *f));
    match number.trim().parse::<f64>() {
        Ok(n) if n > 0.0 && n * factor < 1e16 => Ok((n * factor) as u64),
        _ => Err("a size is a positive number with a unit: 8GB, 500MB, 2GiB".into()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [("8GB", 8_000_000_000), ("2GiB", 2 << 30), ("1.5MB", 1_500_000), ("77", 77)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for bad in ["", "GB", "-1GB", "nanGB", "1e30GB", "8 Gigs"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
