//! The slot directory: a flat table [layer][expert] → slot, and the slots in the order of their last use.

use base::{ExpertId, LayerId, SlotId};

/// No slot, no expert, end of a list.
const NONE: u32 = u32::MAX;

/// An expert of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Decoder layer.
    pub layer: LayerId,
    /// Expert of it.
    pub expert: ExpertId,
}

/// A copy to make: the block of `key` into `slot`, in place of `evicted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// What.
    pub key: Key,
    /// Where to.
    pub slot: SlotId,
    /// What the slot held before.
    pub evicted: Option<Key>,
}

/// What a step of a layer found: distinct experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resolved {
    /// Experts that were in a slot.
    pub hits: usize,
    /// Experts that had to be loaded.
    pub misses: usize,
}

/// A slot: links of the list from the most to the least recently used.
#[derive(Debug, Clone, Copy)]
struct Slot {
    newer: u32,
    older: u32,
    /// Flat index of the expert, or NONE.
    owner: u32,
    /// The step that last needed it: it can't be evicted by the same step.
    step: u64,
}

/// Which expert is in which slot.
#[derive(Debug, Clone)]
pub struct Directory {
    /// First flat index of each layer, and the number of all experts at the end.
    first: Vec<u32>,
    /// By flat index.
    slot_of: Vec<u32>,
    /// Experts in slots, by layer.
    in_layer: Vec<u32>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    /// Slots from this one on are lent: not in the list, owned by nobody.
    lent_from: u32,
    step: u64,
}

