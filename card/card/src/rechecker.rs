//! The card's own client, which asks the server again.
//!
//! The card does not open connections itself. Whoever runs it takes its requests
//! ([`Card::poll_recheck`]) and sends them as a client of its own ([`Rechecker`]); the card
//! forwards these always, and compares their replies with what it holds.

use nicache_cache::{EntryId, Executor, LOOK_AHEAD, Proxy, Recheck, Who};
use nicache_http::{ClientClass, Header, Key, Trait};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::config::Rechecker;
use crate::flow::Flow;

impl<W: Port, H: Port> Card<W, H> {
    /// The next request that the server is to be asked again, oldest first.
    pub fn poll_recheck(&mut self) -> Option<Recheck> {
        self.rechecks.poll()
    }

    /// A request that was taken cannot be sent now.
    pub fn count_recheck_dropped(&mut self) {
        self.counters.cache.rechecks_dropped += 1;
    }

    /// Does the connection belong to the card's own client?
    #[inline]
    pub(crate) fn is_rechecker(&self, flow: &Flow) -> bool {
        self.config
            .rechecker
            .as_ref()
            .is_some_and(|own| own.has(flow.key.client, flow.key.client_port))
    }

    /// For whom the server works on this request.
    pub(crate) fn who(
        &self,
        flow: &Flow,
        headers: &[Header<'_>],
        bears_cookies: bool,
        class: ClientClass,
    ) -> Who {
        let address = flow.key.client.network();
        let by = match bears_cookies {
            _ if self.is_rechecker(flow) => Executor::Card,
            true => Executor::Bearer(address),
            false => Executor::Client(address),
        };
        let proxy = match &self.config.rechecker {
            _ if class.of(Trait::Proxy) == 0 => Proxy::Absent,
            Some(own) if own.address == flow.key.client => Proxy::Absent,
            Some(Rechecker { as_proxy: Some(proxy), .. }) if proxy.address == flow.key.client => {
                Proxy::Here
            }
            _ => Proxy::Beyond,
        };
        Who { by, tokens: self.tokens_of(flow, headers), proxy }
    }

    /// Has the server asked again before the entry is too old.
    #[inline]
    pub(crate) fn recheck_if_due(&mut self, id: EntryId, now: Time) {
        if self.config.rechecker.is_some()
            && let Some(recheck) = self.store.recheck_due(id, now, |key| self.fills.is_at_work(key))
        {
            self.rechecks.ask(recheck, &mut self.counters.cache);
        }
    }

    /// Has the server asked for the second of two replies that must agree.
    pub(crate) fn ask_for_seconds(&mut self) {
        while let Some(recheck) = self.store.poll_second() {
            if self.config.rechecker.is_some() {
                self.rechecks.ask(recheck, &mut self.counters.cache);
            }
        }
    }

    /// Has the server asked for pages that have lapsed and whose next visitors are expected.
    pub(crate) fn look_ahead(&mut self, now: Time) {
        if self.ahead_due().is_none_or(|due| now < due) {
            return;
        }
        self.looked_ahead = now;
        if self.lease && !self.bypass {
            let Self { store, fills, rechecks, counters, .. } = self;
            let is_at_work = |key: &Key| fills.is_at_work(key);
            store.look_ahead(now, &mut counters.cache, is_at_work, |recheck, counters| {
                rechecks.ask(recheck, counters);
            });
        }
    }

    /// When it does so next.
    pub(crate) fn ahead_due(&self) -> Option<Time> {
        (self.config.rechecker.is_some() && !self.store.is_empty())
            .then(|| self.looked_ahead + LOOK_AHEAD)
    }
}
