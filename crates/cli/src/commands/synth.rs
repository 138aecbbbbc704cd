use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::Result;
use base::{Bytes, Refusal};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use eval::synth::{self, Family, Made, Named, Routing, Shape, ShapeChoice};

use crate::output::{Progress, put, put_json, table};
use crate::settings::{RecipeArgs, size};
use crate::{home, interrupt};

/// Makes up a random model of a real shape, for benchmarks
///
/// Random codes go straight into a weight cache; the folder holds a configuration and nothing else. Its
/// tokens are routed by a table that repeats experts as real models do, and the hits of an LRU cache are
/// printed beside those measured on real models. With --checkpoint it is a BF16 folder in the form published
/// on Hugging Face instead, routed by its random weights. There is no tokenizer. The content depends on the
/// dimensions, the seed and the formats only.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// qwen3-30b-a3b or qwen3-coder-next, whose dimensions are those not given [default: see --family]
    #[arg(value_parser = named())]
    shape: Option<Named>,
    /// Write a BF16 folder, here or to --out
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    #[arg(conflicts_with_all = ["profile", "experts", "attention", "linear_attention", "shared", "dense"])]
    #[arg(conflicts_with_all = ["head", "kv", "acts", "threads"])]
    checkpoint: Option<Option<PathBuf>>,
    /// The folder to write [default: one named after the shape in the models folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Family of a model without a name: what is not given follows from it and the size [default: qwen3_moe]
    #[arg(long, value_parser = family(), conflicts_with = "shape")]
    family: Option<Family>,
    /// Bytes in BF16 to come near to (8GB, 500MB, 2GiB): decides layers and experts
    #[arg(long, value_parser = size, conflicts_with = "shape")]
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
    /// Worker threads [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    recipe: RecipeArgs,
}

fn named() -> impl TypedValueParser<Value = Named> {
    PossibleValuesParser::new(Named::ALL.map(Named::name))
        .try_map(|name| Named::ALL.into_iter().find(|n| n.name() == name).ok_or(name))
}

fn family() -> impl TypedValueParser<Value = Family> {
    PossibleValuesParser::new(Family::ALL.map(Family::name))
        .try_map(|name| Family::ALL.into_iter().find(|f| f.name() == name).ok_or(name))
}

impl SynthArgs {
    fn shape(&self) -> Result<Shape, Refusal> {
        let choice = ShapeChoice {
            size_bytes: self.size,
            hidden: self.hidden,
            layers: self.layers,
            experts: self.num_experts,
            top_k: self.top_k,
            inter: self.inter,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            vocab: self.vocab,
            key_heads: self.key_heads,
            value_heads: self.value_heads,
            linear_dim: self.linear_dim,
        };
        match self.shape {
            Some(named) => named.cut(&choice),
            None => choice.resolve(self.family.unwrap_or(Family::Qwen3Moe)),
        }
    }

    /// The folder to write. Errors: two are named, or --checkpoint took the name of a shape for one.
    fn folder(&self) -> Result<PathBuf> {
        let at = self.checkpoint.as_ref().and_then(Option::as_ref);
        let is_shape = |path: &PathBuf| Named::ALL.iter().any(|n| path.as_os_str() == n.name());
        if let Some(path) = at.filter(|path| self.shape.is_none() && is_shape(path)) {
            let hint = "put the shape before --checkpoint, or a slash into the folder's name";
            return Err(Refusal::value(
                "checkpoint",
                path.display(),
                "a folder, not the name of a shape",
                hint,
            )
            .into());
        }
        match (at, &self.out) {
            (Some(_), Some(_)) => {
                let hint = "give one of the two";
                Err(Refusal::value("out", "given", "only without a folder after --checkpoint", hint).into())
            }
            (Some(path), None) | (None, Some(path)) => Ok(path.clone()),
            (None, None) => Ok(home::models()?.join(self.usual_name())),
        }
    }

