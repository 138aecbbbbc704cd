//! `attention` in tiles: the query heads of several rows that share a KV head walk its blocks together, so
//! that a block is unpacked once for all of them. Integer sums are exact in any order; every float chain is
//! per (row, head) and in the reference's order.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::cell::RefCell;

use super::simd_gemm::{PANEL, Product, ROWS, avx2, avx512};
use super::simd_softmax::{Item, NO_SUMS, Partial, Queries, Softmax, Sums, four};
use super::simd_unpack::Block;
use super::{BLOCK, Desc, SPLIT};
use crate::kv_write::layout::{KvLayout, Side};
use crate::simd::{make_room, per_level};
use crate::simd_out::Out;
use crate::{Dims, HostArgs, HostExec, Level, Row, args};

/// Query heads × rows of a tile: unpacking a block costs about as much as multiplying it with four of them,
/// and the outputs of 64 still fit L2.
const TILE: usize = 64;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Workers over (run, KV head, tile); if these are too few for all workers, over splits as well.
pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let width = desc.heads * desc.head_dim;
    let step = Step {
        desc: *desc,
        layout: KvLayout::new(desc.kv_heads, desc.head_dim, desc.kv, args.context),
        level: exec.level,
        rows: args.rows,
        q: args.reads.f32(0, args.rows.len() * width),
        state: args.reads.bytes(1),
        o: Out::new(args.writes.f32(0, args.rows.len() * width)),
    };
    let last = args.rows.iter().map(|r| r.pos as usize).max().unwrap_or(0);
    assert!(last < args.context, "position {last} lies outside a context of {}", args.context);
    let (tiles, splits) = (step.tiles(), last / SPLIT + 1);
    if tiles >= exec.threads() || splits == 1 {
        exec.parts(tiles, 1, |part| part.for_each(|tile| SCRATCH.with_borrow_mut(|s| step.whole(tile, s))));
        return;
    }
    // The buffer is taken out, not borrowed, while workers run: a worker that waits may start another op.
    let mut partials = PARTIALS.take();
    let size = step.partial_len();
    partials.resize((tiles * splits * size).max(partials.len()), 0.0);
    let out = Out::new(&mut partials);
    exec.parts(tiles * splits, 1, |part| {
        for task in part {
            // SAFETY: a task writes its own partial.
            let partial = unsafe { out.part(task * size, size) };
            SCRATCH.with_borrow_mut(|s| step.split(task / splits, task % splits, s, partial));
        }
    });
    exec.parts(tiles, 1, |part| {
        for tile in part {
            let partials = &partials[tile * splits * size..][..splits * size];
            SCRATCH.with_borrow_mut(|s| step.join(tile, partials, s));
        }
    });
    PARTIALS.set(partials);
}

/// See [`crate::Op::warm`].
pub fn warm(desc: &Desc, exec: &HostExec, dims: Dims) {
    let layout = KvLayout::new(desc.kv_heads, desc.head_dim, desc.kv, dims.context);
    let group = desc.heads / desc.kv_heads;
    SCRATCH.with_borrow_mut(|s| s.fit(desc, &layout, TILE.min(dims.rows * group)));
    // As `run` with one row of each sequence; only few of them are cut into splits.
    let tiles = desc.kv_heads * group.div_ceil(TILE);
    let sequences = dims.sequences.min((exec.threads() - 1) / tiles);
    let splits = dims.context.div_ceil(SPLIT);
    let mut partials = PARTIALS.take();
    make_room(&mut partials, sequences * tiles * splits * TILE.min(group) * (4 + desc.head_dim));
    PARTIALS.set(partials);
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
    static PARTIALS: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// What a worker holds while it walks the blocks of a tile.
struct Scratch {
    block: Block,
    queries: Queries,
    items: Vec<Item>,
    /// `[items][head_dim]`, of the split and of all splits so far.
    o_split: Vec<f32>,
    o_total: Vec<f32>,
    sums: Box<Sums>,
}

impl Scratch {
    /// Makes room for tiles of `count` items.
    fn fit(&mut self, desc: &Desc, layout: &KvLayout, count: usize) {
        let padded = count.next_multiple_of(ROWS);
        self.block.fit(layout);
        self.queries.fit(desc, layout, padded);
        make_room(&mut self.items, padded);
        self.o_split.resize((padded * desc.head_dim).max(self.o_split.len()), 0.0);
        self.o_total.resize((padded * desc.head_dim).max(self.o_total.len()), 0.0);
    }

    fn new() -> Self {
        Scratch {
            block: Block::default(),
            queries: Queries::default(),
            items: Vec::new(),
            o_split: Vec::new(),
            o_total: Vec::new(),
            sums: Box::new(NO_SUMS),
        }
    }
}

/// One run of the op.
struct Step<'a> {
    desc: Desc,
    layout: KvLayout,
    level: Level,
    rows: &'a [Row],
    q: &'a [f32],
    state: &'a [u8],
    o: Out<'a, f32>,
}

