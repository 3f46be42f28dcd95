//! The relay's side of following, without I/O and clock: which events a card host gets, and for
//! whom a change has to wait.
//!
//! Read first: `subscriber.rs`, the other side, whose head has the proof.
//!
//! * An event has *gone through* when every card host with a running lease has acknowledged it
//!   ([`Publisher::released`]).
//! * A lease runs from when a renewal was received, on this machine's clock. A card host that does
//!   not acknowledge holds up changes until its lease is over, and no longer: renewals of one that
//!   is behind are not taken.
//! * Whoever has a lease of an earlier run of the relay is not known, so nothing goes through in
//!   the first moments, as long as it may last.
//! * A greeting ends the lease at once: whoever greets has voided what it kept.
//! * The last events are remembered, so a card host that was cut off for a moment misses
//!   nothing of the connections.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::message::{Event, Step, ToCard, ToRelay};

/// Card hosts that follow one relay.
pub const CARDS_MAX: usize = 256;
/// Events remembered.
const LOG_EVENTS_MAX: usize = 8192;
/// Bytes of them.
const LOG_BYTES_MAX: usize = 32 << 20;
/// Messages that wait for one card host, besides events.
const CONTROL_MAX: usize = 1024;

/// Names a card host; chosen by it at random.
pub type CardId = u64;

#[derive(Debug, Default)]
struct Card {
    attempt: u64,
    /// Number of the next event that it gets; `None`: it does not follow.
    cursor: Option<u64>,
    /// Answers to it.
    control: VecDeque<ToCard>,
    /// Up to which number events have taken effect there.
    acked: u64,
    lease_until_ns: Option<u64>,
    plain: bool,
    /// Messages find their way to it.
    connected: bool,
    /// Counts the ways.
    session: u64,
    /// It gets events from a bus, together with others.
    on_bus: bool,
    /// The last renewal: an older one is a repetition.
    renewal: u64,
}

/// One way to a card host: it ends when there is a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The card host.
    pub id: CardId,
    number: u64,
}

/// Counters, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherCounters {
    /// Events published.
    pub events: u64,
    /// Times that a card host began to follow.
    pub greetings: u64,
    /// Of these, without having missed anything.
    pub resumed: u64,
    /// Messages that a card host had no reason to send.
    pub refused: u64,
    /// Card hosts that were cut off as they were too far behind.
    pub behind: u64,
}

#[derive(Debug)]
struct Logged {
    event: Arc<Event>,
    bytes: usize,
    time_ns: u64,
}

/// The relay's side of following, without I/O and clock: which events a card host gets, and for
/// whom a change has to wait.
#[derive(Debug)]
pub struct Publisher {
    run: u64,
    lease_ns: u64,
    /// Leases of an earlier run may last so long.
    former_until_ns: u64,
    log: VecDeque<Logged>,
    log_bytes: usize,
    /// Number of the first event of `log`.
    first: u64,
    /// Number of the next event.
    next: u64,
    /// Connections on which something is not done.
    busy: BTreeSet<u64>,
    cards: HashMap<CardId, Card>,
    counters: PublisherCounters,
}

impl Publisher {
    /// Nothing published. `run` is random; a card host is waited for `lease_ns` at most. Nothing
    /// goes through before that time is over once: somebody may have a lease of an earlier run.
    pub fn new(run: u64, lease_ns: u64, now_ns: u64) -> Self {
        Self {
            run,
            lease_ns,
            former_until_ns: now_ns.saturating_add(lease_ns),
            log: VecDeque::new(),
            log_bytes: 0,
            first: 1,
            next: 1,
            busy: BTreeSet::new(),
            cards: HashMap::new(),
            counters: PublisherCounters::default(),
        }
    }

