//! A TCP relay in user space: accepts on one side, connects on the other, copies both ways.
//!
//! Used for `--share` (the two ends are in different network namespaces) and as the fall-back of
//! `--publish`. A thread per connection: this is for a server's database connection or a machine
//! without nftables, not for the hot path.

mod copying;
mod gate;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) use gate::Gate;
use rustix::net::sockopt;

/// Most connections of one relay at a time; a further one is closed at once.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After so long without a byte the kernel asks whether a peer is still there. A server that has
/// closed its end is not, from then on: its kernel forgets such a connection after a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });
/// Then it asks so often,
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 15 });
/// and after so many questions without an answer the connection ends.
const KEEPALIVE_COUNT: u32 = 4;

/// Relays what `listener` accepts to `target`, reached from the network namespace of the thread
/// that calls this, until the process ends. While the gate that this gives is closed, connections
/// wait before `target`.
pub(crate) fn start(
    name: &str,
    listener: TcpListener,
    target: SocketAddr,
) -> io::Result<Arc<Gate>> {
    let label = name.to_owned();
    let open = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Gate::default());
    let its_gate = Arc::clone(&gate);
    let body = move || {
        loop {
            match listener.accept() {
                Ok((client, _)) => admit(client, target, &open, &its_gate, &label),
                Err(error) => {
                    tracing::warn!("{label}: {error}");
                    // Out of file descriptors or memory: let some connections end first.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    Ok(gate)
}

fn admit(
    client: TcpStream,
    target: SocketAddr,
    open: &Arc<AtomicUsize>,
    gate: &Arc<Gate>,
    label: &str,
) {
    if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
        open.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("{label}: more than {CONNECTIONS_MAX} connections at a time");
        return;
    }
    let (count, gate) = (Arc::clone(open), Arc::clone(gate));
    let name = label.to_owned();
    let body = move || {
        let inside = gate.pass();
        if let Err(error) = relay(client, target) {
            tracing::debug!("{name}: {error}");
        }
        drop(inside);
        count.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("relay".into()).spawn(body).is_err() {
        open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn relay(client: TcpStream, target: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEPALIVE_COUNT)?;
    }
    copying::copy(&client, &server)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::Shutdown;

    use nicache_namespaces::Namespace;
    use rustix::io::{read, retry_on_intr};
    use rustix::net::{RecvFlags, recv};

    use super::*;

    /// A client of a relay, and the server's end of its connection.
    fn connect() -> (TcpStream, TcpStream) {
        let (client, peer, _) = connect_through();
        (client, peer)
    }

    /// Beside these, the relay's gate.
    fn connect_through() -> (TcpStream, TcpStream, Arc<Gate>) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = relay.local_addr().unwrap();
        let gate = start("test", relay, server.local_addr().unwrap()).unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (peer, _) = server.accept().unwrap();
        for end in [&client, &peer] {
            end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        (client, peer, gate)
    }

    /// Waits for something of the other side's. Is it the end?
    fn has_ended(stream: &TcpStream) -> bool {
        retry_on_intr(|| read(stream, &mut [0])) == Ok(0)
    }

    /// Closes a socket with a reset.
    fn reset(socket: TcpStream) {
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
        drop(socket);
    }

    #[test]
    fn both_ways_with_half_close() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = relay.local_addr().unwrap();
        start("test", relay, server.local_addr().unwrap()).unwrap();
        let answer = std::thread::spawn(move || {
            let (mut peer, _) = server.accept().unwrap();
            let mut question = String::new();
            peer.read_to_string(&mut question).unwrap();
            peer.write_all(question.to_uppercase().as_bytes()).unwrap();
        });
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HELLO");
        answer.join().unwrap();
    }

    #[test]
    fn nobody_behind_it_closes_the_connection() {
        // A port that is never given to who asks for any.
        let unused = "127.0.0.1:1".parse().unwrap();
        let relay = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = relay.local_addr().unwrap();
        start("test", relay, unused).unwrap();
        let mut rest = Vec::new();
        let _ = TcpStream::connect(address).unwrap().read_to_end(&mut rest);
        assert!(rest.is_empty());
    }

    #[test]
    fn a_reset_is_a_reset_on_the_other_side() {
        for server_breaks_off in [true, false] {
            let (client, peer) = connect();
            let (mut breaks_off, mut other) =
                if server_breaks_off { (peer, client) } else { (client, peer) };
            breaks_off.write_all(b"partial").unwrap();
            let mut start = [0; 7];
            other.read_exact(&mut start).unwrap();
            reset(breaks_off);
            let mut rest = Vec::new();
            let error = other.read_to_end(&mut rest).unwrap_err();
            assert_eq!((error.kind(), rest), (ErrorKind::ConnectionReset, Vec::new()));
        }
    }

    #[test]
    fn what_was_sent_before_a_reset_arrives() {
        let reply = vec![7; 100_000];
        for _ in 0..50 {
            let (mut client, mut peer) = connect();
            peer.write_all(&reply).unwrap();
            // The kernel discards what it has not sent.
            while nicache_port::unacknowledged(&peer).unwrap() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            reset(peer);
            let mut read = Vec::new();
            let error = client.read_to_end(&mut read).unwrap_err();
            assert_eq!((error.kind(), read.len()), (ErrorKind::ConnectionReset, reply.len()));
        }
    }

    #[test]
    fn an_answer_that_refuses_an_upload_arrives() {
        for _ in 0..200 {
            let (mut client, mut peer) = connect();
            let mut upload = client.try_clone().unwrap();
            let upload = std::thread::spawn(move || upload.write_all(&vec![0; 10_000_000]));
            // Something of it is there, and is not read.
            let peeked = retry_on_intr(|| recv(&peer, &mut [0], RecvFlags::PEEK));
            assert!(peeked.unwrap().0 > 0);
            peer.write_all(b"413").unwrap();
            drop(peer);
            let mut answer = [0; 3];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"413");
            drop(client);
            let _ = upload.join().unwrap();
        }
    }

    #[test]
    fn a_client_keeps_no_connection_whose_server_has_closed_it() {
        let Some(namespace) = Namespace::with_loopback() else { return };
        namespace.run(|| {
            // So long a kernel keeps a connection that its program has closed: elsewhere a minute.
            std::fs::write("/proc/sys/net/ipv4/tcp_fin_timeout", "1").unwrap();
            let (mut client, peer, gate) = connect_through();
            drop(peer);
            assert!(has_ended(&client));
            assert!(gate.close_when_empty(Duration::from_secs(15)).is_some());
            // Nobody is there for what it sends.
            let _ = client.write(b"late");
            std::thread::sleep(Duration::from_millis(100));
            assert!(client.write(b"later").is_err());
        });
    }

    #[test]
    fn a_client_that_takes_nothing_keeps_no_connection_whose_server_is_gone() {
        let (client, mut peer, gate) = connect_through();
        peer.set_nonblocking(true).unwrap();
        while peer.write(&[0; 65536]).is_ok() {}
        reset(peer);
        assert!(gate.close_when_empty(Duration::from_secs(15)).is_some());
        drop(client);
    }

    #[test]
    fn a_server_that_has_only_ended_its_output_still_reads() {
        let (mut client, mut peer, gate) = connect_through();
        peer.shutdown(Shutdown::Write).unwrap();
        assert!(has_ended(&client));
        // Longer than the kernel needs to find out that a peer is gone.
        assert!(gate.close_when_empty(Duration::from_secs(7)).is_none());
        client.write_all(b"late").unwrap();
        drop(client);
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late");
    }
}
