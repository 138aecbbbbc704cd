//! The header of a cache file: what it was made of and where each section lies (docs/weights-format.md).

use std::path::Path;

use arch::Recipe;
use base::hash::Digest;
use base::units::round_up;
use base::{ARITHMETIC_VERSION, Result, WorldError};
use checkpoint::Checkpoint;
use ops::format::WeightFormat;
use ops::linear::layout::{Expert, Matrix};
use serde::{Deserialize, Serialize};

/// First bytes of a cache file.
pub const MAGIC: [u8; 8] = *b"KRASISKW";
/// Version of the file's form and of the quantisers: raised whenever the same source and recipe give other
/// bytes.
pub const FORMAT_VERSION: u32 = 1;
/// Sections start at multiples of this.
pub const PAGE: u64 = 4096;
/// Bytes before the section table.
pub const PRELUDE_BYTES: usize = 64;
/// Bytes of a checksum.
pub const DIGEST_BYTES: usize = 32;
/// Most bytes of a section table.
pub const MAX_TABLE_BYTES: u64 = 16 << 20;
/// Most sections.
pub const MAX_SECTIONS: usize = 1 << 16;
/// Most bytes of a section's name and of a recipe.
pub const MAX_TEXT_BYTES: usize = 1024;
/// Largest row or column count of a section; the smallest is 1. Keeps every product of two within 64 bits.
pub const MAX_DIMENSION: usize = 1 << 28;
/// Name of the section that holds the checksum of each expert.
pub const CHECKSUMS: &str = "expert_checksums";

/// What decides a cache's content: which checkpoint, which formats, which version of the arithmetic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// [`Checkpoint::identity`].
    pub source: Digest,
    /// [`Recipe::weight_key`].
    pub recipe: String,
    /// [`ARITHMETIC_VERSION`] of the builder.
    pub arithmetic: u32,
}

impl Key {
    /// Key of what this program makes of a checkpoint.
    pub fn of(checkpoint: &Checkpoint, recipe: &Recipe) -> Key {
        Key { source: checkpoint.identity(), recipe: recipe.weight_key(), arithmetic: ARITHMETIC_VERSION }
    }

    /// Digest of all of it, for names of files.
    pub fn digest(&self) -> Digest {
        let text = format!("{}\n{}\n{}\n{FORMAT_VERSION}\n", self.source, self.recipe, self.arithmetic);
        Digest::of(text.as_bytes())
    }
}

