//! Takes: byte views of memory regions and an op's descriptor.
//! Gives: results defined to the last bit (docs/arithmetic.md): naive loops and SIMD with equal bytes.
//! Never: knows model families, residency or requests.
//!
//! One folder per op: `mod.rs` (the contract: descriptor, operands, validation, cost, cases), `reference.rs`
//! (naive loops: the definition), `simd.rs` where the host needs speed, `NOTES.md` (what was tried and
//! measured). The list of ops is [`OpDesc`]; conformance tests, benches and the engine are driven by it.

pub mod args;
pub mod conformance;
pub mod exec;
pub mod format;
mod limits;
pub mod math;
pub mod probe;
mod registry;
pub(crate) mod simd;
pub(crate) mod simd_out;
pub mod sweep;

pub mod add;
pub mod attention;
pub mod code;
pub mod combine;
pub mod conv;
pub mod digest;
pub mod embed;
pub mod expert_down;
pub mod expert_gate_up;
pub mod gated_delta;
pub mod gated_norm;
pub mod kv_write;
pub mod linear;
pub mod moe_group;
pub mod rmsnorm;
pub mod rope;
pub mod route;
pub mod select;
pub mod sigmoid_mul;
pub mod swiglu;

pub use args::{Experts, HostArgs, Reads, Row, Writes};
pub use exec::{HostExec, Level};
pub use format::{Acts, KvFormat, WeightFormat, inverse_sqrt};
pub use registry::{ExpertRead, OpDesc, Ran};

use arrayvec::ArrayVec;
use base::Refusal;

/// Sizes that are known only when a program runs: every operand's bytes follow from a descriptor and these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dims {
    /// Rows (tokens of the chunk, or active sequences).
    pub rows: usize,
    /// Tokens that one sequence's KV state can hold; also the length of position tables.
    pub context: usize,
    /// Sequence slots in every state.
    pub sequences: usize,
}

/// One operand of an op: its name for messages, and its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Name as in the op's documentation.
    pub name: &'static str,
    /// Bytes for the given [`Dims`]; views may be longer (a buffer sized for a whole chunk), never shorter.
    pub bytes: usize,
}

/// Shorthand for a [`Spec`].
pub const fn spec(name: &'static str, bytes: usize) -> Spec {
    Spec { name, bytes }
}

/// Operands on one side of an op; not on the heap, because costs are counted with every step.
pub type Specs = ArrayVec<Spec, { args::MAX_OPERANDS }>;

/// Shorthand for a list of [`Spec`].
pub fn specs<const N: usize>(list: [Spec; N]) -> Specs {
    list.into_iter().collect()
}

/// Operands of an op in the order in which it takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shapes {
    /// Read only.
    pub reads: Specs,
    /// Written; an op that also reads an operand it writes (in place) lists it here only.
    pub writes: Specs,
    /// The op reads the layer's expert pointer table.
    pub experts: bool,
}

impl Shapes {
    /// Cost of an op that reads and writes each operand once; `in_place` = bytes of written operands that it
    /// also reads.
    pub fn cost(&self, in_place: usize, float_ops: u64) -> Cost {
        let sum = |specs: &[Spec]| specs.iter().map(|s| s.bytes).sum::<usize>();
        Cost {
            bytes_read: (sum(&self.reads) + in_place) as u64,
            bytes_written: sum(&self.writes) as u64,
            int_macs: 0,
            float_ops,
        }
    }
}

/// What running an op once costs, for plans and benches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes read, each input once (weights as stored; for experts, only the routed ones).
    pub bytes_read: u64,
    /// Bytes written, each output once.
    pub bytes_written: u64,
    /// Integer multiply-adds.
    pub int_macs: u64,
    /// Floating-point operations.
    pub float_ops: u64,
}

/// A seeded conformance case: everything an op needs, owned.
#[derive(Debug, Clone)]
pub struct Case<D> {
    /// Says what is special about it.
    pub name: String,
    /// The descriptor.
    pub desc: D,
    /// The run-time sizes; `dims.rows == rows.len()`.
    pub dims: Dims,
    /// Sequence and position of each row.
    pub rows: Vec<Row>,
    /// Read operands.
    pub reads: Vec<Vec<u8>>,
    /// Written operands as they are before the op runs: meaningful for in-place operands and states. Outputs
    /// that are only written are poisoned by the harness.
    pub writes: Vec<Vec<u8>>,
    /// Which written operands carry input (in place); the others are poisoned.
    pub in_place: Vec<bool>,
    /// Expert blocks of the layer, by expert id; `None` = not resident (must not be touched).
    pub experts: Vec<Option<Vec<u8>>>,
}

/// The contract of an op. Implemented by each op folder's `Desc`.
pub trait Op: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Name in traces, benches and messages.
    const NAME: &'static str;
    /// There is a SIMD implementation. Without one the op only moves bytes or indices.
    const SIMD: bool;

    /// Refuses descriptors outside what the op is written for.
    fn validate(&self) -> Result<(), Refusal>;
    /// Operands and their bytes.
    fn shapes(&self, dims: Dims) -> Shapes;
    /// What one run costs.
    fn cost(&self, dims: Dims) -> Cost;
    /// Seeded cases: odd sizes, one row, many rows, extremes.
    fn cases() -> Vec<Case<Self>>;
    /// The definition: naive loops, one thread.
    fn reference(&self, args: HostArgs<'_>);
    /// The same bytes, fast. `exec.level` is never [`Level::Scalar`] here.
    fn simd(&self, exec: &HostExec, args: HostArgs<'_>);
    /// Gives the calling worker the buffers that it needs for runs of `simd` of up to these sizes, so that
    /// later runs with one row per sequence allocate nothing.
    fn warm(&self, _exec: &HostExec, _dims: Dims) {}
}
