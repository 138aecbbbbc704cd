//! Packed layout of weight matrices, read by the reference, by SIMD and by tensor cores alike.
//!
//! A matrix `[n, k]` is padded with zero codes to whole **row tiles** of 16 rows and to a multiple of 128
//! along k, then cut into **k tiles** of 64. Inside a k tile, *lane* `l = 4·g + t` (g in 0..8, t in 0..4)
//! owns rows `g` and `g + 8` and the sixteen k's `16·t .. 16·t + 15`: a lane's sixteen bytes are one fragment
//! of `mma.m16n8k32` (operand A), and two lanes side by side are one AVX2 load.
//!
//! ```text
//! 4-bit plane, 512 B: lane l at 16·l         [row g: 8 bytes][row g+8: 8 bytes]
//!     byte 4r+j of a row (r in 0..2, j in 0..4): low nibble k = 16t+8r+j, high nibble k = 16t+8r+4+j
//! 2-bit plane, 256 B (H6's upper bits): lanes (g, t even) and (g, t+1) share 16 bytes at 16·(2g + t/2)
//!     byte b: bits 0-1 even lane's low-nibble code of byte b, 2-3 odd lane's, 4-5 even high, 6-7 odd high
//! 8-bit plane, 1024 B: half p (0, 1) at 512·p, lane l at 16·l in it, byte j of a row: k = 16t+8p+j
//! ```
//! I4, H4 = 4-bit plane; H6 = 4-bit plane, then 2-bit plane; I8, H8 = 8-bit plane; I16 = 8-bit plane of the
//! upper bytes (signed), then of the lower bytes (unsigned). I4 stores `code + 8`.
//!
//! Order: all codes `[row tile][k tile]`, then all scales `[row tile][group]`: 16 bf16 scales (one per row of
//! the tile), for H formats followed by 16 f16 zeros.

use crate::format::WeightFormat;

/// Rows of a row tile.
pub const TILE_ROWS: usize = 16;
/// Weights along k in a k tile.
pub const K_TILE: usize = 64;
/// K is padded to a multiple of this.
pub const K_PAD: usize = 128;

/// Shape and format of a packed matrix; gives every size and offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Format of codes and scales.
    pub format: WeightFormat,
    /// Output features (rows).
    pub n: usize,
    /// Input features.
    pub k: usize,
}

/// One row tile before packing: codes and scales of 16 rows. Codes are the format's integers (I4: -8..7,
/// H: 0..2^b-1, I8, I16), padded rows and columns hold zero codes and zero scales.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    /// `[16][k padded]`.
    pub codes: Vec<i32>,
    /// bf16 bits, `[16][groups]`.
    pub scales: Vec<u16>,
    /// f16 bits, `[16][groups]`; empty for formats without a zero.
    pub zeros: Vec<u16>,
}

impl Matrix {
    /// A matrix of `n` outputs and `k` inputs.
    pub const fn new(format: WeightFormat, n: usize, k: usize) -> Self {
        Matrix { format, n, k }
    }

    /// Row tiles.
    pub const fn row_tiles(&self) -> usize {
        self.n.div_ceil(TILE_ROWS)
    }

    /// k after padding.
    pub const fn k_padded(&self) -> usize {
        self.k.div_ceil(K_PAD) * K_PAD
    }

    /// k tiles of a row tile.
    pub const fn k_tiles(&self) -> usize {
        self.k_padded() / K_TILE
    }

    /// Scale groups along k, padding included: a padded group has scale 0 and takes part in the chain.
    pub const fn groups(&self) -> usize {
        self.k_padded() / self.format.group()
    }

    /// Bytes of one k tile of one row tile.
    pub const fn k_tile_bytes(&self) -> usize {
        TILE_ROWS * K_TILE * self.format.bits() / 8
    }

    /// Bytes of the codes of one row tile.
    pub const fn tile_code_bytes(&self) -> usize {
        self.k_tiles() * self.k_tile_bytes()
    }

