//! Card memory as a cache of replies: key → entry, coherence, eviction and pinning.
//!
//! An entry that is purged or evicted leaves the index at once, and its memory when the last reply that was begun from it
//! has been acknowledged (I2). Whether an entry may be served is decided by one load of the epoch; only when that moved
//! since the entry was last looked at are the stamps of its sources compared.

mod agreement;
mod ahead;
mod costumes;
mod credit;
mod distrust;
mod entry;
mod insert;
mod learned;
mod reinstate;
mod remembered;
mod seen;
mod splits;
mod uses;
mod vary;
mod who;
mod worth;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use nicache_coherence::{Epoch, RecordNumber, RevisionTable, Rule, SourceSlot, Stamp};
use nicache_http::{ClientClass, Header, Key, KeyConfig, Trait, UriKey, class_key, dressed, vary_key};
use nicache_memory::{BodyId, CardMemory};
use nicache_policy::{Admission, Incoming, Policy, Removal};
use nicache_tcp::Time;

pub use agreement::Execution;
pub use ahead::LOOK_AHEAD;
pub use entry::{Entry, EntryId, EntryState};
pub use insert::{Inserted, NewEntry, NotInserted};
pub use learned::{Learned, LearnedParts, Validators};
pub use seen::Traits;
pub use uses::{MostUsed, Used};
pub use vary::VaryRules;
pub use who::{Executor, Who};

use self::agreement::Candidates;
use self::costumes::Costumes;
use self::distrust::Distrust;
use self::reinstate::{Standing, Suspects};
use self::splits::Splits;
use self::worth::Worth;
use crate::cache_counters::CacheCounters;
use crate::cache_limits::OBJECT_SHARE;
use crate::recheck::{Recheck, seed};

/// What the index says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An entry that is valid now.
    Entry(EntryId),
    /// One that may not be served until the watcher has looked at it again.
    Suspect,
    /// One that may not be served until the server has said the same again.
    Lapsed,
    /// Nothing (any more).
    Absent,
}

/// Hits of one entry that the policy is told of at a time.
const TOLD_MAX: u32 = 64;

struct Place {
    generation: u32,
    entry: Option<Entry>,
}

