use std::path::{Path, PathBuf};

use anyhow::Result;
use arch::{Manifest, Profile};
use base::{Bytes, Refusal, WorldError};
use checkpoint::Checkpoint;
use clap::Args;
use serde::Serialize;

use crate::output::{put, put_json, table};
use crate::{bundled, home};

/// Lists the models in the models folder and the bundled one
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    family: Option<&'static str>,
    parameters: Option<u64>,
    bytes: Option<u64>,
    path: PathBuf,
    /// Why it can't be used.
    problem: Option<String>,
}

pub fn run(args: ModelsArgs) -> Result<()> {
    let folder = home::models()?;
    let mut models: Vec<Listed> = folders(&folder)?.into_iter().map(|p| describe(&folder, p)).collect();
    if bundled::is_there() {
        let path = bundled::folder()?;
        models.insert(0, Listed { name: format!("{} (bundled)", bundled::MODEL), ..describe(&folder, path) });
    }
    if args.json {
        return put_json(&models);
    }
    let dash = || "-".to_string();
    let rows: Vec<Vec<String>> = models
        .iter()
        .map(|m| {
            let millions = |p: u64| format!("{:.1} M", p as f64 / 1e6);
            vec![
                m.name.clone(),
                m.family.map_or_else(dash, str::to_string),
                m.parameters.map_or_else(dash, millions),
                m.bytes.map_or_else(dash, |b| Bytes(b).to_string()),
                m.problem.clone().unwrap_or_default(),
            ]
        })
        .collect();
    put(&table(&rows, &[false, false, true, true, false]))?;
    Ok(())
}

/// Model folders: `NAME` and `ORG/NAME`. A folder without config.json holds models of an organisation.
fn folders(under: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in subfolders(under)? {
        if path.join("config.json").exists() {
            found.push(path);
        } else {
            found.extend(subfolders(&path)?);
        }
    }
    Ok(found)
}

/// Sorted; none if `under` is not there.
fn subfolders(under: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(under) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(WorldError::io("list", under, e).into()),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| WorldError::io("list", under, e))?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Bytes of all tensors; of a synthetic model, of its caches. Errors: the caches can't be listed; a synthetic
/// model has none.
fn bytes(checkpoint: &Checkpoint) -> Result<u64> {
    if !checkpoint.is_synthetic() {
        return Ok(checkpoint.total_bytes());
    }
    let source = checkpoint.identity();
    let is_its = |c: &weights::Listed| matches!(&c.state, Ok(Some(d)) if d.key.source == source);
    let its: Vec<_> = weights::store::list(&home::home()?)?.into_iter().filter(is_its).collect();
    if its.is_empty() {
        let hint = "`krasis synth` with the flags of this model writes one".into();
        let value = checkpoint.folder().display().to_string();
        return Err(Refusal::NotFound { what: "a cache of the synthetic model".into(), value, hint }.into());
    }
    Ok(its.iter().map(|c| c.disk_bytes).sum())
}

fn describe(under: &Path, path: PathBuf) -> Listed {
    let name = path.strip_prefix(under).unwrap_or(&path).display().to_string();
    let read = || -> Result<_> {
        let checkpoint = Checkpoint::open(&path)?;
        Ok((bytes(&checkpoint)?, arch::read(&checkpoint)?))
    };
    let read = read();
    match read {
        Ok((bytes, model)) => {
            let manifest = Manifest::new(&model, &Profile::Default.recipe());
            let parameters = Some(model.parameters(&manifest));
            Listed { name, family: Some(model.family), parameters, bytes: Some(bytes), path, problem: None }
        }
        Err(error) => {
            let problem = Some(error.to_string());
            Listed { name, family: None, parameters: None, bytes: None, path, problem }
        }
    }
}
