//! Where in the workspace each buffer lies: buffers whose lifetimes do not meet share bytes. Pure.

use arch::{Buffer, Rows};
use base::Refusal;

use crate::{aligned, too_large};

/// Offsets of all buffers and the bytes of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// By buffer.
    pub offsets: Vec<usize>,
    /// Bytes of each buffer at the largest number of rows.
    pub bytes: Vec<usize>,
    /// Bytes of the workspace.
    pub total: usize,
}

/// Places `buffers` for at most `chunk_rows` rows of a chunk and `head_rows` rows of the head: in the order
/// of first use, each at the lowest offset that is free for its whole lifetime. Offsets and sizes are
/// multiples of [`crate::ALIGN`]. Errors: sizes beyond 64 bits.
pub fn place(buffers: &[Buffer], chunk_rows: usize, head_rows: usize) -> Result<Placement, Refusal> {
    let large = || too_large("chunk", chunk_rows);
    let size = |b: &Buffer| {
        let rows = match b.rows {
            Rows::Chunk => chunk_rows,
            Rows::Head => head_rows,
        };
        let bytes = rows.checked_mul(b.row_bytes)?.checked_add(b.fixed_bytes)?;
        aligned(bytes)
    };
    let bytes: Vec<usize> = buffers.iter().map(size).collect::<Option<_>>().ok_or_else(large)?;
    // All side by side is more than any placement takes: no sum below can overflow.
    bytes.iter().try_fold(0usize, |sum, b| sum.checked_add(*b)).ok_or_else(large)?;
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| (buffers[i].first, i));
    let mut offsets = vec![0; buffers.len()];
    // Live buffers as (offset, end, last step), kept sorted by offset.
    let mut live: Vec<(usize, usize, u32)> = Vec::new();
    let mut total = 0;
    for i in order {
        live.retain(|&(_, _, last)| last >= buffers[i].first);
        let mut offset = 0;
        let mut at = live.len();
        for (index, &(start, end, _)) in live.iter().enumerate() {
            if start >= offset + bytes[i] {
                at = index;
                break;
            }
            offset = offset.max(end);
        }
        live.insert(at, (offset, offset + bytes[i], buffers[i].last));
        live.sort_unstable();
        offsets[i] = offset;
        total = total.max(offset + bytes[i]);
    }
    Ok(Placement { offsets, bytes, total })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::philox::Stream;

    fn buffer(first: u32, last: u32, row_bytes: usize) -> Buffer {
        Buffer { name: String::new(), rows: Rows::Chunk, row_bytes, fixed_bytes: 0, first, last }
    }

    #[test]
    fn buffers_that_live_together_never_meet() {
        for seed in 0..200 {
            let mut random = Stream::new(seed);
            let buffers: Vec<Buffer> = (0..40)
                .map(|_| {
                    let first = random.below(50);
                    buffer(first, first + random.below(12), 1 + random.below(500) as usize)
                })
                .collect();
            let placed = place(&buffers, 3, 1).unwrap();
            for (i, a) in buffers.iter().enumerate() {
                assert!(placed.offsets[i] + placed.bytes[i] <= placed.total);
                for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let (x, y) = (placed.offsets[i], placed.offsets[j]);
                    let apart = x + placed.bytes[i] <= y || y + placed.bytes[j] <= x;
                    assert!(!together || apart, "seed {seed}: buffers {i} and {j}");
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<Buffer> = (0..10).map(|i| buffer(i, i + 1, 64)).collect();
        assert_eq!(place(&chain, 1, 1).unwrap().total, 2 * crate::ALIGN);
    }

    #[test]
    fn absurd_numbers_of_rows_are_refused() {
        let chain: Vec<Buffer> = (0..10).map(|i| buffer(i, i + 1, 64)).collect();
        for rows in [usize::MAX, usize::MAX / 64, usize::MAX / 640 + 1] {
            let error = place(&chain, rows, 1).unwrap_err().to_string();
            assert!(error.contains("chunk"), "{error}");
        }
    }
}
