//! The publisher, shared by the threads of a relay.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicache_clock::boottime_ns;

use crate::message::{Event, Step, ToCard, ToRelay};
use crate::publisher::{CardId, Publisher, PublisherCounters, Session};

/// A look at the publisher at least so often.
const PAUSE: Duration = Duration::from_millis(500);
/// Whoever sends it may be gone by then.
const BUS_PAUSE: Duration = Duration::from_millis(50);
/// In the place of a card host: what is said to all.
pub(crate) const EVERYBODY: CardId = 0;

/// The publisher, shared by the threads of a relay, which wait here for events to send and for
/// changes to go through.
#[derive(Debug)]
pub struct Hub {
    publisher: Mutex<Publisher>,
    /// Something was acknowledged, or a lease has changed.
    gone_through: Condvar,
    /// There is something to send.
    to_send: Condvar,
}

impl Hub {
    /// Shares a publisher.
    pub fn new(publisher: Publisher) -> Self {
        Self {
            publisher: Mutex::new(publisher),
            gone_through: Condvar::new(),
            to_send: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Publisher> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what happened on a connection.
    pub fn publish(&self, connection: u64, step: Step) -> u64 {
        let number = self.lock().publish(Event { connection, step }, boottime_ns());
        self.to_send.notify_all();
        number
    }

    /// Takes everything for being changed from now on, because something never ends on a connection
    /// that nobody knows; see [`Publisher::hold`].
    pub fn hold(&self, connection: u64) {
        self.lock().hold(connection);
    }

    /// Waits until the event has gone through. Never longer than a lease lasts.
    pub fn wait(&self, number: u64) {
        let mut publisher = self.lock();
        loop {
            let now = boottime_ns();
            if publisher.released(now) >= number {
                return;
            }
            let retry_at_ns = publisher.retry_at_ns(number, now).unwrap_or(now);
            let pause = Duration::from_nanos(retry_at_ns.saturating_sub(now) + 1);
            publisher = self
                .gone_through
                .wait_timeout(publisher, pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Do all card hosts know that no SELECT changes anything? See [`Publisher::is_plain`].
    pub fn is_plain(&self) -> bool {
        self.lock().is_plain(boottime_ns())
    }

    /// A way to a card host is there; see [`Publisher::connect`].
    pub fn connect(&self, id: CardId, on_bus: bool) -> Option<Session> {
        self.lock().connect(id, on_bus, boottime_ns())
    }

    /// Waits for what goes over a bus: answers for card hosts there, and events from number
    /// `cursor` on, for all. At most `max` events. An answer comes before the events that were
    /// published after it.
    pub fn bus_messages(&self, cursor: &mut u64, max: usize) -> Vec<(CardId, ToCard)> {
        let mut publisher = self.lock();
        loop {
            let mut messages = Vec::new();
            while let Some(answer) = publisher.next_bus_answer() {
                messages.push(answer);
            }
            // Who has not got what is forgotten by now finds a gap.
            *cursor = (*cursor).max(publisher.first_number());
            while messages.len() < max
                && let Some(event) = publisher.event(*cursor)
            {
                messages.push((EVERYBODY, event));
                *cursor += 1;
            }
            if !messages.is_empty() {
                return messages;
            }
            let (guard, timeout) = self
                .to_send
                .wait_timeout(publisher, BUS_PAUSE)
                .unwrap_or_else(PoisonError::into_inner);
            publisher = guard;
            if timeout.timed_out() {
                return messages;
            }
        }
    }

    /// The way to a card host is lost; see [`Publisher::disconnect`].
    pub fn disconnect(&self, session: Session) {
        self.lock().disconnect(session);
        self.to_send.notify_all();
    }

    /// Takes a card host's message.
    pub fn handle(&self, session: Session, message: &ToRelay) {
        self.lock().handle(session, message, boottime_ns());
        self.gone_through.notify_all();
        self.to_send.notify_all();
    }

    /// Has an answer sent.
    pub fn answer(&self, session: Session, message: ToCard) {
        self.lock().answer(session, message);
        self.to_send.notify_all();
    }

    /// Waits for messages for a card host, at most `max` of them. `None`: it is to be cut off. An
    /// empty list: look again.
    pub fn messages(&self, session: Session, max: usize) -> Option<Vec<ToCard>> {
        let mut publisher = self.lock();
        let mut messages = Vec::new();
        loop {
            if !publisher.is_connected(session) {
                return None;
            }
            while messages.len() < max
                && let Some(message) = publisher.next_message(session)
            {
                messages.push(message);
            }
            if !messages.is_empty() {
                return Some(messages);
            }
            let (guard, timeout) =
                self.to_send.wait_timeout(publisher, PAUSE).unwrap_or_else(PoisonError::into_inner);
            publisher = guard;
            if timeout.timed_out() {
                return publisher.is_connected(session).then_some(messages);
            }
        }
    }

    /// A message came that nobody had reason to send.
    pub fn count_refused(&self) {
        self.lock().count_refused();
    }

    /// Has the card host a running lease?
    pub fn is_waited_for(&self, id: CardId) -> bool {
        self.lock().is_waited_for(id, boottime_ns())
    }

    /// What happened so far, and the number of card hosts that are waited for.
    pub fn counters(&self) -> (PublisherCounters, usize) {
        let publisher = self.lock();
        (publisher.counters(), publisher.leases(boottime_ns()))
    }
}
