//! Connections whose request waits ([`Waiters`](nicache_cache::Waiters)): lets them wait, and looks
//! at them again.

use std::net::SocketAddrV4;
use std::time::Duration;

use nicache_cache::Awaited;
use nicache_coherence::fold;
use nicache_http::Key;
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::flow::Flow;
use crate::packet::FlowKey;

/// The client's end of a connection, as fills and the watcher know it.
pub(crate) fn client_end(key: &FlowKey) -> SocketAddrV4 {
    SocketAddrV4::new(fold(key.client.to_ip()), key.client_port)
}

impl<W: Port, H: Port> Card<W, H> {
    /// May the request at the front of the connection wait (still)?
    pub(crate) fn may_wait(&self, flow: &Flow, awaited: Awaited, now: Time) -> bool {
        self.waiters.may_wait(flow.wait.as_ref(), awaited, now)
    }

    /// May it wait for the reply to another request for the same, although nothing was found?
    pub(crate) fn may_collapse(&mut self, flow: &Flow, base: &Key, now: Time) -> bool {
        self.waiters.may_collapse(flow.wait.as_ref(), base, &mut self.fills, now)
    }

    /// Is it to be let through instead, because the server may be held up by those who wait?
    pub(crate) fn is_held_up(&self, flow: &Flow, usually: Duration, now: Time) -> bool {
        let is_open = |key: &FlowKey| self.flows.find(key).is_some();
        self.waiters.is_held_up(flow.wait.as_ref(), flow.opened, usually, is_open, now)
    }

    /// Lets it wait.
    pub(crate) fn wait(&mut self, flow: &mut Flow, awaited: Awaited, now: Time) {
        let wait = self.waiters.wait(
            flow.key,
            flow.opened,
            flow.wait,
            awaited,
            &mut self.counters.cache,
            now,
        );
        flow.wait = Some(wait);
    }

    /// Looks at those who wait, if what they wait for may have happened.
    pub(crate) fn wake_waiters(&mut self, now: Time) {
        // Those who go on waiting come back into the list.
        for _ in 0..self.waiters.to_look_at(&self.fills) {
            let Some(index) = self.waiters.take_first().and_then(|key| self.flows.find(&key))
            else {
                continue;
            };
            self.with_flow(index, now, |card, flow| {
                card.advance(flow, now);
                card.pump_client(flow, now);
                card.keep_unless_over(flow, now)
            });
        }
    }
}
