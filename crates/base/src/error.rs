//! The two error enums of the project. Faults are split by who can mend them: the caller
//! ([`Refusal`]) or the world ([`WorldError`]). Our own mistakes panic.

use std::path::{Path, PathBuf};

/// Result of anything that can be refused or can meet a failing world.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Either of the two kinds, for functions that can meet both.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller asked for something that can't be done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file, the memory or a device failed.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// What the caller asked for can't be done: names the field, its value, the limit, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field's value lies outside what is allowed.
    #[error("{field}: {value} is not allowed ({limit}); {hint}")]
    Value { field: String, value: String, limit: String, hint: String },
    /// A combination or feature that this build does not have.
    #[error("{what} is not supported ({why}); {hint}")]
    Unsupported { what: String, why: String, hint: String },
    /// Something named by the caller is not there.
    #[error("{what} not found: {value}; {hint}")]
    NotFound { what: String, value: String, hint: String },
    /// Stopped because the caller asked for it (Ctrl-C, a client that left).
    #[error("cancelled")]
    Cancelled,
}

impl Refusal {
    /// A value outside its limits.
    pub fn value(
        field: impl Into<String>,
        value: impl ToString,
        limit: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Refusal::Value {
            field: field.into(),
            value: value.to_string(),
            limit: limit.into(),
            hint: hint.into(),
        }
    }

    /// A feature or combination that is not there.
    pub fn unsupported(what: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Refusal::Unsupported { what: what.into(), why: why.into(), hint: hint.into() }
    }
}

/// What exactly is wrong with a file that could be read but must not be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileFault {
    /// The file is a git-LFS pointer, not the data.
    LfsPointer,
    /// Shorter than its own header says.
    Truncated,
    /// Longer than its own header says.
    TrailingBytes,
    /// The header is larger than the allowed cap, or its length field is absurd.
    HeaderTooLarge,
    /// The header is no valid JSON, or not of the expected shape.
    BadHeader,
    /// Two entries of the same name.
    DuplicateName,
    /// A data type that is not known.
    UnknownDtype,
    /// Offsets lie outside the data or are reversed.
    OffsetOutOfRange,
    /// dtype × shape is not the length of the data.
    LengthMismatch,
    /// Two tensors share bytes.
    Overlap,
    /// Bytes between tensors that belong to none, beyond alignment.
    Hole,
    /// The index names a shard that is not there.
    MissingShard,
    /// A shard that the index does not name.
    StaleShard,
    /// Several shards and no index that joins them.
    ShardsWithoutIndex,
    /// The index and the shard disagree about where a tensor is.
    IndexMismatch,
    /// Not one tensor.
    NoTensors,
    /// A tensor that the model needs is not there.
    MissingTensor,
    /// A tensor has another shape than the configuration implies.
    WrongShape,
    /// A tensor has a data type that can't be used for its purpose.
    WrongDtype,
    /// A checksum does not match the content.
    Checksum,
    /// The file is of another version, recipe, source or kind than asked for.
    Stale,
    /// JSON or text that can't be parsed.
    BadText,
    /// A number that is not finite where it must be.
    NotFinite,
}

impl std::fmt::Display for FileFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = match self {
            FileFault::LfsPointer => "is a git-LFS pointer, not the data",
            FileFault::Truncated => "is truncated",
            FileFault::TrailingBytes => "has bytes after its end",
            FileFault::HeaderTooLarge => "has a header over the size limit",
            FileFault::BadHeader => "has an unreadable header",
            FileFault::DuplicateName => "names a tensor twice",
            FileFault::UnknownDtype => "has an unknown data type",
            FileFault::OffsetOutOfRange => "has offsets outside its data",
            FileFault::LengthMismatch => "has a tensor whose length is not dtype × shape",
            FileFault::Overlap => "has tensors that overlap",
            FileFault::Hole => "has bytes that belong to no tensor",
            FileFault::MissingShard => "is named by the index but missing",
            FileFault::StaleShard => "is a shard the index does not name",
            FileFault::ShardsWithoutIndex => "holds several shards but no index",
            FileFault::IndexMismatch => "disagrees with the index",
            FileFault::NoTensors => "holds no tensors",
            FileFault::MissingTensor => "lacks a tensor the model needs",
            FileFault::WrongShape => "has a tensor of the wrong shape",
            FileFault::WrongDtype => "has a tensor of an unusable data type",
            FileFault::Checksum => "is damaged (checksum mismatch)",
            FileFault::Stale => "does not belong to this model, recipe or version",
            FileFault::BadText => "can't be parsed",
            FileFault::NotFinite => "holds a number that is not finite",
        };
        f.write_str(words)
    }
}

/// The world failed: disk, memory, a damaged file, a device.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// An operating system call on a file failed.
    #[error("can't {action} {path}: {source}", path = .path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// A file was read and must not be trusted.
    #[error("{path} {fault}{tensor}: expected {expected}, found {found}{hint}",
        path = .0.path.display(), fault = .0.fault, tensor = .0.tensor_words(),
        expected = .0.expected, found = .0.found, hint = .0.hint_words())]
    Damaged(Box<Damage>),
    /// Memory could not be had.
    #[error("out of memory: {what} needs {needed}, {available} available")]
    Memory { what: String, needed: String, available: String },
    /// A number that must be finite is not (arithmetic.md §0): names layer and op.
    #[error("{what} in layer {layer}, op {op}: not a finite number (row {row})")]
    NotFinite { what: &'static str, layer: String, op: &'static str, row: usize },
}

/// Details of a file that must not be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Which file.
    pub path: PathBuf,
    /// What kind of fault.
    pub fault: FileFault,
    /// Which tensor or entry, if one.
    pub tensor: Option<String>,
    /// What should have been there.
    pub expected: String,
    /// What was there.
    pub found: String,
    /// What to do, if something helps.
    pub hint: Option<String>,
}

impl Damage {
    fn tensor_words(&self) -> String {
        self.tensor.as_ref().map(|t| format!(" (tensor {t})")).unwrap_or_default()
    }
    fn hint_words(&self) -> String {
        self.hint.as_ref().map(|t| format!("; {t}")).unwrap_or_default()
    }
}

impl WorldError {
    /// A failed call on a file.
    pub fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        WorldError::Io { action, path: path.to_path_buf(), source }
    }

    /// A damaged file, without tensor and hint.
    pub fn damaged(path: &Path, fault: FileFault, expected: impl ToString, found: impl ToString) -> Self {
        WorldError::Damaged(Box::new(Damage {
            path: path.to_path_buf(),
            fault,
            tensor: None,
            expected: expected.to_string(),
            found: found.to_string(),
            hint: None,
        }))
    }

    /// Adds the tensor's name.
    pub fn tensor(mut self, name: impl Into<String>) -> Self {
        if let WorldError::Damaged(d) = &mut self {
            d.tensor = Some(name.into());
        }
        self
    }

    /// Adds what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        if let WorldError::Damaged(d) = &mut self {
            d.hint = Some(hint.into());
        }
        self
    }

    /// The kind of damage, if this is a damaged file.
    pub fn fault(&self) -> Option<FileFault> {
        match self {
            WorldError::Damaged(d) => Some(d.fault),
            _ => None,
        }
    }
}

impl Error {
    /// The kind of damage, if this is a damaged file.
    pub fn fault(&self) -> Option<FileFault> {
        match self {
            Error::World(w) => w.fault(),
            Error::Refused(_) => None,
        }
    }
}
