//! A model folder: config.json and one or many shards, joined into one namespace of tensors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::hash::Digest;
use base::{FileFault, Refusal, Result, WorldError};
use serde_json::Value;

use crate::index::{INDEX, Index};
use crate::json::{cut, parse_object, read_capped, read_object};
use crate::safetensors::{Shard, TensorInfo};
use crate::{Config, MAX_CONFIG_BYTES, MAX_SHARDS, MAX_TENSORS, SYNTHETIC};

const NEEDS: &str = "a model folder needs config.json and model.safetensors, or shards with their index";

/// A checked model folder. Its files are mapped and must not be rewritten in place while it lives.
#[derive(Debug)]
pub struct Checkpoint {
    folder: PathBuf,
    config: Config,
    config_digest: Digest,
    generation_config: Option<Value>,
    /// In order of file name.
    shards: Vec<Shard>,
    /// In name order: index of the shard, index of the tensor in it.
    names: Vec<(u32, u32)>,
}

impl Checkpoint {
    /// Opens a folder with its own config.json.
    pub fn open(folder: &Path) -> Result<Checkpoint> {
        Checkpoint::open_with_config(folder, None)
    }

    /// Opens a folder with another configuration file than its config.json, if one is given.
    /// Errors: a missing file, or any [`FileFault`] of configuration, index and shards.
    pub fn open_with_config(folder: &Path, config: Option<&Path>) -> Result<Checkpoint> {
        if !folder.is_dir() {
            return Err(not_found("model folder", folder.display().to_string()));
        }
        let config_path = config.map_or_else(|| folder.join("config.json"), Path::to_path_buf);
        if !is_listed(&config_path) {
            return Err(match config {
                Some(path) => not_found("configuration", path.display().to_string()),
                None => not_found("config.json", format!("no such file in {}", folder.display())),
            });
        }
        let config_bytes = read_capped(&config_path, MAX_CONFIG_BYTES)?;
        let config = Config::new(&config_path, parse_object(&config_bytes, &config_path)?);
        let generation_path = folder.join("generation_config.json");
        let generation_config = match is_listed(&generation_path) {
            true => Some(Value::Object(read_object(&generation_path, MAX_CONFIG_BYTES)?)),
            false => None,
        };
        let (shards, names) = match config.has(SYNTHETIC) {
            true => (without_shards(&config_path, folder)?, Vec::new()),
            false => {
                let shards = open_shards(folder)?;
                let names = join(&shards, folder)?;
                (shards, names)
            }
        };
        Ok(Checkpoint {
            folder: folder.to_path_buf(),
            config,
            config_digest: Digest::of(&config_bytes),
            generation_config,
            shards,
            names,
        })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// It is a synthetic model: a configuration without tensors, whose weights only a cache has.
    pub fn is_synthetic(&self) -> bool {
        self.config.has(SYNTHETIC)
    }

    /// generation_config.json, an object, if there is one.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// All tensors in name order.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.names.iter().map(|&at| self.at(at).1)
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.find(name).map(|(_, tensor)| tensor)
    }

    /// The file that holds the tensor of that name.
    pub fn file_of(&self, name: &str) -> Option<&Path> {
        self.find(name).map(|(shard, _)| shard.path())
    }

