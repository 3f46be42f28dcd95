//! The payload cache module: which buffer of main memory is also in which place of the card's
//! cache, and which place goes next.
//!
//! Read first: Yocum and Chase 2001, section 3 and Figure 3 (states), section 4.1 with Table 1 (the
//! six calls) and Figure 4 (queues).
//!
//! ```text
//!                    pc_receive_bind                    pc_send_bind (miss)
//!        ┌────────────────────────────── HostUnbound ──────────────────────────────┐
//!        ▼                                 ▲  ▲  ▲                                 ▼
//!  ReceiveBound ── complete, not valid ────┘  │  └── complete, invalidated ── SendBound
//!        │                     evicted, invalidated                          ▲     │
//!        └── pc_receive_complete ────▶ HostBound ── pc_send_bind (hit) ──────┘     │
//!                                          ▲──────────────── pc_send_complete ─────┘
//!
//!  queues:  unbound ◀── invalidated, demoted ── victim (sent) · priority (received, not sent)       evicted in this order
//! ```
//!
//! An entry whose transfer is under way is *pending*: it is in no queue, and so never evicted. The
//! host alone decides; the card only does what descriptors say.
//!
//! Each load of an entry gives it a new *generation*, which goes with every descriptor, so a
//! card finds a host that reuses an entry too early.

use nicache_random::{SplitMix64, below};

use crate::lists::Lists;

/// A place in the card's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryId(pub u32);

/// A buffer of main memory: the paper's physical address of a page frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Figure 3 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Free.
    HostUnbound,
    /// A receive into it is pending.
    ReceiveBound,
    /// Sends from it are pending, this many. Its buffer may have been changed meanwhile, and then
    /// it becomes free at the end.
    SendBound {
        /// How many sends are pending.
        sends: u32,
        /// The buffer was changed.
        is_invalidated: bool,
    },
    /// It has what its buffer has.
    HostBound,
}

/// Figure 4 of the paper. The order is that of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Queue {
    /// Free, or not worth keeping.
    Unbound = 0,
    /// Sent.
    Victim = 1,
    /// Received, and not sent.
    Priority = 2,
}

const QUEUES: [Queue; 3] = [Queue::Unbound, Queue::Victim, Queue::Priority];

/// Which entry of a queue goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The one that came last: the best if buffers are forwarded in the order in which they came
    /// (section 3).
    #[default]
    Mru,
    /// The one that came first.
    Lru,
    /// The one that was loaded first. A choice looks at the whole queue.
    Fifo,
    /// Any. A choice looks at up to half of the queue.
    Random,
}

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mru" => Ok(Self::Mru),
            "lru" => Ok(Self::Lru),
            "fifo" => Ok(Self::Fifo),
            "random" => Ok(Self::Random),
            _ => Err(format!("`{text}` is not an order of eviction: mru, lru, fifo or random")),
        }
    }
}

/// What somebody knows of a buffer's future ([`Pcache::pc_advise`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// It will be sent.
    Promote,
    /// It will not.
    Demote,
}

/// An entry with the number of its present load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The entry.
    pub entry: EntryId,
    /// Its generation, never 0.
    pub generation: u16,
    /// The buffer that it had before, whose copy is gone.
    pub evicted: Option<BufferId>,
}

/// What a send finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBind {
    /// The buffer's bytes are in the entry.
    Hit(Bound),
    /// The buffer's bytes are to go into the entry first.
    Miss(Bound),
    /// The buffer's bytes can go into no entry: all are pending, or the buffer was changed while
    /// sends of it are pending.
    Uncached,
}

/// A driver that calls out of turn: a bug of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// A transfer of the buffer is pending.
    #[error("a transfer of buffer {0:?} is pending")]
    Pending(BufferId),
    /// No such transfer of the buffer is pending.
    #[error("no such transfer of buffer {0:?} is pending")]
    NotPending(BufferId),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    buffer: Option<BufferId>,
    state: EntryState,
    generation: u16,
    loaded: u64,
}

/// What the cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcacheCounters {
    /// Sends of buffers that were there.
    pub hits: u64,
    /// Sends of buffers that were not.
    pub misses: u64,
    /// Entries taken from a buffer that had not been sent.
    pub evicted_unsent: u64,
    /// Entries taken from a buffer that had been sent.
    pub evicted_sent: u64,
    /// Bindings that a change of the buffer ended.
    pub invalidated: u64,
}

