//! The host executor: runs the steps of a bound program on the processor's cores.
//!
//! Without a capacity, weights and experts are read where the mapped cache has them. With one, ops get views
//! of the arena only and everything else is copied into it, as on a GPU.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use base::{ExpertId, LayerId, SlotId};
use gpu::arena::MAX_VIEWS;
use gpu::{Arena, CopyQueue, Event, POISON, Span};
use ops::{Cost, Dims, Experts, HostArgs, HostExec, Ran, Reads, Row, Writes};
use zerocopy::FromBytes;

use crate::bind::{Binding, Read};
use crate::executor::Executor;
use crate::options::Checks;
use crate::stats::Stats;
use crate::weight_source::WeightSource;

/// A layer's part of the pointer table.
#[derive(Debug, Clone, Default)]
struct LayerTable {
    block_bytes: usize,
    /// By expert: where its block is in the layer's mapped experts, or in the slots.
    offsets: Vec<u64>,
}

/// A program bound to host memory.
pub(crate) struct HostExecutor {
    binding: Binding,
    weights: Box<dyn WeightSource>,
    exec: Arc<HostExec>,
    arena: Arena,
    queue: CopyQueue,
    /// By decoder layer.
    table: Vec<LayerTable>,
    stats: Stats,
    /// Nothing may read the cache's mapping while a step runs.
    closes_mapping: bool,
}

impl HostExecutor {
    pub fn new(
        binding: Binding,
        arena: Arena,
        weights: Box<dyn WeightSource>,
        exec: HostExec,
        stats: Stats,
        checks: Checks,
    ) -> Self {
        let mut table = Vec::new();
        for (step, bound) in binding.program.steps.iter().zip(&binding.steps) {
            let (Some(read), Some(layer)) = (step.desc.expert_read(), bound.experts) else { continue };
            table.resize(table.len().max(layer.index() + 1), LayerTable::default());
            let aliased = |e: usize| (e * read.block_bytes) as u64;
            let offset = |e| if binding.pool.is_some() { Experts::ABSENT } else { aliased(e) };
            let offsets = (0..read.experts).map(offset).collect();
            table[layer.index()] = LayerTable { block_bytes: read.block_bytes, offsets };
        }
        let closes_mapping = checks.close_mapping && binding.plan.capacity.is_some();
        HostExecutor {
            binding,
            weights,
            exec: Arc::new(exec),
            arena,
            queue: CopyQueue::new(checks.pace),
            table,
            stats,
            closes_mapping,
        }
    }

    fn execute(&mut self, id: u32, rows: &[Row]) -> Ran {
        let bound = &self.binding.steps[id as usize];
        let mut spans = ArrayVec::<Span, MAX_VIEWS>::new();
        spans.extend(bound.reads.iter().filter_map(|r| match r {
            Read::Span(span) => Some(*span),
            Read::Alias(_) => None,
        }));
        let pool = self.binding.pool.filter(|_| bound.experts.is_some());
        spans.extend(pool.map(|p| p.span));
        let mut views = self.arena.bind(&spans, &bound.writes);
        let slots = pool.and_then(|_| views.reads.pop());
        let mut from_arena = views.reads.into_iter();
        let reads = bound.reads.iter().map(|r| match r {
            Read::Span(_) => from_arena.next().expect("one view per span"),
            Read::Alias(role) => self.weights.dense(*role),
        });
        let experts = bound.experts.map_or(Experts::default(), |layer| {
            let LayerTable { block_bytes, offsets } = &self.table[layer.index()];
            let memory = slots.unwrap_or_else(|| self.weights.experts(layer));
            Experts { memory, offsets, block_bytes: *block_bytes }
        });
        let args = HostArgs {
            rows,
            context: self.binding.dims.context,
            reads: Reads(reads.collect()),
            writes: Writes(views.writes),
            experts,
        };
        self.binding.program.steps[id as usize].desc.run(&self.exec, args)
    }

