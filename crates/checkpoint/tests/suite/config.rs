//! The configuration reader: types, ranges, and the record of what was read.

use std::path::Path;

use base::{Error, Refusal};
use checkpoint::{Checkpoint, Config};
use serde_json::{Value, json};

use crate::build::assert_words;

fn config(value: Value) -> Config {
    Config::from_value(Path::new("m/config.json"), value).unwrap()
}

fn refusal<T: std::fmt::Debug>(result: base::Result<T>) -> (Refusal, String) {
    match result.unwrap_err() {
        Error::Refused(refusal) => (refusal.clone(), refusal.to_string()),
        Error::World(other) => panic!("not a refusal: {other}"),
    }
}

#[test]
fn numbers_are_taken_in_every_spelling() {
    let c = config(json!({"i": 128, "f": 128.0, "theta": 1e6, "n": null, "neg": -1, "frac": 1.5, "s": "12"}));
    assert_eq!(c.usize("i").unwrap(), 128);
    assert_eq!(c.usize("f").unwrap(), 128);
    assert_eq!(c.f64("i").unwrap(), 128.0);
    assert_eq!(c.f64("theta").unwrap(), 1e6);
    assert_eq!(c.opt_usize("n").unwrap(), None);
    assert_eq!(c.opt_usize("absent").unwrap(), None);
    assert_eq!(c.usize_or("n", 3).unwrap(), 3);
    assert_eq!(c.f64_or("absent", 0.5).unwrap(), 0.5);
    for key in ["neg", "frac", "s"] {
        let (kind, message) = refusal(c.usize(key));
        assert!(matches!(kind, Refusal::Value { .. }));
        assert_words(
            &message,
            &[key, "m/config.json", &json_text(&c, key), "a whole number that is not negative"],
        );
    }
    let big = config(json!({"a": 1e300, "b": 18446744073709551615u64, "c": 9007199254740994.0}));
    assert!(big.usize("a").is_err() && big.usize("c").is_err());
    assert_eq!(big.usize("b").unwrap(), usize::MAX);
    let (kind, message) = refusal(c.usize("absent"));
    assert!(matches!(kind, Refusal::NotFound { .. }));
    assert_words(&message, &["the key absent", "m/config.json"]);
}

fn json_text(config: &Config, key: &str) -> String {
    config.value(key).unwrap().to_string()
}

#[test]
fn other_types() {
    let long = "x".repeat(1000);
    let c = config(json!({
        "b": false, "s": "silu", "l": ["a", "b"], "n": [1, 2.0], "e": 5, "es": [1, 2], "bad": [1, "x"],
        "minus": -1, "huge": 4294967296u64, "long": long, "model_type": "qwen3_moe",
    }));
    assert!(!c.bool_or("b", true).unwrap());
    assert!(c.bool_or("absent", true).unwrap());
    assert_eq!(c.opt_str("s").unwrap(), Some("silu"));
    assert_eq!(c.model_type().unwrap(), "qwen3_moe");
    assert_eq!(c.strings("l").unwrap().unwrap(), ["a", "b"]);
    assert_eq!(c.usizes("n").unwrap().unwrap(), [1, 2]);
    assert_eq!(c.usizes("absent").unwrap(), None);
    assert_eq!(
        (c.ids("e").unwrap(), c.ids("es").unwrap(), c.ids("absent").unwrap()),
        (vec![5], vec![1, 2], vec![])
    );
    assert_words(&refusal(c.bool_or("s", true)).1, &["\"silu\"", "true or false"]);
    assert_words(&refusal(c.opt_str("b")).1, &["b in", "false", "a string"]);
    assert_words(&refusal(c.strings("bad")).1, &["[1,\"x\"]", "a list of strings"]);
    assert_words(&refusal(c.usizes("l")).1, &["a list of whole numbers"]);
    for key in ["bad", "minus", "huge", "s"] {
        assert_words(&refusal(c.ids(key)).1, &[key, "a token id or a list of token ids"]);
    }
    assert!(refusal(c.usize("long")).1.len() < 300);
    assert!(Config::from_value(Path::new("x"), json!([1])).unwrap_err().to_string().contains("a list"));
}