    /// Publishes an event, and gives it its number.
    pub fn publish(&mut self, event: Event, now_ns: u64) -> u64 {
        let bytes = match &event.step {
            Step::Received { bytes, .. } => {
                self.busy.insert(event.connection);
                bytes.len()
            }
            Step::Idle | Step::Closed | Step::Sent { over: true, .. } => {
                self.busy.remove(&event.connection);
                0
            }
            Step::Opened | Step::Sent { .. } => 0,
        };
        self.log.push_back(Logged { event: Arc::new(event), bytes, time_ns: now_ns });
        self.log_bytes += bytes;
        let number = self.next;
        self.next += 1;
        self.counters.events += 1;
        while (self.log.len() > LOG_EVENTS_MAX || self.log_bytes > LOG_BYTES_MAX)
            && let Some(dropped) = self.log.pop_front()
        {
            self.log_bytes -= dropped.bytes;
            self.first += 1;
        }
        // Those who have not got what was dropped have missed it.
        let first = self.first;
        let is_behind =
            |card: &&mut Card| !card.on_bus && card.cursor.is_some_and(|cursor| cursor < first);
        for card in self.cards.values_mut().filter(is_behind) {
            card.cursor = None;
            card.connected = false;
            self.counters.behind += 1;
        }
        number
    }

    /// Something never ends on a connection that nobody knows: whoever follows takes everything for
    /// being changed until [`Step::Idle`] is published for it.
    pub fn hold(&mut self, connection: u64) {
        self.busy.insert(connection);
    }

    /// A way to the card host is there; an older one ends. `None`: there are too many card hosts.
    ///
    /// `on_bus`: it gets no events of its own, but hears those that are sent to all.
    pub fn connect(&mut self, id: CardId, on_bus: bool, now_ns: u64) -> Option<Session> {
        if self.cards.len() >= CARDS_MAX && !self.cards.contains_key(&id) {
            self.cards.retain(|_, card| {
                card.connected || card.lease_until_ns.is_some_and(|until| until >= now_ns)
            });
            if self.cards.len() >= CARDS_MAX {
                return None;
            }
        }
        let card = self.cards.entry(id).or_default();
        card.connected = true;
        card.cursor = None;
        card.control.clear();
        card.session += 1;
        card.on_bus = on_bus;
        Some(Session { id, number: card.session })
    }

    /// The way is lost. The lease goes on.
    pub fn disconnect(&mut self, session: Session) {
        if let Some(card) = self.card(session) {
            card.connected = false;
            card.cursor = None;
            card.control.clear();
        }
    }

    /// May messages be sent there?
    pub fn is_connected(&mut self, session: Session) -> bool {
        self.card(session).is_some()
    }

    fn card(&mut self, session: Session) -> Option<&mut Card> {
        self.cards
            .get_mut(&session.id)
            .filter(|card| card.connected && card.session == session.number)
    }

    /// Takes what a card host has sent. Questions about the structure are for the caller.
    pub fn handle(&mut self, session: Session, message: &ToRelay, now_ns: u64) {
        let (run, next, first, lease_ns) = (self.run, self.next, self.first, self.lease_ns);
        let published_ns = |number: u64| {
            let at =
                number.checked_sub(first).and_then(|at| self.log.get(usize::try_from(at).ok()?));
            at.map_or(now_ns, |logged| logged.time_ns)
        };
        let known = self.cards.get_mut(&session.id);
        let Some(card) = known.filter(|card| card.connected && card.session == session.number)
        else {
            self.counters.refused += 1;
            return;
        };
        match *message {
            ToRelay::Hello { attempt, resume, .. } if attempt > card.attempt => {
                let is_known =
                    |&(of, number): &(u64, u64)| of == run && (first..=next).contains(&number);
                let resumed = resume.filter(is_known).filter(|_| !card.on_bus);
                let from = resumed.map_or(next, |(_, number)| number);
                card.attempt = attempt;
                card.lease_until_ns = None;
                card.acked = from - 1;
                card.cursor = Some(from);
                card.control.clear();
                let busy = if resumed.is_some() {
                    Vec::new()
                } else {
                    self.busy.iter().copied().collect()
                };
                let resumed = resumed.is_some();
                card.control.push_back(ToCard::Welcome { attempt, run, next: from, resumed, busy });
                self.counters.greetings += 1;
                self.counters.resumed += u64::from(resumed);
            }
            ToRelay::Ack { run: of, number }
                if of == run && number < next && card.cursor.is_some() =>
            {
                card.acked = card.acked.max(number);
            }
            ToRelay::Renew { run: of, renewal, plain }
                if of == run
                    && card.cursor.is_some()
                    && renewal > card.renewal
                    && published_ns(card.acked + 1).saturating_add(lease_ns) >= now_ns =>
            {
                card.lease_until_ns = Some(now_ns.saturating_add(lease_ns));
                card.plain = plain;
                card.renewal = renewal;
                // An older answer is of no use any longer.
                card.control.retain(|waiting| !matches!(waiting, ToCard::Renewed { .. }));
                card.control.push_back(ToCard::Renewed {
                    run,
                    renewal,
                    published: next - 1,
                    lease_ns,
                });
            }
            ToRelay::AskStructure { .. } => {}
            _ => self.counters.refused += 1,
        }
    }

