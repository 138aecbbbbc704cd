//! The step loop: experts on demand before the step that reads them, checks behind each step.

use std::ops::Range;

use base::{Error, LayerId, Result, WorldError};
use ops::{OpDesc, Row};

use crate::executor::{Executor, output};
use crate::expert_cache::ExpertCache;

/// Sees inner results as they are made.
pub trait Observer: Send {
    /// The router of `layer` chose `ids` with combine `weights`, both `[rows, top_k]`.
    fn router(&mut self, layer: LayerId, rows: &[Row], top_k: usize, ids: &[u32], weights: &[f32]);
}

/// What goes along with a run of steps.
pub(crate) struct Along<'a> {
    /// Loads experts when a step needs them; `None`: they are where the table says.
    pub demand: Option<&'a mut ExpertCache>,
    pub observer: Option<&'a mut (dyn Observer + 'static)>,
    /// Whether digest steps run.
    pub digest: bool,
    /// Ids of a router's choice, taken out of the device.
    pub ids: &'a mut Vec<u32>,
}

/// Runs the steps `range` on `rows`. Stops at the first error.
pub(crate) fn run(
    executor: &mut dyn Executor,
    range: Range<u32>,
    rows: &[Row],
    along: &mut Along<'_>,
) -> Result<()> {
    let stats = executor.stats_mut();
    stats.peak_rows = stats.peak_rows.max(rows.len() as u64);
    let mut resolved = None;
    for id in range {
        if !along.digest && matches!(executor.binding().program.steps[id as usize].desc, OpDesc::Digest(_)) {
            continue;
        }
        let experts = executor.binding().steps[id as usize].experts;
        if let (Some(cache), Some(layer)) = (&mut along.demand, experts)
            && resolved != experts
        {
            take_ids(executor, layer, rows.len(), along.ids);
            cache.demand(executor, layer, along.ids);
            resolved = experts;
        }
        executor.submit(id, rows);
        check_finite(executor, id, rows.len())?;
        if let Some(observer) = &mut along.observer {
            observe(executor, id, rows, *observer);
        }
    }
    Ok(())
}

fn take_ids(executor: &dyn Executor, layer: LayerId, rows: usize, ids: &mut Vec<u32>) {
    let routers = &executor.binding().program.routers;
    let router = routers.iter().find(|r| r.layer == layer).expect("experts have a router");
    ids.clear();
    ids.extend_from_slice(output::<u32>(executor, router.step, 0, rows * router.top_k));
}

fn observe(executor: &dyn Executor, id: u32, rows: &[Row], observer: &mut dyn Observer) {
    let routers = &executor.binding().program.routers;
    let Ok(index) = routers.binary_search_by_key(&id, |r| r.step) else { return };
    let router = routers[index];
    let count = rows.len() * router.top_k;
    let ids = output::<u32>(executor, router.step, 0, count);
    let weights = output::<f32>(executor, router.step, 1, count);
    observer.router(router.layer, rows, router.top_k, ids, weights);
}

/// NaN and infinity in router weights, recurrent outputs and logits are errors, never sampled from.
fn check_finite(executor: &dyn Executor, id: u32, rows: usize) -> Result<()> {
    let binding = executor.binding();
    let step = &binding.program.steps[id as usize];
    let (what, write, width) = match &step.desc {
        OpDesc::Route(d) => ("router weights", 1, d.top_k),
        OpDesc::GatedDelta(d) => ("recurrent output", 0, d.value_heads * d.dv),
        OpDesc::Linear(d) if id == binding.logits_step => ("logits", 0, d.n),
        _ => return Ok(()),
    };
    let values: &[f32] = output(executor, id, write, rows * width);
    // Largest magnitude as bits: NaN and infinity have an exponent of all ones.
    let worst = values.iter().fold(0u32, |m, v| m.max(v.to_bits() & 0x7fff_ffff));
    if worst < 0x7f80_0000 {
        return Ok(());
    }
    let at = values.iter().position(|v| !v.is_finite()).unwrap_or(0);
    let layer = step.layer.map_or("head".to_string(), |l| l.to_string());
    let error = WorldError::NotFinite { what, layer, op: step.desc.name(), row: at / width };
    Err(Error::World(error))
}