    /// Bytes of the scales (and zeros) of one row tile and group.
    pub const fn group_scale_bytes(&self) -> usize {
        TILE_ROWS * if self.format.has_zero() { 4 } else { 2 }
    }

    /// Bytes of the scales (and zeros) of one row tile.
    pub const fn tile_scale_bytes(&self) -> usize {
        self.groups() * self.group_scale_bytes()
    }

    /// Bytes of all codes.
    pub const fn code_bytes(&self) -> usize {
        self.row_tiles() * self.tile_code_bytes()
    }

    /// Bytes of all scales.
    pub const fn scale_bytes(&self) -> usize {
        self.row_tiles() * self.tile_scale_bytes()
    }

    /// Bytes of the whole matrix: codes, then scales.
    pub const fn bytes(&self) -> usize {
        self.code_bytes() + self.scale_bytes()
    }

    /// A tile of zero codes and scales.
    pub fn zero_tile(&self) -> Tile {
        let groups = TILE_ROWS * self.groups();
        Tile {
            codes: vec![0; TILE_ROWS * self.k_padded()],
            scales: vec![0; groups],
            zeros: if self.format.has_zero() { vec![0; groups] } else { Vec::new() },
        }
    }

    /// Packs one row tile into its places: `codes` is `tile_code_bytes` long, `scales` `tile_scale_bytes`.
    pub fn pack_tile(&self, tile: &Tile, codes: &mut [u8], scales: &mut [u8]) {
        assert_eq!(codes.len(), self.tile_code_bytes());
        assert_eq!(scales.len(), self.tile_scale_bytes());
        codes.fill(0);
        let k_padded = self.k_padded();
        for (index, out) in codes.chunks_exact_mut(self.k_tile_bytes()).enumerate() {
            for row in 0..TILE_ROWS {
                for kk in 0..K_TILE {
                    put(self.format, out, row, kk, tile.codes[row * k_padded + index * K_TILE + kk]);
                }
            }
        }
        let groups = self.groups();
        for (group, out) in scales.chunks_exact_mut(self.group_scale_bytes()).enumerate() {
            for row in 0..TILE_ROWS {
                out[2 * row..][..2].copy_from_slice(&tile.scales[row * groups + group].to_le_bytes());
                if self.format.has_zero() {
                    let zero = tile.zeros[row * groups + group].to_le_bytes();
                    out[2 * (TILE_ROWS + row)..][..2].copy_from_slice(&zero);
                }
            }
        }
    }

    /// Codes of row `n` into `out` (`k_padded` long). `codes` holds the codes of the whole matrix.
    pub fn unpack_row(&self, codes: &[u8], n: usize, out: &mut [i32]) {
        assert_eq!(out.len(), self.k_padded());
        let tile = &codes[n / TILE_ROWS * self.tile_code_bytes()..][..self.tile_code_bytes()];
        for (bytes, out) in tile.chunks_exact(self.k_tile_bytes()).zip(out.chunks_exact_mut(K_TILE)) {
            for (kk, out) in out.iter_mut().enumerate() {
                *out = get(self.format, bytes, n % TILE_ROWS, kk);
            }
        }
    }

    /// Scale (bf16 bits) of row `n` and group `group`; `scales` holds the scales of the whole matrix.
    pub fn scale_bits(&self, scales: &[u8], n: usize, group: usize) -> u16 {
        let at = self.scale_at(n, group) + 2 * (n % TILE_ROWS);
        u16::from_le_bytes([scales[at], scales[at + 1]])
    }

    /// Zero (f16 bits) of row `n` and group `group`, for formats that have one.
    pub fn zero_bits(&self, scales: &[u8], n: usize, group: usize) -> u16 {
        let at = self.scale_at(n, group) + 2 * (TILE_ROWS + n % TILE_ROWS);
        u16::from_le_bytes([scales[at], scales[at + 1]])
    }

