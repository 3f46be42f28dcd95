//! The card's own client: asks the server again for pages that the card holds, through the wire
//! like anybody else.
//!
//! It connects from an address of its own, and from ports that nobody else uses there, by which the
//! card knows it. As a client of a proxy on this machine it asks from the proxy's address, as the
//! server may believe what proxies say by their address ([`OwnPorts`] tells the card which
//! connections are not the proxy's). Where clients' connections begin with a header of the PROXY
//! protocol, its own do, too, with an address that nobody has.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nicache_cache::Recheck;
use nicache_card::OwnPorts;
use nicache_http::{Follower, Method, ProxyVersion, own_address, parse_framing, proxy_header};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use crate::setup::RecheckAddresses;

/// Ports of the card's own client: above those that Linux gives to other clients.
/// [`OwnPorts::COUNT`] of them.
pub(crate) const PORTS: RangeInclusive<u16> = 61_000..=61_255;

/// Requests at the server at once. More would take the server's time from its clients.
const WORKERS: usize = 4;
/// Requests that wait for a worker.
const WAITING_MAX: usize = 64;
/// A server that says nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Hands requests to the workers.
#[derive(Clone)]
pub(crate) struct Rechecker {
    queue: SyncSender<Recheck>,
}

impl Rechecker {
    /// Starts the workers, which end with the last clone.
    pub(crate) fn start(
        addresses: RecheckAddresses,
        own_ports: &Arc<OwnPorts>,
    ) -> io::Result<Self> {
        let (queue, requests) = sync_channel(WAITING_MAX);
        let requests = Arc::new(Mutex::new(requests));
        for number in 0..WORKERS {
            let ports = PORTS.skip(number).step_by(WORKERS).collect();
            let own_ports = Arc::clone(own_ports);
            let worker = Worker { addresses, own_ports, ports, next: 0, connection: None };
            let requests = Arc::clone(&requests);
            std::thread::Builder::new()
                .name(format!("recheck-{number}"))
                .spawn(move || worker.run(&requests))?;
        }
        Ok(Self { queue })
    }

    /// Asks, now or soon; false if too much is waiting.
    pub(crate) fn ask(&self, recheck: Recheck) -> bool {
        self.queue.try_send(recheck).is_ok()
    }
}

/// What connections are told apart by.
#[derive(Clone, Copy, PartialEq)]
struct Kind {
    /// The server's port.
    port: u16,
    /// The header that it begins with.
    preface: Option<ProxyVersion>,
    /// Whether it comes from the address of this machine's proxies.
    is_as_proxy: bool,
}

impl Kind {
    fn of(recheck: &Recheck) -> Self {
        let &Recheck { port, preface, is_as_proxy, .. } = recheck;
        Self { port, preface, is_as_proxy }
    }
}

struct Connection {
    kind: Kind,
    stream: TcpStream,
    /// The port that it comes from.
    own_port: u16,
    own_ports: Arc<OwnPorts>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.kind.is_as_proxy {
            self.own_ports.note_closed(self.own_port);
        }
    }
}

struct Worker {
    addresses: RecheckAddresses,
    own_ports: Arc<OwnPorts>,
    ports: Vec<u16>,
    next: usize,
    connection: Option<Connection>,
}

impl Worker {
    fn run(mut self, requests: &Mutex<Receiver<Recheck>>) {
        loop {
            let request = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(request) = request else { return };
            let was_open =
                self.connection.as_ref().is_some_and(|open| open.kind == Kind::of(&request));
            let mut outcome = self.ask(&request);
            if outcome.is_err() && was_open {
                // The server may have closed the connection meanwhile.
                outcome = self.ask(&request);
            }
            if let Err(error) = outcome {
                tracing::debug!("the server could not be asked again: {error}");
            }
        }
    }

    fn ask(&mut self, request: &Recheck) -> io::Result<()> {
        let kind = Kind::of(request);
        let mut connection = match self.connection.take() {
            Some(mut open) if open.kind == kind => {
                open.stream.write_all(&request.head)?;
                open
            }
            _ => {
                let mut new = self.connect(kind)?;
                new.stream.write_all(&[&self.preface(kind)[..], &request.head].concat())?;
                new
            }
        };
        if read_reply(&mut connection.stream)? {
            self.connection = Some(connection);
        }
        Ok(())
    }

