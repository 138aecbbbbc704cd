//! Whatever the bytes are: an answer, never a panic.

use std::path::Path;

use checkpoint::safetensors::{Header, parse_header};
use checkpoint::{Config, json};
use proptest::prelude::*;

use crate::build::file;

const HEADER: &str = r#"{"__metadata__":{"format":"pt"},
"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},
"b.weight":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[8,12]},
"c":{"dtype":"I64","shape":[],"data_offsets":[12,20]}}"#;

/// What must hold of any header that was accepted.
fn check(header: &Header, file_len: u64) {
    let mut spans: Vec<_> = header.tensors.iter().map(|t| t.span.clone()).collect();
    spans.sort_by_key(|s| (s.start, s.end));
    assert!(spans.windows(2).all(|w| w[0].end <= w[1].start));
    assert!(spans.iter().all(|s| s.start >= header.data_start && s.end as u64 <= file_len));
    for t in &header.tensors {
        assert_eq!(t.rows() * t.columns() * t.dtype.bytes(), t.bytes());
    }
    assert!(header.tensors.windows(2).all(|w| w[0].name < w[1].name));
}

fn parse(bytes: &[u8]) -> bool {
    let parsed = parse_header(bytes, bytes.len() as u64, Path::new("x"));
    if let Ok(header) = &parsed {
        check(header, bytes.len() as u64);
    }
    parsed.is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn mutated_headers(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..6),
    ) {
        let mut text = HEADER.as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => { text.remove(at); }
            }
        }
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(&text);
        bytes.extend([0; 20]);
        parse(&bytes);
    }

    /// Well-formed JSON with other numbers: reaches the checks behind the parser.
    #[test]
    fn mutated_numbers(
        numbers in prop::collection::vec(prop_oneof![0..24u64, any::<u64>()], 7),
        dtypes in prop::collection::vec(0..16usize, 2),
        data_bytes in 0..40usize,
    ) {
        let dtype = |i: usize| checkpoint::Dtype::ALL[dtypes[i]].name();
        let n = &numbers;
        let text = format!(
            r#"{{"a":{{"dtype":"{}","shape":[{},{}],"data_offsets":[0,{}]}},
                "b":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}}}}"#,
            dtype(0), n[0], n[1], n[2], dtype(1), n[3], n[2], n[4]
        );
        parse(&file(&text, data_bytes));
    }

    #[test]
    fn mutated_lengths(length in any::<u64>(), shift in 0..64u32, keep in 0..400usize) {
        let mut bytes = file(HEADER, 20);
        bytes[..8].copy_from_slice(&(length >> shift).to_le_bytes());
        bytes.truncate(keep);
        parse(&bytes);
        let _ = parse_header(&bytes, length, Path::new("x"));
    }

    #[test]
    fn any_config(text in r#"\{"(rope_theta|rope_parameters|head_dim)": ?[-0-9a-z{}\[\]:",.]{0,30}\}"#) {
        let Ok(map) = json::parse_object(text.as_bytes(), Path::new("config.json")) else { return Ok(()) };
        let config = Config::from_value(Path::new("config.json"), map.into()).unwrap();
        let _ = config.rope(64);
        let _ = (config.opt_usize("head_dim"), config.f64("rope_theta"), config.ids("head_dim"));
        let _ = (config.usizes("head_dim"), config.strings("head_dim"), config.section("head_dim"));
        let _ = config.unread();
    }
}

#[test]
fn the_unchanged_header_is_accepted() {
    assert!(parse(&file(HEADER, 20)));
}
