//! Shapes of synthetic models: configuration, tensor names and sizes, as the families publish them.

use base::{Bytes, Refusal};
use serde_json::{Value, json};

use super::routing::{self, Sampler};
use super::values::Values;

/// A family that can be made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Attention layers with experts.
    Qwen3Moe,
    /// Gated DeltaNet and attention layers with experts and a shared one.
    Qwen3Next,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 2] = [Family::Qwen3Moe, Family::Qwen3Next];

    /// `model_type` of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Qwen3Moe => "qwen3_moe",
            Family::Qwen3Next => "qwen3_next",
        }
    }
}

/// All dimensions of a synthetic model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Family.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Decoder layers; of Qwen3-Next every fourth is attention.
    pub layers: usize,
    /// Experts per layer.
    pub experts: usize,
    /// Routed experts per token.
    pub top_k: usize,
    /// Width of an expert (and of the shared one).
    pub inter: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of embedding and head.
    pub vocab: usize,
    /// Linear attention: key heads.
    pub key_heads: usize,
    /// Linear attention: value heads.
    pub value_heads: usize,
    /// Linear attention: elements of keys and of values.
    pub linear_dim: usize,
    /// Width of dense layers, which none of these models has.
    pub dense_inter: usize,
    /// Longest context.
    pub positions: usize,
    /// Base of the position encoding.
    pub theta: u32,
}

/// What a caller says about a shape; the rest follows from family and size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShapeChoice {
    /// Bytes of all tensors to come near to: decides layers and experts that are not given.
    pub size_bytes: Option<u64>,
    /// See [`Shape`], like all below.
    pub hidden: Option<usize>,
    /// Layers.
    pub layers: Option<usize>,
    /// Experts.
    pub experts: Option<usize>,
    /// Routed experts per token.
    pub top_k: Option<usize>,
    /// Width of an expert.
    pub inter: Option<usize>,
    /// Query heads.
    pub heads: Option<usize>,
    /// KV heads.
    pub kv_heads: Option<usize>,
    /// Elements of a head.
    pub head_dim: Option<usize>,
    /// Vocabulary.
    pub vocab: Option<usize>,
    /// Key heads of linear attention.
    pub key_heads: Option<usize>,
    /// Value heads of linear attention.
    pub value_heads: Option<usize>,
    /// Elements of its keys and values.
    pub linear_dim: Option<usize>,
}

/// One tensor: BF16, row-major.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Values,
    /// Number of its random stream.
    pub stream: u32,
}

impl Tensor {
    pub fn bytes(&self) -> u64 {
        self.shape.iter().map(|&d| d as u64).product::<u64>() * 2
    }
}

/// Largest value of any dimension, and of layers times experts: a bound on names and memory.
const LIMIT: usize = 1 << 20;
/// Layers per attention layer of Qwen3-Next.
const INTERVAL: usize = 4;

impl ShapeChoice {
    /// Fills in what is not given. Errors: a dimension that is 0, too large or no divisor of another, or a
    /// size that the given dimensions can't come near to.
    pub fn resolve(&self, family: Family) -> Result<Shape, Refusal> {
        let next = family == Family::Qwen3Next;
        let size = self.size_bytes.unwrap_or(8 << 30);
        // Three scales, so that embedding and head never are most of a small model.
        let (hidden, inter, vocab, experts, heads, kv_heads, head_dim) = match size {
            s if s >= 4 << 30 && next => (2048, 512, 151_936, 512, 16, 2, 256),
            s if s >= 4 << 30 => (2048, 768, 151_936, 128, 32, 4, 128),
            s if s >= 256 << 20 => (1024, 384, 32_768, 64, 16, 4, 128),
            _ => (256, 128, 4096, 16, 4, 2, 64),
        };
        let experts = self.experts.unwrap_or(experts);
        let mut shape = self.over(Shape {
            family,
            hidden,
            layers: if self.size_bytes.is_some() { 1 } else { 8 },
            experts,
            top_k: if next && experts > 256 { 10 } else { 8.min(experts.div_ceil(4)) },
            inter,
            heads,
            kv_heads,
            head_dim,
            vocab,
            key_heads: if hidden >= 2048 { 16 } else { 2 },
            value_heads: if hidden >= 2048 { 32 } else { 4 },
            linear_dim: 128,
            dense_inter: self.inter.unwrap_or(inter),
            positions: 262_144,
            theta: 10_000_000,
        });
        shape.check()?;
        if let Some(size) = self.size_bytes {
            self.fit(&mut shape, size)?;
            shape.check()?;
        }
        Ok(shape)
    }

