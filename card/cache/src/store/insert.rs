//! A reply becomes an entry, or says that the entry is still right.
//!
//! One of class *static* becomes one at once; a dynamic one when another one agrees
//! ([`agreement`](super::agreement)). Either is served until a source changes, or until it is as
//! old as it has earned; then it has *lapsed*, and one more reply with equal bytes renews it. A
//! reply that is different although no source has changed takes back what the page has earned
//! ([`distrust`](super::distrust)).

use nicache_coherence::{Class, Epoch, RecordNumber, Rule, SourceSet, SourceSlot, Stamp};
use nicache_http::{Framing, HeadTemplate, Key};
use nicache_memory::{BodyId, CardMemory};
use nicache_policy::{Incoming, Removal};

use super::agreement::{Age, Basis, Execution, Opinion, Past, blamed};
use super::entry::{Entry, EntryId, EntryState};
use super::index::{Store, entry_in, policy_key};
use super::learned::Learned;
use super::seen::{Seen, Traits};
use super::standing::Standing;
use super::who::Executor;
use crate::counters::Counters;
use crate::digests::{Digests, Sameness};

/// Everything that goes into a new entry.
pub struct NewEntry {
    /// Under what it will be found.
    pub key: Key,
    /// The request target.
    pub target: Box<[u8]>,
    /// The host that the request named.
    pub host: Box<[u8]>,
    /// Head of the reply.
    pub template: HeadTemplate,
    /// How the reply ends.
    pub framing: Framing,
    /// The connection ends after it, whatever the client wants.
    pub closes: bool,
    /// What stands between head and content.
    pub prefix: Box<[u8]>,
    /// Sealed body.
    pub body: BodyId,
    /// Bytes of the body.
    pub body_len: u64,
    /// Validator.
    pub etag: Option<Box<[u8]>>,
    /// Last-Modified.
    pub last_modified: Option<Box<[u8]>>,
    /// The server says that it serves no ranges of it.
    pub refuses_ranges: bool,
    /// Clock before the request was forwarded, or when the watcher was asked: all sources must have
    /// changed before.
    pub stamp: Stamp,
    /// The resource itself as a source, watched.
    pub resource: SourceSlot,
    /// Clock before the request was forwarded.
    pub forwarded: Stamp,
    /// What the watcher found it to depend on.
    pub sources: SourceSet,
    /// What the watcher remembers of it.
    pub record: RecordNumber,
    /// [`Store::unsafe_requests`] before the request was forwarded.
    pub unsafe_requests: u64,
}

impl NewEntry {
    /// With an Expires that does what it was seen to do, and without a Last-Modified that no
    /// condition can be compared with. `digests`: its own.
    fn saying(mut self, sameness: Sameness, digests: &Digests) -> Self {
        match sameness {
            Sameness::Pinned => self.template = self.template.pinned(),
            // The server would say another one.
            Sameness::Undated => self.last_modified = None,
            Sameness::Masked if digests.undated.is_some() => self.last_modified = None,
            Sameness::Exact | Sameness::Masked => {}
        }
        self
    }
}

/// What has become of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The reply is an entry, or has renewed one.
    Stored(EntryId),
    /// The reply is the first of two that must agree.
    First,
    /// The reply differs from another although no source has changed.
    Differed,
}

/// Why a fill did not become an entry after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInserted {
    /// A source changed meanwhile, or an operator has purged it.
    Changed,
    /// All places are taken by entries that replies still need.
    NoPlace,
}

