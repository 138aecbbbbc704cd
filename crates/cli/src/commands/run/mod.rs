//! `krasis run`: one answer, or a chat.

mod answer;
mod arguments;
mod chat;
mod once;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::exit::usage;
use crate::load::Opened;
use crate::settings::{EngineArgs, RecipeArgs};
use arguments::{Ask, Source};

/// Answers a prompt, or chats
///
/// The first argument is MODEL if it is a folder or names one in the models folder, else it is the prompt for
/// the bundled model. Without a prompt, a terminal gets a chat (one line per message, Ctrl-D ends it); from a
/// pipe, all of stdin is the prompt. Tokens are chosen greedily unless a sampling flag is given. Text goes to
/// stdout, all else to stderr.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A model folder, or its name in the models folder [default: the bundled model]
    model: Option<String>,
    /// What to ask
    prompt: Option<String>,
    /// Read the prompt from a file (`-`: stdin)
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// A system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Tools that the model may call: a JSON list of definitions, as in OpenAI's API
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// Let the model think before it answers, or not [default: off for the bundled model, else the model's
    /// own]
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"], hide_possible_values = true)]
    thinking: Option<String>,
    /// Take the prompt as plain text to go on with, without the chat template
    #[arg(long, conflicts_with_all = ["system", "tools", "thinking"])]
    plain: bool,
    /// End the answer after so many tokens [default: 1024, or the rest of the context]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// End the answer at this text, which is not shown (may be given several times)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Say at the end what it cost, and where the time went
    #[arg(long)]
    stats: bool,
    /// Print nothing but one line of JSON at the end
    #[arg(long)]
    json: bool,
    /// Compute a digest of all logits of prompt and answer: equal digests mean equal bits
    #[arg(long)]
    digest: bool,
    /// Feed the prompt token by token, as answers are made: the same bits, slower
    #[arg(long)]
    decode_prompt: bool,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
}

/// How tokens are chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
struct SamplingArgs {
    /// Seed of the random numbers [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Divides the logits; 0 is greedy [default: 0; 1 if seed, top-k, top-p or min-p is given]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keep the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Keep the most likely tokens that reach this share together
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Keep tokens with at least this share of the best one's probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Divides positive and multiplies negative logits of tokens that were there before
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Subtracted from logits of generated tokens
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtracted from logits of generated tokens, once per occurrence
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
}

impl SamplingArgs {
    fn sampling(&self) -> engine::sample::Sampling {
        let usual = engine::sample::Sampling::default();
        let draws =
            self.seed.is_some() || self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some();
        engine::sample::Sampling {
            temperature: self.temperature.unwrap_or(if draws { 1.0 } else { usual.temperature }),
            top_k: self.top_k.unwrap_or(usual.top_k),
            top_p: self.top_p.unwrap_or(usual.top_p),
            min_p: self.min_p.unwrap_or(usual.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(usual.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(usual.frequency_penalty),
            seed: self.seed.unwrap_or(usual.seed),
            logit_bias: usual.logit_bias,
        }
    }
}

/// Runs the command.
pub fn run(args: RunArgs) -> Result<()> {
    let Ask { model, source } = arguments::ask(&args)?;
    if args.json && source == Source::Chat {
        return Err(usage("--json needs a prompt: give one, or --prompt-file, or pipe it in"));
    }
    // Everything that can be refused without the model is refused before it is loaded.
    args.recipe.recipe()?;
    args.engine.level()?;
    let tools = args.tools.as_deref().map(arguments::tools).transpose()?;
    let opened = match &model {
        Some(folder) => Opened::folder(folder, None)?,
        None => Opened::bundled()?,
    };
    match source {
        Source::Prompt(prompt) => once::run(&args, &opened, tools, prompt),
        Source::Chat => chat::run(&args, &opened, tools),
    }
}
