//! Reading what a manifest names: shapes of all of it first, then finite rows.

use std::collections::BTreeMap;
use std::ops::Range;

use arch::{Entry, EntryKind, Manifest, RowSlice, Source};
use base::{FileFault, Result, WorldError};
use checkpoint::{Checkpoint, TensorInfo};

use crate::quant::not_finite;

/// Most elements of a tensor that a vector is taken from; it is read whole.
const MAX_VECTOR: usize = 1 << 24;

/// A checkpoint whose tensors were compared with a manifest.
pub(crate) struct Reader<'a> {
    checkpoint: &'a Checkpoint,
}

impl<'a> Reader<'a> {
    /// Compares names, shapes and types of everything `manifest` reads. Errors name tensor, expected and
    /// found: [`FileFault::MissingTensor`], [`FileFault::WrongShape`], [`FileFault::WrongDtype`].
    pub fn new(checkpoint: &'a Checkpoint, manifest: &Manifest) -> Result<Self> {
        let mut shapes = Shapes { checkpoint, rows: BTreeMap::new() };
        for entry in &manifest.dense {
            shapes.dense(entry)?;
        }
        for layer in &manifest.experts {
            for e in &layer.experts {
                shapes.matrix(&e.gate, layer.inter, layer.hidden)?;
                shapes.matrix(&e.up, layer.inter, layer.hidden)?;
                shapes.matrix(&e.down, layer.hidden, layer.inter)?;
            }
        }
        shapes.are_used_up()?;
        Ok(Reader { checkpoint })
    }

    /// Rows `rows` of a source of `columns` columns, finite, into `out`.
    pub fn rows(&self, source: &Source, rows: Range<usize>, columns: usize, out: &mut [f32]) -> Result<()> {
        assert_eq!(out.len(), rows.len() * columns);
        let mut at = 0;
        for part in slices(source, rows) {
            let out = &mut out[at * columns..][..part.rows * columns];
            self.checkpoint.read_rows(&part.tensor, part.row..part.row + part.rows, out)?;
            if let Some(bad) = not_finite(out) {
                return Err(self.not_finite(&part.tensor, part.row + bad / columns, out[bad]).into());
            }
            at += part.rows;
        }
        Ok(())
    }

    /// Elements of a vector.
    pub fn vector(&self, source: &Source, out: &mut [f32]) -> Result<()> {
        let mut at = 0;
        for part in &source.parts {
            let tensor = self.checkpoint.tensor(&part.tensor).expect("names were checked");
            let mut all = vec![0.0; tensor.elements()];
            self.checkpoint.read_rows(&part.tensor, 0..tensor.rows(), &mut all)?;
            let part_values = &all[part.row..part.row + part.rows];
            if let Some(bad) = not_finite(part_values) {
                return Err(self.not_finite(&part.tensor, part.row + bad, part_values[bad]).into());
            }
            out[at..at + part.rows].copy_from_slice(part_values);
            at += part.rows;
        }
        Ok(())
    }

    /// The pages of these rows are not needed again for now.
    pub fn release(&self, source: &Source, rows: Range<usize>) {
        for part in slices(source, rows) {
            self.checkpoint.release(&part.tensor, part.row..part.row + part.rows);
        }
    }

    /// Bytes of one row of a source's first tensor.
    pub fn row_bytes(&self, source: &Source, columns: usize) -> u64 {
        let tensor = source.parts.first().and_then(|p| self.checkpoint.tensor(&p.tensor));
        (tensor.map_or(0, |t| t.dtype.bytes()) * columns) as u64
    }

    /// An error about a row of a source: names file and tensor.
    pub fn fault(
        &self,
        source: &Source,
        row: usize,
        fault: FileFault,
        expected: &str,
        found: String,
    ) -> WorldError {
        let part = slices(source, row..row + 1).next().expect("a row of the source");
        let found = format!("{found} in row {}", part.row);
        self.damaged(&part.tensor, fault, expected, found)
    }

    fn not_finite(&self, tensor: &str, row: usize, value: f32) -> WorldError {
        self.damaged(tensor, FileFault::NotFinite, "finite weights", format!("{value} in row {row}"))
    }

