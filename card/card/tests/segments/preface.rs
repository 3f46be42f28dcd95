//! Connections that begin with a header of the PROXY protocol.

use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_card::Handshake;
use nicache_coherence::Class;
use nicache_http::{PREFACE_BYTES_MAX, ProxyVersion, proxy_header};
use nicache_tcp::{Flags, Seq, Time};

use crate::script::{Script, Segment};

const PROXY: [u8; 4] = [10, 0, 0, 9];
const DATE: &str = "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n";

fn header(version: ProxyVersion, number: u8) -> Vec<u8> {
    proxy_header(version, Some(([198, 18, 0, number].into(), 4711)), ([10, 0, 0, 2].into(), 80))
}

fn reply(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: {}\r\nETag: \"x\"\r\n\r\n{body}", body.len())
        .into_bytes()
}

/// The host takes the connection, if it is asked to, and everything that comes on it. Its next
/// number, and what came.
fn host_takes(script: &mut Script, mut seq: Seq) -> (Seq, Seq, Vec<u8>) {
    let (mut got, mut ack) = (Vec::new(), Seq(0));
    loop {
        let segments: Vec<Segment> = script.take_at_host();
        if segments.is_empty() {
            return (seq, ack, got);
        }
        for segment in segments {
            if segment.head.flags.syn() {
                script.send_host(Flags::SYN | Flags::ACK, seq, segment.head.seq + 1, b"");
                (seq, ack) = (seq + 1, segment.head.seq + 1);
            } else if !segment.payload.is_empty() {
                assert!(segment.head.seq == ack || ack == Seq(0), "in order");
                ack = segment.end();
                got.extend(segment.payload);
                script.send_host(Flags::ACK, seq, ack, b"");
            }
        }
    }
}

fn send(script: &mut Script, bytes: &[u8]) {
    script.send_client(Flags::ACK | Flags::PSH, 60_000, bytes);
    script.seq += bytes.len() as u32;
}

/// Answers a miss, and the client acknowledges.
fn answer(script: &mut Script, seq: Seq, ack: Seq, body: &str) -> Seq {
    let bytes = reply(body);
    script.send_host(Flags::ACK, seq, ack, &bytes);
    assert_eq!(script.take_body(), bytes);
    script.acknowledge(60_000);
    script.take_at_host();
    seq + bytes.len() as u32
}

/// A card that answers connections of version 1 with `body`.
fn stored(body: &str) -> Script {
    let mut script = Script::new(Handshake::Card);
    script.open_another();
    let bytes = [&header(ProxyVersion::V1, 1)[..], Script::request()].concat();
    send(&mut script, &bytes);
    let (seq, ack, got) = host_takes(&mut script, Seq(500_000));
    assert_eq!(got, bytes, "the header comes first");
    answer(&mut script, seq, ack, body);
    script
}

