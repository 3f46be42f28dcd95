//! The card host's side of following, without I/O and clock.
//!
//! # Why nothing is served that is older than a change
//!
//! Let L be the relay's lease. A renewal is sent at s and received at r, not before s. The relay
//! waits for this card host's acknowledgment of whatever it publishes up to r + L, before the
//! database gets it. The card host takes itself for following only up to s + 0.9 L on its own clock
//! ([`Validity`](crate::Validity)). As both clocks run at rates that differ by less than a tenth,
//! its time is over first, however long the renewal was under way.
//!
//! What was published before r may have gone through without it: so the answer to a renewal names
//! the last such event, and the renewal counts only once that one has taken effect here
//! ([`Subscriber::handle`]).
//!
//! An event that is missing shows in the next one's number, and one that is missing at the end
//! stays unacknowledged: it is waited for. So from the moment that a renewal counts until its time
//! is over, no change reaches the database before its event has taken effect here.

use std::collections::VecDeque;

use crate::message::{Event, ToCard, ToRelay};
use crate::publisher::CardId;

/// How often the lease is renewed, in nanoseconds.
pub const RENEWAL_NS: u64 = 200_000_000;
/// A relay that says nothing for so long is gone.
pub const SILENCE_NS: u64 = 3_000_000_000;
/// Longest lease that is made use of.
const LEASE_NS_MAX: u64 = 60_000_000_000;
/// Renewals under way that are remembered.
const RENEWALS_MAX: usize = 64;

/// What a message means to the one who drives a [`Subscriber`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing.
    Nothing,
    /// Events follow.
    Begins {
        /// Nothing is missing since the last event.
        resumed: bool,
        /// Connections on which something is not done.
        busy: Vec<u64>,
    },
    /// The event is to take effect now; then [`Subscriber::taken`] is to be called.
    Event(Event),
    /// A part of an answer.
    Structure {
        /// The question.
        ask: u64,
        /// The part.
        part: Vec<u8>,
        /// This is the last part of the answer.
        last: bool,
        /// `part` says why it could not be read.
        failed: bool,
    },
}

/// Something is missing, or the relay is gone: whatever was kept is void, and a new greeting is
/// needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Events are missing.
    #[error("events are missing")]
    Gap,
    /// The relay has begun anew.
    #[error("the relay has begun anew")]
    Restarted,
    /// Nothing was heard.
    #[error("nothing was heard of the relay for too long")]
    Silence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Greeting,
    Following { run: u64, next: u64 },
}

/// The card host's side of following, without I/O and clock: takes events and renewals, and says up
/// to when the host follows. The [module](self) proves that nothing is served that is older than a
/// change.
#[derive(Debug)]
pub struct Subscriber {
    card: CardId,
    state: State,
    attempt: u64,
    /// What a new greeting would go on with.
    resume: Option<(u64, u64)>,
    heard_ns: u64,
    renewed_ns: u64,
    renewal: u64,
    /// Renewals that were sent, and when.
    sent: VecDeque<(u64, u64)>,
    /// Renewals that were received: events up to which number they need, and how long they last.
    received: VecDeque<(u64, u64)>,
    until_ns: Option<u64>,
}

impl Subscriber {
    /// Follows nobody. `card` is random, so no other card host has it.
    pub fn new(card: CardId) -> Self {
        Self {
            card,
            state: State::Away,
            attempt: 0,
            resume: None,
            heard_ns: 0,
            renewed_ns: 0,
            renewal: 0,
            sent: VecDeque::new(),
            received: VecDeque::new(),
            until_ns: None,
        }
    }

    /// Greets the relay. Whatever was kept must be void by now.
    pub fn greet(&mut self, now_ns: u64) -> ToRelay {
        self.lose();
        self.state = State::Greeting;
        self.heard_ns = now_ns;
        self.attempt += 1;
        ToRelay::Hello { card: self.card, attempt: self.attempt, resume: self.resume }
    }

