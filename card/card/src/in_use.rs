//! What a card holds of its bounded pools (I7), for metrics, simulation and tests.

use nicache_port::Port;

use crate::card::Card;

/// Things in use now. All but `entries` are 0 when no connection and no fill is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Connections tracked.
    pub flows: usize,
    /// Hold buffers lent to flows.
    pub holds: usize,
    /// Fills under way.
    pub fills: usize,
    /// Entries, also those that are only kept for replies that were begun.
    pub entries: usize,
    /// Entries that replies still need.
    pub pinned_entries: usize,
    /// Replies with several ranges.
    pub part_sets: usize,
}

impl<W: Port, H: Port> Card<W, H> {
    /// Counts what is in use. Looks at every entry: not for the packet path.
    pub fn in_use(&self) -> InUse {
        let (entries, pinned_entries) = self.store.in_use();
        InUse {
            flows: self.flows.len(),
            holds: self.holds.lent(),
            fills: self.fills.in_use(),
            entries,
            pinned_entries,
            part_sets: self.part_sets.lent(),
        }
    }
}
