//! Opening connections, with segments lost, overtaken and out of place.

use std::time::Duration;

use nicache_card::Handshake;
use nicache_tcp::{Flags, Seq};

use crate::script::{Script, Segment};

const HOST_ISN: Seq = Seq(700_000);

fn payloads(segments: &[Segment]) -> Vec<&[u8]> {
    segments
        .iter()
        .map(|segment| &segment.payload[..])
        .filter(|payload| !payload.is_empty())
        .collect()
}

/// The client has a SYN-ACK of the host.
fn answered_by_the_host() -> Script {
    let mut script = Script::new(Handshake::PassThrough);
    open_at_host(&mut script);
    script
}

fn open_at_host(script: &mut Script) {
    script.send_client(Flags::SYN, 60_000, b"");
    assert!(script.take_at_host()[0].head.flags.syn());
    script.seq += 1;
    script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, script.seq, b"");
    assert!(script.take_at_client()[0].head.flags.syn());
    script.ack = HOST_ISN + 1;
}

#[test]
fn bytes_that_overtake_the_acknowledgment_stay_with_the_card() {
    let mut script = answered_by_the_host();
    let (first, second) = Script::request().split_at(10);
    let begin = script.seq;
    script.seq += first.len() as u32;
    script.send_client(Flags::ACK, 60_000, second);
    assert!(
        payloads(&script.take_at_host()).is_empty(),
        "bytes of the middle have reached the host"
    );
    assert!(
        script.take_at_client().iter().all(|segment| segment.head.ack == begin),
        "nothing was received in order"
    );
    script.seq = begin;
    script.send_client(Flags::ACK, 60_000, Script::request());
    let at_host = script.take_at_host();
    assert_eq!(payloads(&at_host), [Script::request()]);
    assert_eq!(at_host.last().map(|segment| segment.head.seq), Some(begin));
    assert_eq!(script.card.counters().misses, 1);
}

#[test]
fn a_request_may_complete_the_handshake() {
    let mut script = answered_by_the_host();
    script.ask(60_000);
    let at_host = script.take_at_host();
    assert!(
        at_host[0].payload.is_empty() && at_host[0].head.flags.ack(),
        "the host's handshake is completed first"
    );
    assert_eq!(payloads(&at_host), [Script::request()]);
    assert_eq!(script.card.counters().misses, 1);
}

#[test]
fn bytes_before_the_host_has_answered_are_the_host_s_with_all_that_follow() {
    let mut script = Script::new(Handshake::PassThrough);
    script.send_client(Flags::SYN, 60_000, b"");
    script.seq += 1;
    script.send_client(Flags::ACK, 60_000, b"GET /ob");
    script.seq += 7;
    assert_eq!(script.card.flows(), 0);
    script.send_client(Flags::ACK, 60_000, b"ject HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(payloads(&script.take_at_host()).concat(), Script::request());
    assert_eq!(script.card.counters().misses, 0);
}

#[test]
fn a_syn_with_bytes_is_the_host_s() {
    let mut script = Script::new(Handshake::PassThrough);
    script.send_client(Flags::SYN, 60_000, b"");
    script.send_client(Flags::SYN, 60_000, b"early");
    assert_eq!(script.card.flows(), 0);
    assert_eq!(script.take_at_host().len(), 2);
}

#[test]
fn an_old_syn_does_not_break_a_connection_of_the_host() {
    let mut script = Script::new(Handshake::Card);
    script.send_client(Flags::SYN, 60_000, b"");
    script.seq += 1;
    let syn_ack = script.take_at_client().remove(0);
    // The client never saw that answer: its connection is older, and the host's.
    script.ack = syn_ack.head.seq + 1 + 123_456;
    script.ask(60_000);
    assert_eq!(payloads(&script.take_at_host()), [Script::request()]);
    assert!(script.take_at_client().is_empty(), "a reset would end it");
    assert_eq!(script.card.flows(), 0);
}

#[test]
fn a_wrong_acknowledgment_from_elsewhere_is_reset() {
    let mut script = Script::new(Handshake::Card);
    script.send_client(Flags::SYN, 60_000, b"");
    let syn_ack = script.take_at_client().remove(0);
    script.seq += 1_000_000;
    script.ack = syn_ack.head.seq + 7;
    script.acknowledge(60_000);
    let answer = script.take_at_client().remove(0);
    assert!(answer.head.flags.rst());
    assert_eq!(answer.head.seq, script.ack);
    assert_eq!(script.card.flows(), 1);
}

#[test]
fn timestamps_are_promised_until_the_host_has_none() {
    let mut script = Script::new(Handshake::Card);
    script.timestamps = true;
    for promised in [true, false] {
        script.send_client(Flags::SYN, 60_000, b"");
        script.seq += 1;
        let syn_ack = script.take_at_client().remove(0);
        assert_eq!(syn_ack.head.timestamps.is_some(), promised);
        script.ack = syn_ack.head.seq + 1;
        script.timestamps = promised;
        script.ask(60_000);
        let syn = script.take_at_host().remove(0);
        script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, syn.head.seq + 1, b"");
        let end = script.take_at_client();
        if promised {
            assert!(
                end.iter().any(|segment| segment.head.flags.rst()),
                "the promise cannot be kept"
            );
            script.timestamps = true;
        } else {
            assert_eq!(payloads(&script.take_at_host()), [Script::request()]);
        }
    }
}

