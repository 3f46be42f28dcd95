//! A thread that reads pages over many connections and has every reply judged.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nicache_clock::{monotonic_ns, unix_ns};
use nicache_reply::{AtClose, Method, WholeReply};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use crate::check::{Breach, Checker, Finding, Reply, Route, Rules};
use crate::connection::{Asked, Connection, Received};
use crate::excerpt::{beginning, excerpt, whole};
use crate::page::Chooser;
use crate::plan::Direct;
use crate::report::{DESCRIBED_MAX, EditTimes, HeldBack, Tally, Violation};

/// How often deadlines and the phase are looked at.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// After a failed attempt to connect.
const RETRY_NS: u64 = 20_000_000;
/// Events taken at once.
const EVENTS_MAX: usize = 256;
/// Replies of one thread that are judged when everything is over. More are violations at once.
const HELD_BACK_MAX: usize = 1 << 18;
/// Those of them that can be told in words.
const HELD_BACK_TOLD_MAX: usize = 1 << 10;
/// Edits told with a violation.
const EDITS_TOLD: usize = 4;

/// What readers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Ask for random pages.
    Load,
    /// Ask for nothing.
    Rest,
    /// Ask for every page once on every connection, and end.
    LastLook,
}

impl Phase {
    fn number(self) -> u8 {
        self as u8
    }
}

/// Counters of one thread that others look at, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Live {
    pub(crate) replies: AtomicU64,
    pub(crate) violations: AtomicU64,
}

