//! The host device's copy queue: copies from host memory into an arena, in order, each with an event.

use std::collections::VecDeque;
use std::ops::Range;

use base::philox::Stream as Random;

use crate::{Arena, Span};

/// What unfinished copies and evicted slots hold: as a number in any format of weights it is NaN or far out
/// of range, so that a result made of it shows.
pub const POISON: u8 = 0xFF;

/// When copies happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// When they are asked for.
    #[default]
    AtOnce,
    /// At moments drawn from this seed, at the latest when their event is waited for; until then their
    /// destination is poisoned. A missing wait becomes a wrong result instead of a race on a GPU.
    Adversarial(u64),
}

/// The end of a copy and of all before it in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(u64);

#[derive(Debug)]
struct Pending {
    from: Range<usize>,
    to: Span,
}

/// Copies in order.
#[derive(Debug)]
pub struct CopyQueue {
    random: Option<Random>,
    pending: VecDeque<Pending>,
    done: u64,
}

impl CopyQueue {
    /// An empty queue.
    pub fn new(pace: Pace) -> Self {
        let random = match pace {
            Pace::AtOnce => None,
            Pace::Adversarial(seed) => Some(Random::new(seed)),
        };
        CopyQueue { random, pending: VecDeque::new(), done: 0 }
    }

    /// Asks for a copy of `host[from]` to `to`. `host` must be the same memory in every call.
    pub fn copy(&mut self, arena: &mut Arena, host: &[u8], from: Range<usize>, to: Span) -> Event {
        assert_eq!(from.len(), to.len(), "bytes of a copy");
        if self.random.is_none() {
            arena.write(to).copy_from_slice(&host[from]);
            self.done += 1;
            return Event(self.done);
        }
        arena.write(to).fill(POISON);
        self.pending.push_back(Pending { from, to });
        Event(self.done + self.pending.len() as u64)
    }

    /// Whether a copy is finished.
    pub fn is_done(&self, event: Event) -> bool {
        event.0 <= self.done
    }

    /// Whether all are.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Finishes the copy of `event` and all before it. Gives whether there was something left to do.
    pub fn wait(&mut self, arena: &mut Arena, host: &[u8], event: Event) -> bool {
        let waits = !self.is_done(event);
        while !self.is_done(event) {
            self.finish(arena, host);
        }
        waits
    }

    /// Time passes: an adversarial queue may finish some copies.
    pub fn tick(&mut self, arena: &mut Arena, host: &[u8]) {
        let Some(random) = &mut self.random else { return };
        // Often none, sometimes several.
        let finished = if random.below(4) == 0 { random.below(8) as usize } else { 0 };
        for _ in 0..finished.min(self.pending.len()) {
            self.finish(arena, host);
        }
    }

    fn finish(&mut self, arena: &mut Arena, host: &[u8]) {
        let copy = self.pending.pop_front().expect("an event belongs to a copy of this queue");
        arena.write(copy.to).copy_from_slice(&host[copy.from]);
        self.done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_happen_in_order_and_not_after_their_event() {
        let host: Vec<u8> = (0..64).collect();
        for seed in 0..50 {
            let mut arena = Arena::new(&[("a".into(), 64)]).unwrap();
            let region = arena.region("a");
            let spans: Vec<Span> = (0..8).map(|i| arena.span(region, 8 * i, 8)).collect();
            let mut queue = CopyQueue::new(Pace::Adversarial(seed));
            let events: Vec<Event> =
                (0..8).map(|i| queue.copy(&mut arena, &host, 8 * i..8 * i + 8, spans[i])).collect();
            assert!(!queue.is_done(events[0]));
            assert_eq!(arena.read(spans[0]), [POISON; 8]);
            queue.tick(&mut arena, &host);
            let waited = queue.wait(&mut arena, &host, events[4]);
            assert!(waited || queue.is_done(events[4]));
            for (i, (span, event)) in spans.iter().zip(&events).enumerate() {
                let expected = if queue.is_done(*event) { &host[8 * i..8 * i + 8] } else { &[POISON; 8] };
                assert_eq!(arena.read(*span), expected, "seed {seed} copy {i}");
                assert!(i > 4 || queue.is_done(*event));
            }
            assert!(!queue.wait(&mut arena, &host, events[4]), "nothing is left of it");
        }
    }

    #[test]
    fn a_plain_queue_copies_at_once() {
        let mut arena = Arena::new(&[("a".into(), 8)]).unwrap();
        let span = arena.span(arena.region("a"), 0, 8);
        let mut queue = CopyQueue::new(Pace::AtOnce);
        let event = queue.copy(&mut arena, &[7; 8], 0..8, span);
        assert!(queue.is_done(event) && queue.is_empty());
        assert_eq!(arena.read(span), [7; 8]);
    }
}
