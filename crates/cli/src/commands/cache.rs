use std::cell::RefCell;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::{Bytes, FileFault, Refusal, WorldError};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weights::store::{self, Listed};

use crate::home;
use crate::output::{Progress, put, put_json, table};

/// Lists, removes and verifies weight caches
#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists all caches, unfinished ones included
    Ls {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Removes caches
    Rm {
        /// Files as `cache ls` names them
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// Remove all of them
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Reads caches whole and compares their checksums
    Verify {
        /// Files as `cache ls` names them [default: all]
        names: Vec<String>,
    },
}

pub fn run(args: CacheArgs) -> Result<()> {
    let all = store::list(&home::home()?)?;
    match args.action {
        Action::Ls { json } => list(&all, json),
        Action::Rm { names, .. } => remove(&chosen(all, &names)?),
        Action::Verify { names } => verify(&chosen(all, &names)?),
    }
}

/// The caches of these names; all without names.
fn chosen(all: Vec<Listed>, names: &[String]) -> Result<Vec<Listed>> {
    if names.is_empty() {
        return Ok(all);
    }
    for name in names {
        if !all.iter().any(|c| is_named(&c.path, name)) {
            return Err(Refusal::NotFound {
                what: "cache".into(),
                value: name.clone(),
                hint: "`krasis cache ls` lists them".into(),
            }
            .into());
        }
    }
    Ok(all.into_iter().filter(|c| names.iter().any(|n| is_named(&c.path, n))).collect())
}

fn is_named(path: &Path, name: &str) -> bool {
    path == Path::new(name) || file_name(path) == name
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

fn list(all: &[Listed], as_json: bool) -> Result<()> {
    if as_json {
        let entries: Vec<Value> = all.iter().map(entry).collect();
        return put_json(&entries);
    }
    let row = |cache: &Listed| {
        let what = match &cache.state {
            Ok(Some(d)) => d.key.recipe.clone(),
            Ok(None) => "unfinished: the next build goes on with it".into(),
            Err(error) => format!("damaged: {error}"),
        };
        vec![file_name(&cache.path), Bytes(cache.disk_bytes).to_string(), what]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    Ok(put(&table(&rows, &[false, true, false]))?)
}

fn entry(cache: &Listed) -> Value {
    let mut entry = json!({"path": cache.path, "disk_bytes": cache.disk_bytes});
    match &cache.state {
        Ok(Some(d)) => {
            entry["state"] = json!("whole");
            entry["bytes"] = json!(d.bytes);
            entry["recipe"] = json!(d.key.recipe);
            entry["source"] = json!(d.key.source.to_string());
            entry["arithmetic_version"] = json!(d.key.arithmetic);
        }
        Ok(None) => entry["state"] = json!("unfinished"),
        Err(error) => {
            entry["state"] = json!("damaged");
            entry["problem"] = json!(error.to_string());
        }
    }
    entry
}

fn remove(caches: &[Listed]) -> Result<()> {
    for cache in caches {
        let freed = store::remove(&cache.path)?;
        put(&format!("{} removed: {} freed\n", file_name(&cache.path), Bytes(freed)))?;
    }
    Ok(())
}

/// Says of each what is wrong with it; the error at the end is about the first.
fn verify(caches: &[Listed]) -> Result<()> {
    let mut first_fault: Option<anyhow::Error> = None;
    for listed in caches {
        let name = file_name(&listed.path);
        let fault = match &listed.state {
            Ok(None) => {
                put(&format!("{name}: unfinished\n"))?;
                continue;
            }
            Ok(Some(_)) => content_fault(&listed.path)?,
            Err(error) => Some(error.to_string()),
        };
        match fault {
            None => put(&format!("{name}: whole\n"))?,
            Some(what) => {
                put(&format!("{name}: damaged: {what}\n"))?;
                let error = || damaged(listed.path.clone(), &what);
                first_fault.get_or_insert_with(error);
            }
        }
    }
    first_fault.map_or(Ok(()), Err)
}

fn damaged(path: PathBuf, what: &str) -> anyhow::Error {
    let hint = "remove it with `krasis cache rm`; it is built again when it is needed (that of a synthetic \
                model by `krasis synth`)";
    WorldError::damaged(&path, FileFault::Checksum, "what was written", what).hint(hint).into()
}

fn content_fault(path: &Path) -> Result<Option<String>> {
    let cache = weights::Cache::open_any(path)?;
    let bar = RefCell::new(Progress::new(format!("reading {}", file_name(path)), cache.bytes()));
    let report = cache.verify(&|done, _| bar.borrow_mut().set(done));
    bar.into_inner().finish();
    Ok(match &report.damaged[..] {
        [] => None,
        [first, rest @ ..] => Some(format!("{first} and {} other parts", rest.len())),
    })
}
