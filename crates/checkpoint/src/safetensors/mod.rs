//! Safetensors files: a checked view of one, and a writer.

mod header;
mod write;

use std::path::Path;

use base::mmap::Mapping;
use base::{FileFault, Result, WorldError};

pub use header::{Header, TensorInfo, parse_header};
pub use write::Writer;

use crate::Dtype;
use crate::json::regular_file_bytes;

/// A mapped file whose header has been checked in full.
#[derive(Debug)]
pub struct Shard {
    map: Mapping,
    header: Header,
}

/// A safetensors file that stands alone (expected values, log-probabilities).
pub type File = Shard;

impl Shard {
    /// Maps and checks a file. Errors: see [`base::FileFault`]; each names file, tensor, expected and found.
    pub fn open(path: &Path) -> Result<Shard> {
        regular_file_bytes(path, FileFault::BadHeader)?;
        let map = Mapping::open(path)?;
        let header = parse_header(map.bytes(), map.bytes().len() as u64, path)?;
        Ok(Shard { map, header })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// Tensors in name order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.header.tensors
    }

    /// The writer's free text.
    pub fn metadata(&self) -> &std::collections::BTreeMap<String, String> {
        &self.header.metadata
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let tensors = &self.header.tensors;
        tensors.binary_search_by(|t| t.name.as_str().cmp(name)).ok().map(|i| &tensors[i])
    }

    /// The data of a tensor of this file.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        &self.map.bytes()[tensor.span.clone()]
    }

    /// All values of a tensor as f32, row-major (F8 codes without scale). Errors: no such tensor, or a type
    /// that is not exactly an f32.
    pub fn f32(&self, name: &str) -> Result<Vec<f32>> {
        let tensor = self.required(name)?;
        if !tensor.dtype.is_float() {
            return Err(self.wrong_dtype(tensor, "F32, BF16, F16 or F8_E4M3").into());
        }
        let mut out = vec![0.0; tensor.elements()];
        tensor.dtype.decode(self.data(tensor), &mut out);
        Ok(out)
    }

    /// All values of an integer tensor (I64 or I32), row-major. Errors: no such tensor, or another type.
    pub fn i64(&self, name: &str) -> Result<Vec<i64>> {
        let tensor = self.required(name)?;
        let data = self.data(tensor);
        match tensor.dtype {
            Dtype::I64 => Ok(data.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
            Dtype::I32 => {
                Ok(data.as_chunks::<4>().0.iter().map(|b| i64::from(i32::from_le_bytes(*b))).collect())
            }
            _ => Err(self.wrong_dtype(tensor, "I64 or I32").into()),
        }
    }

    fn required(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name).ok_or_else(|| {
            let found = format!("{} other tensors", self.header.tensors.len());
            WorldError::damaged(self.path(), FileFault::MissingTensor, "the tensor", found)
                .tensor(name)
                .into()
        })
    }

    fn wrong_dtype(&self, tensor: &TensorInfo, expected: &str) -> WorldError {
        WorldError::damaged(self.path(), FileFault::WrongDtype, expected, tensor.dtype).tensor(&tensor.name)
    }

    pub(crate) fn map(&self) -> &Mapping {
        &self.map
    }

    pub(crate) fn data_start(&self) -> usize {
        self.header.data_start
    }
}
