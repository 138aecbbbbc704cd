//! Products of coded rows with packed matrices, shared by `linear` and the expert ops: a row tile at a time,
//! group by group, for a block of rows. Sums are exact and the float chain runs over the groups in order, one
//! lane per output, so neither the level nor the cut into blocks, tiles and threads can change a bit.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod single;
#[cfg(target_arch = "x86_64")]
mod unpack;

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;

use super::Desc;
use super::acts::ActRows;
use super::entries::Entries;
use super::layout::{K_TILE, Matrix, TILE_ROWS};
use crate::format::{ACT_GROUP, Acts, WeightFormat};
use crate::simd::{make_room, per_level};
use crate::{HostArgs, HostExec, Level};

/// Rows that share one unpacking of a weight group: their codes and sums stay in the second-level cache.
pub(crate) const BLOCK: usize = 64;

/// Outputs of one row and one row tile.
pub(crate) type TileAcc = [f32; TILE_ROWS];

/// One step of an unpacked group: four bytes of each row of a tile. See `unpack`.
type Step = [u8; 4 * TILE_ROWS];
/// Most steps that a group is unpacked into: 128 k as words, or two planes of bytes of 128 k.
const MAX_STEPS: usize = 64;

/// Where a group is unpacked to; stays in the first-level cache.
#[repr(align(64))]
struct Unpacked([Step; MAX_STEPS]);

/// A weight group of a row tile and the rows it meets.
struct Group<'a> {
    /// The group, unpacked.
    steps: &'a [Step],
    /// 16 bf16 scales, for H formats then 16 f16 zeros.
    scales: &'a [u8],
    /// Which group along k.
    index: usize,
    /// Which activation group contains it.
    act_group: usize,
    input: &'a ActRows<'a>,
    rows: &'a [u32],
    /// The rows' codes as the kernel wants them, if that is not as stored.
    prepared: &'a [u8],
    /// Bytes of one plane of a prepared row.
    plane_bytes: usize,
    /// What to add to the dot of unpacked codes: corrects codes that are stored with an offset.
    /// `[row of the block][group]`; empty if nothing needs it.
    corrections: &'a [i32],
    /// Σ of the group's activation codes, likewise.
    sums: &'a [f32],
    groups: usize,
}

impl<'a> Group<'a> {
    /// Codes of rows `first..first + T` of the block that meet this group: `STEPS` steps of four bytes.
    #[inline(always)]
    fn codes_of<const T: usize, const STEPS: usize>(&self, first: usize) -> [&'a [[u8; 4]; STEPS]; T] {
        let mut codes = [&[[0; 4]; STEPS]; T];
        for t in 0..T {
            let row = match self.prepared {
                [] => self.input.codes(self.rows[first + t] as usize),
                all => &all[(first + t) * self.plane_bytes..][..self.plane_bytes],
            };
            codes[t] = self.steps_in(row);
        }
        codes
    }

    /// Of rows prepared in two planes, `PLANES / 2` of them: the upper planes, then the lower ones.
    #[inline(always)]
    fn planes_of<const PLANES: usize, const STEPS: usize>(
        &self,
        first: usize,
    ) -> [&'a [[u8; 4]; STEPS]; PLANES] {
        let mut codes = [&[[0; 4]; STEPS]; PLANES];
        for p in 0..PLANES {
            let plane = 2 * (first + p % (PLANES / 2)) + p / (PLANES / 2);
            codes[p] = self.steps_in(&self.prepared[plane * self.plane_bytes..][..self.plane_bytes]);
        }
        codes
    }

