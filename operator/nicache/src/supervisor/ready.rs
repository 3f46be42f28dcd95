//! When the server is ready, judged by its listening sockets and by an answer of its kernel through
//! the card, and what to say if it takes long.
//!
//! A listening socket alone says nothing of the way there: a card that has just been started may
//! not take frames yet. The server's programs hear of neither.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use nicache_netns::Namespace;

use super::listening::{Listening, look};

/// How often to look.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(25);
const REMIND_AFTER: Duration = Duration::from_secs(10);
/// How long the way to a server that listens may take to be there, before it is announced all the
/// same.
const WAY_MAX: Duration = Duration::from_secs(10);
/// How often the way is tried.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// The discard protocol (RFC 863): nobody is there, so the server's kernel says that the port is
/// unreachable; and who is there does nothing.
const DISCARD: u16 = 9;

/// Follows a server from its start until it listens.
#[derive(Debug)]
pub(super) struct Readiness {
    ports: Vec<u16>,
    server: Ipv4Addr,
    since: Instant,
    ready: bool,
    reminded: bool,
    ways: Vec<Way>,
    listens_since: Option<Instant>,
}

/// The way from here to one of the server's addresses, through its card.
#[derive(Debug)]
struct Way {
    socket: Option<UdpSocket>,
    tried: Option<Instant>,
    is_there: bool,
}

impl Way {
    fn to(server: Ipv4Addr) -> Self {
        let open = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_nonblocking(true)?;
            socket.connect(SocketAddr::from((server, DISCARD)))?;
            std::io::Result::Ok(socket)
        };
        Self { socket: open().ok(), tried: None, is_there: false }
    }

    /// Has anything come back by now? What could not even be tried is not waited for.
    fn is_there(&mut self, now: Instant) -> bool {
        let Some(socket) = &self.socket else { return true };
        if !self.is_there {
            self.is_there = match socket.recv(&mut [0]) {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::ConnectionRefused,
            };
            if self.tried.is_none_or(|tried| now.saturating_duration_since(tried) >= TRY_EVERY) {
                self.tried = Some(now);
                self.is_there |= socket
                    .send(&[])
                    .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            }
        }
        self.is_there
    }
}

impl Readiness {
    /// For a server started just now. `ways`: those of its addresses that are reached from here,
    /// each through a card.
    pub(super) fn new(
        ports: Vec<u16>,
        server: Ipv4Addr,
        ways: impl IntoIterator<Item = Ipv4Addr>,
    ) -> Self {
        let ways = ways.into_iter().map(Way::to).collect();
        let since = Instant::now();
        Self { ports, server, since, ready: false, reminded: false, ways, listens_since: None }
    }

    /// Whether it has ever listened.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Looks again. True: it listens and is reached, for the first time.
    pub(super) fn became_ready(&mut self, namespace: &Namespace) -> bool {
        let (ports, server) = (self.ports.clone(), self.server);
        let states = namespace
            .run(move || ports.into_iter().map(|port| look(port, server)).collect::<Vec<_>>());
        let listens = states.contains(&Listening::Yes);
        self.ready = listens && self.is_reached(Instant::now());
        if !listens && !self.reminded && self.since.elapsed() > REMIND_AFTER {
            self.reminded = true;
            self.remind(&states);
        }
        self.ready
    }

    fn is_reached(&mut self, now: Instant) -> bool {
        let since = *self.listens_since.get_or_insert(now);
        if self.ways.iter_mut().all(|way| way.is_there(now)) {
            return true;
        }
        let is_late = now.saturating_duration_since(since) >= WAY_MAX;
        if is_late {
            tracing::warn!(
                "the server listens, but nothing has come back from it through the card for {} s: the machine may be very busy, or drops what is \
                 sent to UDP port {DISCARD}",
                WAY_MAX.as_secs()
            );
        }
        is_late
    }

    fn remind(&self, states: &[Listening]) {
        let ports = self.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if states.contains(&Listening::LoopbackOnly) {
            tracing::warn!(
                "the server listens on port {ports} of its loopback address only, where no client reaches it: let it listen on \
                 0.0.0.0 or {}",
                self.server
            );
        } else {
            tracing::warn!(
                "the server does not listen on port {ports} yet; if it speaks HTTP on another port, say --http-port PORT"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_there_once_something_comes_back() {
        let mut way = Way::to(Ipv4Addr::LOCALHOST);
        let mut now = Instant::now();
        let tries = (0..100).position(|_| {
            now += TRY_EVERY;
            way.is_there(now)
        });
        assert!(tries.is_some_and(|tries| tries < 99), "{way:?}");
        // Nobody has this address (RFC 5737).
        let mut nowhere = Way::to(Ipv4Addr::new(192, 0, 2, 1));
        nowhere.tried = Some(now);
        assert!(nowhere.socket.is_none() || !nowhere.is_there(now));
    }

    #[test]
    fn a_way_that_is_not_there_is_not_waited_for_for_ever() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(silent.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut readiness = Readiness::new(vec![80], Ipv4Addr::LOCALHOST, []);
        let now = Instant::now();
        assert!(readiness.is_reached(now), "there is no way to be tried");
        readiness = Readiness::new(vec![80], Ipv4Addr::LOCALHOST, []);
        readiness.ways.push(Way { socket: Some(socket), tried: None, is_there: false });
        assert!(!readiness.is_reached(now) && !readiness.is_reached(now + WAY_MAX - TRY_EVERY));
        assert!(readiness.is_reached(now + WAY_MAX));
    }
}
