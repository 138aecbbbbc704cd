//! From a model's name to a running engine.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use arch::{Manifest, Model, Recipe};
use checkpoint::Checkpoint;
use engine::{Engine, Options};
use text::Tokenizer;
use weights::Cache;

use crate::output::{Progress, note};
use crate::{bundled, home};

/// The shapes that `name` means, without reading weights: a config.json, a folder with one, or a name in the
/// models folder; the bundled model without a name. Gives also what to call it.
pub fn shapes(name: Option<&str>) -> Result<(String, Model)> {
    let (path, called) = match name {
        None => (bundled::folder()?.join(CONFIG), bundled::MODEL.to_string()),
        Some(file) if Path::new(file).is_file() => (PathBuf::from(file), file.to_string()),
        Some(name) => (home::required_model(name)?.join(CONFIG), name.to_string()),
    };
    let model = arch::read_bare(&path)?;
    note_unread(&model);
    Ok((called, model))
}

const CONFIG: &str = "config.json";

fn note_unread(model: &Model) {
    if !model.unread_keys.is_empty() {
        note(&format!("config.json: nobody reads {}", model.unread_keys.join(", ")));
    }
}

/// A model folder that was read.
pub struct Opened {
    /// Where.
    pub folder: PathBuf,
    /// Its files.
    pub checkpoint: Checkpoint,
    /// What it is.
    pub model: Model,
    /// It is the one that is part of the program.
    pub bundled: bool,
}

impl Opened {
    /// The model that `name` means, or the bundled one.
    pub fn named(name: Option<&str>) -> Result<Opened> {
        match name {
            Some(name) => Opened::folder(&home::required_model(name)?, None),
            None => Opened::bundled(),
        }
    }

    /// The bundled model.
    pub fn bundled() -> Result<Opened> {
        Ok(Opened { bundled: true, ..Opened::folder(&bundled::folder()?, None)? })
    }

    /// A folder, perhaps with another configuration than its own.
    pub fn folder(folder: &Path, config: Option<&Path>) -> Result<Opened> {
        let checkpoint = Checkpoint::open_with_config(folder, config)?;
        let model = arch::read(&checkpoint)?;
        note_unread(&model);
        if let [first, ..] = &model.unused_tensors[..] {
            note(&format!("{} tensors are not used, the first is {first}", model.unused_tensors.len()));
        }
        Ok(Opened { folder: folder.to_path_buf(), checkpoint, model, bundled: false })
    }

    /// The tokenizer of its folder.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        if self.checkpoint.is_synthetic() {
            let (what, why) = ("text of a synthetic model", "it has no tokenizer");
            return Err(base::Refusal::unsupported(what, why, "use `krasis bench`").into());
        }
        Ok(Tokenizer::open(&self.folder)?)
    }

    /// The tokenizer, if the folder has one.
    pub fn optional_tokenizer(&self) -> Result<Option<Tokenizer>> {
        Ok(if self.folder.join("tokenizer.json").exists() { Some(self.tokenizer()?) } else { None })
    }

    /// Its name in files and reports: that of the folder.
    pub fn name(&self) -> String {
        if self.bundled {
            return bundled::MODEL.into();
        }
        let folder = self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone());
        folder.file_name().map_or("model".into(), |n| n.to_string_lossy().into_owned())
    }

    /// Opens the weight cache of `recipe`, or builds it, with progress on stderr. Gives also whether it was
    /// built.
    pub fn cache(&self, recipe: &Recipe, threads: usize, cancel: &AtomicBool) -> Result<(Cache, bool)> {
        let manifest = Manifest::new(&self.model, recipe);
        let key = weights::Key::of(&self.checkpoint, recipe);
        let path = weights::cache_path(&home::home()?, &self.name(), &key);
        let bar = RefCell::new(None);
        let progress = |p: weights::Progress| {
            let mut bar = bar.borrow_mut();
            let label = || format!("packing the weights of {}", self.name());
            bar.get_or_insert_with(|| Progress::new(label(), p.bytes_total)).set(p.bytes_done);
        };
        let options = weights::Options::with_threads(threads);
        let built = weights::ensure(&self.checkpoint, &manifest, recipe, &path, &options, &progress, cancel)?;
        if let Some(bar) = bar.into_inner() {
            bar.finish();
        }
        Ok(built)
    }

    /// A running engine.
    pub fn engine(&self, recipe: Recipe, options: Options, cancel: &AtomicBool) -> Result<Engine> {
        let (cache, _) = self.cache(&recipe, options.threads, cancel)?;
        // Once, in large reads, instead of page by page in the first tokens. What memory can't hold is left
        // to come and go.
        if base::os::available_memory_bytes().is_some_and(|free| cache.bytes() <= free) {
            cache.mapping().populate();
        }
        Ok(Engine::load(self.model.clone(), recipe, Box::new(cache), options)?)
    }
}