    /// The header that a connection begins with.
    fn preface(&self, Kind { port, preface, .. }: Kind) -> Vec<u8> {
        let Some(version) = preface else { return Vec::new() };
        let client = own_address(RandomState::new().build_hasher().finish());
        proxy_header(version, Some((client, self.ports[self.next])), (self.addresses.server, port))
    }

    fn connect(&mut self, kind: Kind) -> io::Result<Connection> {
        let address = if kind.is_as_proxy { self.addresses.proxy } else { self.addresses.own };
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for _ in 0..self.ports.len() {
            self.next = (self.next + 1) % self.ports.len();
            let socket =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            let own_port = self.ports[self.next];
            let server = SocketAddrV4::new(self.addresses.server, kind.port);
            // The kernel goes on with an attempt whose call was interrupted, and the same call
            // waits for it.
            let connected = bind(&stream, &SocketAddrV4::new(address, own_port))
                .and_then(|()| retry_on_intr(|| connect(&stream, &server)));
            match connected {
                Ok(()) => {
                    if kind.is_as_proxy {
                        self.own_ports.note_open(own_port);
                    }
                    return Ok(Connection {
                        kind,
                        stream,
                        own_port,
                        own_ports: Arc::clone(&self.own_ports),
                    });
                }
                // The port's last connection is not quite over.
                Err(error @ (rustix::io::Errno::ADDRINUSE | rustix::io::Errno::ADDRNOTAVAIL)) => {
                    last = error.into();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }
}

/// Reads a reply to its end, which the card follows, too. True if the connection may be used again.
fn read_reply(stream: &mut impl Read) -> io::Result<bool> {
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut bytes = vec![0; 64 * 1024];
    let mut held = 0;
    let (head, mut from) = loop {
        match parse_framing(&bytes[..held], Method::Get).map_err(|_| odd())? {
            // What follows an interim reply may be here already.
            Some(interim) if interim.status < 200 => {
                bytes.copy_within(interim.head_len..held, 0);
                held -= interim.head_len;
            }
            Some(head) => break (head, head.head_len),
            // A head that needs more room than there is has been refused before.
            None => match read_some(stream, &mut bytes[held..])? {
                0 => return Err(cut()),
                read => held += read,
            },
        }
    };
    let mut follower = Follower::new(head.framing);
    loop {
        if follower.follow(&bytes[from..held], |_| ()).fault.is_some() {
            return Err(odd());
        }
        if follower.is_finished() {
            return Ok(head.keep_alive);
        }
        (from, held) = (0, read_some(stream, &mut bytes)?);
        if held == 0 {
            return if follower.handle_close() { Ok(false) } else { Err(cut()) };
        }
    }
}

/// A read with a time limit is interrupted even if this process has only stood still for a moment.
fn read_some(stream: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use nicache_http::HEAD_BYTES_MAX;

    use super::*;

    /// Gives `text` in pieces of so many bytes, then the end. Each is interrupted once.
    struct Pieces<'a> {
        pieces: std::slice::Chunks<'a, u8>,
        was_interrupted: bool,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.was_interrupted = !self.was_interrupted;
            if self.was_interrupted {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let piece = self.pieces.next().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn replies_are_read_to_their_end_whatever_the_pieces() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let early = format!("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n{chunked}");
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        let (cut, odd) = (io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData);
        for size in [1, 30, 16_000, 60_000] {
            for (text, expected) in [
                (chunked, Ok(true)),
                (&early, Ok(true)),
                ("HTTP/1.1 304 x\r\nConnection: close\r\n\r\n", Ok(false)),
                ("HTTP/1.1 200 OK\r\n\r\nto the end", Ok(false)),
                ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", Err(cut)),
                ("HTTP/1.1 200 OK\r\nContent-", Err(cut)),
                ("SSH-2.0-x\r\n\r\n", Err(odd)),
                (&long, Err(odd)),
            ] {
                let pieces = text.as_bytes().chunks(size);
                let read = read_reply(&mut Pieces { pieces, was_interrupted: false });
                let read = read.map_err(|error| error.kind());
                assert_eq!(read, expected, "{text:.60} in pieces of {size}");
            }
        }
    }
}