#[test]
fn a_hit_does_not_wait_for_the_host_to_have_the_header() {
    let mut script = stored("hello");
    for number in 2..6 {
        script.open_another();
        send(&mut script, &[&header(ProxyVersion::V1, number)[..], Script::request()].concat());
        assert!(script.take_body().ends_with(b"hello"));
        assert_eq!(host_takes(&mut script, Seq(600_000)).2, b"", "nobody needs the host");
        // Twice on one connection.
        send(&mut script, Script::request());
        assert!(script.take_body().ends_with(b"hello"));
    }
    assert_eq!(script.card.counters().proxy_headers, 5);
    // What is not there goes to the host, behind the header.
    let other = b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n";
    send(&mut script, other);
    script.acknowledge(60_000);
    let (seq, ack, got) = host_takes(&mut script, Seq(600_000));
    assert_eq!(got, [&header(ProxyVersion::V1, 5)[..], other].concat());
    let seq = answer(&mut script, seq, ack, "other");
    // Once for a connection.
    send(&mut script, b"GET /third HTTP/1.1\r\nHost: a\r\n\r\n");
    let (_, _, got) = host_takes(&mut script, seq);
    assert_eq!(got, b"GET /third HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn a_connection_is_answered_only_if_the_host_has_answered_one_of_its_kind() {
    let mut script = stored("hello");
    let kinds: [&[u8]; 4] = [
        b"",
        &header(ProxyVersion::V2, 1),
        &proxy_header(ProxyVersion::V1, None, ([10, 0, 0, 2].into(), 80)),
        &proxy_header(ProxyVersion::V2, None, ([10, 0, 0, 2].into(), 80)),
    ];
    for kind in kinds {
        script.open_another();
        let bytes = [kind, Script::request()].concat();
        send(&mut script, &bytes);
        let (seq, ack, got) = host_takes(&mut script, Seq(500_000));
        assert_eq!(got, bytes);
        answer(&mut script, seq, ack, "hello");
        script.open_another();
        send(&mut script, &bytes);
        assert!(
            script.take_body().ends_with(b"hello") && host_takes(&mut script, Seq(0)).2.is_empty()
        );
    }
    // From another address.
    let mut other = script.open_as([10, 0, 0, 77], 1234);
    script.take_turns(&mut other);
    let bytes = [&header(ProxyVersion::V1, 1)[..], Script::request()].concat();
    send(&mut script, &bytes);
    assert_eq!(host_takes(&mut script, Seq(500_000)).2, bytes);
}

#[test]
fn it_may_come_in_any_pieces() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        for size in [1, 2, 7, 13, 27, 40] {
            let mut script = stored("hello");
            script.open_another();
            let bytes =
                [&header(version, 3)[..], b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            bytes.chunks(size).for_each(|piece| send(&mut script, piece));
            let (seq, ack, got) = host_takes(&mut script, Seq(500_000));
            assert_eq!(got, bytes, "{version:?} by {size}");
            answer(&mut script, seq, ack, "other");
            send(&mut script, b"GET /third HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(host_takes(&mut script, seq).2.starts_with(b"GET /third"));
        }
    }
}

#[test]
fn a_header_alone_reaches_the_host() {
    let mut script = stored("hello");
    script.open_another();
    send(&mut script, &header(ProxyVersion::V1, 9));
    assert!(host_takes(&mut script, Seq(500_000)).2.is_empty());
    script.wait(Duration::from_millis(300));
    let (seq, _, got) = host_takes(&mut script, Seq(500_000));
    assert_eq!(got, header(ProxyVersion::V1, 9));
    // And then a hit, and a miss.
    send(&mut script, Script::request());
    assert!(script.take_body().ends_with(b"hello"));
    script.acknowledge(60_000);
    send(&mut script, b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    let (seq, ack, got) = host_takes(&mut script, seq);
    assert_eq!(got, b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    answer(&mut script, seq, ack, "other");
}

#[test]
fn a_request_that_comes_before_the_host_has_taken_the_header() {
    let mut script = stored("hello");
    script.open_another();
    send(&mut script, &header(ProxyVersion::V1, 9));
    script.wait(Duration::from_millis(300));
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::SYN | Flags::ACK, Seq(500_000), syn.head.seq + 1, b"");
    let head = script.take_at_host().pop().expect("the header");
    assert_eq!(head.payload, header(ProxyVersion::V1, 9));
    send(&mut script, b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    script.send_host(Flags::ACK, Seq(500_001), head.end(), b"");
    let (_, _, got) = host_takes(&mut script, Seq(500_001));
    assert_eq!(got, b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
}

/// A proxy asks whether the server is there.
#[test]
fn a_header_and_the_end() {
    for handshake in [Handshake::PassThrough, Handshake::Card] {
        let mut script = Script::new(handshake);
        script.client_port += 1;
        if handshake == Handshake::Card {
            script.open_another();
        } else {
            script.send_client(Flags::SYN, 60_000, b"");
            script.seq += 1;
            let syn = script.take_at_host().remove(0);
            script.send_host(Flags::SYN | Flags::ACK, Seq(500_000), syn.head.seq + 1, b"");
            script.take_at_client();
            script.ack = Seq(500_001);
            script.acknowledge(60_000);
            script.take_at_host();
        }
        let head = header(ProxyVersion::V1, 9);
        send(&mut script, &head);
        script.send_client(Flags::ACK | Flags::FIN, 60_000, b"");
        script.seq += 1;
        let at_host = script.take_at_host();
        let got: Vec<u8> = at_host.iter().flat_map(|segment| segment.payload.clone()).collect();
        if handshake == Handshake::Card {
            // The server need not know.
            assert!(
                at_host.is_empty()
                    && script.take_at_client().iter().any(|segment| segment.head.flags.fin())
            );
        } else {
            assert_eq!(got, head);
            assert!(at_host.iter().any(|segment| segment.head.flags.fin()), "{at_host:?}");
        }
    }
}

/// A server that speaks first sees what it waits for.
#[test]
fn a_server_that_speaks_first() {
    let mut script = stored("hello");
    script.open_another();
    send(&mut script, &header(ProxyVersion::V2, 9));
    script.wait(Duration::from_millis(300));
    let (seq, ack, got) = host_takes(&mut script, Seq(500_000));
    assert_eq!(got, header(ProxyVersion::V2, 9));
    script.send_host(Flags::ACK, seq, ack, b"220 mail\r\n");
    assert_eq!(script.take_body(), b"220 mail\r\n");
    script.acknowledge(60_000);
    script.take_at_host();
    send(&mut script, b"HELO\r\n");
    assert_eq!(host_takes(&mut script, seq).2, b"HELO\r\n");
}

#[test]
fn the_next_connection_at_the_host_has_it_too() {
    let mut script = stored("hello");
    script.open_another();
    let head = header(ProxyVersion::V1, 7);
    send(&mut script, &[&head[..], b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    let (seq, ack, _) = host_takes(&mut script, Seq(500_000));
    let seq = answer(&mut script, seq, ack, "other");
    send(&mut script, Script::request());
    assert!(script.take_body().ends_with(b"hello"));
    script.acknowledge(60_000);
    // The host is tired of waiting, the client is not.
    script.send_host(Flags::FIN | Flags::ACK, seq, ack, b"");
    let fin = script
        .take_at_host()
        .into_iter()
        .find(|segment| segment.head.flags.fin())
        .expect("closed there");
    script.send_host(Flags::ACK, seq + 1, fin.head.seq + 1, b"");
    script.take_at_host();
    send(&mut script, b"GET /third HTTP/1.1\r\nHost: a\r\n\r\n");
    let (seq, ack, got) = host_takes(&mut script, Seq(700_000));
    assert_eq!(got, [&head[..], b"GET /third HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
    answer(&mut script, seq, ack, "third");
}

#[test]
fn what_is_no_header_passes_as_it_is() {
    let long = [&b"PROXY UNKNOWN "[..], &[b'a'; 300], b"\r\n"].concat();
    let v2_long = [&header(ProxyVersion::V2, 1)[..14], &[0xff, 0xff], &[0; 600]].concat();
    assert!(v2_long.len() > PREFACE_BYTES_MAX);
    let twice = [header(ProxyVersion::V1, 1), header(ProxyVersion::V1, 2)].concat();
    let twice_v2 = [header(ProxyVersion::V2, 1), header(ProxyVersion::V2, 2)].concat();
    for bytes in [
        &b"PROXY TCP4 1.2.3.4 x 1 2\r\n"[..],
        &long,
        &v2_long,
        &twice,
        &twice_v2,
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
    ] {
        let mut script = stored("hello");
        script.open_another();
        let sent = [bytes, Script::request()].concat();
        send(&mut script, &sent);
        let (_, _, got) = host_takes(&mut script, Seq(500_000));
        assert_eq!(got, sent, "{}", bytes.escape_ascii());
        assert!(script.take_body().is_empty());
        // And all that follows.
        send(&mut script, Script::request());
        assert_eq!(host_takes(&mut script, Seq(500_001)).2, Script::request());
    }
    // A method that is called so is none of the protocol.
    let mut script = stored("hello");
    script.open_another();
    send(&mut script, b"PROXYING / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(host_takes(&mut script, Seq(500_000)).2.starts_with(b"PROXYING"));
}

/// What it is for is to say who the client is: one who speaks for many is many.
#[test]
fn two_clients_of_one_proxy_agree() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut script = Script::with_ages(Class::Dynamic, AgeBounds::default());
        let mut own = Vec::new();
        let mut visit = |script: &mut Script, number: u8, says: &dyn Fn(&[u8]) -> Vec<u8>| {
            let bytes = [&header(version, number)[..], Script::request()].concat();
            script.visit(PROXY, &bytes, &mut |_: Time, head: &[u8]| {
                if head.starts_with(&bytes[..header(version, number).len()]) {
                    assert_eq!(head, bytes);
                } else {
                    own.push(head.to_vec());
                }
                (Duration::from_millis(5), says(head))
            })
        };
        let for_all = |_: &[u8]| reply("for all");
        for number in 1..20 {
            let (got, is_hit) = visit(&mut script, number, &for_all);
            assert!(got.ends_with(b"for all"));
            assert!(is_hit || number < 4, "{number}");
            script.wait(Duration::from_millis(200));
        }
        assert!(own.iter().all(|head| matches!(
            nicache_http::parse_preface(head),
            nicache_http::Preface::Header(_)
        )));
        assert!(!own.is_empty(), "the card speaks the protocol as the proxy does");
    }
    // A page that shows it is nobody else's.
    let mut script = Script::with_ages(Class::Dynamic, AgeBounds::default());
    for number in 1..40 {
        let head = header(ProxyVersion::V1, number);
        let bytes = [&head[..], Script::request()].concat();
        let (got, is_hit) = script.visit(PROXY, &bytes, &mut |_: Time, head: &[u8]| {
            let line = head.split(|byte| *byte == b'\r').next().unwrap();
            (Duration::from_millis(5), reply(&String::from_utf8_lossy(line)))
        });
        assert!(!is_hit && got.ends_with(&head[..head.len() - 2]), "{number}");
    }
}
