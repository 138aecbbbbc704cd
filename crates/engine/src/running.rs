//! The engine: sequences, passes through all layers, digests. Nothing here knows what a step computes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arch::{Manifest, Model, Recipe};
use base::hash::Digest;
use base::{Bytes, Refusal, Result};
use ops::{HostExec, Row};
use plan::Plan;
use zerocopy::IntoBytes;

use crate::bind::Binding;
use crate::executor::{Executor, output};
use crate::expert_cache::{ExpertCache, Residents};
use crate::host::HostExecutor;
use crate::options::{MAX_SEQUENCES, Options};
use crate::prefill::{Group, groups};
use crate::run::{Along, Observer, run};
use crate::stats::Stats;
use crate::weight_source::WeightSource;

/// A sequence slot in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seq(u32);

impl Seq {
    /// Its slot in every state.
    pub(crate) fn slot(self) -> u32 {
        self.0
    }
}

/// Which rows' logits a prefill gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Of the last token only.
    Last,
    /// Of every token.
    All,
}

/// Takes logits of one row: its position in the sequence and f32 `[vocab]`.
pub type Sink<'a> = dyn FnMut(Seq, usize, &[f32]) -> Result<()> + Send + 'a;

struct Sequence {
    used: bool,
    len: usize,
    rows: blake3::Hasher,
}

/// A running model.
pub struct Engine {
    model: Model,
    recipe: Recipe,
    options: Options,
    pub(crate) executor: Box<dyn Executor>,
    /// Where experts are copied to the device.
    pub(crate) cache: Option<ExpertCache>,
    pub(crate) groups: Arc<[Group]>,
    sequences: Vec<Sequence>,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) digest: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) ids: Vec<u32>,
}

impl Engine {
    /// Lowers the model, plans the memory, allocates everything it will ever need, and binds the program.
    pub fn load(
        model: Model,
        recipe: Recipe,
        weights: Box<dyn WeightSource>,
        options: Options,
    ) -> Result<Engine> {
        Engine::load_with(model, recipe, weights, options, |executor| Box::new(executor))
    }