/// Items `first..first + count` of a run and KV head; item i is query head i % group of row i / group.
#[derive(Clone, Copy)]
struct Tile {
    /// First row of the run among the step's rows.
    run: usize,
    seq: usize,
    /// Position of the run's first row.
    pos: usize,
    kv_head: usize,
    first: usize,
    count: usize,
}

impl Step<'_> {
    fn group(&self) -> usize {
        self.desc.heads / self.desc.kv_heads
    }

    /// Tiles of a run of `rows` rows, per KV head.
    fn tiles_of(&self, rows: usize) -> usize {
        (rows * self.group()).div_ceil(TILE)
    }

    fn tiles(&self) -> usize {
        args::runs(self.rows).map(|(_, run)| self.tiles_of(run.len()) * self.desc.kv_heads).sum()
    }

    fn tile(&self, mut index: usize) -> Tile {
        for (first_row, run) in args::runs(self.rows) {
            let per_head = self.tiles_of(run.len());
            if index < per_head * self.desc.kv_heads {
                let first = index % per_head * TILE;
                return Tile {
                    run: first_row,
                    seq: run[0].seq as usize,
                    pos: run[0].pos as usize,
                    kv_head: index / per_head,
                    first,
                    count: TILE.min(run.len() * self.group() - first),
                };
            }
            index -= per_head * self.desc.kv_heads;
        }
        unreachable!("tiles are counted by tiles()")
    }

    /// Element of q and of the output where item `i` of a tile begins.
    fn item_at(&self, tile: Tile, i: usize) -> usize {
        let (row, head) = ((tile.first + i) / self.group(), (tile.first + i) % self.group());
        let head = tile.kv_head * self.group() + head;
        ((tile.run + row) * self.desc.heads + head) * self.desc.head_dim
    }

    /// Codes the tile's queries and forgets what was walked before.
    fn begin(&self, tile: Tile, scratch: &mut Scratch) {
        let dim = self.desc.head_dim;
        scratch.fit(&self.desc, &self.layout, tile.count);
        for i in 0..tile.count.next_multiple_of(ROWS) {
            // Rows past the tile's end fill up its last four: they see no position.
            let sees = if i < tile.count { tile.pos + (tile.first + i) / self.group() + 1 } else { 0 };
            scratch.items.push(Item { sees, ..Item::default() });
        }
        for i in 0..tile.count {
            let q = &self.q[self.item_at(tile, i)..][..dim];
            scratch.queries.code(self.level, &self.layout, i, q);
        }
    }

    /// Walks split `split` as far as the tile's last item sees it.
    fn walk(&self, tile: Tile, split: usize, scratch: &mut Scratch) {
        let end = scratch.items[tile.count - 1].sees;
        let head = &self.state[self.layout.head_at(tile.seq, tile.kv_head)..][..self.layout.head_bytes()];
        let Scratch { block, queries, items, o_split, sums, .. } = scratch;
        for first in (split * SPLIT..end.min((split + 1) * SPLIT)).step_by(BLOCK) {
            let count = BLOCK.min(end - first);
            // SAFETY: a level above Scalar has AVX2, and this is only run at such a level.
            unsafe { block.load(&self.layout, head, first, count) };
            let dim = self.desc.head_dim;
            for i in (0..items.len()).step_by(ROWS) {
                self.fetch(head, first + BLOCK, end, i / ROWS, items.len() / ROWS);
                let items: &mut [Item; ROWS] = (&mut items[i..i + ROWS]).try_into().expect("four items");
                if items.iter().all(|item| item.sees <= first) {
                    continue;
                }
                let o = &mut o_split[i * dim..][..ROWS * dim];
                let softmax = Softmax { desc: &self.desc, layout: &self.layout, block, first, count };
                match self.level {
                    // SAFETY: the level is available (HostExec::new asserts it).
                    Level::Avx512 => unsafe { four_avx512(softmax, queries, i, items, o, sums) },
                    // SAFETY: as above.
                    _ => unsafe { four_avx2(softmax, queries, i, items, o, sums) },
                }
            }
        }
    }

    /// Asks for part `part` of `parts` of the codes of the block at `first`, so that they come from memory
    /// while the block before is worked on.
    fn fetch(&self, head: &[u8], first: usize, end: usize, part: usize, parts: usize) {
        if first >= end {
            return;
        }
        let row_bytes = self.layout.row_bytes();
        let bytes = BLOCK.min(end - first) * row_bytes;
        let share = bytes.div_ceil(parts).next_multiple_of(LINE);
        for side in [Side::K, Side::V] {
            let codes = &head[self.layout.codes_at(side) + first * row_bytes..][..bytes];
            for at in (part * share..((part + 1) * share).min(bytes)).step_by(LINE) {
                // SAFETY: SSE is part of x86-64; a prefetch of an address in the slice touches nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(codes.as_ptr().add(at).cast()) };
            }
        }
    }

    /// A tile over all its splits.
    fn whole(&self, tile: usize, scratch: &mut Scratch) {
        let tile = self.tile(tile);
        self.begin(tile, scratch);
        for split in 0..scratch.items[tile.count - 1].sees.div_ceil(SPLIT) {
            self.walk(tile, split, scratch);
            let dim = self.desc.head_dim;
            for i in 0..tile.count {
                let split = std::mem::take(&mut scratch.items[i].split);
                if split.seen {
                    let next = &scratch.o_split[i * dim..][..dim];
                    let (total, o) = (&mut scratch.items[i].total, &mut scratch.o_total[i * dim..][..dim]);
                    merge(self.level, total, split, next, o);
                }
            }
        }
        self.finish(tile, scratch);
    }

    /// Floats of the partial of a tile over a split: per item m, l, whether it saw anything, whether all was
    /// finite, then o.
    fn partial_len(&self) -> usize {
        let most = args::runs(self.rows).map(|(_, run)| run.len() * self.group()).max().unwrap_or(0);
        most.min(TILE) * (4 + self.desc.head_dim)
    }

    /// A tile over one split.
    fn split(&self, tile: usize, split: usize, scratch: &mut Scratch, partial: &mut [f32]) {
        let (tile, dim) = (self.tile(tile), self.desc.head_dim);
        self.begin(tile, scratch);
        self.walk(tile, split, scratch);
        for (i, partial) in partial.chunks_exact_mut(4 + dim).take(tile.count).enumerate() {
            let Item { split, bad, .. } = scratch.items[i];
            partial[..4].copy_from_slice(&[split.m, split.l, f32::from(split.seen), f32::from(bad)]);
            partial[4..].copy_from_slice(&scratch.o_split[i * dim..][..dim]);
        }
    }

    /// Merges the partials of a tile's splits in ascending order.
    fn join(&self, tile: usize, partials: &[f32], scratch: &mut Scratch) {
        let (tile, dim) = (self.tile(tile), self.desc.head_dim);
        scratch.items.clear();
        scratch.items.resize(tile.count, Item::default());
        scratch.o_total.resize((tile.count * dim).max(scratch.o_total.len()), 0.0);
        for partial in partials.chunks_exact(self.partial_len()) {
            for (i, partial) in partial.chunks_exact(4 + dim).take(tile.count).enumerate() {
                let item = &mut scratch.items[i];
                item.bad |= partial[3] != 0.0;
                if partial[2] != 0.0 {
                    let split = Partial { m: partial[0], l: partial[1], seen: true };
                    let o = &mut scratch.o_total[i * dim..][..dim];
                    merge(self.level, &mut item.total, split, &partial[4..], o);
                }
            }
        }
        self.finish(tile, scratch);
    }

    /// Writes the outputs.
    fn finish(&self, tile: Tile, scratch: &Scratch) {
        let dim = self.desc.head_dim;
        for (i, item) in scratch.items[..tile.count].iter().enumerate() {
            // SAFETY: (row, head) is this tile's alone.
            let out = unsafe { self.o.part(self.item_at(tile, i), dim) };
            let o = &scratch.o_total[i * dim..][..dim];
            per_level!(self.level, divide(o: &[f32], item: &Item, out: &mut [f32]));
        }
    }
}

