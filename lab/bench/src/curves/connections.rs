//! Non-blocking connections of one thread that asks for one object: begins them, tells what happens
//! to them.
//!
//! A connection for one request asks the server to close and waits for that, so the time that
//! a closed connection is remembered (TIME-WAIT) is spent at the server and no ports run out here.
//!
//! The thread never sleeps, as httperf never does: what it measures has no waking up in it, and
//! arrivals are on time.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use serde::{Deserialize, Serialize};

use super::reply::Checker;

/// After so long without its reply a connection has failed.
const TIMEOUT_NS: u64 = 5_000_000_000;
/// So long the server may take to close after its reply.
const CLOSING_NS_MAX: u64 = 1_000_000_000;
/// How often silent connections are looked for.
const LOOK_NS: u64 = 100_000_000;
/// Events taken at once.
const EVENTS_MAX: usize = 256;
/// Bytes received at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// What is asked for.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Of whom.
    pub server: SocketAddr,
    /// Which path.
    pub path: String,
    /// Bytes of the body that must come.
    pub body_bytes: u64,
    /// A connection for each request.
    pub close: bool,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    /// The handshake is complete.
    Connected,
    /// A reply is whole. The times are in nanoseconds since [`Connections::new`].
    Replied {
        /// The connection.
        place: usize,
        /// When it was begun or, if it stays open, when the request was sent.
        begun_ns: u64,
        /// When the last byte came.
        end_ns: u64,
        /// What [`Connections::open`] was told of this connection, for the caller.
        is_counted: bool,
    },
    /// A connection has failed; its place is free.
    Failed {
        /// Why the connection failed.
        failure: Failure,
        /// What [`Connections::open`] was told of this connection, for the caller.
        is_counted: bool,
    },
    /// The server has closed after its reply; the place is free.
    Ended,
}

/// Why a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection: refused, or this side has no port or descriptor for it.
    Connect,
    /// It ended or was reset before its reply was whole.
    Reset,
    /// No reply for five seconds.
    Timeout,
    /// Another reply than the one asked for.
    Wrong,
}

/// How many failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// No connection.
    pub connect: u64,
    /// Ended or reset before the reply was whole.
    pub reset: u64,
    /// No reply in time.
    pub timeout: u64,
    /// Wrong status or length.
    pub wrong: u64,
}

impl Failures {
    /// Counts one.
    pub fn count(&mut self, failure: Failure) {
        *match failure {
            Failure::Connect => &mut self.connect,
            Failure::Reset => &mut self.reset,
            Failure::Timeout => &mut self.timeout,
            Failure::Wrong => &mut self.wrong,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.connect + self.reset + self.timeout + self.wrong
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Connecting,
    /// The request is sent.
    Waiting,
    /// The reply is whole, and the connection stays open.
    Idle,
    /// The reply is whole, and the server is to close.
    Closing,
}

#[derive(Debug)]
struct Place {
    socket: Option<OwnedFd>,
    state: State,
    /// Tells events of an earlier connection in this place.
    serial: u32,
    begun_ns: u64,
    is_counted: bool,
    checker: Checker,
}

/// Non-blocking connections of one thread that asks for one object: begins them, and tells what
/// happens to them. Never sleeps.
pub(super) struct Connections {
    target: Target,
    request: Vec<u8>,
    epoll: OwnedFd,
    places: Vec<Place>,
    free: Vec<usize>,
    events: Vec<Event>,
    buffer: Vec<u8>,
    begin: Instant,
    look_ns: u64,
}

impl Connections {
    /// Room for so many at a time.
    ///
    /// # Errors
    /// What the system says of epoll.
    pub(super) fn new(target: Target, at_once: usize) -> io::Result<Self> {
        let close = if target.close { "Connection: close\r\n" } else { "" };
        let request =
            format!("GET {} HTTP/1.1\r\nHost: {}\r\n{close}\r\n", target.path, target.server.ip());
        let place = |_| Place {
            socket: None,
            state: State::Free,
            serial: 0,
            begun_ns: 0,
            is_counted: false,
            checker: Checker::default(),
        };
        Ok(Self {
            target,
            request: request.into_bytes(),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            places: (0..at_once).map(place).collect(),
            free: (0..at_once).rev().collect(),
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; BUFFER_BYTES],
            begin: Instant::now(),
            look_ns: 0,
        })
    }

    /// Nanoseconds since the beginning.
    pub(super) fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Whether there is no connection.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Whether any of them has no reply yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.places.iter().any(|place| matches!(place.state, State::Connecting | State::Waiting))
    }