impl Store {
    /// Turns the fill of a static reply into an entry, or renews the one that is there. The stamps
    /// are compared again here, because the watcher's verdict took time.
    ///
    /// # Errors
    /// A source has changed, or there is no place; the body is released.
    pub fn insert_static(
        &mut self,
        new: NewEntry,
        execution: Execution,
        counters: &mut Counters,
    ) -> Result<Inserted, NotInserted> {
        let epoch = self.revisions.epoch();
        if self.is_purged(&new.key, new.forwarded)
            || !self.revisions.is_unchanged(new.sources.as_slice(), new.stamp)
            || self.revisions.stamp_of(new.resource) >= new.forwarded
        {
            self.release(new.body);
            return Err(NotInserted::Changed);
        }
        let mut past = Past::none(&execution);
        let mut new = new;
        if let Some(id) = self.name_of(&new.key)
            && let Some(known) = self.get(id)
        {
            match known.age.digests.sameness(&execution.digests) {
                Some(_) if known.says(&execution.digests) => {
                    self.renew(id, new, Class::Static, execution, epoch);
                    counters.renewed += 1;
                    return Ok(Inserted::Stored(id));
                }
                Some(sameness @ (Sameness::Exact | Sameness::Pinned)) => {
                    past = self.past_of(known, &execution, new.unsafe_requests);
                    new = new.saying(sameness, &execution.digests);
                    counters.renewed += 1;
                }
                _ => {
                    past.credit = known.age.credit;
                    if let Some(traits) = self.is_for_others(known, &execution) {
                        return Ok(self.split(new, &execution, traits, counters));
                    }
                    if self.is_unexplained(known, &execution) {
                        counters.executions_differed += 1;
                        self.distrust.note(new.resource, execution.finished);
                    }
                }
            }
        }
        let age = Age::new(Class::Static, execution, self.trusted(new.resource, past), &self.pace);
        self.place(new, age, epoch, counters).map(Inserted::Stored)
    }

    /// Turns the fill of a dynamic reply into an entry, or renews the one that is there, if the
    /// executions agree.
    ///
    /// # Errors
    /// As [`Store::insert_static`].
    pub fn insert_dynamic(
        &mut self,
        new: NewEntry,
        mut execution: Execution,
        counters: &mut Counters,
    ) -> Result<Inserted, NotInserted> {
        let epoch = self.revisions.epoch();
        if self.is_purged(&new.key, new.forwarded)
            || self.revisions.stamp_of(SourceSlot::EVERYTHING) >= new.stamp
            || self.revisions.stamp_of(new.resource) >= new.forwarded
        {
            self.release(new.body);
            return Err(NotInserted::Changed);
        }
        // Something that dynamic entries depend on has changed since the watcher was asked. It will
        // say whether this one does.
        let is_suspect = !self.revisions.is_unchanged(new.sources.as_slice(), new.stamp);
        let basis = Basis { stamp: new.stamp, sources: new.sources, record: new.record };
        if let Some(id) = self.name_of(&new.key)
            && let Some(known) = self.get(id)
        {
            let (hits, is_dynamic) = (known.hits, known.is_dynamic());
            let sameness = known.age.digests.sameness(&execution.digests);
            let is_whole = sameness.is_some_and(Sameness::is_whole);
            // A file's bytes once more, but this time something else may have decided that they be
            // sent: it takes two clients who have got them.
            let is_agreed = is_dynamic || known.age.by.is_other(&execution.by);
            match sameness {
                Some(_) if is_agreed && known.says(&execution.digests) => {
                    self.renew(id, new, Class::Dynamic, execution, epoch);
                    counters.renewed += 1;
                    self.suspect_if(is_suspect, id);
                    return Ok(Inserted::Stored(id));
                }
                Some(sameness) if is_whole && is_agreed || is_dynamic => {
                    // What is masked must not be older than the rest, and what is sent now is sent
                    // as before.
                    let past = self.past_of(known, &execution, new.unsafe_requests);
                    let new = new.saying(sameness, &execution.digests);
                    let age = Age::new(Class::Dynamic, execution, past, &self.pace);
                    let id = self.place(new, age, epoch, counters)?;
                    if let Some(entry) = self.get_mut(id) {
                        entry.hits = hits;
                    }
                    counters.renewed += 1;
                    counters.masked += u64::from(sameness == Sameness::Masked);
                    self.suspect_if(is_suspect, id);
                    return Ok(Inserted::Stored(id));
                }
                _ if is_whole => {}
                _ => {
                    if let Some(traits) = self.is_for_others(known, &execution) {
                        return Ok(self.split(new, &execution, traits, counters));
                    }
                    let (differs, past) =
                        (self.is_unexplained(known, &execution), known.age.past());
                    if differs {
                        counters.executions_differed += 1;
                        self.distrust.note(new.resource, execution.finished);
                    }
                    self.remove(id, Removal::Purged);
                    self.candidates.note_entry(&new.key, &execution, past, Some(basis), differs);
                    self.release(new.body);
                    return Ok(if differs { Inserted::Differed } else { Inserted::First });
                }
            }
        }
        let revisions = &self.revisions;
        let unchanged =
            |sources: &SourceSet, stamp: Stamp| revisions.is_unchanged(sources.as_slice(), stamp);
        match self.candidates.compare(&new.key, &execution, basis, unchanged) {
            Opinion::Agreed { sameness, past } => {
                let new = new.saying(sameness, &execution.digests);
                let age = Age::new(
                    Class::Dynamic,
                    execution,
                    self.trusted(new.resource, past),
                    &self.pace,
                );
                let id = self.place(new, age, epoch, counters)?;
                counters.agreed += 1;
                counters.masked += u64::from(sameness == Sameness::Masked);
                self.suspect_if(is_suspect, id);
                Ok(Inserted::Stored(id))
            }
            Opinion::First => {
                self.release(new.body);
                Ok(Inserted::First)
            }
            Opinion::SameClient => {
                self.ask_as_other(&new.key, &mut execution);
                self.release(new.body);
                Ok(Inserted::First)
            }
            Opinion::IsForOthers(traits) => Ok(self.split(new, &execution, traits, counters)),
            Opinion::Differs => {
                counters.executions_differed += 1;
                self.distrust.note(new.resource, execution.finished);
                self.release(new.body);
                Ok(Inserted::Differed)
            }
        }
    }

