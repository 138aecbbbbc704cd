use std::path::PathBuf;

use anyhow::Result;
use arch::Profile;
use base::WorldError;
use clap::Args;
use eval::quality::{self, Row, Variant};
use eval::windows::{Windows, kind_ids};

use crate::load::Opened;
use crate::output::{note, put};
use crate::settings::EngineArgs;
use crate::{home, interrupt};

/// Measures what the profiles and single changes cost in quality
///
/// For each kind of text: perplexity, and mean divergence from our own reference profile.
#[derive(Debug, Args)]
pub struct QualityArgs {
    /// Model folders, or names in the models folder
    #[arg(required = true)]
    models: Vec<String>,
    /// Folder of texts (DIR/ppl/KIND.txt or DIR/KIND.txt)
    #[arg(long, value_name = "DIR")]
    text: PathBuf,
    /// Kinds of text
    #[arg(
        long,
        value_name = "KIND",
        value_delimiter = ',',
        default_value = "python,gcide,hb_de,chat,rustdoc"
    )]
    kinds: Vec<String>,
    /// Write the report to a file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
}

pub fn run(args: QualityArgs) -> Result<()> {
    let windows = Windows::STANDARD;
    let mut text = head(windows);
    for name in &args.models {
        text += &model(&args, name, windows)?;
    }
    match &args.write {
        None => put(&text)?,
        Some(path) => std::fs::write(path, &text).map_err(|e| WorldError::io("write", path, e))?,
    }
    Ok(())
}

fn head(windows: Windows) -> String {
    format!(
        "# Quality of the formats\n\nWritten by `krasis quality MODEL… --text DIR --write FILE`. \
         Arithmetic version {}. Each cell is the mean KL(reference profile‖row) in nats and the \
         perplexity over {} windows of {} tokens ({} scored tokens) from the start of a held-out text; the \
         reference row has only the perplexity.\n",
        base::ARITHMETIC_VERSION,
        windows.count,
        windows.tokens,
        windows.scored(),
    )
}

/// The section of one model.
fn model(args: &QualityArgs, name: &str, windows: Windows) -> Result<String> {
    let opened = Opened::folder(&home::required_model(name)?, None)?;
    let tokenizer = opened.tokenizer()?;
    let mut engine_args = args.engine.clone();
    engine_args.size.context = engine_args.size.context.or(Some(windows.tokens));
    let options = engine_args.options(&opened.model, &Profile::Reference.recipe(), 0)?;
    let working = interrupt::working();
    let reference = Variant { name: "reference".into(), recipe: Profile::Reference.recipe() };
    let mut rows = Vec::new();
    for variant in std::iter::once(reference).chain(quality::variants()) {
        // A change of a class that the model does not have is no change.
        if variant.name.contains("linear attention") && !has_linear_attention(&opened) {
            continue;
        }
        rows.push(Row::new(variant.name, opened.engine(variant.recipe, options, working.flag())?));
    }
    for kind in &args.kinds {
        note(&format!("{}: {kind}", opened.name()));
        let ids = kind_ids(&tokenizer, &args.text, kind, windows)?;
        quality::measure(&mut rows, kind, &ids, windows, working.flag())?;
    }
    Ok(format!("\n## {}\n\n{}", opened.name(), quality::table(&rows)))
}

fn has_linear_attention(opened: &Opened) -> bool {
    opened.model.layers.iter().any(|layer| matches!(layer.mixer, arch::Mixer::GatedDelta(_)))
}
