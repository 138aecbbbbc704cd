//! What the engine asks of a device. Everything above it (chunks, layer groups, the expert directory,
//! cancellation) exists once, whatever the device.

use base::{ExpertId, LayerId, SlotId};
use gpu::{Event, Span};
use ops::{HostExec, Row};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bind::Binding;
use crate::stats::Stats;

/// Runs the steps of a bound program in order.
pub(crate) trait Executor: Send {
    /// The bound program.
    fn binding(&self) -> &Binding;
    /// What ran so far.
    fn stats(&self) -> &Stats;
    fn stats_mut(&mut self) -> &mut Stats;
    /// The host's workers.
    fn workers(&self) -> std::sync::Arc<HostExec>;

    /// Runs a step on `rows`, behind all steps submitted before.
    fn submit(&mut self, step: u32, rows: &[Row]);
    /// The bytes of a span, once the steps that write it are through.
    fn read(&self, span: Span) -> &[u8];
    /// Puts bytes in place, behind all steps submitted before.
    fn write(&mut self, span: Span, bytes: &[u8]);
    /// Puts token ids in place, likewise.
    fn write_ids(&mut self, ids: &[u32]) {
        self.write(self.binding().ids, ids.as_bytes());
    }
    /// Zeroes a span, likewise.
    fn clear(&mut self, span: Span);
    /// Copies one span to another, likewise.
    fn move_span(&mut self, from: Span, to: Span);

    /// Copies the block of an expert from the host to a slot, in the order asked for and behind all steps
    /// submitted before. It may be read when the event has been waited for.
    fn copy_expert(&mut self, layer: LayerId, expert: ExpertId, slot: SlotId) -> Event;
    /// Waits for a copy and all before it. Gives whether it was not done yet.
    fn wait(&mut self, event: Event) -> bool;
    /// Fills a slot with bytes that no result may be made of.
    fn poison(&mut self, slot: SlotId);
    /// Sets an entry of the expert pointer table; `None`: the expert is not there.
    fn point(&mut self, layer: LayerId, expert: ExpertId, slot: Option<SlotId>);
    /// Bytes of an expert's block.
    fn block_bytes(&self, layer: LayerId) -> usize;
}

/// The first `count` elements of what step `step` wrote as operand `write`.
pub(crate) fn output<T>(executor: &dyn Executor, step: u32, write: usize, count: usize) -> &[T]
where
    T: FromBytes + Immutable + KnownLayout,
{
    let bytes = executor.read(executor.binding().steps[step as usize].writes[write]);
    <[T]>::ref_from_prefix_with_elems(bytes, count).expect("aligned and long enough").0
}
