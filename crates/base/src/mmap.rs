//! Read-only file mappings. One of the files that may use `unsafe`.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::WorldError;

/// A whole file, mapped for reading.
#[derive(Debug)]
pub struct Mapping {
    map: Option<memmap2::Mmap>,
    path: PathBuf,
}

impl Mapping {
    /// Maps `path`. An empty file gives an empty slice.
    pub fn open(path: &Path) -> Result<Self, WorldError> {
        let file = File::open(path).map_err(|e| WorldError::io("open", path, e))?;
        let len = file.metadata().map_err(|e| WorldError::io("read the size of", path, e))?.len();
        if len == 0 {
            return Ok(Mapping { map: None, path: path.to_path_buf() });
        }
        // SAFETY: the mapping is private to this process and never written. Another process that truncates
        // the file while it is mapped would fault this one; checkpoints and caches are replaced by rename,
        // never rewritten in place, and the documentation of both formats says so.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| WorldError::io("map", path, e))?;
        Ok(Mapping { map: Some(map), path: path.to_path_buf() })
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the kernel that these bytes are not needed for now: the pages leave this process's resident set
    /// and are read from the file again when touched.
    pub fn release(&self, range: std::ops::Range<usize>) {
        let Some(map) = &self.map else { return };
        let page = crate::os::page_bytes();
        let start = range.start.next_multiple_of(page).min(map.len());
        let end = range.end.min(map.len()) / page * page;
        if start < end {
            // SAFETY: the range lies inside a read-only, file-backed mapping, so dropped pages come back
            // unchanged from the file; nothing else depends on their residency.
            let _ =
                unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
        }
    }

    /// Brings the whole file into memory and into this process's page tables, as far as the system can.
    pub fn populate(&self) {
        if let Some(map) = &self.map {
            let _ = map.advise(memmap2::Advice::PopulateRead);
        }
    }

    /// Tells the kernel that the file is going to be read from front to back.
    pub fn sequential(&self) {
        if let Some(map) = &self.map {
            let _ = map.advise(memmap2::Advice::Sequential);
        }
    }
}