/// What a section holds. Sizes are in elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Content {
    /// A packed matrix: codes, then scales.
    Matrix {
        /// A name of [`WeightFormat`].
        format: String,
        /// Outputs.
        n: usize,
        /// Inputs.
        k: usize,
    },
    /// Rows of bf16.
    Bf16 {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// Rows of f32; a vector has one column.
    F32 {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// Rows of u32 (expert ids by position, of synthetic models).
    U32 {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
    /// The experts of a layer, equal blocks by ascending id.
    Experts {
        /// Decoder layer.
        layer: u32,
        /// A name of [`WeightFormat`].
        format: String,
        /// Blocks.
        experts: usize,
        /// Width of the model.
        hidden: usize,
        /// Width of an expert.
        inter: usize,
    },
    /// 32 bytes for each expert, by ascending layer and id.
    Checksums {
        /// Experts of all layers together.
        experts: usize,
    },
}

impl Content {
    /// Bytes of the section; None if a format is unknown or a size is zero or too large.
    pub fn bytes(&self) -> Option<u64> {
        let fits = |sizes: &[usize]| sizes.iter().all(|s| (1..=MAX_DIMENSION).contains(s));
        let format = |name: &str| name.parse::<WeightFormat>().ok();
        match self {
            Content::Matrix { format: f, n, k } => {
                fits(&[*n, *k]).then_some(())?;
                Some(Matrix::new(format(f)?, *n, *k).bytes() as u64)
            }
            Content::Bf16 { rows, columns } => fits(&[*rows, *columns]).then(|| 2 * (rows * columns) as u64),
            Content::F32 { rows, columns } | Content::U32 { rows, columns } => {
                fits(&[*rows, *columns]).then(|| 4 * (rows * columns) as u64)
            }
            Content::Experts { experts, .. } => {
                fits(&[*experts]).then_some(())?;
                self.block_bytes()?.checked_mul(*experts as u64)
            }
            Content::Checksums { experts } => Some(DIGEST_BYTES as u64)
                .zip(u64::try_from(*experts).ok())
                .and_then(|(a, b)| a.checked_mul(b)),
        }
    }

    /// Bytes of one expert's block, if this is a layer of experts.
    pub fn block_bytes(&self) -> Option<u64> {
        let Content::Experts { format, hidden, inter, .. } = self else { return None };
        let fits = [hidden, inter].iter().all(|s| (1..=MAX_DIMENSION).contains(*s));
        fits.then(|| Some(Expert::new(format.parse().ok()?, *hidden, *inter).bytes() as u64))?
    }
}

/// A section of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// A role's name (`layers.3.attn_q`), `layers.3.experts`, or [`CHECKSUMS`].
    pub name: String,
    /// What it holds.
    pub content: Content,
    /// First byte in the file, a multiple of [`PAGE`].
    pub offset: u64,
    /// Bytes, without padding.
    pub bytes: u64,
    /// BLAKE3 of the bytes; of a layer of experts: of its part of the checksum section.
    pub digest: Digest,
}

/// A checked header, or one to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What the file was made of.
    pub key: Key,
    /// Digest of the manifest: which rows of which tensors went where.
    pub manifest: Digest,
    /// Sections in file order.
    pub sections: Vec<Section>,
    /// Where the first section may start.
    pub data_start: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// The section table as JSON. Offsets count from the start of the data.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    pub source: String,
    pub recipe: String,
    pub manifest: String,
    pub sections: Vec<TableSection>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableSection {
    pub name: String,
    pub content: Content,
    pub offset: u64,
    pub bytes: u64,
    pub digest: String,
}

impl Header {
    /// Places sections behind one another. Digests are zero until they are known.
    pub fn place(key: Key, manifest: Digest, contents: Vec<(String, Content)>) -> Header {
        let mut offset = 0;
        let place = |(name, content): (String, Content)| {
            let bytes =
                content.bytes().unwrap_or_else(|| panic!("section {name} of {content:?} is too large"));
            let section = Section { name, content, offset, bytes, digest: Digest([0; DIGEST_BYTES]) };
            offset = (offset + bytes).next_multiple_of(PAGE);
            section
        };
        let sections = contents.into_iter().map(place).collect();
        let mut header = Header { key, manifest, sections, data_start: 0, file_bytes: 0 };
        let before = PRELUDE_BYTES + header.table().len() + DIGEST_BYTES;
        header.data_start = round_up(before, PAGE as usize) as u64;
        header.file_bytes = header.data_start + offset;
        header.sections.iter_mut().for_each(|s| s.offset += header.data_start);
        header
    }

    /// Bytes from the start of the file to the first section. Their number does not depend on digests.
    pub fn encode(&self) -> Vec<u8> {
        let table = self.table();
        let mut out = Vec::with_capacity(self.data_start as usize);
        out.extend(MAGIC);
        out.extend(FORMAT_VERSION.to_le_bytes());
        out.extend(self.key.arithmetic.to_le_bytes());
        out.extend((table.len() as u64).to_le_bytes());
        out.extend((self.file_bytes - self.data_start).to_le_bytes());
        out.resize(PRELUDE_BYTES, 0);
        out.extend(table);
        out.extend(Digest::of(&out).0);
        out.resize(self.data_start as usize, 0);
        out
    }

    fn table(&self) -> Vec<u8> {
        let section = |s: &Section| TableSection {
            name: s.name.clone(),
            content: s.content.clone(),
            offset: s.offset - self.data_start,
            bytes: s.bytes,
            digest: s.digest.to_string(),
        };
        let table = Table {
            source: self.key.source.to_string(),
            recipe: self.key.recipe.clone(),
            manifest: self.manifest.to_string(),
            sections: self.sections.iter().map(section).collect(),
        };
        serde_json::to_vec(&table).expect("strings and numbers are always JSON")
    }

    /// The file belongs to `key`, else [`base::FileFault::Stale`] with the part that differs.
    pub fn belongs_to(&self, key: &Key, path: &Path) -> Result<(), WorldError> {
        let differs = |what: &str, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            let (expected, found) = (format!("{what} {expected}"), format!("{what} {found}"));
            Err(WorldError::damaged(path, base::FileFault::Stale, expected, found))
        };
        if self.key.arithmetic != key.arithmetic {
            return differs("arithmetic version", &key.arithmetic, &self.key.arithmetic);
        }
        if self.key.source != key.source {
            return differs("source checkpoint", &key.source, &self.key.source);
        }
        if self.key.recipe != key.recipe {
            return differs("recipe", &key.recipe, &self.key.recipe);
        }
        Ok(())
    }
}

/// A digest from its 64 lower-case hex digits.
pub(crate) fn digest_from_hex(text: &str) -> Option<Digest> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let bytes: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut out = [0u8; DIGEST_BYTES];
    for (out, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        *out = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(Digest(out))
}