#[test]
fn connections_that_the_host_has_yet_to_close_are_counted() {
    let mut script = answered_by_the_host();
    script.store_on_host_connection(HOST_ISN + 1, b"a body");
    script.client_port += 1;
    open_at_host(&mut script);
    script.ask(60_000);
    script.take_body();
    assert_eq!((script.card.counters().hits, script.card.left_to_host()), (1, 0));
    script.send_client(Flags::ACK | Flags::FIN, 60_000, b"");
    script.seq += 1;
    let fin =
        script.take_at_host().into_iter().find(|segment| segment.head.flags.fin()).expect("a FIN");
    script.send_host(Flags::ACK, fin.head.ack, fin.end() + 1, b"");
    assert_eq!(script.card.left_to_host(), 1, "taken, and not closed");
    script.send_host(Flags::ACK | Flags::FIN, fin.head.ack, fin.end() + 1, b"");
    assert_eq!(script.card.left_to_host(), 0);
    // Who resets leaves nothing to wait for.
    let mut script = answered_by_the_host();
    script.send_client(Flags::ACK, 60_000, b"");
    script.send_client(Flags::ACK | Flags::FIN, 60_000, b"");
    script.seq += 1;
    assert_eq!(script.card.left_to_host(), 1);
    script.send_client(Flags::RST, 60_000, b"");
    assert_eq!(script.card.left_to_host(), 0);
}

/// A client opens a new connection from the port of its last one, of which the host has not heard
/// the end.
#[test]
fn a_port_that_is_taken_up_again_is_a_new_connection_at_once() {
    for (seq_ahead, is_new) in [(1, true), (50_000, true), (0u32.wrapping_sub(60), false)] {
        let mut script = Script::with_stored(b"stored");
        let request = b"GET /object HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        // Somebody else has had the reply that ends a connection.
        let mut end = Script::end_of([10, 0, 0, 8], 42_000);
        script.take_turns(&mut end);
        let reply = b"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Length: 6\r\nConnection: close\r\n\r\nstored";
        let mut serve = |_, _: &[u8]| (Duration::from_millis(1), reply.to_vec());
        script.visit([10, 0, 0, 8], request, &mut serve);
        script.take_turns(&mut end);
        script.send_client(Flags::ACK | Flags::PSH, 60_000, request);
        script.seq += request.len() as u32;
        assert!(script.take_body().ends_with(b"stored"));
        // Behind the card's FIN; the host says nothing to its own.
        script.ack += 1;
        script.send_client(Flags::ACK | Flags::FIN, 60_000, b"");
        script.seq += 1;
        script.take_at_client();
        script.seq += seq_ahead;
        script.send_client(Flags::SYN, 60_000, b"");
        let answers = script.take_at_client();
        assert_eq!(
            answers.iter().any(|segment| segment.head.flags.syn()),
            is_new,
            "{seq_ahead}: {answers:?}"
        );
    }
}