/// [`Partial::join`] at a level.
fn merge(level: Level, total: &mut Partial, split: Partial, next: &[f32], o: &mut [f32]) {
    #[inline(always)]
    fn join(total: &mut Partial, split: Partial, next: &[f32], o: &mut [f32]) {
        total.join(split.m, split.l, next, o);
    }
    per_level!(level, join(total: &mut Partial, split: Partial, next: &[f32], o: &mut [f32]));
}

/// The output of an item: `o / l`, with one NaN for all that is not finite.
#[inline(always)]
fn divide(o: &[f32], item: &Item, out: &mut [f32]) {
    if item.bad {
        return out.fill(f32::NAN);
    }
    let o = &o[..out.len()];
    for e in 0..out.len() {
        let value = o[e] / item.total.l;
        out[e] = if value.is_nan() { f32::NAN } else { value };
    }
}

/// [`four`] for AVX2.
///
/// # Safety
/// Needs AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn four_avx2(
    softmax: Softmax<'_>,
    queries: &Queries,
    i: usize,
    items: &mut [Item; ROWS],
    o: &mut [f32],
    sums: &mut Sums,
) {
    four(
        softmax,
        queries,
        i,
        items,
        o,
        sums,
        |product: Product<'_>, panels: usize, out: &mut [[i32; PANEL]]| {
            // SAFETY: the caller promises AVX2.
            unsafe { avx2(product, panels, out) }
        },
    );
}

/// [`four`] for AVX-512.
///
/// # Safety
/// Needs AVX-512 F, BW, VL, DQ and VNNI.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn four_avx512(
    softmax: Softmax<'_>,
    queries: &Queries,
    i: usize,
    items: &mut [Item; ROWS],
    o: &mut [f32],
    sums: &mut Sums,
) {
    four(
        softmax,
        queries,
        i,
        items,
        o,
        sums,
        |product: Product<'_>, panels: usize, out: &mut [[i32; PANEL]]| {
            // SAFETY: the caller promises AVX-512 F and VNNI.
            unsafe { avx512(product, panels, out) }
        },
    );
}
