//! Building a cache: in parallel, resumable, the same bytes on every run.
//!
//! Every unit (a piece of a dense section, an expert) has a fixed place in the file and depends on the
//! checkpoint alone, so that neither the number of threads nor an interruption can change a byte. The file
//! grows under the name `X.partial`; `X.journal` lists finished units whose bytes are on disk. Header and
//! name come last.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arch::{Manifest, Recipe};
use base::hash::Digest;
use base::{Bytes, Refusal, Result, WorldError};
use checkpoint::Checkpoint;

use crate::disk::{Disk, Files};
use crate::header::{CHECKSUMS, Content, Header, Key};
use crate::journal::{self, Record};
use crate::layout;
use crate::origin::Origin;
use crate::reader::Cache;
use crate::source::Reader;
use crate::store;
use crate::work::Work;

/// How to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Worker threads, at least 1. The result does not depend on it.
    pub threads: usize,
    /// The journal is written whenever so many bytes are new.
    pub(crate) batch_bytes: u64,
    /// And whenever so much time has passed: a kill costs at most this much work.
    pub(crate) batch_time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { threads: base::os::threads(), batch_bytes: 256 << 20, batch_time: Duration::from_secs(2) }
    }
}

impl Options {
    /// Default options with so many threads.
    pub fn with_threads(threads: usize) -> Self {
        Options { threads, ..Options::default() }
    }

    /// For content that is made faster than the disk takes it: nothing waits for the disk before the end, and
    /// an interrupted build starts anew.
    pub fn in_one_go(threads: usize) -> Self {
        Options { threads, batch_bytes: u64::MAX, batch_time: Duration::MAX }
    }
}

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Bytes of the checkpoint that are done, found again in a partial file included.
    pub bytes_done: u64,
    /// Bytes of the checkpoint that the cache is made from.
    pub bytes_total: u64,
    /// The section that was worked on last, or why nothing happens.
    pub section: &'a str,
}

/// Opens the cache at `path` if it is the one asked for, else builds it (resuming a partial one). Gives the
/// cache and whether it was built. Errors: those of [`build`]; a cache that can't be read for other reasons
/// than its content is not replaced.
pub fn ensure(
    checkpoint: &Checkpoint,
    manifest: &Manifest,
    recipe: &Recipe,
    path: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
    cancel: &AtomicBool,
) -> Result<(Cache, bool)> {
    let key = Key::of(checkpoint, recipe);
    if let Some(cache) = valid(path, &key, manifest)? {
        return Ok((cache, false));
    }
    build(checkpoint, manifest, recipe, path, options, progress, cancel)?;
    let cache = Cache::open(path, &key)?;
    cache.fits(manifest)?;
    Ok((cache, true))
}

/// The cache at `path` if it is there and the one asked for. Errors: it can't be read at all.
fn valid(path: &Path, key: &Key, manifest: &Manifest) -> Result<Option<Cache>> {
    let opened = Cache::open(path, key).and_then(|cache| {
        cache.fits(manifest)?;
        Ok(cache)
    });
    match opened {
        Ok(cache) => Ok(Some(cache)),
        Err(base::Error::World(WorldError::Io { source, .. })) if source.kind() == ErrorKind::NotFound => {
            Ok(None)
        }
        Err(e) if e.fault().is_some() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Builds the cache of `checkpoint` under `recipe` at `path`, unless it is there. Bytes do not depend on
/// threads or interruptions. Errors: a fault of the checkpoint (tensor, shape, number not finite), the disk
/// (too little space is found out first), [`Refusal::Cancelled`]; a synthetic model has nothing to build
/// from. After an error or a kill, the next build goes on where this one was.
pub fn build(
    checkpoint: &Checkpoint,
    manifest: &Manifest,
    recipe: &Recipe,
    path: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
    cancel: &AtomicBool,
) -> Result<()> {
    if checkpoint.is_synthetic() {
        return Err(without_cache(recipe, path).into());
    }
    let (reader, key) = (Reader::new(checkpoint, manifest)?, Key::of(checkpoint, recipe));
    build_from(&reader, key, manifest, path, options, progress, cancel)
}

/// The refusal to build a synthetic model's cache.
fn without_cache(recipe: &Recipe, path: &Path) -> Refusal {
    let what = format!("a synthetic model with the formats {}", recipe.weight_key());
    let cache = if path.exists() { "its cache can't be used:" } else { "there is no cache" };
    let why = format!("its weights are in no checkpoint, and {cache} {}", path.display());
    Refusal::unsupported(what, why, "`krasis synth` with the flags that made this model writes it")
}

/// [`build`] from whatever makes the content that `key` stands for.
pub fn build_from<O: Origin>(
    origin: &O,
    key: Key,
    manifest: &Manifest,
    path: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
    cancel: &AtomicBool,
) -> Result<()> {
    build_on(origin, key, manifest, path, options, progress, cancel, |files| files)
}

/// [`build_from`] on a disk made from the opened files; tests give one that fails.
pub(crate) fn build_on<O: Origin, D: Disk>(
    origin: &O,
    key: Key,
    manifest: &Manifest,
    path: &Path,
    options: &Options,
    progress: &dyn Fn(Progress),
    cancel: &AtomicBool,
    disk: impl FnOnce(Files) -> D,
) -> Result<()> {
    if options.threads == 0 {
        return Err(Refusal::value("threads", 0, "at least 1", "leave it out to use all processors").into());
    }
    let header = Header::place(key, layout::manifest_digest(manifest), layout::contents(manifest));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| WorldError::io("create", folder, e))?;
    }
    let waiting =
        || progress(Progress { bytes_done: 0, bytes_total: 0, section: "waiting for another build" });
    let _lock = store::lock(path, &waiting, cancel)?;
    if valid(path, &header.key, manifest)?.is_some() {
        return Ok(()); // another process built it while this one waited
    }
    let (files, claims) = open(path, &header)?;
    enough_space(&files, &header)?;
    let disk = disk(files);
    let mut done = Done::new(&header);
    let work = Work::new(origin, manifest, &header, &disk, claims, options, &mut done)?;
    work.run(&mut done, progress, cancel)?;
    finish(&disk, header, &done, path)
}

