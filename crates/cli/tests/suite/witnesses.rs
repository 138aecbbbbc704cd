//! `compare` and `quality` against what independent implementations gave.

use serde_json::Value;

use crate::krasis::{krasis, text};

fn figure(json: &Value, key: &str) -> f64 {
    json[key].as_f64().unwrap_or_else(|| panic!("{key} in {json}"))
}

#[test]
fn the_reference_profile_agrees_with_float_on_both_families() {
    for family in ["qwen3_moe", "qwen3_next"] {
        let folder = testdata::fixture(family);
        for config in ["config.json", "config.hub.json"] {
            let config = folder.join(config);
            let args =
                ["compare", text(&folder), "--config", text(&config), "--profile", "reference", "--json"];
            let json = krasis(&args).json();
            assert_eq!((&json["family"], &json["profile"]), (&family.into(), &"reference".into()));
            assert_eq!((&json["greedy_match"], &json["greedy_prefix"]), (&true.into(), &24.into()));
            assert!(figure(&json, "logits_rel_rms") <= 5e-4, "{json}");
            assert_eq!((&json["router_mismatches"], &json["router_undecided"]), (&0.into(), &0.into()));
            assert!(figure(&json, "router_checked") >= 600.0, "{json}");
        }
    }
}

#[test]
fn a_wrong_witness_is_noticed() {
    let (folder, other) = (testdata::fixture("qwen3_moe"), testdata::fixture("qwen3_next"));
    let args = ["compare", text(&folder), "--profile", "reference", "--json", "--witness"];
    let expected = other.join("expected.safetensors");
    let json = krasis(&[&args[..], &[text(&expected)]].concat()).json();
    assert_eq!(json["greedy_match"], false);
    assert!(figure(&json, "logits_rel_rms") > 0.1, "{json}");
    let weights = folder.join("model.safetensors");
    krasis(&[&args[..], &[text(&weights)]].concat()).failed(1, &["model.safetensors", "input_ids"]);
}

#[test]
fn greedy_texts_of_the_bundled_model_are_those_of_the_witness() {
    let (model, witness) =
        (testdata::fixture("tiny-qwen3-next"), testdata::fixture("tiny-qwen3-next-witness"));
    let compare = |profile: &str| {
        let args = ["compare", text(&model), "--witness", text(&witness), "--profile", profile, "--json"];
        krasis(&args).json()
    };
    let json = compare("reference");
    for key in ["prompts_equal", "greedy_texts_equal", "greedy_texts"] {
        assert_eq!(json[key], 10, "{json}");
    }
    assert!(figure(&json, "kl_mean") < 1e-4, "{json}");
    let json = compare("default");
    assert!(figure(&json, "greedy_texts_equal") >= 9.0, "{json}");
    for (kind, limit) in [("python", 0.03), ("gcide", 0.03), ("hb_de", 0.05), ("chat", 0.05)] {
        let kl = figure(&json["kinds"][kind], "kl_mean");
        assert!(kl > 0.0 && kl <= limit, "{kind}: {kl}");
    }
}
