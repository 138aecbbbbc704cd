//! How much of each region of the device was in use at most.

use serde::Serialize;

use crate::running::Engine;

/// A region and what was used of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegionUse {
    /// Name, as in the plan.
    pub name: &'static str,
    /// Bytes.
    pub bytes: u64,
    /// Most bytes that were in use at once since the last reset of the statistics.
    pub peak_bytes: u64,
}

impl Engine {
    /// The lines of the plan, and what of each was in use at most.
    pub fn usage(&self) -> Vec<RegionUse> {
        let binding = self.executor.binding();
        let (plan, program, stats) = (&binding.plan, &binding.program, self.stats());
        let rows = stats.peak_rows as usize;
        let peak = |name: &str, bytes: u64| match name {
            "weights" | "tables" => bytes,
            "io" => 4 * (rows + plan.head_rows.min(rows)) as u64,
            "state" => {
                let fixed: usize = program.states.iter().map(|s| s.fixed_bytes).sum();
                let token: usize = program.states.iter().map(|s| s.token_bytes).sum();
                fixed as u64 * stats.peak_sequences + token as u64 * stats.peak_tokens
            }
            "workspace" => {
                let heads = plan.head_rows.min(rows);
                plan::workspace::place(&program.buffers, rows, heads).map_or(bytes, |p| p.total as u64)
            }
            "carry" => plan.carry_chunk_bytes as u64 * stats.peak_carried,
            "slots" => stats.experts.peak_used * plan.slots.map_or(0, |s| s.slot_bytes) as u64,
            _ => 0,
        };
        let line =
            |l: &plan::Line| RegionUse { name: l.name, bytes: l.bytes, peak_bytes: peak(l.name, l.bytes) };
        plan.lines.iter().map(line).collect()
    }
}
