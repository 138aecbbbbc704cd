//! The definition of `gated_delta`.

use super::{Desc, LANES, query_scale};
use crate::{HostArgs, args, math};

/// Sequence by sequence, value head by value head, row by row.
pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let Desc { key_heads, value_heads, dk, dv } = *desc;
    let width = desc.qkv_width();
    let qkv = args.reads.f32(0, args.rows.len() * width);
    let ba = args.reads.f32(1, args.rows.len() * 2 * value_heads);
    let decay = args.reads.f32(2, value_heads);
    let dt_bias = args.reads.f32(3, value_heads);
    let o = args.writes.f32(0, args.rows.len() * value_heads * dv);
    let sequences = args.rows.iter().map(|r| r.seq as usize + 1).max().unwrap_or(0);
    let states = args.writes.f32(1, sequences * value_heads * dk * dv);
    for (first, run) in args::runs(args.rows) {
        for h in 0..value_heads {
            let at = (run[0].seq as usize * value_heads + h) * dk * dv;
            let state = &mut states[at..][..dk * dv];
            let key_head = h / (value_heads / key_heads);
            for i in first..first + run.len() {
                let row = &qkv[i * width..][..width];
                let mut q = l2(&row[key_head * dk..][..dk]);
                q.iter_mut().for_each(|x| *x *= query_scale(dk));
                let k = l2(&row[(key_heads + key_head) * dk..][..dk]);
                let v = &row[2 * key_heads * dk + h * dv..][..dv];
                let (b, a) = (ba[i * 2 * value_heads + h], ba[(i * 2 + 1) * value_heads + h]);
                let d = math::exp(decay[h] * math::softplus(a + dt_bias[h]));
                let beta = math::sigmoid(b);
                let out = &mut o[(i * value_heads + h) * dv..][..dv];
                for column in 0..dv {
                    out[column] = step(state, column, dv, &q, &k, v[column], d, beta);
                }
            }
        }
    }
}

/// `x / sqrt(x·x + 1e-6)`, as one reciprocal and a product per element.
fn l2(x: &[f32]) -> Vec<f32> {
    let r = 1.0 / (math::lane_dot(x, x) + 1e-6).sqrt();
    x.iter().map(|x| x * r).collect()
}

/// One token on one column of a head's state; gives the column's output.
fn step(state: &mut [f32], column: usize, dv: usize, q: &[f32], k: &[f32], v: f32, d: f32, beta: f32) -> f32 {
    for row in 0..k.len() {
        state[row * dv + column] *= d;
    }
    let delta = (v - dot(state, column, dv, k)) * beta;
    for row in 0..k.len() {
        let s = &mut state[row * dv + column];
        *s = k[row].mul_add(delta, *s);
    }
    dot(state, column, dv, q)
}

/// Column times vector over the state's rows: lane l owns rows l·dk/16 … in ascending order by fma from 0,
/// then butterfly adds at distances 1, 2, 4, 8.
fn dot(state: &[f32], column: usize, dv: usize, x: &[f32]) -> f32 {
    let per_lane = x.len() / LANES;
    let mut lanes = [0.0f32; LANES];
    for (row, x) in x.iter().enumerate() {
        let lane = &mut lanes[row / per_lane];
        *lane = state[row * dv + column].mul_add(*x, *lane);
    }
    for distance in [1, 2, 4, 8] {
        let before = lanes;
        for l in 0..LANES {
            lanes[l] = before[l] + before[l ^ distance];
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Reads, Row, Writes};
    use base::philox::Stream;
    use zerocopy::IntoBytes;

    /// The recurrence in f64, textbook form: S = d·S + k·(v - (d·S)ᵀk)ᵀ·β, o = Sᵀq.
    fn in_f64(q: &[f32], k: &[f32], v: &[f32], d: f64, beta: f64, state: &mut [f64]) -> Vec<f64> {
        let unit = |x: &[f32]| -> Vec<f64> {
            let norm = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() + 1e-6;
            x.iter().map(|x| f64::from(*x) / norm.sqrt()).collect()
        };
        let (q, k, dv) = (unit(q), unit(k), v.len());
        state.iter_mut().for_each(|s| *s *= d);
        let dot = |state: &[f64], x: &[f64], c: usize| -> f64 {
            x.iter().enumerate().map(|(r, x)| state[r * dv + c] * x).sum()
        };
        for c in 0..dv {
            let delta = (f64::from(v[c]) - dot(state, &k, c)) * beta;
            k.iter().enumerate().for_each(|(r, k)| state[r * dv + c] += k * delta);
        }
        (0..dv).map(|c| dot(state, &q, c) / math::f64::sqrt(q.len() as f64)).collect()
    }

    #[test]
    fn it_is_the_recurrence() {
        let desc = Desc { key_heads: 1, value_heads: 1, dk: 64, dv: 24 };
        desc.validate().expect("valid");
        let mut random = Stream::new(4);
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| random.normal()).collect() };
        let rows: Vec<Row> = (0..20).map(|pos| Row { seq: 0, pos }).collect();
        let (qkv, ba) = (floats(20 * desc.qkv_width()), floats(40));
        let mut state = floats(64 * 24);
        let mut want_state: Vec<f64> = state.iter().map(|s| f64::from(*s)).collect();
        let (decay, dt_bias, mut o) = ([-0.3f32], [0.2f32], vec![0.0f32; 20 * 24]);
        let reads = [qkv.as_bytes(), ba.as_bytes(), decay.as_bytes(), dt_bias.as_bytes()];
        desc.reference(HostArgs {
            rows: &rows,
            context: 20,
            reads: Reads(reads.into_iter().collect()),
            writes: Writes([o.as_mut_bytes(), state.as_mut_bytes()].into_iter().collect()),
            experts: crate::Experts::default(),
        });
        for (i, (row, o)) in qkv.chunks(desc.qkv_width()).zip(o.chunks(24)).enumerate() {
            let (b, a) = (f64::from(ba[2 * i]), f64::from(ba[2 * i + 1]));
            let d = math::f64::exp(f64::from(decay[0]) * math::f64::log1p(math::f64::exp(a + 0.2f32 as f64)));
            let beta = 1.0 / (1.0 + math::f64::exp(-b));
            let want = in_f64(&row[..64], &row[64..128], &row[128..], d, beta, &mut want_state);
            for (want, got) in want.iter().zip(o) {
                assert!((want - f64::from(*got)).abs() < 2e-6, "row {i}: {want} {got}");
            }
        }
    }
}
