//! Where caches lie, which there are, and who may write one.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::{Refusal, Result, WorldError};

use crate::header::Key;
use crate::reader::{Cache, Description};

/// Ending of a finished cache.
const ENDING: &str = "kw";

/// The file of a model's cache under `home` (KRASIS_HOME): `cache/NAME-KEY.kw`, where KEY is 16 hex digits of
/// the key's digest. Characters of the name that a file name should not have become `_`.
pub fn cache_path(home: &Path, model_name: &str, key: &Key) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    let name: String = model_name.trim_start_matches('.').chars().map(plain).take(120).collect();
    let name = if name.is_empty() { "model" } else { &name };
    home.join("cache").join(format!("{name}-{}.{ENDING}", key.digest().short()))
}

/// A cache file or what is left of a build.
#[derive(Debug)]
pub struct Listed {
    /// The finished file's path, also if only a partial one is there.
    pub path: PathBuf,
    /// What it is; None for a partial one; the error if its header is not sound.
    pub state: Result<Option<Description>>,
    /// Bytes on disk of all files that belong to it.
    pub disk_bytes: u64,
}

/// All caches under `home`, by name, unfinished ones included. A folder that is not there holds none.
pub fn list(home: &Path) -> Result<Vec<Listed>> {
    let folder = home.join("cache");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(WorldError::io("list", &folder, e).into()),
    };
    let mut paths = std::collections::BTreeSet::new();
    for entry in entries {
        let path = entry.map_err(|e| WorldError::io("list", &folder, e))?.path();
        let is = |path: &Path, ending: &str| path.extension().is_some_and(|e| e == ending);
        if is(&path, ENDING) {
            paths.insert(path);
        } else if is(&path, "partial") && is(&path.with_extension(""), ENDING) {
            paths.insert(path.with_extension(""));
        }
    }
    let listed = |path: PathBuf| {
        let state = if path.exists() { Cache::open_any(&path).map(|c| Some(c.describe())) } else { Ok(None) };
        let disk_bytes = files(&path).iter().map(|p| disk_bytes(p)).sum();
        Listed { path, state, disk_bytes }
    };
    Ok(paths.into_iter().map(listed).collect())
}

/// Removes a cache and whatever a build left. Gives the bytes freed. Refused while a build of it runs.
pub fn remove(path: &Path) -> Result<u64> {
    let lock_path = beside(path, "lock");
    if let Some(file) = open_lock(&lock_path)? {
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                let (what, hint) = (path.display().to_string(), "stop the build first");
                return Err(Refusal::value("cache", what, "a cache that is not being built", hint).into());
            }
            Err(TryLockError::Error(e)) => return Err(WorldError::io("lock", &lock_path, e).into()),
        }
    }
    let mut freed = 0;
    for file in files(path) {
        let bytes = disk_bytes(&file);
        match std::fs::remove_file(&file) {
            Ok(()) => freed += bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (),
            Err(e) => return Err(WorldError::io("remove", &file, e).into()),
        }
    }
    Ok(freed)
}

fn disk_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map_or(0, |m| m.blocks() * 512)
}

fn files(path: &Path) -> [PathBuf; 4] {
    [path.to_path_buf(), partial(path), journal(path), beside(path, "lock")]
}

/// The file while it is being built.
pub(crate) fn partial(path: &Path) -> PathBuf {
    beside(path, "partial")
}

/// The journal of a build.
pub(crate) fn journal(path: &Path) -> PathBuf {
    beside(path, "journal")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

/// The lock file, if its folder is there.
fn open_lock(path: &Path) -> Result<Option<File>> {
    match File::options().read(true).write(true).create(true).truncate(false).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(WorldError::io("open", path, e).into()),
    }
}

/// Takes the right to build the cache at `path`, and waits while another process has it. `waiting` is called
/// now and then. The lock ends with the process, however it ends. Errors: [`Refusal::Cancelled`], no lock to
/// be had.
pub(crate) fn lock(path: &Path, waiting: &dyn Fn(), cancel: &AtomicBool) -> Result<File> {
    let lock_path = beside(path, "lock");
    loop {
        let missing = || WorldError::io("open", &lock_path, std::io::ErrorKind::NotFound.into());
        let file = open_lock(&lock_path)?.ok_or_else(missing)?;
        match file.try_lock() {
            // `remove` may have taken the file away between opening and locking: then it locks nothing.
            Ok(()) if is_same(&file, &lock_path) => return Ok(file),
            Ok(()) => continue,
            Err(TryLockError::WouldBlock) => (),
            Err(TryLockError::Error(e)) => return Err(WorldError::io("lock", &lock_path, e).into()),
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(Refusal::Cancelled.into());
        }
        waiting();
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Makes the names in the folder of `path` durable.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|f| f.sync_all());
    synced.map_err(|e| WorldError::io("write", folder, e).into())
}
