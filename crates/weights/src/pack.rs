//! From source rows to the bytes of a section: the work of one thread, on one piece.

use arch::manifest::ExpertLayer;
use arch::{Entry, EntryKind, ExpertEntry, Source, Transform};
use base::{FileFault, Result};
use half::bf16;
use ops::linear::layout::{Expert, Matrix, TILE_ROWS, Tile};
use std::ops::Range;

use crate::origin::{Origin, Piece};
use crate::quant::{clear, quantise_row};
use crate::source::Reader;

/// Weights of one piece of a dense section, roughly: some ten milliseconds of work.
const PIECE_WEIGHTS: usize = 1 << 20;

/// Into how many pieces a dense entry is cut, and over which rows piece `i` goes.
pub(crate) fn pieces(kind: &EntryKind) -> usize {
    let (rows, columns) = kind.source_shape();
    match kind {
        EntryKind::Matrix(_) | EntryKind::Embedding { .. } => rows.div_ceil(piece_rows(columns)).max(1),
        EntryKind::Vector { .. } | EntryKind::Conv { .. } | EntryKind::Table { .. } => 1,
    }
}

fn piece_rows(columns: usize) -> usize {
    (PIECE_WEIGHTS / columns.max(1)).max(1).next_multiple_of(TILE_ROWS)
}

/// Rows of the source that piece `i` takes.
pub(crate) fn rows_of(kind: &EntryKind, i: usize) -> Range<usize> {
    let (rows, columns) = kind.source_shape();
    match kind {
        EntryKind::Matrix(_) | EntryKind::Embedding { .. } => {
            let size = piece_rows(columns);
            i * size..((i + 1) * size).min(rows)
        }
        EntryKind::Vector { .. } | EntryKind::Conv { .. } | EntryKind::Table { .. } => 0..rows,
    }
}

impl Origin for Reader<'_> {
    type Room = ExpertRoom;

    fn dense(&self, entry: &Entry, rows: Range<usize>) -> Result<Vec<Piece>> {
        dense(self, entry, rows)
    }

    fn room(&self, layer: &ExpertLayer) -> ExpertRoom {
        ExpertRoom::new(&layer.block)
    }

    fn expert(
        &self,
        layer: &ExpertLayer,
        expert: &ExpertEntry,
        room: &mut ExpertRoom,
        block: &mut [u8],
    ) -> Result<()> {
        room.fill(self, layer, expert, block)
    }

    fn dense_bytes(&self, entry: &Entry, rows: Range<usize>) -> u64 {
        let (_, columns) = entry.kind.source_shape();
        rows.len() as u64 * self.row_bytes(&entry.source, columns)
    }

    fn expert_bytes(&self, layer: &ExpertLayer, e: &ExpertEntry) -> u64 {
        let of = |source: &Source, columns| source.rows() as u64 * self.row_bytes(source, columns);
        of(&e.gate, layer.hidden) + of(&e.up, layer.hidden) + of(&e.down, layer.inter)
    }
}

