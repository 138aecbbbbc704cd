//! Reading a checkpoint as one of the known families. What several families spell alike is here once; what is
//! particular to one stands in its file.

mod qwen3_moe;
mod qwen3_next;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base::{FileFault, Refusal, Result, WorldError};
use checkpoint::Checkpoint;
use checkpoint::config::Config;
use serde_json::json;

use crate::manifest::{RowSlice, Source};
use crate::model::{Attention, ExpertNames, Ffn, Layer, Model, Moe, Rope};
use crate::role::{Part, Role};
use crate::{Manifest, Profile};

type ReadFamily = fn(&Config, &Names) -> Result<Model>;

/// `model_type` → reader. Adding a family = one line here and one file.
const FAMILIES: &[(&str, ReadFamily)] = &[("qwen3_moe", qwen3_moe::read), ("qwen3_next", qwen3_next::read)];

/// Bounds on what a configuration may declare, several times what any published model has: they keep every
/// product of two dimensions, and the memory that a hostile file can ask for, small.
mod most {
    pub const LAYERS: usize = 1024;
    pub const EXPERTS: usize = 4096;
    /// Experts of all layers together.
    pub const EXPERT_ENTRIES: usize = 1 << 17;
    pub const HEADS: usize = 512;
    pub const HEAD_DIM: usize = 1 << 14;
    /// Hidden and intermediate width, vocabulary.
    pub const WIDTH: usize = 1 << 20;
    pub const KERNEL: usize = 64;
    pub const POSITIONS: usize = 1 << 30;
}

/// Reads a checkpoint's configuration and tensor names as a [`Model`].
pub fn read(checkpoint: &Checkpoint) -> Result<Model> {
    let config = checkpoint.config();
    let names = Names { tensors: checkpoint.tensors().map(|t| t.name.to_string()).collect() };
    let mut model = read_config(config, &names)?;
    check_head(checkpoint, &model, config)?;
    model.eos = checkpoint::eos_ids(checkpoint)?;
    let manifest = Manifest::new(&model, &Profile::Reference.recipe());
    let used: BTreeSet<&str> = manifest.tensors().collect();
    let layers = model.layers.len();
    let left = names.tensors.iter().filter(|t| !used.contains(t.as_str()) && !is_skipped(t, layers));
    model.unused_tensors = left.cloned().collect();
    Ok(model)
}

/// Reads a bare config.json, without tensors: its shapes are all that a plan needs. End-of-sequence ids that
/// only a generation configuration names are missing.
pub fn read_bare(config: &Path) -> Result<Model> {
    read_config(&Config::open(config)?, &Names::default())
}

/// Reads a configuration alone; `names` tells which tensors there are.
pub fn read_config(config: &Config, names: &Names) -> Result<Model> {
    let family = config.model_type()?;
    let Some((_, read)) = FAMILIES.iter().find(|(name, _)| *name == family) else {
        let known: Vec<_> = FAMILIES.iter().map(|(name, _)| *name).collect();
        return Err(Refusal::unsupported(
            format!("model_type {family}"),
            "this build has no such family",
            format!("known families: {}", known.join(", ")),
        )
        .into());
    };
    config.ignore(IGNORED);
    let mut model = read(config, names)?;
    model.unread_keys = config.unread();
    Ok(model)
}

