//! The table of a plan.

use base::{Bytes, Refusal};

use crate::fixed::Fixed;
use crate::slots::{Carry, Pool, Shared};
use crate::too_large;

/// A line of the table: a region of the device, or what of its bytes is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Region.
    pub name: &'static str,
    /// What is in it.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

impl Line {
    fn new(name: &'static str, what: impl Into<String>, bytes: u64) -> Self {
        Line { name, what: what.into(), bytes }
    }
}

/// The lines as aligned text with their sum: name, bytes, share, what.
pub fn table(lines: &[Line]) -> String {
    let total: u64 = lines.iter().map(|l| l.bytes).sum();
    let row = |name: &str, bytes: u64, what: &str| {
        let share = if total == 0 { 0.0 } else { 100.0 * bytes as f64 / total as f64 };
        vec![
            name.to_string(),
            bytes.to_string(),
            Bytes(bytes).to_string(),
            format!("{share:.1} %"),
            what.to_string(),
        ]
    };
    let mut rows: Vec<_> = lines.iter().map(|l| row(l.name, l.bytes, &l.what)).collect();
    rows.push(row("total", total, ""));
    base::table::table(&rows, &[false, true, true, true, false])
}

/// Sum of the bytes. Errors: beyond 64 bits.
pub(crate) fn sum(lines: &[Line]) -> Result<u64, Refusal> {
    let large = || {
        let largest = lines.iter().max_by_key(|l| l.bytes).map_or("", |l| l.name);
        too_large(largest, "more than 2^64 bytes in all")
    };
    lines.iter().try_fold(0u64, |sum, l| sum.checked_add(l.bytes)).ok_or_else(large)
}

/// What a host without a limit allocates besides the mapped cache.
pub(crate) fn host(fixed: &Fixed) -> Vec<Line> {
    let mut lines = vec![Line::new("weights", "read from the mapped weight cache, as the experts are", 0)];
    lines.extend(everywhere(fixed));
    lines
}

/// The least that a device needs.
pub(crate) fn minimum(fixed: &Fixed, pool: &Pool) -> Result<Vec<Line>, Refusal> {
    let mut lines = vec![weights(fixed)];
    lines.extend(everywhere(fixed));
    let slots = pool.minimum;
    let what = match pool.experts {
        0 => "the model has no experts".to_string(),
        all if slots == all => format!("all {all} experts of {}", Bytes(pool.slot_bytes as u64)),
        _ => format!(
            "two stages of one layer, {} experts of {} each",
            pool.layer_experts,
            Bytes(pool.slot_bytes as u64)
        ),
    };
    lines.push(Line::new("slots", what, pool.bytes(slots)));
    Ok(lines)
}

/// The table of a device; it sums to `capacity`, which is at least the minimum.
pub(crate) fn device(fixed: &Fixed, carry: &Carry, pool: &Pool, shared: &Shared, capacity: u64) -> Vec<Line> {
    let mut lines = vec![weights(fixed)];
    lines.extend(everywhere(fixed));
    let passes = match carry.chunks {
        1 => "a pass is one chunk".to_string(),
        n => format!("a pass is {n} chunks, {} rows", carry.pass_rows),
    };
    lines.push(Line::new("carry", passes, carry.bytes as u64));
    lines.push(slots(pool, shared));
    if shared.held_back > 0 {
        let what = format!("{} slots that the wish for less residency leaves out", shared.held_back);
        lines.push(Line::new("held back", what, pool.bytes(shared.held_back)));
    }
    let used: u64 = lines.iter().map(|l| l.bytes).sum();
    lines.push(Line::new("unused", "", capacity - used));
    lines
}

fn weights(fixed: &Fixed) -> Line {
    let what = format!("{} dense tensors", fixed.dense.len());
    Line::new("weights", what, fixed.weights_bytes as u64)
}

/// Regions that every device has.
fn everywhere(fixed: &Fixed) -> [Line; 4] {
    let Fixed { context, sequences, rows, head_rows, .. } = fixed;
    let state =
        format!("{sequences} × {context} tokens, {} per token and sequence", Bytes(fixed.token_bytes as u64));
    [
        Line::new("tables", format!("RoPE of {context} positions"), fixed.table_bytes as u64),
        Line::new(
            "io",
            format!("ids of {rows} rows, {head_rows} head rows"),
            (fixed.ids_bytes + fixed.head_rows_bytes) as u64,
        ),
        Line::new("state", state, fixed.state_bytes as u64),
        Line::new(
            "workspace",
            format!("{rows} rows of a chunk, {head_rows} of the head"),
            fixed.workspace.total as u64,
        ),
    ]
}

fn slots(pool: &Pool, shared: &Shared) -> Line {
    let Some(slots) = shared.slots else { return Line::new("slots", "the model has no experts", 0) };
    let size = Bytes(slots.slot_bytes as u64);
    let what = if slots.stage == 0 {
        format!("all {} experts, {size} each", slots.experts)
    } else {
        format!(
            "{} of {} experts ({:.1} %), {size} each; the last 2 × {} stage {} layers",
            slots.count,
            slots.experts,
            100.0 * slots.count as f64 / slots.experts as f64,
            slots.stage,
            slots.group_layers
        )
    };
    Line::new("slots", what, pool.bytes(slots.count))
}