/// What all reader threads share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) rules: &'a Rules,
    /// The request for each page.
    pub(crate) requests: Vec<Vec<u8>>,
    pub(crate) chooser: Chooser,
    pub(crate) pipeline: usize,
    pub(crate) timeout: Duration,
    pub(crate) start_ns: u64,
    pub(crate) live: Vec<Live>,
    phase: AtomicU8,
    /// Threads without requests on their way.
    pub(crate) resting: AtomicUsize,
    described: Mutex<Vec<Violation>>,
    is_full: AtomicBool,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(
        rules: &'a Rules,
        requests: Vec<Vec<u8>>,
        chooser: Chooser,
        threads: usize,
        pipeline: usize,
        timeout: Duration,
    ) -> Self {
        Shared {
            rules,
            requests,
            chooser,
            pipeline: pipeline.max(1),
            timeout,
            start_ns: monotonic_ns(),
            live: (0..threads).map(|_| Live::default()).collect(),
            phase: AtomicU8::new(Phase::Load.number()),
            resting: AtomicUsize::new(0),
            described: Mutex::new(Vec::new()),
            is_full: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase.number(), Ordering::SeqCst);
    }

    fn phase(&self) -> Phase {
        let number = self.phase.load(Ordering::SeqCst);
        [Phase::Load, Phase::Rest]
            .into_iter()
            .find(|phase| phase.number() == number)
            .unwrap_or(Phase::LastLook)
    }

    pub(crate) fn replies(&self) -> u64 {
        self.live.iter().map(|live| live.replies.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn violations(&self) -> u64 {
        self.live.iter().map(|live| live.violations.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn into_described(self) -> Vec<Violation> {
        let mut described = self.described.into_inner().unwrap_or_else(PoisonError::into_inner);
        described.sort_by(|a, b| a.ended_ms.total_cmp(&b.ended_ms));
        described
    }

    /// The replies that were held back are the server's own, or violations.
    pub(crate) fn judge_held_back(&self, tally: &mut Tally) {
        for HeldBack { asked, findings, described } in std::mem::take(&mut tally.held_back) {
            let page = &self.rules.pages[asked.page];
            let is_servers = |finding: &Finding| match (finding.subject, finding.shown) {
                (Some(subject), Some(shown)) => {
                    let sightings = &page.sightings[subject];
                    // Between its last sighting and the first newer reply nobody knows.
                    let is_over = || page.floors[subject].passed_ns(shown, asked.sent_ns).is_some();
                    sightings.has(shown, asked.sent_ns) || sightings.has(shown, 0) && !is_over()
                }
                _ => false,
            };
            if findings.iter().all(is_servers) {
                tally.as_old_as_server += 1;
            } else {
                self.keep(described);
                tally.condemn(asked.page, Route::Proved, breaches(&findings));
            }
        }
    }

    /// In words what is wrong, unless enough is told already.
    fn describe(
        &self,
        place: &Place,
        asked: Asked,
        ended_ns: u64,
        finding: &Finding,
        excerpt: impl FnOnce() -> String,
    ) -> Option<Violation> {
        if self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        // What was before the start has a negative time.
        let ms = |ns: u64| (ns as f64 - self.start_ns as f64) / 1e6;
        let subject = finding.subject.map(|subject| &self.rules.subjects[subject]);
        let edits = subject.map_or(Vec::new(), |subject| {
            let history = subject.log.lock();
            let times = history.latest(ended_ns).map(|(version, begin_ns, end_ns)| EditTimes {
                version,
                begin_ms: ms(begin_ns),
                end_ms: end_ns.map(ms),
            });
            times.take(EDITS_TOLD).collect()
        });
        Some(Violation {
            breach: finding.breach,
            page: self.rules.pages[asked.page].target.clone(),
            direct: place.direct.is_some(),
            connection: place.number,
            sent_ms: ms(asked.sent_ns),
            ended_ms: ms(ended_ns),
            subject: subject.map(|subject| subject.name.clone()),
            shown: finding.shown,
            oldest: finding.possible.map(|possible| possible.oldest),
            newest: finding.possible.map(|possible| possible.newest),
            older_by_ms: finding.by_ns.map(|ns| ns as f64 / 1e6),
            edits,
            excerpt: excerpt(),
        })
    }

    /// Keeps the first violations.
    fn keep(&self, violations: impl IntoIterator<Item = Violation>) {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        let room = DESCRIBED_MAX - described.len();
        described.extend(violations.into_iter().take(room));
        self.is_full.store(described.len() >= DESCRIBED_MAX, Ordering::Relaxed);
    }
}

/// One of the connections that there are to be.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) number: usize,
    /// By way of what is to be proved.
    pub(crate) server: SocketAddr,
    /// Past it, if so.
    pub(crate) direct: Option<Direct>,
    pub(crate) from: Option<IpAddr>,
}

impl Place {
    fn route(&self) -> Route {
        if self.direct.is_some() { Route::Direct } else { Route::Proved }
    }

    fn open(&self, now_ns: u64) -> io::Result<Connection> {
        match &self.direct {
            None => Connection::open(self.server, self.from, now_ns),
            Some(direct) => {
                direct.within(|| Connection::open(direct.address, self.from, now_ns)).flatten()
            }
        }
    }
}

#[derive(Debug)]
struct Slot {
    place: Place,
    connection: Option<Connection>,
    /// No new attempt to connect before this.
    retry_ns: u64,
    /// Why the last attempt failed.
    failure: Option<io::Error>,
    /// Pages that were read in the last look.
    looked_at: usize,
}

/// A reader thread.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    shared: &'a Shared<'a>,
    live: &'a Live,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    judge: Judge<'a>,
    random: fastrand::Rng,
    phase: Phase,
    /// When the present phase began.
    phase_ns: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        shared: &'a Shared<'a>,
        number: usize,
        places: Vec<Place>,
        random: fastrand::Rng,
    ) -> io::Result<Self> {
        let slot =
            |place| Slot { place, connection: None, retry_ns: 0, failure: None, looked_at: 0 };
        Ok(Reader {
            shared,
            live: &shared.live[number],
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            slots: places.into_iter().map(slot).collect(),
            judge: Judge {
                shared,
                checker: Checker::new(shared.rules),
                tally: Tally::new(shared.rules.pages.len()),
                has_clock: shared.rules.pages.iter().map(|page| page.within_ns.is_some()).collect(),
            },
            random,
            phase: Phase::Load,
            phase_ns: monotonic_ns(),
        })
    }

    /// Reads until the last look is over.
    pub(crate) fn run(mut self) -> Tally {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let mut next_tick_ns = 0;
        let mut is_resting = false;
        loop {
            let now = monotonic_ns();
            let phase = self.shared.phase();
            if phase != self.phase {
                (self.phase, self.phase_ns, next_tick_ns) = (phase, now, 0);
            }
            if now >= next_tick_ns {
                (0..self.slots.len()).for_each(|slot| self.tend(slot, now));
                next_tick_ns = now + TICK.tv_nsec as u64;
            }
            let is_idle = |slot: &Slot| {
                slot.connection.as_ref().is_none_or(|connection| connection.asked.is_empty())
            };
            if self.phase == Phase::Rest && !is_resting && self.slots.iter().all(is_idle) {
                is_resting = true;
                self.shared.resting.fetch_add(1, Ordering::SeqCst);
            }
            if self.phase == Phase::LastLook && self.slots.iter().all(|slot| self.is_done(slot)) {
                break;
            }
            events.clear();
            // An interrupted wait is as good as a short one.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&TICK));
            for event in &events {
                self.handle(event.data.u64() as usize, event.flags);
            }
            self.live.replies.store(self.judge.tally.replies, Ordering::Relaxed);
            self.live.violations.store(self.judge.tally.violations, Ordering::Relaxed);
        }
        let mut tally = self.judge.tally;
        tally.measured = self.judge.checker.measured;
        tally
    }

    fn is_done(&self, slot: &Slot) -> bool {
        slot.looked_at == self.shared.requests.len()
    }

    fn timeout_ns(&self) -> u64 {
        self.shared.timeout.as_nanos() as u64
    }

    /// Opens what is closed, asks what is idle, gives up what does not answer.
    fn tend(&mut self, index: usize, now: u64) {
        let timeout_ns = self.timeout_ns();
        let slot = &mut self.slots[index];
        match &slot.connection {
            None => self.open(index, now),
            Some(connection) if !connection.established => {
                if now > connection.opened_ns + timeout_ns {
                    self.judge.tally.connect_failures += 1;
                    self.close(index, now);
                }
            }
            Some(connection) => match connection.asked.front().copied() {
                None => self.ask(index),
                Some(asked) if now > asked.sent_ns + timeout_ns => {
                    let text = beginning(connection.reader.unread());
                    self.judge.condemn(&slot.place, asked, now, Breach::Silent, || {
                        format!("there is: {text}")
                    });
                    if asked.last {
                        slot.looked_at += 1;
                    }
                    self.close(index, now);
                }
                Some(_) => {}
            },
        }
        // Without a connection, the last look cannot end in another way.
        let slot = &mut self.slots[index];
        if self.phase == Phase::LastLook
            && slot.connection.is_none()
            && now > self.phase_ns + timeout_ns
        {
            for page in slot.looked_at..self.shared.requests.len() {
                let asked = Asked { page, sent_ns: self.phase_ns, last: true };
                let why = || {
                    slot.failure
                        .as_ref()
                        .map_or_else(|| "it ends each time".to_owned(), ToString::to_string)
                };
                self.judge.condemn(&slot.place, asked, now, Breach::Silent, || {
                    format!("no connection: {}", why())
                });
            }
            slot.looked_at = self.shared.requests.len();
        }
    }

    fn open(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        let is_wanted = match self.phase {
            Phase::Load => true,
            Phase::Rest => false,
            Phase::LastLook => slot.looked_at < self.shared.requests.len(),
        };
        if !is_wanted || now < slot.retry_ns {
            return;
        }
        let opened = slot.place.open(now).and_then(|connection| {
            let data = EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &connection, data, EventFlags::IN | EventFlags::OUT)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => slot.connection = Some(connection),
            Err(error) => {
                self.judge.tally.connect_failures += 1;
                slot.failure = Some(error);
                slot.retry_ns = now + RETRY_NS;
            }
        }
    }

    /// Ends the connection; its requests without reply are counted.
    fn close(&mut self, index: usize, now: u64) {
        let slot = &mut self.slots[index];
        if let Some(connection) = slot.connection.take() {
            self.judge.tally.unanswered += connection.asked.len() as u64;
            if !connection.established {
                slot.retry_ns = now + RETRY_NS;
            }
        }
    }

    /// Sends the next requests on an idle connection.
    fn ask(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(connection) = slot.connection.as_mut().filter(|connection| connection.established)
        else {
            return;
        };
        let sent_ns = monotonic_ns();
        match self.phase {
            Phase::Load => {
                for _ in 0..self.shared.pipeline {
                    let page = self.shared.chooser.choose(&mut self.random);
                    connection
                        .ask(Asked { page, sent_ns, last: false }, &self.shared.requests[page]);
                }
            }
            Phase::Rest => return,
            Phase::LastLook => {
                let Some(request) = self.shared.requests.get(slot.looked_at) else { return };
                connection.ask(Asked { page: slot.looked_at, sent_ns, last: true }, request);
            }
        }
        self.write(index);
    }

    fn write(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(connection) = &mut slot.connection else { return };
        let is_ok = match connection.write() {
            Ok(true) => Ok(()),
            // Rare enough to be switched back by the next event.
            Ok(false) => self.watch(index, EventFlags::IN | EventFlags::OUT),
            Err(error) => Err(error),
        };
        if is_ok.is_err() {
            self.close(index, monotonic_ns());
        }
    }

    fn watch(&self, index: usize, flags: EventFlags) -> io::Result<()> {
        match &self.slots[index].connection {
            Some(connection) => {
                Ok(epoll::modify(&self.epoll, connection, EventData::new_u64(index as u64), flags)?)
            }
            None => Ok(()),
        }
    }

    fn handle(&mut self, index: usize, flags: EventFlags) {
        let Some(connection) = &mut self.slots[index].connection else { return };
        if !connection.established {
            let established =
                connection.establish().and_then(|()| self.watch(index, EventFlags::IN));
            if let Err(error) = established {
                self.judge.tally.connect_failures += 1;
                let slot = &mut self.slots[index];
                slot.failure = Some(error);
                slot.connection = None;
                slot.retry_ns = monotonic_ns() + RETRY_NS;
                return;
            }
            self.judge.tally.connections += 1;
            self.ask(index);
            return;
        }
        if flags.contains(EventFlags::OUT) {
            if self.watch(index, EventFlags::IN).is_err() {
                self.close(index, monotonic_ns());
                return;
            }
            self.write(index);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(index);
        }
    }

    fn receive(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(connection) = &mut slot.connection else { return };
        let received = connection.read();
        let ended_ns = monotonic_ns();
        let goes_on = match received {
            Ok(Received::Nothing) => true,
            Ok(Received::Bytes) => self.judge.take_replies(slot, ended_ns),
            Ok(Received::End) => {
                self.judge.take_end(slot, ended_ns);
                false
            }
            Err(error) => {
                self.judge.take_error(slot, ended_ns, &error);
                false
            }
        };
        if !goes_on {
            self.close(index, ended_ns);
            self.open(index, ended_ns);
        } else if self.slots[index]
            .connection
            .as_ref()
            .is_some_and(|connection| connection.asked.is_empty())
        {
            self.ask(index);
        }
    }
}

