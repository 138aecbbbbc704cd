//! How what remains is shared between the carry and the slots.

use std::ops::Range;

use arch::{Manifest, Program};
use base::Refusal;

use crate::{Ask, aligned, boundaries, too_large};

/// The carry gets at most one part in so many of what remains above the minimum.
const CARRY_SHARE: u64 = 8;
/// Most layers that are staged together.
const MOST_GROUP_LAYERS: usize = 4;
/// Both staging regions take at most one part in so many of the slots, if a group has more than one layer.
const STAGE_SHARE: usize = 4;

/// The slots of experts: one pool of equal ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Bytes of a slot: the largest expert block, a multiple of [`crate::ALIGN`].
    pub slot_bytes: usize,
    /// Bytes of the largest expert block.
    pub block_bytes: usize,
    /// Slots.
    pub count: usize,
    /// Experts of the model.
    pub experts: usize,
    /// Slots of one staging region: those of `group_layers` largest layers; 0 when every expert has a slot.
    pub stage: usize,
    /// MoE layers that are staged together, at least 1.
    pub group_layers: usize,
}

impl Slots {
    /// Bytes that a pass of prefill copies when `resident` experts are in slots that it leaves alone; exact
    /// where all blocks are equal.
    pub fn stream_bytes(&self, resident: usize) -> u64 {
        (self.experts - resident) as u64 * self.block_bytes as u64
    }

    /// Slots of the two staging regions: the tail of the pool. Both empty when every expert has a slot.
    pub fn stages(&self) -> [Range<usize>; 2] {
        let (start, middle) = (self.count - 2 * self.stage, self.count - self.stage);
        [start..middle, middle..self.count]
    }
}

/// What the model needs of slots.
pub(crate) struct Pool {
    pub slot_bytes: usize,
    /// Of the largest block.
    pub block_bytes: usize,
    /// Of the model.
    pub experts: usize,
    /// Of the largest layer.
    pub layer_experts: usize,
    /// Fewest slots that work: two one-layer stages, so that the next layer can arrive while one runs; or all
    /// experts, if those are fewer. A decode step needs no more: at most all experts of one layer.
    pub minimum: usize,
}

impl Pool {
    pub fn new(manifest: &Manifest) -> Result<Pool, Refusal> {
        let layers = || manifest.experts.iter();
        let experts = layers().map(|l| l.experts.len()).sum();
        let layer_experts = layers().map(|l| l.experts.len()).max().unwrap_or(0);
        let block_bytes = layers().map(|l| l.block.bytes()).max().unwrap_or(0);
        let large = || too_large("experts", format!("{experts} of {block_bytes} bytes"));
        let slot_bytes = aligned(block_bytes).ok_or_else(large)?;
        slot_bytes.checked_mul(experts).ok_or_else(large)?; // so that no smaller number overflows
        Ok(Pool { slot_bytes, block_bytes, experts, layer_experts, minimum: experts.min(2 * layer_experts) })
    }

    pub fn bytes(&self, slots: usize) -> u64 {
        (self.slot_bytes * slots) as u64
    }
}

/// The carry region.
pub(crate) struct Carry {
    pub pass_rows: usize,
    pub bytes: usize,
    pub chunk_bytes: usize,
    /// Chunks of a pass.
    pub chunks: usize,
    chunk: usize,
}

impl Carry {
    /// A pass of one chunk: nothing is carried.
    pub fn one_chunk(chunk: usize) -> Carry {
        Carry { pass_rows: chunk, bytes: 0, chunk_bytes: 0, chunks: 1, chunk }
    }

