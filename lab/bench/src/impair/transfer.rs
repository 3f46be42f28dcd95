//! One reply fetched over a connection of its own, by the client's Linux, and how long it took.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use nicache_reply::{Method, ReplyReader};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::lane::client_port;
use crate::wire::cpu::bind_to;
use crate::wire::{CLIENT_CPU, Object};

/// How long a handshake may take.
const CONNECT: Duration = Duration::from_secs(70);

/// A reply, or what had come of it when time was over.
#[derive(Debug)]
pub(super) struct Fetched {
    /// From the request to the last byte.
    pub time: Duration,
    /// The body.
    pub body: Vec<u8>,
    /// It is all of it.
    pub is_whole: bool,
}

impl Fetched {
    /// Body bits per second, in millions.
    pub(super) fn mbit_per_s(&self) -> f64 {
        self.body.len() as f64 * 8.0 / self.time.as_secs_f64().max(1e-9) / 1e6
    }
}

/// Fetches a file of so many bytes from `port`. The time runs from the request, so what the
/// client's own timers do in the handshake is not in it.
///
/// # Errors
/// No connection, or a reply that is not a success.
pub(super) fn fetch(
    client: &Namespace,
    server: SocketAddr,
    port: u16,
    bytes: u64,
    limit: Duration,
) -> Result<Fetched> {
    client.lend(move || {
        bind_to(CLIENT_CPU)?;
        fetch_here(server, port, bytes, limit)
    })?
}

/// Fetches it once for each transfer of `numbers`, `at_once` at a time, each from its own port; in
/// their order.
///
/// # Errors
/// What went wrong with the first transfer that fails.
pub(super) fn fetch_all(
    client: &Namespace,
    server: SocketAddr,
    bytes: u64,
    limit: Duration,
    numbers: Range<u32>,
    at_once: usize,
) -> Result<Vec<Fetched>> {
    let next = AtomicU32::new(numbers.start);
    let take =
        || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| numbers.contains(number));
    let fetch_some = || {
        let mut some = Vec::new();
        while let Some(number) = take() {
            some.push((number, fetch(client, server, client_port(number), bytes, limit)));
        }
        some
    };
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(fetch_some)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a fetch does not panic"))
            .collect::<Vec<_>>()
    });
    all.sort_unstable_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, fetched)| fetched).collect()
}

/// Connects from a port of one's choice.
///
/// # Errors
/// The port is taken, or nobody answers in time.
pub(super) fn connect(server: SocketAddr, port: u16, timeout: Duration) -> Result<TcpStream> {
    let (family, local) = match server {
        SocketAddr::V4(_) => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        SocketAddr::V6(_) => {
            (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        }
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &local).with_context(|| format!("cannot bind port {port}"))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(timeout))?;
    // The kernel goes on with an attempt whose call was interrupted; the same call waits for it.
    retry_on_intr(|| rustix::net::connect(&socket, &server)).context("cannot connect")?;
    Ok(TcpStream::from(socket))
}

fn fetch_here(server: SocketAddr, port: u16, bytes: u64, limit: Duration) -> Result<Fetched> {
    let mut stream = connect(server, port, CONNECT)?;
    stream.set_nodelay(true)?;
    let path = Object { bytes, connections: 1 }.path();
    let begun = Instant::now();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes())?;
    let (mut reader, mut body) = (ReplyReader::default(), Vec::with_capacity(bytes as usize));
    let mut piece = vec![0; 256 << 10];
    let mut is_whole = false;
    while !is_whole {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut piece) {
            Ok(0) => bail!("the server closed after {} bytes of the body", body.len()),
            Ok(count) => count,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock
                        | std::io::ErrorKind::TimedOut
                        | std::io::ErrorKind::Interrupted
                ) =>
            {
                continue;
            }
            Err(error) => {
                return Err(error)
                    .context(format!("reading after {} bytes of the body", body.len()));
            }
        };
        let mut received = &piece[..count];
        if !reader.is_in_body() {
            let Some(head) = reader.read_head(&mut received, Method::Get)? else { continue };
            ensure!(head.status == 200, "the reply is not a success");
        }
        is_whole = reader.read_body(&mut received, |bytes| body.extend_from_slice(bytes))?;
    }
    let time = begun.elapsed();
    Ok(Fetched { time, is_whole: is_whole && body.len() as u64 == bytes, body })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Fetches 5 bytes of a server that sends `text`, and closes only when it is not asked any
    /// longer.
    fn fetched(text: &'static str, limit: Duration) -> Result<Fetched> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let answer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            // Until the client closes, which may reset the connection.
            let _ = stream.read(&mut request);
        });
        let fetched = fetch_here(server, 0, 5, limit);
        answer.join().unwrap();
        fetched
    }

    #[test]
    fn a_file_is_fetched_whole_or_as_far_as_it_came() {
        let long = Duration::from_secs(60);
        let right = fetched("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", long).unwrap();
        assert_eq!((right.is_whole, &right.body[..]), (true, &b"hello"[..]));
        let short = fetched("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell", long).unwrap();
        assert_eq!((short.is_whole, &short.body[..]), (false, &b"hell"[..]));
        let limit = Duration::from_millis(200);
        let late = fetched("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", limit).unwrap();
        assert!(!late.is_whole && b"hel".starts_with(&late.body));
        assert!(fetched("HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n", long).is_err());
    }
}