    /// `shape` with the dimensions that are given in place of its own.
    pub(super) fn over(&self, shape: Shape) -> Shape {
        Shape {
            hidden: self.hidden.unwrap_or(shape.hidden),
            layers: self.layers.unwrap_or(shape.layers),
            experts: self.experts.unwrap_or(shape.experts),
            top_k: self.top_k.unwrap_or(shape.top_k),
            inter: self.inter.unwrap_or(shape.inter),
            heads: self.heads.unwrap_or(shape.heads),
            kv_heads: self.kv_heads.unwrap_or(shape.kv_heads),
            head_dim: self.head_dim.unwrap_or(shape.head_dim),
            vocab: self.vocab.unwrap_or(shape.vocab),
            key_heads: self.key_heads.unwrap_or(shape.key_heads),
            value_heads: self.value_heads.unwrap_or(shape.value_heads),
            linear_dim: self.linear_dim.unwrap_or(shape.linear_dim),
            ..shape
        }
    }

    /// Chooses layers, then experts, unless they are given.
    fn fit(&self, shape: &mut Shape, size: u64) -> Result<(), Refusal> {
        let with = |shape: &Shape, layers, experts| Shape { layers, experts, ..shape.clone() }.bytes();
        let fixed = with(shape, 0, 0);
        let step = if shape.family == Family::Qwen3Next { INTERVAL } else { 1 };
        if self.layers.is_none() {
            let group = (with(shape, step, shape.experts) - fixed) as f64;
            let groups = (size.saturating_sub(fixed) as f64 / group).ceil().clamp(1.0, (LIMIT / step) as f64);
            shape.layers = groups as usize * step;
        }
        if self.experts.is_none() {
            let bare = with(shape, shape.layers, 0);
            let one = with(shape, shape.layers, 1) - bare;
            shape.experts = (size.saturating_sub(bare) as f64 / one as f64).round().max(1.0) as usize;
            shape.top_k = self.top_k.unwrap_or(shape.top_k.min(shape.experts));
        }
        let bytes = shape.bytes();
        if bytes.abs_diff(size) as f64 > 0.1 * size as f64 {
            let limit = format!("the other dimensions make it {}", Bytes(bytes));
            return Err(Refusal::value("size", Bytes(size), limit, "give other dimensions, or no size"));
        }
        Ok(())
    }
}