/// Makes some rows of a dense entry: one or two places of its section.
fn dense(reader: &Reader, entry: &Entry, rows: Range<usize>) -> Result<Vec<Piece>> {
    let whole = |bytes| Ok(vec![Piece { offset: 0, bytes }]);
    match entry.kind {
        EntryKind::Matrix(m) => matrix(reader, &entry.source, &m, rows),
        EntryKind::Embedding { cols, .. } => embedding(reader, &entry.source, cols, rows),
        EntryKind::Vector { len, transform } => {
            let mut values = vec![0.0; len];
            reader.vector(&entry.source, &mut values)?;
            values.iter_mut().for_each(|v| *v = transformed(transform, *v));
            if let Some(bad) = crate::quant::not_finite(&values) {
                let found = format!("{} from {transform:?} of a weight", values[bad]);
                let fault = FileFault::NotFinite;
                return Err(reader.fault(&entry.source, bad, fault, "finite weights", found).into());
            }
            whole(values.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
        EntryKind::Conv { channels, kernel } => {
            let mut values = vec![0.0; channels * kernel];
            reader.rows(&entry.source, rows, kernel, &mut values)?;
            whole(values.iter().flat_map(|v| v.to_le_bytes()).collect())
        }
        EntryKind::Table { .. } => unreachable!("only synthetic models have it, and they have no tensors"),
    }
}

fn transformed(transform: Transform, w: f32) -> f32 {
    match transform {
        Transform::Plain => w,
        Transform::OnePlus => 1.0 + w,
        Transform::NegExp => -libm::exp(f64::from(w)) as f32,
    }
}

/// Row tiles of a matrix: their codes and their scales.
fn matrix(reader: &Reader, source: &Source, m: &Matrix, rows: Range<usize>) -> Result<Vec<Piece>> {
    let first = rows.start / TILE_ROWS;
    let tiles = rows.len().div_ceil(TILE_ROWS);
    let (code_bytes, scale_bytes) = (m.tile_code_bytes(), m.tile_scale_bytes());
    let (mut codes, mut scales) = (vec![0; tiles * code_bytes], vec![0; tiles * scale_bytes]);
    let mut values = vec![0.0; TILE_ROWS * m.k];
    let mut tile = m.zero_tile();
    for i in 0..tiles {
        let start = rows.start + i * TILE_ROWS;
        let some = start..(start + TILE_ROWS).min(rows.end);
        let values = &mut values[..some.len() * m.k];
        reader.rows(source, some, m.k, values)?;
        clear(&mut tile);
        for (r, row) in values.chunks_exact(m.k).enumerate() {
            quantise_row(m, row, r, &mut tile);
        }
        m.pack_tile(
            &tile,
            &mut codes[i * code_bytes..][..code_bytes],
            &mut scales[i * scale_bytes..][..scale_bytes],
        );
    }
    reader.release(source, rows);
    let scale_offset = (m.code_bytes() + first * scale_bytes) as u64;
    Ok(vec![
        Piece { offset: (first * code_bytes) as u64, bytes: codes },
        Piece { offset: scale_offset, bytes: scales },
    ])
}

/// Rows as exact bf16; other values are refused.
fn embedding(reader: &Reader, source: &Source, columns: usize, rows: Range<usize>) -> Result<Vec<Piece>> {
    let mut values = vec![0.0; columns];
    let mut bytes = Vec::with_capacity(2 * rows.len() * columns);
    for row in rows.clone() {
        reader.rows(source, row..row + 1, columns, &mut values)?;
        for v in &values {
            let exact = bf16::from_f32(*v);
            if exact.to_f32() != *v {
                let (fault, expected) = (FileFault::WrongDtype, "an embedding of exact BF16 values");
                return Err(reader.fault(source, row, fault, expected, v.to_string()).into());
            }
            bytes.extend(exact.to_bits().to_le_bytes());
        }
    }
    let offset = (2 * rows.start * columns) as u64;
    reader.release(source, rows);
    Ok(vec![Piece { offset, bytes }])
}

/// Room for the work on experts, kept from one to the next.
pub(crate) struct ExpertRoom {
    values: Vec<f32>,
    gate_up: Tile,
    down: Tile,
}

impl ExpertRoom {
    /// Room for blocks of this layout.
    pub fn new(block: &Expert) -> Self {
        ExpertRoom {
            values: vec![0.0; TILE_ROWS * block.gate_up.k.max(block.down.k)],
            gate_up: block.gate_up.zero_tile(),
            down: block.down.zero_tile(),
        }
    }

    /// Makes one expert's block.
    fn fill(
        &mut self,
        reader: &Reader,
        layer: &ExpertLayer,
        e: &ExpertEntry,
        block: &mut [u8],
    ) -> Result<()> {
        let Expert { gate_up, down } = layer.block;
        block.fill(0);
        let (gu_codes, rest) = block.split_at_mut(gate_up.code_bytes());
        let (down_codes, rest) = rest.split_at_mut(down.code_bytes());
        let (gu_scales, down_scales) = rest.split_at_mut(gate_up.scale_bytes());
        let places = gu_codes
            .chunks_exact_mut(gate_up.tile_code_bytes())
            .zip(gu_scales.chunks_exact_mut(gate_up.tile_scale_bytes()));
        for (i, (codes, scales)) in places.enumerate() {
            clear(&mut self.gate_up);
            let half = TILE_ROWS / 2;
            let rows = half * i..(half * (i + 1)).min(layer.inter);
            for (source, first) in [(&e.gate, 0), (&e.up, half)] {
                let values = &mut self.values[..rows.len() * gate_up.k];
                reader.rows(source, rows.clone(), gate_up.k, values)?;
                for (r, row) in values.chunks_exact(gate_up.k).enumerate() {
                    quantise_row(&gate_up, row, first + r, &mut self.gate_up);
                }
            }
            gate_up.pack_tile(&self.gate_up, codes, scales);
        }
        let places = down_codes
            .chunks_exact_mut(down.tile_code_bytes())
            .zip(down_scales.chunks_exact_mut(down.tile_scale_bytes()));
        for (i, (codes, scales)) in places.enumerate() {
            clear(&mut self.down);
            let rows = TILE_ROWS * i..(TILE_ROWS * (i + 1)).min(layer.hidden);
            let values = &mut self.values[..rows.len() * down.k];
            reader.rows(&e.down, rows, down.k, values)?;
            for (r, row) in values.chunks_exact(down.k).enumerate() {
                quantise_row(&down, row, r, &mut self.down);
            }
            down.pack_tile(&self.down, codes, scales);
        }
        for source in [&e.gate, &e.up, &e.down] {
            reader.release(source, 0..source.rows());
        }
        Ok(())
    }
}
