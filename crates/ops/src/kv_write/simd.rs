//! `kv_write` with loops that vectorise: the same operations in the same order per element, so the same bits.

use super::Desc;
use super::coding::TINY;
use super::layout::{KvLayout, MAX_HEAD_DIM, SLICE, Side};
use crate::format::KvFormat;
use crate::simd::per_level;
use crate::simd_out::Out;
use crate::{HostArgs, HostExec, Level, math};

/// Rows × heads per piece of work: a few microseconds.
const GRAIN: usize = 16;

/// 1.5·2^23: added to a small whole number it leaves that number in the low bits.
pub const ROUNDER: f32 = 12_582_912.0;

/// Workers over (row, head).
pub fn run(desc: &Desc, exec: &HostExec, mut args: HostArgs<'_>) {
    let layout = KvLayout::new(desc.kv_heads, desc.head_dim, desc.kv, args.context);
    let (dim, items) = (desc.head_dim, args.rows.len() * desc.kv_heads);
    let k = args.reads.f32(0, items * dim);
    let v = args.reads.f32(1, items * dim);
    let state = Out::new(args.writes.bytes(0));
    exec.parts(items, GRAIN, |part| {
        for item in part {
            let (row, head) = (args.rows[item / desc.kv_heads], item % desc.kv_heads);
            let (seq, pos) = (row.seq as usize, row.pos as usize);
            assert!(pos < args.context, "position {pos} lies outside a context of {}", args.context);
            let at = layout.head_at(seq, head);
            for (side, x) in [(Side::K, k), (Side::V, v)] {
                let codes = at + layout.codes_at(side) + pos * layout.row_bytes();
                let scales = at + layout.scales_at(side) + 4 * pos * layout.slices();
                // SAFETY: no two rows are the same position of a sequence, so codes and scales of (row, head,
                // side) are this iteration's alone.
                let (codes, scales) = unsafe {
                    (state.part(codes, layout.row_bytes()), state.part(scales, 4 * layout.slices()))
                };
                store(exec.level, &layout, side, &x[item * dim..][..dim], codes, scales);
            }
        }
    });
}

fn store(level: Level, layout: &KvLayout, side: Side, x: &[f32], row: &mut [u8], scales: &mut [u8]) {
    per_level!(
        level,
        store_wide(layout: &KvLayout, side: Side, x: &[f32], row: &mut [u8], scales: &mut [u8])
    );
}

#[inline(always)]
fn store_wide(layout: &KvLayout, side: Side, x: &[f32], row: &mut [u8], scales: &mut [u8]) {
    let mut codes = [0i32; MAX_HEAD_DIM];
    let mut rotated = [0.0f32; SLICE];
    for s in 0..layout.slices() {
        let range = layout.slice(s);
        let mut slice = &x[range.clone()];
        if side == Side::K && layout.rotates(slice.len()) {
            rotated[..slice.len()].copy_from_slice(slice);
            rotate_wide(&mut rotated[..slice.len()]);
            slice = &rotated[..slice.len()];
        }
        let value = code_slice_wide(slice, layout.kv.max_code(), &mut codes[range]);
        scales[4 * s..][..4].copy_from_slice(&value.to_le_bytes());
    }
    pack_wide(layout, &codes, row);
}

/// [`super::coding::code_slice`].
#[inline(always)]
pub fn code_slice_wide(x: &[f32], max_code: i32, codes: &mut [i32]) -> f32 {
    let amax = math::amax(x);
    if !amax.is_finite() || amax < TINY {
        codes.fill(0);
        return if amax.is_finite() { 0.0 } else { f32::NAN };
    }
    let q = max_code as f32;
    let inv = q / amax;
    let codes = &mut codes[..x.len()];
    for i in 0..x.len() {
        let y = (x[i] * inv).round_ties_even();
        let y = if y > q { q } else { y };
        let y = if y < -q { -q } else { y };
        codes[i] = (y + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
    }
    amax / q
}

/// [`super::coding::rotate`]; strides below a vector by shuffles of eight, the others by whole runs.
#[inline(always)]
pub fn rotate_wide(x: &mut [f32]) {
    for first in (0..x.len()).step_by(8) {
        let e: &mut [f32; 8] = (&mut x[first..first + 8]).try_into().expect("eight");
        let a = *e;
        let b = [
            a[0] + a[1],
            a[0] - a[1],
            a[2] + a[3],
            a[2] - a[3],
            a[4] + a[5],
            a[4] - a[5],
            a[6] + a[7],
            a[6] - a[7],
        ];
        let c = [
            b[0] + b[2],
            b[1] + b[3],
            b[0] - b[2],
            b[1] - b[3],
            b[4] + b[6],
            b[5] + b[7],
            b[4] - b[6],
            b[5] - b[7],
        ];
        *e = [
            c[0] + c[4],
            c[1] + c[5],
            c[2] + c[6],
            c[3] + c[7],
            c[0] - c[4],
            c[1] - c[5],
            c[2] - c[6],
            c[3] - c[7],
        ];
    }
    let mut stride = 8;
    while stride < x.len() {
        for first in (0..x.len()).step_by(2 * stride) {
            let (low, high) = x[first..first + 2 * stride].split_at_mut(stride);
            for i in 0..stride {
                (low[i], high[i]) = (low[i] + high[i], low[i] - high[i]);
            }
        }
        stride *= 2;
    }
}

/// [`KvLayout::pack_row`] sixteen codes at a time; `codes` are zero past head_dim.
#[inline(always)]
fn pack_wide(layout: &KvLayout, codes: &[i32; MAX_HEAD_DIM], row: &mut [u8]) {
    let bytes = row.len();
    match layout.kv {
        KvFormat::K4 => {
            for group in 0..bytes / 16 {
                pack_nibbles(&codes[32 * group..][..32], &mut row[16 * group..][..16]);
            }
        }
        KvFormat::K6 => {
            for group in 0..bytes / 48 {
                let (codes, out) = (&codes[64 * group..][..64], &mut row[48 * group..][..48]);
                pack_nibbles(&codes[..32], &mut out[..16]);
                pack_nibbles(&codes[32..], &mut out[16..32]);
                for i in 0..16 {
                    out[32 + i] = upper(codes[i], 0)
                        | upper(codes[16 + i], 2)
                        | upper(codes[32 + i], 4)
                        | upper(codes[48 + i], 6);
                }
            }
        }
        KvFormat::K8 => {
            let codes = &codes[..bytes];
            for i in 0..bytes {
                row[i] = codes[i] as u8;
            }
        }
        KvFormat::K16 => {
            let codes = &codes[..bytes / 2];
            for i in 0..codes.len() {
                [row[2 * i], row[2 * i + 1]] = (codes[i] as i16).to_le_bytes();
            }
        }
    }
}

/// The upper two of six bits, moved to `shift`.
#[inline(always)]
fn upper(code: i32, shift: u32) -> u8 {
    (code as u8 >> 4 & 3) << shift
}

#[inline(always)]
fn pack_nibbles(codes: &[i32], out: &mut [u8]) {
    for i in 0..16 {
        out[i] = codes[i] as u8 & 15 | (codes[16 + i] as u8) << 4;
    }
}
