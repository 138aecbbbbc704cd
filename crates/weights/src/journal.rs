//! The journal of a build: which units of the partial file are finished, and their checksums.
//!
//! Append-only text. Each line is the first 16 hex digits of the BLAKE3 of its payload, a space, the payload.
//! The first payload names the build (key, manifest, size); a journal of another build is void. Lines after
//! the first one that does not match its checksum are void, too: a crash may have torn it.

use std::path::Path;

use base::hash::Digest;

use crate::header::{Header, digest_from_hex};

/// Most bytes of a journal that are read. A line is at most 110 bytes, and a model has at most 2^17 experts.
const MAX_BYTES: u64 = 32 << 20;

/// A finished unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    /// Index of the section.
    pub section: usize,
    /// Which expert of it, or the whole section.
    pub expert: Option<usize>,
    /// BLAKE3 of the unit's bytes.
    pub digest: Digest,
}

/// First payload of a build's journal.
pub(crate) fn title(header: &Header) -> String {
    format!("build 1 {} {} {}", header.key.digest(), header.manifest, header.file_bytes)
}

/// A payload as a line.
pub(crate) fn line(payload: &str) -> String {
    format!("{} {payload}\n", Digest::of(payload.as_bytes()).short())
}

impl Record {
    pub(crate) fn line(&self) -> String {
        match self.expert {
            Some(expert) => line(&format!("expert {} {expert} {}", self.section, self.digest)),
            None => line(&format!("section {} {}", self.section, self.digest)),
        }
    }

    fn parse(payload: &str) -> Option<Record> {
        let mut words = payload.split(' ');
        let kind = words.next()?;
        let section = words.next()?.parse().ok()?;
        let expert = match kind {
            "expert" => Some(words.next()?.parse().ok()?),
            "section" => None,
            _ => return None,
        };
        let digest = digest_from_hex(words.next()?)?;
        words.next().is_none().then_some(Record { section, expert, digest })
    }
}

/// What a journal claims for the build `title`, and how many of its bytes are sound. None if there is no
/// journal of this build.
pub(crate) fn read(path: &Path, title: &str) -> Option<(Vec<Record>, u64)> {
    let size = std::fs::metadata(path).ok()?.len();
    if size > MAX_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let mut lines = bytes.split_inclusive(|b| *b == b'\n');
    let first = lines.next()?;
    if payload(first)? != title {
        return None;
    }
    let mut sound = first.len();
    let mut records = Vec::new();
    for line in lines {
        let Some(record) = payload(line).and_then(Record::parse) else { break };
        sound += line.len();
        records.push(record);
    }
    Some((records, sound as u64))
}

/// The payload of a whole line whose checksum is right.
fn payload(line: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (sum, payload) = text.split_once(' ')?;
    (sum == Digest::of(payload.as_bytes()).short()).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_lines_count_and_torn_ones_do_not() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let records = [
            Record { section: 3, expert: None, digest: Digest::of(b"a") },
            Record { section: 70, expert: Some(511), digest: Digest::of(b"b") },
        ];
        let title = "build 1 x y 7";
        let text = line(title) + &records[0].line() + &records[1].line();
        let whole = text.len() - records[1].line().len();
        std::fs::write(&path, &text).unwrap();
        assert_eq!(read(&path, title), Some((records.to_vec(), text.len() as u64)));
        assert_eq!(read(&path, "build 1 x z 7"), None);
        for cut in 1..records[1].line().len() {
            std::fs::write(&path, &text[..text.len() - cut]).unwrap();
            assert_eq!(read(&path, title), Some((vec![records[0]], whole as u64)), "cut by {cut}");
        }
        for at in whole..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let (found, sound) = read(&path, title).unwrap();
            assert_eq!((found, sound), (vec![records[0]], whole as u64), "byte {at}");
        }
        std::fs::write(&path, &text[..20]).unwrap();
        assert_eq!(read(&path, title), None);
    }
}
