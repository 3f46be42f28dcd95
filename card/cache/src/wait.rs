//! Requests that wait for the reply to another one, so a change does not send everybody to the
//! server at once; or for the watcher, which is about to say whether an entry may still be served.
//!
//! A request waits once, and not for long; then it goes to the server. If something changes while
//! the other one is answered, so the reply is not kept, those who had come before it was
//! forwarded have it nevertheless, once two executions agree
//! ([`Store::said_since`](crate::store::Store::said_since)).
//!
//! Clients that wait may hold up what they wait for: a server with one process per connection
//! (Apache prefork, gunicorn) may have all of them wait for requests that are kept here, while the
//! one that was let through is in its backlog. So if the server says nothing at all for a while
//! (several times as long as it usually needs for the page), one more request is let through, on
//! the connection that the server has had for longest. If that is answered much faster than the
//! first one, the server is of that kind, and for a while one more is let through at once, then
//! another one when that is answered.
//!
//! Clients for whom the wait gets too long leave one after the other: if they all did, a server
//! that is busy would have so much to do at once that hardly a reply were ready before the next
//! change, and nobody's wait would ever be worth it.

use std::net::SocketAddrV4;
use std::time::Duration;

use nicache_http::Key;
use nicache_tcp::Time;

use crate::cache_status::Miss;
use crate::counters::Counters;
use crate::fill::{Fills, Unanswered};
use crate::outcomes::Outcome;

/// Longest wait for a reply of the server, unless others leave just then; and longest in any case.
const REPLY_MAX: Duration = Duration::from_secs(3);
const REPLY_EVER: Duration = Duration::from_secs(6);
/// Longest wait for a reply that is not an entry yet and may never be one.
const FIRST_MAX: Duration = Duration::from_millis(250);
/// Longest wait for the watcher, which needs a small part of this if it is not busy.
const VERDICT_MAX: Duration = Duration::from_millis(20);
/// A server that is silent for so long, and for several times what it usually needs, may be waiting
/// itself; twice as long each time that this was not it.
const SILENCE: Duration = Duration::from_millis(30);
const USUAL_TIMES: u32 = 4;
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// One that was let through needs so many times less than the first if that is held up.
const FASTER: u32 = 3;
/// Between two looks at that.
const LOOK: Duration = Duration::from_millis(10);
/// For so long one more request is let through at once to a server that was held up by that.
const PAIRED: Duration = Duration::from_secs(60);
/// Connections that can wait at once.
pub const WAITERS_MAX: usize = 1024;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The reply to another request for the same.
    Reply {
        /// How long the server usually needs for it.
        usual: Duration,
        /// Why nothing was found.
        miss: Miss,
    },
    /// The first reply to a request for the same.
    First {
        /// Why nothing was found.
        miss: Miss,
    },
    /// What the watcher says of an entry.
    Verdict,
}

impl Awaited {
    /// How long one may wait if another left then.
    fn longest(self, since: Time, left: Time) -> Time {
        match self {
            Self::Reply { usual, .. } => {
                (since + REPLY_MAX).max(left + space(usual)).min(since + REPLY_EVER)
            }
            Self::First { .. } => since + FIRST_MAX,
            Self::Verdict => since + VERDICT_MAX,
        }
    }
}

/// What two who leave are apart at least: what a silent server has.
fn space(usual: Duration) -> Duration {
    SILENCE.max(USUAL_TIMES * usual)
}

/// Requests that were let through because the server was silent.
struct LetThrough<Id> {
    /// The one that went before, and has no reply yet.
    first: Unanswered,
    /// The last of them if it has no reply, either, and when it was.
    last: Option<(Id, Time)>,
}

/// How the request at the front of a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Since when.
    pub since: Time,
    /// When it is to be looked at again, whatever happens.
    pub due: Time,
    /// The request waits, or has waited, for another one's reply, because nothing was found for
    /// that reason.
    pub collapsed: Option<Miss>,
}

/// The connections that wait. `Id` names one: it is compared and handed back, and nothing else.
pub struct Waiters<Id> {
    /// With the times at which they were opened.
    waiting: Vec<(Id, Time)>,
    /// [`Fills::ended`] when they were last looked at.
    fills_ended: u64,
    /// The watcher has answered since, or nothing is answered from memory any longer.
    changed: bool,
    /// When the server last sent something of a reply, and when a request was last let through
    /// since it did not.
    spoken: Time,
    released: Time,
    /// When one who had waited too long was last let go.
    left: Time,
    /// How much silence there may be until the next is.
    silence: Duration,
    let_through: Option<LetThrough<Id>>,
    paired_until: Time,
}

impl<Id: Copy + PartialEq> Waiters<Id> {
    /// A list on which nobody waits.
    pub fn new() -> Self {
        Self {
            waiting: Vec::with_capacity(WAITERS_MAX),
            fills_ended: 0,
            changed: false,
            spoken: Time(0),
            released: Time(0),
            left: Time(0),
            silence: SILENCE,
            let_through: None,
            paired_until: Time(0),
        }
    }

    /// The server has sent something of a reply on that connection; `client`: its client's end, as
    /// fills know it.
    #[inline]
    pub fn handle_reply(&mut self, to: &Id, client: impl FnOnce() -> SocketAddrV4, now: Time) {
        (self.spoken, self.silence) = (now, SILENCE);
        let Some(through) = &mut self.let_through else { return };
        if through.first.client == client() {
            self.let_through = None;
        } else if let Some((_, since)) = through.last.take_if(|(last, _)| last == to)
            && now.since(through.first.forwarded) >= FASTER * now.since(since)
        {
            self.paired_until = now + PAIRED;
        }
    }

