//! Takes: a program, the manifest of its weights, a capacity and the sizes to serve.
//! Gives: what lies where in a device's memory, as a table that sums to the capacity; refusals that show it.
//! Never: allocates memory, reads files, knows requests.
//!
//! Regions in order: weights, tables, io, state, workspace, carry, slots. The rules are in docs/memory.md.

mod boundaries;
mod fixed;
mod lines;
mod slots;
pub mod workspace;

#[cfg(test)]
mod tests;

use arch::{Manifest, Program, Role};
use base::Refusal;

pub use boundaries::{Boundary, boundaries};
pub use lines::{Line, table};
pub use slots::Slots;

/// Regions, and everything that is placed in one, start at multiples of this: what CUDA's own allocator
/// promises.
pub const ALIGN: usize = 256;

/// Most prompt rows of one streaming pass, unless another number is asked for.
pub const PASS_ROWS: usize = 8192;

/// What a device shall hold and serve. Every maximum is an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Bytes of the device; `None`: a host without a limit, where weights and experts alias the mapped cache.
    pub capacity: Option<u64>,
    /// Tokens one sequence can hold.
    pub context: usize,
    /// Sequences at the same time.
    pub parallel: usize,
    /// Prompt rows of one chunk.
    pub chunk: usize,
    /// Rows whose logits are computed at once.
    pub head_rows: usize,
    /// Most prompt rows of one streaming pass: each pass streams the experts once.
    pub pass_rows: usize,
    /// Percent of the model's experts that may have a slot, for experiments; never fewer than the minimum.
    pub residency: Option<u32>,
}

impl Ask {
    /// One sequence of `context` tokens in chunks of 512, on a host without a limit.
    pub fn new(context: usize) -> Self {
        Ask {
            capacity: None,
            context,
            parallel: 1,
            chunk: 512,
            head_rows: 32,
            pass_rows: PASS_ROWS,
            residency: None,
        }
    }
}

/// Place of a dense weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DensePlace {
    /// Which.
    pub role: Role,
    /// From the start of the region `weights`, a multiple of [`ALIGN`].
    pub offset: usize,
    /// Bytes, as in the weight cache.
    pub bytes: usize,
}

/// What lies where. All sizes of regions are multiples of [`ALIGN`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Bytes of the device, or `None` for a host without a limit.
    pub capacity: Option<u64>,
    /// Tokens one sequence can hold, padded to [`arch::CONTEXT_STEP`].
    pub context: usize,
    /// Sequences at the same time.
    pub sequences: usize,
    /// Prompt rows of one chunk.
    pub chunk: usize,
    /// Most rows of one step: those of a chunk, or one of each sequence.
    pub rows: usize,
    /// Most rows of one step of the head.
    pub head_rows: usize,
    /// Dense weights in the manifest's order; empty without a capacity.
    pub dense: Vec<DensePlace>,
    /// Bytes of the region `weights`.
    pub weights_bytes: usize,
    /// Bytes of the region `tables`: the RoPE table.
    pub table_bytes: usize,
    /// Bytes for the token ids of a step, u32 `[rows]`; the first part of the region `io`.
    pub ids_bytes: usize,
    /// Bytes for the rows whose logits are wanted, u32 `[head_rows]`; the second part of the region `io`.
    pub head_rows_bytes: usize,
    /// By state of the program: bytes of all sequences, behind one another in the region `state`.
    pub states: Vec<usize>,
    /// The region `workspace`.
    pub workspace: workspace::Placement,
    /// Rows of one streaming pass: whole chunks. One chunk where there is no carry.
    pub pass_rows: usize,
    /// Bytes of the region `carry`: what lives across a layer boundary ([`boundaries`]), of all chunks of a
    /// pass; chunk `i` lies at `i · carry_chunk_bytes`.
    pub carry_bytes: usize,
    /// Bytes of the carry for one chunk; each buffer in it starts at a multiple of [`ALIGN`].
    pub carry_chunk_bytes: usize,
    /// The slots of experts; `None` without a capacity or for a model without experts.
    pub slots: Option<Slots>,
    /// The table: regions in order. With a capacity it sums to exactly that, the last line is `unused`.
    pub lines: Vec<Line>,
    /// The smallest capacity that would do.
    pub minimum_bytes: u64,
}

impl Plan {
    /// Bytes of all lines: the capacity, if there is one, else what a host allocates.
    pub fn total_bytes(&self) -> u64 {
        self.lines.iter().map(|l| l.bytes).sum()
    }

    /// Share of the model's experts that can be resident at once: 1 where experts are not copied.
    pub fn resident_fraction(&self) -> f64 {
        self.slots.map_or(1.0, |s| s.count as f64 / s.experts as f64)
    }
}

/// Plans the memory of a device for `program`. Errors: an impossible value of `ask`, sizes beyond 64 bits, a
/// capacity below the minimum; that refusal (field `vram`) shows the whole table of what is needed.
pub fn plan(program: &Program, manifest: &Manifest, ask: &Ask) -> Result<Plan, Refusal> {
    check(ask)?;
    let fixed = fixed::Fixed::new(program, manifest, ask)?;
    let pool = slots::Pool::new(manifest)?;
    let needed = lines::minimum(&fixed, &pool)?;
    let minimum_bytes = lines::sum(&needed)?;
    let (carry, shared) = match ask.capacity {
        None => (slots::Carry::one_chunk(ask.chunk), None),
        Some(capacity) if capacity < minimum_bytes => {
            return Err(too_small(capacity, minimum_bytes, &needed));
        }
        Some(capacity) => {
            let wish = slots::Carry::wish(program, ask)?;
            let shared = slots::share(capacity - minimum_bytes, &pool, &wish, ask.residency);
            (wish.of_chunks(shared.chunks), Some(shared))
        }
    };
    let lines = match (ask.capacity, &shared) {
        (Some(capacity), Some(shared)) => lines::device(&fixed, &carry, &pool, shared, capacity),
        _ => lines::host(&fixed),
    };
    Ok(fixed.into_plan(ask, carry, shared.and_then(|s| s.slots), lines, minimum_bytes))
}

fn check(ask: &Ask) -> Result<(), Refusal> {
    for (field, value) in [
        ("context", ask.context),
        ("parallel", ask.parallel),
        ("chunk", ask.chunk),
        ("head rows", ask.head_rows),
        ("pass rows", ask.pass_rows),
    ] {
        if value == 0 {
            return Err(Refusal::value(field, value, "at least 1", "give a larger number"));
        }
    }
    match ask.residency {
        Some(percent) if percent > 100 => {
            let value = format!("{percent} %");
            Err(Refusal::value("residency", value, "at most 100 %", "it is a share of the experts"))
        }
        _ => Ok(()),
    }
}

fn too_small(capacity: u64, minimum: u64, needed: &[Line]) -> Refusal {
    let value = format!("{capacity} bytes");
    let limit = format!("at least {minimum} bytes");
    let hint =
        "give the device more, or ask for less context, fewer sequences or smaller chunks. Needed are:";
    Refusal::value("vram", value, limit, format!("{hint}\n{}", table(needed).trim_end()))
}

/// `bytes` rounded up to [`ALIGN`]; `None` beyond 64 bits.
fn aligned(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(ALIGN)
}

fn too_large(field: &str, value: impl ToString) -> Refusal {
    Refusal::value(field, value, "sizes that 64 bits can count", "ask for less")
}
