//! Requests that wait for the reply to another one, so that a change does not send everybody to the server at once; or for the watcher, which
//! is about to say whether an entry may still be served.
//!
//! A request waits once, and not for long; then it goes to the server. If something changes while the other one is answered, so that the reply is not kept,
//! those who had come before it was forwarded have it nevertheless, once two executions agree ([`Store::said_since`](crate::store::Store::said_since)).
//!
//! Whoever waits may hold up what he waits for: a server with one process per connection (Apache prefork, gunicorn) may have all of them wait
//! for requests that are kept here, while the one that was let through is in its backlog. So if the server says nothing at all for a while
//! (several times as long as it usually needs for the page), one more request is let through, on the connection that the server has had for longest. If that is answered much faster than the first one,
//! the server is of that kind, and for a while one more is let through at once, then another one when that is answered.
//!
//! And those for whom it gets too long leave one after the other: if they all did, a server that is busy would have so much to do at once that hardly a reply
//! were ready before the next change, and nobody's wait would ever be worth it.

use std::net::SocketAddrV4;
use std::time::Duration;

use nicache_coherence::fold;
use nicache_http::Key;
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::flow::Flow;
use crate::flow::cache_status::Miss;
use crate::outcomes::Outcome;
use crate::packet::FlowKey;

/// Longest wait for a reply of the server, unless others leave just then; and longest in any case.
const REPLY_MAX: Duration = Duration::from_secs(3);
const REPLY_EVER: Duration = Duration::from_secs(6);
/// Longest wait for a reply that is no entry yet and may never be one.
const FIRST_MAX: Duration = Duration::from_millis(250);
/// Longest wait for the watcher, which needs a small part of this if it is not busy.
const VERDICT_MAX: Duration = Duration::from_millis(20);
/// A server that is silent for so long, and for several times what it usually needs, may be waiting itself; twice as long each time that this
/// was not it.
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
pub(crate) enum Awaited {
    /// The reply to another request for the same, for which the server usually needs so long, since nothing was found for that reason.
    Reply { usual: Duration, miss: Miss },
    /// The first reply to a request for the same.
    First { miss: Miss },
    /// What the watcher says of an entry.
    Verdict,
}

impl Awaited {
    /// How long one may wait if another left then.
    fn longest(self, since: Time, left: Time) -> Time {
        match self {
            Awaited::Reply { usual, .. } => (since + REPLY_MAX).max(left + space(usual)).min(since + REPLY_EVER),
            Awaited::First { .. } => since + FIRST_MAX,
            Awaited::Verdict => since + VERDICT_MAX,
        }
    }
}

/// What two who leave are apart at least: what a silent server has.
fn space(usual: Duration) -> Duration {
    SILENCE.max(USUAL_TIMES * usual)
}

/// Requests that were let through because the server was silent.
struct LetThrough {
    /// The one that went before, and has no reply yet.
    first: Unanswered,
    /// The last of them if it has no reply, either, and when it was.
    last: Option<(FlowKey, Time)>,
}

/// A request that the server has said nothing to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered {
    /// The client's end of its connection.
    pub client: SocketAddrV4,
    /// When it was forwarded.
    pub forwarded: Time,
}

/// The connections that wait.
pub(crate) struct Waiters {
    /// With the times at which they were opened.
    waiting: Vec<(FlowKey, Time)>,
    /// [`Fills::ended`](crate::fill::Fills::ended) when they were last looked at.
    fills_ended: u64,
    /// The watcher has answered since.
    answered: bool,
    /// When the server last sent something of a reply, and when a request was last let through since it did not.
    spoken: Time,
    released: Time,
    /// When one who had waited too long was last let go.
    left: Time,
    /// How much silence there may be until the next is.
    silence: Duration,
    let_through: Option<LetThrough>,
    paired_until: Time,
}

impl Waiters {
    /// Nobody waits.
    pub(crate) fn new() -> Waiters {
        Waiters {
            waiting: Vec::with_capacity(WAITERS_MAX),
            fills_ended: 0,
            answered: false,
            spoken: Time(0),
            released: Time(0),
            left: Time(0),
            silence: SILENCE,
            let_through: None,
            paired_until: Time(0),
        }
    }

    /// The server has sent something of a reply.
    #[inline]
    pub(crate) fn handle_reply(&mut self, to: &FlowKey, now: Time) {
        (self.spoken, self.silence) = (now, SILENCE);
        let Some(through) = &mut self.let_through else { return };
        if through.first.client == SocketAddrV4::new(fold(to.client.to_ip()), to.client_port) {
            self.let_through = None;
        } else if let Some((_, since)) = through.last.take_if(|(last, _)| last == to)
            && now.since(through.first.forwarded) >= FASTER * now.since(since)
        {
            self.paired_until = now + PAIRED;
        }
    }

