//! What becomes of a statement whose client has gone.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicache_relay::{Hub, Proxy, Publisher};
use nicache_sql::Dialect;

const LEASE_NS: u64 = 1_000_000_000;
const SOON: Duration = Duration::from_secs(20);
/// A server that is not stopped sends so many rows of 64 KB: more than all sockets have room for.
const ROWS: u64 = 1000;

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
    packet.push(sequence);
    packet.extend(payload);
    packet
}

fn read(stream: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).unwrap();
    let mut payload = vec![0; u32::from_le_bytes(header) as usize & 0xff_ffff];
    stream.read_exact(&mut payload).unwrap();
    payload
}

/// A MariaDB that says at the handshake that its session has this status, and then answers one
/// query. Returns whether it could send all rows.
fn server(listener: TcpListener, status: u8) -> JoinHandle<bool> {
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client.set_write_timeout(Some(SOON)).unwrap();
        client.write_all(&packet(0, &[10, b'x', 0])).unwrap();
        read(&mut client);
        client.write_all(&packet(2, &[0, 0, 0, status, 0, 0, 0])).unwrap();
        read(&mut client);
        let end = [0xfe, 0, 0, status, 0];
        let head = [packet(1, &[1]), packet(2, b"\x03def"), packet(3, &end)].concat();
        client.write_all(&head).unwrap();
        let row = packet(4, &[&[0xfd, 0xf0, 0xff, 0][..], &vec![b'a'; 0xfff0]].concat());
        for _ in 0..ROWS {
            if let Err(error) = client.write_all(&row) {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "nobody reads or ends it");
                return false;
            }
        }
        client.write_all(&packet(5, &end)).is_ok()
    })
}

/// A client asks this, and is gone when the first row has come. Whether the database sent them all.
fn is_sent_to_its_end(status: u8, query: &[u8]) -> bool {
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let clients = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = clients.local_addr().unwrap();
    // As if it had been running for long.
    let begun_ns = nicache_clock::boottime_ns() - 2 * LEASE_NS;
    let hub = Arc::new(Hub::new(Publisher::new(1, LEASE_NS, begun_ns)));
    let proxy = Arc::new(Proxy::new(hub, Dialect::MySql, database.local_addr().unwrap()));
    Arc::clone(&proxy).open(clients).unwrap();
    let server = server(database, status);
    let mut client = TcpStream::connect(address).unwrap();
    read(&mut client);
    // The protocol of version 4.1, and nothing else.
    let mut identity = (1u32 << 9 | 1).to_le_bytes().to_vec();
    identity.resize(40, 0);
    client.write_all(&packet(1, &identity)).unwrap();
    read(&mut client);
    client.write_all(&packet(0, query)).unwrap();
    for _ in 0..4 {
        read(&mut client);
    }
    drop(client);
    let is_whole = server.join().unwrap();
    let deadline = Instant::now() + SOON;
    while proxy.counters().open.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < deadline, "the connection stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    is_whole
}

#[test]
fn a_question_ends_with_its_client() {
    let autocommit = 2;
    assert!(!is_sent_to_its_end(autocommit, b"\x03SELECT a FROM t"));
}

/// Until its end, what it changes is in doubt.
#[test]
fn what_may_change_something_comes_to_its_end() {
    assert!(is_sent_to_its_end(2, b"\x03CALL changes()"));
    // A transaction is open, or may be.
    for status in [3, 0] {
        assert!(is_sent_to_its_end(status, b"\x03SELECT a FROM t"));
    }
}
