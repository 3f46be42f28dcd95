//! The entries by their keys: places, pins, the policy's say, and the memory behind them.

use std::sync::Arc;

use hashbrown::HashTable;
use nicache_coherence::{RevisionTable, SourceSlot};
use nicache_http::{Key, UriKey};
use nicache_memory::{BodyId, CardMemory};
use nicache_policy::{Admission, Incoming, Policy, Removal};
use nicache_tcp::Time;

use super::agreement::Candidates;
use super::class_headers::ClassHeaders;
use super::credit::{Allowance, Common};
use super::distrust::Distrust;
use super::entry::{Entry, EntryId};
use super::pace::Pace;
use super::purges::Purges;
use super::site_classes::Sites;
use super::splits::Splits;
use super::suspects::Suspects;
use super::vary::VaryRules;
use super::worth::Worth;
use crate::counters::Counters;
use crate::limits::{OBJECT_SHARE, SECONDS_MAX};
use crate::recheck::Recheck;

/// Hits of one entry that the policy is told of at a time.
const TOLD_MAX: u32 = 64;

pub(super) struct Place {
    pub(super) generation: u32,
    pub(super) entry: Option<Entry>,
}

/// The entry at this place, while the rest of the store is in use.
pub(super) fn entry_in(places: &mut [Place], id: EntryId) -> Option<&mut Entry> {
    let place = places.get_mut(id.index as usize)?;
    if place.generation != id.generation {
        return None;
    }
    place.entry.as_mut()
}

/// Cache of replies in card memory.
pub struct Store {
    pub(super) memory: CardMemory,
    pub(super) policy: Box<dyn Policy>,
    pub(super) revisions: Arc<RevisionTable>,
    pub(super) places: Box<[Place]>,
    pub(super) free: Vec<u32>,
    pub(super) index: HashTable<u32>,
    pub(super) suspects: Suspects,
    pub(super) purges: Purges,
    pub(super) candidates: Candidates,
    pub(super) distrust: Distrust,
    pub(super) splits: Splits,
    pub(super) class_headers: ClassHeaders,
    pub(super) site_classes: Sites,
    /// What pages have saved that did not need it themselves.
    pub(super) common: Common,
    /// What the card may ask the server for, over all pages.
    pub(super) allowance: Allowance,
    /// How often somebody comes to a dynamic page.
    pub(super) pace: Pace,
    /// Requests of the card as one of the classes.
    pub(super) asked_as_class: u64,
    /// See [`Store::poll_second`].
    pub(super) seconds: Vec<Recheck>,
    pub(super) worth: Worth,
    /// When an entry was last looked for.
    pub(super) now: Time,
    pub(super) revocations: u64,
    /// The next place to be looked at ahead of visitors.
    pub(super) looked_at: u32,
    /// Places that have ever been taken: these are the first ones.
    pub(super) places_used: u32,
    /// Which headers select among the variants of a key.
    pub vary: VaryRules,
}

impl Store {
    /// A store of at most `entries_max` entries over `memory`.
    pub fn new(
        memory: CardMemory,
        policy: Box<dyn Policy>,
        revisions: Arc<RevisionTable>,
        entries_max: usize,
    ) -> Self {
        Self {
            memory,
            policy,
            revisions,
            places: (0..entries_max).map(|_| Place { generation: 0, entry: None }).collect(),
            free: (0..entries_max as u32).rev().collect(),
            index: HashTable::with_capacity(entries_max),
            suspects: Suspects::new(),
            purges: Purges::default(),
            candidates: Candidates::new(),
            distrust: Distrust::new(),
            splits: Splits::new(),
            class_headers: ClassHeaders::new(),
            site_classes: Sites::default(),
            common: Common::default(),
            allowance: Allowance::new(),
            pace: Pace::new(),
            asked_as_class: 0,
            seconds: Vec::with_capacity(SECONDS_MAX),
            worth: Worth::new(),
            now: Time(0),
            looked_at: 0,
            places_used: 0,
            revocations: 0,
            vary: VaryRules::new(),
        }
    }

    /// A request that may change something (RFC 9110 section 9.2.1) goes to the server, or has been
    /// answered. What it changes in a database or a file is seen; what it changes in a program's
    /// own memory is not. So a dynamic entry that rests on no database lapses, here and at all
    /// other cards of the server.
    pub fn note_unsafe_request(&mut self) {
        self.revisions.record_unsafe_request();
        self.revocations += 1;
    }

    /// A request has changed the resource (RFC 9111 section 4.4).
    pub fn note_change_by_request(&self, resource: UriKey) {
        self.revisions.record_change(source_of(resource));
    }

    /// Nothing that was published before may be given any longer.
    pub fn revoke_published(&mut self) {
        self.revocations += 1;
    }