/// The payload cache module: which buffer of main memory is also in which place of the card's
/// cache, and which place goes next. All memory is allocated at creation: 40 bytes for each entry,
/// 4 for each buffer.
#[derive(Debug)]
pub struct Pcache {
    entries: Box<[Entry]>,
    /// The entry of each buffer.
    binding: Box<[Option<EntryId>]>,
    queues: Lists<3>,
    order: Order,
    loads: u64,
    random: SplitMix64,
    /// What is replaced next, of [`Order::Random`]: the same until an entry is loaded.
    choice: u64,
    counters: PcacheCounters,
    #[cfg(test)]
    pub(crate) ignores_changes: bool,
}

impl Pcache {
    /// Entries and buffers, none of them bound.
    pub fn new(entries: u32, buffers: u32, order: Order) -> Self {
        let free = Entry { buffer: None, state: EntryState::HostUnbound, generation: 0, loaded: 0 };
        let mut queues = Lists::new(entries);
        (0..entries).for_each(|entry| queues.push(Queue::Unbound as usize, entry));
        Self {
            entries: vec![free; entries as usize].into_boxed_slice(),
            binding: vec![None; buffers as usize].into_boxed_slice(),
            queues,
            order,
            loads: 0,
            random: SplitMix64::new(0),
            choice: 0,
            counters: PcacheCounters::default(),
            #[cfg(test)]
            ignores_changes: false,
        }
    }

    /// A receive into a buffer is to be posted: an old binding ends, and the buffer gets an entry.
    /// `None`: all entries are pending.
    ///
    /// # Errors
    /// A transfer of the buffer is pending.
    pub fn pc_receive_bind(&mut self, buffer: BufferId) -> Result<Option<Bound>, BindError> {
        if let Some(entry) = self.binding_of(buffer) {
            if self.is_pending(entry) {
                return Err(BindError::Pending(buffer));
            }
            self.unbind(entry);
        }
        Ok(self.load(buffer, EntryState::ReceiveBound))
    }

    /// A send of a buffer is to be posted: by its entry if it has one, or by another one.
    ///
    /// # Errors
    /// A receive into the buffer is pending.
    pub fn pc_send_bind(&mut self, buffer: BufferId) -> Result<SendBind, BindError> {
        if let Some(entry) = self.binding_of(buffer) {
            let Entry { state, generation, .. } = self.entries[entry.0 as usize];
            let sends = match state {
                EntryState::ReceiveBound => return Err(BindError::Pending(buffer)),
                EntryState::SendBound { is_invalidated: true, .. } => {
                    self.counters.misses += 1;
                    return Ok(SendBind::Uncached);
                }
                EntryState::SendBound { sends, .. } => sends + 1,
                EntryState::HostBound | EntryState::HostUnbound => 1,
            };
            self.queues.remove(entry.0);
            self.entries[entry.0 as usize].state =
                EntryState::SendBound { sends, is_invalidated: false };
            self.counters.hits += 1;
            return Ok(SendBind::Hit(Bound { entry, generation, evicted: None }));
        }
        self.counters.misses += 1;
        // Valid as soon as the transfer begins: the card does what it is told in order, so further
        // sends hit.
        let bound = self.load(buffer, EntryState::SendBound { sends: 1, is_invalidated: false });
        Ok(bound.map_or(SendBind::Uncached, SendBind::Miss))
    }

    /// A receive is complete. `is_cacheable`: it has left the buffer's bytes in the entry; a short
    /// packet has not.
    ///
    /// # Errors
    /// No receive into the buffer is pending.
    pub fn pc_receive_complete(
        &mut self,
        buffer: BufferId,
        is_cacheable: bool,
    ) -> Result<(), BindError> {
        let entry = self.binding_of(buffer).ok_or(BindError::NotPending(buffer))?;
        if self.entries[entry.0 as usize].state != EntryState::ReceiveBound {
            return Err(BindError::NotPending(buffer));
        }
        if is_cacheable {
            self.settle(entry, Queue::Priority);
        } else {
            self.unbind(entry);
        }
        Ok(())
    }

    /// A send is complete. With the last one the entry is the host's again.
    ///
    /// # Errors
    /// No send of the buffer is pending.
    pub fn pc_send_complete(&mut self, buffer: BufferId) -> Result<(), BindError> {
        let entry = self.binding_of(buffer).ok_or(BindError::NotPending(buffer))?;
        match self.entries[entry.0 as usize].state {
            EntryState::SendBound { sends: 1, is_invalidated: true } => self.unbind(entry),
            EntryState::SendBound { sends: 1, .. } => self.settle(entry, Queue::Victim),
            EntryState::SendBound { sends, is_invalidated } => {
                self.entries[entry.0 as usize].state =
                    EntryState::SendBound { sends: sends - 1, is_invalidated };
            }
            _ => return Err(BindError::NotPending(buffer)),
        }
        Ok(())
    }

