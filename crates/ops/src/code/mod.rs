//! Activations as fixed point (docs/arithmetic.md §1): codes and one scale per 128 of a row.
//!
//! | operand | content |
//! |---|---|
//! | read `x` | f32[rows·times, k] |
//! | written `codes` | i8 or i16 [rows·times, k padded to 128], padding zero |
//! | written `scales` | f32[rows·times, groups of 128] |

pub(crate) mod reference;
mod simd;

use base::Refusal;
use base::philox::Stream;

use crate::format::{ACT_GROUP, Acts};
use crate::limits::{MAX_WIDTH, within};
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Coded rows per row of the step (experts per token for expert activations, else 1).
    pub times: usize,
    /// Elements of a coded row.
    pub k: usize,
    /// Width of the codes.
    pub acts: Acts,
}

impl Op for Desc {
    const NAME: &'static str = "code";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("code.times", self.times, 1, MAX_WIDTH)?;
        within("code.k", self.k, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("x", 4 * d.rows * self.times * self.k)]);
        let writes = specs([
            spec("codes", d.rows * self.times * self.acts.row_code_bytes(self.k)),
            spec("scales", 4 * d.rows * self.times * self.k.div_ceil(ACT_GROUP)),
        ]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        // Magnitude, product, rounding and two bounds per element.
        self.shapes(d).cost(0, (d.rows * self.times * self.k * 5) as u64)
    }

    fn cases() -> Vec<Case<Self>> {
        let mut all = Vec::new();
        for acts in [Acts::A8, Acts::A16] {
            for (k, times, rows) in [(64, 1, 7), (1, 3, 1), (200, 2, 3), (2880, 1, 2), (2048, 1, 33)] {
                all.push(case(Desc { times, k, acts }, rows));
            }
        }
        all
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, exec: &HostExec, args: HostArgs<'_>) {
        simd::run(self, exec, args);
    }
}

fn case(desc: Desc, rows: usize) -> Case<Desc> {
    let mut random = Stream::new((desc.k + rows) as u64);
    let groups = desc.k.div_ceil(ACT_GROUP);
    let group = |i: usize| i / desc.k * groups + i % desc.k / ACT_GROUP;
    let x: Vec<f32> = (0..rows * desc.times * desc.k).map(|i| value(group(i), i, &mut random)).collect();
    Case::new(format!("{desc:?}, {rows} rows"), desc, rows).read(&x).output().output()
}

/// Element `i` of group `group`: ordinary groups, zero ones, ones at and around 2^-100, denormal, huge,
/// with ties of the rounding, and such with a NaN or an infinity, which must not get lost.
fn value(group: usize, i: usize, random: &mut Stream) -> f32 {
    let tiny = reference::TINY;
    let x = random.normal();
    match group % 11 {
        0 => 0.0,
        1 => -0.0,
        2 => [tiny, -tiny, tiny * 0.5][i % 3],
        3 => f32::from_bits(tiny.to_bits() - 1),
        4 => x * f32::MIN_POSITIVE * 0.01,
        5 => x.clamp(-1.0, 1.0) * f32::MAX,
        // amax is 127, so codes are x itself: halves are ties.
        6 => [127.0, 0.5, 1.5, -2.5, -126.5][i % 5],
        7 if i.is_multiple_of(50) => f32::NAN,
        8 if i.is_multiple_of(50) => f32::NEG_INFINITY,
        _ => x,
    }
}

#[cfg(test)]
mod tests {
    use super::reference::{TINY, code, scale_and_inverse};

    #[test]
    fn codes_by_hand() {
        assert_eq!(TINY, 2f32.powi(-100));
        let (scale, inverse) = scale_and_inverse(127.0, 127.0);
        assert_eq!((scale, inverse), (1.0, 1.0));
        // Halves go to the even neighbour; nothing leaves -127..127.
        let codes = [0.5, 1.5, -2.5, 126.5, -127.0, 500.0].map(|x| code(x, inverse, 127.0));
        assert_eq!(codes, [0, 2, -2, 126, -127, 127]);
    }

    #[test]
    fn a_group_below_the_limit_is_zero_and_one_at_it_is_not() {
        let below = f32::from_bits(TINY.to_bits() - 1);
        assert_eq!(scale_and_inverse(below, 127.0), (0.0, 0.0));
        let (scale, inverse) = scale_and_inverse(TINY, 32767.0);
        assert!(scale > 0.0 && code(TINY, inverse, 32767.0) == 32767);
        assert!(scale_and_inverse(f32::NAN, 127.0).0.is_nan(), "a NaN is not lost");
    }
}
