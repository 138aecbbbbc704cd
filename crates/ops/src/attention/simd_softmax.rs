//! Four query heads against one block: scores, exp, codes of P, values, and the merge with earlier blocks.
//! Loops of plain float operations; the functions of [`super::simd`] compile them for a level.

use super::simd_gemm::{PANEL, Product, ROWS};
use super::simd_unpack::{Block, KEY_PANELS, POSITION_PAIRS};
use super::{BLOCK, Desc};
use crate::format::{Acts, KvFormat};
use crate::kv_write::coding::TINY;
use crate::kv_write::layout::{KvLayout, SLICE};
use crate::kv_write::simd::{ROUNDER, code_slice_wide, rotate_wide};
use crate::simd::per_level;
use crate::{Level, math};

/// Coded query heads of a tile.
#[derive(Default)]
pub struct Queries {
    /// `[plane][item][head_dim]`: one plane of codes, or upper (signed) and lower (unsigned) bytes.
    codes: Vec<i16>,
    /// `[item][slice]`.
    scales: Vec<f32>,
    planes: usize,
    /// Items, to a multiple of [`ROWS`].
    items: usize,
    max_code: i32,
}

/// Two 16-bit codes multiply in planes of 8 bits: their sums would not fit i32.
fn planes(desc: &Desc) -> usize {
    if desc.acts == Acts::A16 && desc.kv == KvFormat::K16 { 2 } else { 1 }
}

/// Plane `plane` of `planes` of a code.
#[inline(always)]
fn plane_of(code: i32, plane: usize, planes: usize) -> i16 {
    match (planes, plane) {
        (1, _) => code as i16,
        (_, 0) => (code >> 8) as i16,
        _ => (code & 255) as i16,
    }
}

impl Queries {
    /// Makes room for `items` zero codes each.
    pub fn fit(&mut self, desc: &Desc, layout: &KvLayout, items: usize) {
        (self.planes, self.items, self.max_code) = (planes(desc), items, desc.acts.max_code());
        self.codes.clear();
        self.codes.resize(self.planes * items * layout.head_dim, 0);
        self.scales.clear();
        self.scales.resize(items * layout.slices(), 0.0);
    }

    /// Codes item `i`.
    pub fn code(&mut self, level: Level, layout: &KvLayout, i: usize, q: &[f32]) {
        let queries = self;
        per_level!(level, code_query(queries: &mut Queries, layout: &KvLayout, i: usize, q: &[f32]));
    }

    /// Items `i..i + 4` of slice `s` as rows of a product, in plane `plane`.
    fn rows(&self, layout: &KvLayout, plane: usize, i: usize, s: usize) -> &[i16] {
        let at = (plane * self.items + i) * layout.head_dim + s * SLICE;
        &self.codes[at..][..(ROWS - 1) * layout.head_dim + layout.slice(s).len()]
    }
}

#[inline(always)]
fn code_query(queries: &mut Queries, layout: &KvLayout, i: usize, q: &[f32]) {
    for s in 0..layout.slices() {
        let range = layout.slice(s);
        let len = range.len();
        let mut x = [0.0f32; SLICE];
        x[..len].copy_from_slice(&q[range.clone()]);
        if layout.rotates(len) {
            rotate_wide(&mut x[..len]);
            let inverse = 1.0 / len as f32;
            for x in &mut x {
                *x *= inverse;
            }
        }
        let mut codes = [0i32; SLICE];
        let scale = code_slice_wide(&x[..len], queries.max_code, &mut codes[..len]);
        queries.scales[i * layout.slices() + s] = scale;
        for plane in 0..queries.planes {
            let at = (plane * queries.items + i) * layout.head_dim + range.start;
            let (planes, out) = (queries.planes, &mut queries.codes[at..][..len]);
            for e in 0..len {
                out[e] = plane_of(codes[e], plane, planes);
            }
        }
    }
}

/// A softmax that is not yet finished; its output is held elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Partial {
    /// Largest score.
    pub m: f32,
    /// Sum of exp(score - m).
    pub l: f32,
    /// There is something in it.
    pub seen: bool,
}