/// Keys that can't change a result: training, bookkeeping, and defaults of other software.
const IGNORED: &[&str] = &[
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "initializer_range",
    "output_router_logits",
    "pad_token_id",
    "router_aux_loss_coef",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// Names of a checkpoint's tensors.
#[derive(Debug, Default)]
pub struct Names {
    /// All of them.
    pub tensors: BTreeSet<String>,
}

/// Tensors that are not part of the language model's forward pass: multi-token prediction layers.
fn is_skipped(name: &str, layers: usize) -> bool {
    if name.starts_with("mtp.") || name.ends_with(".rotary_emb.inv_freq") {
        return true;
    }
    let layer = name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
    layer.and_then(|l| l.parse::<usize>().ok()).is_some_and(|l| l >= layers)
}

/// What the two families spell alike.
struct Common {
    hidden: usize,
    layers: usize,
    vocab: usize,
    eps: f32,
    max_positions: usize,
    rope: Rope,
    attention: Attention,
    moe: Moe,
    dense_inter: usize,
    dense_only: BTreeSet<usize>,
    sparse_step: usize,
    tied: bool,
}

impl Common {
    fn read(config: &Config, names: &Names) -> Result<Common> {
        let width = |key: &str| counted(config, key, most::WIDTH);
        let hidden = width("hidden_size")?;
        let layers = counted(config, "num_hidden_layers", most::LAYERS)?;
        let heads = counted(config, "num_attention_heads", most::HEADS)?;
        let kv_heads = config.opt_usize("num_key_value_heads")?.unwrap_or(heads);
        divides(config, "num_key_value_heads", kv_heads, "num_attention_heads", heads)?;
        let head_dim = match config.opt_usize("head_dim")? {
            Some(dim) => dim,
            None => {
                divides(config, "num_attention_heads", heads, "hidden_size", hidden)?;
                hidden / heads
            }
        };
        let head_dim = bounded(config, "head_dim", head_dim, most::HEAD_DIM)?;
        config.expect("hidden_act", &[json!("silu")], "the activation of the FFN")?;
        let rope = config.rope(head_dim)?;
        let experts = config.any_usize(&["num_experts", "num_local_experts", "n_routed_experts"])?;
        let experts = experts.ok_or_else(|| missing(config, "num_experts"))?;
        let experts = bounded(config, "num_experts", experts, most::EXPERTS)?;
        bounded(config, "num_hidden_layers × num_experts", layers * experts, most::EXPERT_ENTRIES)?;
        let top_k = counted(config, "num_experts_per_tok", most::EXPERTS)?;
        let moe = Moe {
            experts,
            top_k,
            inter: width("moe_intermediate_size")?,
            renormalise: config.bool_or("norm_topk_prob", false)?,
            table: synthetic(config, names)?,
            shared_inter: None,
            names: ExpertNames {
                prefix: String::new(),
                gate: ".gate_proj.weight",
                up: ".up_proj.weight",
                down: ".down_proj.weight",
            },
        };
        if top_k > experts {
            let limit = format!("at most num_experts = {experts}");
            return Err(Refusal::value("num_experts_per_tok", top_k, limit, "check config.json").into());
        }
        Ok(Common {
            hidden,
            layers,
            vocab: width("vocab_size")?,
            eps: eps(config)?,
            max_positions: counted_or(config, "max_position_embeddings", 32768, most::POSITIONS)?,
            rope: Rope {
                rotary: rotary(head_dim, rope.partial_factor)?,
                theta: rope.theta,
                scaling: rope.scaling,
            },
            attention: Attention {
                heads,
                kv_heads,
                head_dim,
                qk_norm: true,
                gate: false,
                bias: config.bool_or("attention_bias", false)?,
            },
            moe,
            dense_inter: match config.opt_usize("intermediate_size")? {
                None | Some(0) => 0,
                Some(inter) => bounded(config, "intermediate_size", inter, most::WIDTH)?,
            },
            dense_only: config.usizes("mlp_only_layers")?.unwrap_or_default().into_iter().collect(),
            sparse_step: config.usize_or("decoder_sparse_step", 1)?,
            tied: tied(config, names)?,
        })
    }

    /// The general rule of these families: layer i is MoE iff it is not listed as dense and its turn has
    /// come.
    fn is_moe(&self, layer: usize) -> bool {
        !self.dense_only.contains(&layer)
            && self.sparse_step > 0
            && (layer + 1).is_multiple_of(self.sparse_step)
    }

    /// FFN of a layer and its sources.
    fn ffn(&self, layer: usize, sources: &mut Sources) -> Result<Ffn> {
        let prefix = format!("model.layers.{layer}.mlp.");
        if !self.is_moe(layer) {
            if self.dense_inter == 0 {
                let hint = "layers outside the MoE rule need it";
                return Err(Refusal::value("intermediate_size", 0, "at least 1", hint).into());
            }
            let parts = [Part::DenseGate, Part::DenseUp, Part::DenseDown];
            sources.swiglu(layer, parts, &prefix, self.dense_inter, self.hidden);
            return Ok(Ffn::Dense { inter: self.dense_inter });
        }
        let mut moe = self.moe.clone();
        moe.names.prefix = format!("{prefix}experts.");
        sources.add(Role::of(layer, Part::Router), format!("{prefix}gate.weight"), moe.experts);
        if moe.table {
            let table = format!("{prefix}router_table");
            sources.add(Role::of(layer, Part::RouterTable), table, ops::route::TABLE_ROWS);
        }
        if let Some(inter) = moe.shared_inter {
            let parts = [Part::SharedGate, Part::SharedUp, Part::SharedDown];
            sources.swiglu(layer, parts, &format!("{prefix}shared_expert."), inter, self.hidden);
            let gate = format!("{prefix}shared_expert_gate.weight");
            sources.add(Role::of(layer, Part::SharedExpertGate), gate, 1);
        }
        Ok(Ffn::Moe(moe))
    }

    /// Puts layers and sources together.
    fn model(self, family: &'static str, plus_one: bool, layers: Vec<Layer>, mut sources: Sources) -> Model {
        sources.add(Role::global(Part::Embedding), EMBEDDING.into(), self.vocab);
        sources.add(Role::global(Part::FinalNorm), "model.norm.weight".into(), self.hidden);
        let head = if self.tied { EMBEDDING } else { HEAD };
        sources.add(Role::global(Part::Head), head.into(), self.vocab);
        for layer in 0..layers.len() {
            let norm = |name: &str| format!("model.layers.{layer}.{name}.weight");
            sources.add(Role::of(layer, Part::MixerNorm), norm("input_layernorm"), self.hidden);
            sources.add(Role::of(layer, Part::FfnNorm), norm("post_attention_layernorm"), self.hidden);
        }
        Model {
            family,
            vocab: self.vocab,
            hidden: self.hidden,
            max_positions: self.max_positions,
            eps: self.eps,
            norm_plus_one: plus_one,
            rope: self.rope,
            layers,
            sources: sources.0,
            eos: Vec::new(),
            unread_keys: Vec::new(),
            unused_tensors: Vec::new(),
        }
    }
}

/// Whether the configuration is that of a synthetic model, which is routed by a table. Its seed and the rule
/// that made its weights decide no dimension; they make its identity.
fn synthetic(config: &Config, names: &Names) -> Result<bool> {
    let Some(synth) = config.section(checkpoint::SYNTHETIC)? else { return Ok(false) };
    let (version, known) = (synth.usize("version")?, checkpoint::SYNTHETIC_VERSION);
    if version != known {
        let hint = "make it again with `krasis synth`";
        return Err(Refusal::value(synth.field("version"), version, format!("version {known}"), hint).into());
    }
    synth.ignore(&["seed"]);
    if let Some(tensor) = names.tensors.first() {
        return Err(checkpoint::synthetic_with_tensors(config.path(), tensor));
    }
    Ok(true)
}

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// Collects where roles come from.
#[derive(Default)]
struct Sources(BTreeMap<Role, Source>);

impl Sources {
    /// A whole tensor of `rows` rows (vectors: elements).
    fn add(&mut self, role: Role, tensor: String, rows: usize) {
        self.add_parts(role, vec![RowSlice { tensor, row: 0, rows }]);
    }

    fn add_parts(&mut self, role: Role, parts: Vec<RowSlice>) {
        let earlier = self.0.insert(role, Source { parts });
        assert!(earlier.is_none(), "two sources for {role}");
    }

    /// Gate, up and down of a SwiGLU block.
    fn swiglu(&mut self, layer: usize, parts: [Part; 3], prefix: &str, inter: usize, hidden: usize) {
        for (part, name, rows) in
            [(parts[0], "gate_proj", inter), (parts[1], "up_proj", inter), (parts[2], "down_proj", hidden)]
        {
            self.add(Role::of(layer, part), format!("{prefix}{name}.weight"), rows);
        }
    }

    /// q, k, v, o and the per-head norms of an attention layer. With an output gate, the q projection holds
    /// for each head first the query's rows, then the gate's.
    fn attention(&mut self, layer: usize, a: &Attention, hidden: usize) {
        let prefix = format!("model.layers.{layer}.self_attn.");
        let kinds: &[&str] = if a.bias { &["weight", "bias"] } else { &["weight"] };
        for kind in kinds {
            let pick = |weight, bias| Role::of(layer, if *kind == "weight" { weight } else { bias });
            let name = |projection: &str| format!("{prefix}{projection}_proj.{kind}");
            let (q, kv) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
            if a.gate {
                let rows = |offset: usize| {
                    let slice = |head: usize| RowSlice {
                        tensor: name("q"),
                        row: (2 * head + offset) * a.head_dim,
                        rows: a.head_dim,
                    };
                    (0..a.heads).map(slice).collect()
                };
                self.add_parts(pick(Part::AttnQ, Part::AttnQBias), rows(0));
                self.add_parts(pick(Part::AttnGate, Part::AttnGateBias), rows(1));
            } else {
                self.add(pick(Part::AttnQ, Part::AttnQBias), name("q"), q);
            }
            self.add(pick(Part::AttnK, Part::AttnKBias), name("k"), kv);
            self.add(pick(Part::AttnV, Part::AttnVBias), name("v"), kv);
            self.add(pick(Part::AttnO, Part::AttnOBias), name("o"), hidden);
        }
        self.add(Role::of(layer, Part::QNorm), format!("{prefix}q_norm.weight"), a.head_dim);
        self.add(Role::of(layer, Part::KNorm), format!("{prefix}k_norm.weight"), a.head_dim);
    }
}

/// Tied embeddings are declared by the configuration; the tensors must not contradict it.
fn tied(config: &Config, names: &Names) -> Result<bool> {
    let tied = config.bool_or("tie_word_embeddings", false)?;
    if !tied && !names.tensors.is_empty() && !names.tensors.contains(HEAD) {
        let path = config.path();
        let error = WorldError::damaged(
            path,
            FileFault::MissingTensor,
            "an output head, because tie_word_embeddings is false",
            "no such tensor",
        );
        return Err(error
            .tensor(HEAD)
            .hint("set tie_word_embeddings to true if the model shares its embedding")
            .into());
    }
    Ok(tied)
}

/// A tied model that ships a head all the same: fine if it is the embedding, refused if it is another matrix.
fn check_head(checkpoint: &Checkpoint, model: &Model, config: &Config) -> Result<()> {
    let head = &model.sources[&Role::global(Part::Head)].parts[0].tensor;
    if head != EMBEDDING || checkpoint.tensor(HEAD).is_none() {
        return Ok(());
    }
    if checkpoint.bytes(HEAD)? == checkpoint.bytes(EMBEDDING)? {
        return Ok(());
    }
    let error = WorldError::damaged(
        config.path(),
        FileFault::IndexMismatch,
        "no head of its own, because tie_word_embeddings is true",
        "a head that differs from the embedding",
    );
    Err(error.tensor(HEAD).hint("set tie_word_embeddings to false to use it").into())
}

fn missing(config: &Config, key: &str) -> base::Error {
    let path = config.path();
    WorldError::damaged(path, FileFault::BadText, format!("the key {key}"), "no such key").into()
}

fn counted(config: &Config, key: &str, most: usize) -> Result<usize> {
    bounded(config, key, config.usize(key)?, most)
}

fn counted_or(config: &Config, key: &str, default: usize, most: usize) -> Result<usize> {
    bounded(config, key, config.usize_or(key, default)?, most)
}

fn bounded(config: &Config, key: &str, value: usize, most: usize) -> Result<usize> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    let limit = format!("1 to {most}");
    Err(Refusal::value(key, value, limit, format!("check {}", config.path().display())).into())
}

/// The norms' epsilon as the reference holds it, in f32.
fn eps(config: &Config) -> Result<f32> {
    let value = config.f64_or("rms_norm_eps", 1e-6)?;
    let eps = value as f32;
    if eps > 0.0 && eps < 1.0 {
        return Ok(eps);
    }
    let hint = format!("check {}", config.path().display());
    Err(Refusal::value("rms_norm_eps", value, "above 0 and below 1, as f32", hint).into())
}

fn divides(config: &Config, key: &str, value: usize, of: &str, whole: usize) -> Result<()> {
    if value > 0 && whole.is_multiple_of(value) {
        return Ok(());
    }
    let limit = format!("a divisor of {of} = {whole}");
    Err(Refusal::value(key, value, limit, format!("check {}", config.path().display())).into())
}

fn rotary(head_dim: usize, partial: f64) -> Result<usize> {
    let rotary = (head_dim as f64 * partial) as usize;
    if rotary == 0 || !rotary.is_multiple_of(2) || rotary > head_dim {
        let limit = format!("an even number of rotated elements up to head_dim = {head_dim}");
        return Err(Refusal::value("partial_rotary_factor", partial, limit, "check config.json").into());
    }
    Ok(rotary)
}
