//! Every fault a single file can have: its kind, and that the message names file, tensor, expected and found.

use std::path::Path;

use base::FileFault;
use checkpoint::safetensors::{Shard, parse_header};
use checkpoint::{Dtype, MAX_RANK, MAX_TENSORS};

use crate::build::{assert_words, file, vectors};

struct Case {
    what: &'static str,
    bytes: Vec<u8>,
    fault: FileFault,
    /// Words of the message, besides the file's name.
    words: Vec<&'static str>,
}

fn case(what: &'static str, bytes: Vec<u8>, fault: FileFault, words: &[&'static str]) -> Case {
    Case { what, bytes, fault, words: words.to_vec() }
}

/// One tensor `t` with this text for its entry.
fn one(entry: &str, data_bytes: usize) -> Vec<u8> {
    file(&format!(r#"{{"t":{{{entry}}}}}"#), data_bytes)
}

/// Tensors `a` and `b`, four bytes each, at these offsets.
fn two(a: &str, b: &str, data_bytes: usize) -> Vec<u8> {
    let entry =
        |name: &str, at: &str| format!(r#""{name}":{{"dtype":"F32","shape":[1],"data_offsets":[{at}]}}"#);
    file(&format!("{{{},{}}}", entry("a", a), entry("b", b)), data_bytes)
}

fn length_cases() -> Vec<Case> {
    let whole = vectors(&["a", "b", "c"]);
    let data = whole.len() - 12;
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 4976698672\n".to_vec();
    let mut zip = b"PK\x03\x04\x14\x00\x00\x00archive/data.pkl".to_vec();
    zip.extend([0; 100]);
    use FileFault::*;
    vec![
        case("empty file", vec![], Truncated, &["at least 8 bytes", "found 0 bytes", "resume"]),
        case("half a length", whole[..5].to_vec(), Truncated, &["at least 8 bytes", "found 5 bytes"]),
        case("cut in the header", whole[..40].to_vec(), Truncated, &["at least", "found 40 bytes", "resume"]),
        case("cut before the data", whole[..data].to_vec(), Truncated, &["tensor a", "3 tensors cut off"]),
        case("cut by one byte", whole[..data + 11].to_vec(), Truncated, &["tensor c", "(1 tensors cut off)"]),
        case("cut in half", whole[..data + 6].to_vec(), Truncated, &["tensor b", "(2 tensors cut off)"]),
        case(
            "a byte too many",
            [&whole[..], &[0]].concat(),
            TrailingBytes,
            &["bytes, found", "fetch it again"],
        ),
        case("git-LFS pointer", lfs, LfsPointer, &["tensors", "pointer of 73 bytes", "git lfs pull"]),
        case("not safetensors", zip, HeaderTooLarge, &["at most 100000000", "is it a safetensors file"]),
        case("absurd length", vec![0xff; 64], HeaderTooLarge, &["18446744073709551615"]),
        case("length over the cap", 100_000_001u64.to_le_bytes().to_vec(), HeaderTooLarge, &["100000001"]),
        case("no header", file("", 0), BadHeader, &["starts with {", "empty header"]),
        case("not an object", file("[1]", 0), BadHeader, &["starts with {", "0x5b"]),
        case("blank first", file(" {}", 0), BadHeader, &["starts with {", "0x20"]),
    ]
}

fn text_cases() -> Vec<Case> {
    let bomb = format!("{{\"t\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    let deep = format!("{{\"t\":{{\"dtype\":{}{}}}}}", "[".repeat(5000), "]".repeat(5000));
    let long = format!("{{\"{}\":{{}}}}", "n".repeat(2000));
    let ranks = format!(r#""dtype":"U8","shape":[{}1],"data_offsets":[0,1]"#, "1,".repeat(MAX_RANK));
    let notes: Vec<String> = (0..5000).map(|i| format!("\"{i}\":\"\"")).collect();
    let notes = format!(r#"{{"__metadata__":{{{}}}}}"#, notes.join(","));
    use FileFault::BadHeader;
    vec![
        case("cut text", file(r#"{"t":{"dtype":"#, 0), BadHeader, &["tensor t", "EOF"]),
        case("text after it", file("{} x", 0), BadHeader, &["trailing characters"]),
        case("two objects", file("{}{}", 0), BadHeader, &["trailing characters"]),
        case("not UTF-8", [&2u64.to_le_bytes()[..], b"{\xff"].concat(), BadHeader, &["key must be a string"]),
        case("nesting bomb", file(&bomb, 0), BadHeader, &["tensor t", "expected an object with dtype"]),
        case("bomb in a field", file(&deep, 0), BadHeader, &["tensor t", "expected a string"]),
        case("long name", file(&long, 0), BadHeader, &["2000 bytes", "1024"]),
        case("no dtype", one(r#""shape":[1],"data_offsets":[0,1]"#, 1), BadHeader, &["tensor t", "dtype"]),
        case("no shape", one(r#""dtype":"U8","data_offsets":[0,1]"#, 1), BadHeader, &["tensor t", "shape"]),
        case("no offsets", one(r#""dtype":"U8","shape":[1]"#, 1), BadHeader, &["tensor t", "data_offsets"]),
        case(
            "unknown key",
            one(r#""dtyp":"U8","shape":[1]"#, 1),
            BadHeader,
            &["tensor t", "unknown key dtyp"],
        ),
        case("key twice", one(r#""dtype":"U8","dtype":"I8""#, 1), BadHeader, &["tensor t", "dtype twice"]),
        case("negative size", one(r#""dtype":"U8","shape":[-1]"#, 1), BadHeader, &["tensor t", "`-1`"]),
        case("fraction", one(r#""dtype":"U8","shape":[1.5]"#, 1), BadHeader, &["tensor t", "1.5"]),
        case("beyond u64", one(r#""dtype":"U8","shape":[1e30]"#, 1), BadHeader, &["tensor t", "1e+30"]),
        case(
            "one offset",
            one(r#""dtype":"U8","data_offsets":[1]"#, 1),
            BadHeader,
            &["tensor t", "length 1"],
        ),
        case("three offsets", one(r#""dtype":"U8","data_offsets":[0,1,2]"#, 1), BadHeader, &["tensor t"]),
        case("too many dimensions", one(&ranks, 1), BadHeader, &["tensor t", "more than 8 dimensions"]),
        case("metadata not text", file(r#"{"__metadata__":{"a":1}}"#, 0), BadHeader, &["expected a string"]),
        case("metadata twice", file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), BadHeader, &["twice"]),
        case("note twice", file(r#"{"__metadata__":{"a":"","a":""}}"#, 0), BadHeader, &["a twice"]),
        case("metadata flood", file(&notes, 0), BadHeader, &["more than 4096 entries"]),
    ]
}

fn meaning_cases() -> Vec<Case> {
    use FileFault::*;
    let f4 = one(r#""dtype":"F4","shape":[2],"data_offsets":[0,1]"#, 1);
    let lower = one(r#""dtype":"bf16","shape":[2],"data_offsets":[0,4]"#, 4);
    let reversed = one(r#""dtype":"U8","shape":[1],"data_offsets":[5,4]"#, 8);
    let huge =
        one(r#""dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]"#, 1);
    let shorter = one(r#""dtype":"F32","shape":[2,3],"data_offsets":[0,20]"#, 20);
    let scalar = one(r#""dtype":"I64","shape":[],"data_offsets":[0,4]"#, 4);
    let overflow = one(r#""dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]"#, 8);
    let wraps = one(r#""dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]"#, 0);
    let zero = one(r#""dtype":"F64","shape":[4294967296,4294967296,0],"data_offsets":[0,0]"#, 0);
    let far = one(r#""dtype":"U8","shape":[4],"data_offsets":[1000,1004]"#, 8);
    let entry = r#""t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    let same = file(&format!("{{{entry},{entry}}}"), 1);
    let again = vectors(&["model.x", "y", "model.x"]);
    vec![
        case("unknown dtype", f4, UnknownDtype, &["tensor t", "one of BOOL", "found F4"]),
        case("dtype in lower case", lower, UnknownDtype, &["tensor t", "BF16", "found bf16"]),
        case("reversed", reversed, OffsetOutOfRange, &["tensor t", "ascending", "5..4"]),
        case("beyond 63 bits", huge, OffsetOutOfRange, &["tensor t", "18446744073709551614"]),
        case("outside the file", far, OffsetOutOfRange, &["tensor t", "size of the file"]),
        case("too short", shorter, LengthMismatch, &["tensor t", "F32 [2, 3] in 24 bytes", "found 20"]),
        case("scalar", scalar, LengthMismatch, &["tensor t", "I64 [] in 8 bytes", "found 4"]),
        case("shape overflows", overflow, LengthMismatch, &["tensor t", "can be counted", "found 8"]),
        case("shape wraps to 0", wraps, LengthMismatch, &["tensor t", "can be counted", "found 0"]),
        case("overflow before a 0", zero, LengthMismatch, &["tensor t", "can be counted"]),
        case("overlap", two("0,4", "2,6", 6), Overlap, &["tensor b", "the end of a", "found bytes"]),
        case("same bytes", two("0,4", "0,4", 4), Overlap, &["tensor", "the end of"]),
        case("hole", two("0,4", "68,72", 72), Hole, &["tensor b", "within 64 of", "the end of a"]),
        case("hole in front", two("64,68", "68,72", 72), Hole, &["tensor a", "the end of the header"]),
        case("entry twice", same, DuplicateName, &["tensor t", "one entry", "two entries"]),
        case("name twice", again, DuplicateName, &["tensor model.x", "one entry", "two entries"]),
    ]
}

#[test]
fn every_fault_has_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    for c in length_cases().into_iter().chain(text_cases()).chain(meaning_cases()) {
        let error = parse_header(&c.bytes, c.bytes.len() as u64, Path::new("f/x.safetensors"));
        let error = error.expect_err(c.what);
        assert_eq!(error.fault(), Some(c.fault), "{}: {error}", c.what);
        let message = error.to_string();
        assert_words(&message, &["f/x.safetensors", "expected", "found"]);
        assert_words(&message, &c.words);
        // The same through a file.
        std::fs::write(&path, &c.bytes).unwrap();
        let error = Shard::open(&path).expect_err(c.what);
        assert_eq!(error.fault(), Some(c.fault), "{}: {error}", c.what);
    }
}

#[test]
fn a_flood_of_tensors_is_stopped() {
    let entry = r#""":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"#;
    let text = format!("{{{}{}}}", entry.repeat(MAX_TENSORS), entry.trim_end_matches(','));
    let error = parse_header(&file(&text, 1), 1 << 40, Path::new("x")).unwrap_err();
    assert_eq!(error.fault(), Some(FileFault::BadHeader));
    assert_words(&error.to_string(), &["more than 1048576 tensors"]);
}

#[test]
fn well_formed_files_are_read() {
    let header = r#"{"__metadata__":{"format":"pt"},
        "z":{"dtype":"F32","shape":[2,1,3],"data_offsets":[8,32]},
        "a":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"},
        "empty":{"dtype":"I8","shape":[0,9],"data_offsets":[2,2]}}   "#;
    let bytes = file(header, 32);
    let path = Path::new("x");
    let parsed = parse_header(&bytes, bytes.len() as u64, path).unwrap();
    let names: Vec<&str> = parsed.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "empty", "z"]);
    let z = &parsed.tensors[2];
    assert_eq!((z.dtype, z.rows(), z.columns(), z.elements()), (Dtype::F32, 2, 3, 6));
    assert_eq!(z.span, parsed.data_start + 8..parsed.data_start + 32);
    let a = &parsed.tensors[0];
    assert_eq!((a.rows(), a.columns(), a.elements()), (1, 1, 1));
    assert_eq!(parsed.metadata["format"], "pt");
    // A prefix that holds the header is enough; a shorter one is not.
    let prefix = &bytes[..parsed.data_start];
    assert_eq!(parse_header(prefix, bytes.len() as u64, path).unwrap(), parsed);
    let error = parse_header(&bytes[..60], bytes.len() as u64, path).unwrap_err();
    assert_eq!(error.fault(), Some(FileFault::Truncated));
    // A safetensors file without tensors is well-formed.
    let empty = file("{}", 0);
    assert!(parse_header(&empty, empty.len() as u64, path).unwrap().tensors.is_empty());
}

#[test]
fn only_regular_files_are_opened() {
    let folder = tempfile::tempdir().unwrap();
    assert_words(&Shard::open(folder.path()).unwrap_err().to_string(), &["a regular file", "a folder"]);
    assert_words(&Shard::open(Path::new("/dev/zero")).unwrap_err().to_string(), &["a regular file"]);
    let missing = folder.path().join("no.safetensors");
    assert_words(&Shard::open(&missing).unwrap_err().to_string(), &["can't open", "no.safetensors"]);
}
