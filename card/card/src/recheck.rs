//! Asking the server again: what is to be asked, and which connections are the card's own.
//!
//! The card does not open connections itself. Whoever runs it takes its requests ([`Card::poll_recheck`]) and sends them as a client of its
//! own ([`Rechecker`](crate::config::Rechecker)); the card forwards these always, and compares their replies with what it holds.

use nicache_http::{
    ClientClass, Header, Key, KeyConfig, ProxyVersion, Trait, VaryNames, dressed, recheck_head, trait_lines,
};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::counters::Counters;
use crate::flow::Flow;
use crate::store::ahead::LOOK;
use crate::store::{EntryId, Executor, Who};

/// Requests that wait to be taken.
const RECHECKS_MAX: usize = 256;

/// A request that the server is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recheck {
    /// TCP port of the service.
    pub port: u16,
    /// The header of the PROXY protocol that the connection begins with, if it is to.
    pub preface: Option<ProxyVersion>,
    /// The whole request: it has no body.
    pub head: Box<[u8]>,
}

/// A client's request, as an example for one of the card's.
pub(crate) struct Example<'a> {
    pub(crate) port: u16,
    pub(crate) preface: Option<ProxyVersion>,
    pub(crate) head: &'a [u8],
}

/// What is to be asked.
pub(crate) struct Rechecks {
    waiting: Vec<Recheck>,
    asked: u64,
}

/// What the card says of its own in its request number `number` for a page comes of it: as the key is a secret, nobody can guess it.
pub(crate) fn seed(key: &Key, number: u64) -> u64 {
    key.low_u64().wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Rechecks {
    /// Nothing.
    pub(crate) fn new() -> Rechecks {
        Rechecks { waiting: Vec::with_capacity(RECHECKS_MAX), asked: 0 }
    }

    /// Asks for what a client has just asked for, as one of its class.
    pub(crate) fn ask_for(
        &mut self,
        key: &Key,
        example: &Example<'_>,
        vary: Option<&VaryNames>,
        keys: &KeyConfig,
        counters: &mut Counters,
    ) {
        let Example { port, preface, head } = *example;
        if let Some(bare) = recheck_head(head, vary, keys) {
            let lines: Vec<u8> = Trait::ALL.into_iter().flat_map(|of| trait_lines(head, of)).collect();
            self.asked += 1;
            let head = dressed(&bare, &lines, seed(key, self.asked));
            self.ask(Recheck { port, preface, head }, counters);
        }
    }

    /// Asks for that.
    pub(crate) fn ask(&mut self, recheck: Recheck, counters: &mut Counters) {
        if self.waiting.len() < RECHECKS_MAX {
            counters.rechecks += 1;
            self.waiting.push(recheck);
        } else {
            counters.rechecks_dropped += 1;
        }
    }
}

impl<W: Port, H: Port> Card<W, H> {
    /// The next request that the server is to be asked again, oldest first.
    pub fn poll_recheck(&mut self) -> Option<Recheck> {
        (!self.rechecks.waiting.is_empty()).then(|| self.rechecks.waiting.remove(0))
    }

    /// A request that was taken cannot be sent now.
    pub fn count_recheck_dropped(&mut self) {
        self.counters.rechecks_dropped += 1;
    }

    /// Does the connection belong to the card's own client?
    #[inline]
    pub(crate) fn is_rechecker(&self, flow: &Flow) -> bool {
        let is_own = |own: &crate::config::Rechecker| {
            own.address == flow.key.client && own.ports.contains(&flow.key.client_port)
        };
        self.config.rechecker.as_ref().is_some_and(is_own)
    }

    /// For whom the server works on this request.
    pub(crate) fn who(&self, flow: &Flow, headers: &[Header<'_>], bears_cookies: bool, class: ClientClass) -> Who {
        let address = flow.key.client.network();
        let by = match bears_cookies {
            _ if self.is_rechecker(flow) => Executor::Card,
            true => Executor::Bearer(address),
            false => Executor::Client(address),
        };
        let is_own_address = self.config.rechecker.as_ref().is_some_and(|own| own.address == flow.key.client);
        let is_beyond = class.of(Trait::Proxy) != 0 && !is_own_address;
        Who { by, tokens: self.tokens_of(flow, headers), is_beyond }
    }

    /// Has the server asked again before the entry is too old.
    #[inline]
    pub(crate) fn recheck_if_due(&mut self, id: EntryId, now: Time) {
        if self.config.rechecker.is_some()
            && let Some(recheck) = self.store.recheck_due(id, now)
        {
            self.rechecks.ask(recheck, &mut self.counters);
        }
    }

    /// Has the server asked for pages that have lapsed and whose next visitors are expected.
    pub(crate) fn look_ahead(&mut self, now: Time) {
        if self.ahead_due().is_none_or(|due| now < due) {
            return;
        }
        self.looked_ahead = now;
        if self.lease && !self.bypass {
            let Card { store, rechecks, counters, .. } = self;
            store.look_ahead(now, counters, |recheck, counters| rechecks.ask(recheck, counters));
        }
    }

    /// When it does so next.
    pub(crate) fn ahead_due(&self) -> Option<Time> {
        (self.config.rechecker.is_some() && !self.store.is_empty()).then(|| self.looked_ahead + LOOK)
    }
}
