//! One replayer: an event loop over the connections of its sessions.
//!
//! A place holds a session from its begin until the server has closed its last connection. A
//! session that has all its replies makes room for the next one at once; its place is free for
//! another as soon as the server has closed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nicache_clock::{monotonic_ns, thread_cpu_ns};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::config::{ReplayerConfig, ReplayerError};
use super::conversation::{Conversation, Step};
use super::plan::Plan;
use super::report::{ErrorKind, ReplayerReport};
use super::schedule::{Demand, Next, Schedule};
use super::socket::Socket;
use super::watch::Watch;

/// Time for the first connection to each target, which is made before the replay and not used.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// A session that gets nothing for so long is given up.
const SILENCE_NS_MAX: u64 = 10_000_000_000;
/// A server that has not closed so long after the last reply is not waited for.
const CLOSING_NS_MAX: u64 = 1_000_000_000;
/// No session begins for so long after a connection has failed, lest the loop spins.
const CONNECT_PAUSE_NS: u64 = 20_000_000;
/// How often silent sessions are looked for and progress is told.
const TICK_NS: u64 = 250_000_000;
/// Sessions begun before sockets are looked at again: many more at once would not fit into a
/// server's queue of new connections.
const BEGINS_PER_TURN: usize = 64;
/// Events taken at once.
const EVENTS_MAX: usize = 256;
/// Large enough that a reply is mostly one call, small enough to stay in a core's cache.
const BUFFER_BYTES: usize = 128 * 1024;

struct Place {
    conversation: Conversation,
    socket: Option<Socket>,
    /// Index of the target.
    target: usize,
    /// Whether this session has had a connection.
    has_connected: bool,
    /// Distinguishes events and times of this session from those of earlier ones in this place.
    serial: u32,
    state: State,
    /// When something last came or went.
    heard_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// A session is on.
    Busy,
    /// All replies are there, the server's end is not.
    Closing,
}

/// Replays the sessions of replayer `number` on this thread, which makes all its sockets. In open
/// loop the thread keeps a timer slack of 1 ns afterwards.
///
/// # Errors
/// [`ReplayerError`]. What goes wrong later is in the report, no error.
pub fn run_part(
    plan: &Plan,
    config: &ReplayerConfig,
    number: usize,
    watch: &Watch,
    progress: &mut dyn FnMut(&Watch),
) -> Result<ReplayerReport, ReplayerError> {
    if config.targets.is_empty() || config.clients == 0 || number >= config.replayers {
        return Err(ReplayerError::Nothing);
    }
    for target in &config.targets {
        if let Err(error) = TcpStream::connect_timeout(&target.address, PROBE_TIMEOUT) {
            // The others would measure half a load.
            watch.stop();
            return Err(ReplayerError::Connect(target.address, error));
        }
    }
    if config.demand != Demand::Infinite {
        // The kernel may let a thread sleep 50 µs longer than asked for, which would count as
        // latency. If it refuses, it does.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
    let of = config.replayers;
    // At least one each, or its sessions would never come.
    let clients = (config.clients / of + usize::from(number < config.clients % of)).max(1);
    let start_ns = monotonic_ns();
    let epoll =
        epoll::create(CreateFlags::CLOEXEC).map_err(|error| ReplayerError::Epoll(error.into()))?;
    let part = Part {
        plan,
        config,
        watch,
        epoll,
        schedule: Schedule::new(
            config.demand,
            plan.sessions(),
            config.duration.is_some(),
            (number, of),
            config.seed,
            start_ns,
        ),
        clients,
        busy: 0,
        places: Vec::new(),
        free: Vec::new(),
        times: BinaryHeap::new(),
        sources_used: number,
        pause_until_ns: 0,
        buffer: vec![0; BUFFER_BYTES],
        report: ReplayerReport { from_ns: start_ns, ..ReplayerReport::default() },
        told: (0, 0, 0),
    };
    Ok(part.run(progress))
}

struct Part<'a> {
    plan: &'a Plan,
    config: &'a ReplayerConfig,
    watch: &'a Watch,
    epoll: OwnedFd,
    schedule: Schedule,
    /// Most sessions at once, and how many there are.
    clients: usize,
    busy: usize,
    places: Vec<Place>,
    free: Vec<usize>,
    /// When a batch is due: time, place, serial of its session.
    times: BinaryHeap<Reverse<(u64, usize, u32)>>,
    sources_used: usize,
    pause_until_ns: u64,
    buffer: Vec<u8>,
    report: ReplayerReport,
    /// What the watch was told: replies, bytes, errors.
    told: (u64, u64, u64),
}

