//! config.json, up to the program of steps. Input: its text.
#![no_main]

use std::path::Path;

use arch::families::{Names, read_config};
use arch::{Manifest, Profile, lower};
use checkpoint::Config;
use checkpoint::json::parse_object;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let path = Path::new("config.json");
    let Ok(object) = parse_object(input, path) else { return };
    let Ok(config) = Config::from_value(path, Value::Object(object)) else { return };
    for head_dim in [64, 256] {
        if let Ok(rope) = config.rope(head_dim) {
            let dims = rope.rotary_dims(head_dim);
            assert!(dims > 0 && dims <= head_dim && dims.is_multiple_of(2));
        }
    }
    let _ = config.ids("eos_token_id");
    let Ok(model) = read_config(&config, &Names::default()) else { return };
    for profile in [Profile::Default, Profile::Reference] {
        let recipe = profile.recipe();
        let Ok(program) = lower(&model, &recipe) else { continue };
        assert!(!program.steps.is_empty());
        let manifest = Manifest::new(&model, &recipe);
        assert!(manifest.tensors().count() > 0);
    }
});
