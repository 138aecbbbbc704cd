//! Takes: the archives committed under `tests/data` and `assets`, and the folder named by `KRASIS_TEST_DATA`.
//! Gives: folders that tests read, and a record of the tests that were skipped.
//! Never: linked into the product; a dev-dependency only.

use std::collections::HashMap;
use std::fs;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Names the folder of large test data that is not part of the repository.
pub const DATA_VARIABLE: &str = "KRASIS_TEST_DATA";
/// Names the file that [`skip`] appends to.
pub const SKIP_VARIABLE: &str = "KRASIS_SKIP_LOG";

/// Every committed archive: its name and its path from the repository's root.
pub const ARCHIVES: [(&str, &str); 4] = [
    ("qwen3_moe", "tests/data/qwen3_moe.tar.zst"),
    ("qwen3_next", "tests/data/qwen3_next.tar.zst"),
    ("tiny-qwen3-next", "assets/tiny-qwen3-next.tar.zst"),
    ("tiny-qwen3-next-witness", "tests/data/tiny-qwen3-next-witness.tar.zst"),
];

/// The folder with the content of a committed archive (a name of [`ARCHIVES`]). Unpacked once per content,
/// and shared by all test processes: only ever read it.
///
/// `qwen3_moe` and `qwen3_next` hold `config.json`, `config.hub.json`, `model.safetensors` and
/// `expected.safetensors`; `tiny-qwen3-next` is a model folder; `tiny-qwen3-next-witness` holds what an
/// independent implementation makes of that model (`greedy.json`, `perplexity.json`, `logprobs.safetensors`).
pub fn fixture(name: &str) -> PathBuf {
    // One digest per process: an archive of 20 MB costs some 10 ms to hash.
    static UNPACKED: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut unpacked = UNPACKED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = unpacked.get_or_insert_default();
    if let Some(folder) = known.get(name) {
        return folder.clone();
    }
    let archive = archive(name);
    let folder = unpack_once(name, &archive, &repository().join("target/testdata"))
        .unwrap_or_else(|e| panic!("can't unpack {}: {e}", archive.display()));
    known.insert(name.to_string(), folder.clone());
    folder
}

/// A committed configuration without weights: `qwen3-30b-a3b` and `qwen3-coder-next` have the shapes of the
/// published models of these names, `dense` has no experts.
pub fn config(name: &str) -> PathBuf {
    let path = repository().join("tests/data/configs").join(format!("{name}.json"));
    assert!(path.is_file(), "no configuration {}", path.display());
    path
}

/// The committed archive itself.
pub fn archive(name: &str) -> PathBuf {
    let known = ARCHIVES.iter().find(|(n, _)| *n == name);
    let (_, path) = known.unwrap_or_else(|| panic!("no fixture {name}: there are {ARCHIVES:?}"));
    repository().join(path)
}

/// The folder of large test data, if the run was given one. A folder that is named but not there is an error,
/// not a reason to skip.
pub fn shared() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(DATA_VARIABLE)?);
    assert!(folder.is_dir(), "{DATA_VARIABLE} names {}, which is no folder", folder.display());
    Some(folder)
}

/// [`shared`], with the skip recorded if there is none:
/// `let Some(data) = testdata::shared_or_skip() else { return };`.
pub fn shared_or_skip() -> Option<PathBuf> {
    let folder = shared();
    if folder.is_none() {
        skip(&format!("{DATA_VARIABLE} is not set"));
    }
    folder
}

/// Records that the running test was skipped: prints a line, and appends it to the file named by
/// `KRASIS_SKIP_LOG`, so that a run can say at its end what it did not test.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "?".to_string());
    let line = skip_line(&format!("{package}::{}", thread.name().unwrap_or("?")), reason);
    print!("{line}");
    if let Some(log) = std::env::var_os(SKIP_VARIABLE) {
        append(Path::new(&log), &line).unwrap_or_else(|e| panic!("can't write {}: {e}", log.display()));
    }
}

fn skip_line(test: &str, reason: &str) -> String {
    format!("skipped: {test}: {}\n", reason.replace('\n', " "))
}