    /// A carry for the longest pass that is asked for. Errors: sizes beyond 64 bits.
    pub fn wish(program: &Program, ask: &Ask) -> Result<Carry, Refusal> {
        let large = || too_large("chunk", ask.chunk);
        let mut chunk_bytes = 0;
        for boundary in boundaries(program) {
            let mut bytes = 0usize;
            for id in &boundary.live {
                let buffer = &program.buffers[id.0 as usize];
                assert_eq!(buffer.fixed_bytes, 0, "{} lives across layer {}", buffer.name, boundary.layer);
                let rows = ask.chunk.checked_mul(buffer.row_bytes).and_then(aligned);
                bytes = rows.and_then(|b| bytes.checked_add(b)).ok_or_else(large)?;
            }
            chunk_bytes = chunk_bytes.max(bytes);
        }
        let chunks = ask.pass_rows.min(ask.context).div_ceil(ask.chunk);
        // The largest chunk is smaller than the workspace, so only the number of chunks can be absurd.
        let bytes = chunk_bytes.checked_mul(chunks).ok_or_else(|| too_large("pass rows", ask.pass_rows))?;
        let pass_rows = ask.chunk.checked_mul(chunks).ok_or_else(large)?;
        Ok(Carry { pass_rows, bytes, chunk_bytes, chunks, chunk: ask.chunk })
    }

    /// The part of it that holds `chunks` chunks.
    pub fn of_chunks(&self, chunks: usize) -> Carry {
        if chunks < 2 {
            return Carry::one_chunk(self.chunk);
        }
        let (pass_rows, bytes) = (chunks * self.chunk, chunks * self.chunk_bytes);
        Carry { pass_rows, bytes, chunks, ..*self }
    }
}

/// How the bytes above the minimum are used.
pub(crate) struct Shared {
    /// Chunks of a pass, at least 1.
    pub chunks: usize,
    /// `None` for a model without experts.
    pub slots: Option<Slots>,
    /// Slots there would be room for, were it not for the wish of less residency.
    pub held_back: usize,
}

/// Shares `spare` bytes, those above the minimum.
pub(crate) fn share(spare: u64, pool: &Pool, wish: &Carry, residency: Option<u32>) -> Shared {
    if pool.experts == 0 {
        return Shared { chunks: 1, slots: None, held_back: 0 };
    }
    let percent = residency.unwrap_or(100) as usize;
    let most = (pool.experts * percent / 100).max(pool.minimum);
    let all_fit = pool.bytes(pool.experts - pool.minimum) <= spare;
    if all_fit && most == pool.experts {
        // Nothing is streamed, so nothing need be carried.
        return Shared { chunks: 1, slots: Some(slots(pool, pool.experts)), held_back: 0 };
    }
    let (chunks, for_slots) = share_carry(spare, wish);
    let more = usize::try_from(for_slots / pool.slot_bytes as u64).unwrap_or(usize::MAX);
    let fitting = pool.minimum.saturating_add(more).min(pool.experts);
    let count = fitting.min(most);
    Shared { chunks, slots: Some(slots(pool, count)), held_back: fitting - count }
}

/// Chunks of a pass, and the bytes that are left for slots. Short of the whole carry, these stop growing
/// before the carry gains a chunk: more capacity never means fewer slots.
fn share_carry(spare: u64, wish: &Carry) -> (usize, u64) {
    let chunk = wish.chunk_bytes as u64;
    if wish.chunks < 2 || chunk == 0 {
        return (1, spare);
    }
    let fitting = (spare / CARRY_SHARE / chunk).min(wish.chunks as u64);
    // A carry of one chunk would be none.
    let (chunks, next) = if fitting < 2 { (0, 2) } else { (fitting, fitting + 1) };
    let left = spare - chunks * chunk;
    let whole = chunks == wish.chunks as u64;
    let left =
        if whole { left } else { left.min(next.saturating_mul(chunk).saturating_mul(CARRY_SHARE - 1)) };
    (chunks.max(1) as usize, left)
}

fn slots(pool: &Pool, count: usize) -> Slots {
    let group = (count / STAGE_SHARE / (2 * pool.layer_experts)).clamp(1, MOST_GROUP_LAYERS);
    let stage = if count == pool.experts { 0 } else { group * pool.layer_experts };
    let Pool { slot_bytes, block_bytes, experts, .. } = *pool;
    Slots { slot_bytes, block_bytes, count, experts, stage, group_layers: group }
}