    /// Takes the fill of a dynamic reply that is outdated: for those who had asked before it was
    /// forwarded, if it agrees with another ([`Store::said_since`]).
    ///
    /// # Errors
    /// There is no place; the body is released.
    pub fn insert_outdated(
        &mut self,
        new: NewEntry,
        execution: Execution,
        counters: &mut Counters,
    ) -> Result<(), NotInserted> {
        if self.is_purged(&new.key, new.forwarded) {
            self.release(new.body);
            return Err(NotInserted::Changed);
        }
        let agreed = match self.name_of(&new.key).and_then(|id| Some((id, self.get(id)?))) {
            Some((_, known)) if !known.is_dynamic() => None,
            Some((id, known)) => {
                let has_lapsed = self.state_of(known, execution.finished) == EntryState::Lapsed;
                let (sameness, past) =
                    (known.age.digests.sameness(&execution.digests), known.age.past());
                let is_exact = known.says(&execution.digests);
                if is_exact || !has_lapsed {
                    // One that stands was judged after what has outdated this: whom it answers the
                    // server has said since.
                    if let Some(entry) = self.get_mut(id).filter(|_| is_exact && has_lapsed) {
                        entry.said = entry.said.max(execution.forwarded);
                        entry.age.seen = std::mem::take(&mut entry.age.seen).lose();
                        let by_card = execution.by.by == Executor::Card;
                        entry.age.seen.note(execution.class, execution.forwarded, by_card);
                    }
                    None
                } else if let Some(sameness) = sameness {
                    Some((sameness, past))
                } else {
                    self.remove(id, Removal::Purged);
                    self.candidates.note_entry(&new.key, &execution, past, None, false);
                    None
                }
            }
            None => match self.candidates.compare_outdated(&new.key, &execution) {
                Opinion::Agreed { sameness, past } => Some((sameness, past)),
                Opinion::First
                | Opinion::SameClient
                | Opinion::Differs
                | Opinion::IsForOthers(_) => None,
            },
        };
        let Some((sameness, past)) = agreed else {
            self.release(new.body);
            return Ok(());
        };
        // Something has changed: who had got the answer before may get another one now.
        let past =
            Past { seen: Seen::default(), life: past.life.begun(execution.forwarded), ..past };
        let new = new.saying(sameness, &execution.digests);
        let age = Age::new(Class::Dynamic, execution, self.trusted(new.resource, past), &self.pace);
        let epoch = self.revisions.epoch();
        let id = self.place(new, age, epoch, counters)?;
        if let Some(entry) = self.get_mut(id) {
            entry.standing = Standing::Lapsed;
        }
        Ok(())
    }

