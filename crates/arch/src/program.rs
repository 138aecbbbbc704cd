//! `Program`: a model as a flat list of steps with symbolic operands. No pointers, no bytes: the engine binds
//! it.

use base::LayerId;
use ops::{Dims, OpDesc};

use crate::model::Rope;
use crate::role::Role;

/// Index of a buffer in [`Program::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Index of a state in [`Program::states`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// What a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A buffer of the workspace.
    Buffer(BufferId),
    /// A dense weight.
    Weight(Role),
    /// A layer's state, all sequence slots.
    State(StateId),
    /// The RoPE table.
    Table,
    /// Token ids of the rows, u32.
    Ids,
    /// For each head row, the row of the chunk it is, u32.
    HeadRows,
    /// The layer's expert pointer table.
    Experts(LayerId),
}

/// Which rows a buffer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rows {
    /// Tokens of the chunk (prefill) or active sequences (decode).
    Chunk,
    /// Rows whose logits are wanted.
    Head,
}

/// A buffer of the workspace: written first by step `first`, read or written last by step `last`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Name, unique within the program.
    pub name: String,
    /// Which rows.
    pub rows: Rows,
    /// Bytes per row.
    pub row_bytes: usize,
    /// Bytes besides the rows.
    pub fixed_bytes: usize,
    /// Step that writes it first.
    pub first: u32,
    /// Last step that uses it.
    pub last: u32,
}

impl Buffer {
    /// Bytes for `rows` rows.
    pub fn bytes(&self, rows: usize) -> usize {
        self.fixed_bytes + rows * self.row_bytes
    }
}

/// What a state keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Coded keys and values.
    Kv,
    /// The last inputs of a convolution.
    ConvTail,
    /// The matrix of a gated delta layer.
    Delta,
}

/// Contexts are multiples of this (a block of attention), so that a state's size is linear in the context.
pub const CONTEXT_STEP: usize = 64;

/// State of one layer: `fixed_bytes + context · token_bytes` for each sequence slot. A new sequence starts
/// from zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSpec {
    /// Whose.
    pub layer: LayerId,
    /// What.
    pub kind: StateKind,
    /// Bytes per sequence.
    pub fixed_bytes: usize,
    /// Bytes per sequence and token of context.
    pub token_bytes: usize,
}

impl StateSpec {
    /// Bytes of one sequence slot.
    pub fn sequence_bytes(&self, context: usize) -> usize {
        debug_assert!(context.is_multiple_of(CONTEXT_STEP));
        self.fixed_bytes + context * self.token_bytes
    }
}

/// A table made at load.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Cosines and sines of every position: f32 `[context, 2, rotary/2]`.
    pub rope: Rope,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Position in the program; traces of different runs join on it.
    pub id: u32,
    /// Layer, or `None` for embedding and head.
    pub layer: Option<LayerId>,
    /// What it is for, within its layer: `q`, `experts.down`.
    pub name: &'static str,
    /// The op.
    pub desc: OpDesc,
    /// Operands read, in the op's order; an expert table comes last.
    pub reads: Vec<Operand>,
    /// Operands written, in the op's order.
    pub writes: Vec<Operand>,
}

/// A lowered model. Steps before `head` run on all rows of a chunk, steps from `head` on on the rows whose
/// logits are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Family, for messages.
    pub family: &'static str,
    /// The steps.
    pub steps: Vec<Step>,
    /// First step of the head.
    pub head: u32,
    /// The workspace.
    pub buffers: Vec<Buffer>,
    /// States of all layers.
    pub states: Vec<StateSpec>,
    /// The RoPE table, if any layer needs it.
    pub table: Option<Table>,
    /// Where the logits are: f32 `[head rows, vocab]`.
    pub logits: BufferId,
    /// Where the row digests are: `[head rows, 32]`.
    pub digests: BufferId,
    /// Router choices of the MoE layers, for inspection: ids, weights, logits.
    pub routers: Vec<RouterBuffers>,
    /// Columns of the logits.
    pub vocab: usize,
}

/// Buffers of one router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterBuffers {
    /// Whose.
    pub layer: LayerId,
    /// Step that wrote them.
    pub step: u32,
    /// u32 `[rows, top_k]`.
    pub ids: BufferId,
    /// f32 `[rows, top_k]`.
    pub weights: BufferId,
    /// Routed experts per row.
    pub top_k: usize,
}

/// Bytes of an operand as `fixed + rows·row + context·token + …`, found by probing the op's own shapes.
pub(crate) fn probe(desc: &OpDesc, write: usize, dims: Dims) -> usize {
    desc.shapes(dims).writes[write].bytes
}

impl Program {
    /// The program as text, one line per buffer, state and step: what snapshot tests compare.
    pub fn describe(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for (i, b) in self.buffers.iter().enumerate() {
            let _ = writeln!(
                text,
                "buffer {i} {} {:?}·{} + {} steps {}..={}",
                b.name, b.rows, b.row_bytes, b.fixed_bytes, b.first, b.last
            );
        }
        for (i, s) in self.states.iter().enumerate() {
            let _ = writeln!(
                text,
                "state {i} layer {} {:?} {} + context·{}",
                s.layer, s.kind, s.fixed_bytes, s.token_bytes
            );
        }
        for step in &self.steps {
            let layer = step.layer.map_or(String::from("-"), |l| l.to_string());
            let list = |operands: &[Operand]| {
                operands.iter().map(|o| self.operand_text(o)).collect::<Vec<_>>().join(" ")
            };
            let _ = writeln!(
                text,
                "step {} layer {layer} {}: {:?} <- {} -> {}",
                step.id,
                step.name,
                step.desc,
                list(&step.reads),
                list(&step.writes)
            );
        }
        let _ = writeln!(text, "head from step {}", self.head);
        text
    }

    fn operand_text(&self, operand: &Operand) -> String {
        match operand {
            Operand::Buffer(id) => format!("%{}", self.buffers[id.0 as usize].name),
            Operand::Weight(role) => format!("@{role}"),
            Operand::State(id) => format!("state{}", id.0),
            Operand::Table => "rope".into(),
            Operand::Ids => "ids".into(),
            Operand::HeadRows => "head_rows".into(),
            Operand::Experts(layer) => format!("experts{layer}"),
        }
    }
}
