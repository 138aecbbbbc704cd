//! Synthetic models without a checkpoint: a folder with a configuration, and a weight cache.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arch::{EntryKind, Manifest, Recipe};
use base::{Refusal, Result, WorldError};
use checkpoint::Checkpoint;
use serde::Serialize;
use weights::{Cache, Key, Options, Progress};
use zerocopy::FromBytes;

use super::fill::Filler;
use super::routing::Routing;
use super::{Partial, Shape, is_used, parent, write_json};

/// What was made.
#[derive(Debug, Clone, Serialize)]
pub struct Made {
    /// The model folder.
    pub folder: PathBuf,
    /// The weight cache.
    pub cache: PathBuf,
    /// Its formats.
    pub recipe: String,
    /// Bytes of the cache.
    pub bytes: u64,
    /// Parameters.
    pub parameters: u64,
    /// The cache was made now; false: it was there.
    pub written: bool,
    /// Worker threads.
    pub threads: usize,
    /// Seconds until all bytes were made, checked and handed to the system.
    pub fill_seconds: f64,
    /// Seconds until all of it was on the disk.
    pub seconds: f64,
    /// 10⁹ bytes a second and thread, without the wait for the disk.
    pub gb_s_per_thread: f64,
    /// What its routing is like, read from the cache.
    pub routing: Routing,
}

/// Makes a model of `shape` whose weights are random codes under `recipe`: a folder that holds its
/// configuration, and its weight cache under `home`. Bytes depend on shape, seed and recipe only. The folder
/// may be there if it holds this very configuration: then another recipe's cache is added to it.
/// Errors: the folder is another's; the disk is too small or fails; cancelled.
pub fn make(
    shape: &Shape,
    seed: u64,
    recipe: &Recipe,
    folder: &Path,
    home: &Path,
    threads: usize,
    progress: &dyn Fn(Progress),
    cancel: &AtomicBool,
) -> Result<Made> {
    let place = Place::of(folder, &shape.synthetic_config(seed))?;
    let checkpoint = Checkpoint::open(place.current())?;
    let model = arch::read(&checkpoint)?;
    arch::lower(&model, recipe)?; // refused before anything is written
    let (manifest, key) = (Manifest::new(&model, recipe), Key::of(&checkpoint, recipe));
    let name = folder.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let path = weights::cache_path(home, &name, &key);
    let filler = Filler { seed, sampler: shape.sampler() };
    let began = Instant::now();
    let filled = Cell::new(0.0);
    let watched = |p: Progress| {
        filled.set(began.elapsed().as_secs_f64());
        progress(p);
    };
    let options = Options::in_one_go(threads);
    let built = weights::build_from(&filler, key.clone(), &manifest, &path, &options, &watched, cancel);
    if let Err(error) = built {
        // Nothing of it can be used again; if it can't be removed either, the error before says more.
        let _ = weights::store::remove(&path);
        return Err(error);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cache = Cache::open(&path, &key)?;
    cache.fits(&manifest)?;
    place.keep(folder)?;
    let fill_seconds = filled.get();
    Ok(Made {
        folder: folder.to_path_buf(),
        cache: path,
        recipe: recipe.weight_key(),
        bytes: cache.bytes(),
        parameters: model.parameters(&manifest),
        written: fill_seconds > 0.0,
        threads,
        fill_seconds,
        seconds,
        gb_s_per_thread: match fill_seconds > 0.0 {
            true => cache.bytes() as f64 / 1e9 / fill_seconds / threads as f64,
            false => 0.0,
        },
        routing: shape.sampler().measure(&tables(&cache, &manifest)),
    })
}

/// The routing tables of a cache, layer by layer.
fn tables<'a>(cache: &'a Cache, manifest: &Manifest) -> Vec<&'a [u32]> {
    let tables = manifest.dense.iter().filter(|e| matches!(e.kind, EntryKind::Table { .. }));
    tables.map(|e| <[u32]>::ref_from_bytes(cache.dense(e.role)).expect("whole aligned pages")).collect()
}

/// Where the configuration is while the cache is made.
enum Place {
    /// In a folder that was there.
    There(PathBuf),
    /// In one that gets its name at the end.
    New(Partial),
}

impl Place {
    fn of(folder: &Path, config: &serde_json::Value) -> Result<Place> {
        let text = super::json_text(config);
        if is_used(folder) {
            let there = std::fs::read_to_string(folder.join("config.json")).is_ok_and(|t| t == text);
            if there {
                return Ok(Place::There(folder.to_path_buf()));
            }
            let limit = "a folder that does not exist yet, or the same model's";
            let hint = "name another or remove it";
            return Err(Refusal::value("out", folder.display(), limit, hint).into());
        }
        let beside = parent(folder);
        std::fs::create_dir_all(beside).map_err(|e| WorldError::io("create", beside, e))?;
        let partial = Partial::create(folder)?;
        write_json(&partial.path.join("config.json"), config)?;
        Ok(Place::New(partial))
    }

    fn current(&self) -> &Path {
        match self {
            Place::There(path) => path,
            Place::New(partial) => &partial.path,
        }
    }

    fn keep(self, folder: &Path) -> Result<()> {
        match self {
            Place::There(_) => Ok(()),
            Place::New(partial) => partial.rename(folder),
        }
    }
}
