//! Reading tensors of a checkpoint: exact conversion to f32, and the checkpoint's identity.

use std::ops::Range;

use base::hash::Digest;
use base::{FileFault, Result, WorldError};

use crate::folder::file_name;
use crate::safetensors::{Shard, TensorInfo};
use crate::{Checkpoint, Dtype};

/// Side of the square tiles of an F8 weight that share a scale.
pub const F8_TILE: usize = 128;
/// Pages of each shard that take part in the identity, and their size.
const SAMPLED_PAGES: usize = 64;
const SAMPLE_BYTES: usize = 4096;

impl Checkpoint {
    /// The stored bytes of a tensor, little-endian, row-major.
    pub fn bytes(&self, name: &str) -> Result<&[u8]> {
        let (shard, tensor) = self.required(name)?;
        Ok(shard.data(tensor))
    }

    /// Converts rows of a tensor, seen as [product of the leading dimensions, last dimension], to f32.
    ///
    /// BF16, F16 and F32 are converted exactly, not-finite values included. An F8_E4M3 tensor `X`
    /// [.., out, in] needs its partner `X_scale_inv` (F32, BF16 or F16, [.., ceil(out/128), ceil(in/128)]):
    /// each value is the code times the scale of its 128×128 tile, rounded once. Errors: no such tensor, no
    /// partner or a misshapen one, another type. Panics if `rows` or the length of `out` do not fit.
    pub fn read_rows(&self, name: &str, rows: Range<usize>, out: &mut [f32]) -> Result<()> {
        let (shard, tensor) = self.required(name)?;
        let (total, columns) = (tensor.rows(), tensor.columns());
        assert!(rows.start <= rows.end && rows.end <= total, "rows {rows:?} of {name}, which has {total}");
        assert_eq!(out.len(), rows.len() * columns, "room for {} rows of {name}", rows.len());
        if !tensor.dtype.is_float() {
            let (expected, fault) = ("BF16, F16, F32 or F8_E4M3", FileFault::WrongDtype);
            return Err(WorldError::damaged(shard.path(), fault, expected, tensor.dtype).tensor(name).into());
        }
        let scales = match tensor.dtype {
            Dtype::F8E4M3 => Some(self.tile_scales(shard, tensor, &rows)?),
            _ => None,
        };
        let row_bytes = columns * tensor.dtype.bytes();
        let bytes = &shard.data(tensor)[rows.start * row_bytes..rows.end * row_bytes];
        tensor.dtype.decode(bytes, out);
        if let Some(scales) = scales {
            scales.apply(rows.start, columns, out);
        }
        Ok(())
    }

    /// Lets the system drop the mapped pages of these rows; they are read from the file again when touched.
    /// Rows released one range after the other leave no page behind but the last.
    pub fn release(&self, name: &str, rows: Range<usize>) {
        let Some((shard, tensor)) = self.find(name) else { return };
        let row_bytes = tensor.columns() * tensor.dtype.bytes();
        let at = |row: usize| tensor.span.start + row.min(tensor.rows()) * row_bytes;
        let page = base::os::page_bytes();
        // The mapping rounds inwards; the page in which these rows begin was kept by the range before them.
        shard.map().release(at(rows.start) / page * page..at(rows.end));
    }

    /// Which checkpoint this is, independent of folder and times. BLAKE3 over, in this order: a line with the
    /// version of this rule; the digest of the configuration's bytes; for each shard in order of file name,
    /// its name and a zero byte, its size in bytes (u64, little-endian), the digest of its header (length
    /// field and JSON), and the digest of 64 pages of 4 KiB spread evenly from the first to the last byte
    /// after the header (of all those bytes, if they are fewer). A full digest of hundreds of gigabytes
    /// would take minutes at every start; `cache verify` is for damage, this is for mix-ups.
    pub fn identity(&self) -> Digest {
        let mut text = b"checkpoint identity 1\n".to_vec();
        text.extend(self.config_digest().0);
        for shard in self.shards() {
            let (header, data) = shard.map().bytes().split_at(shard.data_start());
            text.extend(file_name(shard).as_bytes());
            text.push(0);
            text.extend((shard.map().bytes().len() as u64).to_le_bytes());
            text.extend(Digest::of(header).0);
            text.extend(sampled(data).0);
        }
        Digest::of(&text)
    }

