//! Whose turn it is to send.

use std::time::Duration;

use nicache_card::Handshake;
use nicache_coherence::Class;
use nicache_tcp::Flags;

use crate::script::{End, MSS, Script, Segment};

const OBJECT_BYTES: usize = 10 * MSS as usize - 500;
const CLIENTS: u16 = 30;

/// A card that has the object, and connections of [`CLIENTS`] clients to it.
fn scene() -> (Script, Vec<End>) {
    let mut script = Script::with_flows(Handshake::Card, Class::Static, 256);
    script.store(&[b'x'; OBJECT_BYTES]);
    let ends =
        (0..CLIENTS).map(|client| script.open_as([10, 0, 1, client as u8], 50_000)).collect();
    script.take_at_client();
    script.take_at_host();
    (script, ends)
}

fn payload_bytes(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.payload.len()).sum()
}

#[test]
fn what_is_sent_between_two_looks_is_bounded_and_nobody_is_forgotten() {
    let (mut script, mut ends) = scene();
    script.in_one_burst(|script| {
        for end in &mut ends {
            script.take_turns(end);
            script.ask(60_000);
            script.take_turns(end);
        }
    });
    let first = payload_bytes(&script.take_at_client());
    assert!(first > 10 * OBJECT_BYTES && first < 15 * OBJECT_BYTES, "{first}");
    assert_eq!(script.card.next_due(), Some(nicache_tcp::Time::ZERO));
    let mut rest = 0;
    for _ in 0..4 {
        script.poll_once_after(Duration::ZERO);
        rest += payload_bytes(&script.take_at_client());
    }
    let whole = usize::from(CLIENTS) * OBJECT_BYTES;
    assert!(
        first + rest > whole && first + rest < whole + usize::from(CLIENTS) * 300,
        "{}",
        first + rest
    );
    assert_eq!(script.card.counters().hits, u64::from(CLIENTS));
    assert_eq!(script.card.counters().retransmits, 0);
}

#[test]
fn a_request_for_the_host_goes_on_when_the_turn_of_the_replies_before_it_has_come() {
    let (mut script, mut ends) = scene();
    script.in_one_burst(|script| {
        for (client, end) in ends.iter_mut().enumerate() {
            let miss = format!("GET /other/{client} HTTP/1.1\r\nHost: a\r\n\r\n");
            script.take_turns(end);
            script.send_client(
                Flags::ACK | Flags::PSH,
                60_000,
                &[Script::request(), miss.as_bytes()].concat(),
            );
            script.take_turns(end);
        }
    });
    for _ in 0..4 {
        script.poll_once_after(Duration::ZERO);
    }
    let syns = script.take_at_host().iter().filter(|segment| segment.head.flags.syn()).count();
    assert_eq!(syns, usize::from(CLIENTS));
}

#[test]
fn acknowledgments_make_room_after_the_burst_in_one_go() {
    let mut script = Script::with_stored(&[b'x'; 40 * MSS as usize]);
    script.ask(60_000);
    let sent = script.take_at_client();
    assert_eq!(sent.len(), 10, "the initial window");
    script.in_one_burst(|script| {
        for segment in &sent[..4] {
            script.ack = segment.end();
            script.acknowledge(60_000);
        }
        let mut other = Script::end_of([10, 0, 1, 1], 50_000);
        script.take_turns(&mut other);
        script.send_client(Flags::SYN, 60_000, b"");
        script.take_turns(&mut other);
    });
    let sent = script.take_at_client();
    assert!(
        sent[0].head.flags.syn(),
        "whoever opens a connection does not wait for what others are sent"
    );
    // Slow start: two for each that has arrived.
    assert_eq!(sent.len(), 1 + 8);
}

#[test]
fn a_connection_that_ends_before_its_turn_leaves_no_trace() {
    let mut script = Script::with_stored(&[b'x'; 40 * MSS as usize]);
    script.ask(60_000);
    let sent = script.take_at_client();
    script.in_one_burst(|script| {
        script.ack = sent[4].end();
        script.acknowledge(60_000);
        script.send_client(Flags::RST, 0, b"");
        script.client_port += 1;
        script.send_client(Flags::SYN, 60_000, b"");
    });
    let sent = script.take_at_client();
    assert_eq!(sent.len(), 1);
    assert!(sent[0].head.flags.syn() && sent[0].payload.is_empty());
    assert_eq!(script.card.flows(), 1);
    assert_ne!(script.card.next_due(), Some(nicache_tcp::Time::ZERO));
}
