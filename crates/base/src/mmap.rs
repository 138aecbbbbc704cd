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

    /// Closes the mapping to this process, or opens it again: while closed, any access to its bytes ends the
    /// process. For tests that nothing reads it.
    pub fn close(&self, closed: bool) {
        let Some(map) = &self.map else { return };
        let protection = if closed { libc::PROT_NONE } else { libc::PROT_READ };
        // SAFETY: the range is this mapping's own, whole; the caller asked for faults on access.
        let rc = unsafe { libc::mprotect(map.as_ptr().cast_mut().cast(), map.len(), protection) };
        assert_eq!(rc, 0, "mprotect of {}", self.path.display());
    }

    /// Tells the kernel that the file is going to be read from front to back.
    pub fn sequential(&self) {
        if let Some(map) = &self.map {
            let _ = map.advise(memmap2::Advice::Sequential);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "KRASIS_TEST_READS_CLOSED_MAPPING";

    /// Runs itself again: a read of a closed mapping ends that process, and only after it was closed.
    #[test]
    fn a_closed_mapping_can_not_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [7; 100]).unwrap();
        let mapping = Mapping::open(&path).unwrap();
        mapping.close(true);
        if std::env::var_os(CHILD).is_some() {
            println!("{}", std::hint::black_box(mapping.bytes())[50]);
            std::process::exit(0);
        }
        mapping.close(false);
        assert_eq!(mapping.bytes(), [7; 100]);
        let this = std::env::current_exe().unwrap();
        let name = "mmap::tests::a_closed_mapping_can_not_be_read";
        let child = std::process::Command::new(this).args(["--exact", name]).env(CHILD, "1").output();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.unwrap().status.signal(), Some(libc::SIGSEGV));
    }
}