impl Directory {
    /// `experts[layer]` routed experts in each decoder layer (0 where it has none) and `slots` slots, all
    /// empty.
    pub fn new(experts: &[usize], slots: usize) -> Self {
        let mut first = vec![0];
        for count in experts {
            let end = first[first.len() - 1] as usize + count;
            assert!(end < NONE as usize && slots < NONE as usize, "{end} experts in {slots} slots");
            first.push(end as u32);
        }
        let all = first[first.len() - 1] as usize;
        let empty = Slot { newer: NONE, older: NONE, owner: NONE, step: 0 };
        let mut directory = Directory {
            slot_of: vec![NONE; all],
            in_layer: vec![0; experts.len()],
            slots: vec![empty; slots],
            first,
            newest: NONE,
            oldest: NONE,
            lent_from: slots as u32,
            step: 0,
        };
        // The first slots are taken first.
        (0..slots as u32).rev().for_each(|slot| directory.push_oldest(slot));
        directory
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Experts of a layer.
    pub fn experts(&self, layer: LayerId) -> usize {
        (self.first[layer.index() + 1] - self.first[layer.index()]) as usize
    }

    /// Layers that have experts.
    pub fn layers_with_experts(&self) -> usize {
        self.first.windows(2).filter(|w| w[0] < w[1]).count()
    }

    /// Experts of all layers.
    pub fn all_experts(&self) -> usize {
        self.slot_of.len()
    }

    /// Experts that are in slots.
    pub fn resident(&self) -> usize {
        self.in_layer.iter().sum::<u32>() as usize
    }

    /// Experts of a layer that are in slots.
    pub fn resident_in(&self, layer: LayerId) -> usize {
        self.in_layer[layer.index()] as usize
    }

    /// The slot of an expert. Looking does not make it more recently used.
    pub fn slot(&self, key: Key) -> Option<SlotId> {
        let slot = self.slot_of[self.flat(key)];
        (slot != NONE).then_some(SlotId(slot))
    }

    /// The expert in a slot.
    pub fn owner(&self, slot: SlotId) -> Option<Key> {
        let owner = self.slots[slot.index()].owner;
        (owner != NONE).then(|| self.key(owner))
    }

    /// Makes room for the experts `ids` of `layer` (any order, repeated or not), which one step needs
    /// together: those in a slot become the most recently used, for the others slots are taken, the least
    /// recently used first and never one of this step. The copies go to `loads`. Panics if there are fewer
    /// slots than distinct experts: the plan sees to that.
    pub fn resolve(&mut self, layer: LayerId, ids: &[u32], loads: &mut Vec<Load>) -> Resolved {
        self.step += 1;
        let mut resolved = Resolved::default();
        for &id in ids {
            let slot = self.slot_of[self.flat(Key { layer, expert: ExpertId(id) })];
            if slot != NONE && self.slots[slot as usize].step != self.step {
                self.slots[slot as usize].step = self.step;
                self.touch(slot);
                resolved.hits += 1;
            }
        }
        for &id in ids {
            let key = Key { layer, expert: ExpertId(id) };
            if self.slot_of[self.flat(key)] != NONE {
                continue;
            }
            let slot = self.oldest;
            assert!(slot != NONE, "{} slots for {} experts of a step", self.slots.len(), ids.len());
            assert!(self.slots[slot as usize].step != self.step, "a step needs more experts than slots");
            let evicted = self.vacate(slot);
            self.occupy(slot, key);
            self.slots[slot as usize].step = self.step;
            self.touch(slot);
            loads.push(Load { key, slot: SlotId(slot), evicted });
            resolved.misses += 1;
        }
        resolved
    }

    /// Takes an empty slot for an expert that has none, if there is one. The expert becomes the most
    /// recently used.
    pub fn admit(&mut self, key: Key) -> Option<SlotId> {
        let slot = self.oldest;
        // Empty slots are never used, so they are at the end of the list.
        if slot == NONE || !self.is_empty(slot) {
            return None;
        }
        self.occupy(slot, key);
        self.touch(slot);
        Some(SlotId(slot))
    }

    /// Takes the slots from `from` on out of the directory, for staging; what was in them goes to `evicted`.
    pub fn lend(&mut self, from: SlotId, evicted: &mut Vec<(Key, SlotId)>) {
        assert_eq!(self.lent_from as usize, self.slots.len(), "slots are lent already");
        self.lent_from = from.0;
        for slot in from.0..self.slots.len() as u32 {
            evicted.extend(self.vacate(slot).map(|key| (key, SlotId(slot))));
            self.unlink(slot);
        }
    }

    /// Takes lent slots back. `holds` tells what is in each by now; an expert that has another slot already
    /// is left out. They are the least recently used, empty ones last.
    pub fn take_back(&mut self, holds: impl Fn(SlotId) -> Option<Key>) {
        let lent = self.lent_from..self.slots.len() as u32;
        self.lent_from = lent.end;
        // Empty slots stay at the end of the list.
        let mut empty: Vec<u32> =
            self.oldest_first().map(|s| s.0).take_while(|s| self.is_empty(*s)).collect();
        empty.iter().for_each(|slot| self.unlink(*slot));
        for slot in lent {
            match holds(SlotId(slot)).filter(|key| self.slot_of[self.flat(*key)] == NONE) {
                Some(key) => {
                    self.occupy(slot, key);
                    self.push_oldest(slot);
                }
                None => empty.push(slot),
            }
        }
        empty.into_iter().rev().for_each(|slot| self.push_oldest(slot));
    }

    /// Makes an expert's slot the most recently used.
    pub fn used(&mut self, key: Key) {
        let slot = self.slot_of[self.flat(key)];
        if slot != NONE {
            self.touch(slot);
        }
    }

    fn is_empty(&self, slot: u32) -> bool {
        self.slots[slot as usize].owner == NONE
    }

    fn flat(&self, key: Key) -> usize {
        let first = self.first[key.layer.index()];
        let flat = first + key.expert.0;
        assert!(flat < self.first[key.layer.index() + 1], "no expert {} in layer {}", key.expert, key.layer);
        flat as usize
    }

    fn key(&self, flat: u32) -> Key {
        let layer = self.first.partition_point(|first| *first <= flat) - 1;
        Key { layer: LayerId(layer as u32), expert: ExpertId(flat - self.first[layer]) }
    }

    fn occupy(&mut self, slot: u32, key: Key) {
        let flat = self.flat(key);
        debug_assert_eq!(self.slots[slot as usize].owner, NONE);
        self.slots[slot as usize].owner = flat as u32;
        self.slot_of[flat] = slot;
        self.in_layer[key.layer.index()] += 1;
    }

    fn vacate(&mut self, slot: u32) -> Option<Key> {
        let owner = std::mem::replace(&mut self.slots[slot as usize].owner, NONE);
        if owner == NONE {
            return None;
        }
        self.slot_of[owner as usize] = NONE;
        let key = self.key(owner);
        self.in_layer[key.layer.index()] -= 1;
        Some(key)
    }

    fn touch(&mut self, slot: u32) {
        if self.newest == slot {
            return;
        }
        self.unlink(slot);
        let old = std::mem::replace(&mut self.newest, slot);
        self.slots[slot as usize].older = old;
        match old {
            NONE => self.oldest = slot,
            old => self.slots[old as usize].newer = slot,
        }
    }

    fn push_oldest(&mut self, slot: u32) {
        let old = std::mem::replace(&mut self.oldest, slot);
        self.slots[slot as usize].newer = old;
        match old {
            NONE => self.newest = slot,
            old => self.slots[old as usize].older = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        self.slots[slot as usize].newer = NONE;
        self.slots[slot as usize].older = NONE;
    }

    /// Slots from the least recently used on; lent ones are not among them.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = SlotId> {
        let next = |slot: u32| (slot != NONE).then_some(slot);
        std::iter::successors(next(self.oldest), move |s| next(self.slots[*s as usize].newer)).map(SlotId)
    }

    /// Everything that must hold between calls; used by tests.
    pub fn check(&self) {
        let listed: Vec<SlotId> = self.oldest_first().collect();
        assert_eq!(listed.len(), self.lent_from as usize, "slots in the list");
        let mut empty_ended = false;
        for slot in &listed {
            let empty = self.is_empty(slot.0);
            assert!(!(empty && empty_ended), "an empty slot is more recently used than a full one");
            empty_ended |= !empty;
        }
        for (flat, &slot) in self.slot_of.iter().enumerate() {
            assert!(slot == NONE || self.slots[slot as usize].owner == flat as u32, "expert {flat}");
            assert!(slot == NONE || slot < self.lent_from, "expert {flat} is in a lent slot");
        }
        let owned = self.slots.iter().filter(|s| s.owner != NONE).count();
        assert_eq!(owned, self.resident());
        assert_eq!(owned, self.slot_of.iter().filter(|s| **s != NONE).count());
    }
}
