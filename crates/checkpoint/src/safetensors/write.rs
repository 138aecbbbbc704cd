//! Writes a safetensors file: the header first, then the data as a stream.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use base::{Result, WorldError};
use serde_json::{Map, json};

use crate::Dtype;

/// A file being written under a temporary name; [`Writer::finish`] makes it durable and gives it its own.
/// A writer that is dropped before removes what it wrote.
pub struct Writer {
    out: Option<BufWriter<File>>,
    temporary: PathBuf,
    path: PathBuf,
    /// Name and bytes of each tensor, in file order.
    tensors: Vec<(String, u64)>,
    /// The tensor that the next byte belongs to, and how much of it is written.
    next: usize,
    filled: u64,
}

impl Writer {
    /// Starts `path` with the given tensors (name, type, shape), whose data must follow in this order.
    /// Panics on a repeated name or a size beyond 64 bits.
    pub fn create(
        path: &Path,
        tensors: &[(String, Dtype, Vec<usize>)],
        metadata: &BTreeMap<String, String>,
    ) -> Result<Writer> {
        let mut header = Map::new();
        if !metadata.is_empty() {
            header.insert("__metadata__".into(), json!(metadata));
        }
        let mut end = 0u64;
        let mut lengths = Vec::with_capacity(tensors.len());
        for (name, dtype, shape) in tensors {
            let length = shape.iter().try_fold(dtype.bytes(), |l, &d| l.checked_mul(d));
            let length = length.unwrap_or_else(|| panic!("the size of {name} is beyond 64 bits")) as u64;
            let entry = json!({"dtype": dtype.name(), "shape": shape, "data_offsets": [end, end + length]});
            assert!(header.insert(name.clone(), entry).is_none(), "tensor {name} declared twice");
            end += length;
            lengths.push((name.clone(), length));
        }
        let mut text = serde_json::Value::Object(header).to_string().into_bytes();
        text.resize(text.len().next_multiple_of(8), b' '); // so that the data starts aligned
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().expect("a path that names a file"));
        name.push(format!(".{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(|e| WorldError::io("create", &temporary, e))?;
        let mut writer = Writer {
            out: Some(BufWriter::with_capacity(1 << 20, file)),
            temporary,
            path: path.to_path_buf(),
            tensors: lengths,
            next: 0,
            filled: 0,
        };
        writer.put(&(text.len() as u64).to_le_bytes())?;
        writer.put(&text)?;
        writer.skip_finished();
        Ok(writer)
    }

    /// Appends data of the tensor `name`, in one call or in many. Panics if that is not the tensor whose turn
    /// it is, or if it gets more bytes than declared.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (current, length) = self.tensors.get(self.next).expect("data after the last tensor");
        assert_eq!(current, name, "tensors must be written in the declared order");
        self.filled += bytes.len() as u64;
        assert!(self.filled <= *length, "{name}: more than the declared {length} bytes");
        self.put(bytes)?;
        self.skip_finished();
        Ok(())
    }

    /// Appends f32 values of the tensor `name`, which must be declared F32.
    pub fn write_f32(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.write(name, &bytes)
    }

    /// Makes the file durable and gives it its name. Panics if a tensor is not complete.
    pub fn finish(mut self) -> Result<()> {
        if let Some((name, length)) = self.tensors.get(self.next) {
            panic!("{name}: {} of the declared {length} bytes written", self.filled);
        }
        let out = self.out.take().expect("a writer that has not finished");
        let io = |action, path: &Path, e| WorldError::io(action, path, e);
        let done =
            out.into_inner().map_err(|e| io("write", &self.temporary, e.into_error())).and_then(|file| {
                file.sync_all().map_err(|e| io("flush", &self.temporary, e))?;
                std::fs::rename(&self.temporary, &self.path).map_err(|e| io("rename", &self.temporary, e))?;
                // The new name itself is durable only once the folder is.
                let folder =
                    self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let sync = File::open(folder).and_then(|f| f.sync_all());
                sync.map_err(|e| io("flush", folder, e))
            });
        if done.is_err() {
            let _ = std::fs::remove_file(&self.temporary);
        }
        Ok(done?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let out = self.out.as_mut().expect("a writer that has not finished");
        Ok(out.write_all(bytes).map_err(|e| WorldError::io("write", &self.temporary, e))?)
    }

    /// Steps over tensors that are complete, also empty ones.
    fn skip_finished(&mut self) {
        while self.tensors.get(self.next).is_some_and(|(_, length)| self.filled == *length) {
            self.next += 1;
            self.filled = 0;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}
