//! A TCP relay in user space: accepts on one side, connects on the other, copies both ways.
//!
//! Used for `--share` (the two ends are in different network namespaces) and as the fall-back of
//! `--publish`. A thread per direction: this is for a server's database connection or a machine
//! without nftables, not for the hot path.

mod gate;

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) use gate::Gate;

/// Most connections of one relay at a time; a further one is closed at once.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_in, server_out) = (client.try_clone()?, server.try_clone()?);
    let upward = std::thread::Builder::new()
        .name("relay-up".into())
        .spawn(move || copy(client_in, server_out))?;
    copy(server, client);
    let _ = upward.join();
    Ok(())
}

/// Copies until the end of `from`, then half-closes `to`; an error ends both directions.
fn copy(mut from: TcpStream, mut to: TcpStream) {
    match io::copy(&mut from, &mut to).and_then(|_| to.flush()) {
        Ok(()) => {
            let _ = to.shutdown(Shutdown::Write);
        }
        Err(_) => {
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

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
}
