//! The device's slots as a cache of experts: asks `residency` what to do, does it, and counts it.

use base::{ExpertId, LayerId, SlotId};
use gpu::Event;
use plan::Slots;
use residency::{Directory, Key, Load, Stream};

use crate::events::What;
use crate::executor::Executor;

/// Experts in the slots of a device.
pub(crate) struct ExpertCache {
    directory: Directory,
    slots: Slots,
    /// By slot: the copy into it, until somebody has waited for it.
    copying: Vec<Option<Event>>,
    /// What to copy, made anew each time.
    loads: Vec<Load>,
}

/// Experts in slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residents {
    /// All.
    pub all: usize,
    /// Of them those that a pass of prefill leaves where they are.
    pub outside_staging: usize,
}

/// A pass over all layers that is under way.
pub(crate) struct Pass {
    stream: Stream,
    /// By region: what its group has in staging.
    staged: [Vec<Load>; 2],
}

impl ExpertCache {
    /// `experts[layer]` of each decoder layer; a step may need `most_ids` at once, with repetitions.
    pub fn new(experts: &[usize], slots: Slots, most_ids: usize) -> Self {
        ExpertCache {
            directory: Directory::new(experts, slots.count),
            slots,
            copying: vec![None; slots.count],
            loads: Vec::with_capacity(most_ids.min(slots.count)),
        }
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    pub fn residents(&self) -> Residents {
        let [staging, _] = self.slots.stages();
        let outside = (0..staging.start as u32).filter(|slot| self.directory.owner(SlotId(*slot)).is_some());
        Residents { all: self.directory.resident(), outside_staging: outside.count() }
    }

    /// Every expert has a slot of its own and is in it.
    pub fn is_complete(&self) -> bool {
        self.directory.resident() == self.directory.all_experts()
    }

    /// Brings the experts `ids` of `layer` into slots, for one step.
    pub fn demand(&mut self, executor: &mut dyn Executor, layer: LayerId, ids: &[u32]) {
        let mut loads = std::mem::take(&mut self.loads);
        loads.clear();
        let resolved = self.directory.resolve(layer, ids, &mut loads);
        let bytes = executor.block_bytes(layer) as u64;
        for load in &loads {
            if let Some(old) = load.evicted {
                self.evict(executor, old, load.slot);
            }
            self.copy(executor, load);
        }
        for &id in ids {
            let key = Key { layer, expert: ExpertId(id) };
            let slot = self.directory.slot(key).expect("resolved experts are in slots");
            self.arrive(executor, key, slot);
        }
        let stats = &mut executor.stats_mut().experts;
        stats.hits += resolved.hits as u64;
        stats.misses += resolved.misses as u64;
        stats.demand_bytes += bytes * loads.len() as u64;
        let resident = self.directory.resident() as u64;
        stats.peak_slots = stats.peak_slots.max(resident);
        stats.peak_used = stats.peak_used.max(resident);
        self.loads = loads;
    }

    /// Begins to stream all layers: the staging regions leave the cache.
    pub fn begin_pass(&mut self, executor: &mut dyn Executor) -> Pass {
        let mut evicted = Vec::new();
        let stream = Stream::begin(&mut self.directory, self.slots.stage, &mut evicted);
        for (key, slot) in evicted {
            self.evict(executor, key, slot);
            // No copy follows at once that would overwrite it.
            executor.poison(slot);
        }
        executor.stats_mut().experts.passes += 1;
        Pass { stream, staged: [Vec::new(), Vec::new()] }
    }

    /// Asks for the experts of a group's layers; its region must be free.
    pub fn fetch_group(
        &mut self,
        executor: &mut dyn Executor,
        pass: &mut Pass,
        group: usize,
        layers: &[LayerId],
    ) {
        let region = group % 2;
        assert!(pass.staged[region].is_empty(), "a staging region in use");
        let mut loads = std::mem::take(&mut self.loads);
        loads.clear();
        let residents = pass.stream.group(&mut self.directory, layers, region, &mut loads);
        let mut bytes = 0;
        for load in &loads {
            bytes += executor.block_bytes(load.key.layer) as u64;
            self.copy(executor, load);
        }
        pass.staged[region].extend(loads.iter().filter(|l| pass.stream.is_staging(l.slot)));
        let stats = &mut executor.stats_mut().experts;
        stats.residents += residents as u64;
        stats.streamed += loads.len() as u64;
        stats.stream_bytes += bytes;
        let resident = self.directory.resident() as u64;
        let staged = pass.staged.iter().map(Vec::len).sum::<usize>() as u64;
        stats.peak_slots = stats.peak_slots.max(resident);
        stats.peak_staging = stats.peak_staging.max(staged);
        stats.peak_used = stats.peak_used.max(resident + staged);
        self.loads = loads;
    }

    /// Waits for the experts of a group's layers: its steps may run now.
    pub fn await_group(
        &mut self,
        executor: &mut dyn Executor,
        pass: &Pass,
        group: usize,
        layers: &[LayerId],
    ) {
        executor.stats_mut().events.push(What::Group, layers.first().copied(), None, None);
        for load in &pass.staged[group % 2] {
            self.arrive(executor, load.key, load.slot);
        }
        for &layer in layers {
            for expert in (0..self.directory.experts(layer) as u32).map(ExpertId) {
                let key = Key { layer, expert };
                if let Some(slot) = self.directory.slot(key) {
                    self.arrive(executor, key, slot);
                }
            }
        }
    }

    /// A group's steps are through: what it had in staging may be overwritten.
    pub fn leave_group(&mut self, executor: &mut dyn Executor, pass: &mut Pass, group: usize) {
        for load in pass.staged[group % 2].drain(..) {
            executor.point(load.key.layer, load.key.expert, None);
        }
    }

    /// Ends a pass, also one that was broken off. What has arrived in staging stays in the cache.
    pub fn end_pass(&mut self, executor: &mut dyn Executor, mut pass: Pass) {
        for group in 0..2 {
            self.leave_group(executor, &mut pass, group);
        }
        let copying = &self.copying;
        pass.stream.end(&mut self.directory, |slot| copying[slot.index()].is_none());
        let [first, second] = self.slots.stages();
        for slot in (first.start as u32..second.end as u32).map(SlotId) {
            self.copying[slot.index()] = None;
            if let Some(key) = self.directory.owner(slot) {
                executor.point(key.layer, key.expert, Some(slot));
            }
        }
    }

    fn copy(&mut self, executor: &mut dyn Executor, load: &Load) {
        let event = executor.copy_expert(load.key.layer, load.key.expert, load.slot);
        self.copying[load.slot.index()] = Some(event);
        let stats = executor.stats_mut();
        stats.experts.copies += 1;
        stats.events.push(What::Copy, Some(load.key.layer), Some(load.key.expert), Some(load.slot));
    }

    /// The first who needs an expert waits for its copy; then it is in the table.
    fn arrive(&mut self, executor: &mut dyn Executor, key: Key, slot: SlotId) {
        let Some(event) = self.copying[slot.index()].take() else { return };
        if executor.wait(event) {
            let stats = executor.stats_mut();
            stats.experts.waits += 1;
            stats.events.push(What::Wait, Some(key.layer), Some(key.expert), Some(slot));
        }
        executor.point(key.layer, key.expert, Some(slot));
    }

    fn evict(&mut self, executor: &mut dyn Executor, key: Key, slot: SlotId) {
        self.copying[slot.index()] = None;
        executor.point(key.layer, key.expert, None);
        let stats = executor.stats_mut();
        stats.experts.evictions += 1;
        stats.events.push(What::Evict, Some(key.layer), Some(key.expert), Some(slot));
    }
}
