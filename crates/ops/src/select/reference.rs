//! The definition of `select`.

use super::Desc;
use crate::HostArgs;

pub fn run(desc: &Desc, mut args: HostArgs<'_>) {
    let row_bytes = 4 * desc.width;
    let source = args.reads.bytes(0);
    let index: &[u32] = args.reads.slice(1, args.rows.len());
    let y: &mut [u8] = args.writes.slice(0, args.rows.len() * row_bytes);
    for (row, y) in index.iter().zip(y.chunks_exact_mut(row_bytes)) {
        y.copy_from_slice(&source[*row as usize * row_bytes..][..row_bytes]);
    }
}
