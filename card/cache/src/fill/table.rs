//! All fills of a cache: which keys have one, which requests are unanswered, and how fills end.

use std::net::SocketAddrV4;
use std::sync::Arc;

use hashbrown::HashTable;
use nicache_http::{ClientClass, Key, ProxyVersion, UriKey};
use nicache_tcp::Time;

use super::one::{Fill, FillId, REQUEST_BYTES, State};
use crate::counters::{Counters, FillAbort};
use crate::earned::AgeBounds;
use crate::limits::FILLS_MAX;
use crate::outcomes::{LastReply, Outcome, Outcomes};
use crate::path::PathSettings;
use crate::recheck::Recheck;
use crate::store::{Executor, Store, Who, source_of};

/// A request that the server has said nothing to.
#[derive(Clone, Copy, Debug)]
pub struct Unanswered {
    /// The client's end of its connection.
    pub client: SocketAddrV4,
    /// When it was forwarded.
    pub forwarded: Time,
}

/// A request whose reply is to be stored.
pub struct Asked<'a> {
    /// The request's key without what `Vary` says.
    pub base: Key,
    /// The request's key as far as `Vary` is known.
    pub key: Key,
    /// For whom the server works.
    pub by: Who,
    /// The client's end of the connection that it is forwarded on.
    pub client: SocketAddrV4,
    /// What is set for its path.
    pub settings: Arc<PathSettings>,
    /// How old what nobody can see may be in its reply.
    pub ages: AgeBounds,
    /// Of what class the client is.
    pub class: ClientClass,
    /// The resource that it names.
    pub page: UriKey,
    /// TCP port of the service.
    pub port: u16,
    /// The header of the PROXY protocol that the connection began with, if it did.
    pub preface: Option<ProxyVersion>,
    /// The whole request.
    pub head: &'a [u8],
    /// The request's reply is to be had instead of one for another client that the server has not
    /// said anything of yet.
    pub goes_ahead: bool,
}

/// All fills of a cache.
pub struct Fills {
    pub(super) fills: Box<[Fill]>,
    free: Vec<u32>,
    /// Keys with a fill under way: one is enough.
    keys: HashTable<u32>,
    pub(super) whole: Vec<u32>,
    pub(super) asked: usize,
    /// Fills that have ended.
    ended: u64,
    outcomes: Outcomes,
}

impl Fills {
    /// No fill under way.
    pub fn new() -> Self {
        let fills = (0..FILLS_MAX).map(|_| Fill::vacant()).collect();
        Self {
            fills,
            free: (0..FILLS_MAX as u32).rev().collect(),
            keys: HashTable::with_capacity(FILLS_MAX),
            whole: Vec::with_capacity(FILLS_MAX),
            asked: 0,
            ended: 0,
            outcomes: Outcomes::new(),
        }
    }

