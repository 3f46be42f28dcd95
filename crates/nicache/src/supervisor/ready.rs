//! When the server is ready, judged by its listening sockets, and what to say if it takes long.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::listening::{Listening, look};
use super::namespace::Namespace;

/// How often to look.
pub const LOOK_EVERY: Duration = Duration::from_millis(25);
const REMIND_AFTER: Duration = Duration::from_secs(10);

/// Follows a server from its start until it listens.
#[derive(Debug)]
pub struct Readiness {
    ports: Vec<u16>,
    server: Ipv4Addr,
    since: Instant,
    ready: bool,
    reminded: bool,
}

impl Readiness {
    /// For a server started just now.
    pub fn new(ports: Vec<u16>, server: Ipv4Addr) -> Readiness {
        Readiness { ports, server, since: Instant::now(), ready: false, reminded: false }
    }

    /// Whether it has ever listened.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Looks again. True: it listens, for the first time.
    pub fn became_ready(&mut self, namespace: &Namespace) -> bool {
        let (ports, server) = (self.ports.clone(), self.server);
        let states = namespace.run(move || ports.into_iter().map(|port| look(port, server)).collect::<Vec<_>>());
        self.ready = states.contains(&Listening::Yes);
        if !self.ready && !self.reminded && self.since.elapsed() > REMIND_AFTER {
            self.reminded = true;
            self.remind(&states);
        }
        self.ready
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
