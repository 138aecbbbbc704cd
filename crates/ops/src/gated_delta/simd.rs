//! `gated_delta` across the columns of the state. A column's operations are the reference's in the
//! reference's order; columns are independent, so they fill the vectors.

use std::cell::RefCell;

use super::{Desc, LANES, query_scale};
use crate::simd::per_level;
use crate::simd_out::Out;
use crate::{HostArgs, HostExec, args, math};

/// Rows whose q, k and gates are made before the columns are walked.
const CHUNK: usize = 32;

/// Columns of a block: dk rows of it stay in L1 while a chunk of tokens passes.
const WIDE: usize = 16;

/// Workers over (run, value head).
pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let state_len = desc.dk * desc.dv;
    let sequences = args.rows.iter().map(|r| r.seq as usize + 1).max().unwrap_or(0);
    let inputs = Inputs {
        desc: *desc,
        qkv: args.reads.f32(0, args.rows.len() * desc.qkv_width()),
        ba: args.reads.f32(1, args.rows.len() * 2 * desc.value_heads),
        decay: args.reads.f32(2, desc.value_heads),
        dt_bias: args.reads.f32(3, desc.value_heads),
        o: Out::new(args.writes.f32(0, args.rows.len() * desc.value_heads * desc.dv)),
    };
    let states = Out::new(args.writes.f32(1, sequences * desc.value_heads * state_len));
    let runs = args::runs(args.rows).count();
    exec.parts(runs * desc.value_heads, 1, |part| {
        for task in part {
            let (run, head) = (task / desc.value_heads, task % desc.value_heads);
            let (first, run) = args::runs(args.rows).nth(run).expect("a run per task");
            let at = (run[0].seq as usize * desc.value_heads + head) * state_len;
            // SAFETY: a sequence has one run, so (sequence, head) is this task's alone.
            let state = unsafe { states.part(at, state_len) };
            SCRATCH.with_borrow_mut(|scratch| {
                let (scan, rows) = (Scan { inputs: &inputs, head, scratch }, (first, run.len()));
                per_level!(exec.level, scan_head(scan: Scan<'_>, rows: (usize, usize), state: &mut [f32]));
            });
        }
    });
}

struct Inputs<'a> {
    desc: Desc,
    qkv: &'a [f32],
    ba: &'a [f32],
    decay: &'a [f32],
    dt_bias: &'a [f32],
    o: Out<'a, f32>,
}

/// q, k, v and gates of a chunk of rows.
#[derive(Default)]
struct Scratch {
    /// `[CHUNK][dk]`.
    q: Vec<f32>,
    k: Vec<f32>,
    /// `[CHUNK][dv]`: side by side, where the rows of `qkv` are pages apart.
    v: Vec<f32>,
    /// d and beta of each row.
    gates: [(f32, f32); CHUNK],
    /// A block of columns, `[dk][WIDE]`.
    columns: Vec<f32>,
}

impl Scratch {
    fn fit(&mut self, dk: usize, dv: usize) {
        self.q.resize(CHUNK * dk, 0.0);
        self.k.resize(CHUNK * dk, 0.0);
        self.v.resize(CHUNK * dv, 0.0);
        self.columns.resize(WIDE * dk, 0.0);
    }
}

/// See [`crate::Op::warm`].
pub fn warm(desc: &Desc) {
    SCRATCH.with_borrow_mut(|scratch| scratch.fit(desc.dk, desc.dv));
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

struct Scan<'a> {
    inputs: &'a Inputs<'a>,
    head: usize,
    scratch: &'a mut Scratch,
}

#[inline(always)]
fn scan_head(scan: Scan<'_>, rows: (usize, usize), state: &mut [f32]) {
    let Desc { dk, dv, .. } = scan.inputs.desc;
    let (first, count) = rows;
    scan.scratch.fit(dk, dv);
    let mut done = 0;
    while done < count {
        let chunk = (first + done, CHUNK.min(count - done));
        prepare(scan.inputs, scan.head, chunk, scan.scratch);
        let mut column = 0;
        while column + WIDE <= dv {
            block::<WIDE>(scan.inputs, scan.head, chunk, scan.scratch, state, column);
            column += WIDE;
        }
        while column < dv {
            block::<1>(scan.inputs, scan.head, chunk, scan.scratch, state, column);
            column += 1;
        }
        done += chunk.1;
    }
}

/// Normalised q and k, v, and the gates, of rows `first..first + count`.
#[inline(always)]
fn prepare(inputs: &Inputs<'_>, head: usize, (first, count): (usize, usize), scratch: &mut Scratch) {
    let Desc { key_heads, value_heads, dk, dv } = inputs.desc;
    let key_head = head / (value_heads / key_heads);
    let scale = query_scale(dk);
    for t in 0..count {
        let (i, width) = (first + t, inputs.desc.qkv_width());
        let row = &inputs.qkv[i * width..][..width];
        let q = &mut scratch.q[t * dk..][..dk];
        l2(&row[key_head * dk..][..dk], q);
        for x in 0..dk {
            q[x] *= scale;
        }
        l2(&row[(key_heads + key_head) * dk..][..dk], &mut scratch.k[t * dk..][..dk]);
        scratch.v[t * dv..][..dv].copy_from_slice(&row[2 * key_heads * dk + head * dv..][..dv]);
        let (b, a) = (inputs.ba[i * 2 * value_heads + head], inputs.ba[(i * 2 + 1) * value_heads + head]);
        let d = math::exp(inputs.decay[head] * math::softplus(a + inputs.dt_bias[head]));
        scratch.gates[t] = (d, math::sigmoid(b));
    }
}

