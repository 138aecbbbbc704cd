//! The engine: sequences, the chunk loop, digests. Nothing here knows what a step computes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arch::{Model, Recipe};
use base::hash::Digest;
use base::{LayerId, Refusal, Result};
use ops::{HostExec, Level, Row};

use crate::host::{HostExecutor, Maxima};
use crate::stats::Stats;
use crate::weight_source::WeightSource;

/// Most sequences in one step, and most head rows at once: what a pass lists without the heap.
const MAX_SEQUENCES: usize = 256;

/// Sizes and speed of an engine. None of them can change a bit of any result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Tokens one sequence can hold.
    pub context: usize,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Tokens per prefill chunk.
    pub chunk: usize,
    /// Rows whose logits are computed at once.
    pub head_rows: usize,
    /// Worker threads.
    pub threads: usize,
    /// SIMD level.
    pub level: Level,
}

impl Options {
    /// All threads, best SIMD level, one sequence of `context` tokens, chunks of 512.
    pub fn new(context: usize) -> Self {
        Options {
            context,
            sequences: 1,
            chunk: 512,
            head_rows: 32,
            threads: base::os::threads(),
            level: Level::detect(),
        }
    }

    /// Refuses sizes that no engine can have, or that `model` was not made for.
    pub fn check(&self, model: &Model) -> Result<(), Refusal> {
        let at_least_one = |field: &str, value: usize| {
            if value == 0 {
                return Err(Refusal::value(field, value, "at least 1", "give a larger number"));
            }
            Ok(())
        };
        at_least_one("context", self.context)?;
        at_least_one("parallel", self.sequences)?;
        at_least_one("chunk", self.chunk)?;
        at_least_one("head rows", self.head_rows)?;
        at_least_one("threads", self.threads)?;
        if self.sequences > MAX_SEQUENCES {
            let limit = format!("at most {MAX_SEQUENCES}");
            return Err(Refusal::value("parallel", self.sequences, limit, "give a smaller number"));
        }
        if self.context > model.max_positions {
            let limit =
                format!("at most {} tokens, the model's max_position_embeddings", model.max_positions);
            return Err(Refusal::value("context", self.context, limit, "ask for less context"));
        }
        if self.level > Level::detect() {
            let best = format!("this machine has {}", Level::detect().name());
            return Err(Refusal::value("simd", self.level.name(), best, "choose a level it has"));
        }
        Ok(())
    }
}

/// A sequence slot in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seq(u32);

/// Which rows' logits a prefill gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Of the last token only.
    Last,
    /// Of every token.
    All,
}

/// Sees inner results as they are made.
pub trait Observer: Send {
    /// The router of `layer` chose `ids` with combine `weights`, both `[rows, top_k]`.
    fn router(&mut self, layer: LayerId, rows: &[Row], top_k: usize, ids: &[u32], weights: &[f32]);
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
    host: HostExecutor,
    sequences: Vec<Sequence>,
    observer: Option<Box<dyn Observer>>,
    /// Steps of routers, to call the observer behind.
    router_steps: Vec<u32>,
    rows: Vec<Row>,
}

