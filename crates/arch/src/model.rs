//! `Model`: a model as plain data. Every dimension is explicit; nothing is derived from anything else later.

use std::collections::BTreeMap;

use base::{ExpertId, LayerId};

use crate::manifest::{RowSlice, Source};
use crate::role::Role;

/// A model read from a configuration and tensor names.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Family name, as in `model_type`.
    pub family: &'static str,
    /// Rows of the embedding and of the head.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Longest context the checkpoint declares.
    pub max_positions: usize,
    /// Epsilon of all RMSNorms.
    pub eps: f32,
    /// Norm weights are stored as w and used as 1+w (the gated norm inside linear attention is exempt).
    pub norm_plus_one: bool,
    /// Position encoding of all attention layers.
    pub rope: Rope,
    /// Decoder layers.
    pub layers: Vec<Layer>,
    /// Where each dense role comes from.
    pub sources: BTreeMap<Role, Source>,
    /// End-of-sequence ids that configuration and generation configuration declare.
    pub eos: Vec<u32>,
    /// Configuration keys that nobody read: told to the user, never refused.
    pub unread_keys: Vec<String>,
    /// Tensors of the checkpoint that no role uses and no rule skips.
    pub unused_tensors: Vec<String>,
}

/// RoPE of a model: half-split pairs on the first `rotary` elements of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Rotated elements of a head.
    pub rotary: usize,
    /// Base.
    pub theta: f64,
    /// Frequency scaling.
    pub scaling: checkpoint::RopeScaling,
}

/// One decoder layer: `x += mixer(norm(x)); x += ffn(norm(x))`.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Token mixing.
    pub mixer: Mixer,
    /// Channel mixing.
    pub ffn: Ffn,
}

/// Token mixing of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
    /// Gated DeltaNet.
    GatedDelta(GatedDelta),
}

/// Causal grouped-query attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Per-head RMSNorm on q and k.
    pub qk_norm: bool,
    /// The output is multiplied by sigmoid of a gate projection.
    pub gate: bool,
    /// The four projections have biases.
    pub bias: bool,
}

/// Gated DeltaNet dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedDelta {
    /// Heads of q and k.
    pub key_heads: usize,
    /// Heads of v and of the state.
    pub value_heads: usize,
    /// Elements of a key.
    pub dk: usize,
    /// Elements of a value.
    pub dv: usize,
    /// Convolution taps.
    pub kernel: usize,
}

impl GatedDelta {
    /// Channels that pass through the convolution: all q, all k, all v.
    pub const fn channels(&self) -> usize {
        2 * self.key_heads * self.dk + self.value_heads * self.dv
    }
}

/// Channel mixing of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum Ffn {
    /// Mixture of experts.
    Moe(Moe),
    /// Dense SwiGLU of this width.
    Dense {
        /// Intermediate width.
        inter: usize,
    },
}

/// A mixture-of-experts layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// Experts.
    pub experts: usize,
    /// Routed experts per token.
    pub top_k: usize,
    /// Width of an expert.
    pub inter: usize,
    /// Divide the chosen weights by their sum.
    pub renormalise: bool,
    /// The experts of a position are listed in a table ([`crate::Part::RouterTable`]); the logits only weigh
    /// them.
    pub table: bool,
    /// Width of the shared expert with its scalar gate, if there is one.
    pub shared_inter: Option<usize>,
    /// Hub names: `{prefix}{expert}.{gate,up,down}`.
    pub names: ExpertNames,
}

/// Hub names of a layer's experts, stored one by one.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertNames {
    /// What comes before the expert's number.
    pub prefix: String,
    /// Suffix of the gate projection.
    pub gate: &'static str,
    /// Suffix of the up projection.
    pub up: &'static str,
    /// Suffix of the down projection.
    pub down: &'static str,
}

impl Moe {
    /// Sources of gate, up and down of an expert.
    pub fn expert_sources(&self, hidden: usize, expert: ExpertId) -> [Source; 3] {
        let whole = |suffix: &str, rows| {
            Source::whole(RowSlice { tensor: format!("{}{expert}{suffix}", self.names.prefix), row: 0, rows })
        };
        [whole(self.names.gate, self.inter), whole(self.names.up, self.inter), whole(self.names.down, hidden)]
    }
}

impl Model {
    /// The MoE layers in order.
    pub fn moe_layers(&self) -> impl Iterator<Item = (LayerId, &Moe)> {
        self.layers.iter().enumerate().filter_map(|(i, layer)| match &layer.ffn {
            Ffn::Moe(moe) => Some((LayerId(i as u32), moe)),
            Ffn::Dense { .. } => None,
        })
    }

    /// Parameters of the model, embedding and head included, from the shapes alone.
    pub fn parameters(&self, manifest: &crate::Manifest) -> u64 {
        let dense: u64 = manifest.dense.iter().map(|e| e.kind.elements() as u64).sum();
        let experts: u64 =
            self.moe_layers().map(|(_, m)| (m.experts * 3 * m.inter * self.hidden) as u64).sum();
        dense + experts
    }
}
