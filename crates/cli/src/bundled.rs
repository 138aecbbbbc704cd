//! The model that is part of the program, unpacked once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::hash::Digest;
use base::{FileFault, Refusal, WorldError};

use crate::home::home;

/// Its name.
pub const MODEL: &str = "tiny-qwen3-next";

/// This build has it.
pub const fn is_there() -> bool {
    ARCHIVE.is_some()
}

#[cfg(feature = "bundled-model")]
const ARCHIVE: Option<&[u8]> =
    Some(include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/tiny-qwen3-next.tar.zst")));
#[cfg(not(feature = "bundled-model"))]
const ARCHIVE: Option<&[u8]> = None;

/// Digests of the unpacked files, so that later starts notice damage.
const DIGESTS: &str = "digests.json";

/// The folder of the bundled model, unpacked if it is not there or not what it was.
/// Errors: this build has none, or files can't be written.
pub fn folder() -> Result<PathBuf> {
    let Some(archive) = ARCHIVE else {
        return Err(Refusal::unsupported(
            "the bundled model",
            "this build was made without the feature bundled-model",
            "name a model folder, or build with default features",
        )
        .into());
    };
    unpacked(archive, &home()?.join("bundled"))
}

fn unpacked(archive: &[u8], under: &Path) -> Result<PathBuf> {
    let folder = under.join(Digest::of(archive).short());
    if is_whole(&folder) {
        return Ok(folder);
    }
    let beside = under.join(format!(".{}.partial", std::process::id()));
    let made = unpack(archive, &beside).and_then(|()| replace(&beside, &folder));
    if made.is_err() {
        let _ = std::fs::remove_dir_all(&beside);
    }
    made?;
    Ok(folder)
}

/// Gives the new folder its name. Another process may have been first; a damaged one makes room.
fn replace(beside: &Path, folder: &Path) -> Result<()> {
    if std::fs::rename(beside, folder).is_ok() {
        return Ok(());
    }
    if is_whole(folder) {
        let _ = std::fs::remove_dir_all(beside);
        return Ok(());
    }
    tracing::warn!("{} is damaged: unpacked again", folder.display());
    let damaged = folder.with_extension(format!("{}.damaged", std::process::id()));
    std::fs::rename(folder, &damaged).map_err(|e| WorldError::io("rename", folder, e))?;
    std::fs::rename(beside, folder).map_err(|e| WorldError::io("rename", beside, e))?;
    let _ = std::fs::remove_dir_all(&damaged);
    Ok(())
}

fn unpack(archive: &[u8], to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|e| WorldError::io("create", to, e))?;
    let bad = |e| WorldError::io("unpack the bundled model to", to, e);
    let mut tar = tar::Archive::new(zstd::Decoder::new(archive).map_err(bad)?);
    let mut digests = BTreeMap::new();
    for entry in tar.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let name = entry.path().map_err(bad)?.to_string_lossy().into_owned();
        entry.unpack_in(to).map_err(bad)?;
        digests.insert(name.clone(), Digest::of_file(&to.join(name))?.to_string());
    }
    let path = to.join(DIGESTS);
    let text = serde_json::to_string_pretty(&digests)?;
    std::fs::write(&path, text).map_err(|e| WorldError::io("write", &path, e))?;
    if is_whole(to) {
        return Ok(());
    }
    Err(WorldError::damaged(to, FileFault::Checksum, "the files of the bundled model", "others").into())
}

/// All files are there and have the content they were unpacked with.
fn is_whole(folder: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(folder.join(DIGESTS)) else { return false };
    let Ok(digests) = serde_json::from_str::<BTreeMap<String, String>>(&text) else { return false };
    let same = |(name, digest): (&String, &String)| {
        Digest::of_file(&folder.join(name)).is_ok_and(|d| d.to_string() == *digest)
    };
    !digests.is_empty() && digests.iter().all(same)
}

#[cfg(all(test, feature = "bundled-model"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_unpacked_once_and_again_when_damaged() {
        let under = tempfile::tempdir().unwrap();
        let archive = ARCHIVE.unwrap();
        let folder = unpacked(archive, under.path()).unwrap();
        let shard = folder.join("model-00002-of-00002.safetensors");
        let written = || std::fs::metadata(&shard).unwrap().modified().unwrap();
        let first = written();
        assert_eq!(unpacked(archive, under.path()).unwrap(), folder);
        assert_eq!(written(), first, "not written again");
        let mut bytes = std::fs::read(&shard).unwrap();
        bytes[4_000_000] ^= 1;
        std::fs::write(&shard, &bytes).unwrap();
        assert!(!is_whole(&folder));
        assert_eq!(unpacked(archive, under.path()).unwrap(), folder);
        assert!(is_whole(&folder));
        assert_eq!(std::fs::read_dir(under.path()).unwrap().count(), 1, "nothing left beside it");
        checkpoint::Checkpoint::open(&folder).unwrap();
    }

    #[test]
    fn a_damaged_archive_leaves_nothing() {
        let under = tempfile::tempdir().unwrap();
        let archive = ARCHIVE.unwrap();
        assert!(unpacked(&archive[..archive.len() / 2], under.path()).is_err());
        assert_eq!(std::fs::read_dir(under.path()).unwrap().count(), 0);
    }
}
