//! The committed archives of test data and of the bundled model.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// zstd's level: above 19 the window grows beyond what decoders accept without being asked.
const LEVEL: i32 = 19;

/// Archives of the repository: the source below the data folder, what is left out, and the destination.
const ARCHIVES: [(&str, &[&str], &str); 4] = [
    ("fixtures/arch/qwen3_moe", &[], "tests/data/qwen3_moe.tar.zst"),
    ("fixtures/arch/qwen3_next", &[], "tests/data/qwen3_next.tar.zst"),
    ("models/tiny-qwen3-next", &["witness"], "assets/tiny-qwen3-next.tar.zst"),
    ("models/tiny-qwen3-next/witness", &[], "tests/data/tiny-qwen3-next-witness.tar.zst"),
];

/// Recreates every archive from the folder `from`.
pub fn pack_all(from: &Path, root: &Path) -> Result<()> {
    for (source, without, to) in ARCHIVES {
        let packed = pack(&from.join(source), without)?;
        let to = root.join(to);
        fs::create_dir_all(to.parent().context("an archive lies in a folder")?)?;
        fs::write(&to, &packed).with_context(|| format!("can't write {}", to.display()))?;
        println!("{}: {} bytes", to.display(), packed.len());
    }
    Ok(())
}

/// A folder's files as a compressed archive. The same files give the same bytes: sorted, without times and
/// owners.
fn pack(folder: &Path, without: &[&str]) -> Result<Vec<u8>> {
    let mut files = Vec::new();
    collect(folder, folder, without, &mut files)?;
    ensure!(!files.is_empty(), "{} holds no files", folder.display());
    files.sort();
    let mut builder = tar::Builder::new(Vec::new());
    for file in &files {
        let content =
            fs::read(folder.join(file)).with_context(|| format!("can't read {}", file.display()))?;
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        builder.append_data(&mut header, file, &content[..])?;
    }
    Ok(zstd::encode_all(&builder.into_inner()?[..], LEVEL)?)
}

/// Paths, relative to `top`, of the regular files below `folder`.
fn collect(top: &Path, folder: &Path, without: &[&str], files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let relative = path.strip_prefix(top)?;
        if without.iter().any(|w| relative == Path::new(w)) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(top, &path, without, files)?;
        } else {
            ensure!(kind.is_file(), "{} is neither a file nor a folder", path.display());
            files.push(relative.to_path_buf());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(packed: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(zstd::Decoder::new(packed).unwrap());
        let entries = archive.entries().unwrap();
        entries.map(|e| e.unwrap().path().unwrap().display().to_string()).collect()
    }

    #[test]
    fn same_files_same_bytes() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (folder, order) in [(&one, ["a", "b/c", "b/d"]), (&two, ["b/d", "b/c", "a"])] {
            for name in order {
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, name).unwrap();
            }
        }
        let packed = pack(one.path(), &[]).unwrap();
        assert_eq!(packed, pack(two.path(), &[]).unwrap());
        assert_eq!(names(&packed), ["a", "b/c", "b/d"]);
    }

    #[test]
    fn left_out_folders_are_not_packed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("witness")).unwrap();
        fs::write(folder.path().join("witness/x"), "x").unwrap();
        fs::write(folder.path().join("a"), "a").unwrap();
        assert_eq!(names(&pack(folder.path(), &["witness"]).unwrap()), ["a"]);
        assert!(pack(&folder.path().join("witness/none"), &[]).is_err());
        let empty = tempfile::tempdir().unwrap();
        assert!(pack(empty.path(), &[]).is_err());
    }
}