impl Engine {
    /// Lowers the model, allocates everything it will ever need, and binds the program.
    pub fn load(
        model: Model,
        recipe: Recipe,
        weights: Box<dyn WeightSource>,
        options: Options,
    ) -> Result<Engine> {
        options.check(&model)?;
        let program = arch::lower(&model, &recipe)?;
        let router_steps = program.routers.iter().map(|r| r.step).collect();
        let exec = HostExec::new(options.level, options.threads);
        let maxima = Maxima {
            rows: options.chunk.max(options.sequences),
            head_rows: options.head_rows.min(options.chunk.max(options.sequences)),
            context: options.context.next_multiple_of(arch::CONTEXT_STEP),
            sequences: options.sequences,
        };
        let host = HostExecutor::bind(program, weights, exec, maxima)?;
        let sequence = || Sequence { used: false, len: 0, rows: blake3::Hasher::new() };
        Ok(Engine {
            model,
            recipe,
            options,
            host,
            sequences: (0..options.sequences).map(|_| sequence()).collect(),
            observer: None,
            router_steps,
            rows: Vec::with_capacity(maxima.rows),
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

    /// Name and bytes of every memory region.
    pub fn regions(&self) -> impl Iterator<Item = (&str, usize)> {
        self.host.regions()
    }

    /// Statistics since the last reset.
    pub fn stats(&self) -> &Stats {
        &self.host.stats
    }

    /// Starts statistics anew.
    pub fn reset_stats(&mut self) {
        self.host.stats.clear();
    }

    /// Installs or removes an observer.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        std::mem::replace(&mut self.observer, observer)
    }

    /// Whether digests over all logits are made. On, prefill computes the logits of every row.
    pub fn set_digest(&mut self, on: bool) {
        self.host.digest = on;
    }

    /// Takes a free sequence slot; its state is zeroed.
    pub fn begin(&mut self) -> Result<Seq> {
        let Some(slot) = self.sequences.iter().position(|s| !s.used) else {
            let limit = format!("{} in use", self.sequences.len());
            return Err(
                Refusal::value("parallel", self.sequences.len(), limit, "end a sequence first").into()
            );
        };
        self.host.clear_sequence(slot);
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
        let wanted = if self.host.digest { Wanted::All } else { wanted };
        let mut done = 0;
        for chunk in tokens.chunks(self.options.chunk) {
            check_cancel(cancel)?;
            self.rows.clear();
            let first = self.sequences[seq.0 as usize].len;
            self.rows.extend((0..chunk.len()).map(|i| Row { seq: seq.0, pos: (first + i) as u32 }));
            done += chunk.len();
            let heads = match wanted {
                Wanted::All => 0..chunk.len() as u32,
                Wanted::Last if done == tokens.len() => chunk.len() as u32 - 1..chunk.len() as u32,
                Wanted::Last => 0..0,
            };
            self.forward(chunk, heads, sink)?;
        }
        self.host.stats.prefill_tokens += tokens.len() as u64;
        self.host.stats.prefill += started.elapsed();
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
        self.forward(&tokens, 0..batch.len() as u32, sink)?;
        self.host.stats.decode_tokens += batch.len() as u64;
        self.host.stats.decode += started.elapsed();
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
            return Err(Refusal::value("prompt", value, limit, "shorten the prompt or raise the context"));
        }
        Ok(())
    }

    fn check_ids(&self, ids: &[u32]) -> Result<(), Refusal> {
        let Some(bad) = ids.iter().find(|id| **id as usize >= self.model.vocab) else { return Ok(()) };
        let limit = format!("below the vocabulary of {}", self.model.vocab);
        Err(Refusal::value("token id", bad, limit, "the tokenizer does not belong to this model"))
    }

    /// One pass of `ids` at `self.rows`, then the head for the rows `heads`.
    fn forward(&mut self, ids: &[u32], heads: std::ops::Range<u32>, sink: &mut Sink<'_>) -> Result<()> {
        self.check_ids(ids)?;
        let Engine { host, rows, observer, router_steps, sequences, options, .. } = self;
        let head = host.program().head;
        let steps = host.program().steps.len() as u32;
        host.upload_ids(ids);
        in_pool(host, |host| {
            host.run(0..head, rows, &mut |host, step| {
                if let Some(observer) = observer
                    && let Ok(index) = router_steps.binary_search(&step)
                {
                    observe_router(host, index, rows, observer.as_mut());
                }
                Ok(())
            })
        })?;
        for row in rows.iter() {
            sequences[row.seq as usize].len += 1;
        }
        let mut first = heads.start;
        let mut wanted = arrayvec::ArrayVec::<u32, MAX_SEQUENCES>::new();
        while first < heads.end {
            let block = (heads.end - first).min(options.head_rows as u32).min(MAX_SEQUENCES as u32);
            wanted.clear();
            wanted.extend(first..first + block);
            host.upload_head_rows(&wanted);
            let head_rows = &rows[first as usize..(first + block) as usize];
            in_pool(host, |host| host.run(head..steps, head_rows, &mut |_, _| Ok(())))?;
            deliver(host, head_rows, sequences, sink)?;
            first += block;
        }
        Ok(())
    }
}

/// Runs `f` on the worker pool of the executor: parallel ops then start their work without a hand-over.
fn in_pool<R: Send>(host: &mut HostExecutor, f: impl FnOnce(&mut HostExecutor) -> R + Send) -> R {
    let exec = host.exec().clone();
    exec.install(move || f(host))
}

fn observe_router(host: &HostExecutor, index: usize, rows: &[Row], observer: &mut dyn Observer) {
    let router = host.program().routers[index];
    let count = rows.len() * router.top_k;
    let ids = host.output::<u32>(router.step, 0, count);
    let weights = host.output::<f32>(router.step, 1, count);
    observer.router(router.layer, rows, router.top_k, ids, weights);
}

/// Hands the logits of finished head rows out, and their digests to the sequences.
fn deliver(host: &HostExecutor, rows: &[Row], sequences: &mut [Sequence], sink: &mut Sink<'_>) -> Result<()> {
    let vocab = host.program().vocab;
    if host.digest {
        let digests: &[u8] = host.output(host.digest_step, 0, 32 * rows.len());
        for (row, digest) in rows.iter().zip(digests.chunks_exact(32)) {
            sequences[row.seq as usize].rows.update(digest);
        }
    }
    let logits: &[f32] = host.output(host.logits_step, 0, rows.len() * vocab);
    for (row, logits) in rows.iter().zip(logits.chunks_exact(vocab)) {
        sink(Seq(row.seq), row.pos as usize, logits)?;
    }
    Ok(())
}

fn check_cancel(cancel: &AtomicBool) -> Result<(), Refusal> {
    if cancel.load(Ordering::Relaxed) { Err(Refusal::Cancelled) } else { Ok(()) }
}
