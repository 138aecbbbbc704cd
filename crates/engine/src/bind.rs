//! Binds a program to the regions of a device's memory, once: every operand becomes a span. No device is
//! touched here but to make its arena.

use std::collections::BTreeMap;

use arch::{Operand, Program, Role, Rows};
use arrayvec::ArrayVec;
use base::{LayerId, Result, SlotId};
use gpu::arena::MAX_VIEWS;
use gpu::{Arena, Span};
use ops::Dims;
use plan::{Boundary, Plan};

use crate::stats::{KindStats, Stats};
use crate::weight_source::WeightSource;

/// A read operand, resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Read {
    /// Bytes of the device.
    Span(Span),
    /// A weight that is read where the source has it.
    Alias(Role),
}

/// A step, resolved.
#[derive(Debug)]
pub(crate) struct Bound {
    pub reads: ArrayVec<Read, MAX_VIEWS>,
    pub writes: ArrayVec<Span, MAX_VIEWS>,
    pub experts: Option<LayerId>,
    pub kind: usize,
}

/// The slots of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotPool {
    /// All of them.
    pub span: Span,
    pub slot_bytes: usize,
}

/// A program bound to an arena.
#[derive(Debug)]
pub(crate) struct Binding {
    pub program: Program,
    pub plan: Plan,
    pub steps: Vec<Bound>,
    pub dims: Dims,
    pub tables: Span,
    pub ids: Span,
    pub head_rows: Span,
    pub states: Vec<Span>,
    pub pool: Option<SlotPool>,
    /// Where prefill may change from one layer group to the next.
    pub boundaries: Vec<Boundary>,
    carry: Span,
    /// Where buffers are, at the largest number of rows.
    buffers: Vec<Span>,
    /// Step that writes the logits.
    pub logits_step: u32,
    /// Step that writes the row digests.
    pub digest_step: u32,
}

/// Regions in the plan's order.
const WEIGHTS: &str = "weights";
const TABLES: &str = "tables";
const IDS: &str = "ids";
const HEAD_ROWS: &str = "head_rows";
const WORKSPACE: &str = "workspace";
const CARRY: &str = "carry";
const SLOTS: &str = "slots";
const UNUSED: &str = "unused";

fn regions(plan: &Plan) -> Vec<(String, usize)> {
    let slots = plan.slots.map_or(0, |s| s.count * s.slot_bytes);
    let mut regions = vec![
        (WEIGHTS.to_string(), plan.weights_bytes),
        (TABLES.to_string(), plan.table_bytes),
        (IDS.to_string(), plan.ids_bytes),
        (HEAD_ROWS.to_string(), plan.head_rows_bytes),
    ];
    regions.extend(plan.states.iter().enumerate().map(|(i, bytes)| (format!("state{i}"), *bytes)));
    regions.extend([
        (WORKSPACE.to_string(), plan.workspace.total),
        (CARRY.to_string(), plan.carry_bytes),
        (SLOTS.to_string(), slots),
    ]);
    if let Some(capacity) = plan.capacity {
        let used: usize = regions.iter().map(|(_, bytes)| bytes).sum();
        let unused = (capacity as usize).checked_sub(used);
        regions.push((UNUSED.to_string(), unused.expect("a plan fits its capacity")));
    }
    regions
}

fn whole(arena: &Arena, name: &str) -> Span {
    let region = arena.region(name);
    arena.span(region, 0, arena.region_bytes(region))
}