    /// Moves whenever a reply that was [published](Store::pin_published) may not be given any
    /// longer, but for changes of its sources and its time.
    pub fn revocations(&self) -> u64 {
        self.revocations.wrapping_add(self.vary.changes()).wrapping_add(self.splits.changes())
    }

    /// Beginnings and ends of such requests so far, at all cards.
    pub fn unsafe_requests(&self) -> u64 {
        self.revisions.unsafe_requests()
    }

    /// The revision table that entries are checked against.
    #[inline]
    pub fn revisions(&self) -> &RevisionTable {
        &self.revisions
    }

    /// Another table from now on. Everything whose stamps are of the one before is forgotten; what
    /// is known of paths, clients and headers stays. Call without a fill under way.
    pub fn begin_watched(&mut self, revisions: Arc<RevisionTable>) {
        self.remove_where(|_| true);
        self.suspects = Suspects::new();
        self.purges = Purges::default();
        self.candidates = Candidates::new();
        self.revocations += 1;
        self.revisions = revisions;
    }

    /// The memory behind the entries.
    #[inline]
    pub fn memory(&self) -> &CardMemory {
        &self.memory
    }

    /// The memory behind the entries, to fill bodies.
    pub fn memory_mut(&mut self) -> &mut CardMemory {
        &mut self.memory
    }

    /// Bytes of card memory.
    pub fn capacity_bytes(&self) -> u64 {
        self.memory.used_bytes() + self.memory.free_bytes()
    }

    /// Bytes that one object may take.
    pub fn object_bytes_max(&self) -> u64 {
        self.capacity_bytes() / OBJECT_SHARE
    }

    /// Entries that can be found.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Places taken, and of these the ones that replies still need.
    pub fn in_use(&self) -> (usize, usize) {
        let entries = self.places.iter().filter_map(|place| place.entry.as_ref());
        entries.fold((0, 0), |(taken, pinned), entry| {
            (taken + 1, pinned + usize::from(entry.pins > 0))
        })
    }

    /// Is nothing stored?
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The policy in force.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The entry of that name, unless it is gone. Valid for replies that pinned it, even when
    /// purged.
    #[inline]
    pub fn get(&self, id: EntryId) -> Option<&Entry> {
        let place = self.places.get(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        place.entry.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        entry_in(&mut self.places, id)
    }

    /// Tells the policy of a hit and keeps the entry's bytes until [`Store::unpin`].
    #[inline]
    pub fn pin_for_hit(&mut self, id: EntryId) {
        if let Some(entry) = self.get_mut(id) {
            entry.pins += 1;
            entry.hits = entry.hits.saturating_add(1);
            entry.uses = entry.uses.wrapping_add(1);
            let (key, usual) = (policy_key(&entry.key), entry.age.usual);
            let rest = entry.age.credit.note_hits(1);
            self.common.give(rest, usual);
            self.allowance.note_hits(1);
            self.policy.handle_hit(key);
        }
    }

    /// Keeps the entry's bytes until [`Store::unpin`].
    pub fn pin(&mut self, id: EntryId) {
        if let Some(entry) = self.get_mut(id) {
            entry.pins += 1;
        }
    }

    /// Keeps the entry's bytes until [`Store::unpin`] while somebody else, such as L0, answers with
    /// its reply. Its end counts as a revocation.
    pub fn pin_published(&mut self, id: EntryId) {
        if let Some(entry) = self.get_mut(id) {
            entry.pins += 1;
            entry.is_published = true;
        }
    }

    /// Tells the policy of hits that somebody else has answered; whether they were of a dynamic
    /// reply.
    pub fn note_hits(&mut self, id: EntryId, hits: u64) -> bool {
        let Some(entry) = self.get_mut(id) else { return false };
        let hits = hits.min(u64::from(u32::MAX)) as u32;
        entry.hits = entry.hits.saturating_add(hits);
        entry.uses = entry.uses.wrapping_add(hits);
        let (rest, usual) = (entry.age.credit.note_hits(hits), entry.age.usual);
        let (key, is_dynamic, is_dead) = (policy_key(&entry.key), entry.is_dynamic(), entry.dead);
        self.common.give(rest, usual);
        self.allowance.note_hits(hits);
        if !is_dead {
            for _ in 0..hits.min(TOLD_MAX) {
                self.policy.handle_hit(key);
            }
        }
        is_dynamic
    }

    /// A reply no longer needs the entry's bytes.
    #[inline]
    pub fn unpin(&mut self, id: EntryId) {
        let Some(entry) = self.get_mut(id) else { return };
        entry.pins = entry.pins.saturating_sub(1);
        if entry.pins == 0 && entry.dead {
            self.free_place(id.index);
        }
    }

    /// Tells the policy of a miss: may the reply become an entry?
    pub fn admit(&mut self, key: &Key) -> bool {
        self.policy.handle_miss(policy_key(key), None) == Admission::Admit
    }

    /// Tells the policy how long the reply to a miss is: may it still become an entry?
    pub fn admit_reply(&mut self, key: &Key, len: u64) -> bool {
        self.policy.handle_reply(policy_key(key), CardMemory::occupied_bytes(len))
            == Admission::Admit
    }

    /// Tells the policy that an admitted reply did not become an entry.
    pub fn refused(&mut self, key: &Key) {
        self.policy.handle_remove(policy_key(key), Removal::Refused);
    }

    /// Room for a body of `len` bytes, evicting as the policy says.
    pub fn allocate(&mut self, key: &Key, len: u64, counters: &mut Counters) -> Option<BodyId> {
        let incoming = Incoming { key: policy_key(key), bytes: CardMemory::occupied_bytes(len) };
        loop {
            if let Ok(body) = self.memory.allocate(len) {
                return Some(body);
            }
            if !self.evict(incoming, counters) {
                return None;
            }
        }
    }

    /// Gives back the body of a fill that did not become an entry.
    pub fn release(&mut self, body: BodyId) {
        // Errors only for a body that is gone already.
        let _ = self.memory.release(body);
    }

    /// All entries that can be found.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().filter_map(|place| place.entry.as_ref()).filter(|entry| !entry.dead)
    }

