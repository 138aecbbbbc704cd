//! The files of a build, as the few calls that a test may let fail.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use base::{Result, WorldError};

/// A partial cache file and its journal.
pub(crate) trait Disk: Sync {
    /// Writes to the partial file.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WorldError>;
    /// Reads from the partial file.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), WorldError>;
    /// Makes the partial file's content durable.
    fn sync(&self) -> Result<(), WorldError>;
    /// Appends lines to the journal and makes them durable.
    fn append(&self, lines: &[u8]) -> Result<(), WorldError>;
}

/// Both files, open, under the lock of the build.
pub(crate) struct Files {
    pub partial: File,
    pub partial_path: PathBuf,
    pub journal: File,
    pub journal_path: PathBuf,
}

impl Disk for Files {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), WorldError> {
        self.partial.write_all_at(bytes, offset).map_err(|e| failed("write", &self.partial_path, e))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), WorldError> {
        self.partial.read_exact_at(bytes, offset).map_err(|e| failed("read", &self.partial_path, e))
    }

    fn sync(&self) -> Result<(), WorldError> {
        self.partial.sync_all().map_err(|e| failed("write", &self.partial_path, e))
    }

    fn append(&self, lines: &[u8]) -> Result<(), WorldError> {
        let mut journal = &self.journal;
        let write = journal
            .seek(SeekFrom::End(0))
            .and_then(|_| journal.write_all(lines))
            .and_then(|()| self.journal.sync_data());
        write.map_err(|e| failed("write", &self.journal_path, e))
    }
}

/// A full disk is said with what is left and that nothing is lost.
fn failed(action: &'static str, path: &Path, error: std::io::Error) -> WorldError {
    if error.kind() != ErrorKind::StorageFull {
        return WorldError::io(action, path, error);
    }
    let free = path.parent().and_then(base::os::free_disk_bytes);
    let free = free.map_or("unknown".into(), |b| base::Bytes(b).to_string());
    let words = format!("the disk is full ({free} available); make room and run again, it goes on from here");
    WorldError::io(action, path, std::io::Error::new(ErrorKind::StorageFull, words))
}
