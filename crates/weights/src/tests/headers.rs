//! Headers are untrusted: each way in which one can be wrong is its own error, and none panics.

use std::path::Path;

use base::hash::Digest;
use base::{FileFault, WorldError};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::header::{Content, Header, Key};
use crate::reader::parse_header;

/// A file's beginning with any section table, and the right checksum.
fn signed(table: &[u8], version: u32, data_bytes: u64) -> Vec<u8> {
    let mut out = b"KRASISKW".to_vec();
    out.extend(version.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend((table.len() as u64).to_le_bytes());
    out.extend(data_bytes.to_le_bytes());
    out.resize(64, 0);
    out.extend(table);
    out.extend(Digest::of(&out).0);
    out
}

fn parse(bytes: &[u8], data_bytes: u64) -> Result<Header, WorldError> {
    let data_start = (bytes.len() as u64).next_multiple_of(4096);
    parse_header(bytes, data_start.saturating_add(data_bytes), Path::new("x.kw"))
}

fn hex(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

/// A sound table: a matrix, a layer of experts and their checksums.
fn table() -> Value {
    let matrix = Content::Matrix { format: "h6".into(), n: 40, k: 256 };
    let experts = Content::Experts { layer: 2, format: "i4".into(), experts: 3, hidden: 128, inter: 64 };
    let checksums = Content::Checksums { experts: 3 };
    let contents =
        [("layers.0.attn_q", matrix), ("layers.2.experts", experts), ("expert_checksums", checksums)];
    let (mut sections, mut offset) = (Vec::new(), 0);
    for (name, content) in contents {
        let bytes = content.bytes().unwrap();
        sections.push(
            json!({"name": name, "content": content, "offset": offset, "bytes": bytes, "digest": hex(name)}),
        );
        offset = (offset + bytes).next_multiple_of(4096);
    }
    json!({"source": hex("s"), "recipe": "experts=i4", "manifest": hex("m"), "sections": sections})
}

fn data_bytes(table: &Value) -> u64 {
    let last = table["sections"].as_array().unwrap().last().unwrap();
    (last["offset"].as_u64().unwrap() + last["bytes"].as_u64().unwrap()).next_multiple_of(4096)
}

fn fault(table: &Value, data_bytes: u64) -> Option<FileFault> {
    parse(&signed(&serde_json::to_vec(table).unwrap(), 1, data_bytes), data_bytes)
        .err()
        .and_then(|e| e.fault())
}

#[test]
fn a_header_that_was_written_is_read_back() {
    let key = Key { source: Digest::of(b"s"), recipe: "experts=i4".into(), arithmetic: 1 };
    let contents = vec![
        ("a".to_string(), Content::F32 { rows: 3, columns: 1 }),
        ("b".to_string(), Content::Bf16 { rows: 5000, columns: 3 }),
    ];
    let mut header = Header::place(key, Digest::of(b"m"), contents);
    header.sections[1].digest = Digest::of(b"b");
    let bytes = header.encode();
    assert_eq!(bytes.len() as u64, header.data_start);
    assert_eq!(header.file_bytes, header.data_start + 4096 + 30_000u64.next_multiple_of(4096));
    assert_eq!(parse_header(&bytes, header.file_bytes, Path::new("x")).unwrap(), header);
    let table = table();
    assert_eq!(fault(&table, data_bytes(&table)), None);
}

#[test]
fn every_wrong_table_has_its_own_fault() {
    use FileFault::*;
    let good = table();
    let data = data_bytes(&good);
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, FileFault); 19] = [
        ("a second name", |t| t["sections"][1]["name"] = json!("layers.0.attn_q"), DuplicateName),
        ("bytes of another shape", |t| t["sections"][0]["content"]["n"] = json!(72), LengthMismatch),
        ("an unknown format", |t| t["sections"][0]["content"]["format"] = json!("q4_k"), BadHeader),
        ("an unknown kind", |t| t["sections"][0]["content"]["kind"] = json!("tokens"), BadHeader),
        ("a huge shape", |t| t["sections"][0]["content"]["k"] = json!(u64::MAX), BadHeader),
        ("many experts", |t| t["sections"][1]["content"]["experts"] = json!(1u64 << 60), BadHeader),
        ("an empty expert", |t| t["sections"][1]["content"]["inter"] = json!(0), BadHeader),
        ("no experts", |t| t["sections"][1]["content"]["experts"] = json!(0), BadHeader),
        ("an odd offset", |t| t["sections"][1]["offset"] = json!(8193), OffsetOutOfRange),
        ("an offset far away", |t| t["sections"][1]["offset"] = json!(u64::MAX - 4095), OffsetOutOfRange),
        ("an overlap", |t| t["sections"][1]["offset"] = json!(0), Overlap),
        ("a hole", |t| t["sections"][0]["offset"] = json!(4096), Hole),
        ("a missing section", |t| drop(t["sections"].as_array_mut().unwrap().pop()), Hole),
        ("a negative offset", |t| t["sections"][1]["offset"] = json!(-4096), BadHeader),
        ("a short digest", |t| t["sections"][1]["digest"] = json!("00"), BadHeader),
        ("an upper-case digest", |t| t["manifest"] = json!("A".repeat(64)), BadHeader),
        ("another field", |t| t["sections"][1]["extra"] = json!(1), BadHeader),
        ("no sections", |t| drop(t.as_object_mut().unwrap().remove("sections")), BadHeader),
        ("a long recipe", |t| t["recipe"] = json!("x".repeat(2000)), BadHeader),
    ];
    for (what, edit, expected) in cases {
        let mut table = good.clone();
        edit(&mut table);
        assert_eq!(fault(&table, data), Some(expected), "{what}");
    }
    let mut table = good.clone();
    table["sections"].as_array_mut().unwrap().pop();
    assert_eq!(fault(&table, data_bytes(&table)), Some(MissingTensor), "experts without checksums");
    let mut table = good.clone();
    table["sections"].as_array_mut().unwrap().remove(1);
    table["sections"][1]["offset"] =
        table["sections"][0]["bytes"].as_u64().unwrap().next_multiple_of(4096).into();
    assert_eq!(fault(&table, data_bytes(&table)), Some(BadHeader), "checksums without experts");
}