    fn scale_at(&self, n: usize, group: usize) -> usize {
        n / TILE_ROWS * self.tile_scale_bytes() + group * self.group_scale_bytes()
    }
}

/// Byte and nibble of (row, k) in a 4-bit plane.
fn nibble_at(row: usize, kk: usize) -> (usize, bool) {
    let (g, upper, t, r, high, j) = (row % 8, row / 8, kk / 16, kk % 16 / 8, kk % 8 / 4, kk % 4);
    (16 * (4 * g + t) + 8 * upper + 4 * r + j, high == 1)
}

/// Byte of (row, k) in an 8-bit plane.
fn byte_at(row: usize, kk: usize) -> usize {
    let (g, upper, t, p, j) = (row % 8, row / 8, kk / 16, kk % 16 / 8, kk % 8);
    512 * p + 16 * (4 * g + t) + 8 * upper + j
}

/// Byte and shift of (row, k) in a 2-bit plane.
fn pair_at(row: usize, kk: usize) -> (usize, usize) {
    let (byte, high) = nibble_at(row, kk);
    let (lane, in_lane) = (byte / 16, byte % 16);
    (16 * (lane / 2) + in_lane, 2 * (lane % 2) + if high { 4 } else { 0 })
}

fn put(format: WeightFormat, out: &mut [u8], row: usize, kk: usize, code: i32) {
    let put_nibble = |out: &mut [u8], value: u8| {
        let (byte, high) = nibble_at(row, kk);
        out[byte] |= if high { value << 4 } else { value };
    };
    match format {
        WeightFormat::I4 => put_nibble(out, (code + 8) as u8 & 15),
        WeightFormat::H4 => put_nibble(out, code as u8 & 15),
        WeightFormat::H6 => {
            put_nibble(out, code as u8 & 15);
            let (byte, shift) = pair_at(row, kk);
            out[512 + byte] |= (code as u8 >> 4 & 3) << shift;
        }
        WeightFormat::H8 | WeightFormat::I8 => out[byte_at(row, kk)] = code as u8,
        WeightFormat::I16 => {
            out[byte_at(row, kk)] = (code >> 8) as u8;
            out[1024 + byte_at(row, kk)] = code as u8;
        }
    }
}

fn get(format: WeightFormat, bytes: &[u8], row: usize, kk: usize) -> i32 {
    let nibble = || {
        let (byte, high) = nibble_at(row, kk);
        i32::from(if high { bytes[byte] >> 4 } else { bytes[byte] & 15 })
    };
    match format {
        WeightFormat::I4 => nibble() - 8,
        WeightFormat::H4 => nibble(),
        WeightFormat::H6 => {
            let (byte, shift) = pair_at(row, kk);
            nibble() | i32::from(bytes[512 + byte] >> shift & 3) << 4
        }
        WeightFormat::H8 => i32::from(bytes[byte_at(row, kk)]),
        WeightFormat::I8 => i32::from(bytes[byte_at(row, kk)] as i8),
        WeightFormat::I16 => {
            let at = byte_at(row, kk);
            i32::from(bytes[at] as i8) * 256 + i32::from(bytes[1024 + at])
        }
    }
}

/// Layout of one expert: `[gate|up codes][down codes][gate|up scales][down scales]`, padded to whole pages so
/// that every block of a layer has the same size and alignment.
///
/// Row tile `i` of gate|up holds gate rows `8i..8i+8` as its rows 0..8 and up rows `8i..8i+8` as its rows
/// 8..16, so that whoever computes a tile has both operands of the activation at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expert {
    /// gate|up: `[2·padded inter, hidden]`.
    pub gate_up: Matrix,
    /// down: `[hidden, inter]`.
    pub down: Matrix,
}

/// Expert blocks start at multiples of this.
pub const EXPERT_ALIGN: usize = 4096;