/// Opens partial file and journal; a journal of another build is void, and with it the file.
fn open(path: &Path, header: &Header) -> Result<(Files, Vec<Record>)> {
    let (partial_path, journal_path) = (store::partial(path), store::journal(path));
    let open = |path: &Path| {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        file.map_err(|e| WorldError::io("open", path, e))
    };
    let (partial, journal) = (open(&partial_path)?, open(&journal_path)?);
    let resize =
        |file: &File, path: &Path, size| file.set_len(size).map_err(|e| WorldError::io("resize", path, e));
    let title = journal::title(header);
    let (claims, sound) = match journal::read(&journal_path, &title) {
        Some(found) => found,
        None => {
            resize(&journal, &journal_path, 0)?;
            resize(&partial, &partial_path, 0)?;
            (Vec::new(), 0)
        }
    };
    resize(&journal, &journal_path, sound)?;
    resize(&partial, &partial_path, header.file_bytes)?;
    let files = Files { partial, partial_path, journal, journal_path };
    if sound == 0 {
        files.append(journal::line(&title).as_bytes())?;
    }
    Ok((files, claims))
}

/// Refuses to start what can't be finished. What the partial file already occupies is not needed again.
fn enough_space(files: &Files, header: &Header) -> Result<()> {
    let path = &files.partial_path;
    let facts = files.partial.metadata().map_err(|e| WorldError::io("read the size of", path, e))?;
    let needed = header.file_bytes.saturating_sub(facts.blocks() * 512);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match base::os::free_disk_bytes(folder) {
        Some(available) if available < needed => {
            let (needed, available) = (Bytes(needed), Bytes(available));
            let words = format!("{needed} needed, {available} available on this disk");
            Err(WorldError::io("write", path, std::io::Error::new(ErrorKind::StorageFull, words)).into())
        }
        _ => Ok(()),
    }
}

/// Checksums of what is finished.
#[derive(Debug)]
pub(crate) struct Done {
    /// Of dense sections.
    pub sections: Vec<Option<Digest>>,
    /// Of the experts of each section; empty for others.
    pub experts: Vec<Vec<Option<Digest>>>,
}

impl Done {
    fn new(header: &Header) -> Self {
        let count = |content: &Content| match content {
            Content::Experts { experts, .. } => *experts,
            _ => 0,
        };
        let experts = header.sections.iter().map(|s| vec![None; count(&s.content)]).collect();
        Done { sections: vec![None; header.sections.len()], experts }
    }

    /// Takes note of a finished unit.
    pub fn note(&mut self, record: &Record) {
        match record.expert {
            Some(expert) => self.experts[record.section][expert] = Some(record.digest),
            None => self.sections[record.section] = Some(record.digest),
        }
    }
}

/// Writes checksums and header, makes all of it durable, and gives the file its name.
fn finish(disk: &dyn Disk, mut header: Header, done: &Done, path: &Path) -> Result<()> {
    let mut checksums = Vec::new();
    for (i, section) in header.sections.iter_mut().enumerate() {
        match section.content {
            Content::Experts { .. } => {
                let digests = done.experts[i].iter().map(|d| d.expect("all experts are done"));
                let of_layer: Vec<u8> = digests.flat_map(|d| d.0).collect();
                section.digest = Digest::of(&of_layer);
                checksums.extend(of_layer);
            }
            Content::Checksums { .. } => {
                assert_eq!(section.name, CHECKSUMS);
                section.digest = Digest::of(&checksums);
                disk.write_at(&checksums, section.offset)?;
            }
            _ => section.digest = done.sections[i].expect("all sections are done"),
        }
    }
    disk.write_at(&header.encode(), 0)?;
    disk.sync()?;
    let partial = store::partial(path);
    std::fs::rename(&partial, path).map_err(|e| WorldError::io("rename", &partial, e))?;
    store::sync_folder(path)?;
    let journal = store::journal(path);
    std::fs::remove_file(&journal).map_err(|e| WorldError::io("remove", &journal, e))?;
    Ok(())
}
