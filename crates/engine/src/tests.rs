//! Tests of the tests: an engine that forgets what a device needs gives wrong results under adversarial
//! copies.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use arch::Profile;
use base::{ExpertId, LayerId, SlotId};
use gpu::{Event, Pace, Span};
use ops::{HostExec, Row};

use crate::bind::Binding;
use crate::executor::Executor;
use crate::host::HostExecutor;
use crate::stats::Stats;
use crate::{Checks, Engine, Options};
use common::Way;

/// What is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forgets {
    Nothing,
    /// To wait for copies.
    Waits,
    /// To carry rows between layer groups.
    Carry,
    /// To take experts that were evicted out of the table, and to put loaded ones into it.
    Table,
}

/// An executor that forgets.
struct Forgetful(HostExecutor, Forgets);

impl Executor for Forgetful {
    fn binding(&self) -> &Binding {
        self.0.binding()
    }
    fn stats(&self) -> &Stats {
        self.0.stats()
    }
    fn stats_mut(&mut self) -> &mut Stats {
        self.0.stats_mut()
    }
    fn workers(&self) -> Arc<HostExec> {
        self.0.workers()
    }
    fn submit(&mut self, step: u32, rows: &[Row]) {
        self.0.submit(step, rows);
    }
    fn read(&self, span: Span) -> &[u8] {
        self.0.read(span)
    }
    fn write(&mut self, span: Span, bytes: &[u8]) {
        self.0.write(span, bytes);
    }
    fn clear(&mut self, span: Span) {
        self.0.clear(span);
    }
    fn move_span(&mut self, from: Span, to: Span) {
        if self.1 != Forgets::Carry {
            self.0.move_span(from, to);
        }
    }
    fn copy_expert(&mut self, layer: LayerId, expert: ExpertId, slot: SlotId) -> Event {
        self.0.copy_expert(layer, expert, slot)
    }
    fn wait(&mut self, event: Event) -> bool {
        self.1 != Forgets::Waits && self.0.wait(event)
    }
    fn poison(&mut self, slot: SlotId) {
        self.0.poison(slot);
    }
    fn point(&mut self, layer: LayerId, expert: ExpertId, slot: Option<SlotId>) {
        // Once all are somewhere, nothing is ever set again.
        if self.1 != Forgets::Table || self.stats().experts.evictions == 0 {
            self.0.point(layer, expert, slot);
        }
    }
    fn block_bytes(&self, layer: LayerId) -> usize {
        self.0.block_bytes(layer)
    }
}

/// The digest of a conversation on a device with three quarters of the experts; `None` if a step failed or
/// panicked.
fn digest(forgets: Forgets, way: Way) -> Option<base::hash::Digest> {
    let checks = Checks { pace: Pace::Adversarial(3), close_mapping: true };
    let options = Options { vram: Some(64 << 20), residency: Some(75), checks, ..Options::new(200) };
    let (model, recipe, cache) =
        common::parts("qwen3_moe", &testdata::fixture("qwen3_moe"), Profile::Default);
    let around = |executor| -> Box<dyn Executor> { Box::new(Forgetful(executor, forgets)) };
    let mut engine = Engine::load_with(model, recipe, Box::new(cache), way.options(options), around).unwrap();
    let prompt = common::prompt(90, 512, 8);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        common::run(&mut engine, &prompt, way, 4).digest
    }))
    .ok()
}

#[test]
fn what_is_forgotten_shows() {
    for way in [Way::Chunks(16), Way::TokenByToken] {
        let right = digest(Forgets::Nothing, way).expect("a sound engine answers");
        for forgets in [Forgets::Waits, Forgets::Carry, Forgets::Table] {
            if forgets == Forgets::Carry && way == Way::TokenByToken {
                continue; // nothing is carried
            }
            assert_ne!(digest(forgets, way), Some(right), "{forgets:?} does not show, {way:?}");
        }
    }
}
