//! The flow table: a fixed number of places, found by the two ends of the connection.

use hashbrown::HashTable;
use std::hash::BuildHasher;

use nicache_tcp::Time;

use super::Flow;
use super::turn::Turn;
use crate::packet::FlowKey;

/// Flows by their ends.
pub(crate) struct FlowTable {
    flows: Box<[Option<Box<Flow>>]>,
    free: Vec<u32>,
    /// Memory of flows that are not in use; allocated at start.
    spare: Vec<Box<Flow>>,
    index: HashTable<u32>,
    seed: foldhash::fast::FixedState,
    /// Where the search for a flow to forget goes on.
    hand: usize,
}

impl FlowTable {
    /// A table of `capacity` places; `seed` keeps clients from choosing collisions.
    pub(crate) fn new(capacity: usize, seed: u64) -> Self {
        Self {
            flows: (0..capacity).map(|_| None).collect(),
            free: (0..capacity as u32).rev().collect(),
            spare: (0..capacity).map(|_| Box::new(Flow::vacant())).collect(),
            index: HashTable::with_capacity(capacity),
            seed: foldhash::fast::FixedState::with_seed(seed),
            hand: 0,
        }
    }

    /// The keyed hash of a flow's ends.
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        self.seed.hash_one(key)
    }

    /// Flows in the table.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The flow's place.
    #[inline(always)]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.index
            .find(self.seed.hash_one(key), |&index| {
                self.flows[index as usize].as_ref().is_some_and(|flow| flow.key == *key)
            })
            .copied()
    }

    /// Takes a flow out for work on it; [`FlowTable::put`] must follow. Moving the box keeps
    /// borrows of the card apart.
    #[inline]
    pub(crate) fn take(&mut self, index: u32) -> Option<Box<Flow>> {
        self.flows.get_mut(index as usize)?.take()
    }

    /// Puts a flow back.
    #[inline]
    pub(crate) fn put(&mut self, index: u32, flow: Box<Flow>) {
        self.flows[index as usize] = Some(flow);
    }

    /// Whether the flow at that place waits for its turn to send.
    pub(crate) fn turn(&self, index: u32) -> Turn {
        self.flows.get(index as usize).and_then(Option::as_ref).map_or(Turn::No, |flow| flow.turn)
    }

    /// All flows that are not taken out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter_map(|flow| flow.as_deref())
    }

    /// Is a place left?
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Adds a flow; its place, or `None` if the table is full.
    pub(crate) fn insert(&mut self, flow: Flow) -> Option<u32> {
        let index = self.free.pop()?;
        let Some(mut place) = self.spare.pop() else {
            self.free.push(index);
            return None;
        };
        *place = flow;
        let hash = self.seed.hash_one(place.key);
        self.flows[index as usize] = Some(place);
        let (flows, seed) = (&self.flows, &self.seed);
        self.index.insert_unique(hash, index, |&index| {
            flows[index as usize].as_ref().map_or(0, |flow| seed.hash_one(flow.key))
        });
        Some(index)
    }

    /// Forgets a flow that was taken out with [`FlowTable::take`].
    pub(crate) fn forget(&mut self, index: u32, flow: Box<Flow>) {
        let hash = self.seed.hash_one(flow.key);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == index) {
            found.remove();
            self.free.push(index);
        }
        self.spare.push(flow);
    }

    /// Of `tries` places that are `wanted`, the one whose client has said nothing for longest, as
    /// far as that is its own fault: never one whose client waits ([`Flow::awaits_host`]), nor a
    /// handshake under way. Its last word is older than `before`; that of a client that has not
    /// acknowledged all, whose segments or ours may be lost, is older than `before_owing`.
    pub(crate) fn find_silent(
        &mut self,
        tries: usize,
        before: Time,
        before_owing: Time,
        wanted: impl Fn(&Flow) -> bool,
    ) -> Option<u32> {
        let mut found: Option<(Time, u32)> = None;
        for _ in 0..tries.min(self.flows.len()) {
            self.hand = (self.hand + 1) % self.flows.len();
            let Some(flow) = &self.flows[self.hand] else { continue };
            let before = if flow.card_speaks() || flow.owes_acks() { before_owing } else { before };
            let is_silent = flow.active <= before && !flow.is_half_open() && !flow.awaits_host();
            // One on loan may have been asked for anything just now.
            let may_end = is_silent && flow.loan.is_none() && wanted(flow);
            if may_end && found.is_none_or(|(active, _)| flow.active < active) {
                found = Some((flow.active, self.hand as u32));
            }
        }
        found.map(|(_, index)| index)
    }

    /// A flow that the connection can do without (see [`Flow::is_forgettable`]), searched among
    /// `tries` places.
    pub(crate) fn find_forgettable(&mut self, tries: usize) -> Option<u32> {
        for _ in 0..tries.min(self.flows.len()) {
            self.hand = (self.hand + 1) % self.flows.len();
            if self.flows[self.hand].as_ref().is_some_and(|flow| flow.is_forgettable()) {
                return Some(self.hand as u32);
            }
        }
        None
    }
}