/// Cache of replies in card memory.
pub struct Store {
    memory: CardMemory,
    policy: Box<dyn Policy>,
    revisions: Arc<RevisionTable>,
    places: Box<[Place]>,
    free: Vec<u32>,
    index: HashTable<u32>,
    suspects: Suspects,
    candidates: Candidates,
    distrust: Distrust,
    splits: Splits,
    costumes: Costumes,
    /// Requests of the card that were dressed.
    dressed: u64,
    worth: Worth,
    /// When an entry was last looked for.
    now: Time,
    unsafe_requests: u64,
    revocations: u64,
    /// The next place to be looked at ahead of visitors.
    looked_at: u32,
    /// Places that have ever been taken: these are the first ones.
    places_used: u32,
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
    ) -> Store {
        Store {
            memory,
            policy,
            revisions,
            places: (0..entries_max).map(|_| Place { generation: 0, entry: None }).collect(),
            free: (0..entries_max as u32).rev().collect(),
            index: HashTable::with_capacity(entries_max),
            suspects: Suspects::new(),
            candidates: Candidates::new(),
            distrust: Distrust::new(),
            splits: Splits::new(),
            costumes: Costumes::new(),
            dressed: 0,
            worth: Worth::new(),
            now: Time(0),
            unsafe_requests: 0,
            looked_at: 0,
            places_used: 0,
            revocations: 0,
            vary: VaryRules::new(),
        }
    }

    /// A request that may change something (RFC 9110 section 9.2.1) goes to the server, or has been answered. What it changes in a
    /// database or a file is seen; what it changes in a program's own memory is not. So a dynamic entry that rests on no database lapses.
    pub fn note_unsafe_request(&mut self) {
        self.unsafe_requests += 1;
        self.revocations += 1;
    }

    /// A request has changed the resource (RFC 9111 section 4.4).
    pub fn note_change_by_request(&self, resource: UriKey) {
        self.revisions.record_change(source_of(resource));
    }

    /// Nothing that was published before may be given any more.
    pub fn revoke_published(&mut self) {
        self.revocations += 1;
    }

    /// Moves whenever a reply that was [published](Store::pin_published) may not be given any more, but for changes of its sources and its time.
    pub fn revocations(&self) -> u64 {
        self.revocations.wrapping_add(self.vary.changes()).wrapping_add(self.splits.changes())
    }

    /// Beginnings and ends of such requests so far.
    pub fn unsafe_requests(&self) -> u64 {
        self.unsafe_requests
    }

    /// The revision table that entries are checked against.
    pub fn revisions(&self) -> &RevisionTable {
        &self.revisions
    }

    /// Another table from now on, if nothing is stored. False: something is, and its stamps are of this one.
    pub(crate) fn begin_watched(&mut self, revisions: Arc<RevisionTable>) -> bool {
        let is_empty = self.places.iter().all(|place| place.entry.is_none());
        if is_empty {
            self.revisions = revisions;
        }
        is_empty
    }

    /// The memory behind the entries.
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
        entries.fold((0, 0), |(taken, pinned), entry| (taken + 1, pinned + usize::from(entry.pins > 0)))
    }

    /// Is nothing stored?
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The policy in force.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The key of a request, by that which it would have if the server gave everybody the same.
    #[inline]
    pub fn key_of(&self, base: &Key, headers: &[Header<'_>], class: ClientClass, keys: &KeyConfig) -> Key {
        let key = match self.vary.names(base) {
            None => *base,
            Some(names) => vary_key(*base, names, headers, keys),
        };
        self.key_of_class(base, key, class, keys)
    }

    /// Likewise, by the key that `Vary` leads to.
    #[inline]
    pub fn key_of_class(&self, base: &Key, key: Key, class: ClientClass, keys: &KeyConfig) -> Key {
        let traits = self.splits.of(base);
        if traits.is_empty() { key } else { class_key(key, class, |of| traits.has(of), keys) }
    }

    /// Are there variants of the page?
    #[inline]
    pub fn has_variants(&self, base: &Key) -> bool {
        self.vary.names(base).is_some() || !self.splits.of(base).is_empty()
    }

    /// In which traits clients are told apart for a page, though the server does not say so.
    pub fn traits_of(&self, base: &Key) -> Traits {
        self.splits.of(base)
    }

    /// Do others get another page than this client because of the proxy that he comes through, and the card does not? Then its own requests say nothing.
    pub fn is_of_proxy_alone(&self, base: &Key, by: &Who) -> bool {
        by.is_beyond && self.splits.of(base).has(Trait::Proxy)
    }

    /// Has the server given the entry's answer to a client of this class?
    #[inline]
    pub fn answers(&self, id: EntryId, class: ClientClass, now: Time) -> bool {
        self.get(id).is_some_and(|entry| entry.age.answers(class, now))
    }

    /// Is there an entry, maybe one that may not be served now, with the answer that a client of this class got?
    pub fn may_answer(&self, key: &Key, class: ClientClass, now: Time) -> bool {
        self.name_of(key).is_none_or(|id| self.answers(id, class, now))
    }

    /// The entry that has this key, whether it may be served or not.
    pub fn view(&self, key: &Key) -> Option<&Entry> {
        self.name_of(key).and_then(|id| self.get(id))
    }

    /// The server has given a client of this class, to whom the entry was an answer, one that is kept for nobody.
    pub fn refute(&mut self, key: &Key, class: ClientClass) {
        let entry = self.name_of(key).and_then(|id| self.get_mut(id));
        if let Some(entry) = entry.filter(|entry| entry.age.seen.missing(class).is_empty()) {
            if !entry.age.seen.refute(class) {
                entry.standing = Standing::Lapsed;
            }
            let was_published = entry.is_published;
            self.revocations += u64::from(was_published);
        }
    }

    /// A client of this class has sent a request with this head.
    pub fn note_costume(&mut self, class: ClientClass, head: &[u8]) {
        self.costumes.note(class, head);
    }

    /// The valid entry for a key. `epoch` must have been read after the request came in.
    #[inline]
    pub fn find(&mut self, key: &Key, epoch: Epoch, now: Time, counters: &mut CacheCounters) -> Found {
        let places = &self.places;
        let Some(&index) = self
            .index
            .find(key.low_u64(), |&index| places[index as usize].entry.as_ref().is_some_and(|entry| entry.key == *key))
        else {
            return Found::Absent;
        };
        let place = &places[index as usize];
        let id = EntryId { index, generation: place.generation };
        let Some(entry) = place.entry.as_ref() else {
            return Found::Absent;
        };
        if self.is_over(entry, now) {
            return Found::Lapsed;
        }
        if entry.checked == epoch && entry.standing == Standing::Good {
            return Found::Entry(id);
        }
        self.now = now;
        self.find_again(id, epoch, counters)
    }

    /// Is it too old, or may a request have changed what a program has in its memory?
    #[inline]
    fn is_over(&self, entry: &Entry, now: Time) -> bool {
        now >= entry.age.expires
            || entry.unsafe_requests != self.unsafe_requests && entry.is_dynamic() && entry.rests_on_memory()
    }

    /// An entry that was not looked at in this epoch.
    fn find_again(&mut self, id: EntryId, epoch: Epoch, counters: &mut CacheCounters) -> Found {
        let Some(entry) = self.get(id) else { return Found::Absent };
        if entry.standing != Standing::Lapsed && self.has_changed_by_request(entry) {
            self.purge(id, counters);
            return if self.get(id).is_some_and(|entry| !entry.dead) { Found::Lapsed } else { Found::Absent };
        }
        match entry.standing {
            Standing::Good => {}
            Standing::Lapsed => return Found::Lapsed,
            Standing::Suspect | Standing::Asked(_) => return Found::Suspect,
        }
        if self.revisions.is_unchanged(entry.sources.as_slice(), entry.stamp) {
            if let Some(entry) = self.get_mut(id) {
                entry.checked = epoch;
            }
            return Found::Entry(id);
        }
        if self.suspect(id) {
            return Found::Suspect;
        }
        self.purge(id, counters);
        if self.get(id).is_some_and(|entry| entry.standing == Standing::Lapsed) { Found::Lapsed } else { Found::Absent }
    }

    /// Has a request changed the resource (RFC 9111 section 4.4) since the server was asked for it?
    fn has_changed_by_request(&self, entry: &Entry) -> bool {
        self.revisions.stamp_of(entry.resource) >= entry.forwarded
    }

    /// The entry of that name, unless it is gone. Valid for replies that pinned it, even when purged.
    #[inline]
    pub fn get(&self, id: EntryId) -> Option<&Entry> {
        let place = self.places.get(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        place.entry.as_ref()
    }

    fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        let place = self.places.get_mut(id.index as usize)?;
        if place.generation != id.generation {
            return None;
        }
        place.entry.as_mut()
    }

    /// Tells the policy of a hit and keeps the entry's bytes until [`Store::unpin`].
    #[inline]
    pub fn pin_for_hit(&mut self, id: EntryId) {
        if let Some(entry) = self.get_mut(id) {
            entry.pins += 1;
            entry.hits = entry.hits.saturating_add(1);
            entry.uses = entry.uses.wrapping_add(1);
            entry.age.credit.note_hits(1);
            let key = policy_key(&entry.key);
            self.policy.handle_hit(key);
        }
    }

    /// Keeps the entry's bytes until [`Store::unpin`].
    pub fn pin(&mut self, id: EntryId) {
        if let Some(entry) = self.get_mut(id) {
            entry.pins += 1;
        }
    }

    /// Likewise, as its reply is given by somebody else: its end counts as a revocation.
    pub fn pin_published(&mut self, id: EntryId) {
        if let Some(entry) = self.get_mut(id) {
            entry.pins += 1;
            entry.is_published = true;
        }
    }

    /// Tells the policy of hits that somebody else has answered; whether they were of a computed reply.
    pub fn note_hits(&mut self, id: EntryId, hits: u64) -> bool {
        let Some(entry) = self.get_mut(id) else { return false };
        let hits = hits.min(u64::from(u32::MAX)) as u32;
        entry.hits = entry.hits.saturating_add(hits);
        entry.uses = entry.uses.wrapping_add(hits);
        entry.age.credit.note_hits(hits);
        let (key, is_dynamic, is_dead) = (policy_key(&entry.key), entry.is_dynamic(), entry.dead);
        if !is_dead {
            for _ in 0..hits.min(TOLD_MAX) {
                self.policy.handle_hit(key);
            }
        }
        is_dynamic
    }

    /// Until when the entry may be given without a look at it.
    pub fn fresh_until(&self, id: EntryId) -> Option<Time> {
        let age = &self.get(id)?.age;
        Some(if age.recheck.is_some() { age.expires.min(age.recheck_at) } else { age.expires })
    }

    /// A reply no longer needs the entry's bytes.
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
        self.policy.handle_reply(policy_key(key), CardMemory::occupied_bytes(len)) == Admission::Admit
    }

    /// Tells the policy that an admitted reply did not become an entry.
    pub fn refused(&mut self, key: &Key) {
        self.policy.handle_remove(policy_key(key), Removal::Refused);
    }

    /// Room for a body of `len` bytes, evicting as the policy says.
    pub fn allocate(&mut self, key: &Key, len: u64, counters: &mut CacheCounters) -> Option<BodyId> {
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

    /// The entry for a key whose bytes the server has said, to a client of that class, to a request that was forwarded after `since`, current or not: what it may say to somebody who
    /// has waited since then.
    pub fn said_since(&self, key: &Key, class: ClientClass, since: Time) -> Option<EntryId> {
        let id = self.name_of(key)?;
        let is_said =
            |entry: &&Entry| entry.said > since && entry.age.answers(class, entry.said) || !Rule::Shared.holds();
        self.get(id).filter(|entry| entry.is_dynamic()).filter(is_said).map(|_| id)
    }

    /// What the watcher is to be asked about an earlier reply with this key, beside the new one.
    pub fn previous(&self, key: &Key) -> Option<(RecordNumber, Stamp)> {
        let entry = self.name_of(key).and_then(|id| self.get(id)).filter(|entry| entry.is_dynamic());
        entry.map(|entry| (entry.record, entry.stamp)).or_else(|| self.candidates.previous(key))
    }

    /// How long the server usually needs for a computed page: the least of the last few times, as far as that can be said. `None` for what is not known
    /// to be computed.
    pub fn usual(&self, key: &Key) -> Option<Duration> {
        let entry = self.name_of(key).and_then(|id| self.get(id)).filter(|entry| entry.is_dynamic());
        entry.map(|entry| entry.age.usual).or_else(|| self.candidates.usual(key))
    }

    /// The server is about to be asked for a page by somebody. Is the card to ask for it, too, so that there are two replies to compare? Then it does: the
    /// page pays for it. Not for one that is merely old: one reply renews it.
    pub fn take_second(&mut self, key: &Key, by: &Who) -> bool {
        let id = self.name_of(key);
        let dynamic = id.and_then(|id| self.get_mut(id)).filter(|entry| entry.is_dynamic());
        match dynamic {
            Some(entry) => {
                entry.age.credit.note_execution();
                // The last one is for the next time that nobody is there to ask: as long as the page is the same, one reply renews it.
                entry.standing == Standing::Lapsed && entry.age.credit.is_ample() && entry.age.credit.spend(false)
            }
            None => self.candidates.take_second(key, by),
        }
    }

    /// Had the page an entry not long ago?
    pub fn was_popular(&self, key: &Key) -> bool {
        self.candidates.is_popular(key)
    }

    /// Is it a page whose executions differ although nothing has changed, or one that is purged before it is used?
    pub fn is_left_alone(&self, key: &Key, now: Time) -> Option<LeftAlone> {
        if self.candidates.is_left_alone(key, now) {
            return Some(LeftAlone::Differs);
        }
        self.worth.is_left_alone(key, now).then_some(LeftAlone::NotWorth)
    }

    /// Until when a page is left alone; may be over.
    pub fn left_alone_until(&self, key: &Key) -> Option<Time> {
        self.candidates.left_alone_until(key).max(self.worth.left_alone_until(key))
    }

    /// All entries that can be found.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.places.iter().filter_map(|place| place.entry.as_ref()).filter(|entry| !entry.dead)
    }

    /// May the entry be served?
    pub fn state_of(&self, entry: &Entry, now: Time) -> EntryState {
        match entry.standing {
            _ if self.is_over(entry, now) => EntryState::Lapsed,
            Standing::Lapsed => EntryState::Lapsed,
            _ if self.has_changed_by_request(entry) => EntryState::Lapsed,
            Standing::Suspect | Standing::Asked(_) => EntryState::Suspect,
            Standing::Good if self.revisions.is_unchanged(entry.sources.as_slice(), entry.stamp) => EntryState::Good,
            Standing::Good => EntryState::Suspect,
        }
    }

    /// The server was asked for a page that had an entry not long ago, and again something had changed meanwhile. It was worth it if
    /// others who had waited have got the last reply of this kind.
    pub fn note_wasted(&mut self, key: &Key, now: Time, counters: &mut CacheCounters) {
        let lapsed = self
            .name_of(key)
            .and_then(|id| self.get_mut(id))
            .filter(|entry| entry.standing == Standing::Lapsed)
            .map(|entry| std::mem::take(&mut entry.hits));
        let is_put_aside = match lapsed {
            Some(hits) if hits > 0 => self.worth.note_purge(key, hits, now),
            None if !self.candidates.is_popular(key) => false,
            _ => self.worth.note_try(key, now),
        };
        counters.put_aside += u64::from(is_put_aside);
    }

    /// Somebody asks for a part of an entry that has lapsed, or on a condition: what the server answers to that renews nothing. The request by which the
    /// card has it said again, if the page pays for it.
    pub fn revive(&mut self, key: &Key, now: Time) -> Option<Recheck> {
        let id = self.name_of(key)?;
        let age = &mut self.get_mut(id)?.age;
        age.credit.note_execution();
        if age.is_awaited(now) || age.recheck.is_none() || !age.credit.spend(false) {
            return None;
        }
        age.asked = Some(now);
        self.dressed_recheck(id, now)
    }

    /// The request by which the server is to be asked again, if it is time to, as the entry answers somebody.
    #[inline]
    pub fn recheck_due(&mut self, id: EntryId, now: Time) -> Option<Recheck> {
        let age = &mut self.get_mut(id)?.age;
        if !age.is_recheck_due(now) || !age.credit.spend(false) {
            return None;
        }
        age.asked = Some(now);
        self.dressed_recheck(id, now)
    }

    /// The card's own request for an entry, as a client of the classes that were asked for longest ago.
    fn dressed_recheck(&mut self, id: EntryId, now: Time) -> Option<Recheck> {
        let entry = self.get_mut(id)?;
        let (key, class) = (entry.key, entry.age.take_turn(now)?);
        self.dressed += 1;
        let lines = self.costumes.of(class);
        let bare = self.get(id)?.age.recheck.as_ref()?;
        let head = dressed(&bare.head, &lines, seed(&key, self.dressed));
        Some(Recheck { head, ..*bare })
    }

    /// The server's other replies for an entry, to add one.
    pub fn learned_mut(&mut self, id: EntryId) -> Option<&mut Learned> {
        self.get_mut(id).map(|entry| &mut entry.learned)
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

    /// Takes every entry out of the index that `chosen` says; returns how many.
    pub fn remove_where(&mut self, chosen: impl Fn(&Entry) -> bool) -> usize {
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

    fn name_of(&self, key: &Key) -> Option<EntryId> {
        let places = &self.places;
        self.index
            .find(key.low_u64(), |&index| places[index as usize].entry.as_ref().is_some_and(|entry| entry.key == *key))
            .map(|&index| EntryId { index, generation: places[index as usize].generation })
    }

    /// Evicts one entry; false if the policy names none.
    fn evict(&mut self, incoming: Incoming, counters: &mut CacheCounters) -> bool {
        let Some(victim) = self.policy.poll_victim(Some(incoming)) else { return false };
        let places = &self.places;
        let found = self.index.find(victim.0, |&index| {
            places[index as usize].entry.as_ref().is_some_and(|entry| policy_key(&entry.key) == victim)
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

    fn free_place(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        if let Some(entry) = place.entry.take() {
            place.generation = place.generation.wrapping_add(1);
            self.release(entry.body);
            self.free.push(index);
        }
    }
}

/// Why a page is left to the server for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftAlone {
    /// Its executions differ although nothing has changed.
    Differs,
    /// Its entries are purged before they are used.
    NotWorth,
}

/// The source that a resource is.
pub(crate) fn source_of(uri: UriKey) -> SourceSlot {
    SourceSlot::of_hash(uri.hash())
}

fn policy_key(key: &Key) -> nicache_policy::Key {
    nicache_policy::Key(key.low_u64())
}