    /// Must be called before the request is forwarded: notes the clock. `None` if the key has a
    /// fill under way already (one for each class of clients and one for the card itself are
    /// allowed), or nothing is free.
    pub fn begin(
        &mut self,
        asked: Asked<'_>,
        store: &mut Store,
        now: Time,
        counters: &mut Counters,
    ) -> Option<FillId> {
        let Asked {
            base,
            key,
            by,
            client,
            settings,
            ages,
            class,
            page,
            port,
            preface,
            head: request_head,
            goes_ahead,
        } = asked;
        let fills = &self.fills;
        let is_same = |fill: &Fill| match (fill.by.by == Executor::Card, by.by == Executor::Card) {
            (false, false) => fill.base == base && fill.class == class,
            (is_own, for_own) => fill.base == base && is_own == for_own,
        };
        if let Some(&index) =
            self.keys.find(base.low_u64(), |&index| is_same(&fills[index as usize]))
        {
            let fill = &fills[index as usize];
            if !goes_ahead || fill.state != State::Forwarded {
                return None;
            }
            let id = FillId { index, generation: fill.generation };
            self.abort(id, FillAbort::Superseded, store, counters);
        }
        if request_head.len() > REQUEST_BYTES {
            counters.count_abort(FillAbort::Resources);
            return None;
        }
        let Some(index) = self.free.pop() else {
            counters.count_abort(FillAbort::Resources);
            return None;
        };
        let fill = &mut self.fills[index as usize];
        fill.state = State::Forwarded;
        fill.base = base;
        fill.key = key;
        fill.by = by;
        fill.client = client;
        fill.settings = settings;
        fill.ages = ages;
        fill.class = class;
        fill.port = port;
        fill.preface = preface;
        fill.recheck = None;
        fill.next = None;
        fill.request[..request_head.len()].copy_from_slice(request_head);
        fill.request_len = request_head.len();
        fill.lost = store.revisions().lost();
        fill.unsafe_requests = store.unsafe_requests();
        fill.page = page;
        fill.resource = source_of(page);
        store.revisions().watch(fill.resource);
        fill.stamp = store.revisions().advance_clock();
        fill.forwarded = now;
        fill.waited_in_vain = false;
        fill.finished = None;
        let id = FillId { index, generation: fill.generation };
        let fills = &self.fills;
        self.keys
            .insert_unique(base.low_u64(), index, |&index| fills[index as usize].base.low_u64());
        counters.fills += 1;
        Some(id)
    }

    /// Gives a fill up.
    pub fn abort(
        &mut self,
        id: FillId,
        reason: FillAbort,
        store: &mut Store,
        counters: &mut Counters,
    ) {
        if self
            .get(id)
            .is_some_and(|fill| matches!(fill.state, State::Forwarded | State::Receiving))
        {
            counters.count_abort(reason);
            self.note(id, Outcome::Aborted(reason));
            self.free(id, store);
        }
    }

    /// Gives up all fills, because nobody will say anything of them any longer.
    pub fn give_up_all(&mut self, store: &mut Store, counters: &mut Counters) {
        for index in 0..self.fills.len() as u32 {
            let fill = &self.fills[index as usize];
            if fill.state != State::Free {
                let id = FillId { index, generation: fill.generation };
                counters.count_abort(FillAbort::NoVerdict);
                self.note(id, Outcome::Aborted(FillAbort::NoVerdict));
                self.free(id, store);
            }
        }
        self.whole.clear();
        self.asked = 0;
    }

    /// The key that the reply would be kept by.
    pub fn key_of(&mut self, id: FillId) -> Option<Key> {
        self.get(id).map(|fill| fill.key)
    }

    /// The card is to ask for the same, but not at the same time: a program that takes notes may
    /// read half of what another execution is writing.
    pub fn ask_next(&mut self, id: FillId, next: Recheck) {
        if let Some(fill) = self.get(id) {
            fill.next = Some(next);
        }
    }

    /// A visitor comes for `base`, and waits. Without the card the server would work for both at
    /// once: what the card is to ask next it may ask now.
    pub fn take_next(&mut self, base: &Key) -> Option<Recheck> {
        let fills = &self.fills;
        let has_next = |fill: &Fill| fill.base == *base && fill.next.is_some();
        let found = self.keys.find(base.low_u64(), |&index| has_next(&fills[index as usize]));
        let index = *found?;
        self.fills[index as usize].next.take()
    }

    /// The request for `base` that the server has not answered yet, if there is one.
    pub fn unanswered(&self, base: &Key) -> Option<Unanswered> {
        let is_silent = |fill: &Fill| fill.base == *base && fill.state == State::Forwarded;
        let found = self.keys.find(base.low_u64(), |&index| is_silent(&self.fills[index as usize]));
        let fill = found.map(|&index| &self.fills[index as usize]);
        fill.map(|fill| Unanswered { client: fill.client, forwarded: fill.forwarded })
    }

    /// What last became of a reply for the key, and when its request was forwarded.
    pub fn last_outcome(&self, base: &Key) -> Option<(Outcome, Time)> {
        self.outcomes.last(base)
    }

