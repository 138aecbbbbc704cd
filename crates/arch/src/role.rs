//! Roles: what a tensor is to the model, whatever a checkpoint calls it.

use base::LayerId;
use serde::{Deserialize, Serialize};

use crate::recipe::RoleClass;

macro_rules! parts {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// Which tensor, within a layer or of the whole model.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Part { $($(#[$doc])* $name,)* }

        impl Part {
            /// Stable name in cache files and messages.
            pub const fn name(self) -> &'static str {
                match self { $(Part::$name => $text),* }
            }
        }
    };
}

parts! {
    /// Token embedding, exact BF16.
    Embedding = "embedding",
    /// Norm before the head.
    FinalNorm = "final_norm",
    /// Output head.
    Head = "head",
    /// Norm before the mixer (attention or linear attention).
    MixerNorm = "mixer_norm",
    /// Norm before the FFN.
    FfnNorm = "ffn_norm",
    /// Query projection.
    AttnQ = "attn_q",
    /// Query bias.
    AttnQBias = "attn_q_bias",
    /// Output-gate projection of gated attention.
    AttnGate = "attn_gate",
    /// Its bias.
    AttnGateBias = "attn_gate_bias",
    /// Key projection.
    AttnK = "attn_k",
    /// Key bias.
    AttnKBias = "attn_k_bias",
    /// Value projection.
    AttnV = "attn_v",
    /// Value bias.
    AttnVBias = "attn_v_bias",
    /// Output projection.
    AttnO = "attn_o",
    /// Output bias.
    AttnOBias = "attn_o_bias",
    /// Per-head norm of queries.
    QNorm = "q_norm",
    /// Per-head norm of keys.
    KNorm = "k_norm",
    /// Gated DeltaNet: projection to all q, all k, all v.
    DeltaQkv = "delta_qkv",
    /// Gated DeltaNet: projection to the output gate z.
    DeltaZ = "delta_z",
    /// Gated DeltaNet: projection to all b, all a.
    DeltaBa = "delta_ba",
    /// Gated DeltaNet: depthwise convolution, oldest tap first.
    DeltaConv = "delta_conv",
    /// Gated DeltaNet: -exp(A_log).
    DeltaDecay = "delta_decay",
    /// Gated DeltaNet: dt_bias.
    DeltaDtBias = "delta_dt_bias",
    /// Gated DeltaNet: weight of the gated norm.
    DeltaNorm = "delta_norm",
    /// Gated DeltaNet: output projection.
    DeltaOut = "delta_out",
    /// Router logits.
    Router = "router",
    /// Expert ids by position, of synthetic models.
    RouterTable = "router_table",
    /// Shared expert: gate projection.
    SharedGate = "shared_gate",
    /// Shared expert: up projection.
    SharedUp = "shared_up",
    /// Shared expert: down projection.
    SharedDown = "shared_down",
    /// Scalar gate of the shared expert.
    SharedExpertGate = "shared_expert_gate",
    /// Dense FFN: gate projection.
    DenseGate = "dense_gate",
    /// Dense FFN: up projection.
    DenseUp = "dense_up",
    /// Dense FFN: down projection.
    DenseDown = "dense_down",
}

impl Part {
    /// Which setting of a recipe decides its format; `None` for exact parts (embedding, vectors, conv).
    pub const fn class(self) -> Option<RoleClass> {
        Some(match self {
            Part::AttnQ | Part::AttnGate | Part::AttnK | Part::AttnV | Part::AttnO => RoleClass::Attention,
            Part::DeltaQkv | Part::DeltaZ | Part::DeltaOut => RoleClass::LinearAttention,
            Part::SharedGate | Part::SharedUp | Part::SharedDown => RoleClass::Shared,
            Part::DenseGate | Part::DenseUp | Part::DenseDown => RoleClass::Dense,
            Part::Router => RoleClass::Router,
            Part::DeltaBa | Part::SharedExpertGate => RoleClass::SmallGates,
            Part::Head => RoleClass::Head,
            _ => return None,
        })
    }
}

/// A dense tensor of a model. Routed experts are addressed by (layer, expert) instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Role {
    /// Decoder layer, or `None` for parts of the whole model.
    pub layer: Option<LayerId>,
    /// Which tensor.
    pub part: Part,
}

impl Role {
    /// A part of the whole model.
    pub const fn global(part: Part) -> Self {
        Role { layer: None, part }
    }

    /// A part of layer `layer`.
    pub const fn of(layer: usize, part: Part) -> Self {
        Role { layer: Some(LayerId(layer as u32)), part }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.layer {
            Some(layer) => write!(f, "layers.{layer}.{}", self.part.name()),
            None => f.write_str(self.part.name()),
        }
    }
}