    /// A buffer was changed, or is used for something else: its entry no longer has what it has.
    /// While a transfer is pending the entry is not free, but no further send hits.
    pub fn pc_invalidate_binding(&mut self, buffer: BufferId) {
        #[cfg(test)]
        if self.ignores_changes {
            return;
        }
        let Some(entry) = self.binding_of(buffer) else { return };
        match &mut self.entries[entry.0 as usize].state {
            EntryState::HostBound => {
                self.counters.invalidated += 1;
                self.unbind(entry);
            }
            EntryState::SendBound { is_invalidated, .. } => {
                self.counters.invalidated += u64::from(!*is_invalidated);
                *is_invalidated = true;
            }
            EntryState::ReceiveBound | EntryState::HostUnbound => {}
        }
    }

    /// What is known of a buffer's future. Nothing changes for one that is pending or has no entry.
    pub fn pc_advise(&mut self, buffer: BufferId, advice: Advice) {
        let Some(entry) = self.binding_of(buffer) else { return };
        if self.entries[entry.0 as usize].state == EntryState::HostBound {
            let queue = match advice {
                Advice::Promote => Queue::Priority,
                Advice::Demote => Queue::Unbound,
            };
            self.queues.push(queue as usize, entry.0);
        }
    }

    /// The buffer whose copy goes with the next bind, if one goes. `None` in the outer place: no
    /// entry can be had.
    pub fn next_evicted(&mut self) -> Option<Option<BufferId>> {
        self.replacement().map(|entry| self.entries[entry.0 as usize].buffer)
    }

    /// The state of an entry.
    pub fn state(&self, entry: EntryId) -> EntryState {
        self.entries[entry.0 as usize].state
    }

    /// The queue that an entry is in; pending ones are in none.
    pub fn queue(&self, entry: EntryId) -> Option<Queue> {
        self.queues.list_of(entry.0).map(|list| QUEUES[list])
    }

    /// Entries in a queue.
    pub fn len(&self, queue: Queue) -> u32 {
        self.queues.len(queue as usize)
    }