    /// What last became of a reply to a client for the page, whatever else the request said.
    pub fn last_of_page(&self, page: UriKey) -> Option<&LastReply> {
        self.outcomes.last_of_page(page)
    }

    pub(super) fn note(&mut self, id: FillId, outcome: Outcome) {
        let fill = &self.fills[id.index as usize];
        let own = fill.by.by == Executor::Card;
        let request = (!own).then(|| (fill.page, &fill.request[..fill.request_len]));
        self.outcomes.note(&fill.base, request, outcome, fill.forwarded);
    }

    /// May the reply be kept although no file has its bytes?
    pub fn wants_dynamic(&self, id: FillId) -> bool {
        let fill =
            self.fills.get(id.index as usize).filter(|fill| fill.generation == id.generation);
        fill.is_some_and(|fill| fill.settings.wants_dynamic())
    }

    /// When the request was forwarded whose reply is on the way for the key, of the first that is
    /// found. `None` also if somebody has waited for it in vain.
    pub fn awaited_since(&self, base: &Key) -> Option<Time> {
        let found =
            self.keys.find(base.low_u64(), |&index| self.fills[index as usize].base == *base);
        found
            .map(|&index| &self.fills[index as usize])
            .filter(|fill| !fill.waited_in_vain)
            .map(|fill| fill.forwarded)
    }

    /// Somebody has waited as long as is allowed for the reply to a request for the key that was
    /// forwarded before: others need not.
    pub fn handle_vain_wait(&mut self, base: &Key, since: Time) {
        let fills = &self.fills;
        let is_awaited = |&index: &u32| {
            fills[index as usize].base == *base && fills[index as usize].forwarded <= since
        };
        if let Some(&index) = self.keys.find(base.low_u64(), is_awaited) {
            self.fills[index as usize].waited_in_vain = true;
        }
    }

    /// Does the server work for somebody on what an entry has by this key?
    pub fn is_at_work(&self, key: &Key) -> bool {
        let is_it = |fill: &Fill| {
            matches!(fill.state, State::Forwarded | State::Receiving) && fill.key == *key
        };
        self.keys.iter().any(|&index| is_it(&self.fills[index as usize]))
    }

    /// Is the server, or the watcher, working on a reply for the key?
    pub fn is_under_way(&self, base: &Key) -> bool {
        self.keys.find(base.low_u64(), |&index| self.fills[index as usize].base == *base).is_some()
    }

    /// Is the server, or the watcher, working on a reply for the key to a client of this class?
    pub fn is_under_way_for(&self, base: &Key, class: ClientClass) -> bool {
        let is_it = |fill: &Fill| fill.base == *base && fill.class == class;
        self.keys.find(base.low_u64(), |&index| is_it(&self.fills[index as usize])).is_some()
    }

    /// How many fills have ended, one way or the other.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Fills under way, from the forwarded request to the verdict.
    pub fn in_use(&self) -> usize {
        self.fills.len() - self.free.len()
    }

    pub(super) fn get(&mut self, id: FillId) -> Option<&mut Fill> {
        let fill = self.fills.get_mut(id.index as usize)?;
        (fill.generation == id.generation && fill.state != State::Free).then_some(fill)
    }

    /// Ends a fill, unless it has ended.
    pub(super) fn free(&mut self, id: FillId, store: &mut Store) {
        if self.get(id).is_none() {
            return;
        }
        let fills = &self.fills;
        let base = fills[id.index as usize].base;
        if let Ok(found) = self.keys.find_entry(base.low_u64(), |&index| index == id.index) {
            found.remove();
        }
        let fill = &mut self.fills[id.index as usize];
        if let Some(body) = fill.body.take() {
            store.release(body);
            store.refused(&fill.key);
        }
        fill.state = State::Free;
        fill.generation = fill.generation.wrapping_add(1);
        fill.template = None;
        fill.etag = None;
        fill.last_modified = None;
        fill.recheck = None;
        fill.next = None;
        self.ended += 1;
        self.free.push(id.index);
    }
}

impl Default for Fills {
    fn default() -> Self {
        Self::new()
    }
}
