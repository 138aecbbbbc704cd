//! A weight cache. Input: one byte, then either the size of a file and its beginning as they are, or what a
//! header is made of, to which the checksum is added: version of the arithmetic, bytes of data, section
//! table.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use base::hash::Digest;
use libfuzzer_sys::fuzz_target;
use weights::Cache;
use weights::header::{FORMAT_VERSION, Header, MAGIC, PAGE, PRELUDE_BYTES};
use weights::reader::parse_header;

/// Files up to this size are also opened and verified.
const SMALL: u64 = 1 << 18;

fn file() -> &'static PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        base.join(format!("krasis-fuzz-{}.kw", std::process::id()))
    })
}

/// A header that is signed as a builder would.
fn signed(input: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (arithmetic, rest) = input.split_first_chunk::<4>()?;
    let (data_bytes, table) = rest.split_first_chunk::<8>()?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT_VERSION.to_le_bytes());
    bytes.extend(arithmetic);
    bytes.extend((table.len() as u64).to_le_bytes());
    bytes.extend(data_bytes);
    bytes.resize(PRELUDE_BYTES, 0);
    bytes.extend(table);
    bytes.extend(Digest::of(&bytes).0);
    bytes.resize(bytes.len().next_multiple_of(PAGE as usize), 0);
    let file_bytes = u64::from_le_bytes(*data_bytes).checked_add(bytes.len() as u64)?;
    Some((bytes, file_bytes))
}

fn as_it_is(input: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (size, bytes) = input.split_first_chunk::<8>()?;
    let size = u64::from_le_bytes(*size);
    // A file has at least the bytes that were read from it.
    (size >= bytes.len() as u64).then(|| (bytes.to_vec(), size))
}

fn check(header: &Header, file_bytes: u64) {
    assert_eq!(header.file_bytes, file_bytes);
    let mut end = header.data_start;
    for section in &header.sections {
        assert!(section.offset.is_multiple_of(PAGE) && section.offset >= end);
        assert_eq!(section.content.bytes(), Some(section.bytes));
        end = section.offset + section.bytes;
    }
    assert!(end <= file_bytes);
}

/// The whole file, its sections zero.
fn open(mut bytes: Vec<u8>, file_bytes: u64) {
    bytes.resize(file_bytes as usize, 0);
    std::fs::write(file(), bytes).expect("memory for a small file");
    let cache = Cache::open_any(file());
    let _ = std::fs::remove_file(file());
    let cache = cache.expect("its header was accepted");
    let _ = cache.describe();
    let _ = cache.verify(&|_, _| ());
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else { return };
    let made = if kind & 1 == 0 { as_it_is(rest) } else { signed(rest) };
    let Some((bytes, file_bytes)) = made else { return };
    let Ok(header) = parse_header(&bytes, file_bytes, Path::new("fuzzed.kw")) else { return };
    check(&header, file_bytes);
    if file_bytes <= SMALL {
        open(bytes, file_bytes);
    }
});
