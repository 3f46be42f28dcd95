//! Other forms of an entry, learned from the host and sent by the card; and what requests change.

use std::time::Duration;

use nicache_cache::AgeBounds;
use nicache_coherence::Class;
use nicache_http::TEMPLATE_BYTES_MAX;
use nicache_tcp::Flags;

use crate::script::{MSS, Script};

const DATE: &str = "Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n";

fn body() -> Vec<u8> {
    (0..2500u32).map(|at| b'a' + (at * 7 % 26) as u8).collect()
}

/// The client asks. If the request goes to the host, that answers. Whether it went, and what the
/// client got.
fn exchange(script: &mut Script, request: &[u8], reply: &[u8]) -> (bool, Vec<u8>) {
    script.send_client(Flags::ACK | Flags::PSH, 60_000, request);
    script.seq += request.len() as u32;
    let at_host = script.take_at_host().into_iter().find(|segment| !segment.payload.is_empty());
    if let Some(asked) = &at_host {
        assert_eq!(asked.payload, request);
        let mut seq = asked.head.ack;
        for part in reply.chunks(usize::from(MSS)) {
            script.send_host(Flags::ACK, seq, asked.end(), part);
            seq += part.len() as u32;
        }
    }
    let got = script.take_body();
    script.acknowledge(60_000);
    (at_host.is_some(), got)
}

fn ask_for(range: &str) -> Vec<u8> {
    format!("GET /object HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n").into_bytes()
}

fn one(first: usize, last: usize) -> Vec<u8> {
    let (len, whole) = (last - first + 1, body().len());
    let fields = format!(
        "Content-Length: {len}\r\nETag: \"x\"\r\nContent-Range: bytes {first}-{last}/{whole}"
    );
    let head = format!("HTTP/1.1 206 Partial Content\r\n{DATE}{fields}\r\n\r\n");
    [head.as_bytes(), &body()[first..=last]].concat()
}

fn several(ranges: &[(usize, usize)]) -> Vec<u8> {
    let mut parts = Vec::new();
    for (first, last) in ranges {
        parts.extend(
            format!("\r\n--b\r\nContent-Range: bytes {first}-{last}/{}\r\n\r\n", body().len())
                .bytes(),
        );
        parts.extend(&body()[*first..=*last]);
    }
    parts.extend(b"\r\n--b--\r\n");
    let kind = "Content-Type: multipart/byteranges; boundary=b";
    let fields = format!("{kind}\r\nContent-Length: {}\r\nETag: \"x\"", parts.len());
    let head = format!("HTTP/1.1 206 Partial Content\r\n{DATE}{fields}\r\n\r\n");
    [head.as_bytes(), &parts].concat()
}

#[test]
fn a_range_is_sent_as_the_host_sent_another_one() {
    let mut script = Script::with_stored(&body());
    assert_eq!(exchange(&mut script, &ask_for("0-9"), &one(0, 9)), (true, one(0, 9)));
    for (range, first, last) in
        [("0-9", 0, 9), ("1000-2199", 1000, 2199), ("-1", 2499, 2499), ("100-", 100, 2499)]
    {
        assert_eq!(
            exchange(&mut script, &ask_for(range), b""),
            (false, one(first, last)),
            "{range}"
        );
    }
    assert_eq!(script.card.counters().hits_range, 4);
    // Servers differ.
    assert!(exchange(&mut script, &ask_for("5-2"), &one(0, 9)).0);
}

#[test]
fn a_206_that_is_not_what_was_asked_for_teaches_nothing() {
    let mut script = Script::with_stored(&body());
    let other = String::from_utf8(one(0, 9)).unwrap();
    for odd in [
        other.replace("bytes 0-9/2500", "bytes 0-9/2501"),
        other.replace("bytes 0-9/2500", "bytes 1-10/2500"),
        other.replace("\"x\"", "\"y\""),
        other.replace("ETag: \"x\"", "Set-Cookie: a=b"),
    ] {
        assert!(exchange(&mut script, &ask_for("0-9"), odd.as_bytes()).0);
    }
    assert!(exchange(&mut script, &ask_for("0-9"), &one(0, 9)).0, "nothing was learned");
    assert!(!exchange(&mut script, &ask_for("0-9"), b"").0);
}

