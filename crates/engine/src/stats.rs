//! What ran, how often, for how long, and what it moved.

use std::time::Duration;

use ops::{Cost, Ran};

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
}

impl Stats {
    pub(crate) fn clear(&mut self) {
        for kind in &mut self.kinds {
            *kind = KindStats::new(kind.op, kind.step);
        }
        (self.prefill_tokens, self.decode_tokens) = (0, 0);
        (self.prefill, self.decode) = (Duration::ZERO, Duration::ZERO);
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
