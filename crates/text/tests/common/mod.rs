//! Test data outside the repository, and a tokenizer made by hand.
#![allow(dead_code, reason = "each test binary uses a part of this module")]

use std::path::PathBuf;

/// Name of the environment variable that holds the folder of test data.
pub const VARIABLE: &str = "KRASIS_TEST_DATA";

/// The folder of test data, or `None` after saying why the test is skipped.
pub fn data(part: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os(VARIABLE) else {
        println!("skipped: {VARIABLE} is not set");
        return None;
    };
    let path = PathBuf::from(folder).join(part);
    assert!(path.exists(), "{VARIABLE} is set, but {} is not there", path.display());
    Some(path)
}

/// A JSON file.
pub fn json(path: &std::path::Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

/// A tokenizer.json whose tokens are the 256 bytes (ids 0 to 255 in GPT-2's order) and the given added
/// tokens (spelling, special), from id 256 on.
pub fn byte_tokenizer(added: &[(&str, bool)]) -> serde_json::Value {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let own = (0..=255u8).filter(printable).map(char::from);
    let shifted = (0..(256 - own.clone().count() as u32)).filter_map(|n| char::from_u32(256 + n));
    let vocab: serde_json::Map<String, serde_json::Value> =
        own.chain(shifted).enumerate().map(|(id, c)| (c.to_string(), id.into())).collect();
    let tokens: Vec<serde_json::Value> = added
        .iter()
        .enumerate()
        .map(|(index, (content, special))| {
            serde_json::json!({"id": 256 + index, "content": content, "special": special, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false})
        })
        .collect();
    let byte_level = serde_json::json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": true});
    serde_json::json!({
        "version": "1.0", "added_tokens": tokens, "normalizer": null, "post_processor": null,
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []}
    })
}
