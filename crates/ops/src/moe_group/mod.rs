//! Groups (row, rank) pairs by expert, so that an expert's weights are read once per step. Integers
//! only; the grouping cannot change a bit of any result.
//!
//! | operand | content |
//! |---|---|
//! | read `ids` | u32[rows, top_k] |
//! | written `offsets` | u32[experts + 1]: entries of expert e are offsets[e]..offsets[e+1] |
//! | written `entries` | u32[rows·top_k]: row·top_k + rank, by expert, then ascending |

mod reference;

use base::Refusal;
use base::philox::Stream;

use crate::linear::cases;
use crate::linear::cost::expert_limits;
use crate::{Case, Cost, Dims, HostArgs, HostExec, Op, Shapes, spec, specs};

/// Descriptor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Desc {
    /// Experts of the layer.
    pub experts: usize,
    /// Chosen per row.
    pub top_k: usize,
}

impl Op for Desc {
    const NAME: &'static str = "moe_group";
    const SIMD: bool = false;

    fn validate(&self) -> Result<(), Refusal> {
        expert_limits(Self::NAME, self.experts, self.top_k)
    }

    fn shapes(&self, d: Dims) -> Shapes {
        let reads = specs([spec("ids", 4 * d.rows * self.top_k)]);
        let writes =
            specs([spec("offsets", 4 * (self.experts + 1)), spec("entries", 4 * d.rows * self.top_k)]);
        Shapes { reads, writes, experts: false }
    }

    fn cost(&self, d: Dims) -> Cost {
        self.shapes(d).cost(0, 0)
    }

    fn cases() -> Vec<Case<Self>> {
        use cases::Routing::{Any, Last};
        let shapes = [(8, 3, 1, Any), (1, 1, 5, Any), (512, 10, 33, Any), (6, 6, 7, Any), (64, 2, 100, Last)];
        shapes.map(|(experts, top_k, rows, routing)| case(Desc { experts, top_k }, rows, routing)).to_vec()
    }

    fn reference(&self, args: HostArgs<'_>) {
        reference::run(self, args);
    }

    /// There is none: the sort moves indices only.
    fn simd(&self, _exec: &HostExec, args: HostArgs<'_>) {
        reference::run(self, args);
    }
}

fn case(desc: Desc, rows: usize, routing: cases::Routing) -> Case<Desc> {
    let ids = cases::route(routing, rows, desc.experts, desc.top_k, &mut Stream::new(rows as u64));
    Case::new(format!("{desc:?}, {rows} rows, {routing:?}"), desc, rows).read(&ids).output().output()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Experts, Reads, Writes};

    #[test]
    fn the_counting_sort_is_the_stable_sort() {
        for mut case in Desc::cases() {
            let ids: Vec<u32> = case.reads[0].as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect();
            let expected = cases::grouping(&ids, case.desc.experts).map(|v| crate::conformance::bytes(&v));
            case.desc.reference(HostArgs {
                rows: &case.rows,
                context: case.dims.context,
                reads: Reads(case.reads.iter().map(Vec::as_slice).collect()),
                writes: Writes(case.writes.iter_mut().map(Vec::as_mut_slice).collect()),
                experts: Experts::default(),
            });
            assert_eq!(case.writes, expected, "{}", case.name);
        }
    }
}
