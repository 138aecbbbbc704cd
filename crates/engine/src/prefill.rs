//! A prompt's way through the layers. Where experts are in place, chunk by chunk through all layers. Where
//! they are streamed, layer group outside and chunk inside, so that each expert is copied once for all chunks
//! of a pass; what lives across a boundary is carried in between.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use base::{LayerId, Result};
use ops::Row;
use residency::loads_on_demand;

use crate::bind::Binding;
use crate::executor::Executor;
use crate::expert_cache::{ExpertCache, Pass};
use crate::run::{Along, run};
use crate::running::{Engine, Seq, Sink, Wanted, check_cancel};

/// Layers whose experts are staged together.
#[derive(Debug)]
pub(crate) struct Group {
    /// Their steps; the embedding belongs to the first group.
    steps: Range<u32>,
    /// Those with experts.
    layers: Vec<LayerId>,
    /// Which boundary it begins at.
    boundary: usize,
}

/// Cuts the layers of a bound program into groups of `group_layers` MoE layers; layers without experts go
/// with those behind them.
pub(crate) fn groups(binding: &Binding, group_layers: usize) -> Vec<Group> {
    let head = binding.program.head;
    let has_experts = |layer: LayerId| binding.program.routers.iter().any(|r| r.layer == layer);
    let mut groups = vec![Group { steps: 0..head, layers: Vec::new(), boundary: 0 }];
    for (i, boundary) in binding.boundaries.iter().enumerate() {
        let current = groups.last_mut().expect("at least one group");
        if has_experts(boundary.layer) && current.layers.len() == group_layers {
            current.steps.end = boundary.step;
            groups.push(Group { steps: boundary.step..head, layers: Vec::new(), boundary: i });
        }
        let current = groups.last_mut().expect("at least one group");
        current.layers.extend(has_experts(boundary.layer).then_some(boundary.layer));
    }
    groups
}

/// A part of a prompt that goes through the layers at once.
struct Part<'a> {
    seq: Seq,
    tokens: &'a [u32],
    /// Position of the first token.
    first: usize,
    wanted: Wanted,
    /// The prompt ends with it.
    is_last: bool,
}

impl Part<'_> {
    fn rows(&self, chunk: &Range<usize>, rows: &mut Vec<Row>) {
        rows.clear();
        rows.extend(chunk.clone().map(|i| Row { seq: self.seq.slot(), pos: (self.first + i) as u32 }));
    }

    /// Which rows of a chunk need logits.
    fn heads(&self, chunk: &Range<usize>) -> Range<u32> {
        let rows = chunk.len() as u32;
        match self.wanted {
            Wanted::All => 0..rows,
            Wanted::Last if self.is_last && chunk.end == self.tokens.len() => rows - 1..rows,
            Wanted::Last => 0..0,
        }
    }
}

impl Engine {
    /// [`Engine::prefill`], checked, on the worker pool.
    pub(crate) fn passes(
        &mut self,
        seq: Seq,
        tokens: &[u32],
        wanted: Wanted,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let pass_rows = match &self.cache {
            Some(_) => self.executor.binding().plan.pass_rows,
            None => tokens.len(),
        };
        let mut done = 0;
        for tokens_of_pass in tokens.chunks(pass_rows.max(1)) {
            done += tokens_of_pass.len();
            let (first, is_last) = (self.len(seq), done == tokens.len());
            let part = Part { seq, tokens: tokens_of_pass, first, wanted, is_last };
            if self.streams(tokens_of_pass.len()) {
                self.stream(&part, cancel, sink)?
            } else {
                self.chunk_by_chunk(&part, cancel, sink)?
            }
        }
        Ok(())
    }

    /// Whether a pass of `rows` rows copies whole layers.
    fn streams(&self, rows: usize) -> bool {
        let Some(cache) = &self.cache else { return false };
        let routers = &self.executor.binding().program.routers;
        let on_demand = |r: &arch::RouterBuffers| {
            loads_on_demand(rows, r.top_k, cache.directory().experts(r.layer), cache.slots().count)
        };
        !cache.is_complete() && !routers.iter().all(on_demand)
    }