/// One write in append mode, so that lines of several processes don't mix.
fn append(log: &Path, line: &str) -> Result<()> {
    fs::OpenOptions::new().create(true).append(true).open(log)?.write_all(line.as_bytes())
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Unpacks `archive` to `cache/NAME-DIGEST` unless it is there. Several processes may race: each unpacks
/// beside and renames; the first one wins and the others drop theirs.
fn unpack_once(name: &str, archive: &Path, cache: &Path) -> Result<PathBuf> {
    static ATTEMPT: AtomicU32 = AtomicU32::new(0);
    let packed = fs::read(archive)?;
    let digest = blake3::hash(&packed).to_hex();
    let folder = cache.join(format!("{name}-{}", &digest[..16]));
    if folder.is_dir() {
        return Ok(folder);
    }
    let attempt = ATTEMPT.fetch_add(1, Ordering::Relaxed);
    let beside = cache.join(format!(".{name}-{}-{attempt}", std::process::id()));
    fs::create_dir_all(&beside)?;
    let moved = unpack(&packed, &beside).and_then(|()| fs::rename(&beside, &folder));
    match moved {
        Ok(()) => Ok(folder),
        Err(error) => {
            fs::remove_dir_all(&beside)?;
            if folder.is_dir() { Ok(folder) } else { Err(error) }
        }
    }
}

fn unpack(packed: &[u8], to: &Path) -> Result<()> {
    let mut entries = 0;
    let mut archive = tar::Archive::new(zstd::Decoder::new(packed)?);
    for entry in archive.entries()? {
        entries += 1;
        let mut entry = entry?;
        if !entry.unpack_in(to)? {
            return Err(Error::new(ErrorKind::InvalidData, "an entry leaves the folder"));
        }
    }
    if entries == 0 {
        return Err(Error::new(ErrorKind::InvalidData, "the archive is empty"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            // Set by hand: the builder would refuse a path with `..`, which a test needs.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        zstd::encode_all(&builder.into_inner().unwrap()[..], 3).unwrap()
    }

    fn scratch(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("krasis-testdata-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn every_archive_unpacks() {
        for (name, _) in ARCHIVES {
            let folder = fixture(name);
            assert_eq!(folder, fixture(name));
            let expected = if name.ends_with("-witness") { "greedy.json" } else { "config.json" };
            assert!(folder.join(expected).is_file(), "{name} lacks {expected}");
        }
        assert!(!fixture("tiny-qwen3-next").join("witness").exists());
    }

    #[test]
    fn racing_threads_agree_and_leave_nothing_behind() {
        let cache = scratch("race");
        let archive = cache.join("a.tar.zst");
        fs::write(&archive, packed(&[("big", &[7; 1 << 20]), ("small", b"x")])).unwrap();
        let folders: Vec<PathBuf> = std::thread::scope(|scope| {
            let start = || scope.spawn(|| unpack_once("a", &archive, &cache).unwrap());
            let threads: Vec<_> = (0..8).map(|_| start()).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(folders.iter().all(|f| f == &folders[0]));
        assert_eq!(fs::read(folders[0].join("big")).unwrap(), vec![7; 1 << 20]);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 2, "the archive and one folder");
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn another_content_is_another_folder() {
        let cache = scratch("content");
        let archive = cache.join("a.tar.zst");
        fs::write(&archive, packed(&[("f", b"one")])).unwrap();
        let one = unpack_once("a", &archive, &cache).unwrap();
        fs::write(&archive, packed(&[("f", b"two")])).unwrap();
        let two = unpack_once("a", &archive, &cache).unwrap();
        assert_eq!(fs::read(one.join("f")).unwrap(), b"one");
        assert_eq!(fs::read(two.join("f")).unwrap(), b"two");
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn damaged_and_hostile_archives_leave_no_folder() {
        let cache = scratch("damage");
        let archive = cache.join("a.tar.zst");
        let good = packed(&[("f", &[3; 4096])]);
        for bad in
            [b"no zstd".to_vec(), good[..good.len() / 2].to_vec(), packed(&[]), packed(&[("../f", b"")])]
        {
            fs::write(&archive, bad).unwrap();
            assert!(unpack_once("a", &archive, &cache).is_err());
            assert_eq!(fs::read_dir(&cache).unwrap().count(), 1, "only the archive");
        }
        fs::remove_dir_all(&cache).unwrap();
    }

    #[test]
    fn skips_are_one_line_each() {
        let log = scratch("skip").join("log");
        append(&log, &skip_line("a::b", "no\ndata")).unwrap();
        append(&log, &skip_line("c", "why")).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "skipped: a::b: no data\nskipped: c: why\n");
        fs::remove_dir_all(log.parent().unwrap()).unwrap();
    }
}
