//! JSON files of untrusted folders: read with a size cap, parsed without the silent loss of repeated keys.

use std::fmt;
use std::io::Read;
use std::path::Path;

use base::{FileFault, Result, WorldError};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// First bytes of a file that git-LFS left in place of the data.
pub(crate) const LFS_PREFIX: &[u8] = b"version https://git-lfs.github.com/spec/v1";
/// What to do about one.
pub(crate) const LFS_HINT: &str = "fetch the data with `git lfs pull`, or download the file itself";

/// Reads a regular file of at most `cap` bytes.
pub fn read_capped(path: &Path, cap: usize) -> Result<Vec<u8>> {
    let bytes = regular_file_bytes(path, FileFault::BadText)?;
    if bytes > cap as u64 {
        return Err(too_large(path, cap, bytes).into());
    }
    let file = std::fs::File::open(path).map_err(|e| WorldError::io("open", path, e))?;
    let mut out = Vec::new();
    // The file may grow between the two calls.
    file.take(cap as u64 + 1).read_to_end(&mut out).map_err(|e| WorldError::io("read", path, e))?;
    if out.len() > cap {
        return Err(too_large(path, cap, out.len() as u64).into());
    }
    if out.starts_with(LFS_PREFIX) {
        return Err(WorldError::damaged(path, FileFault::LfsPointer, "JSON", "a git-LFS pointer")
            .hint(LFS_HINT)
            .into());
    }
    Ok(out)
}

fn too_large(path: &Path, cap: usize, bytes: u64) -> WorldError {
    WorldError::damaged(path, FileFault::BadText, format!("at most {cap} bytes"), format!("{bytes} bytes"))
}

/// Size of a regular file; opening anything else (a pipe, a folder) could hang or mislead.
pub(crate) fn regular_file_bytes(path: &Path, fault: FileFault) -> Result<u64> {
    let facts = std::fs::metadata(path).map_err(|e| WorldError::io("open", path, e))?;
    if !facts.is_file() {
        let found = if facts.is_dir() { "a folder" } else { "a device, pipe or socket" };
        return Err(WorldError::damaged(path, fault, "a regular file", found).into());
    }
    Ok(facts.len())
}

/// Parses a JSON object. Repeated keys, a value that is no object, nesting deeper than 127 levels and text
/// after the end are errors that name line and column.
pub fn parse_object(bytes: &[u8], path: &Path) -> Result<Map<String, Value>> {
    let found = match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(Value::Object(map))) => return Ok(map),
        Ok(Strict(other)) => kind(&other).to_string(),
        Err(e) => e.to_string(),
    };
    Err(WorldError::damaged(path, FileFault::BadText, "a JSON object", found).into())
}

/// Reads and parses a JSON object of at most `cap` bytes.
pub fn read_object(path: &Path, cap: usize) -> Result<Map<String, Value>> {
    parse_object(&read_capped(path, cap)?, path)
}

/// What a value is, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value for a message: as JSON, cut after 80 characters. Large containers are named, not printed.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(list) if list.len() > 16 => format!("a list of {} entries", list.len()),
        Value::Object(map) if map.len() > 4 => format!("an object of {} keys", map.len()),
        _ => cut(&value.to_string()),
    }
}

/// Text for a message, cut after 80 characters.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// A value whose objects have no repeated keys. The parser itself would keep the last and drop the others.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_string<E: de::Error>(self, v: String) -> Result<Value, E> {
        Ok(Value::from(v))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {} twice", cut(&key))));
            }
            let Strict(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_and_bombs_are_refused() {
        let path = Path::new("x/config.json");
        let parse = |text: &str| parse_object(text.as_bytes(), path);
        assert_eq!(parse(r#"{"a": [1, -2, 0.5, null, true, "s"]}"#).unwrap()["a"][1], -2);
        let bomb = format!("{{\"a\": {}{}}}", "[".repeat(5000), "]".repeat(5000));
        for (text, words) in [
            (r#"{"a": 1, "a": 2}"#, "the key a twice"),
            (r#"{"b": {"a": 1, "a": 1}}"#, "the key a twice"),
            ("[1]", "a list"),
            ("{", "EOF"),
            (r#"{"a": 1} x"#, "trailing characters"),
            (r#"{"a": NaN}"#, "line 1"),
            (r#"{"a": 1e999}"#, "number out of range"),
            (bomb.as_str(), "recursion limit"),
            ("{\"a\": \"\u{1}\"}", "control character"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.fault(), Some(FileFault::BadText), "{}", cut(text));
            let message = error.to_string();
            assert!(message.contains("x/config.json") && message.contains(words), "{message}");
        }
        assert_eq!(parse_object(b"{\"a\": \"\xff\"}", path).unwrap_err().fault(), Some(FileFault::BadText));
    }

    #[test]
    fn only_regular_files_under_the_cap_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, [b' '; 100]).unwrap();
        assert_eq!(read_capped(&path, 100).unwrap().len(), 100);
        assert!(
            read_capped(&path, 99).unwrap_err().to_string().contains("at most 99 bytes, found 100 bytes")
        );
        assert!(read_capped(folder.path(), 99).unwrap_err().to_string().contains("a folder"));
        assert!(read_capped(Path::new("/dev/zero"), 99).unwrap_err().to_string().contains("regular file"));
        std::fs::write(&path, [LFS_PREFIX, b"\noid sha256:00\nsize 1\n"].concat()).unwrap();
        assert_eq!(read_capped(&path, 1000).unwrap_err().fault(), Some(FileFault::LfsPointer));
    }
}