impl Partial {
    /// Joins m and l of later positions; gives the factors of the two outputs, `None` if this was empty.
    #[inline(always)]
    fn factors(&mut self, m: f32, l: f32) -> Option<(f32, f32)> {
        if !std::mem::replace(&mut self.seen, true) {
            (self.m, self.l) = (m, l);
            return None;
        }
        let top = if m > self.m { m } else { self.m };
        let (a, b) = (math::exp(self.m - top), math::exp(m - top));
        self.l = math::fma(self.l, a, l * b);
        self.m = top;
        Some((a, b))
    }

    /// Joins a partial of later positions, outputs included.
    #[inline(always)]
    pub fn join(&mut self, m: f32, l: f32, next: &[f32], o: &mut [f32]) {
        match self.factors(m, l) {
            None => o.copy_from_slice(next),
            Some((a, b)) => {
                let next = &next[..o.len()];
                for e in 0..o.len() {
                    o[e] = math::fma(o[e], a, next[e] * b);
                }
            }
        }
    }
}

/// A query head of a row on its way through the blocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Item {
    /// Positions it attends to: 0 up to this, exclusive.
    pub sees: usize,
    /// It met a score or a value scale that is not finite.
    pub bad: bool,
    /// Of the split that is being walked.
    pub split: Partial,
    /// Of all splits before.
    pub total: Partial,
}

/// A block that is being attended to.
#[derive(Clone, Copy)]
pub struct Softmax<'a> {
    pub desc: &'a Desc,
    pub layout: &'a KvLayout,
    pub block: &'a Block,
    /// First position of the block.
    pub first: usize,
    /// Positions of it that any item of the tile sees.
    pub count: usize,
}

/// Sums of a product in both planes, `[plane][row, panel]`; kept from block to block so that it need not be
/// cleared.
pub type Sums = [[[i32; PANEL]; ROWS * SLICE / PANEL]; 2];

/// No sums.
pub const NO_SUMS: Sums = [[[0; PANEL]; ROWS * SLICE / PANEL]; 2];

const _: () = assert!(KEY_PANELS <= SLICE / PANEL, "the sums of a block of keys fit");