    /// Takes an entry out of the index.
    pub fn remove(&mut self, id: EntryId, removal: Removal) {
        let Some(entry) = self.get(id) else { return };
        if entry.dead {
            return;
        }
        let key = entry.key;
        if let Ok(found) = self.index.find_entry(key.low_u64(), |&index| index == id.index) {
            found.remove();
        }
        self.policy.handle_remove(policy_key(&key), removal);
        let Some(entry) = self.get_mut(id) else { return };
        entry.dead = true;
        let was_published = entry.is_published;
        if entry.pins == 0 {
            self.free_place(id.index);
        }
        self.revocations += u64::from(was_published);
    }

    /// Purges what `chosen` says, also of replies that are on their way; returns how many entries
    /// there were.
    pub fn purge_where(&mut self, chosen: impl Fn(&Entry) -> bool + Send + 'static) -> usize {
        let removed = self.remove_where(&chosen);
        self.purges.note(self.revisions.advance_clock(), chosen);
        // Nor does an earlier reply speak for anybody, whichever page it was of.
        self.candidates.rest_on_nothing();
        removed
    }

    /// Takes every entry out of the index that `chosen` says; returns how many.
    pub(super) fn remove_where(&mut self, chosen: impl Fn(&Entry) -> bool) -> usize {
        let mut removed = 0;
        for index in 0..self.places.len() as u32 {
            let place = &self.places[index as usize];
            if place.entry.as_ref().is_some_and(|entry| !entry.dead && chosen(entry)) {
                let id = EntryId { index, generation: place.generation };
                self.remove(id, Removal::Purged);
                removed += 1;
            }
        }
        removed
    }

    /// The policy's period has ended.
    pub fn end_period(&mut self) {
        self.policy.handle_period_end();
    }

    pub(super) fn name_of(&self, key: &Key) -> Option<EntryId> {
        let places = &self.places;
        self.index
            .find(key.low_u64(), |&index| {
                places[index as usize].entry.as_ref().is_some_and(|entry| entry.key == *key)
            })
            .map(|&index| EntryId { index, generation: places[index as usize].generation })
    }

    /// Evicts one entry; false if the policy names none.
    pub(super) fn evict(&mut self, incoming: Incoming, counters: &mut Counters) -> bool {
        let Some(victim) = self.policy.poll_victim(Some(incoming)) else { return false };
        let places = &self.places;
        let found = self.index.find(victim.0, |&index| {
            places[index as usize]
                .entry
                .as_ref()
                .is_some_and(|entry| policy_key(&entry.key) == victim)
        });
        match found.map(|&index| EntryId { index, generation: places[index as usize].generation }) {
            Some(id) => {
                self.remove(id, Removal::Evicted);
                counters.evictions += 1;
            }
            // Two keys with the same 64 bits: the policy knew the other one.
            None => self.policy.handle_remove(victim, Removal::Evicted),
        }
        true
    }

    pub(super) fn free_place(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        if let Some(entry) = place.entry.take() {
            place.generation = place.generation.wrapping_add(1);
            self.release(entry.body);
            self.free.push(index);
        }
    }
}

/// The source that a resource is.
pub(crate) fn source_of(uri: UriKey) -> SourceSlot {
    SourceSlot::of_hash(uri.hash())
}

pub(super) fn policy_key(key: &Key) -> nicache_policy::Key {
    nicache_policy::Key(key.low_u64())
}