    fn chunk_by_chunk(&mut self, part: &Part<'_>, cancel: &AtomicBool, sink: &mut Sink<'_>) -> Result<()> {
        for chunk in chunks(part.tokens.len(), self.options().chunk) {
            check_cancel(cancel)?;
            part.rows(&chunk, &mut self.rows);
            self.forward(&part.tokens[chunk.clone()], part.heads(&chunk), sink)?;
        }
        Ok(())
    }

    fn stream(&mut self, part: &Part<'_>, cancel: &AtomicBool, sink: &mut Sink<'_>) -> Result<()> {
        // Taken out, so that the engine can be used meanwhile.
        let mut cache = self.cache.take().expect("streams from a cache");
        let mut pass = cache.begin_pass(self.executor.as_mut());
        let result = self.stream_groups(part, &mut cache, &mut pass, cancel, sink);
        cache.end_pass(self.executor.as_mut(), pass);
        self.cache = Some(cache);
        result?;
        self.advance(part.seq, part.tokens.len());
        Ok(())
    }

    fn stream_groups(
        &mut self,
        part: &Part<'_>,
        cache: &mut ExpertCache,
        pass: &mut Pass,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let groups = self.groups.clone();
        cache.fetch_group(self.executor.as_mut(), pass, 0, &groups[0].layers);
        for (g, group) in groups.iter().enumerate() {
            if g > 0 {
                cache.leave_group(self.executor.as_mut(), pass, g - 1);
            }
            if let Some(next) = groups.get(g + 1) {
                cache.fetch_group(self.executor.as_mut(), pass, g + 1, &next.layers);
            }
            cache.await_group(self.executor.as_mut(), pass, g, &group.layers);
            for (c, chunk) in chunks(part.tokens.len(), self.options().chunk).enumerate() {
                check_cancel(cancel)?;
                self.group_of_chunk(part, (g, group), groups.get(g + 1), (c, chunk), sink)?;
            }
        }
        Ok(())
    }

    /// One chunk through the layers of one group, and through the head behind the last.
    fn group_of_chunk(
        &mut self,
        part: &Part<'_>,
        (g, group): (usize, &Group),
        next: Option<&Group>,
        (c, chunk): (usize, Range<usize>),
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let carries = part.tokens.len() > self.options().chunk;
        part.rows(&chunk, &mut self.rows);
        let Engine { executor, rows, observer, ids, digest, .. } = self;
        let executor = executor.as_mut();
        if g == 0 {
            executor.write_ids(&part.tokens[chunk.clone()]);
        } else if carries {
            carry(executor, group.boundary, c, rows.len(), true);
        }
        let mut along = Along { demand: None, observer: observer.as_deref_mut(), digest: *digest, ids };
        run(executor, group.steps.clone(), rows, &mut along)?;
        match next {
            Some(next) if carries => carry(executor, next.boundary, c, rows.len(), false),
            Some(_) => (),
            None => self.heads(part.heads(&chunk), sink)?,
        }
        Ok(())
    }
}

/// Brings what lives across a boundary back from the carry of a chunk, or puts it there.
fn carry(executor: &mut dyn Executor, boundary: usize, chunk: usize, rows: usize, back: bool) {
    let stats = executor.stats_mut();
    stats.peak_carried = stats.peak_carried.max(chunk as u64 + 1);
    let binding = executor.binding();
    for (buffer, place) in binding.carried(&binding.boundaries[boundary], chunk, rows) {
        let (from, to) = if back { (place, buffer) } else { (buffer, place) };
        executor.move_span(from, to);
    }
}

/// `0..tokens` in pieces of `chunk`.
fn chunks(tokens: usize, chunk: usize) -> impl Iterator<Item = Range<usize>> {
    (0..tokens).step_by(chunk).map(move |start| start..tokens.min(start + chunk))
}