/// Items `i..i + 4` of a tile against one block; `o` are their outputs over the split, `[4][head_dim]`.
#[inline(always)]
pub fn four(
    softmax: Softmax<'_>,
    queries: &Queries,
    i: usize,
    items: &mut [Item; ROWS],
    o: &mut [f32],
    sums: &mut Sums,
    gemm: impl Fn(Product<'_>, usize, &mut [[i32; PANEL]]),
) {
    let mut scores = [[0.0f32; BLOCK]; ROWS];
    for s in 0..softmax.layout.slices() {
        add_scores(softmax, queries, i, s, &mut scores, sums, &gemm);
    }
    let mut p = [[0.0f32; BLOCK]; ROWS];
    let mut factors = [None; ROWS];
    // Positions of the block that a row takes part with; 0 = none.
    let mut seen = [0; ROWS];
    for (row, item) in items.iter_mut().enumerate() {
        let sees = item.sees.saturating_sub(softmax.first).min(BLOCK);
        if sees == 0 || item.bad {
            continue;
        }
        match exponentials(&scores[row], softmax.desc.scale, sees, &mut p[row]) {
            None => item.bad = true,
            Some((m, l)) => {
                seen[row] = sees;
                factors[row] = item.split.factors(m, l);
            }
        }
    }
    for s in 0..softmax.layout.slices() {
        let good = add_values(softmax, s, &p, seen, factors, o, sums, &gemm);
        for (item, good) in items.iter_mut().zip(good) {
            item.bad |= !good;
        }
    }
}

/// Adds slice `s` to the unscaled scores.
#[inline(always)]
fn add_scores(
    softmax: Softmax<'_>,
    queries: &Queries,
    i: usize,
    s: usize,
    scores: &mut [[f32; BLOCK]; ROWS],
    sums: &mut Sums,
    gemm: &impl Fn(Product<'_>, usize, &mut [[i32; PANEL]]),
) {
    let (layout, block) = (softmax.layout, softmax.block);
    let panels = softmax.count.div_ceil(PANEL);
    for plane in 0..queries.planes {
        let product = Product {
            rows: queries.rows(layout, plane, i, s),
            stride: layout.head_dim,
            panels: &block.k[Block::key_panels_at(s)..],
            panel_pairs: SLICE / 2,
            pairs: layout.slice(s).len() / 2,
        };
        gemm(product, panels, &mut sums[plane]);
    }
    for (row, scores) in scores.iter_mut().enumerate() {
        let sq = queries.scales[(i + row) * layout.slices() + s];
        for panel in 0..panels {
            let at = row * panels + panel;
            let dots = join_planes(&sums[0][at], &sums[1][at], queries.planes);
            let scales = &block.k_scales[s][panel * PANEL..][..PANEL];
            let scores = &mut scores[panel * PANEL..][..PANEL];
            for ((score, dot), sk) in scores.iter_mut().zip(dots).zip(scales) {
                *score = math::fma(dot * sq, *sk, *score);
            }
        }
    }
}

/// The exact sums, rounded once to f32.
#[inline(always)]
fn join_planes(first: &[i32; PANEL], second: &[i32; PANEL], planes: usize) -> [f32; PANEL] {
    let mut out = [0.0f32; PANEL];
    if planes == 1 {
        for c in 0..PANEL {
            out[c] = first[c] as f32;
        }
    } else {
        // Exact in f64: both are below 2^31.
        for c in 0..PANEL {
            out[c] = (f64::from(first[c]) * 256.0 + f64::from(second[c])) as f32;
        }
    }
    out
}

/// Floats that a loop treats alike: a vector of AVX2, half a one of AVX-512.
const WIDTH: usize = 8;

/// The largest of `top`; `None` if the largest of `worst`, magnitudes by their bits, is not finite.
#[inline(always)]
fn finite_top(worst: &[i32; WIDTH], top: &[f32; WIDTH]) -> Option<f32> {
    let (mut magnitude, mut m) = (worst[0], top[0]);
    for c in 1..WIDTH {
        magnitude = if worst[c] > magnitude { worst[c] } else { magnitude };
        m = if top[c] > m { top[c] } else { m };
    }
    (magnitude < f32::INFINITY.to_bits() as i32).then_some(m)
}

/// Scales the scores of the first `sees` positions; gives their maximum, exp(score - maximum) with zeros at
/// masked positions, and the sum. `None` if a score is not finite.
#[inline(always)]
fn exponentials(scores: &[f32; BLOCK], scale: f32, sees: usize, p: &mut [f32; BLOCK]) -> Option<(f32, f32)> {
    let (mut worst, mut top) = ([0i32; WIDTH], [f32::NEG_INFINITY; WIDTH]);
    for j in (0..BLOCK).step_by(WIDTH) {
        for c in 0..WIDTH {
            let (score, seen) = (scores[j + c] * scale, ((j + c) as i32) < sees as i32);
            let score = if seen { score } else { f32::NEG_INFINITY };
            let magnitude = if seen { (score.to_bits() & 0x7fff_ffff) as i32 } else { 0 };
            p[j + c] = score;
            worst[c] = if magnitude > worst[c] { magnitude } else { worst[c] };
            top[c] = if score > top[c] { score } else { top[c] };
        }
    }
    let m = finite_top(&worst, &top)?;
    for p in p.iter_mut() {
        // exp(-inf) is 0.
        *p = math::exp(*p - m);
    }
    let mut sums = [0.0f32; 4];
    for eight in p.chunks_exact(8) {
        for t in 0..4 {
            sums[t] += eight[2 * t];
            sums[t] += eight[2 * t + 1];
        }
    }
    Some((m, (sums[0] + sums[1]) + (sums[2] + sums[3])))
}

/// Values of slice `s`, merged into the outputs; says for which rows all value scales were finite.
#[inline(always)]
fn add_values(
    softmax: Softmax<'_>,
    s: usize,
    p: &[[f32; BLOCK]; ROWS],
    seen: [usize; ROWS],
    factors: [Option<(f32, f32)>; ROWS],
    o: &mut [f32],
    sums: &mut Sums,
    gemm: &impl Fn(Product<'_>, usize, &mut [[i32; PANEL]]),
) -> [bool; ROWS] {
    let (layout, block) = (softmax.layout, softmax.block);
    let planes = planes(softmax.desc);
    let max_p = softmax.desc.acts.max_p() as f32;
    let mut codes = [[[0i16; BLOCK]; ROWS]; 2];
    let mut units = [0.0f32; ROWS];
    let mut good = [true; ROWS];
    for row in 0..ROWS {
        if seen[row] == 0 {
            continue;
        }
        let mut coded = [0i32; BLOCK];
        match code_weights(&p[row], &block.v_scales[s], seen[row], max_p, &mut coded) {
            Some(unit) => units[row] = unit,
            None => good[row] = false,
        }
        for plane in 0..planes {
            for j in 0..BLOCK {
                codes[plane][row][j] = plane_of(coded[j], plane, planes);
            }
        }
    }
    let range = layout.slice(s);
    let panels = range.len() / PANEL;
    for plane in 0..planes {
        let product = Product {
            rows: codes[plane].as_flattened(),
            stride: BLOCK,
            panels: &block.v[Block::value_panels_at(range.start)..],
            panel_pairs: POSITION_PAIRS,
            pairs: softmax.count.div_ceil(2),
        };
        gemm(product, panels, &mut sums[plane]);
    }
    for row in 0..ROWS {
        if seen[row] == 0 {
            continue;
        }
        let o = &mut o[row * layout.head_dim + range.start..][..range.len()];
        for (panel, o) in o.chunks_exact_mut(PANEL).enumerate() {
            let o: &mut [f32; PANEL] = o.try_into().expect("a panel");
            let at = row * panels + panel;
            let sums = join_planes(&sums[0][at], &sums[1][at], planes);
            match factors[row] {
                None => {
                    for c in 0..PANEL {
                        o[c] = sums[c] * units[row];
                    }
                }
                Some((a, b)) => {
                    for c in 0..PANEL {
                        o[c] = math::fma(o[c], a, (sums[c] * units[row]) * b);
                    }
                }
            }
        }
    }
    good
}

/// Codes of P for one slice of V, 0 at masked positions; gives c/R (0 and codes 0 if c is tiny), `None` if a
/// weight is not finite.
#[inline(always)]
fn code_weights(
    p: &[f32; BLOCK],
    scales: &[f32; BLOCK],
    sees: usize,
    max_p: f32,
    codes: &mut [i32; BLOCK],
) -> Option<f32> {
    let mut weights = [0.0f32; BLOCK];
    let (mut worst, mut top) = ([0i32; WIDTH], [0.0f32; WIDTH]);
    for j in (0..BLOCK).step_by(WIDTH) {
        for c in 0..WIDTH {
            let weight = p[j + c] * scales[j + c];
            let weight = if ((j + c) as i32) < sees as i32 { weight } else { 0.0 };
            let magnitude = (weight.to_bits() & 0x7fff_ffff) as i32;
            weights[j + c] = weight;
            worst[c] = if magnitude > worst[c] { magnitude } else { worst[c] };
            top[c] = if weight > top[c] { weight } else { top[c] };
        }
    }
    let c = finite_top(&worst, &top)?;
    if c < TINY {
        return Some(0.0);
    }
    let inverse = max_p / c;
    for j in 0..BLOCK {
        let y = (weights[j] * inverse).round_ties_even();
        let y = if y > 0.0 { y } else { 0.0 };
        let y = if y > max_p { max_p } else { y };
        codes[j] = (y + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
    }
    Some(c / max_p)
}
