//! What an engine is loaded with.

use arch::Model;
use base::Refusal;
use gpu::Pace;
use ops::Level;

/// Most sequences in one step, and most head rows at once: what a pass lists without the heap.
pub(crate) const MAX_SEQUENCES: usize = 256;

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
    /// Most prompt tokens for which the experts are streamed once.
    pub pass_rows: usize,
    /// Worker threads.
    pub threads: usize,
    /// SIMD level.
    pub level: Level,
    /// Bytes of the device; `None`: the host itself, weights and experts where the mapped cache has them.
    pub vram: Option<u64>,
    /// Percent of the experts that may have a slot of the device.
    pub residency: Option<u32>,
    /// Harder conditions for tests.
    pub checks: Checks,
}

/// Conditions under which mistakes show. They cost time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks {
    /// When copies happen.
    pub pace: Pace,
    /// The mapped cache is closed while steps run, if the device has a capacity.
    pub close_mapping: bool,
}

impl Options {
    /// All threads, best SIMD level, one sequence of `context` tokens, chunks of 512, no limit.
    pub fn new(context: usize) -> Self {
        Options {
            context,
            sequences: 1,
            chunk: 512,
            head_rows: 32,
            pass_rows: plan::PASS_ROWS,
            threads: base::os::threads(),
            level: Level::detect(),
            vram: None,
            residency: None,
            checks: Checks::default(),
        }
    }

    /// What the plan of the device's memory is asked for.
    pub fn ask(&self) -> plan::Ask {
        plan::Ask {
            capacity: self.vram,
            context: self.context,
            parallel: self.sequences,
            chunk: self.chunk,
            head_rows: self.head_rows,
            pass_rows: self.pass_rows,
            residency: self.residency,
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
        at_least_one("pass rows", self.pass_rows)?;
        at_least_one("threads", self.threads)?;
        if self.sequences > MAX_SEQUENCES {
            let limit = format!("at most {MAX_SEQUENCES}");
            return Err(Refusal::value("parallel", self.sequences, limit, "give a smaller number"));
        }
        if self.residency.is_some() && self.vram.is_none() {
            let limit = "a device with a limit";
            let hint = "give --vram too: without it experts are not copied";
            return Err(Refusal::value("residency", "given", limit, hint));
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