impl Shape {
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let dims = [
            ("hidden", self.hidden),
            ("layers", self.layers),
            ("num-experts", self.experts),
            ("top-k", self.top_k),
            ("inter", self.inter),
            ("heads", self.heads),
            ("kv-heads", self.kv_heads),
            ("head-dim", self.head_dim),
            ("vocab", self.vocab),
            ("key-heads", self.key_heads),
            ("value-heads", self.value_heads),
            ("linear-dim", self.linear_dim),
            ("layers × num-experts", self.layers.saturating_mul(self.experts)),
        ];
        for (name, value) in dims {
            if !(1..=LIMIT).contains(&value) {
                return Err(Refusal::value(name, value, format!("1 to {LIMIT}"), "give another"));
            }
        }
        let divisors = [
            ("kv-heads", self.kv_heads, "heads", self.heads),
            ("key-heads", self.key_heads, "value-heads", self.value_heads),
        ];
        for (name, value, of, whole) in divisors {
            if !whole.is_multiple_of(value) {
                let limit = format!("a divisor of {of} = {whole}");
                return Err(Refusal::value(name, value, limit, "give another"));
            }
        }
        if self.top_k > self.experts {
            let limit = format!("at most num-experts = {}", self.experts);
            return Err(Refusal::value("top-k", self.top_k, limit, "give another"));
        }
        Ok(())
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        // Layers differ by their mixer only: count one of each instead of naming every expert.
        let matrix = |a: usize, b: usize| (a as u64) * (b as u64) * 2;
        let expert = 3 * matrix(self.inter, self.hidden);
        let mut list = List::default();
        self.layer_frame(&mut list, 0);
        let frame = list.bytes() + self.experts as u64 * (expert + matrix(1, self.hidden));
        let mixer = |layer| {
            let mut list = List::default();
            self.mixer(&mut list, layer);
            list.bytes()
        };
        let attention = (0..self.layers).filter(|&i| self.is_attention(i)).count() as u64;
        let mut bytes = 2 * matrix(self.vocab, self.hidden) + matrix(1, self.hidden);
        bytes += self.layers as u64 * frame;
        bytes += attention * mixer(INTERVAL - 1);
        if self.family == Family::Qwen3Next {
            bytes += (self.layers as u64 - attention) * mixer(0);
        }
        bytes
    }

    fn is_attention(&self, layer: usize) -> bool {
        self.family == Family::Qwen3Moe || (layer + 1).is_multiple_of(INTERVAL)
    }

    /// All tensors in the order of the files.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let mut list = List::default();
        list.normal("model.embed_tokens.weight".into(), &[self.vocab, self.hidden], 1.0);
        for layer in 0..self.layers {
            self.mixer(&mut list, layer);
            self.layer_frame(&mut list, layer);
            let prefix = format!("model.layers.{layer}.mlp.");
            list.matrix(format!("{prefix}gate.weight"), self.experts, self.hidden);
            for expert in 0..self.experts {
                list.swiglu(&format!("{prefix}experts.{expert}."), self.inter, self.hidden);
            }
        }
        list.norm("model.norm.weight".into(), self.hidden, self.family);
        list.matrix("lm_head.weight".into(), self.vocab, self.hidden);
        list.0
    }

    /// Norms and shared expert of a layer.
    fn layer_frame(&self, list: &mut List, layer: usize) {
        let prefix = format!("model.layers.{layer}.");
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            list.norm(format!("{prefix}{norm}.weight"), self.hidden, self.family);
        }
        if self.family == Family::Qwen3Next {
            list.swiglu(&format!("{prefix}mlp.shared_expert."), self.inter, self.hidden);
            list.matrix(format!("{prefix}mlp.shared_expert_gate.weight"), 1, self.hidden);
        }
    }

    fn mixer(&self, list: &mut List, layer: usize) {
        if !self.is_attention(layer) {
            return self.linear_attention(list, layer);
        }
        let prefix = format!("model.layers.{layer}.self_attn.");
        let gates = if self.family == Family::Qwen3Next { 2 } else { 1 };
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        list.matrix(format!("{prefix}q_proj.weight"), gates * q, self.hidden);
        list.matrix(format!("{prefix}k_proj.weight"), kv, self.hidden);
        list.matrix(format!("{prefix}v_proj.weight"), kv, self.hidden);
        list.matrix(format!("{prefix}o_proj.weight"), self.hidden, q);
        for norm in ["q_norm", "k_norm"] {
            list.norm(format!("{prefix}{norm}.weight"), self.head_dim, self.family);
        }
    }

    fn linear_attention(&self, list: &mut List, layer: usize) {
        let prefix = format!("model.layers.{layer}.linear_attn.");
        let (keys, values) = (self.key_heads * self.linear_dim, self.value_heads * self.linear_dim);
        list.matrix(format!("{prefix}in_proj_qkvz.weight"), 2 * keys + 2 * values, self.hidden);
        list.matrix(format!("{prefix}in_proj_ba.weight"), 2 * self.value_heads, self.hidden);
        list.normal(format!("{prefix}conv1d.weight"), &[2 * keys + values, 1, 4], 0.5);
        list.push(format!("{prefix}A_log"), &[self.value_heads], Values::LogUniform);
        list.push(
            format!("{prefix}dt_bias"),
            &[self.value_heads],
            Values::Normal { mean: 1.0, deviation: 0.0 },
        );
        // This norm's weight is plain in a family whose other norms are 1 + w.
        list.norm(format!("{prefix}norm.weight"), self.linear_dim, Family::Qwen3Moe);
        list.matrix(format!("{prefix}out_proj.weight"), self.hidden, values);
    }

    /// config.json of a model that has no tensors: its weights are made up from this seed.
    pub fn synthetic_config(&self, seed: u64) -> Value {
        let mut config = self.config();
        config[checkpoint::SYNTHETIC] = json!({"version": checkpoint::SYNTHETIC_VERSION, "seed": seed});
        config
    }

    /// What its routing is drawn by.
    pub(super) fn sampler(&self) -> Sampler {
        let fit = match self.family {
            Family::Qwen3Moe => routing::OF_128,
            Family::Qwen3Next => routing::OF_512,
        };
        Sampler::new(fit, self.experts, self.top_k)
    }

    /// config.json in the older spelling that most published folders have.
    pub fn config(&self) -> Value {
        let next = self.family == Family::Qwen3Next;
        let class = if next { "Qwen3NextForCausalLM" } else { "Qwen3MoeForCausalLM" };
        let mut config = json!({
            "architectures": [class],
            "model_type": self.family.name(),
            "attention_bias": false,
            "decoder_sparse_step": 1,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.dense_inter,
            "max_position_embeddings": self.positions,
            "mlp_only_layers": [],
            "moe_intermediate_size": self.inter,
            "norm_topk_prob": true,
            "num_attention_heads": self.heads,
            "num_experts": self.experts,
            "num_experts_per_tok": self.top_k,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": 1e-6,
            "rope_scaling": null,
            "rope_theta": f64::from(self.theta),
            "tie_word_embeddings": false,
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocab,
        });
        let linear = json!({
            "full_attention_interval": INTERVAL,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": self.linear_dim,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_value_head_dim": self.linear_dim,
            "partial_rotary_factor": 0.25,
            "shared_expert_intermediate_size": self.inter,
        });
        if let (true, Value::Object(linear), Some(keys)) = (next, linear, config.as_object_mut()) {
            keys.extend(linear);
        }
        config
    }
}

