//! Rotary embedding: one result from every spelling, a refusal where they differ.

use std::path::Path;

use base::{Error, Refusal};
use checkpoint::{Config, Rope, RopeScaling};
use serde_json::{Value, json};

use crate::build::assert_words;

fn config(value: Value) -> Config {
    Config::from_value(Path::new("config.json"), value).unwrap()
}

fn rope(value: Value) -> Rope {
    let c = config(value);
    let rope = c.rope(64).unwrap();
    let unread: Vec<String> = c.unread().into_iter().filter(|k| k != "max_position_embeddings").collect();
    assert_eq!(unread, [""; 0]);
    rope
}

fn plain(theta: f64, partial_factor: f64) -> Rope {
    Rope { theta, partial_factor, scaling: RopeScaling::None }
}

#[test]
fn plain_rope_in_every_spelling() {
    for value in [
        json!({"rope_theta": 1e6}),
        json!({"rope_theta": 1000000, "rope_scaling": null}),
        json!({"rope_theta": 1e6, "rope_scaling": {"rope_type": "default"}}),
        json!({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
        json!({"rope_theta": 1e6, "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}}),
        json!({"rope_scaling": {"type": "default", "rope_theta": 1e6}, "rope_parameters": null}),
        json!({"rope_theta": 1e6, "rotary_dim": 64}),
        json!({"rope_theta": 1e6, "rope_parameters": {}}),
    ] {
        assert_eq!(rope(value), plain(1e6, 1.0));
    }
    for value in [
        json!({"rope_theta": 5e6, "rotary_dim": 32}),
        json!({"rope_theta": 5e6, "partial_rotary_factor": 0.5}),
        json!({"rope_theta": 5e6, "rotary_dim": 32, "partial_rotary_factor": 0.5}),
        json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5}}),
        json!({"rotary_dim": 32, "rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5}}),
    ] {
        let found = rope(value);
        assert_eq!(found, plain(5e6, 0.5));
        assert_eq!(found.rotary_dims(64), 32);
    }
}

#[test]
fn rotary_dims_survive_the_division() {
    for head in (2..=512).step_by(2) {
        for dims in (2..=head).step_by(2) {
            let c = config(json!({"rope_theta": 1e4, "rotary_dim": dims}));
            assert_eq!(c.rope(head).unwrap().rotary_dims(head), dims);
        }
    }
}

#[test]
fn a_decimal_and_a_quotient_of_the_same_share_agree() {
    for (dims, head, share) in [(48, 80, "0.6"), (24, 240, "0.1"), (96, 128, "0.75"), (18, 60, "0.3")] {
        let text =
            format!(r#"{{"rope_theta": 1e4, "rotary_dim": {dims}, "partial_rotary_factor": {share}}}"#);
        let c = config(serde_json::from_str(&text).unwrap());
        assert_eq!(c.rope(head).unwrap().rotary_dims(head), dims);
    }
}

#[test]
fn scaled_rope_in_every_spelling() {
    let yarn = Rope {
        theta: 10000.0,
        partial_factor: 1.0,
        scaling: RopeScaling::Yarn {
            factor: 4.0,
            original: 32768,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: true,
        },
    };
    for value in [
        json!({"rope_theta": 1e4, "rope_scaling":
            {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}),
        json!({"rope_theta": 1e4, "rope_scaling":
            {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768, "beta_fast": 32}}),
        json!({"rope_theta": 1e4, "max_position_embeddings": 131072, "rope_scaling":
            {"rope_type": "yarn", "type": "yarn", "factor": 4, "original_max_position_embeddings": 32768}}),
        json!({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4, "truncate": true,
            "original_max_position_embeddings": 32768, "beta_fast": 32.0, "beta_slow": 1.0}}),
        json!({"rope_theta": 1e4, "original_max_position_embeddings": 32768,
            "max_position_embeddings": 131072, "rope_scaling": {"rope_type": "yarn", "factor": 4}}),
        json!({"rope_theta": 1e4, "max_position_embeddings": 32768,
            "rope_scaling": {"type": "yarn", "factor": 4}}),
        json!({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768},
            "rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0,
                "original_max_position_embeddings": 32768}}),
    ] {
        assert_eq!(rope(value), yarn);
    }
    let linear = rope(json!({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2}}));
    assert_eq!(linear.scaling, RopeScaling::Linear { factor: 2.0 });
    let full = rope(json!({"rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 1,
        "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0, "attention_factor": 1.25, "truncate": false,
        "original_max_position_embeddings": 4096}}));
    assert_eq!(
        full.scaling,
        RopeScaling::Yarn {
            factor: 40.0,
            original: 4096,
            beta_fast: 1.0,
            beta_slow: 1.0,
            attention_factor: Some(1.25),
            mscale: Some(0.707),
            mscale_all_dim: Some(0.0),
            truncate: false,
        }
    );
}

