//! Hand-made files, byte by byte: the crate's own writer could hide a fault of the reader.

use std::path::Path;

/// A file with this header text and this many bytes of data (0, 1, 2, … repeated).
pub fn file(header: &str, data_bytes: usize) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend((0..data_bytes).map(|i| i as u8));
    out
}

/// A file of BF16 vectors of two elements with these names.
pub fn vectors(names: &[&str]) -> Vec<u8> {
    let entry = |(i, name): (usize, &&str)| {
        format!(r#""{name}":{{"dtype":"BF16","shape":[2],"data_offsets":[{},{}]}}"#, 4 * i, 4 * i + 4)
    };
    let entries: Vec<String> = names.iter().enumerate().map(entry).collect();
    file(&format!("{{{}}}", entries.join(",")), 4 * names.len())
}

/// An index that places tensors in files.
pub fn index(places: &[(&str, &str)]) -> String {
    let entries: Vec<String> = places.iter().map(|(t, f)| format!(r#""{t}":"{f}""#)).collect();
    format!(r#"{{"metadata":{{"total_size":1}},"weight_map":{{{}}}}}"#, entries.join(","))
}

/// A model folder with a small configuration and these files.
pub fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", br#"{"model_type": "test", "eos_token_id": 7}"#);
    for (name, bytes) in files {
        write(folder.path(), name, bytes);
    }
    folder
}

/// Writes one file of a folder.
pub fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).unwrap();
}

/// Asserts that a message has all these words.
pub fn assert_words(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "no {word:?} in: {message}");
    }
}
