//! Qwen3-Next: Qwen3-Next-80B-A3B, Qwen3-Coder-Next. Gated DeltaNet layers with a gated attention layer every
//! few, (1+w) norms, a shared expert with a scalar gate.

use base::{Refusal, Result};
use checkpoint::config::Config;

use super::{Common, Names, Sources, counted, counted_or, divides, most};
use crate::manifest::RowSlice;
use crate::model::{GatedDelta, Layer, Mixer, Model};
use crate::role::{Part, Role};

pub(super) fn read(config: &Config, names: &Names) -> Result<Model> {
    let mut common = Common::read(config, names)?;
    common.attention.gate = true;
    common.moe.shared_inter = Some(counted(config, "shared_expert_intermediate_size", most::WIDTH)?);
    let delta = gated_delta(config)?;
    let full = full_attention(config, common.layers)?;
    let mut sources = Sources::default();
    let layers = (0..common.layers)
        .map(|layer| {
            let mixer = if full[layer] {
                sources.attention(layer, &common.attention, common.hidden);
                Mixer::Attention(common.attention.clone())
            } else {
                delta_sources(&mut sources, layer, &delta, common.hidden);
                Mixer::GatedDelta(delta.clone())
            };
            Ok(Layer { mixer, ffn: common.ffn(layer, &mut sources)? })
        })
        .collect::<Result<_>>()?;
    Ok(common.model("qwen3_next", true, layers, sources))
}

fn gated_delta(config: &Config) -> Result<GatedDelta> {
    let delta = GatedDelta {
        key_heads: counted(config, "linear_num_key_heads", most::HEADS)?,
        value_heads: counted(config, "linear_num_value_heads", most::HEADS)?,
        dk: counted(config, "linear_key_head_dim", most::HEAD_DIM)?,
        dv: counted(config, "linear_value_head_dim", most::HEAD_DIM)?,
        kernel: counted_or(config, "linear_conv_kernel_dim", 4, most::KERNEL)?,
    };
    divides(config, "linear_num_key_heads", delta.key_heads, "linear_num_value_heads", delta.value_heads)?;
    Ok(delta)
}

/// Which layers are full attention: `layer_types` if present, else every `full_attention_interval`-th.
fn full_attention(config: &Config, layers: usize) -> Result<Vec<bool>> {
    let interval = config.usize_or("full_attention_interval", 4)?;
    let Some(types) = config.strings("layer_types")? else {
        if interval == 0 {
            let hint = "it counts layers per full attention layer";
            return Err(Refusal::value("full_attention_interval", 0, "at least 1", hint).into());
        }
        return Ok((0..layers).map(|i| (i + 1).is_multiple_of(interval)).collect());
    };
    if types.len() != layers {
        let limit = format!("num_hidden_layers = {layers} entries");
        return Err(Refusal::value("layer_types", types.len(), limit, "check config.json").into());
    }
    let kind = |name: &String| match name.as_str() {
        "full_attention" => Ok(true),
        "linear_attention" => Ok(false),
        other => Err(Refusal::value(
            "layer_types",
            other,
            "full_attention or linear_attention",
            "this family has no other kind of layer",
        )
        .into()),
    };
    types.iter().map(kind).collect()
}

/// The hub interleaves the projections by key head: rows of in_proj_qkvz are, per key head, q, k, the v of
/// its value heads, the z of its value heads; rows of in_proj_ba are b, then a of its value heads.
fn delta_sources(sources: &mut Sources, layer: usize, d: &GatedDelta, hidden: usize) {
    let prefix = format!("model.layers.{layer}.linear_attn.");
    let ratio = d.value_heads / d.key_heads;
    let per_key = |tensor: &'static str, stride: usize, offset: usize, rows: usize| {
        let tensor = format!("{prefix}{tensor}.weight");
        (0..d.key_heads).map(move |h| RowSlice { tensor: tensor.clone(), row: h * stride + offset, rows })
    };
    let stride = 2 * d.dk + 2 * ratio * d.dv;
    let qkvz = |offset, rows| per_key("in_proj_qkvz", stride, offset, rows);
    let ba = |offset| per_key("in_proj_ba", 2 * ratio, offset, ratio);
    let (k, v, z) = (d.dk, 2 * d.dk, 2 * d.dk + ratio * d.dv);
    let qkv = qkvz(0, d.dk).chain(qkvz(k, d.dk)).chain(qkvz(v, ratio * d.dv));
    sources.add_parts(Role::of(layer, Part::DeltaQkv), qkv.collect());
    sources.add_parts(Role::of(layer, Part::DeltaZ), qkvz(z, ratio * d.dv).collect());
    sources.add_parts(Role::of(layer, Part::DeltaBa), ba(0).chain(ba(ratio)).collect());
    let mut whole = |part, name: &str, rows| {
        sources.add(Role::of(layer, part), format!("{prefix}{name}"), rows);
    };
    whole(Part::DeltaConv, "conv1d.weight", d.channels());
    whole(Part::DeltaDecay, "A_log", d.value_heads);
    whole(Part::DeltaDtBias, "dt_bias", d.value_heads);
    whole(Part::DeltaNorm, "norm.weight", d.dv);
    whole(Part::DeltaOut, "out_proj.weight", hidden);
}