impl Part<'_> {
    fn run(mut self, progress: &mut dyn FnMut(&Watch)) -> ReplayerReport {
        let start_ns = self.report.from_ns;
        let end_ns =
            self.config.duration.map_or(u64::MAX, |duration| start_ns + duration.as_nanos() as u64);
        let cpu_ns = thread_cpu_ns();
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let mut tick_ns = start_ns + TICK_NS;
        loop {
            let mut now = monotonic_ns();
            if now >= end_ns || self.watch.is_stopped() {
                break;
            }
            let begun = self.begin_sessions(now);
            if begun == Begun::Over && self.busy == 0 {
                break;
            }
            now = monotonic_ns();
            while let Some(&Reverse((at, place, serial))) = self.times.peek()
                && at <= now
            {
                self.times.pop();
                if self.places[place].serial == serial && self.places[place].state == State::Busy {
                    self.go_on(place, now);
                }
            }
            if now >= tick_ns {
                tick_ns = now + TICK_NS;
                self.look_for_silence(now);
                self.tell();
                progress(self.watch);
            }
            let mut until_ns = tick_ns.min(end_ns);
            if let Some(&Reverse((at, ..))) = self.times.peek() {
                until_ns = until_ns.min(at);
            }
            match begun {
                Begun::More => until_ns = now,
                Begun::At(at) => until_ns = until_ns.min(at),
                Begun::Full | Begun::Over => {}
            }
            self.wait(&mut events, until_ns.saturating_sub(now));
            for event in &events {
                self.handle(event.data.u64(), event.flags);
            }
        }
        self.report.to_ns = monotonic_ns().min(end_ns);
        self.report.cpu_seconds = (thread_cpu_ns() - cpu_ns) as f64 / 1e9;
        self.tell();
        self.report.finish();
        self.report
    }

    fn begin_sessions(&mut self, now: u64) -> Begun {
        if now < self.pause_until_ns {
            return Begun::At(self.pause_until_ns);
        }
        for _ in 0..BEGINS_PER_TURN {
            // Places whose server does not close are many only if it never does; then new sessions
            // wait for them.
            if self.busy == self.clients
                || self.places.len() - self.free.len() >= self.clients * 2 + BEGINS_PER_TURN
            {
                return Begun::Full;
            }
            match self.schedule.poll(now, self.plan.sessions()) {
                Next::Session { index, due_ns } => self.begin(index, due_ns, now),
                Next::At(at) => return Begun::At(at),
                Next::Over => return Begun::Over,
            }
            if now < self.pause_until_ns {
                return Begun::At(self.pause_until_ns);
            }
        }
        Begun::More
    }

    fn begin(&mut self, index: usize, due_ns: u64, now: u64) {
        self.report.count_begin(now - due_ns);
        let place = self.free.pop().unwrap_or_else(|| {
            let (conversation, state) = (Conversation::new(), State::Free);
            let (socket, has_connected) = (None, false);
            self.places.push(Place {
                conversation,
                socket,
                target: 0,
                has_connected,
                serial: 0,
                state,
                heard_ns: 0,
            });
            self.places.len() - 1
        });
        let speed = match self.config.demand {
            Demand::Log { speed } => Some(speed),
            Demand::Infinite | Demand::Rate { .. } => None,
        };
        let session = self.plan.sessions().get(index);
        let here = &mut self.places[place];
        here.conversation.begin(session, due_ns, speed);
        here.target = index % self.config.targets.len();
        (here.state, here.heard_ns, here.has_connected) = (State::Busy, now, false);
        self.busy += 1;
        self.go_on(place, now);
    }

    /// Does what the conversation wants until it has to wait.
    fn go_on(&mut self, place: usize, now: u64) {
        loop {
            let here = &mut self.places[place];
            match here.conversation.poll(self.plan, now) {
                Step::Connect => {
                    if let Err(error) = self.connect(place) {
                        self.give_up(place, ErrorKind::Connect, &error);
                        return;
                    }
                }
                Step::Send => {
                    let Some(socket) = &here.socket else { return };
                    let bytes = here
                        .conversation
                        .poll_bytes(self.plan, &self.config.targets[here.target].host);
                    match socket.send(bytes) {
                        Ok(Some(sent)) => {
                            here.conversation.handle_sent(sent);
                            here.heard_ns = now;
                        }
                        Ok(None) => return,
                        Err(error) => {
                            self.give_up(place, kind_of(&error), &error);
                            return;
                        }
                    }
                }
                Step::Receive => return,
                Step::Wait(until) => {
                    self.times.push(Reverse((until, place, here.serial)));
                    return;
                }
                Step::Over => {
                    here.state = State::Closing;
                    self.busy -= 1;
                    if here.socket.is_none() {
                        self.free(place);
                    }
                    return;
                }
            }
        }
    }

    fn connect(&mut self, place: usize) -> io::Result<()> {
        let here = &mut self.places[place];
        here.socket = None;
        let source = (!self.config.sources.is_empty()).then(|| {
            self.sources_used += 1;
            self.config.sources[self.sources_used % self.config.sources.len()]
        });
        let socket = Socket::connect(self.config.targets[here.target].address, source)?;
        let data = EventData::new_u64(u64::from(here.serial) << 32 | place as u64);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, data, flags)?;
        self.report.connections += 1;
        self.report.reconnections += u64::from(std::mem::replace(&mut here.has_connected, true));
        here.socket = Some(socket);
        here.conversation.handle_connection();
        Ok(())
    }

    fn handle(&mut self, data: u64, flags: EventFlags) {
        let (place, serial) = ((data & 0xffff_ffff) as usize, (data >> 32) as u32);
        let Some(here) = self.places.get(place) else { return };
        if here.serial != serial || here.state == State::Free {
            return;
        }
        let has_ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if (has_ended || flags.contains(EventFlags::IN)) && !self.receive(place, has_ended) {
            return;
        }
        if self.places[place].state == State::Busy {
            self.go_on(place, monotonic_ns());
        }
    }

    /// Receives what there is. False if the place's session is at its end with it.
    fn receive(&mut self, place: usize, has_ended: bool) -> bool {
        loop {
            let here = &mut self.places[place];
            let Some(socket) = &here.socket else { return true };
            let is_closing = here.state == State::Closing;
            let received = match socket.receive(&mut self.buffer) {
                Ok(None) => return true,
                Ok(Some(received)) => received,
                Err(_) if is_closing => 0,
                Err(error) => {
                    self.give_up(place, kind_of(&error), &error);
                    return false;
                }
            };
            if received == 0 {
                if is_closing {
                    self.free(place);
                    return false;
                }
                // A session that goes on does so on a new connection; this one need not be kept
                // half open until then.
                here.socket = None;
                if let Err(fault) = here.conversation.handle_end() {
                    self.give_up(place, fault.kind(), &fault);
                    return false;
                }
                return true;
            }
            if is_closing {
                continue;
            }
            here.heard_ns = monotonic_ns();
            let bytes = &self.buffer[..received];
            if let Err(fault) =
                here.conversation.handle_received(bytes, self.plan, here.heard_ns, &mut self.report)
            {
                self.give_up(place, fault.kind(), &fault);
                return false;
            }
            // A shorter read than asked for has emptied the socket, and what comes later makes
            // another event; only the end that is known to be there has to be fetched.
            if received < self.buffer.len() && !has_ended {
                return true;
            }
        }
    }

    /// Counts what a session can not get any longer, and ends it.
    fn give_up(&mut self, place: usize, kind: ErrorKind, error: &dyn std::fmt::Display) {
        if kind == ErrorKind::Connect {
            self.pause_until_ns = monotonic_ns() + CONNECT_PAUSE_NS;
        }
        let here = &mut self.places[place];
        let (unanswered, target) = here.conversation.unanswered(self.plan);
        self.report.count_failure(kind, unanswered, || format!("{target}: {error}"));
        if let Some(socket) = here.socket.take() {
            socket.reset();
        }
        if here.state == State::Busy {
            self.busy -= 1;
        }
        self.free(place);
    }

    fn free(&mut self, place: usize) {
        let here = &mut self.places[place];
        (here.socket, here.state) = (None, State::Free);
        here.serial = here.serial.wrapping_add(1);
        self.free.push(place);
    }

    fn look_for_silence(&mut self, now: u64) {
        for place in 0..self.places.len() {
            let here = &self.places[place];
            let silence_ns = now.saturating_sub(here.heard_ns);
            match here.state {
                State::Busy
                    if here.conversation.is_waiting_for_reply() && silence_ns > SILENCE_NS_MAX =>
                {
                    self.give_up(place, ErrorKind::Timeout, &"nothing came for 10 s");
                }
                State::Closing if silence_ns > CLOSING_NS_MAX => self.free(place),
                _ => {}
            }
        }
    }

    fn wait(&self, events: &mut Vec<Event>, timeout_ns: u64) {
        let mut timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns.min(TICK_NS) as i64 };
        // An interrupted wait is as good as a short one. Waiting for events themselves is exact to
        // a millisecond only, which matters if sessions have times.
        if self.config.demand != Demand::Infinite && timeout_ns != 0 {
            let _ =
                rustix::event::poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout));
            timeout.tv_nsec = 0;
        }
        events.clear();
        let _ = epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout));
    }

    fn tell(&mut self) {
        let now = (self.report.replies, self.report.body_bytes, self.report.errors.total());
        self.watch.replies.fetch_add(now.0 - self.told.0, Ordering::Relaxed);
        self.watch.body_bytes.fetch_add(now.1 - self.told.1, Ordering::Relaxed);
        self.watch.errors.fetch_add(now.2 - self.told.2, Ordering::Relaxed);
        self.told = now;
    }
}

fn kind_of(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => ErrorKind::Reset,
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        _ => ErrorKind::Connect,
    }
}

/// Why no session was begun any longer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// Enough sessions were begun for one turn.
    More,
    /// All connections are taken.
    Full,
    /// The next one is not due before this time.
    At(u64),
    /// There is none.
    Over,
}
