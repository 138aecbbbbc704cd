//! Prefill's way through the experts: all of a layer group at a time, into two staging regions in turn. The
//! regions are the last slots of the pool, lent by the directory meanwhile.

use base::{ExpertId, LayerId, SlotId};

use crate::directory::{Directory, Key, Load};

/// A pass over all layers.
#[derive(Debug)]
pub struct Stream {
    /// First slot of the first region.
    first: u32,
    /// Slots of one region.
    stage: u32,
    /// What each staging slot holds by now.
    holds: Vec<Option<Key>>,
    /// Experts of a layer that may settle in slots which are empty: an equal share of each layer.
    share: usize,
}

impl Stream {
    /// Begins a pass with two regions of `stage` slots (0 where every expert has a slot of its own). What
    /// they held goes to `evicted`.
    pub fn begin(directory: &mut Directory, stage: usize, evicted: &mut Vec<(Key, SlotId)>) -> Stream {
        let slots = directory.slots();
        assert!(2 * stage <= slots, "two regions of {stage} slots in {slots}");
        let first = (slots - 2 * stage) as u32;
        directory.lend(SlotId(first), evicted);
        let layers = directory.layers_with_experts().max(1);
        let share = if stage == 0 { usize::MAX } else { first as usize / layers };
        Stream { first, stage: stage as u32, holds: vec![None; 2 * stage], share }
    }

    /// What to copy for the layers of a group whose turn it is for `region` (0 or 1); residents stay where
    /// they are. Every expert has a place afterwards. Gives how many were resident.
    pub fn group(
        &mut self,
        directory: &mut Directory,
        layers: &[LayerId],
        region: usize,
        loads: &mut Vec<Load>,
    ) -> usize {
        let start = region * self.stage as usize;
        self.holds[start..start + self.stage as usize].fill(None);
        let (mut next, mut residents) = (start, 0);
        for &layer in layers {
            for expert in 0..directory.experts(layer) as u32 {
                let key = Key { layer, expert: ExpertId(expert) };
                if directory.slot(key).is_some() {
                    residents += 1;
                    continue;
                }
                let settles = directory.resident_in(layer) < self.share;
                let slot = settles.then(|| directory.admit(key)).flatten().unwrap_or_else(|| {
                    assert!(next < start + self.stage as usize, "a group larger than its staging region");
                    self.holds[next] = Some(key);
                    next += 1;
                    SlotId(self.first + next as u32 - 1)
                });
                loads.push(Load { key, slot, evicted: None });
            }
        }
        residents
    }

    /// What a staging slot holds.
    pub fn holds(&self, slot: SlotId) -> Option<Key> {
        slot.0.checked_sub(self.first).and_then(|i| self.holds.get(i as usize).copied().flatten())
    }

    /// Whether a slot is one of the staging regions'.
    pub fn is_staging(&self, slot: SlotId) -> bool {
        slot.0 >= self.first
    }

    /// Ends the pass: what the last groups left in staging stays there as residents, the first to go.
    /// `complete` tells of a slot whether its copy was finished.
    pub fn end(self, directory: &mut Directory, complete: impl Fn(SlotId) -> bool) {
        directory.take_back(|slot| self.holds(slot).filter(|_| complete(slot)));
    }
}