impl Binding {
    /// Makes the arena of `plan` and binds `program` to it. Dense weights are copied into it if the plan has
    /// places for them.
    pub fn new(
        program: Program,
        plan: Plan,
        weights: &dyn WeightSource,
        stats: &mut Stats,
    ) -> Result<(Binding, Arena)> {
        let mut arena = Arena::new(&regions(&plan))?;
        let dense_region = arena.region(WEIGHTS);
        let mut dense = BTreeMap::new();
        for place in &plan.dense {
            let span = arena.span(dense_region, place.offset, place.bytes);
            arena.write(span).copy_from_slice(weights.dense(place.role));
            dense.insert(place.role, span);
        }
        let states: Vec<Span> = (0..plan.states.len()).map(|i| whole(&arena, &format!("state{i}"))).collect();
        let workspace = arena.region(WORKSPACE);
        let places = plan.workspace.offsets.iter().zip(&plan.workspace.bytes);
        let buffers: Vec<Span> =
            places.map(|(offset, bytes)| arena.span(workspace, *offset, *bytes)).collect();
        let (ids, head_rows, tables) = (whole(&arena, IDS), whole(&arena, HEAD_ROWS), whole(&arena, TABLES));
        let read = |operand: &Operand| match operand {
            Operand::Buffer(id) => Some(Read::Span(buffers[id.0 as usize])),
            Operand::State(id) => Some(Read::Span(states[id.0 as usize])),
            Operand::Table => Some(Read::Span(tables)),
            Operand::Ids => Some(Read::Span(ids)),
            Operand::HeadRows => Some(Read::Span(head_rows)),
            Operand::Weight(role) if plan.dense.is_empty() => Some(Read::Alias(*role)),
            Operand::Weight(role) => Some(Read::Span(dense[role])),
            Operand::Experts(_) => None,
        };
        let steps = bind_steps(&program, &read, stats);
        let writer = |buffer| {
            let writes = |s: &&arch::Step| s.writes.contains(&Operand::Buffer(buffer));
            program.steps.iter().find(writes).expect("somebody writes it").id
        };
        let (logits_step, digest_step) = (writer(program.logits), writer(program.digests));
        let pool = plan.slots.map(|s| SlotPool { span: whole(&arena, SLOTS), slot_bytes: s.slot_bytes });
        let dims = Dims { rows: plan.rows, context: plan.context, sequences: plan.sequences };
        let (boundaries, carry) = (plan::boundaries(&program), whole(&arena, CARRY));
        let binding = Binding {
            program,
            plan,
            steps,
            dims,
            tables,
            ids,
            head_rows,
            states,
            pool,
            boundaries,
            carry,
            buffers,
            logits_step,
            digest_step,
        };
        binding.check_shapes(weights);
        Ok((binding, arena))
    }

    /// Every view is long enough for the op at the largest sizes: checked once, here, so that the ops' own
    /// panics on short views never fire.
    fn check_shapes(&self, weights: &dyn WeightSource) {
        for (step, bound) in self.program.steps.iter().zip(&self.steps) {
            let rows = if step.id < self.program.head { self.dims.rows } else { self.plan.head_rows };
            let shapes = step.desc.shapes(Dims { rows, ..self.dims });
            assert_eq!(shapes.reads.len(), bound.reads.len(), "reads of step {}", step.name);
            assert_eq!(shapes.writes.len(), bound.writes.len(), "writes of step {}", step.name);
            for (spec, read) in shapes.reads.iter().zip(&bound.reads) {
                let have = match read {
                    Read::Span(span) => span.len(),
                    Read::Alias(role) => weights.dense(*role).len(),
                };
                assert!(have >= spec.bytes, "step {}: {} has {have} bytes", step.name, spec.name);
            }
            for (spec, span) in shapes.writes.iter().zip(&bound.writes) {
                assert!(span.len() >= spec.bytes, "step {}: {}", step.name, spec.name);
            }
        }
    }

    /// The bytes of a slot.
    pub fn slot(&self, slot: SlotId, bytes: usize) -> Span {
        let pool = self.pool.expect("a device with slots");
        pool.span.part(slot.index() * pool.slot_bytes, bytes)
    }

    /// For each buffer that lives across `boundary`: its rows of a chunk of `rows` rows, and their place in
    /// the carry of chunk `chunk`.
    pub fn carried(
        &self,
        boundary: &Boundary,
        chunk: usize,
        rows: usize,
    ) -> ArrayVec<(Span, Span), MAX_VIEWS> {
        let mut at = chunk * self.plan.carry_chunk_bytes;
        let place = |id: &arch::BufferId| {
            let bytes = self.program.buffers[id.0 as usize].bytes(rows);
            let largest = self.program.buffers[id.0 as usize].bytes(self.plan.chunk);
            let spans = (self.buffers[id.0 as usize].part(0, bytes), self.carry.part(at, bytes));
            at += base::units::round_up(largest, plan::ALIGN);
            spans
        };
        boundary.live.iter().map(place).collect()
    }
}

fn bind_steps(program: &Program, read: &dyn Fn(&Operand) -> Option<Read>, stats: &mut Stats) -> Vec<Bound> {
    let mut bound = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let mut experts = None;
        let mut reads = ArrayVec::new();
        for operand in &step.reads {
            match operand {
                Operand::Experts(layer) => experts = Some(*layer),
                other => reads.push(read(other).expect("everything else has a place")),
            }
        }
        let write = |operand| match read(operand) {
            Some(Read::Span(span)) => span,
            _ => panic!("weights are never written"),
        };
        let writes = step.writes.iter().map(write).collect();
        let (op, name) = (step.desc.name(), step.name);
        let kind = stats.kinds.iter().position(|k| k.op == op && k.step == name).unwrap_or_else(|| {
            stats.kinds.push(KindStats::new(op, name));
            stats.kinds.len() - 1
        });
        bound.push(Bound { reads, writes, experts, kind });
    }
    debug_assert!(program.buffers.iter().any(|b| b.rows == Rows::Head));
    bound
}
