use anyhow::Result;
use base::Bytes;
use clap::Args;

use crate::load::Opened;
use crate::output::put;
use crate::settings::RecipeArgs;
use crate::{interrupt, output};

/// Packs a model's weights into its cache, or checks that it is there
///
/// The first `run` does this too. The cache is made of the checkpoint, the formats of the weights and the
/// version of the arithmetic; other formats make another cache. An interrupted build goes on where it was.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// A model folder, or its name in the models folder [default: the bundled model]
    model: Option<String>,
    #[command(flatten)]
    recipe: RecipeArgs,
    /// Worker threads [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: BuildArgs) -> Result<()> {
    let recipe = args.recipe.recipe()?;
    let opened = Opened::named(args.model.as_deref())?;
    let working = interrupt::working();
    let threads = args.threads.map_or_else(base::os::threads, |n| n as usize);
    let (cache, built) = opened.cache(&recipe, threads, working.flag())?;
    if args.json {
        return output::put_json(&serde_json::json!({
            "path": cache.path(),
            "bytes": cache.bytes(),
            "recipe": recipe.weight_key(),
            "built": built,
        }));
    }
    let what = if built { "built" } else { "is there" };
    Ok(put(&format!("{} {what}: {}\n", cache.path().display(), Bytes(cache.bytes())))?)
}
