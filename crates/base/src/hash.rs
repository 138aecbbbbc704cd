//! Checksums: BLAKE3 everywhere.

use std::io::Read;
use std::path::Path;

use crate::WorldError;

/// A 256-bit digest, printed as hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// Digest of a whole file, read in pieces.
    pub fn of_file(path: &Path) -> Result<Self, WorldError> {
        let mut file = std::fs::File::open(path).map_err(|e| WorldError::io("open", path, e))?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0u8; 1 << 20];
        loop {
            let n = file.read(&mut piece).map_err(|e| WorldError::io("read", path, e))?;
            if n == 0 {
                return Ok(Digest(*hasher.finalize().as_bytes()));
            }
            hasher.update(&piece[..n]);
        }
    }

    /// The first 16 hex digits: enough for a file name.
    pub fn short(&self) -> String {
        self.to_string()[..16].to_string()
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}
