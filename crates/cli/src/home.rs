//! Where things are kept: `KRASIS_HOME`, its models, caches and the unpacked bundled model.

use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use base::Refusal;

/// `KRASIS_HOME`, or `.cache/krasis` in the user's home.
pub fn home() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("KRASIS_HOME").filter(|v| !v.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let user = std::env::var_os("HOME").filter(|v| !v.is_empty()).ok_or_else(|| Refusal::NotFound {
        what: "a place for caches".into(),
        value: "neither KRASIS_HOME nor HOME is set".into(),
        hint: "set KRASIS_HOME to a folder".into(),
    })?;
    Ok(Path::new(&user).join(".cache/krasis"))
}

/// Folder of model folders.
pub fn models() -> Result<PathBuf> {
    Ok(home()?.join("models"))
}

/// The folder that `name` means: a folder itself, or `NAME` or `ORG/NAME` in the models folder.
pub fn find_model(name: &str) -> Result<Option<PathBuf>> {
    let path = Path::new(name);
    if name.is_empty() {
        return Ok(None);
    }
    if path.is_dir() {
        return Ok(Some(path.to_path_buf()));
    }
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    let known = models()?.join(path);
    Ok((plain && path.components().count() <= 2 && known.is_dir()).then_some(known))
}

/// As [`find_model`], for commands that need one.
pub fn required_model(name: &str) -> Result<PathBuf> {
    let found = find_model(name)?;
    let missing = || Refusal::NotFound {
        what: "model".into(),
        value: name.into(),
        hint: "name a model folder, or a folder in models/ of KRASIS_HOME (`krasis models` lists them)"
            .into(),
    };
    Ok(found.ok_or_else(missing)?)
}