#[inline(always)]
fn l2(x: &[f32], out: &mut [f32]) {
    let r = 1.0 / (math::lane_dot_wide(x, x) + 1e-6).sqrt();
    let out = &mut out[..x.len()];
    for i in 0..x.len() {
        out[i] = x[i] * r;
    }
}

/// Columns `column..column + W` through a chunk of rows.
#[inline(always)]
fn block<const W: usize>(
    inputs: &Inputs<'_>,
    head: usize,
    (first, count): (usize, usize),
    scratch: &mut Scratch,
    state: &mut [f32],
    column: usize,
) {
    let Desc { value_heads, dk, dv, .. } = inputs.desc;
    let Scratch { q, k, v, gates, columns } = scratch;
    // A token alone works in place; for several the block is copied, so that its lines do not evict each
    // other.
    let alone = count == 1;
    let stride = if alone { dv } else { W };
    let s: &mut [f32] = if alone {
        &mut state[column..]
    } else {
        for row in 0..dk {
            *columns_of::<W>(columns, row * W) = *columns_of::<W>(state, row * dv + column);
        }
        &mut columns[..dk * W]
    };
    for t in 0..count {
        // SAFETY: (row, head, column) belongs to this block alone.
        let o = unsafe { inputs.o.part(((first + t) * value_heads + head) * dv + column, W) };
        let (q, k, v) = (&q[t * dk..][..dk], &k[t * dk..][..dk], columns_of::<W>(v, t * dv + column));
        *columns_of::<W>(o, 0) = step::<W>(s, stride, q, k, v, gates[t]);
    }
    if !alone {
        for row in 0..dk {
            *columns_of::<W>(state, row * dv + column) = *columns_of::<W>(columns, row * W);
        }
    }
}

/// W neighbours of a row.
#[inline(always)]
fn columns_of<const W: usize>(s: &mut [f32], at: usize) -> &mut [f32; W] {
    (&mut s[at..][..W]).try_into().expect("W columns")
}

/// One token on W columns; row r of the state is at `s[r * stride..][..W]`.
#[inline(always)]
fn step<const W: usize>(
    s: &mut [f32],
    stride: usize,
    q: &[f32],
    k: &[f32],
    v: &[f32; W],
    (d, beta): (f32, f32),
) -> [f32; W] {
    let r = pass::<W, false>(s, stride, q, k, d, &[0.0; W]);
    let mut delta = [0.0f32; W];
    for c in 0..W {
        delta[c] = (v[c] - r[c]) * beta;
    }
    pass::<W, true>(s, stride, q, k, d, &delta)
}

/// Walks the rows of the sixteen lanes, four lanes at a time, and adds the lanes up as the butterfly does
/// (its additions commute, so lane 0's tree is everyone's). `(S·d)ᵀk`, or with `UPDATE` first `S = S·d +
/// k·delta`, then `Sᵀq`: the product S·d is taken in both walks instead of stored in the first.
#[inline(always)]
fn pass<const W: usize, const UPDATE: bool>(
    s: &mut [f32],
    stride: usize,
    q: &[f32],
    k: &[f32],
    d: f32,
    delta: &[f32; W],
) -> [f32; W] {
    let (dk, per_lane) = (k.len(), k.len() / LANES);
    assert!(q.len() == dk && s.len() >= (dk - 1) * stride + W, "whole columns");
    let (s, k, q) = (s.as_mut_ptr(), k.as_ptr(), q.as_ptr());
    let mut quads = [[0.0f32; W]; LANES / 4];
    for i in 0..LANES / 4 {
        let mut lanes = [[0.0f32; W]; 4];
        for j in 0..per_lane {
            for l in 0..4 {
                let row = (4 * i + l) * per_lane + j;
                // SAFETY: `row` is below dk, and the assertion above saw that W columns of row dk - 1 are
                // there.
                let (s, k, q) =
                    unsafe { (&mut *s.add(row * stride).cast::<[f32; W]>(), *k.add(row), *q.add(row)) };
                for c in 0..W {
                    if UPDATE {
                        let new = math::fma(k, delta[c], s[c] * d);
                        s[c] = new;
                        lanes[l][c] = math::fma(new, q, lanes[l][c]);
                    } else {
                        lanes[l][c] = math::fma(s[c] * d, k, lanes[l][c]);
                    }
                }
            }
        }
        for c in 0..W {
            quads[i][c] = (lanes[0][c] + lanes[1][c]) + (lanes[2][c] + lanes[3][c]);
        }
    }
    let mut sum = [0.0f32; W];
    for c in 0..W {
        sum[c] = (quads[0][c] + quads[1][c]) + (quads[2][c] + quads[3][c]);
    }
    sum
}
