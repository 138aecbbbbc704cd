//! The definition of activation codes (docs/arithmetic.md §1).

use super::Desc;
use crate::HostArgs;
use crate::format::{ACT_GROUP, Acts};
use crate::math::amax;

/// Below this largest magnitude (2^-100) a group has scale 0 and codes 0.
pub const TINY: f32 = f32::from_bits(27 << 23);

/// Scale of a group whose largest magnitude is `amax`, and the factor that makes codes of its values.
/// A group with a NaN gets a NaN scale, so that it is not lost.
#[inline(always)]
pub(crate) fn scale_and_inverse(amax: f32, q: f32) -> (f32, f32) {
    if amax < TINY { (0.0, 0.0) } else { (amax / q, q / amax) }
}

/// Code of `x`; 0 for the products 0 · inf that a group with infinities has.
#[inline(always)]
pub(crate) fn code(x: f32, inverse: f32, q: f32) -> i16 {
    (x * inverse).round_ties_even().clamp(-q, q) as i16
}

pub(super) fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let rows = args.rows.len() * desc.times;
    let groups = desc.k.div_ceil(ACT_GROUP);
    let row_bytes = desc.acts.row_code_bytes(desc.k);
    let x = args.reads.f32(0, rows * desc.k);
    let codes = args.writes.slice::<u8>(0, rows * row_bytes);
    let scales = args.writes.f32(1, rows * groups);
    codes.fill(0);
    let q = desc.acts.max_code() as f32;
    for r in 0..rows {
        let x = &x[r * desc.k..][..desc.k];
        for (g, x) in x.chunks(ACT_GROUP).enumerate() {
            let (scale, inverse) = scale_and_inverse(amax(x), q);
            scales[r * groups + g] = scale;
            for (i, &x) in x.iter().enumerate() {
                let (code, at) = (code(x, inverse, q), g * ACT_GROUP + i);
                match desc.acts {
                    Acts::A8 => codes[r * row_bytes + at] = code as i8 as u8,
                    Acts::A16 => codes[r * row_bytes + 2 * at..][..2].copy_from_slice(&code.to_le_bytes()),
                }
            }
        }
    }
}