    /// Has something sent to a card host besides events.
    pub fn answer(&mut self, session: Session, message: ToCard) {
        if let Some(card) = self.card(session) {
            card.control.push_back(message);
            if card.control.len() > CONTROL_MAX {
                card.connected = false;
                card.cursor = None;
                card.control.clear();
                self.counters.behind += 1;
            }
        }
    }

    /// The next message for a card host, if there is one.
    pub fn next_message(&mut self, session: Session) -> Option<ToCard> {
        let (run, first) = (self.run, self.first);
        let known = self.cards.get_mut(&session.id);
        let card = known.filter(|card| card.connected && card.session == session.number)?;
        if let Some(message) = card.control.pop_front() {
            return Some(message);
        }
        let number = card.cursor.filter(|_| !card.on_bus)?;
        let logged = self.log.get(usize::try_from(number.checked_sub(first)?).ok()?)?;
        card.cursor = Some(number + 1);
        Some(ToCard::Event { run, number, event: Event::clone(&logged.event) })
    }

    /// The next answer for a card host on the bus.
    pub fn next_bus_answer(&mut self) -> Option<(CardId, ToCard)> {
        let mut on_bus = self.cards.iter_mut().filter(|(_, card)| card.on_bus && card.connected);
        on_bus.find_map(|(&id, card)| Some((id, card.control.pop_front()?)))
    }

    /// An event by its number, as a message; `None` if it is not there yet, or forgotten.
    pub fn event(&self, number: u64) -> Option<ToCard> {
        let logged = self.log.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?;
        Some(ToCard::Event { run: self.run, number, event: Event::clone(&logged.event) })
    }

    /// The number of the first event that is remembered.
    pub fn first_number(&self) -> u64 {
        self.first
    }

    /// The number of the next event.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Events up to this number have gone through.
    pub fn released(&self, now_ns: u64) -> u64 {
        if now_ns <= self.former_until_ns {
            return 0;
        }
        self.waited_for(now_ns).map(|card| card.acked).min().unwrap_or(self.next - 1)
    }

    /// When a lease is over without which the event would have gone through, if nothing is
    /// acknowledged until then.
    pub fn retry_at_ns(&self, number: u64, now_ns: u64) -> Option<u64> {
        if now_ns <= self.former_until_ns {
            return Some(self.former_until_ns);
        }
        let behind = self.waited_for(now_ns).filter(|card| card.acked < number);
        behind.filter_map(|card| card.lease_until_ns).min()
    }

    /// Do all card hosts know that no SELECT changes anything?
    pub fn is_plain(&self, now_ns: u64) -> bool {
        self.waited_for(now_ns).all(|card| card.plain)
    }

    /// How many card hosts have a running lease.
    pub fn leases(&self, now_ns: u64) -> usize {
        self.waited_for(now_ns).count()
    }

    /// A message came that nobody had reason to send.
    pub fn count_refused(&mut self) {
        self.counters.refused += 1;
    }

    /// Has the card host a running lease?
    pub fn is_waited_for(&self, id: CardId, now_ns: u64) -> bool {
        self.cards
            .get(&id)
            .is_some_and(|card| card.lease_until_ns.is_some_and(|until| until >= now_ns))
    }

    /// What happened so far.
    pub fn counters(&self) -> PublisherCounters {
        self.counters
    }

    /// Up to and including the last nanosecond.
    fn waited_for(&self, now_ns: u64) -> impl Iterator<Item = &Card> {
        self.cards
            .values()
            .filter(move |card| card.lease_until_ns.is_some_and(|until| until >= now_ns))
    }
}
