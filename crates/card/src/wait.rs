//! Requests that wait for the reply to another one, so that a change does not send everybody to the server at once; or for the watcher, which
//! is about to say whether an entry may still be served.
//!
//! A request waits once, and not for long; then it goes to the server.

use std::time::Duration;

use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::flow::Flow;
use crate::packet::FlowKey;

/// Longest wait for a reply of the server.
pub(crate) const REPLY_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the watcher, which needs a small part of this if it is not busy.
pub(crate) const VERDICT_MAX: Duration = Duration::from_millis(20);
/// Connections that can wait at once.
pub const WAITERS_MAX: usize = 1024;

/// The connections that wait.
pub(crate) struct Waiters {
    waiting: Vec<FlowKey>,
    /// [`Fills::ended`](crate::fill::Fills::ended) when they were last looked at.
    fills_ended: u64,
    /// The watcher has answered since.
    answered: bool,
}

impl Waiters {
    /// Nobody waits.
    pub(crate) fn new() -> Waiters {
        Waiters { waiting: Vec::with_capacity(WAITERS_MAX), fills_ended: 0, answered: false }
    }

    /// The watcher has answered about an entry.
    pub(crate) fn handle_answer(&mut self) {
        self.answered = true;
    }
}

impl<W: Port, H: Port> Card<W, H> {
    /// May the request at the front of the connection wait for so long, all in all?
    pub(crate) fn may_wait(&self, flow: &Flow, longest: Duration, now: Time) -> bool {
        flow.wait.is_none_or(|(since, _)| now < since + longest) && self.waiters.waiting.len() < WAITERS_MAX
    }

    /// Lets the request at the front of the connection wait.
    pub(crate) fn wait(&mut self, flow: &mut Flow, longest: Duration, now: Time) {
        self.counters.waits += u64::from(flow.wait.is_none());
        let since = flow.wait.map_or(now, |(since, _)| since);
        flow.wait = Some((since, since + longest));
        if !self.waiters.waiting.contains(&flow.key) {
            self.waiters.waiting.push(flow.key);
        }
    }

    /// Looks at those who wait, if what they wait for may have happened.
    pub(crate) fn wake_waiters(&mut self, now: Time) {
        let ended = self.fills.ended();
        if self.waiters.waiting.is_empty() || (self.waiters.fills_ended == ended && !self.waiters.answered) {
            return;
        }
        (self.waiters.fills_ended, self.waiters.answered) = (ended, false);
        // Those who go on waiting come back into the list.
        for _ in 0..self.waiters.waiting.len() {
            let key = self.waiters.waiting.remove(0);
            let Some(index) = self.flows.find(&key) else { continue };
            self.with_flow(index, now, |card, flow| {
                card.advance(flow, now);
                card.pump_client(flow, now);
                card.keep_unless_over(flow, now)
            });
        }
    }
}
