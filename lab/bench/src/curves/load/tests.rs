//! Against servers of the test's own on the loopback, of which it is known what they do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::super::arrivals::Spacing;
use super::*;

const MS: u64 = 1_000_000;

/// A server that answers each request with `reply` after a pause, a thread for each connection.
fn server(reply: &'static [u8], pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap(), reply, pause));
        }
    });
    address
}

fn answer(mut stream: TcpStream, reply: &[u8], pause: Duration) {
    let mut buffer = [0; 1024];
    // A request comes in one piece.
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        std::thread::sleep(pause);
        let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
        assert!(request.starts_with("GET /five HTTP/1.1\r\nHost: 127.0.0.1\r\n"), "{request}");
        if stream.write_all(reply).is_err() || request.contains("Connection: close") {
            return;
        }
    }
}

fn target(server: SocketAddr, close: bool) -> Target {
    Target { server, path: "/five".into(), body_bytes: 5, close }
}

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn every_arrival_is_answered_once_or_refused() {
    let server = server(REPLY, Duration::ZERO);
    let arrivals = Arrivals::new(Spacing::Fixed, 200.0, 600 * MS, 1);
    let measured = Measured { begin_ns: 100 * MS, end_ns: 600 * MS };
    let got = run_at_rate(target(server, true), arrivals, 1_000, measured).unwrap();
    assert_eq!((got.offered, got.refused, got.replies, got.failures.total()), (100, 0, 120, 0));
    assert_eq!((got.replied.len(), got.connected.len()), (5, 5));
    // One begun late in the warm-up may be answered in the first window, one begun at the end after
    // the last one.
    let counted: u32 = got.replied.iter().sum();
    assert!((1..=120).contains(&counted), "{counted}");
    assert!(
        got.time.count == 100 && got.time.median_us > 0.0 && got.time.mean_us <= 5e6,
        "{:?}",
        got.time
    );
}

#[test]
fn arrivals_do_not_wait_for_replies() {
    // Three connections at a time, each of at least 300 ms: of 50 arrivals in 500 ms, six find room
    // at most.
    let server = server(REPLY, Duration::from_millis(300));
    let arrivals = Arrivals::new(Spacing::Fixed, 100.0, 500 * MS, 1);
    let got =
        run_at_rate(target(server, true), arrivals, 3, Measured { begin_ns: 0, end_ns: 500 * MS })
            .unwrap();
    assert_eq!(got.offered, 50);
    // More of them, the later the last ones were begun.
    let room = 3 * (2 + got.late_p99_us as u64 / 300_000);
    assert!((50 - room.min(50)..=47).contains(&got.refused), "{got:?}");
    assert_eq!((got.replies + got.refused, got.time.count), (50, got.replies));
    assert!(got.time.median_us >= 299_000.0, "{:?}", got.time);
}

#[test]
fn connections_stay_open_or_follow_each_other() {
    for close in [false, true] {
        let server = server(REPLY, Duration::from_millis(20));
        let measured = Measured { begin_ns: 100 * MS, end_ns: 400 * MS };
        let got = run_at_full_speed(target(server, close), 4, measured).unwrap();
        // Four at a time and at least 20 ms each: 80 at most in 400 ms, and some that were still
        // under way.
        assert!((4..=84).contains(&got.replies), "{}", got.replies);
        assert!(u64::from(got.replied.iter().sum::<u32>()) <= got.replies);
        assert_eq!(got.failures, Failures::default());
        assert!(got.time.median_us >= 19_900.0, "{:?}", got.time);
    }
}

#[test]
fn wrong_replies_and_cut_ones_and_nobody_are_told_apart() {
    let measured = Measured { begin_ns: 0, end_ns: 100 * MS };
    let run = |server| {
        let arrivals = Arrivals::new(Spacing::Poisson, 100.0, 100 * MS, 3);
        let count = arrivals.clone().count() as u64;
        let got = run_at_rate(target(server, true), arrivals, 50, measured).unwrap();
        assert_eq!((got.offered, got.failures.total(), got.replies), (count, count, 0));
        (got.failures, count)
    };
    for wrong in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"[..],
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (failures, count) = run(server(wrong, Duration::ZERO));
        assert_eq!(failures, Failures { wrong: count, ..Failures::default() });
    }
    let (failures, count) = run(server(&REPLY[..REPLY.len() - 1], Duration::ZERO));
    assert_eq!(failures, Failures { reset: count, ..Failures::default() });
    // A port that is never given to who asks for any.
    let nobody = "127.0.0.1:1".parse().unwrap();
    let (failures, count) = run(nobody);
    assert_eq!(failures, Failures { connect: count, ..Failures::default() });
}