#[derive(Default)]
struct List(Vec<Tensor>);

impl List {
    fn bytes(&self) -> u64 {
        self.0.iter().map(Tensor::bytes).sum()
    }

    fn push(&mut self, name: String, shape: &[usize], values: Values) {
        let stream = self.0.len() as u32;
        self.0.push(Tensor { name, shape: shape.to_vec(), values, stream });
    }

    fn normal(&mut self, name: String, shape: &[usize], deviation: f64) {
        self.push(name, shape, Values::Normal { mean: 0.0, deviation });
    }

    /// A projection that keeps the variance of its input.
    fn matrix(&mut self, name: String, rows: usize, columns: usize) {
        self.normal(name, &[rows, columns], 1.0 / (columns as f64).sqrt());
    }

    fn swiglu(&mut self, prefix: &str, inter: usize, hidden: usize) {
        self.matrix(format!("{prefix}gate_proj.weight"), inter, hidden);
        self.matrix(format!("{prefix}up_proj.weight"), inter, hidden);
        self.matrix(format!("{prefix}down_proj.weight"), hidden, inter);
    }

    /// Norm weights near the value that does nothing.
    fn norm(&mut self, name: String, len: usize, family: Family) {
        let mean = if family == Family::Qwen3Next { 0.0 } else { 1.0 };
        self.push(name, &[len], Values::Normal { mean, deviation: 0.02 });
    }
}