    /// Likewise, with something around the executor.
    pub(crate) fn load_with(
        model: Model,
        recipe: Recipe,
        weights: Box<dyn WeightSource>,
        options: Options,
        around: impl FnOnce(HostExecutor) -> Box<dyn Executor>,
    ) -> Result<Engine> {
        options.check(&model)?;
        if let (Some(vram), Some(free)) = (options.vram, base::os::available_memory_bytes())
            && vram > free
        {
            let limit = format!("at most {}, the memory that is free", Bytes(free));
            return Err(Refusal::value("vram", Bytes(vram), limit, "make the device smaller").into());
        }
        let program = arch::lower(&model, &recipe)?;
        let plan = plan::plan(&program, &Manifest::new(&model, &recipe), &options.ask())?;
        let exec = HostExec::new(options.level, options.threads);
        let mut stats = Stats::default();
        let (binding, mut arena) = Binding::new(program, plan, weights.as_ref(), &mut stats)?;
        if let Some(table) = &binding.program.table {
            let table = crate::tables::rope(&table.rope, binding.dims.context);
            arena.write(binding.tables)[..4 * table.len()].copy_from_slice(table.as_bytes());
        }
        let rows = binding.dims.rows;
        let most_ids = rows * binding.program.routers.iter().map(|r| r.top_k).max().unwrap_or(0);
        let cache = binding.plan.slots.map(|slots| {
            let mut experts = vec![0; model.layers.len()];
            model.moe_layers().for_each(|(layer, moe)| experts[layer.index()] = moe.experts);
            ExpertCache::new(&experts, slots, most_ids)
        });
        let group_layers = binding.plan.slots.map_or(usize::MAX, |s| s.group_layers);
        let groups = groups(&binding, group_layers).into();
        warm(&exec, &binding);
        let executor = HostExecutor::new(binding, arena, weights, exec, stats, options.checks);
        let sequence = || Sequence { used: false, len: 0, rows: blake3::Hasher::new() };
        Ok(Engine {
            model,
            recipe,
            options,
            executor: around(executor),
            cache,
            groups,
            sequences: (0..options.sequences).map(|_| sequence()).collect(),
            observer: None,
            digest: false,
            rows: Vec::with_capacity(rows),
            ids: Vec::with_capacity(most_ids),
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The recipe it runs with.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The options it was loaded with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Its workers. A loop of [`Engine::step`] inside [`HostExec::install`] hands nothing over, and allocates
    /// nothing.
    pub fn workers(&self) -> Arc<HostExec> {
        self.executor.workers()
    }

    /// What lies where in the device's memory.
    pub fn plan(&self) -> &Plan {
        &self.executor.binding().plan
    }

    /// Statistics since the last reset.
    pub fn stats(&self) -> &Stats {
        self.executor.stats()
    }

    /// Experts in slots of the device by now; `None` where they are read in place.
    pub fn residents(&self) -> Option<Residents> {
        self.cache.as_ref().map(ExpertCache::residents)
    }

    /// Starts statistics anew.
    pub fn reset_stats(&mut self) {
        self.executor.stats_mut().clear();
    }

    /// Installs or removes an observer.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        std::mem::replace(&mut self.observer, observer)
    }

    /// Whether digests over all logits are made. On, prefill computes the logits of every row.
    pub fn set_digest(&mut self, on: bool) {
        self.digest = on;
    }

    /// Takes a free sequence slot; its state is zeroed.
    pub fn begin(&mut self) -> Result<Seq> {
        let Some(slot) = self.sequences.iter().position(|s| !s.used) else {
            let limit = format!("{} in use", self.sequences.len());
            return Err(
                Refusal::value("parallel", self.sequences.len(), limit, "end a sequence first").into()
            );
        };
        self.clear_sequence(slot);
        self.sequences[slot] = Sequence { used: true, len: 0, rows: blake3::Hasher::new() };
        Ok(Seq(slot as u32))
    }

    /// Gives a sequence slot back.
    pub fn end(&mut self, seq: Seq) {
        self.sequences[seq.0 as usize].used = false;
    }

    /// Tokens of a sequence so far.
    pub fn len(&self, seq: Seq) -> usize {
        self.sequences[seq.0 as usize].len
    }

    /// BLAKE3 over the digests of all logit rows so far, in the order of positions.
    pub fn digest(&self, seq: Seq) -> Digest {
        Digest(*self.sequences[seq.0 as usize].rows.finalize().as_bytes())
    }

    /// Processes `tokens` behind what the sequence holds, in chunks; `sink` gets the wanted logits. After an
    /// error or a cancellation the sequence must be ended: part of the tokens may be in it.
    pub fn prefill(
        &mut self,
        seq: Seq,
        tokens: &[u32],
        wanted: Wanted,
        cancel: &AtomicBool,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let started = Instant::now();
        self.check_prompt(seq, tokens)?;
        let wanted = if self.digest { Wanted::All } else { wanted };
        self.executor.workers().install(|| self.passes(seq, tokens, wanted, cancel, sink))?;
        let stats = self.executor.stats_mut();
        stats.prefill_tokens += tokens.len() as u64;
        stats.prefill += started.elapsed();
        Ok(())
    }

    /// Decodes one token of each of several different sequences; `sink` gets each one's logits.
    pub fn step(&mut self, batch: &[(Seq, u32)], cancel: &AtomicBool, sink: &mut Sink<'_>) -> Result<()> {
        let started = Instant::now();
        check_cancel(cancel)?;
        self.rows.clear();
        for (i, (seq, _)) in batch.iter().enumerate() {
            assert!(batch[..i].iter().all(|(other, _)| other != seq), "a sequence twice in a step");
            self.check_room(*seq, 1)?;
            self.rows.push(Row { seq: seq.0, pos: self.len(*seq) as u32 });
        }
        let mut tokens = arrayvec::ArrayVec::<u32, MAX_SEQUENCES>::new();
        tokens.extend(batch.iter().map(|(_, token)| *token));
        self.executor.workers().install(|| self.forward(&tokens, 0..batch.len() as u32, sink))?;
        let stats = self.executor.stats_mut();
        stats.decode_tokens += batch.len() as u64;
        stats.decode += started.elapsed();
        Ok(())
    }

    /// Refuses a prompt that does not fit or holds unknown ids, before anything is computed.
    pub fn check_prompt(&self, seq: Seq, prompt: &[u32]) -> Result<(), Refusal> {
        self.check_room(seq, prompt.len())?;
        self.check_ids(prompt)
    }

    fn check_room(&self, seq: Seq, tokens: usize) -> Result<(), Refusal> {
        let sequence = &self.sequences[seq.0 as usize];
        assert!(sequence.used, "sequence {} was ended", seq.0);
        if sequence.len + tokens > self.options.context {
            let value = format!("{} + {tokens} tokens", sequence.len);
            let limit = format!("a context of {} tokens", self.options.context);
            let hint = match self.options.vram {
                None => "shorten the prompt or raise the context",
                Some(_) => "shorten the prompt, or raise the context if the device has room for it",
            };
            return Err(Refusal::value("prompt", value, limit, hint));
        }
        Ok(())
    }

    fn check_ids(&self, ids: &[u32]) -> Result<(), Refusal> {
        let Some(bad) = ids.iter().find(|id| **id as usize >= self.model.vocab) else { return Ok(()) };
        let limit = format!("below the vocabulary of {}", self.model.vocab);
        Err(Refusal::value("token id", bad, limit, "the tokenizer does not belong to this model"))
    }

    /// Zeroes what a new sequence starts from. Coded keys and values are never read before they are written.
    fn clear_sequence(&mut self, seq: usize) {
        for i in 0..self.executor.binding().states.len() {
            let binding = self.executor.binding();
            let spec = binding.program.states[i];
            if spec.fixed_bytes > 0 {
                let bytes = spec.sequence_bytes(binding.dims.context);
                let span = binding.states[i].part(seq * bytes, bytes);
                self.executor.clear(span);
            }
        }
    }

    /// `ids` at `self.rows` through all layers, then the head for the rows `heads`.
    pub(crate) fn forward(&mut self, ids: &[u32], heads: Range<u32>, sink: &mut Sink<'_>) -> Result<()> {
        self.check_ids(ids)?;
        let head = self.executor.binding().program.head;
        let Engine { executor, cache, rows, observer, ids: taken, digest, .. } = self;
        executor.write_ids(ids);
        let mut along =
            Along { demand: cache.as_mut(), observer: observer.as_deref_mut(), digest: *digest, ids: taken };
        run(executor.as_mut(), 0..head, rows, &mut along)?;
        for i in 0..self.rows.len() {
            self.advance(Seq(self.rows[i].seq), 1);
        }
        self.heads(heads, sink)
    }

    /// `count` tokens are in a sequence by now.
    pub(crate) fn advance(&mut self, seq: Seq, count: usize) {
        self.sequences[seq.0 as usize].len += count;
        let used = self.sequences.iter().filter(|s| s.used);
        let (count, tokens) = used.fold((0, 0), |(count, tokens), s| (count + 1, tokens + s.len as u64));
        let stats = self.executor.stats_mut();
        stats.peak_tokens = stats.peak_tokens.max(tokens);
        stats.peak_sequences = stats.peak_sequences.max(count);
    }

    /// The head for the rows `heads` of `self.rows`, in blocks.
    pub(crate) fn heads(&mut self, heads: Range<u32>, sink: &mut Sink<'_>) -> Result<()> {
        let program = &self.executor.binding().program;
        let (head, steps) = (program.head, program.steps.len() as u32);
        let most = self.executor.binding().plan.head_rows.min(MAX_SEQUENCES) as u32;
        let mut wanted = arrayvec::ArrayVec::<u32, MAX_SEQUENCES>::new();
        let mut first = heads.start;
        while first < heads.end {
            let block = first..heads.end.min(first + most);
            wanted.clear();
            wanted.extend(block.clone());
            let Engine { executor, rows, ids, digest, sequences, .. } = self;
            let span = executor.binding().head_rows;
            executor.write(span, wanted.as_bytes());
            let head_rows = &rows[block.start as usize..block.end as usize];
            let mut along = Along { demand: None, observer: None, digest: *digest, ids };
            run(executor.as_mut(), head..steps, head_rows, &mut along)?;
            deliver(executor.as_ref(), *digest, head_rows, sequences, sink)?;
            first = block.end;
        }
        Ok(())
    }
}

/// Gives every worker its buffers, so that no step has to.
fn warm(exec: &HostExec, binding: &Binding) {
    exec.on_each(|| binding.program.steps.iter().for_each(|step| step.desc.warm(exec, binding.dims)));
}

/// A mistake of ours ends with the last events.
impl Drop for Engine {
    fn drop(&mut self) {
        if std::thread::panicking() && self.stats().events.count() > 0 {
            self.stats().events.print();
        }
    }
}

/// Hands the logits of finished head rows out, and their digests to the sequences.
fn deliver(
    executor: &dyn Executor,
    digest: bool,
    rows: &[Row],
    sequences: &mut [Sequence],
    sink: &mut Sink<'_>,
) -> Result<()> {
    let binding = executor.binding();
    let vocab = binding.program.vocab;
    if digest {
        let digests: &[u8] = output(executor, binding.digest_step, 0, 32 * rows.len());
        for (row, digest) in rows.iter().zip(digests.chunks_exact(32)) {
            sequences[row.seq as usize].rows.update(digest);
        }
    }
    let logits: &[f32] = output(executor, binding.logits_step, 0, rows.len() * vocab);
    for (row, logits) in rows.iter().zip(logits.chunks_exact(vocab)) {
        sink(Seq(row.seq), row.pos as usize, logits)?;
    }
    Ok(())
}

pub(crate) fn check_cancel(cancel: &AtomicBool) -> Result<(), Refusal> {
    if cancel.load(Ordering::Relaxed) { Err(Refusal::Cancelled) } else { Ok(()) }
}