#[test]
fn every_wrong_beginning_has_its_own_fault() {
    let text = serde_json::to_vec(&table()).unwrap();
    let data = data_bytes(&table());
    let good = signed(&text, 1, data);
    let fault =
        |bytes: &[u8], file: u64| parse_header(bytes, file, Path::new("x.kw")).err().and_then(|e| e.fault());
    let file = (good.len() as u64).next_multiple_of(4096) + data;
    assert_eq!(fault(&good, file), None);
    assert_eq!(fault(&good, file - 1), Some(FileFault::Truncated));
    assert_eq!(fault(&good, file + 1), Some(FileFault::TrailingBytes));
    for cut in [0, 63, 64, 200, good.len() - 1] {
        assert_eq!(fault(&good[..cut], cut as u64), Some(FileFault::Truncated), "{cut} bytes");
    }
    assert_eq!(fault(&signed(&text, 2, data), file), Some(FileFault::Stale));
    assert_eq!(fault(&[b"GGUF0000".as_slice(), &good[8..]].concat(), file), Some(FileFault::BadHeader));
    let mut long = good.clone();
    long[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(fault(&long, file), Some(FileFault::HeaderTooLarge));
    for at in [12, 24, 40, 64, 300, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(fault(&bad, file), Some(FileFault::Checksum), "byte {at}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(fault(&signed(deep.as_bytes(), 1, data), file), Some(FileFault::BadHeader));
    assert_eq!(parse(&signed(b"", 1, 0), 0).unwrap_err().fault(), Some(FileFault::BadHeader));
    assert!(parse(&signed(&text, 1, u64::MAX), u64::MAX).is_err());
}

/// Bits of JSON.
const TEXT: &str = "[0-9a-z\"{},:\\-]{1,6}";

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_table_makes_the_reader_panic(at in 0usize..2000, with in TEXT, data in any::<u64>()) {
        let mut text = table().to_string();
        let at = at % text.len();
        text.replace_range(at..(at + with.len()).min(text.len()), &with);
        let known = data_bytes(&table());
        for data in [known, data] {
            if let Ok(header) = parse(&signed(text.as_bytes(), 1, data), data) {
                let inside = |s: &crate::header::Section| s.offset + s.bytes <= header.file_bytes;
                prop_assert!(header.sections.iter().all(inside));
            }
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in vec(any::<u8>(), 0..300), file in any::<u64>()) {
        let _ = parse_header(&bytes, file, Path::new("x.kw"));
        let _ = parse(&signed(&bytes, 1, file), file);
    }
}