    /// Cost of a step; expert weights count once per expert that was routed to, and history up to the last
    /// row's position, which all rows of a run are counted with.
    fn cost(&self, id: u32, rows: &[Row]) -> Cost {
        let step = &self.binding.program.steps[id as usize];
        let context = rows.iter().map(|row| row.pos as usize + 1).max().unwrap_or(1);
        let mut cost = step.desc.cost(Dims { rows: rows.len(), context, ..self.binding.dims });
        if let Some(read) = step.desc.expert_read() {
            let operand = self.binding.steps[id as usize].reads[read.offsets];
            let Read::Span(offsets) = operand else { panic!("offsets are a buffer") };
            let offsets = <[u32]>::ref_from_prefix_with_elems(self.arena.read(offsets), read.experts + 1);
            let offsets = offsets.expect("aligned and long enough").0;
            let routed = offsets.windows(2).filter(|w| w[1] > w[0]).count();
            cost.bytes_read = (routed * read.read_bytes) as u64;
        }
        cost
    }

    /// Gives the copy queue the mapped cache for a moment.
    fn with_queue<R>(&mut self, f: impl FnOnce(&mut CopyQueue, &mut Arena, &[u8]) -> R) -> R {
        if self.closes_mapping {
            self.weights.close(false);
        }
        let result = f(&mut self.queue, &mut self.arena, self.weights.bytes());
        if self.closes_mapping {
            self.weights.close(true);
        }
        result
    }

    fn block(&self, layer: LayerId, expert: ExpertId) -> Range<usize> {
        let start = self.weights.experts_at(layer);
        let bytes = self.table[layer.index()].block_bytes;
        let at = start + expert.index() * bytes;
        at..at + bytes
    }
}

impl Executor for HostExecutor {
    fn binding(&self) -> &Binding {
        &self.binding
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    fn workers(&self) -> Arc<HostExec> {
        self.exec.clone()
    }

    fn submit(&mut self, step: u32, rows: &[Row]) {
        if !self.queue.is_empty() {
            self.with_queue(|queue, arena, host| queue.tick(arena, host));
        }
        let started = Instant::now();
        let ran = self.execute(step, rows);
        let cost = self.cost(step, rows);
        let kind = self.binding.steps[step as usize].kind;
        self.stats.kinds[kind].add(rows.len(), started.elapsed(), cost, ran);
    }

    fn read(&self, span: Span) -> &[u8] {
        self.arena.read(span)
    }

    fn write(&mut self, span: Span, bytes: &[u8]) {
        self.arena.write(span)[..bytes.len()].copy_from_slice(bytes);
    }

    fn clear(&mut self, span: Span) {
        self.arena.write(span).fill(0);
    }

    fn move_span(&mut self, from: Span, to: Span) {
        self.arena.copy(from, to);
    }

    fn copy_expert(&mut self, layer: LayerId, expert: ExpertId, slot: SlotId) -> Event {
        let from = self.block(layer, expert);
        let to = self.binding.slot(slot, from.len());
        self.with_queue(|queue, arena, host| queue.copy(arena, host, from, to))
    }

    fn wait(&mut self, event: Event) -> bool {
        if self.queue.is_done(event) {
            return false;
        }
        self.with_queue(|queue, arena, host| queue.wait(arena, host, event))
    }

    fn poison(&mut self, slot: SlotId) {
        let bytes = self.binding.pool.expect("a device with slots").slot_bytes;
        self.arena.write(self.binding.slot(slot, bytes)).fill(POISON);
    }

    fn point(&mut self, layer: LayerId, expert: ExpertId, slot: Option<SlotId>) {
        let pool = self.binding.pool.expect("a device with slots");
        let at = slot.map_or(Experts::ABSENT, |slot| (slot.index() * pool.slot_bytes) as u64);
        self.table[layer.index()].offsets[expert.index()] = at;
    }

    fn block_bytes(&self, layer: LayerId) -> usize {
        self.table[layer.index()].block_bytes
    }
}
