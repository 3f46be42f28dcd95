//! The server is asked for a page again: by whom, when, and whether the page pays for it
//! ([`Credit`](super::credit)).

use nicache_http::{ClientClass, Key, with_class_headers};
use nicache_tcp::Time;

use super::agreement::Execution;
use super::class_headers::ClassHeaders;
use super::entry::EntryId;
use super::index::{Store, entry_in};
use super::standing::Standing;
use super::who::{Executor, Proxy, Who};
use crate::counters::Counters;
use crate::fill::host_of;
use crate::limits::SECONDS_MAX;
use crate::recheck::{Recheck, seed};

/// The request `bare`, in the headers that clients of this class send.
fn as_class(headers: &ClassHeaders, class: ClientClass, bare: &Recheck, seed: u64) -> Recheck {
    let (lines, proxy) = headers.of(class);
    let head = with_class_headers(&bare.head, &lines, seed);
    Recheck { head, is_as_proxy: proxy == Proxy::Here, ..*bare }
}

impl Store {
    /// A client of this class has sent a request with this head, to which the server has given an
    /// answer that may be shared.
    pub fn note_class_headers(&mut self, class: ClientClass, head: &[u8], by: &Who, now: Time) {
        self.class_headers.note(class, head, by.proxy);
        // As one behind another machine's proxy the card cannot ask.
        if by.by != Executor::Card && by.proxy != Proxy::Beyond {
            self.site_classes.note(host_of(head), class, now);
        }
    }

    /// What the card has asked for ahead of a visitor came to nothing: something has changed
    /// meanwhile, or the server has changed something itself. It may be asked again, as after a
    /// change, after twice as long each time.
    pub fn note_vain(&mut self, key: &Key, now: Time) {
        if let Some(entry) = self.name_of(key).and_then(|id| self.get_mut(id)) {
            (entry.age.asked, entry.age.vain) = (None, entry.age.vain.saturating_add(1));
            entry.lapsed = entry.lapsed.max(now);
        } else {
            self.candidates.note_vain(key);
        }
    }

    /// Somebody comes to a page.
    #[inline]
    fn note_visit(&mut self, now: Time) {
        self.pace.note(now);
        self.allowance.follow(&self.pace);
    }

    /// Somebody is about to ask the server for a page. Should the card ask, too, to have two
    /// replies to compare? Then it does: the page pays for it. Not for one that is merely old: one
    /// reply renews it.
    pub fn take_second(&mut self, key: &Key, by: &Who) -> bool {
        let id = self.name_of(key);
        self.note_visit(self.now);
        self.allowance.note_execution();
        let may_ask = self.allowance.may_spend();
        let dynamic = id.and_then(|id| self.get_mut(id)).filter(|entry| entry.is_dynamic());
        let is_asked = match dynamic {
            Some(entry) => {
                entry.age.credit.note_execution();
                // The last one is for the next time that nobody is there to ask: as long as the
                // page is the same, one reply renews it.
                entry.standing == Standing::Lapsed
                    && entry.age.credit.is_ample()
                    && may_ask
                    && entry.age.credit.spend(false)
            }
            None => self.candidates.take_second(key, by, may_ask),
        };
        if is_asked {
            self.allowance.spend();
        }
        is_asked
    }

    /// The server has answered one client again: the card asks as one of its class, if the page
    /// pays for it ([`Self::poll_second`]).
    pub(super) fn ask_as_other(&mut self, key: &Key, execution: &mut Execution) {
        let is_own = execution.by.by == Executor::Card;
        if is_own || execution.recheck.is_none() || self.seconds.len() == SECONDS_MAX {
            return;
        }
        if self.candidates.take_other(key)
            && let Some(bare) = execution.recheck.take()
        {
            self.allowance.spend();
            self.asked_as_class += 1;
            let seed = seed(key, self.asked_as_class);
            self.seconds.push(as_class(&self.class_headers, execution.class, &bare, seed));
        }
    }

    /// A request by which the card gets the second of two replies that must agree.
    pub fn poll_second(&mut self) -> Option<Recheck> {
        self.seconds.pop()
    }

    /// Somebody asks for a part of an entry that has lapsed, or on a condition: what the server
    /// answers to that renews nothing. The request by which the card has it said again, if the page
    /// pays for it.
    pub fn revive(&mut self, key: &Key, now: Time) -> Option<Recheck> {
        let id = self.name_of(key)?;
        self.note_visit(now);
        self.allowance.note_execution();
        let may_ask = self.allowance.may_spend();
        let age = &mut self.get_mut(id)?.age;
        age.credit.note_execution();
        if age.is_awaited(now) || age.recheck.is_none() || !may_ask || !age.credit.spend(false) {
            return None;
        }
        age.asked = Some(now);
        self.allowance.spend();
        self.recheck_as_class(id, now)
    }

    /// The request by which the server is to be asked again, if it is time to, as the entry answers
    /// somebody, and if it is not at work on that already.
    #[inline]
    pub fn recheck_due(
        &mut self,
        id: EntryId,
        now: Time,
        is_at_work: impl Fn(&Key) -> bool,
    ) -> Option<Recheck> {
        let may_ask = self.allowance.may_spend();
        self.note_visit(now);
        let entry = entry_in(&mut self.places, id)?;
        let age = &mut entry.age;
        if !age.is_recheck_due(&self.pace, now)
            || !may_ask
            || !age.credit.may_spend()
            || is_at_work(&entry.key)
            || !age.credit.spend(false)
        {
            return None;
        }
        age.asked = Some(now);
        self.allowance.spend();
        self.recheck_as_class(id, now)
    }

    /// The card's own request for an entry, as a client of the classes that were asked for longest
    /// ago.
    pub(super) fn recheck_as_class(&mut self, id: EntryId, now: Time) -> Option<Recheck> {
        let key = self.get(id)?.key;
        let (places, site_classes) = (&mut self.places, &self.site_classes);
        let entry = places[id.index as usize].entry.as_mut()?;
        let class = entry.age.take_turn(site_classes.of(&entry.host), now)?;
        self.asked_as_class += 1;
        let bare = self.get(id)?.age.recheck.as_ref()?;
        let seed = seed(&key, self.asked_as_class);
        Some(as_class(&self.class_headers, class, bare, seed))
    }

    /// The server was asked for a page that had an entry not long ago, and again something had
    /// changed meanwhile. It was worth it if others who had waited have got the last reply of this
    /// kind.
    pub fn note_wasted(&mut self, key: &Key, now: Time, counters: &mut Counters) {
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
}