    /// The server has said the same again, maybe under other sources. `epoch` was read before
    /// stamps were compared.
    fn renew(
        &mut self,
        id: EntryId,
        new: NewEntry,
        class: Class,
        execution: Execution,
        epoch: Epoch,
    ) {
        let Some(known) = self.get(id) else { return };
        let past = self.past_of(known, &execution, new.unsafe_requests);
        if let Some(entry) = entry_in(&mut self.places, id) {
            entry.said = execution.forwarded;
            entry.age = Age::new(class, execution, past, &self.pace);
            (entry.stamp, entry.sources, entry.record) = (new.stamp, new.sources, new.record);
            (entry.checked, entry.standing, entry.forwarded) =
                (epoch, Standing::Good, new.forwarded);
            entry.unsafe_requests = new.unsafe_requests;
        }
        self.release(new.body);
    }

    /// The server has given the answer of a static entry again, and the watcher cannot say by which
    /// file: a server that keeps files open does not look for them each time. That the entry is
    /// right its own sources say; that it is the server's answer still, this reply. `forwarded`:
    /// the clock before its request was. True if the entry is renewed so.
    pub fn confirm(&mut self, key: &Key, forwarded: Stamp, execution: Execution) -> bool {
        if self.is_purged(key, forwarded) {
            return false;
        }
        let Some(id) = self.name_of(key) else { return false };
        let Some(known) = self.get(id) else { return false };
        let is_right = !known.is_dynamic()
            && known.standing == Standing::Good
            && known.says(&execution.digests)
            && self.revisions.is_unchanged(known.sources.as_slice(), known.stamp)
            && !self.has_changed_by_request(known);
        let past = self.trusted(known.resource, known.age.past());
        if let Some(entry) = entry_in(&mut self.places, id).filter(|_| is_right) {
            entry.said = execution.forwarded;
            entry.age = Age::new(Class::Static, execution, past, &self.pace);
        }
        is_right
    }

    /// Was the page purged after the reply to a request that was `forwarded` then? It says nothing
    /// of an entry that is there since.
    fn is_purged(&self, key: &Key, forwarded: Stamp) -> bool {
        let known = self.name_of(key).and_then(|id| self.get(id));
        known.is_some_and(|known| self.purges.covers(known, forwarded))
    }

    /// The past of an entry whose answer the server has given again. After a change that is seen,
    /// only the class that has got it now gets it: the change may be that others are refused. Nor
    /// does any other if the entry will not depend on what decided for it: only the watcher knows.
    fn past_of(&self, known: &Entry, execution: &Execution, unsafe_requests: u64) -> Past {
        let past = self.trusted(known.resource, known.age.past());
        let is_same_memory = known.unsafe_requests == unsafe_requests || !known.rests_on_memory();
        if is_same_memory && execution.unchanged_since == Some(known.record) {
            past
        } else {
            Past { seen: past.seen.lose(), life: past.life.begun(execution.forwarded), ..past }
        }
    }

    /// The past of a page, as far as it counts: from a difference on that nothing explained it does
    /// not, for a while.
    fn trusted(&self, resource: SourceSlot, past: Past) -> Past {
        Past { same_since: self.distrust.same_since(resource, past.same_since), ..past }
    }