    /// The way to the relay is lost.
    pub fn lose(&mut self) {
        self.state = State::Away;
        self.sent.clear();
        self.received.clear();
        self.until_ns = None;
    }

    /// Takes a message.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn handle(&mut self, message: ToCard, now_ns: u64) -> Result<Taken, Lost> {
        match (message, self.state) {
            (ToCard::Welcome { attempt, run, next, resumed, busy }, State::Greeting)
                if attempt == self.attempt =>
            {
                self.heard_ns = now_ns;
                self.state = State::Following { run, next };
                self.resume = Some((run, next));
                self.renewed_ns = 0;
                Ok(Taken::Begins { resumed, busy })
            }
            (ToCard::Event { run, number, event }, State::Following { run: mine, next }) => {
                if run != mine {
                    return Err(Lost::Restarted);
                }
                if number > next {
                    return Err(Lost::Gap);
                }
                self.heard_ns = now_ns;
                // A bus may repeat.
                Ok(if number < next { Taken::Nothing } else { Taken::Event(event) })
            }
            (
                ToCard::Renewed { run, renewal, published, lease_ns },
                State::Following { run: mine, .. },
            ) => {
                if run != mine {
                    return Err(Lost::Restarted);
                }
                self.heard_ns = now_ns;
                while let Some((sent, sent_ns)) = self.sent.pop_front() {
                    if sent > renewal {
                        self.sent.push_front((sent, sent_ns));
                        break;
                    }
                    if sent == renewal {
                        let lasts = lease_ns.min(LEASE_NS_MAX) / 10 * 9;
                        self.received.push_back((published, sent_ns.saturating_add(lasts)));
                        break;
                    }
                }
                self.count_renewals();
                Ok(Taken::Nothing)
            }
            (ToCard::Structure { ask, part, last, failed }, State::Following { .. }) => {
                self.heard_ns = now_ns;
                Ok(Taken::Structure { ask, part, last, failed })
            }
            _ => Ok(Taken::Nothing),
        }
    }

    /// The last event has taken effect. Returns the acknowledgment.
    pub fn taken(&mut self) -> Option<ToRelay> {
        let State::Following { run, next } = self.state else { return None };
        self.state = State::Following { run, next: next + 1 };
        self.resume = Some((run, next + 1));
        self.count_renewals();
        Some(ToRelay::Ack { run, number: next })
    }

    /// The renewal that is to be sent, if it is time to.
    ///
    /// # Errors
    /// [`Lost::Silence`].
    pub fn handle_time(&mut self, now_ns: u64, plain: bool) -> Result<Option<ToRelay>, Lost> {
        if self.state != State::Away && now_ns.saturating_sub(self.heard_ns) > SILENCE_NS {
            return Err(Lost::Silence);
        }
        let State::Following { run, .. } = self.state else { return Ok(None) };
        if self.renewed_ns != 0 && now_ns.saturating_sub(self.renewed_ns) < RENEWAL_NS {
            return Ok(None);
        }
        self.renewed_ns = now_ns.max(1);
        self.renewal += 1;
        self.sent.push_back((self.renewal, now_ns));
        if self.sent.len() > RENEWALS_MAX {
            self.sent.pop_front();
        }
        Ok(Some(ToRelay::Renew { run, renewal: self.renewal, plain }))
    }

    /// Up to when, on this machine's clock, no change can happen without this side's
    /// acknowledgment.
    pub fn until_ns(&self) -> Option<u64> {
        self.until_ns
    }

    /// Is the subscriber welcome at the relay?
    pub fn is_following(&self) -> bool {
        matches!(self.state, State::Following { .. })
    }

    fn count_renewals(&mut self) {
        let State::Following { next, .. } = self.state else { return };
        while let Some(&(published, until_ns)) = self.received.front()
            && published < next
        {
            self.received.pop_front();
            self.until_ns = self.until_ns.max(Some(until_ns));
        }
    }
}
