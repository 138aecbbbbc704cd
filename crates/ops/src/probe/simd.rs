//! Loops of dot instructions on registers. A chain multiplies by its own sum, so that nothing can be hoisted.

use std::hint::black_box;

use crate::Level;

/// Runs `rounds` rounds; gives the multiply-adds of one round.
pub(super) fn dots(level: Level, rounds: usize) -> usize {
    match level {
        // SAFETY: callers check the level.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { x86::dots_avx2(rounds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { x86::dots_avx512(rounds) },
        _ => dots_scalar(rounds),
    }
}

fn dots_scalar(rounds: usize) -> usize {
    let (w, mut acc) = (black_box(3i8), [black_box(1i32); 16]);
    for _ in 0..rounds {
        for acc in &mut acc {
            *acc = acc.wrapping_add(i32::from(w) * i32::from(*acc as i8));
        }
    }
    black_box(acc).len()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx2")]
    pub fn dots_avx2(rounds: usize) -> usize {
        let (w, ones) = (black_box(_mm256_set1_epi8(3)), black_box(_mm256_set1_epi16(1)));
        let mut acc = [black_box(_mm256_set1_epi8(1)); 12];
        for _ in 0..rounds {
            for acc in &mut acc {
                let dot = _mm256_madd_epi16(_mm256_maddubs_epi16(w, *acc), ones);
                *acc = _mm256_add_epi32(*acc, dot);
            }
        }
        32 * black_box(acc).len()
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn dots_avx512(rounds: usize) -> usize {
        let w = black_box(_mm512_set1_epi8(3));
        let mut acc = [black_box(_mm512_set1_epi8(1)); 16];
        for _ in 0..rounds {
            for acc in &mut acc {
                *acc = _mm512_dpbusd_epi32(*acc, w, *acc);
            }
        }
        64 * black_box(acc).len()
    }
}
