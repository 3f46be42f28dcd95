//! Asking the server again: what is to be asked, and which connections are the card's own.
//!
//! The card does not open connections itself. Whoever runs it takes its requests ([`Card::poll_recheck`]) and sends them as a client of its
//! own ([`Rechecker`](crate::config::Rechecker)); the card forwards these always, and compares their replies with what it holds.

use nicache_http::{KeyConfig, Trait, VaryNames, dressed, recheck_head, trait_lines};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::counters::Counters;
use crate::flow::Flow;
use crate::store::ahead::LOOK;
use crate::store::{EntryId, Executor};

/// Requests that wait to be taken.
const RECHECKS_MAX: usize = 256;

/// A request that the server is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recheck {
    /// TCP port of the service.
    pub port: u16,
    /// The whole request: it has no body.
    pub head: Box<[u8]>,
}

/// What is to be asked.
pub(crate) struct Rechecks {
    waiting: Vec<Recheck>,
}

impl Rechecks {
    /// Nothing.
    pub(crate) fn new() -> Rechecks {
        Rechecks { waiting: Vec::with_capacity(RECHECKS_MAX) }
    }

    /// Asks for what a client has just asked for, as one of its class.
    pub(crate) fn ask_for(
        &mut self,
        port: u16,
        head: &[u8],
        vary: Option<&VaryNames>,
        keys: &KeyConfig,
        counters: &mut Counters,
    ) {
        if let Some(bare) = recheck_head(head, vary, keys) {
            let lines: Vec<u8> = Trait::ALL.into_iter().flat_map(|of| trait_lines(head, of)).collect();
            self.ask(Recheck { port, head: dressed(&bare, &lines) }, counters);
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

    /// For whom the server works on this connection.
    pub(crate) fn executor(&self, flow: &Flow) -> Executor {
        if self.is_rechecker(flow) { Executor::Card } else { Executor::Client(flow.key.client.network()) }
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