#[test]
fn spellings_must_agree() {
    const KEYS: [&str; 3] = ["num_experts", "num_local_experts", "n_routed_experts"];
    assert_eq!(config(json!({"num_local_experts": 8})).any_usize(&KEYS).unwrap(), Some(8));
    assert_eq!(config(json!({})).any_usize(&KEYS).unwrap(), None);
    let both = config(json!({"num_experts": 8, "n_routed_experts": 8.0}));
    assert_eq!(both.any_usize(&KEYS).unwrap(), Some(8));
    assert_eq!(both.unread(), [""; 0]);
    let (_, message) = refusal(config(json!({"num_experts": 8, "n_routed_experts": 9})).any_usize(&KEYS));
    assert_words(&message, &["num_experts says 8", "n_routed_experts in m/config.json: 9"]);
}

#[test]
fn asserted_keys() {
    let c = config(json!({"act": "gelu", "limit": 7.0, "flag": true, "nothing": null}));
    c.expect("absent", &[json!("silu")], "why").unwrap();
    c.expect("nothing", &[json!("silu")], "why").unwrap();
    c.expect("limit", &[json!(7)], "why").unwrap();
    c.expect("flag", &[json!(false), json!(true)], "why").unwrap();
    let (kind, message) = refusal(c.expect("act", &[json!("silu"), json!("swish")], "experts use SwiGLU"));
    assert!(matches!(kind, Refusal::Unsupported { .. }));
    assert_words(&message, &["act in m/config.json = \"gelu\"", "experts use SwiGLU", "\"silu\", \"swish\""]);
    assert!(c.expect("flag", &[json!(1)], "why").is_err());
    assert_words(&refusal(c.expect("act", &[], "why")).1, &["must be absent"]);
    assert_eq!(c.unread(), [""; 0]);
}

#[test]
fn unread_keys_are_reported() {
    let c = config(json!({
        "a": 1, "z": 2, "torch_dtype": "bfloat16", "dtype": "bfloat16", "nothing": null,
        "vision_config": {"x": 1}, "text_config": {"b": 1, "c": 2, "dtype": "bfloat16",
            "rope_parameters": {"rope_theta": 1.0, "mrope": [1]}},
        "quantization_config": {"fmt": "e4m3"}, "other": {"fmt": 1},
    }));
    let all = ["a", "other", "quantization_config", "text_config", "vision_config", "z"];
    assert_eq!(c.unread(), all);
    c.usize("a").unwrap();
    c.ignore(&["vision_config", "no.such"]);
    let text = c.section("text_config").unwrap().unwrap();
    assert_eq!(text.unread(), ["text_config.b", "text_config.c", "text_config.rope_parameters"]);
    text.usize("b").unwrap();
    text.ignore(&["c", "rope_parameters.mrope"]);
    assert!(!c.has("absent") && c.has("z"));
    assert!(c.section("quantization_config").unwrap().unwrap().opt_str("fmt").unwrap() == Some("e4m3"));
    assert_eq!(c.unread(), ["other", "text_config.rope_parameters.rope_theta", "z"]);
    // Reading a key twice, through another handle of the same section, changes nothing.
    c.section("text_config").unwrap().unwrap().usize("b").unwrap();
    assert_eq!(text.unread(), ["text_config.rope_parameters.rope_theta"]);
    assert_eq!(c.section("absent").unwrap().map(|s| s.unread()), None);
    assert_words(&refusal(c.section("a").map(|s| s.is_some())).1, &["a in", "an object"]);
    assert_words(
        &refusal(text.usize("rope_parameters")).1,
        &["text_config.rope_parameters in m/config.json"],
    );
}

#[test]
fn the_record_is_shared_between_threads() {
    fn shareable<T: Send + Sync>() {}
    shareable::<Config>();
    shareable::<Checkpoint>();
    let c = config(json!({"a": 1, "b": 2}));
    std::thread::scope(|scope| {
        scope.spawn(|| c.usize("a").unwrap());
        scope.spawn(|| c.usize("b").unwrap());
    });
    assert_eq!(c.unread(), [""; 0]);
}