#[test]
fn what_is_unknown_or_contradictory_is_refused() {
    let theta =
        |scaling: Value| json!({"rope_theta": 1e4, "max_position_embeddings": 4096, "rope_scaling": scaling});
    for (value, words) in [
        (json!({}), &["the key rope_theta"][..]),
        (json!({"rope_theta": 0}), &["rope_theta in config.json", "a base above 1"]),
        (json!({"rope_theta": "1e4"}), &["rope_theta in", "\"1e4\"", "a number"]),
        (
            theta(json!({"type": "llama3", "factor": 8})),
            &["rope_scaling.rope_type", "\"llama3\"", "known types"],
        ),
        (theta(json!({"type": "dynamic", "factor": 8})), &["\"dynamic\"", "not supported"]),
        (
            theta(json!({"type": "yarn", "rope_type": "linear", "factor": 8})),
            &["\"linear\"", "\"yarn\"", "agree"],
        ),
        (theta(json!({"factor": 8})), &["the key rope_scaling.rope_type"]),
        (theta(json!({"type": "yarn"})), &["the key rope_scaling.factor"]),
        (theta(json!({"type": "yarn", "factor": 0.5})), &["rope_scaling.factor in", "0.5", "at least 1"]),
        (theta(json!({"type": "linear", "factor": -1})), &["rope_scaling.factor", "-1", "at least 1"]),
        (theta(json!({"type": "yarn", "factor": 2, "beta_fast": 0.5})), &["beta_fast", "0.5", "beta_slow"]),
        (
            theta(json!({"type": "yarn", "factor": 2, "attention_factor": 0})),
            &["attention_factor in", "above 0"],
        ),
        (theta(json!({"type": "yarn", "factor": 2, "mscale": -1})), &["rope_scaling.mscale", "not negative"]),
        (
            theta(json!({"type": "yarn", "factor": 2, "original_max_position_embeddings": 0})),
            &["rope_scaling.original_max_position_embeddings", "positive"],
        ),
        (theta(json!([1])), &["rope_scaling in", "an object"]),
        (
            theta(json!({"rope_type": "default", "rope_theta": 5})),
            &["rope_theta says 10000", "rope_scaling.rope_theta"],
        ),
        (
            json!({"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 2},
                "rope_parameters": {"rope_type": "default"}}),
            &["rope_scaling says Linear", "rope_parameters in config.json: None"],
        ),
        (
            json!({"rope_theta": 1e4, "partial_rotary_factor": 0.25, "rotary_dim": 32}),
            &["partial_rotary_factor says 0.25", "rotary_dim / head_dim in config.json: 0.5"],
        ),
        (
            json!({"rope_theta": 1e4, "partial_rotary_factor": 1.5}),
            &["partial_rotary_factor", "1.5", "(0, 1]"],
        ),
        (json!({"rope_theta": 1e4, "partial_rotary_factor": 0.01}), &["even number of 64"]),
        (json!({"rope_theta": 1e4, "rotary_dim": 33}), &["even number of 64"]),
        (
            json!({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
            &["rope_parameters.full_attention", "not supported"],
        ),
    ] {
        match config(value.clone()).rope(64).unwrap_err() {
            Error::Refused(refusal) => assert_words(&refusal.to_string(), words),
            Error::World(other) => panic!("{value}: {other}"),
        }
    }
    assert!(config(json!({"rope_theta": 1e4})).rope(0).is_err());
    let unknown = config(theta(json!({"type": "longrope"}))).rope(64).unwrap_err();
    assert!(matches!(unknown, Error::Refused(Refusal::Unsupported { .. })));
}
