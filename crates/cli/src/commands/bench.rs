use std::path::PathBuf;

use anyhow::Result;
use base::Bytes;
use clap::Args;
use eval::bench::{self, Bench, Machine, Phase, Prompt};

use crate::interrupt;
use crate::load::Opened;
use crate::output::{memory, put, put_json, table};
use crate::settings::{EngineArgs, RecipeArgs};

/// Measures prefill and decode, and what the machine could do
///
/// The prompt is real text of an exact number of tokens; a model without a tokenizer gets one id per word.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A model folder, or its name in the models folder [default: the bundled model]
    model: Option<String>,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 512)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    prompt: u32,
    /// Tokens to decode
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1 << 24))]
    decode: u32,
    /// Text to take the prompt from [default: a text in this program]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
}

pub fn run(args: BenchArgs) -> Result<()> {
    let recipe = args.recipe.recipe()?;
    let opened = Opened::named(args.model.as_deref())?;
    let tokenizer = opened.optional_tokenizer()?;
    let (count, decode) = (args.prompt as usize, args.decode as usize);
    let prompt = Prompt::new(tokenizer.as_ref(), args.text.as_deref(), count, opened.model.vocab)?;
    let options = args.engine.options(&opened.model, &recipe, count + decode)?;
    let working = interrupt::working();
    let mut engine = opened.engine(recipe, options, working.flag())?;
    let machine = Machine::measure(options.threads, options.level);
    let measured = bench::run(&mut engine, &prompt, decode, machine, working.flag())?;
    if args.json { put_json(&measured) } else { Ok(put(&text(&measured))?) }
}

/// Kinds of steps that people are shown; JSON has all.
const SHOWN_STEPS: usize = 16;

fn text(b: &Bench) -> String {
    let mut text = format!(
        "{} {}, {} on {} threads\n\
         prefill {:.1} tok/s ({} tokens), {:.2} of {:.2} int8 GMAC/s\n\
         decode  {:.1} tok/s ({} tokens), {:.2} of {:.2} GB/s\n",
        b.family,
        b.profile,
        b.simd,
        b.threads,
        b.prefill_tok_s,
        b.prefill.tokens,
        b.int8_gmac_s,
        b.machine_int8_gmac_s,
        b.decode_tok_s,
        b.decode.tokens,
        b.read_gb_s,
        b.machine_read_gb_s,
    );
    if let Some(vram) = b.vram {
        text += &format!(
            "device of {}: {:.1} % of the experts there, hit rate {:.1} %; copied {} in prefill, \
             {} in decode ({:.2} GB/s)\n\n{}",
            Bytes(vram),
            100.0 * b.resident_fraction,
            100.0 * b.hit_rate,
            Bytes(b.prefill.experts.bytes()),
            Bytes(b.decode.experts.bytes()),
            b.decode.experts.bytes() as f64 / 1e9 / b.decode.seconds.max(1e-9),
            memory(&b.memory),
        );
    }
    for (name, phase) in [("prefill", &b.prefill), ("decode", &b.decode)] {
        text += &format!("\n{name}\n{}", steps(phase));
    }
    text
}

fn steps(phase: &Phase) -> String {
    let row = |s: &bench::StepKind| {
        vec![
            format!("{:.1} %", 100.0 * s.share),
            s.step.to_string(),
            s.op.to_string(),
            format!("{:.2} GB/s", s.gb_s),
            format!("{:.2} GMAC/s", s.gmac_s),
        ]
    };
    let rows: Vec<_> = phase.steps.iter().take(SHOWN_STEPS).map(row).collect();
    table(&rows, &[true, false, false, true, true])
}