impl Expert {
    /// An expert of width `inter` in a model of width `hidden`.
    pub const fn new(format: WeightFormat, hidden: usize, inter: usize) -> Self {
        let rows = inter.div_ceil(8) * TILE_ROWS;
        Expert { gate_up: Matrix::new(format, rows, hidden), down: Matrix::new(format, hidden, inter) }
    }

    /// Bytes of a block.
    pub const fn bytes(&self) -> usize {
        (self.gate_up.bytes() + self.down.bytes()).div_ceil(EXPERT_ALIGN) * EXPERT_ALIGN
    }

    /// Codes and scales of gate|up in a block.
    pub fn gate_up_of<'a>(&self, block: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let scales = self.gate_up.code_bytes() + self.down.code_bytes();
        (&block[..self.gate_up.code_bytes()], &block[scales..][..self.gate_up.scale_bytes()])
    }

    /// Codes and scales of down in a block.
    pub fn down_of<'a>(&self, block: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let scales = self.gate_up.code_bytes() + self.down.code_bytes() + self.gate_up.scale_bytes();
        (
            &block[self.gate_up.code_bytes()..][..self.down.code_bytes()],
            &block[scales..][..self.down.scale_bytes()],
        )
    }

    /// Row of gate|up that holds gate row `i`; up row `i` is 8 rows further.
    pub const fn gate_row(i: usize) -> usize {
        i / 8 * TILE_ROWS + i % 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::philox::Stream;

    fn range(format: WeightFormat) -> (i32, u32) {
        match format {
            WeightFormat::I4 => (-8, 16),
            WeightFormat::I8 => (-127, 255),
            WeightFormat::I16 => (-32767, 65535),
            h => (0, 1 << h.bits()),
        }
    }

    #[test]
    fn every_code_and_scale_comes_back() {
        for format in WeightFormat::ALL {
            let matrix = Matrix::new(format, 21, 150);
            let mut random = Stream::new(5);
            let mut codes = vec![0xAA; matrix.code_bytes()];
            let mut scales = vec![0xAA; matrix.scale_bytes()];
            let mut tiles = Vec::new();
            for i in 0..matrix.row_tiles() {
                let mut tile = matrix.zero_tile();
                let (low, count) = range(format);
                tile.codes.fill_with(|| low + random.below(count) as i32);
                tile.scales.fill_with(|| random.u32() as u16);
                tile.zeros.fill_with(|| random.u32() as u16);
                let (c, s) = (matrix.tile_code_bytes(), matrix.tile_scale_bytes());
                matrix.pack_tile(&tile, &mut codes[i * c..][..c], &mut scales[i * s..][..s]);
                tiles.push(tile);
            }
            let mut row = vec![0; matrix.k_padded()];
            for n in 0..matrix.row_tiles() * TILE_ROWS {
                let (tile, r) = (&tiles[n / TILE_ROWS], n % TILE_ROWS);
                matrix.unpack_row(&codes, n, &mut row);
                assert_eq!(row, tile.codes[r * row.len()..][..row.len()], "{format:?} row {n}");
                for g in 0..matrix.groups() {
                    let at = r * matrix.groups() + g;
                    assert_eq!(matrix.scale_bits(&scales, n, g), tile.scales[at]);
                    if format.has_zero() {
                        assert_eq!(matrix.zero_bits(&scales, n, g), tile.zeros[at]);
                    }
                }
            }
        }
    }

    #[test]
    fn an_expert_of_the_80b_has_the_size_the_design_counts() {
        let expert = Expert::new(WeightFormat::I4, 2048, 512);
        assert_eq!(expert.bytes(), 1_622_016);
        let block = vec![0u8; expert.bytes()];
        let (gate_up, down) = (expert.gate_up_of(&block), expert.down_of(&block));
        let total = gate_up.0.len() + gate_up.1.len() + down.0.len() + down.1.len();
        assert_eq!(total, expert.gate_up.bytes() + expert.down.bytes());
    }
}