    fn required(&self, name: &str) -> Result<(&Shard, &TensorInfo)> {
        self.find(name).ok_or_else(|| {
            let found = format!("{} other tensors", self.tensors().count());
            WorldError::damaged(self.folder(), FileFault::MissingTensor, "the tensor", found)
                .tensor(name)
                .into()
        })
    }

    /// The partner of an F8 tensor, checked against its shape; the part that `rows` need.
    fn tile_scales(&self, shard: &Shard, tensor: &TensorInfo, rows: &Range<usize>) -> Result<TileScales> {
        let name = format!("{}_scale_inv", tensor.name);
        let fail = |fault, expected: String, found: String| -> Result<TileScales> {
            Err(WorldError::damaged(shard.path(), fault, expected, found).tensor(&tensor.name).into())
        };
        let [leading @ .., height, width] = tensor.shape.as_slice() else {
            let found = format!("{:?}", tensor.shape);
            return fail(FileFault::WrongShape, "an F8 weight of two or more dimensions".into(), found);
        };
        let Some((partner_shard, partner)) = self.find(&name) else {
            return fail(FileFault::MissingTensor, format!("its scales, {name}"), "no such tensor".into());
        };
        let mut expected = leading.to_vec();
        expected.extend([height.div_ceil(F8_TILE), width.div_ceil(F8_TILE)]);
        if partner.shape != expected {
            let found = format!("{:?}", partner.shape);
            return fail(FileFault::WrongShape, format!("{name} of shape {expected:?}"), found);
        }
        if !matches!(partner.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::F16) {
            let found = partner.dtype.to_string();
            return fail(FileFault::WrongDtype, format!("{name} in F32, BF16 or F16"), found);
        }
        let mut tiles = TileScales { scales: Vec::new(), first: 0, height: *height };
        if !rows.is_empty() && *width > 0 {
            let across = partner.columns();
            tiles.first = tiles.row_of(rows.start);
            let needed = tiles.row_of(rows.end - 1) + 1 - tiles.first;
            tiles.scales = vec![0.0; needed * across];
            let row_bytes = across * partner.dtype.bytes();
            let bytes = &partner_shard.data(partner)[tiles.first * row_bytes..][..needed * row_bytes];
            partner.dtype.decode(bytes, &mut tiles.scales);
        }
        Ok(tiles)
    }
}

/// Scales of some rows of 128×128 tiles of one or several stacked matrices.
struct TileScales {
    scales: Vec<f32>,
    /// Row of the partner that `scales` starts with.
    first: usize,
    /// Rows of one matrix.
    height: usize,
}

impl TileScales {
    /// The partner's row that holds the scales of a row of the tensor.
    fn row_of(&self, row: usize) -> usize {
        row / self.height * self.height.div_ceil(F8_TILE) + row % self.height / F8_TILE
    }

    /// Multiplies rows, the first of which is row `first` of the tensor.
    fn apply(&self, first: usize, columns: usize, out: &mut [f32]) {
        if out.is_empty() {
            return;
        }
        let across = columns.div_ceil(F8_TILE);
        for (i, row) in out.chunks_exact_mut(columns).enumerate() {
            let start = (self.row_of(first + i) - self.first) * across;
            for (tile, scale) in row.chunks_mut(F8_TILE).zip(&self.scales[start..start + across]) {
                for x in tile {
                    *x *= scale;
                }
            }
        }
    }
}

/// Digest of evenly spread pages.
fn sampled(data: &[u8]) -> Digest {
    if data.len() <= SAMPLED_PAGES * SAMPLE_BYTES {
        return Digest::of(data);
    }
    let mut pages = Vec::with_capacity(SAMPLED_PAGES * SAMPLE_BYTES);
    let last = data.len() - SAMPLE_BYTES;
    for i in 0..SAMPLED_PAGES {
        let start = (last as u128 * i as u128 / (SAMPLED_PAGES - 1) as u128) as usize;
        pages.extend_from_slice(&data[start..start + SAMPLE_BYTES]);
    }
    Digest::of(&pages)
}