    /// A request is let through because the server was silent, also to `first`.
    pub(crate) fn release(&mut self, key: FlowKey, first: Option<Unanswered>, now: Time) {
        (self.released, self.silence) = (now, (2 * self.silence).min(SILENCE_MAX));
        // The one that is silent now may be the last of these; one that was silent for so long has lost its client.
        let known = self.let_through.take().map(|through| through.first);
        let first = known.filter(|known| now < known.forwarded + REPLY_EVER).or(first);
        self.let_through = first.map(|first| LetThrough { first, last: Some((key, now)) });
    }

    /// The connection, which has waited since then, does not wait any more.
    pub(crate) fn leave(&mut self, key: &FlowKey, since: Time, now: Time) {
        if now >= since + REPLY_MAX {
            self.left = now;
        }
        self.waiting.retain(|(waiting, _)| waiting != key);
    }

    /// Is one more to be let through at once?
    fn lacks_second(&self, now: Time) -> bool {
        now < self.paired_until && self.let_through.as_ref().is_none_or(|through| through.last.is_none())
    }

    /// When the silence is too long for one who has waited since then for what the server `usually` needs so long for.
    fn silent_until(&self, since: Time, usually: Duration) -> Time {
        self.spoken.max(self.released).max(since) + self.silence.max(USUAL_TIMES * usually)
    }

    /// The watcher has answered about an entry.
    pub(crate) fn handle_answer(&mut self) {
        self.answered = true;
    }
}

impl<W: Port, H: Port> Card<W, H> {
    /// May the request at the front of the connection wait (still)?
    pub(crate) fn may_wait(&self, flow: &Flow, awaited: Awaited, now: Time) -> bool {
        flow.wait.is_none_or(|(since, _)| now < awaited.longest(since, self.waiters.left))
            && self.waiters.waiting.len() < WAITERS_MAX
    }

    /// May a request that finds nothing wait for the reply to another one? Not if that began after this one had begun to wait: a page
    /// that is not kept would be asked for by one after the other. Nor if the last reply was not kept, or if another one has waited for this
    /// one in vain: its client may have vanished.
    pub(crate) fn may_collapse(&mut self, flow: &Flow, base: &Key, now: Time) -> bool {
        if let Some((since, _)) = flow.wait.filter(|(since, _)| now >= *since + FIRST_MAX) {
            self.fills.handle_vain_wait(base, since);
        }
        let begun = self.fills.awaited_since(base);
        let is_new = |(since, _): (Time, Time)| begun.is_some_and(|begun| begun > since);
        let was_kept = self.fills.last_outcome(base).is_none_or(|(outcome, _)| outcome == Outcome::Stored);
        begun.is_some()
            && was_kept
            && !flow.wait.is_some_and(is_new)
            && self.may_wait(flow, Awaited::First { miss: Miss::Uri }, now)
    }

    /// Is one more request to be let through to a server that says nothing, or is known to be held up by those who wait, and is this the oldest connection
    /// of them? `usually`: what the server needs for the reply that it waits for.
    pub(crate) fn is_held_up(&self, flow: &Flow, usually: Duration, now: Time) -> bool {
        let is_older = |(key, opened): &(FlowKey, Time)| *opened < flow.opened && self.flows.find(key).is_some();
        let is_silent = flow.wait.is_some_and(|(since, _)| now >= self.waiters.silent_until(since, usually));
        (is_silent || self.waiters.lacks_second(now)) && !self.waiters.waiting.iter().any(is_older)
    }

    /// Lets the request at the front of the connection wait.
    pub(crate) fn wait(&mut self, flow: &mut Flow, awaited: Awaited, now: Time) {
        self.counters.waits += u64::from(flow.wait.is_none());
        let since = flow.wait.map_or(now, |(since, _)| since);
        let longest = awaited.longest(since, self.waiters.left);
        let due = match awaited {
            Awaited::Reply { usual, .. } => longest.min(self.waiters.silent_until(since, usual).max(now + LOOK)),
            Awaited::First { .. } => longest.min(self.waiters.silent_until(since, Duration::ZERO).max(now + LOOK)),
            Awaited::Verdict => longest,
        };
        if let Awaited::Reply { miss, .. } | Awaited::First { miss } = awaited {
            self.counters.waits_collapsed +=
                u64::from(flow.collapsed.is_none() && matches!(awaited, Awaited::First { .. }));
            flow.collapsed = Some(miss);
        }
        flow.wait = Some((since, due));
        if !self.waiters.waiting.iter().any(|(key, _)| *key == flow.key) {
            self.waiters.waiting.push((flow.key, flow.opened));
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
            let (key, _) = self.waiters.waiting.remove(0);
            let Some(index) = self.flows.find(&key) else { continue };
            self.with_flow(index, now, |card, flow| {
                card.advance(flow, now);
                card.pump_client(flow, now);
                card.keep_unless_over(flow, now)
            });
        }
    }
}