    /// Names the shape and the usual cuts; other dimensions are told apart by the folder's configuration.
    fn usual_name(&self) -> String {
        let family = self.family.unwrap_or(Family::Qwen3Moe);
        let mut name = format!("synth-{}", self.shape.map_or(family.name(), Named::name));
        if self.checkpoint.is_some() {
            name += "-bf16";
        }
        for (count, unit) in [(self.layers, "layers"), (self.num_experts, "experts")] {
            name += &count.map_or(String::new(), |n| format!("-{n}-{unit}"));
        }
        name
    }
}

pub fn run(args: SynthArgs) -> Result<()> {
    let (shape, folder) = (args.shape()?, args.folder()?);
    let working = interrupt::working();
    if args.checkpoint.is_some() {
        let mut bar = Progress::new(format!("writing {}", folder.display()), shape.bytes());
        let set = &mut |done| bar.set(done);
        let written = synth::write(&shape, args.seed, &folder, synth::SHARD_BYTES, working.flag(), set)?;
        bar.finish();
        if args.json {
            return put_json(&written);
        }
        let (folder, bytes) = (written.folder.display(), Bytes(written.bytes));
        let millions = written.parameters as f64 / 1e6;
        return Ok(put(&format!(
            "{folder}: {bytes}, {millions:.0} M parameters, {} shards\n",
            written.shards
        ))?);
    }
    let recipe = args.recipe.recipe()?;
    let threads = args.threads.map_or_else(base::os::threads, |n| n as usize);
    let bar = RefCell::new(None);
    let progress = |p: weights::Progress| {
        let label = || format!("making up {}", folder.display());
        bar.borrow_mut().get_or_insert_with(|| Progress::new(label(), p.bytes_total)).set(p.bytes_done);
    };
    let home = home::home()?;
    let made = synth::make(&shape, args.seed, &recipe, &folder, &home, threads, &progress, working.flag())?;
    if let Some(bar) = bar.into_inner() {
        bar.finish();
    }
    if args.json { put_json(&made) } else { Ok(put(&text(&made))?) }
}

fn text(made: &Made) -> String {
    let millions = made.parameters as f64 / 1e6;
    let (folder, cache) = (made.folder.display(), made.cache.display());
    let mut text = format!("{folder}: {millions:.0} M parameters\n{cache}: {}", Bytes(made.bytes));
    text += &match made.written {
        true => format!(
            " in {:.2} s, {:.2} GB/s per thread on {}, on disk after {:.2} s\n",
            made.fill_seconds, made.gb_s_per_thread, made.threads, made.seconds
        ),
        false => " (it was there)\n".to_string(),
    };
    text + &routing(&made.routing)
}

fn routing(r: &Routing) -> String {
    let target = |t: Option<f64>| t.map_or("-".to_string(), |t| format!("{t:.2}"));
    let header = ["routing", "made", "measured on a real model"].map(String::from).to_vec();
    let lru = r.lru.iter().map(|l| {
        let what = format!("hits of an LRU cache of {} of {} experts per layer", l.slots, r.experts);
        vec![what, format!("{:.3}", l.hit_rate), target(l.target)]
    });
    let reuse = r.reuse.iter().map(|u| {
        let what = match u.tokens {
            1 => "experts that served the token before".to_string(),
            n => format!("experts that served one of the {n} tokens before"),
        };
        vec![what, format!("{:.3}", u.rate), target(u.target)]
    });
    let rows: Vec<_> = [header].into_iter().chain(lru).chain(reuse).collect();
    let mut text = table(&rows, &[false, true, true]);
    text += &format!(
        "{} positions, {} layers; stack distances with lambda {:.2}, s {}",
        r.positions, r.layers, r.lambda, r.s
    );
    if r.experts != r.fit_experts {
        text += &format!(
            " (lambda and the caches' sizes in proportion to {} experts instead of {})",
            r.experts, r.fit_experts
        );
    }
    text + "\n"
}