    /// Codes of the only row that meet this group of `TILES` k tiles, laid out.
    #[inline(always)]
    fn lanes_of<const TILES: usize>(&self) -> &'a [[u8; 2 * K_TILE]; TILES] {
        let tiles = self.prepared.as_chunks().0;
        tiles[TILES * self.index..].first_chunk().expect("rows are padded to whole groups")
    }

    #[inline(always)]
    fn steps_in<const STEPS: usize>(&self, row: &'a [u8]) -> &'a [[u8; 4]; STEPS] {
        let steps = row[4 * STEPS * self.index..].as_chunks().0;
        steps.first_chunk().expect("rows are padded to whole groups")
    }

    /// Activation scale of row `i` of the block.
    #[inline(always)]
    fn scale(&self, i: usize) -> f32 {
        self.input.scales(self.rows[i] as usize)[self.act_group]
    }

    #[inline(always)]
    fn correction(&self, i: usize) -> i32 {
        self.corrections[i * self.groups + self.index]
    }

    #[inline(always)]
    fn sum(&self, i: usize) -> f32 {
        self.sums[i * self.groups + self.index]
    }
}

/// How one pair of formats runs on one level. The functions may be called on machines of that level only.
struct Kernel {
    /// Unpacks a group's codes into as many steps as `steps` says.
    unpack: unsafe fn(&[u8], &mut [Step]),
    /// Adds the group's term to every row of the block.
    rows: unsafe fn(&Group<'_>, &mut [TileAcc]),
    steps: usize,
    /// Unpacked codes are larger by this.
    offset: i32,
    /// How activation codes are read.
    codes: Codes,
    /// What replaces `unpack` and `rows` if there is one row only. Its codes are in lane order.
    single: Option<Single>,
}

/// How one row alone runs.
#[derive(Clone, Copy)]
struct Single {
    /// Adds a group's term to the only row, from the group's packed codes.
    run: unsafe fn(&[u8], &Group<'_>, &mut [TileAcc]),
    /// Lays the row's codes out for it.
    lay: unsafe fn(&[u8], &mut [u8]),
}

/// In which form a kernel reads activation codes. I16 weights are words, and 16 × 16 bits do not sum up in
/// 32.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Codes {
    /// As stored.
    Stored,
    /// Bytes as words.
    Widened,
    /// Words in two planes: 256·upper + lower, lower unsigned.
    Split,
}

impl Codes {
    fn of(format: WeightFormat, acts: Acts) -> Codes {
        match (format, acts) {
            (WeightFormat::I16, Acts::A8) => Codes::Widened,
            (WeightFormat::I16, Acts::A16) => Codes::Split,
            _ => Codes::Stored,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn kernel(level: Level, format: WeightFormat, acts: Acts) -> Kernel {
    match level {
        Level::Avx512 => avx512::kernel(format, acts),
        _ => avx2::kernel(format, acts),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel(level: Level, _format: WeightFormat, _acts: Acts) -> Kernel {
    panic!("SIMD level {} exists on x86-64 only", level.name())
}

/// Buffers of a worker; they grow to the largest matrix once.
#[derive(Default)]
struct Scratch {
    prepared: Vec<u8>,
    corrections: Vec<i32>,
    sums: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Gives this worker the buffers for products of up to `rows` rows with `matrix`, see [`crate::Op::warm`].
pub(crate) fn warm(matrix: &Matrix, acts: Acts, rows: usize) {
    let rows = rows.min(BLOCK);
    // Two planes of words for each row are the most that a kernel reads.
    let prepared = rows * 4 * matrix.k_padded();
    let sums = rows * matrix.k_padded().max(acts.row_code_bytes(matrix.k)) / matrix.format.group();
    SCRATCH.with_borrow_mut(|scratch| {
        make_room(&mut scratch.prepared, prepared);
        make_room(&mut scratch.corrections, sums);
        make_room(&mut scratch.sums, sums);
    });
}

/// Likewise for [`over_experts`] with `entries` entries of up to `experts` experts.
pub(crate) fn warm_experts(matrix: &Matrix, acts: Acts, experts: usize, entries: usize) {
    warm(matrix, acts, entries);
    // Every expert's entries are whole blocks and a rest.
    let segments = entries / BLOCK + experts.min(entries);
    let mut list = SEGMENTS.take();
    make_room(&mut list, segments);
    SEGMENTS.set(list);
}

/// A packed matrix and the coded rows it is multiplied with.
pub(crate) struct Product<'a> {
    matrix: Matrix,
    codes: &'a [u8],
    scales: &'a [u8],
    input: ActRows<'a>,
    level: Level,
    kernel: Kernel,
}

impl<'a> Product<'a> {
    /// `codes` and `scales` of the whole matrix; the level is that of a [`HostExec`].
    pub fn new(
        exec: &HostExec,
        matrix: Matrix,
        (codes, scales): (&'a [u8], &'a [u8]),
        input: ActRows<'a>,
    ) -> Self {
        assert!(exec.level > Level::Scalar, "scalar runs are the reference's");
        let kernel = kernel(exec.level, matrix.format, input.acts);
        Product { matrix, codes, scales, input, level: exec.level, kernel }
    }

    /// Calls `sink(tile, outputs)` for every row tile in `tiles`; `outputs[i]` belongs to activation row
    /// `rows[i]`. At most [`BLOCK`] rows.
    pub fn tiles(&self, tiles: Range<usize>, rows: &[u32], mut sink: impl FnMut(usize, &mut [TileAcc])) {
        let mut acc = [[0.0; TILE_ROWS]; BLOCK];
        let mut unpacked = Unpacked([[0; 4 * TILE_ROWS]; MAX_STEPS]);
        SCRATCH.with_borrow_mut(|scratch| {
            self.fill(scratch, rows);
            self.prepare(scratch, rows);
            for tile in tiles {
                let acc = &mut acc[..rows.len()];
                self.tile(tile, rows, scratch, &mut unpacked, acc);
                sink(tile, acc);
            }
        });
    }

    /// Sums of activation codes per weight group, where the formats need them.
    fn fill(&self, scratch: &mut Scratch, rows: &[u32]) {
        scratch.corrections.clear();
        scratch.sums.clear();
        let (offset, zero) = (self.kernel.offset, self.matrix.format.has_zero());
        if offset == 0 && !zero {
            return;
        }
        let group = self.matrix.format.group() * self.input.acts.code_bytes();
        for &row in rows {
            for codes in self.input.codes(row as usize).chunks_exact(group) {
                let sum = match self.input.acts {
                    Acts::A8 => per_level!(self.level, sum8(codes: &[u8]) -> i32),
                    Acts::A16 => per_level!(self.level, sum16(codes: &[u8]) -> i32),
                };
                match zero {
                    true => scratch.sums.push(sum as f32),
                    false => scratch.corrections.push(-offset * sum),
                }
            }
        }
    }

    /// Codes in the form that the kernel reads, if that is not as stored.
    fn prepare(&self, scratch: &mut Scratch, rows: &[u32]) {
        scratch.prepared.clear();
        if let (Some(Single { lay, .. }), [row]) = (self.kernel.single, rows) {
            let codes = self.input.codes(*row as usize);
            scratch.prepared.resize(2 * codes.len(), 0);
            // SAFETY: as in `tile`.
            unsafe { lay(codes, &mut scratch.prepared) };
            return;
        }
        if self.kernel.codes == Codes::Stored {
            return;
        }
        let plane = 2 * self.matrix.k_padded();
        let planes = if self.kernel.codes == Codes::Split { 2 } else { 1 };
        scratch.prepared.resize(rows.len() * planes * plane, 0);
        for (&row, out) in rows.iter().zip(scratch.prepared.chunks_exact_mut(planes * plane)) {
            let codes = self.input.codes(row as usize);
            match self.kernel.codes {
                Codes::Split => per_level!(self.level, split(codes: &[u8], out: &mut [u8])),
                _ => per_level!(self.level, widen(codes: &[u8], out: &mut [u8])),
            }
        }
    }

    fn tile(
        &self,
        tile: usize,
        rows: &[u32],
        scratch: &Scratch,
        unpacked: &mut Unpacked,
        acc: &mut [TileAcc],
    ) {
        let matrix = &self.matrix;
        let groups = matrix.groups();
        let codes = &self.codes[tile * matrix.tile_code_bytes()..][..matrix.tile_code_bytes()];
        let scales = &self.scales[tile * matrix.tile_scale_bytes()..][..matrix.tile_scale_bytes()];
        let group_codes = codes.chunks_exact(matrix.tile_code_bytes() / groups);
        let group_scales = scales.chunks_exact(matrix.group_scale_bytes());
        acc.fill([0.0; TILE_ROWS]);
        for (index, (codes, scales)) in group_codes.zip(group_scales).enumerate() {
            let steps = &mut unpacked.0[..self.kernel.steps];
            let single = self.kernel.single.filter(|_| rows.len() == 1);
            if single.is_none() {
                // SAFETY: the kernel is that of the level of a HostExec, which exists only if this machine
                // has it.
                unsafe { (self.kernel.unpack)(codes, steps) };
            }
            let group = Group {
                steps,
                scales,
                index,
                act_group: index * matrix.format.group() / ACT_GROUP,
                input: &self.input,
                rows,
                prepared: &scratch.prepared,
                plane_bytes: 2 * matrix.k_padded(),
                corrections: &scratch.corrections,
                sums: &scratch.sums,
                groups,
            };
            match single {
                // SAFETY: as above.
                Some(single) => unsafe { (single.run)(codes, &group, acc) },
                // SAFETY: as above.
                None => unsafe { (self.kernel.rows)(&group, acc) },
            }
        }
    }
}

#[inline(always)]
fn widen(codes: &[u8], out: &mut [u8]) {
    for (out, code) in out.as_chunks_mut().0.iter_mut().zip(codes) {
        *out = i16::from(*code as i8).to_le_bytes();
    }
}

#[inline(always)]
fn split(codes: &[u8], out: &mut [u8]) {
    let (upper, lower) = out.split_at_mut(codes.len());
    let out = upper.as_chunks_mut().0.iter_mut().zip(lower.as_chunks_mut().0);
    for ((upper, lower), code) in out.zip(codes.as_chunks().0) {
        let code = i16::from_le_bytes(*code);
        *upper = (code >> 8).to_le_bytes();
        *lower = (code & 255).to_le_bytes();
    }
}

#[inline(always)]
fn sum8(codes: &[u8]) -> i32 {
    let mut sum = 0;
    for code in codes {
        sum += i32::from(*code as i8);
    }
    sum
}

#[inline(always)]
fn sum16(codes: &[u8]) -> i32 {
    let codes = codes.as_chunks().0;
    let mut sum = 0;
    for code in codes {
        sum += i32::from(i16::from_le_bytes(*code));
    }
    sum
}

/// Calls `work(segment, tiles)` on the workers, so that every row tile of every segment is met once. A
/// segment is a block of rows and the matrix it meets; `rows` is the usual number of rows in one.
pub(crate) fn over_tiles(
    exec: &HostExec,
    segments: usize,
    matrix: &Matrix,
    rows: usize,
    work: impl Fn(usize, Range<usize>) + Sync,
) {
    let tiles = matrix.row_tiles();
    // A piece of work takes some microseconds at least. Unpacking costs as much as two rows.
    let grain = (1 << 18) / (TILE_ROWS * matrix.k_padded() * (rows + 2));
    exec.parts(segments * tiles, grain, |range| {
        let mut at = range.start;
        while at < range.end {
            let (segment, first) = (at / tiles, at % tiles);
            let end = (first + range.end - at).min(tiles);
            work(segment, first..end);
            at += end - first;
        }
    });
}

/// Some entries of one expert, at most [`BLOCK`].
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub expert: usize,
    /// Where in the grouping.
    first: usize,
    len: usize,
}

thread_local! {
    static SEGMENTS: RefCell<Vec<Segment>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work(segment, its entries, tiles)` on the workers, so that every entry meets every row tile of its
/// expert's `matrix` once.
pub(crate) fn over_experts(
    exec: &HostExec,
    entries: &Entries<'_>,
    matrix: &Matrix,
    work: impl Fn(&Segment, &[u32], Range<usize>) + Sync,
) {
    // Taken out, not borrowed: while this worker waits for the others it may start another step.
    let mut segments = SEGMENTS.take();
    segments.clear();
    for (expert, places) in entries.routed() {
        let starts = places.clone().step_by(BLOCK);
        segments.extend(starts.map(|first| Segment { expert, first, len: BLOCK.min(places.end - first) }));
    }
    let usual = entries.all().len() / segments.len().max(1);
    over_tiles(exec, segments.len(), matrix, usual, |i, tiles| {
        let segment = &segments[i];
        work(segment, &entries.all()[segment.first..][..segment.len], tiles);
    });
    SEGMENTS.set(segments);
}

/// An output matrix that workers fill in disjoint pieces.
pub(crate) struct SharedOut<'a, T> {
    start: *mut T,
    len: usize,
    lives: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `piece`, whose callers keep pieces disjoint.
unsafe impl<T: Send> Sync for SharedOut<'_, T> {}

impl<'a, T> SharedOut<'a, T> {
    pub fn new(out: &'a mut [T]) -> Self {
        SharedOut { start: out.as_mut_ptr(), len: out.len(), lives: PhantomData }
    }

    /// `len` elements from `at` on.
    ///
    /// # Safety
    /// No two pieces that are alive at the same time overlap.
    #[allow(clippy::mut_from_ref)] // the caller's promise
    pub unsafe fn piece(&self, at: usize, len: usize) -> &mut [T] {
        assert!(at + len <= self.len, "piece {at}..{} of {} elements", at + len, self.len);
        // SAFETY: inside the slice this was made from, which is borrowed for 'a; disjoint by the caller's
        // promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

/// Activation rows of a block, on the stack.
pub(crate) struct BlockRows([u32; BLOCK], usize);

impl BlockRows {
    /// At most [`BLOCK`] rows.
    pub fn new(rows: impl ExactSizeIterator<Item = u32>) -> Self {
        let mut block = BlockRows([0; BLOCK], rows.len());
        block.0[..rows.len()].iter_mut().zip(rows).for_each(|(place, row)| *place = row);
        block
    }

    pub fn get(&self) -> &[u32] {
        &self.0[..self.1]
    }
}

pub(super) fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let rows = args.rows.len();
    let matrix = Matrix::new(desc.format, desc.n, desc.k);
    let input = ActRows::bind(&args.reads, 0, rows, desc.k, desc.acts);
    let weight = args.reads.bytes(2)[..matrix.bytes()].split_at(matrix.code_bytes());
    let bias = desc.bias.then(|| args.reads.f32(3, desc.n));
    let y = SharedOut::new(args.writes.f32(0, rows * desc.n));
    let product = Product::new(exec, matrix, weight, input);
    over_tiles(exec, rows.div_ceil(BLOCK), &matrix, rows.min(BLOCK), |block, tiles| {
        let block = BlockRows::new((block * BLOCK) as u32..(rows.min((block + 1) * BLOCK)) as u32);
        product.tiles(tiles, block.get(), |tile, acc| {
            let n = tile * TILE_ROWS;
            let width = TILE_ROWS.min(desc.n - n);
            for (&row, acc) in block.get().iter().zip(acc) {
                // SAFETY: each (row, row tile) is met once.
                let out = unsafe { y.piece(row as usize * desc.n + n, width) };
                match bias {
                    None => out.copy_from_slice(&acc[..width]),
                    Some(b) => out.iter_mut().zip(acc).zip(&b[n..]).for_each(|((y, acc), b)| *y = *acc + b),
                }
            }
        });
    });
}