#[test]
fn several_ranges_are_repeated_with_the_same_bytes() {
    let mut script = Script::with_stored(&body());
    let two = [(0, 1), (500, 1700)];
    assert_eq!(
        exchange(&mut script, &ask_for("0-1,500-1700"), &several(&two)),
        (true, several(&two))
    );
    let other = [(10, 1400), (2000, 2499)];
    assert_eq!(exchange(&mut script, &ask_for("10-1400,2000-"), b""), (false, several(&other)));
    // More than the host has been seen to send.
    assert!(
        exchange(&mut script, &ask_for("0-1,5-6,9-10"), &several(&[(0, 1), (5, 6), (9, 10)])).0
    );
    assert!(!exchange(&mut script, &ask_for("0-1,5-6,9-10"), b"").0);
    // Nothing arrives, and all of it is sent again.
    let request = ask_for("10-1400,2000-");
    script.send_client(Flags::ACK | Flags::PSH, 60_000, &request);
    script.seq += request.len() as u32;
    let first: Vec<_> = script.take_at_client();
    assert!(!first.is_empty());
    let mut got: Vec<u8> = Vec::new();
    for _ in 0..200 {
        script.wait(Duration::from_millis(50));
        let start = script.ack;
        for segment in script.take_at_client() {
            if segment.head.seq == script.ack && !segment.payload.is_empty() {
                script.ack = segment.end();
                got.extend(segment.payload);
            }
        }
        if script.ack != start {
            script.acknowledge(60_000);
        }
        if got.len() == several(&other).len() {
            break;
        }
    }
    assert_eq!(got, several(&other));
    assert_eq!(script.card.in_use().part_sets, 0);
}

#[test]
fn a_request_that_changes_something_voids_what_it_names() {
    let plain = Script::request();
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (request, reply, is_void) in [
        ("PUT /object HTTP/1.1\r\nHost: a\r\n\r\n", &ok[..], true),
        ("DELETE /%6fbject HTTP/1.1\r\nHost: A:80\r\n\r\n", ok, true),
        ("POST /other HTTP/1.1\r\nHost: a\r\n\r\n", ok, false),
        ("POST /object HTTP/1.1\r\nHost: b\r\n\r\n", ok, false),
        (
            "PUT /object HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n",
            false,
        ),
        ("OPTIONS /object HTTP/1.1\r\nHost: a\r\n\r\n", ok, false),
        (
            "PUT /other HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 303 x\r\nLocation: /object\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        (
            "PUT /other HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 201 x\r\nContent-Location: http://a/object\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        (
            "PUT /other HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 303 x\r\nLocation: http://b/object\r\nContent-Length: 0\r\n\r\n",
            false,
        ),
        (
            "PUT /object HTTP/1.1\r\nHost: a\r\n\r\n",
            b"HTTP/1.1 103 x\r\n\r\nHTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n",
            false,
        ),
        ("PUT /object HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200", true),
        // A connection that the card does not follow.
        (
            "PUT /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 303 x\r\nLocation: /object\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        (
            "PUT /other HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 303 x\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
            false,
        ),
    ] {
        let mut script = Script::with_stored(&body());
        assert!(!exchange(&mut script, plain, b"").0, "a hit before");
        assert!(exchange(&mut script, request.as_bytes(), reply).0);
        let before = script.card.counters().hits;
        // On another connection, in case this one is the host's now.
        script.open_another();
        script.ask(60_000);
        script.wait(Duration::from_millis(50));
        assert_eq!(
            script.card.counters().hits == before,
            is_void,
            "{request} {}",
            reply.escape_ascii()
        );
    }
}