    /// Sum of the bytes of all tensors.
    pub fn total_bytes(&self) -> u64 {
        self.tensors().map(|t| t.bytes() as u64).sum()
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    pub(crate) fn config_digest(&self) -> Digest {
        self.config_digest
    }

    pub(crate) fn find(&self, name: &str) -> Option<(&Shard, &TensorInfo)> {
        let found = self.names.binary_search_by(|&at| self.at(at).1.name.as_str().cmp(name)).ok()?;
        Some(self.at(self.names[found]))
    }

    fn at(&self, (shard, tensor): (u32, u32)) -> (&Shard, &TensorInfo) {
        let shard = &self.shards[shard as usize];
        (shard, &shard.tensors()[tensor as usize])
    }
}

/// Ids that end a text: those of config.json (or its text_config) and generation_config.json, ascending.
pub fn eos_ids(checkpoint: &Checkpoint) -> Result<Vec<u32>> {
    let config = checkpoint.config();
    let mut ids: BTreeSet<u32> = config.ids("eos_token_id")?.into_iter().collect();
    if let Some(text) = config.section("text_config")? {
        ids.extend(text.ids("eos_token_id")?);
    }
    if let Some(generation) = checkpoint.generation_config() {
        let path = checkpoint.folder().join("generation_config.json");
        ids.extend(Config::from_value(&path, generation.clone())?.ids("eos_token_id")?);
    }
    Ok(ids.into_iter().collect())
}

/// Whether the folder has such an entry. A link whose target is gone (an emptied download cache) is one:
/// opening it then fails, where taking it for absent would silently change the model.
fn is_listed(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn not_found(what: &str, value: String) -> base::Error {
    Refusal::NotFound { what: what.into(), value, hint: NEEDS.into() }.into()
}

/// Opens the shards that the index names, or the only file if there is no index.
fn open_shards(folder: &Path) -> Result<Vec<Shard>> {
    let present = model_files(folder)?;
    let index_path = folder.join(INDEX);
    if !is_listed(&index_path) {
        let only = single_file(folder, &present)?;
        return Ok(vec![Shard::open(&folder.join(only))?]);
    }
    let index = Index::open(&index_path)?;
    let named = index.files();
    for name in &named {
        let path = folder.join(name);
        if !path.exists() {
            let expected = format!("the shard that {INDEX} names");
            return Err(WorldError::damaged(&path, FileFault::MissingShard, expected, "no such file")
                .hint("the download is incomplete: resume it")
                .into());
        }
    }
    if let Some(stale) = present.iter().find(|name| !named.contains(name.as_str())) {
        let expected = format!("only the {} shards of {INDEX}", named.len());
        return Err(WorldError::damaged(&folder.join(stale), FileFault::StaleShard, expected, stale)
            .hint("it is left over from another version of the model: remove it, or fetch the index again")
            .into());
    }
    let shards = named.iter().map(|name| Shard::open(&folder.join(name))).collect::<Result<Vec<_>>>()?;
    index.check(&shards)?;
    Ok(shards)
}

/// No shards, as a synthetic model has none. Error: there are some.
fn without_shards(config: &Path, folder: &Path) -> Result<Vec<Shard>> {
    let index = is_listed(&folder.join(INDEX)).then(|| INDEX.to_string());
    match model_files(folder)?.into_iter().next().or(index) {
        Some(file) => Err(synthetic_with_tensors(config, &file)),
        None => Ok(Vec::new()),
    }
}

/// The refusal of a synthetic model's configuration beside real tensors; `found` names one or its file.
pub fn synthetic_with_tensors(config: &Path, found: &str) -> base::Error {
    let why = format!("it marks a synthetic model, which has no tensors, and here is {found}");
    let hint = "remove the key if the tensors are the model";
    Refusal::unsupported(format!("{SYNTHETIC} in {}", config.display()), why, hint).into()
}

/// Names of the files `model*.safetensors`, in order. Others (`consolidated*`, `adapter*`, expected values)
/// are no part of the model.
fn model_files(folder: &Path) -> Result<Vec<String>> {
    let failed = |e| WorldError::io("list", folder, e);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            names.push(name);
        }
        if names.len() > MAX_SHARDS {
            return Err(WorldError::damaged(
                folder,
                FileFault::ShardsWithoutIndex,
                format!("at most {MAX_SHARDS} shards"),
                "more",
            )
            .into());
        }
    }
    names.sort();
    Ok(names)
}

/// The only file of a folder without an index.
fn single_file<'a>(folder: &Path, present: &'a [String]) -> Result<&'a str> {
    match present {
        [] => Err(not_found("model.safetensors", format!("no such file in {}", folder.display()))),
        // "model-00001-of-00003.safetensors" alone is no model either.
        [only] if declared_shards(only).is_none_or(|n| n == 1) => Ok(only),
        several => {
            let found = match several {
                [only] => only.clone(),
                [first, .., last] => format!("{} shards, {first} to {last}", several.len()),
                [] => unreachable!("matched above"),
            };
            Err(WorldError::damaged(folder, FileFault::ShardsWithoutIndex, INDEX, found)
                .hint("fetch the index from where the shards came from")
                .into())
        }
    }
}

/// The number of shards in a name like `model-00001-of-00003.safetensors`.
fn declared_shards(file: &str) -> Option<u32> {
    file.strip_suffix(".safetensors")?.rsplit_once("-of-")?.1.parse().ok()
}

/// Joins the shards' tables. Errors: a tensor in two shards, none at all, too many.
fn join(shards: &[Shard], folder: &Path) -> Result<Vec<(u32, u32)>> {
    let count: usize = shards.iter().map(|s| s.tensors().len()).sum();
    if count == 0 {
        return Err(WorldError::damaged(folder, FileFault::NoTensors, "at least one tensor", "none").into());
    }
    if count > MAX_TENSORS {
        let expected = format!("at most {MAX_TENSORS} tensors");
        return Err(WorldError::damaged(folder, FileFault::BadHeader, expected, count).into());
    }
    let at = |&(s, t): &(u32, u32)| &shards[s as usize].tensors()[t as usize];
    let mut names: Vec<(u32, u32)> = Vec::with_capacity(count);
    for (s, shard) in shards.iter().enumerate() {
        names.extend((0..shard.tensors().len()).map(|t| (s as u32, t as u32)));
    }
    names.sort_by(|a, b| at(a).name.cmp(&at(b).name));
    if let Some(pair) = names.windows(2).find(|w| at(&w[0]).name == at(&w[1]).name) {
        let file = |(shard, _): (u32, u32)| file_name(&shards[shard as usize]);
        let expected = format!("it only in {}", file(pair[0]));
        let found = format!("it also in {}", file(pair[1]));
        let path = shards[pair[1].0 as usize].path();
        return Err(WorldError::damaged(path, FileFault::DuplicateName, expected, found)
            .tensor(cut(&at(&pair[0]).name))
            .into());
    }
    Ok(names)
}

pub(crate) fn file_name(shard: &Shard) -> String {
    shard.path().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
