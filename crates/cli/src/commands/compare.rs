use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use eval::compare::{Comparison, Reference, Texts, compare};

use crate::interrupt;
use crate::load::Opened;
use crate::output::{note, put, put_json, table};
use crate::settings::{EngineArgs, RecipeArgs};

/// Compares a model's results with those of an independent implementation
///
/// A file of expected logits needs no tokenizer: logits, router choices and greedy ids are compared. A
/// witness folder holds greedy texts, perplexities and log-probabilities. Without --witness, `witness/` or
/// `expected.safetensors` of the model folder is taken. A difference is a figure, not an error: the exit code
/// is 0.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// A model folder, or its name in the models folder
    model: String,
    /// A file of expected logits, or a witness folder
    #[arg(long, value_name = "PATH")]
    witness: Option<PathBuf>,
    /// Folder of the texts that the witness's perplexities are about (DIR/ppl/KIND.txt or DIR/KIND.txt)
    #[arg(long, value_name = "DIR")]
    text: Option<PathBuf>,
    /// Another configuration than the folder's config.json
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
}

pub fn run(args: CompareArgs) -> Result<()> {
    let recipe = args.recipe.recipe()?;
    let opened = Opened::folder(&crate::home::required_model(&args.model)?, args.config.as_deref())?;
    let reference = Reference::open(args.witness.as_deref(), &opened.folder)?;
    let tokenizer = if reference.needs_tokenizer() { Some(opened.tokenizer()?) } else { None };
    let mut engine_args = args.engine.clone();
    engine_args.size.context = engine_args.size.context.or(Some(reference.context()));
    let options = engine_args.options(&opened.model, &recipe, 0)?;
    let working = interrupt::working();
    let mut engine = opened.engine(recipe, options, working.flag())?;
    let told = &mut |what: &str| note(what);
    let texts = args.text.as_deref();
    let result = compare(&mut engine, tokenizer.as_ref(), &reference, texts, working.flag(), told)?;
    if args.json { put_json(&result) } else { Ok(put(&text(&result))?) }
}

fn text(c: &Comparison) -> String {
    let figure = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.6}"));
    let mut rows = vec![
        vec!["family".into(), c.family.into()],
        vec!["profile".into(), c.profile.clone()],
        vec!["tokens".into(), c.tokens.to_string()],
        vec!["logits, relative rms".into(), c.logits_rel_rms.map_or("-".into(), |x| format!("{x:.3e}"))],
        vec!["greedy ids equal".into(), format!("{} of {}", c.greedy_prefix, c.greedy_tokens)],
        vec!["mean KL".into(), figure(c.kl_mean)],
        vec!["same most likely token".into(), figure(c.top1_agree)],
    ];
    if c.router_checked + c.router_undecided > 0 {
        let open = c.router_undecided;
        let counts = format!("{} of {}, {open} not decidable", c.router_mismatches, c.router_checked);
        rows.push(vec!["router choices that differ".into(), counts]);
    }
    let mut text = table(&rows, &[]);
    if let Some(texts) = &c.texts {
        text += &kinds(texts);
    }
    text
}

fn kinds(t: &Texts) -> String {
    let head = vec![
        vec!["prompts rendered alike".into(), format!("{} of {}", t.prompts_equal, t.greedy_texts)],
        vec!["greedy texts equal".into(), format!("{} of {}", t.greedy_texts_equal, t.greedy_texts)],
    ];
    let mut rows = vec![["kind", "ppl", "witness", "%", "mean KL"].map(String::from).to_vec()];
    for (name, kind) in &t.kinds {
        let figure = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.4}"));
        let off = kind.ppl.zip(kind.ppl_witness).map(|(a, b)| 100.0 * (a / b - 1.0));
        let cells = [figure(kind.ppl), figure(kind.ppl_witness), figure(off), figure(kind.kl_mean)];
        rows.push([name.clone()].into_iter().chain(cells).collect());
    }
    format!("{}\n{}", table(&head, &[]), table(&rows, &[false, true, true, true, true]))
}