/// Judges and counts.
#[derive(Debug)]
struct Judge<'a> {
    shared: &'a Shared<'a>,
    checker: Checker<'a>,
    tally: Tally,
    has_clock: Vec<bool>,
}

impl Judge<'_> {
    /// Takes the replies that are whole. False: the connection is over.
    fn take_replies(&mut self, slot: &mut Slot, ended_ns: u64) -> bool {
        let Some(connection) = &mut slot.connection else { return false };
        loop {
            match connection.reader.next(Method::Get) {
                Ok(Some(response)) => {
                    let Some(asked) = connection.asked.pop_front() else {
                        let nobody = Asked { page: 0, sent_ns: ended_ns, last: false };
                        let text = || {
                            format!(
                                "a reply that nobody asked for: {}",
                                whole(response.head, response.body)
                            )
                        };
                        self.condemn(&slot.place, nobody, ended_ns, Breach::Malformed, text);
                        return false;
                    };
                    let keep_alive = response.keep_alive;
                    self.judge(&slot.place, asked, ended_ns, &response);
                    slot.looked_at += usize::from(asked.last);
                    if !keep_alive {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    let asked = connection.asked.pop_front();
                    let asked = asked.unwrap_or(Asked { page: 0, sent_ns: ended_ns, last: false });
                    let text = || format!("{error}: {}", beginning(connection.reader.unread()));
                    self.condemn(&slot.place, asked, ended_ns, Breach::Malformed, text);
                    slot.looked_at += usize::from(asked.last);
                    return false;
                }
            }
        }
    }

    /// The server has closed the connection.
    fn take_end(&mut self, slot: &mut Slot, ended_ns: u64) {
        let Some(connection) = &mut slot.connection else { return };
        let Some(asked) = connection.asked.front().copied() else { return };
        match connection.reader.handle_close() {
            // Servers end idle connections when they like.
            AtClose::Nothing => return,
            AtClose::Whole(response) => {
                self.judge(&slot.place, asked, ended_ns, &response);
            }
            AtClose::Cut => self.take_cut(slot, ended_ns, "the connection ended"),
        }
        if let Some(connection) = &mut slot.connection {
            connection.asked.pop_front();
        }
        slot.looked_at += usize::from(asked.last);
    }

    /// The connection broke.
    fn take_error(&mut self, slot: &mut Slot, ended_ns: u64, error: &io::Error) {
        let Some(connection) = &mut slot.connection else { return };
        let is_cut = connection.reader.handle_close() != AtClose::Nothing;
        if let Some(asked) = connection.asked.front().copied()
            && is_cut
        {
            self.take_cut(slot, ended_ns, &error.to_string());
            if let Some(connection) = &mut slot.connection {
                connection.asked.pop_front();
            }
            slot.looked_at += usize::from(asked.last);
        }
    }

    fn take_cut(&mut self, slot: &Slot, ended_ns: u64, why: &str) {
        let Some(connection) = &slot.connection else { return };
        let Some(&asked) = connection.asked.front() else { return };
        let text = || format!("{why} after: {}", beginning(connection.reader.unread()));
        self.condemn(&slot.place, asked, ended_ns, Breach::Cut, text);
    }

    fn judge(&mut self, place: &Place, asked: Asked, ended_ns: u64, response: &WholeReply<'_>) {
        let &WholeReply { status, head, body, .. } = response;
        self.count(place, asked);
        *self.tally.statuses.entry(status).or_default() += 1;
        self.tally.body_bytes += body.len() as u64;
        self.tally.last_replies += u64::from(asked.last);
        let reply = Reply {
            page: asked.page,
            route: place.route(),
            status,
            body,
            sent_ns: asked.sent_ns,
            ended_ns,
            unix_offset_ns: if self.has_clock[asked.page] {
                unix_ns().saturating_sub(monotonic_ns())
            } else {
                0
            },
            last: asked.last,
        };
        let findings = self.checker.check(&reply);
        if findings.is_empty() {
            return;
        }
        let may_be_the_servers = self.may_be_the_servers(place, &findings);
        let is_told = !may_be_the_servers || self.tally.held_back.len() < HELD_BACK_TOLD_MAX;
        let mut described = Vec::new();
        for finding in findings.iter().filter(|_| is_told) {
            described.extend(self.shared.describe(place, asked, ended_ns, finding, || {
                finding
                    .place
                    .as_ref()
                    .map_or_else(|| whole(head, body), |place| excerpt(body, place))
            }));
        }
        if may_be_the_servers {
            self.tally.held_back.push(HeldBack { asked, findings, described });
            return;
        }
        self.shared.keep(described);
        self.tally.condemn(asked.page, place.route(), breaches(&findings));
    }

    /// Is nothing wrong with the reply but versions that the server itself may still give?
    fn may_be_the_servers(&self, place: &Place, findings: &[Finding]) -> bool {
        let is_old = |finding: &Finding| {
            matches!(finding.breach, Breach::Stale | Breach::NeverUpdated)
                && finding
                    .subject
                    .is_some_and(|subject| self.shared.rules.subjects[subject].as_server)
        };
        place.route() == Route::Proved
            && self.tally.held_back.len() < HELD_BACK_MAX
            && findings.iter().all(is_old)
    }

    /// A violation that needs no look at a body.
    fn condemn(
        &mut self,
        place: &Place,
        asked: Asked,
        ended_ns: u64,
        breach: Breach,
        text: impl FnOnce() -> String,
    ) {
        self.count(place, asked);
        self.shared.keep(self.shared.describe(place, asked, ended_ns, &Finding::new(breach), text));
        self.tally.condemn(asked.page, place.route(), [breach]);
    }

    fn count(&mut self, place: &Place, asked: Asked) {
        match place.route() {
            Route::Proved => {
                self.tally.replies += 1;
                self.tally.pages[asked.page].0 += 1;
            }
            Route::Direct => self.tally.direct_replies += 1,
        }
    }
}

fn breaches(findings: &[Finding]) -> impl Iterator<Item = Breach> + '_ {
    findings.iter().map(|finding| finding.breach)
}