/// What a reply refers to has changed, in however many segments its head comes.
#[test]
fn what_a_head_in_pieces_refers_to_is_void() {
    let request = b"PUT /other HTTP/1.1\r\nHost: a\r\n\r\n";
    let head = |fields: &str| format!("HTTP/1.1 201 x\r\n{fields}Content-Length: 0\r\n\r\n");
    let interim = "HTTP/1.1 103 x\r\nLink: </s>; rel=preload\r\n\r\n";
    for (reply, is_void) in [
        (head("Location: /object\r\n"), true),
        (head("Content-Location: http://a/object\r\n"), true),
        (format!("{interim}{}", head("Location: /object\r\n")), true),
        (head("Location: /elsewhere\r\n"), false),
    ] {
        for size in 1..reply.len() {
            let mut script = Script::with_stored(&body());
            script.send_client(Flags::ACK | Flags::PSH, 60_000, request);
            script.seq += request.len() as u32;
            let asked = script.take_at_host().into_iter().find(|at| !at.payload.is_empty());
            let asked = asked.expect("the request");
            let mut seq = asked.head.ack;
            for part in reply.as_bytes().chunks(size) {
                script.send_host(Flags::ACK, seq, asked.end(), part);
                seq += part.len() as u32;
            }
            assert_eq!(script.card.holds_in_use(), 0, "{size}");
            let before = script.card.counters().hits;
            script.open_another();
            script.ask(60_000);
            script.wait(Duration::from_millis(50));
            let hits = script.card.counters().hits - before;
            assert_eq!(hits == 0, is_void, "{size} {}", reply.escape_debug());
        }
    }
}

/// What rests on a program's memory ends when a client is about to have the answer to its request:
/// the final one, on each kind of connection, and for each request.
#[test]
fn the_answer_to_an_unsafe_request_ends_what_rests_on_memory() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let count = |script: &Script| script.card.store().unsafe_requests();
    let invalidations = |script: &Script| script.card.counters().invalidations;
    // The content's length is not known, so the card no longer follows what comes.
    let mut script = Script::with_stored(&body());
    let put = "PUT /object HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    assert!(exchange(&mut script, put.as_bytes(), b"HTTP/1.1 100 Continue\r\n\r\n").0);
    let before = (count(&script), invalidations(&script));
    assert!(exchange(&mut script, b"5\r\nhello\r\n0\r\n\r\n", ok).0);
    assert!(count(&script) > before.0 && invalidations(&script) > before.1);
    let before = count(&script);
    assert!(
        exchange(&mut script, b"POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", ok)
            .0
    );
    assert!(count(&script) >= before + 2, "it begins and is answered");
    assert!(exchange(&mut script, Script::request(), ok).0);
    let before = count(&script);
    for _ in 0..3 {
        assert!(exchange(&mut script, Script::request(), ok).0);
    }
    assert_eq!(count(&script), before, "nothing of it changes anything");
    // The first bytes of the answer, and the last, before the client has them.
    let mut script = Script::with_stored(&body());
    let before = count(&script);
    let post = b"POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
    assert!(exchange(&mut script, post, half).0);
    assert!(count(&script) >= before + 2, "it has begun, and is being answered");
}

