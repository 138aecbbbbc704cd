//! config.json. Input: its text.
#![no_main]

use std::path::Path;

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
            assert!(dims > 0 && dims <= head_dim && dims % 2 == 0);
        }
    }
    let _ = config.ids("eos_token_id");
    let _ = config.unread();
});
