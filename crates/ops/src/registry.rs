//! The list of ops. Adding one = one line here and one folder.

use base::Refusal;

use crate::linear::layout::Expert;
use crate::{Cost, Dims, HostArgs, HostExec, Level, Op, Shapes};

/// Which implementation computed a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ran {
    /// The reference loops.
    Reference,
    /// SIMD of this level.
    Simd(Level),
}

macro_rules! registry {
    ($($variant:ident $module:ident),* $(,)?) => {
        /// Descriptor of any op.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum OpDesc {
            $(#[doc = concat!("[`crate::", stringify!($module), "`]")] $variant(crate::$module::Desc),)*
        }

        $(impl From<crate::$module::Desc> for OpDesc {
            fn from(desc: crate::$module::Desc) -> Self { OpDesc::$variant(desc) }
        })*

        impl OpDesc {
            /// Names of all ops, in registry order.
            pub const NAMES: &'static [&'static str] = &[$(<crate::$module::Desc as Op>::NAME),*];

            /// Name of the op.
            pub fn name(&self) -> &'static str {
                match self { $(OpDesc::$variant(_) => <crate::$module::Desc as Op>::NAME),* }
            }

            /// The op has a SIMD implementation.
            pub fn has_simd(&self) -> bool {
                match self { $(OpDesc::$variant(_) => <crate::$module::Desc as Op>::SIMD),* }
            }

            /// See [`Op::validate`].
            pub fn validate(&self) -> Result<(), Refusal> {
                match self { $(OpDesc::$variant(desc) => desc.validate()),* }
            }

            /// See [`Op::shapes`].
            pub fn shapes(&self, dims: Dims) -> Shapes {
                match self { $(OpDesc::$variant(desc) => desc.shapes(dims)),* }
            }

            /// See [`Op::cost`].
            pub fn cost(&self, dims: Dims) -> Cost {
                match self { $(OpDesc::$variant(desc) => desc.cost(dims)),* }
            }

            /// See [`Op::warm`].
            pub fn warm(&self, exec: &HostExec, dims: Dims) {
                if exec.level > Level::Scalar {
                    match self { $(OpDesc::$variant(desc) => desc.warm(exec, dims)),* }
                }
            }

            /// Runs the op on the host and says which implementation did it.
            pub fn run(&self, exec: &HostExec, args: HostArgs<'_>) -> Ran {
                if exec.level == Level::Scalar || !self.has_simd() {
                    match self { $(OpDesc::$variant(desc) => desc.reference(args)),* }
                    return Ran::Reference;
                }
                match self { $(OpDesc::$variant(desc) => desc.simd(exec, args)),* }
                Ran::Simd(exec.level)
            }
        }

        /// Calls the macro `$then!` with `(module)` for every op: for conformance tests and benches.
        #[macro_export]
        macro_rules! for_each_op {
            ($then:ident) => { $($then!($module);)* };
        }
    };
}

registry! {
    Embed embed,
    RmsNorm rmsnorm,
    Code code,
    Linear linear,
    Rope rope,
    KvWrite kv_write,
    Attention attention,
    SigmoidMul sigmoid_mul,
    Add add,
    Swiglu swiglu,
    Conv conv,
    GatedDelta gated_delta,
    GatedNorm gated_norm,
    Route route,
    MoeGroup moe_group,
    ExpertGateUp expert_gate_up,
    ExpertDown expert_down,
    Combine combine,
    Select select,
    Digest digest,
}

/// What a step reads of each expert that rows are routed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertRead {
    /// Experts of the layer.
    pub experts: usize,
    /// Bytes of an expert's block.
    pub block_bytes: usize,
    /// Bytes of it that this step reads.
    pub read_bytes: usize,
    /// Which read operand is the list of offsets by expert (u32 `[experts + 1]`, written by `moe_group`).
    pub offsets: usize,
}

impl OpDesc {
    /// For ops that read the expert pointer table.
    pub fn expert_read(&self) -> Option<ExpertRead> {
        let (experts, layout, gate_up) = match self {
            OpDesc::ExpertGateUp(d) => (d.experts, Expert::new(d.format, d.hidden, d.inter), true),
            OpDesc::ExpertDown(d) => (d.experts, Expert::new(d.format, d.hidden, d.inter), false),
            _ => return None,
        };
        let read = if gate_up { layout.gate_up } else { layout.down };
        Some(ExpertRead { experts, block_bytes: layout.bytes(), read_bytes: read.bytes(), offsets: 2 })
    }
}