#[test]
fn what_may_be_content_or_a_request_is_not_answered() {
    let mut script = Script::with_stored(&body());
    let len = Script::request().len();
    let put = format!(
        "PUT /other HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n"
    );
    // The host decides before the content has come.
    assert!(
        exchange(&mut script, put.as_bytes(), b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n").0
    );
    let before = script.card.counters().hits;
    assert!(exchange(&mut script, Script::request(), b"").0, "it passes");
    assert_eq!(script.card.counters().hits, before);
    // With the host's word, the content is not a request, and what follows is.
    script.open_another();
    let mut script = Script::with_stored(&body());
    assert!(exchange(&mut script, put.as_bytes(), b"HTTP/1.1 100 Continue\r\n\r\n").0);
    assert!(
        exchange(&mut script, Script::request(), b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").0
    );
    assert!(!exchange(&mut script, Script::request(), b"").0, "a hit");
}

/// A server that closes when it is asked to, and does not say so in its reply (Mojolicious does
/// so); and one without a clock, whose replies have no Date (Puma's have none).
#[test]
fn servers_that_leave_fields_out_have_hits() {
    for (fields, date) in [("Connection: close\r\n", DATE), ("", "")] {
        let mut script = Script::with_ages(Class::Dynamic, AgeBounds::default());
        let request = format!("GET /page HTTP/1.1\r\nHost: a\r\n{fields}\r\n").into_bytes();
        let reply = format!("HTTP/1.1 200 OK\r\n{date}Content-Length: 3\r\n\r\nall").into_bytes();
        let mut serve = |_, _: &[u8]| (Duration::from_millis(1), reply.clone());
        let replies: Vec<(Vec<u8>, bool)> =
            (8..14).map(|last| script.visit([10, 0, 0, last], &request, &mut serve)).collect();
        assert!(replies.iter().all(|(got, _)| *got == reply), "{replies:?}");
        let hits = replies.iter().filter(|(_, is_hit)| *is_hit).count();
        assert!(hits >= 3, "{hits} hits: {:?}", script.card.counters());
    }
}

/// A head that comes in pieces, because the server writes it in pieces or because it is longer than
/// a segment, is kept like any other, and the card has nothing of it left.
#[test]
fn heads_in_pieces_have_hits() {
    let policy =
        |bytes: usize| format!("Content-Security-Policy: script-src {}\r\n", "x".repeat(bytes));
    let request = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
    for (fields, sizes) in [
        (String::new(), (1..90).collect::<Vec<usize>>()),
        (policy(7000), vec![100, 536, MSS.into()]),
        (policy(14_000), vec![MSS.into()]),
    ] {
        for size in sizes {
            let mut script = Script::with_ages(Class::Dynamic, AgeBounds::default());
            script.host_segment = size;
            let head = format!("HTTP/1.1 200 OK\r\n{DATE}{fields}Content-Length: 3\r\n\r\n");
            let is_too_long = head.len() > TEMPLATE_BYTES_MAX;
            let reply = [head.as_bytes(), b"all"].concat();
            let mut serve = |_, _: &[u8]| (Duration::from_millis(1), reply.clone());
            let replies: Vec<(Vec<u8>, bool)> =
                (8..14).map(|last| script.visit([10, 0, 0, last], request, &mut serve)).collect();
            for (got, is_hit) in &replies {
                assert_eq!(
                    got.escape_ascii().to_string(),
                    reply.escape_ascii().to_string(),
                    "{size} {is_hit}"
                );
            }
            let hits = replies.iter().filter(|(_, is_hit)| *is_hit).count();
            let counters = script.card.counters();
            assert_eq!(hits >= 3, !is_too_long, "{size}: {hits} hits: {counters:?}");
            assert_eq!((counters.flows_opaque, script.card.holds_in_use()), (0, 0), "{size}");
        }
    }
}

/// A head that does not end, or that breaks off, costs a buffer no longer than its connection.
#[test]
fn heads_without_end_are_given_up() {
    let request = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
    for length in [100, 30_000] {
        let mut script = Script::with_ages(Class::Dynamic, AgeBounds::default());
        script.host_segment = 1000;
        let reply = format!("HTTP/1.1 200 OK\r\nLink: {}", "x".repeat(length)).into_bytes();
        let mut serve = |_, _: &[u8]| (Duration::from_millis(1), reply.clone());
        for last in 8..40 {
            let (got, is_hit) = script.visit([10, 0, 0, last], request, &mut serve);
            assert!(got == reply && !is_hit);
        }
        assert_eq!(script.card.holds_in_use(), 0);
    }
}
