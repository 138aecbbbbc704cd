//! The definition of `attention`.

use std::ops::Range;

use super::{BLOCK, Desc, SPLIT};
use crate::kv_write::coding::{TINY, code_slice, rotate};
use crate::kv_write::layout::{KvLayout, SLICE, Side};
use crate::{HostArgs, args, math};

/// Sequence by sequence, KV head by KV head, row by row, query head by query head.
pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let layout = KvLayout::new(desc.kv_heads, desc.head_dim, desc.kv, args.context);
    let (group, dim, width) = (desc.heads / desc.kv_heads, desc.head_dim, desc.heads * desc.head_dim);
    let q = args.reads.f32(0, args.rows.len() * width);
    let state = args.reads.bytes(1);
    let o = args.writes.f32(0, args.rows.len() * width);
    for (first, run) in args::runs(args.rows) {
        let last = run[run.len() - 1].pos as usize;
        assert!(last < args.context, "position {last} lies outside a context of {}", args.context);
        for kv_head in 0..desc.kv_heads {
            let head = &state[layout.head_at(run[0].seq as usize, kv_head)..][..layout.head_bytes()];
            let past = Past {
                desc,
                layout,
                k: stored(&layout, Side::K, head, last),
                v: stored(&layout, Side::V, head, last),
            };
            for (i, row) in run.iter().enumerate() {
                for head in kv_head * group..(kv_head + 1) * group {
                    let at = (first + i) * width + head * dim;
                    let query = code_query(desc, &layout, &q[at..][..dim]);
                    past.attend(&query, row.pos as usize, &mut o[at..][..dim]);
                }
            }
        }
    }
}

/// Codes `[rows][head_dim]` and scales `[rows][slices]` of one head.
struct Coded {
    codes: Vec<i32>,
    scales: Vec<f32>,
}

/// Keys or values of positions 0..=last.
fn stored(layout: &KvLayout, side: Side, head: &[u8], last: usize) -> Coded {
    let mut coded = Coded { codes: vec![0; (last + 1) * layout.head_dim], scales: Vec::new() };
    for (pos, codes) in coded.codes.chunks_exact_mut(layout.head_dim).enumerate() {
        let at = layout.codes_at(side) + pos * layout.row_bytes();
        layout.unpack_row(&head[at..][..layout.row_bytes()], codes);
        let at = layout.scales_at(side) + 4 * pos * layout.slices();
        for scale in head[at..][..4 * layout.slices()].chunks_exact(4) {
            coded.scales.push(f32::from_le_bytes(scale.try_into().expect("four bytes")));
        }
    }
    coded
}

/// One query head as codes of the activation width.
fn code_query(desc: &Desc, layout: &KvLayout, q: &[f32]) -> Coded {
    let mut query = Coded { codes: vec![0; desc.head_dim], scales: Vec::new() };
    for s in 0..layout.slices() {
        let range = layout.slice(s);
        let mut slice = q[range.clone()].to_vec();
        if layout.rotates(slice.len()) {
            rotate(&mut slice);
            // Exact: the length is a power of two.
            let inverse = 1.0 / slice.len() as f32;
            slice.iter_mut().for_each(|x| *x *= inverse);
        }
        let scale = code_slice(&slice, desc.acts.max_code(), &mut query.codes[range]);
        query.scales.push(scale);
    }
    query
}

/// A softmax that is not yet finished: over a block, a split or all positions so far.
#[derive(Debug, Clone)]
struct Partial {
    /// Largest score.
    m: f32,
    /// Sum of exp(score - m).
    l: f32,
    /// Sum of exp(score - m) · value.
    o: Vec<f32>,
}

impl Partial {
    /// Joins the partial of later positions.
    fn merge(&mut self, next: &Partial) {
        let m = self.m.max(next.m);
        let (a, b) = (math::exp(self.m - m), math::exp(next.m - m));
        self.l = self.l.mul_add(a, next.l * b);
        for (o, next) in self.o.iter_mut().zip(&next.o) {
            *o = o.mul_add(a, next * b);
        }
        self.m = m;
    }
}

fn join(sum: &mut Option<Partial>, next: Partial) {
    match sum {
        None => *sum = Some(next),
        Some(sum) => sum.merge(&next),
    }
}

/// What the rows of a run attend to: one KV head of their sequence.
struct Past<'a> {
    desc: &'a Desc,
    layout: KvLayout,
    k: Coded,
    v: Coded,
}

