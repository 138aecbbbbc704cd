//! Reading the tokenizer files of a model folder: untrusted, so sizes are capped and every fault is named.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use base::{FileFault, Result, WorldError};
use serde_json::{Map, Value};

/// Largest tokenizer.json (the largest known is 35 MB).
pub const MAX_TOKENIZER_BYTES: u64 = 96 << 20;
/// Largest tokenizer_config.json and generation_config.json (the largest known is 1.2 MB).
pub const MAX_CONFIG_BYTES: u64 = 8 << 20;
/// Largest chat template (the largest known is 20 kB).
pub const MAX_TEMPLATE_BYTES: u64 = 1 << 20;

/// Reads a whole file of at most `limit` bytes; `None` if it is not there.
pub fn read_capped(path: &Path, limit: u64) -> Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
        Err(fault) => return Err(WorldError::io("open", path, fault).into()),
    };
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|fault| WorldError::io("read", path, fault))?;
    if bytes.len() as u64 > limit {
        let (expected, found) = (format!("at most {limit} bytes"), "more");
        return Err(WorldError::damaged(path, FileFault::HeaderTooLarge, expected, found).into());
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(WorldError::damaged(path, FileFault::LfsPointer, "the file", "a pointer to it").into());
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(fault) => {
            let at = fault.utf8_error().valid_up_to();
            Err(WorldError::damaged(path, FileFault::BadText, "UTF-8", format!("a bad byte at {at}")).into())
        }
    }
}

/// Reads a JSON object; `None` if the file is not there.
pub fn read_object(path: &Path, limit: u64) -> Result<Option<Map<String, Value>>> {
    let Some(text) = read_capped(path, limit)? else { return Ok(None) };
    let object = serde_json::from_str(&text);
    object
        .map(Some)
        .map_err(|fault| WorldError::damaged(path, FileFault::BadText, "a JSON object", fault).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        assert!(read_object(&path, 10).unwrap().is_none());
        for (content, fault) in [
            (&b"{\"a\": 1234567}"[..], FileFault::HeaderTooLarge),
            (b"{\"a\":\xFF}", FileFault::BadText),
            (b"[1]", FileFault::BadText),
            (b"{\"a\": 1", FileFault::BadText),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(read_object(&path, 10).unwrap_err().fault(), Some(fault));
        }
        std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\n").unwrap();
        assert_eq!(read_capped(&path, 100).unwrap_err().fault(), Some(FileFault::LfsPointer));
        assert!(read_capped(folder.path(), 100).is_err(), "a folder is no file");
    }
}
