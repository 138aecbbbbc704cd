//! What ran, how often, for how long, and what it moved.

use std::time::Duration;

use ops::{Cost, Ran};
use serde::Serialize;

use crate::events::Events;

/// Steps of one op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindStats {
    /// Op.
    pub op: &'static str,
    /// What the steps are for, in their layers: `experts.down`.
    pub step: &'static str,
    /// Steps run.
    pub runs: u64,
    /// Rows, summed over steps.
    pub rows: u64,
    /// Time.
    pub nanos: u64,
    /// What it cost, summed over steps; for expert steps only the experts that were routed to.
    pub bytes_read: u64,
    /// Integer multiply-adds.
    pub int_macs: u64,
    /// Steps that the reference loops computed.
    pub reference: u64,
    /// Steps that SIMD computed.
    pub simd: u64,
}

/// What the expert cache did. All 0 where experts are read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ExpertStats {
    /// Experts that a decode step or short chunk needed and found in a slot.
    pub hits: u64,
    /// Experts that it had to load.
    pub misses: u64,
    /// Bytes of those loads.
    pub demand_bytes: u64,
    /// Passes of prefill through all layers.
    pub passes: u64,
    /// Experts that passes copied, whoever routed to them.
    pub streamed: u64,
    /// Bytes of those copies.
    pub stream_bytes: u64,
    /// Experts that passes did not copy because they were in a slot.
    pub residents: u64,
    /// Copies of all kinds.
    pub copies: u64,
    /// Steps' waits for copies that were not done yet.
    pub waits: u64,
    /// Experts that left their slot for another or for staging.
    pub evictions: u64,
    /// Most experts in slots at once.
    pub peak_slots: u64,
    /// Most staging slots in use at once.
    pub peak_staging: u64,
    /// Most slots in use at once, for either.
    pub peak_used: u64,
}

impl ExpertStats {
    /// Share of the experts needed by decode that were in a slot; 1 if none was needed.
    pub fn hit_rate(&self) -> f64 {
        let needed = self.hits + self.misses;
        if needed == 0 { 1.0 } else { self.hits as f64 / needed as f64 }
    }

    /// Bytes copied to the device.
    pub fn bytes(&self) -> u64 {
        self.demand_bytes + self.stream_bytes
    }
}

/// Statistics of an engine since the last reset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// By kind of step, in program order.
    pub kinds: Vec<KindStats>,
    /// Tokens that went through prefill, and the time that took.
    pub prefill_tokens: u64,
    /// Time of all prefill calls.
    pub prefill: Duration,
    /// Tokens decoded.
    pub decode_tokens: u64,
    /// Time of all decode steps.
    pub decode: Duration,
    /// The expert cache.
    pub experts: ExpertStats,
    /// Most rows of a step: what of the workspace was in use.
    pub peak_rows: u64,
    /// Most tokens in sequences at once: what of the states was in use.
    pub peak_tokens: u64,
    /// Most sequences at once.
    pub peak_sequences: u64,
    /// Most chunks of a pass that were carried from layer group to layer group.
    pub peak_carried: u64,
    /// What happened to experts last; not cleared.
    pub events: Events,
}

impl Stats {
    pub(crate) fn clear(&mut self) {
        for kind in &mut self.kinds {
            *kind = KindStats::new(kind.op, kind.step);
        }
        (self.prefill_tokens, self.decode_tokens) = (0, 0);
        (self.prefill, self.decode) = (Duration::ZERO, Duration::ZERO);
        (self.peak_rows, self.peak_tokens, self.peak_sequences, self.peak_carried) = (0, 0, 0, 0);
        self.experts = ExpertStats::default();
    }

    /// Steps that the reference loops computed, and steps that SIMD did.
    pub fn implementations(&self) -> (u64, u64) {
        (self.kinds.iter().map(|k| k.reference).sum(), self.kinds.iter().map(|k| k.simd).sum())
    }

    /// Bytes read by all steps.
    pub fn bytes_read(&self) -> u64 {
        self.kinds.iter().map(|k| k.bytes_read).sum()
    }
}

impl KindStats {
    pub(crate) fn new(op: &'static str, step: &'static str) -> Self {
        KindStats { op, step, runs: 0, rows: 0, nanos: 0, bytes_read: 0, int_macs: 0, reference: 0, simd: 0 }
    }

    pub(crate) fn add(&mut self, rows: usize, time: Duration, cost: Cost, ran: Ran) {
        self.runs += 1;
        self.rows += rows as u64;
        self.nanos += time.as_nanos() as u64;
        self.bytes_read += cost.bytes_read;
        self.int_macs += cost.int_macs;
        match ran {
            Ran::Reference => self.reference += 1,
            Ran::Simd(_) => self.simd += 1,
        }
    }
}