    fn damaged(&self, tensor: &str, fault: FileFault, expected: &str, found: String) -> WorldError {
        damaged(self.checkpoint, tensor, fault, expected, found)
    }
}

fn damaged(
    checkpoint: &Checkpoint,
    tensor: &str,
    fault: FileFault,
    expected: impl ToString,
    found: impl ToString,
) -> WorldError {
    let path = checkpoint.file_of(tensor).unwrap_or(checkpoint.folder());
    WorldError::damaged(path, fault, expected, found).tensor(tensor)
}

/// The slices of tensors that make up rows `rows` of a source.
fn slices(source: &Source, rows: Range<usize>) -> impl Iterator<Item = RowSlice> {
    let mut first = 0;
    source.parts.iter().filter_map(move |part| {
        let (start, end) = (rows.start.max(first), rows.end.min(first + part.rows));
        let row = part.row + start.saturating_sub(first);
        first += part.rows;
        (start < end).then(|| RowSlice { tensor: part.tensor.clone(), row, rows: end - start })
    })
}

struct Shapes<'a> {
    checkpoint: &'a Checkpoint,
    /// Rows of each tensor, and the end of those that are used.
    rows: BTreeMap<String, (usize, usize)>,
}

impl<'a> Shapes<'a> {
    fn dense(&mut self, entry: &Entry) -> Result<()> {
        match entry.kind {
            EntryKind::Vector { len, .. } => self.vector(&entry.source, len),
            _ => {
                let (rows, columns) = entry.kind.source_shape();
                self.matrix(&entry.source, rows, columns)
            }
        }
    }

    fn matrix(&mut self, source: &Source, rows: usize, columns: usize) -> Result<()> {
        assert_eq!(source.rows(), rows, "rows of a source, by the family's file");
        for part in &source.parts {
            let tensor = self.float(part)?;
            if tensor.columns() != columns {
                return self.wrong_shape(tensor, format!("{columns} columns"));
            }
            let total = tensor.rows();
            self.used(part, tensor, total)?;
        }
        Ok(())
    }

    fn vector(&mut self, source: &Source, len: usize) -> Result<()> {
        assert_eq!(source.rows(), len, "elements of a source, by the family's file");
        for part in &source.parts {
            let tensor = self.float(part)?;
            let total = tensor.elements();
            if total > MAX_VECTOR {
                return self.wrong_shape(tensor, format!("at most {MAX_VECTOR} elements"));
            }
            self.used(part, tensor, total)?;
        }
        Ok(())
    }

    fn float(&self, part: &RowSlice) -> Result<&'a TensorInfo> {
        let Some(tensor) = self.checkpoint.tensor(&part.tensor) else {
            let found = "no such tensor";
            return Err(damaged(self.checkpoint, &part.tensor, FileFault::MissingTensor, "it", found).into());
        };
        if !tensor.dtype.is_float() {
            let expected = "BF16, F16, F32 or F8_E4M3";
            return Err(damaged(
                self.checkpoint,
                &tensor.name,
                FileFault::WrongDtype,
                expected,
                tensor.dtype,
            )
            .into());
        }
        Ok(tensor)
    }

    fn used(&mut self, part: &RowSlice, tensor: &TensorInfo, total: usize) -> Result<()> {
        let end = part.row + part.rows;
        if end > total {
            return self.wrong_shape(tensor, format!("at least {end} rows"));
        }
        let used = self.rows.entry(part.tensor.clone()).or_insert((total, 0));
        used.1 = used.1.max(end);
        Ok(())
    }

    /// A tensor that goes on behind the last row that is read has another shape than the configuration
    /// implies.
    fn are_used_up(&self) -> Result<()> {
        match self.rows.iter().find(|(_, (total, used))| used < total) {
            None => Ok(()),
            Some((name, (_, used))) => {
                let tensor = self.checkpoint.tensor(name).expect("it was there");
                self.wrong_shape(tensor, format!("{used} rows"))
            }
        }
    }

    fn wrong_shape<T>(&self, tensor: &TensorInfo, expected: String) -> Result<T> {
        let found = format!("shape {:?}", tensor.shape);
        Err(damaged(self.checkpoint, &tensor.name, FileFault::WrongShape, expected, found).into())
    }
}
