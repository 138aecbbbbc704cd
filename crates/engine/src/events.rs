//! The last things that happened to experts, kept in a ring: what a panic of ours prints.

use base::{ExpertId, LayerId, SlotId};

/// Events that are kept.
const KEPT: usize = 256;
/// Of them a panic prints so many.
const PRINTED: usize = 32;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A copy into a slot was asked for.
    Copy,
    /// A step waited for a copy.
    Wait,
    /// An expert left its slot.
    Evict,
    /// A layer group's turn began.
    Group,
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Happened {
    /// Count of events before it.
    pub number: u64,
    /// What.
    pub what: What,
    /// Where.
    pub layer: Option<LayerId>,
    /// Which.
    pub expert: Option<ExpertId>,
    /// The slot.
    pub slot: Option<SlotId>,
}

impl std::fmt::Display for Happened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.number, self.what)?;
        self.layer.map_or(Ok(()), |layer| write!(f, " layer {layer}"))?;
        self.expert.map_or(Ok(()), |expert| write!(f, " expert {expert}"))?;
        self.slot.map_or(Ok(()), |slot| write!(f, " slot {slot}"))
    }
}

/// A ring of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events {
    ring: Vec<Happened>,
    count: u64,
}

impl Default for Events {
    fn default() -> Self {
        Events { ring: Vec::with_capacity(KEPT), count: 0 }
    }
}

impl Events {
    /// Adds an event; the oldest goes.
    pub fn push(
        &mut self,
        what: What,
        layer: Option<LayerId>,
        expert: Option<ExpertId>,
        slot: Option<SlotId>,
    ) {
        let event = Happened { number: self.count, what, layer, expert, slot };
        if self.ring.len() < KEPT {
            self.ring.push(event);
        } else {
            self.ring[self.count as usize % KEPT] = event;
        }
        self.count += 1;
    }

    /// Those that are kept, in order.
    pub fn last(&self) -> impl Iterator<Item = &Happened> {
        let start = if self.ring.len() < KEPT { 0 } else { self.count as usize % KEPT };
        self.ring[start..].iter().chain(&self.ring[..start])
    }

    /// All events so far, also those that are not kept any more.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Prints the last events to stderr.
    pub(crate) fn print(&self) {
        let kept = self.ring.len();
        eprintln!("last events of the expert cache:");
        self.last().skip(kept.saturating_sub(PRINTED)).for_each(|event| eprintln!("  {event}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_in_order() {
        let mut events = Events::default();
        for i in 0..1000 {
            events.push(What::Copy, Some(LayerId(1)), Some(ExpertId(i)), None);
        }
        let experts: Vec<u32> = events.last().map(|e| e.expert.unwrap().0).collect();
        assert_eq!(experts, (1000 - KEPT as u32..1000).collect::<Vec<_>>());
        assert_eq!(events.count(), 1000);
        assert_eq!(events.last().last().unwrap().to_string(), "999 Copy layer 1 expert 999");
    }
}