impl Past<'_> {
    /// Attends to positions 0..=pos. A score or a value scale that is not finite makes the whole output NaN
    /// (`0x7fc00000`).
    fn attend(&self, query: &Coded, pos: usize, out: &mut [f32]) {
        let mut total: Option<Partial> = None;
        for split in (0..=pos).step_by(SPLIT) {
            let mut sum: Option<Partial> = None;
            for block in (split..(split + SPLIT).min(pos + 1)).step_by(BLOCK) {
                match self.block(query, block..(block + BLOCK).min(pos + 1)) {
                    Some(next) => join(&mut sum, next),
                    None => return out.fill(f32::NAN),
                }
            }
            join(&mut total, sum.expect("a split holds a position"));
        }
        let total = total.expect("a row sees its own position");
        for (out, o) in out.iter_mut().zip(&total.o) {
            let value = o / total.l;
            *out = if value.is_nan() { f32::NAN } else { value };
        }
    }

    /// One block of positions; `None` if a score or a value scale is not finite.
    fn block(&self, query: &Coded, positions: Range<usize>) -> Option<Partial> {
        let scores: Vec<f32> = positions.clone().map(|j| self.score(query, j)).collect();
        if scores.iter().any(|s| !s.is_finite()) {
            return None;
        }
        let m = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        // Masked positions are zeros.
        let mut p = [0.0f32; BLOCK];
        for (p, s) in p.iter_mut().zip(&scores) {
            *p = math::exp(s - m);
        }
        let mut sums = [0.0f32; 4];
        for n in 0..BLOCK / 8 {
            for (t, sum) in sums.iter_mut().enumerate() {
                *sum += p[8 * n + 2 * t];
                *sum += p[8 * n + 2 * t + 1];
            }
        }
        let l = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        let mut o = vec![0.0f32; self.desc.head_dim];
        for s in 0..self.layout.slices() {
            self.values(positions.clone(), s, &p, &mut o[self.layout.slice(s)])?;
        }
        Some(Partial { m, l, o })
    }

    /// The scaled score of position `j`.
    fn score(&self, query: &Coded, j: usize) -> f32 {
        let slices = self.layout.slices();
        let k = &self.k.codes[j * self.desc.head_dim..];
        let mut score = 0.0f32;
        for s in 0..slices {
            let range = self.layout.slice(s);
            let dot: i64 = range.map(|e| i64::from(query.codes[e]) * i64::from(k[e])).sum();
            score = (dot as f32 * query.scales[s]).mul_add(self.k.scales[j * slices + s], score);
        }
        score * self.desc.scale
    }

    /// `o_b` of one slice of V; `None` if a value scale is not finite.
    fn values(&self, positions: Range<usize>, slice: usize, p: &[f32; BLOCK], out: &mut [f32]) -> Option<()> {
        let slices = self.layout.slices();
        let scale = |j: usize| self.v.scales[j * slices + slice];
        let weighted: Vec<f32> = positions.clone().zip(p).map(|(j, p)| p * scale(j)).collect();
        if weighted.iter().any(|w| !w.is_finite()) {
            return None;
        }
        let c = weighted.iter().copied().fold(0.0, f32::max);
        if c < TINY {
            out.fill(0.0);
            return Some(());
        }
        let r = self.desc.acts.max_p() as f32;
        let inverse = r / c;
        let mut sums = [0i64; SLICE];
        for (j, w) in positions.zip(&weighted) {
            let code = (w * inverse).round_ties_even().clamp(0.0, r) as i64;
            let v = &self.v.codes[j * self.desc.head_dim..][self.layout.slice(slice)];
            for (sum, v) in sums.iter_mut().zip(v) {
                *sum += code * i64::from(*v);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = sum as f32 * (c / r);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use crate::format::{Acts, KvFormat};
    use crate::kv_write::reference::store;
    use base::philox::Stream;
    use zerocopy::IntoBytes;

    /// Relative RMS distance of a decode step at position `pos` from softmax attention in f64.
    fn distance(acts: Acts, kv: KvFormat, head_dim: usize, pos: usize) -> f64 {
        let desc =
            Desc { heads: 2, kv_heads: 1, head_dim, acts, kv, scale: (head_dim as f32).sqrt().recip() };
        desc.validate().expect("valid");
        let layout = KvLayout::new(1, head_dim, kv, pos + 1);
        let mut random = Stream::new(9);
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.normal()).collect() };
        let (q, k, v) = (floats(2 * head_dim), floats((pos + 1) * head_dim), floats((pos + 1) * head_dim));
        let mut state = vec![0; layout.sequence_bytes()];
        for (j, (k, v)) in k.chunks(head_dim).zip(v.chunks(head_dim)).enumerate() {
            store(&layout, Side::K, j, k, &mut state);
            store(&layout, Side::V, j, v, &mut state);
        }
        let mut o = vec![0.0f32; 2 * head_dim];
        let rows = [crate::Row { seq: 0, pos: pos as u32 }];
        let reads = crate::Reads([q.as_bytes(), &state[..]].into_iter().collect());
        let writes = crate::Writes([o.as_mut_bytes()].into_iter().collect());
        desc.reference(HostArgs {
            rows: &rows,
            context: pos + 1,
            reads,
            writes,
            experts: crate::Experts::default(),
        });
        let (mut error, mut norm) = (0.0, 0.0);
        for (q, o) in q.chunks(head_dim).zip(o.chunks(head_dim)) {
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let p: Vec<f64> =
                k.chunks(head_dim).map(|k| math::f64::exp(dot(q, k) * f64::from(desc.scale))).collect();
            let sum: f64 = p.iter().sum();
            for (e, o) in o.iter().enumerate() {
                let want: f64 = p.iter().enumerate().map(|(j, p)| p * f64::from(v[j * head_dim + e])).sum();
                error += (want / sum - f64::from(*o)).powi(2);
                norm += (want / sum).powi(2);
            }
        }
        (error / norm).sqrt()
    }

    #[test]
    fn it_is_softmax_attention() {
        let bounds = [(KvFormat::K4, 0.3), (KvFormat::K6, 0.07), (KvFormat::K8, 0.02), (KvFormat::K16, 1e-4)];
        for (kv, bound) in bounds {
            for (head_dim, pos) in [(64, 0), (128, 100), (80, 63), (256, 1090)] {
                let got = distance(Acts::A16, kv, head_dim, pos);
                assert!(got < bound, "{kv:?} {head_dim} {pos}: {got}");
                let got = distance(Acts::A8, kv, head_dim, pos);
                assert!(got < bound + 0.03, "A8 {kv:?} {head_dim} {pos}: {got}");
            }
        }
    }
}
