//! What a model needs whatever the capacity: everything but the carry and the slots.

use arch::{CONTEXT_STEP, Manifest, Program, StateSpec};
use base::Refusal;

use crate::slots::Carry;
use crate::workspace::{Placement, place};
use crate::{Ask, DensePlace, Line, Plan, Slots, aligned, too_large};

pub(crate) struct Fixed {
    /// Tokens, padded.
    pub context: usize,
    pub sequences: usize,
    pub rows: usize,
    pub head_rows: usize,
    pub dense: Vec<DensePlace>,
    pub weights_bytes: usize,
    pub table_bytes: usize,
    pub ids_bytes: usize,
    pub head_rows_bytes: usize,
    pub states: Vec<usize>,
    pub state_bytes: usize,
    /// Bytes of all states per token of one sequence.
    pub token_bytes: usize,
    pub workspace: Placement,
}

impl Fixed {
    pub fn new(program: &Program, manifest: &Manifest, ask: &Ask) -> Result<Fixed, Refusal> {
        let large_context = || too_large("context", ask.context);
        let context = ask.context.checked_next_multiple_of(CONTEXT_STEP).ok_or_else(large_context)?;
        let rows = ask.chunk.max(ask.parallel);
        let head_rows = ask.head_rows.min(rows);
        let (dense, weights_bytes) = weights(manifest)?;
        let rotary = program.table.as_ref().map_or(0, |t| t.rope.rotary);
        let table_bytes = context.checked_mul(4 * rotary).and_then(aligned).ok_or_else(large_context)?;
        let ids =
            |rows: usize| rows.checked_mul(4).and_then(aligned).ok_or_else(|| too_large("chunk", ask.chunk));
        let state = |spec: &StateSpec| state_bytes(spec, context, ask.parallel);
        let large_states = || {
            let value = format!("{} tokens × {} sequences", ask.context, ask.parallel);
            too_large("context", value)
        };
        let states: Vec<usize> =
            program.states.iter().map(state).collect::<Option<_>>().ok_or_else(large_states)?;
        let state_bytes = states.iter().try_fold(0usize, |sum, b| sum.checked_add(*b));
        Ok(Fixed {
            context,
            sequences: ask.parallel,
            rows,
            head_rows,
            dense,
            weights_bytes,
            table_bytes,
            ids_bytes: ids(rows)?,
            head_rows_bytes: ids(head_rows)?,
            states,
            state_bytes: state_bytes.ok_or_else(large_states)?,
            token_bytes: program.states.iter().map(|s| s.token_bytes).sum(),
            workspace: place(&program.buffers, rows, head_rows)?,
        })
    }

    /// Completes a plan. Without a capacity the weights stay in the mapped cache.
    pub fn into_plan(
        self,
        ask: &Ask,
        carry: Carry,
        slots: Option<Slots>,
        lines: Vec<Line>,
        minimum_bytes: u64,
    ) -> Plan {
        let (dense, weights_bytes) = match ask.capacity {
            Some(_) => (self.dense, self.weights_bytes),
            None => (Vec::new(), 0),
        };
        Plan {
            capacity: ask.capacity,
            context: self.context,
            sequences: self.sequences,
            chunk: ask.chunk,
            rows: self.rows,
            head_rows: self.head_rows,
            dense,
            weights_bytes,
            table_bytes: self.table_bytes,
            ids_bytes: self.ids_bytes,
            head_rows_bytes: self.head_rows_bytes,
            states: self.states,
            workspace: self.workspace,
            pass_rows: carry.pass_rows,
            carry_bytes: carry.bytes,
            carry_chunk_bytes: carry.chunk_bytes,
            slots,
            lines,
            minimum_bytes,
        }
    }
}

fn weights(manifest: &Manifest) -> Result<(Vec<DensePlace>, usize), Refusal> {
    let mut dense = Vec::with_capacity(manifest.dense.len());
    let mut end = 0usize;
    for entry in &manifest.dense {
        let bytes = entry.kind.bytes();
        dense.push(DensePlace { role: entry.role, offset: end, bytes });
        let next = aligned(bytes).and_then(|b| end.checked_add(b));
        end = next.ok_or_else(|| too_large("dense weights", format!("{bytes} bytes of {}", entry.role)))?;
    }
    Ok((dense, end))
}

/// Bytes of a state for all sequences.
fn state_bytes(spec: &StateSpec, context: usize, sequences: usize) -> Option<usize> {
    let sequence = context.checked_mul(spec.token_bytes)?.checked_add(spec.fixed_bytes)?;
    sequence.checked_mul(sequences).and_then(aligned)
}
