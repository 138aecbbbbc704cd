//! Random models of a real shape, as weight caches or as BF16 folders in the form published on Hugging Face.
//! For benchmarks: the numbers mean nothing, their amount is real, and so is the routing of those with a
//! cache.

mod cached;
mod fill;
mod named;
mod random;
mod routing;
mod shape;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base::{Bytes, Refusal, Result, WorldError};
use checkpoint::Dtype;
use checkpoint::safetensors::Writer;
use serde_json::json;

pub use cached::{Made, make};
pub use named::Named;
pub use routing::{Lru, Reuse, Routing};
use shape::Tensor;
pub use shape::{Family, Shape, ShapeChoice};
use values::Quantiles;

/// Bytes of a shard at most, unless one tensor alone has more.
pub const SHARD_BYTES: u64 = 4 << 30;
/// Bytes made and written at a time.
const PIECE_BYTES: usize = 8 << 20;

/// What was written.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Written {
    /// The model folder.
    pub folder: PathBuf,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Parameters.
    pub parameters: u64,
    /// Shards.
    pub shards: usize,
}

/// Writes a random model of `shape` to `folder`, which must not exist (or be empty). The content depends on
/// shape and seed only. Everything is written beside the folder and renamed at the end, so that a folder of
/// that name is always whole. `progress` gets the bytes written so far.
/// Errors: the folder is in use, the disk is too small or fails; cancelled.
pub fn write(
    shape: &Shape,
    seed: u64,
    folder: &Path,
    shard_bytes: u64,
    cancel: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Written> {
    let tensors = shape.tensors();
    let total: u64 = tensors.iter().map(Tensor::bytes).sum();
    check_target(folder, total)?;
    let beside = Partial::create(folder)?;
    let shards = cut(&tensors, shard_bytes);
    let quantiles = Quantiles::new();
    let mut map = serde_json::Map::new();
    let mut done = 0;
    for (i, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_string(),
            n => format!("model-{:05}-of-{n:05}.safetensors", i + 1),
        };
        let list: Vec<_> = shard.iter().map(|t| (t.name.clone(), Dtype::Bf16, t.shape.clone())).collect();
        let format = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        let mut writer = Writer::create(&beside.path.join(&name), &list, &format)?;
        for tensor in *shard {
            let mut piece = vec![0u8; PIECE_BYTES.min(tensor.bytes() as usize)];
            let table = quantiles.table(tensor.values);
            let mut at = 0;
            while at < tensor.bytes() {
                if cancel.load(Ordering::Relaxed) {
                    return Err(Refusal::Cancelled.into());
                }
                let bytes = (tensor.bytes() - at).min(PIECE_BYTES as u64) as usize;
                values::fill(&mut piece[..bytes], &table, seed, tensor.stream, at);
                writer.write(&tensor.name, &piece[..bytes])?;
                at += bytes as u64;
                done += bytes as u64;
                progress(done);
            }
            map.insert(tensor.name.clone(), json!(name));
        }
        writer.finish()?;
    }
    if shards.len() > 1 {
        let index = json!({"metadata": {"total_size": total}, "weight_map": map});
        write_json(&beside.path.join("model.safetensors.index.json"), &index)?;
    }
    write_json(&beside.path.join("config.json"), &shape.config())?;
    let parameters = tensors.iter().map(|t| t.bytes() / 2).sum();
    beside.rename(folder)?;
    Ok(Written { folder: folder.to_path_buf(), bytes: total, parameters, shards: shards.len() })
}

/// Tensors in order, cut where a shard is full.
fn cut(tensors: &[Tensor], shard_bytes: u64) -> Vec<&[Tensor]> {
    let (mut shards, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (i, tensor) in tensors.iter().enumerate() {
        if i > first && bytes + tensor.bytes() > shard_bytes {
            shards.push(&tensors[first..i]);
            (first, bytes) = (i, 0);
        }
        bytes += tensor.bytes();
    }
    shards.push(&tensors[first..]);
    shards
}

/// Something of that name is there, and not just an empty folder.
fn is_used(folder: &Path) -> bool {
    let filled = folder.exists() && std::fs::read_dir(folder).is_ok_and(|mut e| e.next().is_some());
    filled || folder.is_file()
}

fn check_target(folder: &Path, total: u64) -> Result<()> {
    if is_used(folder) {
        let limit = "a folder that does not exist yet";
        return Err(Refusal::value("checkpoint", folder.display(), limit, "name another or remove it").into());
    }
    let parent = parent(folder);
    std::fs::create_dir_all(parent).map_err(|e| WorldError::io("create", parent, e))?;
    if let Some(free) = base::os::free_disk_bytes(parent)
        && free < total
    {
        let limit = format!("{} are free there", Bytes(free));
        let hint = "ask for a smaller model or name another folder";
        return Err(Refusal::value("size", Bytes(total), limit, hint).into());
    }
    Ok(())
}

fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<()> {
    Ok(std::fs::write(path, json_text(value)).map_err(|e| WorldError::io("write", path, e))?)
}

fn json_text(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).expect("a JSON value prints") + "\n"
}

/// A folder that is removed unless it gets its own name.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn create(folder: &Path) -> Result<Partial> {
        let Some(name) = folder.file_name() else {
            let hint = "name a new folder";
            return Err(Refusal::value("checkpoint", folder.display(), "the name of a folder", hint).into());
        };
        let name = format!(".{}.{}.partial", name.to_string_lossy(), std::process::id());
        let path = parent(folder).join(name);
        std::fs::create_dir(&path).map_err(|e| WorldError::io("create", &path, e))?;
        Ok(Partial { path })
    }

    fn rename(self, folder: &Path) -> Result<()> {
        // An empty folder of that name is replaced; that is what rename does with folders.
        Ok(std::fs::rename(&self.path, folder).map_err(|e| WorldError::io("rename", &self.path, e))?)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod cached_tests;