    /// Begins a connection. What happens to it is told by [`Connections::poll`], unless it fails at
    /// once. `is_counted` is for the caller.
    ///
    /// # Errors
    /// There is no room, no port, no descriptor.
    pub(super) fn open(&mut self, is_counted: bool) -> Result<(), Failure> {
        let Some(&number) = self.free.last() else { return Err(Failure::Connect) };
        let begun_ns = self.now_ns();
        let place = &mut self.places[number];
        let socket = connect(self.target.server).map_err(|_| Failure::Connect)?;
        let data = EventData::new_u64(u64::from(place.serial) << 32 | number as u64);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, data, flags).map_err(|_| Failure::Connect)?;
        (place.socket, place.state) = (Some(socket), State::Connecting);
        (place.begun_ns, place.is_counted) = (begun_ns, is_counted);
        place.checker.clear();
        self.free.pop();
        Ok(())
    }

    /// Sends the next request of a connection that stays open and has its reply.
    ///
    /// # Errors
    /// It cannot be sent; the place is free then.
    pub(super) fn ask_again(&mut self, number: usize) -> Result<(), Failure> {
        let begun_ns = self.now_ns();
        let place = &mut self.places[number];
        let sent = place.socket.as_ref().is_some_and(|socket| send(socket, &self.request));
        (place.begun_ns, place.state) = (begun_ns, State::Waiting);
        if sent {
            return Ok(());
        }
        self.release(number);
        Err(Failure::Reset)
    }

    /// Appends what has happened meanwhile, without waiting for anything.
    pub(super) fn poll(&mut self, happened: &mut Vec<Happened>) {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // It can only be interrupted, which is as good as nothing having happened.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&now));
        for event in &events {
            self.handle(event.data.u64(), event.flags, happened);
        }
        self.events = events;
        let now_ns = self.now_ns();
        if now_ns >= self.look_ns {
            self.look_ns = now_ns + LOOK_NS;
            self.look_for_silence(now_ns, happened);
        }
    }

    fn handle(&mut self, data: u64, flags: EventFlags, happened: &mut Vec<Happened>) {
        let (number, serial) = ((data & 0xffff_ffff) as usize, (data >> 32) as u32);
        let Some(place) = self.places.get_mut(number).filter(|place| place.serial == serial) else {
            return;
        };
        let Some(socket) = &place.socket else { return };
        if place.state == State::Connecting {
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                return self.fail(number, Failure::Connect, happened);
            }
            if !flags.contains(EventFlags::OUT) {
                return;
            }
            happened.push(Happened::Connected);
            place.state = State::Waiting;
            if !self.target.close {
                place.begun_ns = self.begin.elapsed().as_nanos() as u64;
            }
            // A request always has room in an empty send buffer.
            if !send(socket, &self.request) {
                return self.fail(number, Failure::Reset, happened);
            }
        }
        let has_ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if has_ended || flags.contains(EventFlags::IN) {
            self.receive(number, has_ended, happened);
        }
    }

    fn receive(&mut self, number: usize, has_ended: bool, happened: &mut Vec<Happened>) {
        loop {
            let place = &mut self.places[number];
            let Some(socket) = &place.socket else { return };
            let received = match rustix::net::recv(socket, &mut self.buffer[..], RecvFlags::empty())
            {
                Ok((received, _)) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                // A server that resets after its reply has closed, too.
                Err(_) => 0,
            };
            match (received, place.state) {
                (0, State::Closing) => {
                    self.release(number);
                    return happened.push(Happened::Ended);
                }
                (0, _) => return self.fail(number, Failure::Reset, happened),
                (_, State::Waiting) => {}
                _ => return self.fail(number, Failure::Wrong, happened),
            }
            match place.checker.take(&self.buffer[..received], self.target.body_bytes) {
                Ok(true) => {
                    place.state = if self.target.close { State::Closing } else { State::Idle };
                    let end_ns = self.begin.elapsed().as_nanos() as u64;
                    let Place { begun_ns, is_counted, .. } = *place;
                    happened.push(Happened::Replied {
                        place: number,
                        begun_ns,
                        end_ns,
                        is_counted,
                    });
                }
                Ok(false) => {}
                Err(_) => return self.fail(number, Failure::Wrong, happened),
            }
            // A shorter read than asked for has emptied the socket, and what comes later makes
            // another event; only an end that is known to be there has to be fetched.
            if received < self.buffer.len() && !has_ended {
                return;
            }
        }
    }

    fn look_for_silence(&mut self, now_ns: u64, happened: &mut Vec<Happened>) {
        for number in 0..self.places.len() {
            let place = &self.places[number];
            let age_ns = now_ns.saturating_sub(place.begun_ns);
            match place.state {
                State::Connecting | State::Waiting if age_ns > TIMEOUT_NS => {
                    self.fail(number, Failure::Timeout, happened);
                }
                State::Closing if age_ns > TIMEOUT_NS + CLOSING_NS_MAX => {
                    self.reset(number);
                    happened.push(Happened::Ended);
                }
                _ => {}
            }
        }
    }

    fn fail(&mut self, number: usize, failure: Failure, happened: &mut Vec<Happened>) {
        let is_counted = self.places[number].is_counted;
        self.reset(number);
        happened.push(Happened::Failed { failure, is_counted });
    }

    /// Ends a connection so its port is free at once.
    fn reset(&mut self, number: usize) {
        if let Some(socket) = &self.places[number].socket {
            // If it cannot be set, it is closed as always.
            let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
        }
        self.release(number);
    }

    fn release(&mut self, number: usize) {
        let place = &mut self.places[number];
        (place.socket, place.state) = (None, State::Free);
        place.serial = place.serial.wrapping_add(1);
        self.free.push(number);
    }
}

impl Drop for Connections {
    /// Connections that are open end at once: many that linger would burden what is measured next.
    fn drop(&mut self) {
        for number in 0..self.places.len() {
            if self.places[number].state != State::Free {
                self.reset(number);
            }
        }
    }
}

fn connect(server: SocketAddr) -> io::Result<OwnedFd> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Sends a request, which is short. False: not whole.
fn send(socket: &OwnedFd, request: &[u8]) -> bool {
    loop {
        match rustix::net::send(socket, request, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.is_ok_and(|sent| sent == request.len()),
        }
    }
}