    /// How many entries the cache has.
    pub fn entries(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The entry that a buffer is bound to.
    pub fn binding_of(&self, buffer: BufferId) -> Option<EntryId> {
        self.binding[buffer.0 as usize]
    }

    /// The entry and generation that have a buffer's bytes now.
    pub fn cached(&self, buffer: BufferId) -> Option<(EntryId, u16)> {
        let entry = self.binding_of(buffer)?;
        let Entry { state, generation, .. } = self.entries[entry.0 as usize];
        let is_valid = matches!(
            state,
            EntryState::HostBound | EntryState::SendBound { is_invalidated: false, .. }
        );
        is_valid.then_some((entry, generation))
    }

    /// What the cache has done.
    pub fn counters(&self) -> &PcacheCounters {
        &self.counters
    }

    fn is_pending(&self, entry: EntryId) -> bool {
        matches!(
            self.entries[entry.0 as usize].state,
            EntryState::ReceiveBound | EntryState::SendBound { .. }
        )
    }

    /// The entry that goes next. The choice stays the same until something changes.
    fn replacement(&mut self) -> Option<EntryId> {
        let queue = QUEUES.into_iter().find(|queue| self.queues.len(*queue as usize) > 0)? as usize;
        let chosen = match self.order {
            Order::Mru => self.queues.last(queue),
            Order::Lru => self.queues.first(queue),
            Order::Fifo => self
                .queues
                .iter_from_last(queue)
                .min_by_key(|entry| self.entries[*entry as usize].loaded),
            Order::Random => {
                let at = below(self.choice, self.queues.len(queue).into());
                self.queues.iter_from_last(queue).nth(at as usize)
            }
        };
        chosen.map(EntryId)
    }

    fn load(&mut self, buffer: BufferId, state: EntryState) -> Option<Bound> {
        let entry = self.replacement()?;
        self.choice = self.random.next_u64();
        let queue = self.queue(entry);
        let evicted = self.entries[entry.0 as usize].buffer;
        if let Some(old) = evicted {
            self.binding[old.0 as usize] = None;
            match queue {
                Some(Queue::Priority) => self.counters.evicted_unsent += 1,
                _ => self.counters.evicted_sent += 1,
            }
        }
        self.queues.remove(entry.0);
        self.loads += 1;
        let slot = &mut self.entries[entry.0 as usize];
        let generation = match slot.generation.wrapping_add(1) {
            0 => 1,
            generation => generation,
        };
        *slot = Entry { buffer: Some(buffer), state, generation, loaded: self.loads };
        self.binding[buffer.0 as usize] = Some(entry);
        Some(Bound { entry, generation, evicted })
    }

    fn settle(&mut self, entry: EntryId, queue: Queue) {
        self.entries[entry.0 as usize].state = EntryState::HostBound;
        self.queues.push(queue as usize, entry.0);
    }

    fn unbind(&mut self, entry: EntryId) {
        let slot = &mut self.entries[entry.0 as usize];
        if let Some(buffer) = slot.buffer.take() {
            self.binding[buffer.0 as usize] = None;
        }
        slot.state = EntryState::HostUnbound;
        self.queues.push(Queue::Unbound as usize, entry.0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const B: [BufferId; 6] =
        [BufferId(0), BufferId(1), BufferId(2), BufferId(3), BufferId(4), BufferId(5)];

    fn received(pcache: &mut Pcache, buffer: BufferId) -> Bound {
        let bound = pcache.pc_receive_bind(buffer).unwrap().unwrap();
        pcache.pc_receive_complete(buffer, true).unwrap();
        bound
    }

    /// Section 4.1: unbound, victim, priority; and within them the one that came last.
    #[test]
    fn the_order_of_eviction() {
        let mut pcache = Pcache::new(4, 6, Order::Mru);
        for buffer in &B[..4] {
            assert_eq!(received(&mut pcache, *buffer).evicted, None);
        }
        // All are received and not sent: the last one goes.
        assert_eq!(pcache.next_evicted(), Some(Some(B[3])));
        pcache.pc_send_bind(B[0]).unwrap();
        pcache.pc_send_complete(B[0]).unwrap();
        assert_eq!(pcache.next_evicted(), Some(Some(B[0])), "what was sent goes first");
        pcache.pc_advise(B[1], Advice::Demote);
        assert_eq!(pcache.next_evicted(), Some(Some(B[1])), "what will not be sent goes before");
        pcache.pc_invalidate_binding(B[2]);
        assert_eq!(pcache.next_evicted(), Some(None), "what is free goes first of all");
        pcache.pc_advise(B[1], Advice::Promote);
        let order: Vec<_> = [B[4], B[5], B[2], B[1]]
            .map(|buffer| pcache.pc_receive_bind(buffer).unwrap().map(|bound| bound.evicted))
            .into();
        assert_eq!(order, [Some(None), Some(Some(B[0])), Some(Some(B[1])), Some(Some(B[3]))]);
        assert_eq!(pcache.pc_receive_bind(B[0]), Ok(None), "all are pending");
        assert_eq!(pcache.pc_receive_bind(B[4]), Err(BindError::Pending(B[4])));
        assert_eq!(pcache.pc_send_bind(B[0]), Ok(SendBind::Uncached));
    }

    #[test]
    fn orders_within_a_queue() {
        for (order, expected) in [(Order::Mru, 0), (Order::Lru, 1), (Order::Fifo, 0)] {
            let mut pcache = Pcache::new(3, 6, order);
            for buffer in [B[0], B[1], B[2]] {
                received(&mut pcache, buffer);
            }
            // The one that was loaded first is the one that was used last.
            for buffer in [B[1], B[2], B[0]] {
                pcache.pc_send_bind(buffer).unwrap();
                pcache.pc_send_complete(buffer).unwrap();
            }
            assert_eq!(pcache.next_evicted(), Some(Some(B[expected])), "{order:?}");
        }
    }

    #[test]
    fn a_random_choice_is_foretold_and_is_another_one_each_time() {
        let mut pcache = Pcache::new(4, 6, Order::Random);
        for buffer in &B[..4] {
            received(&mut pcache, *buffer);
        }
        let (mut held, mut chosen) = (B[..4].to_vec(), Vec::new());
        for _ in 0..32 {
            let foretold = pcache.next_evicted().unwrap();
            assert_eq!(pcache.next_evicted(), Some(foretold));
            let new = B.into_iter().find(|buffer| !held.contains(buffer)).unwrap();
            let bound = received(&mut pcache, new);
            assert_eq!(bound.evicted, foretold);
            held.retain(|buffer| Some(*buffer) != foretold);
            held.push(new);
            chosen.push(bound.entry.0);
        }
        for entry in 0..4 {
            assert!(chosen.contains(&entry), "{chosen:?}");
        }
    }

    /// Section 3: further sends of the same buffer hit, and the entry is pending until the last of
    /// them is complete.
    #[test]
    fn a_multicast() {
        let mut pcache = Pcache::new(1, 6, Order::Mru);
        let SendBind::Miss(first) = pcache.pc_send_bind(B[0]).unwrap() else {
            panic!("nothing was there")
        };
        for _ in 0..5 {
            assert_eq!(
                pcache.pc_send_bind(B[0]),
                Ok(SendBind::Hit(Bound { evicted: None, ..first }))
            );
        }
        for left in (0..6).rev() {
            assert_eq!(pcache.next_evicted(), None);
            pcache.pc_send_complete(B[0]).unwrap();
            assert_eq!(pcache.queue(first.entry).is_some(), left == 0);
        }
        assert_eq!(pcache.pc_send_complete(B[0]), Err(BindError::NotPending(B[0])));
        assert_eq!((pcache.counters().hits, pcache.counters().misses), (5, 1));
    }

    #[test]
    fn a_change_while_sends_are_pending() {
        let mut pcache = Pcache::new(2, 6, Order::Mru);
        received(&mut pcache, B[0]);
        pcache.pc_send_bind(B[0]).unwrap();
        pcache.pc_invalidate_binding(B[0]);
        assert_eq!(pcache.pc_send_bind(B[0]), Ok(SendBind::Uncached));
        assert_eq!(pcache.cached(B[0]), None);
        pcache.pc_send_complete(B[0]).unwrap();
        assert!(matches!(pcache.pc_send_bind(B[0]), Ok(SendBind::Miss(_))));
    }

    /// A card does not look at generation 0.
    #[test]
    fn generations_begin_anew_without_0() {
        let mut pcache = Pcache::new(1, 6, Order::Mru);
        let generations = (0..70_000u32).map(|_| received(&mut pcache, B[0]).generation);
        assert!(generations.enumerate().all(|(number, generation)| {
            usize::from(generation) == 1 + number % usize::from(u16::MAX)
        }));
    }

    #[derive(Clone, Copy, Debug)]
    enum Call {
        ReceiveBind(u32),
        ReceiveComplete(u32, bool),
        SendBind(u32),
        SendComplete(u32),
        Invalidate(u32),
        Advise(u32, bool),
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let call = (0u32..8, 0u8..6, any::<bool>()).prop_map(|(buffer, call, flag)| match call {
            0 => Call::ReceiveBind(buffer),
            1 => Call::ReceiveComplete(buffer, flag),
            2 => Call::SendBind(buffer),
            3 => Call::SendComplete(buffer),
            4 => Call::Invalidate(buffer),
            _ => Call::Advise(buffer, flag),
        });
        proptest::collection::vec(call, 0..200)
    }

    proptest! {
        /// F3: an entry is in one state and one queue, what is pending in none and never evicted;
        /// and whatever hits has the bytes that were loaded last for the buffer.
        #[test]
        fn one_state_one_queue(
            calls in calls(),
            order in prop_oneof![Just(Order::Mru), Just(Order::Lru), Just(Order::Fifo),
                Just(Order::Random)],
        ) {
            let mut pcache = Pcache::new(4, 8, order);
            // By buffer: sends that are pending, and a receive.
            let mut pending = BTreeMap::<u32, (u32, bool)>::new();
            // What each buffer has: so often it was received into or changed.
            let mut has = [0u32; 8];
            // What the card has in each entry: of which buffer, as of when, by which load.
            let mut card = BTreeMap::<u32, (u32, u32, u16)>::new();
            for call in calls {
                let mut bound = None;
                match call {
                    Call::ReceiveBind(buffer) => {
                        let is_pending = pending
                            .get(&buffer)
                            .is_some_and(|(sends, receives)| *sends > 0 || *receives);
                        match pcache.pc_receive_bind(BufferId(buffer)) {
                            Ok(Some(made)) => {
                                prop_assert!(!is_pending);
                                pending.entry(buffer).or_default().1 = true;
                                bound = Some(made);
                                has[buffer as usize] += 1;
                            }
                            Ok(None) => prop_assert!(
                                pending
                                    .values()
                                    .filter(|(sends, receives)| *sends > 0 || *receives)
                                    .count()
                                    >= 4
                            ),
                            Err(_) => prop_assert!(is_pending),
                        }
                    }
                    Call::ReceiveComplete(buffer, is_cacheable) => {
                        let is_pending =
                            pending.get(&buffer).is_some_and(|(_, receives)| *receives);
                        prop_assert_eq!(
                            pcache.pc_receive_complete(BufferId(buffer), is_cacheable).is_ok(),
                            is_pending
                        );
                        if is_pending && !is_cacheable {
                            card.retain(|_, (of, ..)| *of != buffer);
                        }
                        if let Some(pending) = pending.get_mut(&buffer) {
                            pending.1 = false;
                        }
                    }
                    Call::SendBind(buffer) => match pcache.pc_send_bind(BufferId(buffer)) {
                        Ok(SendBind::Hit(hit)) => {
                            let wanted = (buffer, has[buffer as usize], hit.generation);
                            prop_assert_eq!(card.get(&hit.entry.0), Some(&wanted));
                            pending.entry(buffer).or_default().0 += 1;
                        }
                        Ok(SendBind::Miss(made)) => {
                            pending.entry(buffer).or_default().0 += 1;
                            bound = Some(made);
                        }
                        Ok(SendBind::Uncached) => {}
                        Err(_) => prop_assert!(pending[&buffer].1),
                    },
                    Call::SendComplete(buffer) => {
                        let sends = pending.get(&buffer).map_or(0, |(sends, _)| *sends);
                        prop_assert_eq!(
                            pcache.pc_send_complete(BufferId(buffer)).is_ok(),
                            sends > 0
                        );
                        if sends > 0 {
                            pending.get_mut(&buffer).unwrap().0 -= 1;
                        }
                    }
                    Call::Invalidate(buffer) => {
                        pcache.pc_invalidate_binding(BufferId(buffer));
                        let is_receiving =
                            pending.get(&buffer).is_some_and(|(_, receives)| *receives);
                        prop_assert!(is_receiving || pcache.cached(BufferId(buffer)).is_none());
                        // What a receive brings is what it has afterwards.
                        has[buffer as usize] += u32::from(!is_receiving);
                    }
                    Call::Advise(buffer, promote) => {
                        pcache.pc_advise(
                            BufferId(buffer),
                            if promote { Advice::Promote } else { Advice::Demote },
                        );
                    }
                }
                if let (
                    Some(Bound { entry, generation, .. }),
                    Call::ReceiveBind(buffer) | Call::SendBind(buffer),
                ) = (bound, call)
                {
                    let loaded = (buffer, has[buffer as usize], generation);
                    let before = card.insert(entry.0, loaded).map(|(.., generation)| generation);
                    prop_assert!(generation != 0 && before != Some(generation));
                }
                if let Some(Bound { evicted: Some(evicted), .. }) = bound {
                    let (sends, receives) = pending.get(&evicted.0).copied().unwrap_or_default();
                    prop_assert!(sends == 0 && !receives, "{evicted:?} was pending");
                    prop_assert_eq!(pcache.binding_of(evicted), None);
                }
                let mut queued = 0;
                for entry in (0..4).map(EntryId) {
                    let (state, queue) = (pcache.state(entry), pcache.queue(entry));
                    queued += u32::from(queue.is_some());
                    let buffer = (0..8)
                        .map(BufferId)
                        .filter(|buffer| pcache.binding_of(*buffer) == Some(entry))
                        .collect::<Vec<_>>();
                    match state {
                        EntryState::HostUnbound => {
                            prop_assert_eq!((queue, buffer.len()), (Some(Queue::Unbound), 0));
                        }
                        EntryState::HostBound => prop_assert!(queue.is_some() && buffer.len() == 1),
                        EntryState::ReceiveBound | EntryState::SendBound { .. } => {
                            prop_assert!(queue.is_none() && buffer.len() == 1);
                            let (sends, receives) = pending[&buffer[0].0];
                            let is_counted = match state {
                                EntryState::SendBound { sends: counted, .. } => {
                                    counted == sends && sends > 0
                                }
                                _ => receives,
                            };
                            prop_assert!(is_counted, "{state:?} {sends} {receives}");
                        }
                    }
                }
                prop_assert_eq!(
                    queued,
                    QUEUES.into_iter().map(|queue| pcache.len(queue)).sum::<u32>()
                );
            }
        }
    }
}
