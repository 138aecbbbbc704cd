//! The one integer product of attention: four rows of i16 pairs times panels of i16 pairs, into i32.
//!
//! Both products take this form. Scores: rows are Q codes, a panel is sixteen keys, a pair two elements of
//! the head. Values: rows are P codes, a panel is sixteen elements of the head, a pair two positions. i16
//! holds every code but the product of two 16-bit ones, for which the row side is split into planes of eight
//! bits.

use std::arch::x86_64::*;

/// Columns of a panel.
pub const PANEL: usize = 16;

/// Rows that are multiplied at a time.
pub const ROWS: usize = 4;

/// A product of `ROWS` rows of `2·pairs` codes with `panels` panels.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// Rows, `stride` codes apart.
    pub rows: &'a [i16],
    /// Codes from one row to the next.
    pub stride: usize,
    /// Panels `[panels][panel_pairs][PANEL]` of pairs.
    pub panels: &'a [[[i16; 2]; PANEL]],
    /// Pairs of a panel in memory.
    pub panel_pairs: usize,
    /// Pairs to be multiplied.
    pub pairs: usize,
}

impl Product<'_> {
    /// Panics unless all that the kernels read for `panels` panels is there.
    fn check(&self, panels: usize, out: &[[i32; PANEL]]) {
        assert!(self.rows.len() >= (ROWS - 1) * self.stride + 2 * self.pairs);
        assert!(self.pairs <= self.panel_pairs && self.panels.len() >= panels * self.panel_pairs);
        assert!(out.len() >= ROWS * panels);
    }
}

/// `out[row][panel]` gets the sums of `ROWS` rows and `panels` panels.
///
/// # Safety
/// Needs AVX2.
#[target_feature(enable = "avx2")]
pub unsafe fn avx2(product: Product<'_>, panels: usize, out: &mut [[i32; PANEL]]) {
    product.check(panels, out);
    let rows = product.rows.as_ptr();
    for panel in 0..panels {
        let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
        let first = product.panels[panel * product.panel_pairs..].as_ptr().cast::<__m256i>();
        for pair in 0..product.pairs {
            // SAFETY: `check` saw all pairs of this panel and of all rows.
            unsafe {
                let (low, high) =
                    (_mm256_loadu_si256(first.add(2 * pair)), _mm256_loadu_si256(first.add(2 * pair + 1)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let code = rows.add(row * product.stride + 2 * pair).cast::<i32>().read_unaligned();
                    let code = _mm256_set1_epi32(code);
                    sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(code, low));
                    sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(code, high));
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            let out = out[row * panels + panel].as_mut_ptr().cast::<__m256i>();
            // SAFETY: sixteen i32 are two vectors.
            unsafe {
                _mm256_storeu_si256(out, sums[0]);
                _mm256_storeu_si256(out.add(1), sums[1]);
            }
        }
    }
}

/// As [`avx2`], two panels at a time, product and sum in one instruction.
///
/// # Safety
/// Needs AVX-512 F and VNNI.
#[target_feature(enable = "avx512f,avx512vnni")]
pub unsafe fn avx512(product: Product<'_>, panels: usize, out: &mut [[i32; PANEL]]) {
    product.check(panels, out);
    let rows = product.rows.as_ptr();
    for panel in (0..panels).step_by(2) {
        // An odd last panel is computed twice: the same sums go to the same place.
        let second = (panel + 1).min(panels - 1);
        let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
        let [low, high] =
            [panel, second].map(|p| product.panels[p * product.panel_pairs..].as_ptr().cast::<__m512i>());
        for pair in 0..product.pairs {
            // SAFETY: `check` saw all pairs of both panels and of all rows.
            unsafe {
                let (low, high) = (_mm512_loadu_si512(low.add(pair)), _mm512_loadu_si512(high.add(pair)));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let code = rows.add(row * product.stride + 2 * pair).cast::<i32>().read_unaligned();
                    let code = _mm512_set1_epi32(code);
                    sums[0] = _mm512_dpwssd_epi32(sums[0], code, low);
                    sums[1] = _mm512_dpwssd_epi32(sums[1], code, high);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (at, sum) in [panel, second].into_iter().zip(sums) {
                // SAFETY: sixteen i32 are one vector.
                unsafe { _mm512_storeu_si512(out[row * panels + at].as_mut_ptr().cast(), *sum) };
            }
        }
    }
}
