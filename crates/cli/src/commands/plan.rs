use anyhow::Result;
use arch::program::StateKind;
use arch::{Manifest, Model, Program, Recipe};
use base::Bytes;
use clap::Args;
use engine::Options;
use plan::{Line, Plan};
use serde::Serialize;
use serde_json::json;

use crate::load;
use crate::output::{put, put_json, table};
use crate::settings::{DeviceArgs, RecipeArgs, SizeArgs};

/// Shows what of a model lies where in a device's memory, before anything is loaded
///
/// Only config.json is read: a model need not be downloaded to be planned. Without --vram it says what the
/// host allocates, and how large the weight cache is that it maps. docs/memory.md explains the regions.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A config.json, a model folder, or its name in the models folder [default: the bundled model]
    model: Option<String>,
    /// Sequences at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    parallel: usize,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    size: SizeArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
}

pub fn run(args: PlanArgs) -> Result<()> {
    let recipe = args.recipe.recipe()?;
    let (name, model) = load::shapes(args.model.as_deref())?;
    let options = Options { sequences: args.parallel, ..args.size.options(&model, 0) };
    let options = args.size.fitted(args.device.options(options), &model, &recipe, 0)?;
    options.check(&model)?;
    let (program, manifest) = (arch::lower(&model, &recipe)?, Manifest::new(&model, &recipe));
    let plan = plan::plan(&program, &manifest, &options.ask())?;
    let facts = Facts::new(name, &model, &recipe, &program, &manifest);
    if args.json {
        return put_json(&json!({
            "model": facts,
            "capacity": plan.capacity,
            "minimum_bytes": plan.minimum_bytes,
            "context": plan.context,
            "parallel": plan.sequences,
            "pass_rows": plan.pass_rows,
            "resident_fraction": plan.resident_fraction(),
            "slots": plan.slots.map(|s| json!({
                "bytes": s.slot_bytes,
                "count": s.count,
                "stage": s.stage,
                "group_layers": s.group_layers,
            })),
            "lines": plan.lines.iter().map(line).collect::<Vec<_>>(),
        }));
    }
    Ok(put(&format!("{}\n{}", facts.text(&plan), plan::table(&plan.lines)))?)
}

fn line(line: &Line) -> serde_json::Value {
    json!({"name": line.name, "what": line.what, "bytes": line.bytes})
}

/// What a model is, whatever it runs on.
#[derive(Debug, Serialize)]
struct Facts {
    name: String,
    family: &'static str,
    recipe: String,
    parameters: u64,
    layers: usize,
    experts: usize,
    /// Bytes of the largest expert, and of all.
    expert_bytes: usize,
    all_expert_bytes: u64,
    dense_bytes: u64,
    /// Most experts that one token is sent to.
    experts_per_token: usize,
    /// Bytes of keys and values per token, all layers.
    kv_token_bytes: usize,
    /// Bytes of state that a sequence has whatever its length.
    sequence_bytes: usize,
}

impl Facts {
    fn new(name: String, model: &Model, recipe: &Recipe, program: &Program, manifest: &Manifest) -> Facts {
        let layers = || manifest.experts.iter();
        let kv = program.states.iter().filter(|s| s.kind == StateKind::Kv);
        Facts {
            name,
            family: model.family,
            recipe: recipe.to_string(),
            parameters: model.parameters(manifest),
            layers: model.layers.len(),
            experts: layers().map(|l| l.experts.len()).sum(),
            expert_bytes: layers().map(|l| l.block.bytes()).max().unwrap_or(0),
            all_expert_bytes: layers().map(|l| (l.experts.len() * l.block.bytes()) as u64).sum(),
            dense_bytes: manifest.dense.iter().map(|e| e.kind.bytes() as u64).sum(),
            experts_per_token: model.moe_layers().map(|(_, moe)| moe.top_k).sum(),
            kv_token_bytes: kv.map(|s| s.token_bytes).sum(),
            sequence_bytes: program.states.iter().map(|s| s.fixed_bytes).sum(),
        }
    }

    fn experts(&self) -> String {
        if self.experts == 0 {
            return "none".into();
        }
        let (each, token) = (self.expert_bytes, self.experts_per_token * self.expert_bytes);
        let [each, token] = [each, token].map(|bytes| Bytes(bytes as u64));
        format!("{} of {each} each; a token is sent to {}, {token}", self.experts, self.experts_per_token)
    }

    fn text(&self, plan: &Plan) -> String {
        let bytes = |bytes: usize| Bytes(bytes as u64);
        let (dense, experts) = (Bytes(self.dense_bytes), Bytes(self.all_expert_bytes));
        let parameters = match self.parameters as f64 {
            p if p < 1e9 => format!("{:.1} million", p / 1e6),
            p => format!("{:.1} billion", p / 1e9),
        };
        let rows = [
            ("model", format!("{}: {}, {} layers", self.name, self.family, self.layers)),
            ("parameters", parameters),
            ("recipe", self.recipe.clone()),
            ("weights", format!("{dense} dense, {experts} of experts")),
            ("experts", self.experts()),
            (
                "state",
                format!(
                    "{} of keys and values per token, {} per sequence besides",
                    bytes(self.kv_token_bytes),
                    bytes(self.sequence_bytes)
                ),
            ),
            (
                "smallest --vram",
                format!("{} ({}) for this context", plan.minimum_bytes, Bytes(plan.minimum_bytes)),
            ),
        ];
        table(&rows.map(|(name, text)| vec![name.to_string(), text]), &[])
    }
}
