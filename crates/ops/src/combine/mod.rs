//! Weighted sum of the routed experts in ascending rank, then the shared expert
//! (docs/arithmetic.md §5).
//!
//! | operand | content |
//! |---|---|
//! | read `e` | f32[rows·top_k, hidden] |
//! | read `weights` | f32[rows, top_k] |
//! | read `shared` | f32[rows, hidden], unless `Shared::None` |
//! | read `gate` | f32[rows], only if `Shared::Gated`: the gate's logit |
//! | written `y` | f32[rows, hidden] |

mod reference;
mod simd;

use base::Refusal;
use base::philox::Stream;

use crate::limits::{MAX_WIDTH, within};
use crate::math::EXP_OPS;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// How a shared expert joins the routed sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shared {
    /// There is none.
    None,
    /// `acc + shared`.
    Plain,
    /// `fma(sigmoid(gate), shared, acc)`.
    Gated,
}

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Width of the model.
    pub hidden: usize,
    /// Experts per row.
    pub top_k: usize,
    /// How the shared expert joins.
    pub shared: Shared,
}

impl Op for Desc {
    const NAME: &'static str = "combine";
    const SIMD: bool = true;

    fn validate(&self) -> Result<(), Refusal> {
        within("combine.hidden", self.hidden, 1, MAX_WIDTH)?;
        within("combine.top_k", self.top_k, 1, MAX_WIDTH)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let mut reads = specs([
            spec("e", 4 * d.rows * self.top_k * self.hidden),
            spec("weights", 4 * d.rows * self.top_k),
        ]);
        if self.shared != Shared::None {
            reads.push(spec("shared", 4 * d.rows * self.hidden));
        }
        if self.shared == Shared::Gated {
            reads.push(spec("gate", 4 * d.rows));
        }
        let writes = specs([spec("y", 4 * d.rows * self.hidden)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        let terms = self.top_k + usize::from(self.shared != Shared::None);
        let gate = if self.shared == Shared::Gated { d.rows as u64 * (EXP_OPS + 3) } else { 0 };
        self.shapes(d).cost(0, gate + (d.rows * self.hidden * terms * 2) as u64)
    }

    fn cases() -> Vec<Case<Self>> {
        let mut all = Vec::new();
        for shared in [Shared::None, Shared::Plain, Shared::Gated] {
            for (hidden, top_k, rows) in [(1, 1, 1), (40, 3, 2), (2048, 8, 1), (2880, 4, 3), (130, 10, 33)] {
                all.push(case(Desc { hidden, top_k, shared }, rows));
            }
        }
        all
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    fn simd(&self, exec: &HostExec, args: HostArgs<'_>) {
        simd::run(self, exec, args);
    }
}

fn case(desc: Desc, rows: usize) -> Case<Desc> {
    let mut random = Stream::new((desc.hidden + rows) as u64);
    let mut case = Case::new(format!("{desc:?}, {rows} rows"), desc, rows);
    for operand in case.shapes().reads {
        // A wide range of magnitudes, so that another order of the sum would show.
        let values = (0..operand.bytes / 4).map(|i| random.normal() * [1.0, 1e-4, 300.0][i % 3]);
        case = case.read(&values.collect::<Vec<f32>>()[..]);
    }
    case.output()
}