    /// A request is let through because the server was silent, also to `first`.
    pub fn release(&mut self, id: Id, first: Option<Unanswered>, now: Time) {
        (self.released, self.silence) = (now, (2 * self.silence).min(SILENCE_MAX));
        // The one that is silent now may be the last of these; one that was silent for so long has
        // lost its client.
        let known = self.let_through.take().map(|through| through.first);
        let first = known.filter(|known| now < known.forwarded + REPLY_EVER).or(first);
        self.let_through = first.map(|first| LetThrough { first, last: Some((id, now)) });
    }

    /// The connection, which has waited since then, does not wait any longer.
    pub fn leave(&mut self, id: &Id, since: Time, now: Time) {
        if now >= since + REPLY_MAX {
            self.left = now;
        }
        self.waiting.retain(|(waiting, _)| waiting != id);
    }

    /// The watcher has answered about an entry, or the card no longer answers from memory.
    pub fn handle_change(&mut self) {
        self.changed = true;
    }

    /// May a request that has waited like this, if it has, wait (still)?
    pub fn may_wait(&self, earlier: Option<&Wait>, awaited: Awaited, now: Time) -> bool {
        earlier.is_none_or(|wait| now < awaited.longest(wait.since, self.left))
            && self.waiting.len() < WAITERS_MAX
    }

    /// May a request that finds nothing wait for the reply to another one? Not if that began after
    /// this one had begun to wait: a page that is not kept would be asked for by one after the
    /// other. Nor if the last reply was not kept, or if another one has waited for this one in
    /// vain: its client may have vanished.
    pub fn may_collapse(
        &self,
        earlier: Option<&Wait>,
        base: &Key,
        fills: &mut Fills,
        now: Time,
    ) -> bool {
        if let Some(wait) = earlier.filter(|wait| now >= wait.since + FIRST_MAX) {
            fills.handle_vain_wait(base, wait.since);
        }
        let begun = fills.awaited_since(base);
        let is_new = |wait: &Wait| begun.is_some_and(|begun| begun > wait.since);
        let was_kept =
            fills.last_outcome(base).is_none_or(|(outcome, _)| outcome == Outcome::Stored);
        begun.is_some()
            && was_kept
            && !earlier.is_some_and(is_new)
            && self.may_wait(earlier, Awaited::First { miss: Miss::Uri }, now)
    }

    /// Is one more request to be let through to a server that says nothing, or is known to be held
    /// up by those who wait, and is this one's connection, which was `opened` then, the oldest of
    /// them? `usually`: what the server needs for the reply that it waits for. `is_open` says
    /// whether a connection is still there.
    pub fn is_held_up(
        &self,
        earlier: Option<&Wait>,
        opened: Time,
        usually: Duration,
        is_open: impl Fn(&Id) -> bool,
        now: Time,
    ) -> bool {
        let is_older = |(id, its): &(Id, Time)| *its < opened && is_open(id);
        let is_silent = earlier.is_some_and(|wait| now >= self.silent_until(wait.since, usually));
        (is_silent || self.lacks_second(now)) && !self.waiting.iter().any(is_older)
    }

    /// Lets the request at the front of a connection, which was `opened` then, wait (still), if it
    /// [may](Waiters::may_wait).
    pub fn wait(
        &mut self,
        id: Id,
        opened: Time,
        earlier: Option<Wait>,
        awaited: Awaited,
        counters: &mut Counters,
        now: Time,
    ) -> Wait {
        counters.waits += u64::from(earlier.is_none());
        let since = earlier.map_or(now, |wait| wait.since);
        let longest = awaited.longest(since, self.left);
        let due = match awaited {
            Awaited::Reply { usual, .. } => {
                longest.min(self.silent_until(since, usual).max(now + LOOK))
            }
            Awaited::First { .. } => {
                longest.min(self.silent_until(since, Duration::ZERO).max(now + LOOK))
            }
            Awaited::Verdict => longest,
        };
        let mut collapsed = earlier.and_then(|wait| wait.collapsed);
        if let Awaited::Reply { miss, .. } | Awaited::First { miss } = awaited {
            let is_first = matches!(awaited, Awaited::First { .. });
            counters.waits_collapsed += u64::from(collapsed.is_none() && is_first);
            collapsed = Some(miss);
        }
        if !self.waiting.iter().any(|(waiting, _)| *waiting == id) {
            self.waiting.push((id, opened));
        }
        Wait { since, due, collapsed }
    }

    /// How many connections are to be looked at, because what they wait for may have happened: so
    /// many times [`Waiters::take_first`].
    pub fn to_look_at(&mut self, fills: &Fills) -> usize {
        let ended = fills.ended();
        if self.waiting.is_empty() || (self.fills_ended == ended && !self.changed) {
            return 0;
        }
        (self.fills_ended, self.changed) = (ended, false);
        self.waiting.len()
    }

    /// Takes the connection that has waited for longest. One that goes on waiting comes back by
    /// [`Waiters::wait`].
    pub fn take_first(&mut self) -> Option<Id> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0).0)
    }

    /// Is one more to be let through at once?
    fn lacks_second(&self, now: Time) -> bool {
        now < self.paired_until
            && self.let_through.as_ref().is_none_or(|through| through.last.is_none())
    }

    /// When the silence is too long for one who has waited since then for what the server `usually`
    /// needs so long for.
    fn silent_until(&self, since: Time, usually: Duration) -> Time {
        self.spoken.max(self.released).max(since) + self.silence.max(USUAL_TIMES * usually)
    }
}

impl<Id: Copy + PartialEq> Default for Waiters<Id> {
    fn default() -> Self {
        Self::new()
    }
}
