//! Looking an entry up: its key among variants, whether it may be served now, and to whom.

use nicache_coherence::{Epoch, Rule};
use nicache_http::{ClientClass, Header, Key, KeyConfig, Trait, class_key, vary_key};
use nicache_tcp::Time;

use super::entry::{Entry, EntryId, EntryState};
use super::index::Store;
use super::seen::Traits;
use super::standing::Standing;
use super::who::{Proxy, Who};
use crate::counters::Counters;

/// What the index says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An entry that is valid now.
    Entry(EntryId),
    /// One that may not be served until the watcher has looked at it again.
    Suspect,
    /// One that may not be served until the server has said the same again.
    Lapsed,
    /// Nothing (any longer).
    Absent,
}

impl Store {
    /// The key of a request, by that which it would have if the server gave everybody the same.
    #[inline]
    pub fn key_of(
        &self,
        base: &Key,
        headers: &[Header<'_>],
        class: ClientClass,
        keys: &KeyConfig,
    ) -> Key {
        let key = match self.vary.names(base) {
            None => *base,
            Some(names) => vary_key(*base, names, headers, keys),
        };
        self.key_of_class(base, key, class, keys)
    }

    /// The key of a request from a client of this class, by the key that `Vary` leads to: with the
    /// traits in it in which clients are told apart for the page.
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

    /// Do others get another page than this client because of the proxy that it comes through, and
    /// the card does not? Then its own requests say nothing.
    pub fn is_of_proxy_alone(&self, base: &Key, by: &Who) -> bool {
        by.proxy == Proxy::Beyond && self.splits.of(base).has(Trait::Proxy)
    }

    /// Has the server given the entry's answer to a client of this class?
    #[inline]
    pub fn answers(&self, id: EntryId, class: ClientClass, now: Time) -> bool {
        self.get(id).is_some_and(|entry| entry.age.answers(class, now))
    }

    /// Is there an entry, maybe one that may not be served now, with the answer that a client of
    /// this class got?
    pub fn may_answer(&self, key: &Key, class: ClientClass, now: Time) -> bool {
        self.name_of(key).is_none_or(|id| self.answers(id, class, now))
    }

    /// Is there an entry whose answer clients of this class had before a change, or have?
    pub fn was_answered(&self, key: &Key, class: ClientClass) -> bool {
        self.name_of(key).and_then(|id| self.get(id)).is_some_and(|entry| entry.age.seen.had(class))
    }

    /// The entry that has this key, whether it may be served or not.
    pub fn view(&self, key: &Key) -> Option<&Entry> {
        self.name_of(key).and_then(|id| self.get(id))
    }

    /// The valid entry for a key. `epoch` must have been read after the request came in.
    #[inline]
    pub fn find(&mut self, key: &Key, epoch: Epoch, now: Time, counters: &mut Counters) -> Found {
        let places = &self.places;
        let Some(&index) = self.index.find(key.low_u64(), |&index| {
            places[index as usize].entry.as_ref().is_some_and(|entry| entry.key == *key)
        }) else {
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
    pub(super) fn is_over(&self, entry: &Entry, now: Time) -> bool {
        now >= entry.age.expires
            || entry.is_dynamic()
                && entry.unsafe_requests != self.unsafe_requests()
                && entry.rests_on_memory()
    }

    /// An entry that was not looked at in this epoch.
    pub(super) fn find_again(
        &mut self,
        id: EntryId,
        epoch: Epoch,
        counters: &mut Counters,
    ) -> Found {
        let Some(entry) = self.get(id) else { return Found::Absent };
        if entry.standing != Standing::Lapsed && self.has_changed_by_request(entry) {
            self.purge(id, counters);
            return if self.get(id).is_some_and(|entry| !entry.dead) {
                Found::Lapsed
            } else {
                Found::Absent
            };
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
        if self.get(id).is_some_and(|entry| entry.standing == Standing::Lapsed) {
            Found::Lapsed
        } else {
            Found::Absent
        }
    }

    /// Has a request changed the resource (RFC 9111 section 4.4) since the server was asked for it?
    pub(super) fn has_changed_by_request(&self, entry: &Entry) -> bool {
        self.revisions.stamp_of(entry.resource) >= entry.forwarded
    }

    /// The entry for a key whose bytes the server has said, to a client of that class, to a request
    /// that was forwarded after `since`, current or not: what it may say to somebody who has waited
    /// since then.
    pub fn said_since(&self, key: &Key, class: ClientClass, since: Time) -> Option<EntryId> {
        let id = self.name_of(key)?;
        let is_said = |entry: &&Entry| {
            entry.said > since && entry.age.answers(class, entry.said) || !Rule::Shared.holds()
        };
        self.get(id).filter(|entry| entry.is_dynamic()).filter(is_said).map(|_| id)
    }

    /// May the entry be served?
    pub fn state_of(&self, entry: &Entry, now: Time) -> EntryState {
        match entry.standing {
            _ if self.is_over(entry, now) => EntryState::Lapsed,
            Standing::Lapsed => EntryState::Lapsed,
            _ if self.has_changed_by_request(entry) => EntryState::Lapsed,
            Standing::Suspect | Standing::Asked(_) => EntryState::Suspect,
            Standing::Good
                if self.revisions.is_unchanged(entry.sources.as_slice(), entry.stamp) =>
            {
                EntryState::Good
            }
            Standing::Good => EntryState::Suspect,
        }
    }

    /// Until when the entry may be given without a look at it.
    pub fn fresh_until(&self, id: EntryId) -> Option<Time> {
        let age = &self.get(id)?.age;
        Some(if age.recheck.is_some() { age.expires.min(age.recheck_at) } else { age.expires })
    }

    /// The server has given a client of this class, to whom the entry was an answer, one that is
    /// kept for nobody.
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
}
