//! Qwen3-MoE: Qwen3-30B-A3B, 235B-A22B, Coder-30B, Coder-480B and their later releases.

use base::Result;
use checkpoint::config::Config;
use serde_json::json;

use super::{Common, Names, Sources};
use crate::model::{Layer, Mixer, Model};

pub(super) fn read(config: &Config, names: &Names) -> Result<Model> {
    let common = Common::read(config, names)?;
    // Both name windows that only count when use_sliding_window is true, which no published model sets.
    config.expect("use_sliding_window", &[json!(false), json!(null)], "sliding windows in this family")?;
    config.ignore(&["sliding_window", "max_window_layers", "layer_types"]);
    let mut sources = Sources::default();
    let layers = (0..common.layers)
        .map(|layer| {
            sources.attention(layer, &common.attention, common.hidden);
            let ffn = common.ffn(layer, &mut sources)?;
            Ok(Layer { mixer: Mixer::Attention(common.attention.clone()), ffn })
        })
        .collect::<Result<_>>()?;
    Ok(common.model("qwen3_moe", false, layers, sources))
}
