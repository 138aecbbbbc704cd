//! Where one layer ends and the next begins, and what lives across.

use arch::{BufferId, Program, Rows};
use base::LayerId;

/// Start of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// First step of the layer.
    pub step: u32,
    /// The layer.
    pub layer: LayerId,
    /// Buffers that were written before and are used from here on: what a chunk must find again when its
    /// layers are run in groups.
    pub live: Vec<BufferId>,
}

/// The starts of all layers, in order. Panics if the layers of `program` are not contiguous ranges of steps
/// before its head: lowering is ours.
pub fn boundaries(program: &Program) -> Vec<Boundary> {
    let mut found: Vec<Boundary> = Vec::new();
    for step in &program.steps[..program.head as usize] {
        let last = found.last().map(|b| b.layer);
        match (step.layer, last) {
            (None, None) => continue,
            (None, Some(last)) => panic!("step {} behind layer {last} belongs to no layer", step.name),
            (Some(layer), Some(last)) if layer == last => continue,
            (Some(layer), last) => {
                assert!(last.is_none_or(|l| l < layer), "layer {layer} comes twice or out of order");
                found.push(Boundary { step: step.id, layer, live: live_at(program, step.id) });
            }
        }
    }
    found
}

fn live_at(program: &Program, step: u32) -> Vec<BufferId> {
    let is_live = |i: &u32| {
        let b = &program.buffers[*i as usize];
        b.rows == Rows::Chunk && b.first < step && step <= b.last
    };
    (0..program.buffers.len() as u32).filter(is_live).map(BufferId).collect()
}