    /// Does nothing that is seen explain why the server says something else than what `known` has?
    fn is_unexplained(&self, known: &Entry, execution: &Execution) -> bool {
        execution.unchanged_since.is_some_and(|record| record == known.record)
            || known.standing == Standing::Good
                && self.revisions.is_unchanged(known.sources.as_slice(), known.stamp)
                && !self.has_changed_by_request(known)
    }

    /// In which traits is the client of a class that has not got what `known` has, if that may be
    /// why the server says something else?
    fn is_for_others(&self, known: &Entry, execution: &Execution) -> Option<Traits> {
        let traits = known.age.seen.missing(execution.class);
        let may_be =
            Rule::Classes.holds() && !traits.is_empty() && self.is_unexplained(known, execution);
        may_be.then(|| blamed(traits, &known.age.digests, &execution.digests))
    }

    /// The server treats clients of different classes differently here: from now on the class is a
    /// part of the key.
    fn split(
        &mut self,
        new: NewEntry,
        execution: &Execution,
        traits: Traits,
        counters: &mut Counters,
    ) -> Inserted {
        self.splits.note(&execution.base, traits);
        self.revocations += 1;
        counters.classes_split += 1;
        self.release(new.body);
        Inserted::First
    }

    fn suspect_if(&mut self, is_suspect: bool, id: EntryId) {
        if !is_suspect {
            return;
        }
        let is_put_down = self.suspect(id);
        if let Some(entry) = entry_in(&mut self.places, id) {
            self.revocations += u64::from(entry.is_published);
            if !is_put_down {
                entry.standing = Standing::Lapsed;
            }
        }
    }

    /// `epoch` was read before the stamps were compared.
    fn place(
        &mut self,
        new: NewEntry,
        age: Age,
        epoch: Epoch,
        counters: &mut Counters,
    ) -> Result<EntryId, NotInserted> {
        let (key, body) = (new.key, new.body);
        let incoming =
            Incoming { key: policy_key(&key), bytes: CardMemory::occupied_bytes(new.body_len) };
        let entry = Entry {
            key,
            target: new.target,
            host: new.host,
            template: new.template,
            framing: new.framing,
            closes: new.closes,
            prefix: new.prefix,
            learned: Learned::default(),
            refuses_ranges: new.refuses_ranges,
            resource: new.resource,
            forwarded: new.forwarded,
            body: new.body,
            body_len: new.body_len,
            etag: new.etag,
            last_modified: new.last_modified,
            stamp: new.stamp,
            sources: new.sources,
            record: new.record,
            checked: epoch,
            standing: Standing::Good,
            said: age.forwarded(),
            lapsed: nicache_tcp::Time(0),
            age,
            unsafe_requests: new.unsafe_requests,
            hits: 0,
            uses: 0,
            uses_seen: 0,
            is_published: false,
            pins: 0,
            dead: false,
        };
        if self.purges.covers(&entry, entry.forwarded) {
            self.release(body);
            return Err(NotInserted::Changed);
        }
        if let Some(old) = self.name_of(&key) {
            self.remove(old, Removal::Purged);
        }
        while self.free.is_empty() && self.evict(incoming, counters) {}
        let Some(index) = self.free.pop() else {
            self.release(body);
            return Err(NotInserted::NoPlace);
        };
        while self.policy.handle_insert(incoming.key, incoming.bytes).is_err() {
            if !self.evict(incoming, counters) {
                self.free.push(index);
                self.release(body);
                return Err(NotInserted::NoPlace);
            }
        }
        self.places_used = self.places_used.max(index + 1);
        let place = &mut self.places[index as usize];
        place.entry = Some(entry);
        let generation = place.generation;
        let places = &self.places;
        self.index.insert_unique(key.low_u64(), index, |&index| {
            places[index as usize].entry.as_ref().map_or(0, |entry| entry.key.low_u64())
        });
        Ok(EntryId { index, generation })
    }
}
