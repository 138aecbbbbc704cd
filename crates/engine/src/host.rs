//! The host executor: binds a program once to regions of an arena, then runs its steps.

use std::sync::Arc;
use std::time::Instant;

use arch::{Operand, Program, Role, Rows};
use arrayvec::ArrayVec;
use base::{Error, LayerId, Refusal, Result, WorldError};
use gpu::arena::MAX_VIEWS;
use gpu::{Arena, Span};
use ops::linear::layout::Expert;
use ops::{Cost, Dims, Experts, HostArgs, HostExec, OpDesc, Ran, Reads, Row, Writes};
use zerocopy::{FromBytes, IntoBytes};

use crate::stats::{KindStats, Stats};
use crate::weight_source::WeightSource;

/// A read operand, resolved.
#[derive(Debug, Clone, Copy)]
enum Read {
    Span(Span),
    Weight(Role),
}

/// A step, resolved.
#[derive(Debug)]
struct Bound {
    reads: ArrayVec<Read, MAX_VIEWS>,
    writes: ArrayVec<Span, MAX_VIEWS>,
    experts: Option<LayerId>,
    kind: usize,
}

/// Regions of the arena that are not buffers.
const IDS: &str = "ids";
const HEAD_ROWS: &str = "head_rows";
const WORKSPACE: &str = "workspace";
const TABLE: &str = "rope";

/// A program bound to host memory.
pub(crate) struct HostExecutor {
    program: Program,
    weights: Box<dyn WeightSource>,
    exec: Arc<HostExec>,
    arena: Arena,
    bound: Vec<Bound>,
    /// Expert offsets, the same for every layer of one block size: block `e` starts at `e · block_bytes`.
    offsets: Vec<Vec<u64>>,
    dims: Dims,
    head_rows: usize,
    states: Vec<Span>,
    /// Step that writes the logits.
    pub(crate) logits_step: u32,
    /// Step that writes the row digests.
    pub(crate) digest_step: u32,
    pub(crate) stats: Stats,
    pub(crate) digest: bool,
}

/// Largest sizes a binding serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Maxima {
    pub rows: usize,
    pub head_rows: usize,
    pub context: usize,
    pub sequences: usize,
}

impl HostExecutor {
    pub(crate) fn bind(
        program: Program,
        weights: Box<dyn WeightSource>,
        exec: HostExec,
        maxima: Maxima,
    ) -> Result<Self> {
        let dims = Dims { rows: maxima.rows, context: maxima.context, sequences: maxima.sequences };
        let placed = plan::workspace::place(&program.buffers, maxima.rows, maxima.head_rows)?;
        let table = program.table.as_ref().map(|t| crate::tables::rope(&t.rope, maxima.context));
        let table = table.unwrap_or_default();
        let mut regions = vec![
            (IDS.to_string(), 4 * maxima.rows),
            (HEAD_ROWS.to_string(), 4 * maxima.head_rows),
            (WORKSPACE.to_string(), placed.total),
            (TABLE.to_string(), 4 * table.len()),
        ];
        for (i, state) in program.states.iter().enumerate() {
            let bytes = maxima.sequences.checked_mul(state.sequence_bytes(maxima.context));
            let bytes = bytes.ok_or_else(|| {
                Refusal::value("context", maxima.context, "what memory can hold", "ask for less context")
            })?;
            regions.push((format!("state{i}"), bytes));
        }
        let mut arena = Arena::new(&regions)?;
        let whole = |arena: &Arena, name: &str| {
            let region = arena.region(name);
            arena.span(region, 0, arena.region_bytes(region))
        };
        let table_span = whole(&arena, TABLE);
        arena.write(table_span).copy_from_slice(table.as_bytes());
        let states: Vec<Span> =
            (0..program.states.len()).map(|i| whole(&arena, &format!("state{i}"))).collect();
        let workspace = arena.region(WORKSPACE);
        let span = |operand: &Operand| match operand {
            Operand::Buffer(id) => {
                let i = id.0 as usize;
                Some(arena.span(workspace, placed.offsets[i], placed.bytes[i]))
            }
            Operand::State(id) => Some(states[id.0 as usize]),
            Operand::Table => Some(table_span),
            Operand::Ids => Some(whole(&arena, IDS)),
            Operand::HeadRows => Some(whole(&arena, HEAD_ROWS)),
            Operand::Weight(_) | Operand::Experts(_) => None,
        };
        let mut stats = Stats::default();
        let bound = bind_steps(&program, &span, &mut stats);
        let writer = |buffer| {
            let writes = |s: &&arch::Step| s.writes.contains(&Operand::Buffer(buffer));
            program.steps.iter().find(writes).expect("somebody writes it").id
        };
        let (logits_step, digest_step) = (writer(program.logits), writer(program.digests));
        let offsets = program.steps.iter().map(|s| expert_offsets(&s.desc)).collect();
        let executor = HostExecutor {
            program,
            weights,
            exec: Arc::new(exec),
            arena,
            bound,
            offsets,
            dims,
            head_rows: maxima.head_rows,
            states,
            logits_step,
            digest_step,
            stats,
            digest: false,
        };
        executor.check_shapes();
        Ok(executor)
    }

    /// Every view is long enough for the op at the largest sizes: checked once, here, so that the ops' own
    /// panics on short views never fire.
    fn check_shapes(&self) {
        for (step, bound) in self.program.steps.iter().zip(&self.bound) {
            let rows = if step.id < self.program.head { self.dims.rows } else { self.head_rows };
            let shapes = step.desc.shapes(Dims { rows, ..self.dims });
            assert_eq!(shapes.reads.len(), bound.reads.len(), "reads of step {}", step.name);
            assert_eq!(shapes.writes.len(), bound.writes.len(), "writes of step {}", step.name);
            for (spec, read) in shapes.reads.iter().zip(&bound.reads) {
                let have = match read {
                    Read::Span(span) => span.len(),
                    Read::Weight(role) => self.weights.dense(*role).len(),
                };
                assert!(have >= spec.bytes, "step {}: {} has {have} bytes", step.name, spec.name);
            }
            for (spec, span) in shapes.writes.iter().zip(&bound.writes) {
                assert!(span.len() >= spec.bytes, "step {}: {}", step.name, spec.name);
            }
        }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn exec(&self) -> &Arc<HostExec> {
        &self.exec
    }

    /// Name and bytes of every region.
    pub(crate) fn regions(&self) -> impl Iterator<Item = (&str, usize)> {
        self.arena.regions()
    }

    /// Zeroes what a new sequence starts from. Coded keys and values are never read before they are written.
    pub(crate) fn clear_sequence(&mut self, seq: usize) {
        for (spec, span) in self.program.states.iter().zip(&self.states) {
            if spec.fixed_bytes > 0 {
                let bytes = spec.sequence_bytes(self.dims.context);
                self.arena.write(*span)[seq * bytes..][..bytes].fill(0);
            }
        }
    }

    /// Puts token ids in place.
    pub(crate) fn upload_ids(&mut self, ids: &[u32]) {
        let region = self.arena.region(IDS);
        let span = self.arena.span(region, 0, 4 * ids.len());
        self.arena.write(span).copy_from_slice(ids.as_bytes());
    }

    /// Puts the rows in place whose logits are wanted.
    pub(crate) fn upload_head_rows(&mut self, rows: &[u32]) {
        let region = self.arena.region(HEAD_ROWS);
        let span = self.arena.span(region, 0, 4 * rows.len());
        self.arena.write(span).copy_from_slice(rows.as_bytes());
    }

    /// The first `count` elements of what step `step` wrote as operand `write`.
    pub(crate) fn output<T>(&self, step: u32, write: usize, count: usize) -> &[T]
    where
        T: FromBytes + zerocopy::Immutable + zerocopy::KnownLayout,
    {
        let bytes = self.arena.read(self.bound[step as usize].writes[write]);
        <[T]>::ref_from_prefix_with_elems(bytes, count).expect("aligned and long enough").0
    }

    /// Runs the steps `range` on `rows`, calling `after` behind each. Stops at the first error.
    pub(crate) fn run(
        &mut self,
        range: std::ops::Range<u32>,
        rows: &[Row],
        after: &mut (dyn FnMut(&Self, u32) -> Result<()> + Send),
    ) -> Result<()> {
        for id in range {
            let desc = self.program.steps[id as usize].desc;
            if matches!(desc, OpDesc::Digest(_)) && !self.digest {
                continue;
            }
            self.submit(id, rows);
            self.check_finite(id, rows.len())?;
            after(self, id)?;
        }
        Ok(())
    }

    /// Runs one step.
    fn submit(&mut self, id: u32, rows: &[Row]) {
        let started = Instant::now();
        let ran = self.execute(id, rows);
        let cost = self.cost(id, rows);
        let kind = self.bound[id as usize].kind;
        self.stats.kinds[kind].add(rows.len(), started.elapsed(), cost, ran);
    }

    fn execute(&mut self, id: u32, rows: &[Row]) -> Ran {
        let bound = &self.bound[id as usize];
        let mut spans = ArrayVec::<Span, MAX_VIEWS>::new();
        spans.extend(bound.reads.iter().filter_map(|r| match r {
            Read::Span(span) => Some(*span),
            Read::Weight(_) => None,
        }));
        let views = self.arena.bind(&spans, &bound.writes);
        let mut from_arena = views.reads.into_iter();
        let reads = bound.reads.iter().map(|r| match r {
            Read::Span(_) => from_arena.next().expect("one view per span"),
            Read::Weight(role) => self.weights.dense(*role),
        });
        let experts = bound.experts.map_or(Experts::default(), |layer| {
            let offsets = &self.offsets[id as usize];
            let memory = self.weights.experts(layer);
            Experts { memory, offsets, block_bytes: memory.len() / offsets.len().max(1) }
        });
        let args = HostArgs {
            rows,
            context: self.dims.context,
            reads: Reads(reads.collect()),
            writes: Writes(views.writes),
            experts,
        };
        self.program.steps[id as usize].desc.run(&self.exec, args)
    }

    /// Cost of a step; expert weights count once per expert that was routed to, and history up to the last
    /// row's position, which all rows of a run are counted with.
    fn cost(&self, id: u32, rows: &[Row]) -> Cost {
        let step = &self.program.steps[id as usize];
        let context = rows.iter().map(|row| row.pos as usize + 1).max().unwrap_or(1);
        let mut cost = step.desc.cost(Dims { rows: rows.len(), context, ..self.dims });
        let routed_bytes = match &step.desc {
            OpDesc::ExpertGateUp(d) => {
                Some((d.experts, Expert::new(d.format, d.hidden, d.inter).gate_up.bytes()))
            }
            OpDesc::ExpertDown(d) => Some((d.experts, Expert::new(d.format, d.hidden, d.inter).down.bytes())),
            _ => None,
        };
        if let Some((experts, bytes)) = routed_bytes {
            let Read::Span(offsets) = self.bound[id as usize].reads[2] else { return cost };
            let offsets = <[u32]>::ref_from_prefix_with_elems(self.arena.read(offsets), experts + 1);
            let offsets = offsets.expect("aligned and long enough").0;
            let routed = offsets.windows(2).filter(|w| w[1] > w[0]).count();
            cost.bytes_read = (routed * bytes) as u64;
        }
        cost
    }

    /// NaN and infinity in router weights, recurrent outputs and logits are errors, never sampled from.
    fn check_finite(&self, id: u32, rows: usize) -> Result<()> {
        let step = &self.program.steps[id as usize];
        let (what, write, width) = match &step.desc {
            OpDesc::Route(d) => ("router weights", 1, d.top_k),
            OpDesc::GatedDelta(d) => ("recurrent output", 0, d.value_heads * d.dv),
            OpDesc::Linear(d) if id == self.logits_step => ("logits", 0, d.n),
            _ => return Ok(()),
        };
        let values: &[f32] = self.output(id, write, rows * width);
        // A sum of absolute bits cannot miss an exponent of all ones.
        let worst = values.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
        if worst < 0x7f80_0000 {
            return Ok(());
        }
        let at = values.iter().position(|v| !v.is_finite()).unwrap_or(0);
        let layer = step.layer.map_or("head".to_string(), |l| l.to_string());
        let error = WorldError::NotFinite { what, layer, op: step.desc.name(), row: at / width };
        Err(Error::World(error))
    }
}

fn bind_steps(program: &Program, span: &dyn Fn(&Operand) -> Option<Span>, stats: &mut Stats) -> Vec<Bound> {
    let mut bound = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        let mut experts = None;
        let mut reads = ArrayVec::new();
        for operand in &step.reads {
            match operand {
                Operand::Weight(role) => reads.push(Read::Weight(*role)),
                Operand::Experts(layer) => experts = Some(*layer),
                other => reads.push(Read::Span(span(other).expect("not a weight"))),
            }
        }
        let writes = step.writes.iter().map(|o| span(o).expect("weights are never written")).collect();
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

/// Offsets of the blocks of a layer's experts, for the steps that read them.
fn expert_offsets(desc: &OpDesc) -> Vec<u64> {
    let (experts, bytes) = match desc {
        OpDesc::ExpertGateUp(d) => (d.experts, Expert::new(d.format, d.hidden, d.inter).bytes()),
        OpDesc::ExpertDown(d) => (d.experts, Expert::new(d.format, d.hidden, d.inter).bytes()),
        _ => return Vec::new(),
    };
    (0..experts).map(|e| (e * bytes) as u64).collect()
}
