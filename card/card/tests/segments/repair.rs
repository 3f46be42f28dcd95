//! Hits whose segments, acknowledgments or window updates are lost: the body arrives whole and
//! equal (I4).

use std::time::Duration;

use nicache_tcp::Seq;

use crate::script::{MSS, Script, Segment};

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// The client's reassembly.
#[derive(Default)]
struct Received {
    bytes: Vec<Option<u8>>,
}

impl Received {
    /// Takes what lies below `edge`, as a client with that window does.
    fn take(&mut self, first: Seq, segment: &Segment, edge: Seq) {
        for (offset, byte) in segment.payload.iter().enumerate() {
            let seq = segment.head.seq + offset as u32;
            if seq.lt(first) || seq.ge(edge) {
                continue;
            }
            let at = seq.since(first) as usize;
            self.bytes.resize(self.bytes.len().max(at + 1), None);
            assert!(self.bytes[at].is_none_or(|old| old == *byte), "byte {at} has changed");
            self.bytes[at] = Some(*byte);
        }
    }

    /// Number of the first byte that is missing.
    fn next(&self, first: Seq) -> Seq {
        first + self.bytes.iter().take_while(|byte| byte.is_some()).count() as u32
    }

    fn ends_with(&self, body: &[u8]) -> bool {
        let bytes: Option<Vec<u8>> = self.bytes.iter().copied().collect();
        bytes.is_some_and(|bytes| bytes.ends_with(body))
    }
}

/// Some flights, each acknowledged as a whole.
fn receive_all(script: &mut Script, first: Seq, received: &mut Received) {
    for _ in 0..10 {
        for segment in script.take_at_client() {
            received.take(first, &segment, first + 60_000);
        }
        script.ack = received.next(first);
        script.acknowledge(60_000);
    }
}

#[test]
fn a_hit_follows_a_miss_on_the_same_connection() {
    let body = body(10_000);
    let mut script = Script::with_stored(&body);
    let first = script.ack;
    script.ask(60_000);
    let mut received = Received::default();
    receive_all(&mut script, first, &mut received);
    assert!(received.ends_with(&body));
    assert_eq!(script.card.counters().hits, 1);
    assert!(
        script.take_at_host().iter().all(|segment| segment.payload.is_empty()),
        "the host has heard of the hit"
    );
    script.wait(Duration::from_secs(3));
    assert!(script.take_at_client().is_empty(), "everything was acknowledged");
}

#[test]
fn the_byte_of_a_window_probe_may_be_taken() {
    let body = body(10_000);
    let mut script = Script::with_stored(&body);
    let first = script.ack;
    let mut received = Received::default();
    // Room for two segments, then for none; the update that opens the window is lost.
    script.ask(2 * MSS);
    for segment in script.take_at_client() {
        received.take(first, &segment, first + 2 * u32::from(MSS));
    }
    script.ack = received.next(first);
    assert_eq!(script.ack, first + 2 * u32::from(MSS));
    script.acknowledge(0);
    assert!(script.take_at_client().is_empty());
    script.wait(Duration::from_secs(2));
    let probes = script.take_at_client();
    assert!(!probes.is_empty(), "a closed window is probed");
    assert!(probes.iter().all(|probe| probe.head.seq == script.ack && probe.payload.len() == 1));
    // The client has room by now, takes the byte and says so.
    received.take(first, &probes[0], first + 60_000);
    script.ack = received.next(first);
    assert_eq!(script.ack, first + 2 * u32::from(MSS) + 1);
    script.acknowledge(60_000);
    receive_all(&mut script, first, &mut received);
    assert!(received.ends_with(&body), "{} bytes came", received.bytes.len());
    assert_eq!(script.card.counters().segments_unacceptable, 0);
}

#[test]
fn the_answer_to_a_window_probe_may_open_the_window_without_its_byte() {
    let body = body(5_000);
    let mut script = Script::with_stored(&body);
    let first = script.ack;
    let mut received = Received::default();
    script.ask(MSS);
    for segment in script.take_at_client() {
        received.take(first, &segment, first + u32::from(MSS));
    }
    script.ack = received.next(first);
    script.acknowledge(0);
    script.wait(Duration::from_secs(2));
    assert!(!script.take_at_client().is_empty());
    script.acknowledge(60_000);
    receive_all(&mut script, first, &mut received);
    assert!(received.ends_with(&body));
}

#[test]
fn any_single_segment_may_be_lost() {
    let body = body(6_000);
    for lost in 0.. {
        let mut script = Script::with_stored(&body);
        let first = script.ack;
        let mut received = Received::default();
        script.ask(60_000);
        let (mut number, mut dropped) = (0, false);
        for _ in 0..400 {
            for segment in script.take_at_client() {
                if segment.payload.is_empty() {
                    continue;
                }
                if number == lost {
                    dropped = true;
                } else {
                    received.take(first, &segment, first + 60_000);
                }
                number += 1;
                // A client acknowledges every segment: those behind a gap repeat the number before
                // it.
                script.ack = received.next(first);
                script.acknowledge(60_000);
            }
            if received.ends_with(&body) {
                break;
            }
            script.wait(Duration::from_millis(10));
        }
        assert!(
            received.ends_with(&body),
            "without segment {lost}, {} bytes came",
            received.bytes.len()
        );
        assert_eq!(script.card.counters().hits, 1);
        if !dropped {
            assert!(lost >= 6, "a reply of six segments and a head");
            return;
        }
    }
}

#[test]
fn the_next_request_may_acknowledge_the_reply_before() {
    let body = body(3_000);
    let mut script = Script::with_stored(&body);
    for hit in 1..=20 {
        let first = script.ack;
        let mut received = Received::default();
        script.ask(60_000);
        for segment in script.take_at_client() {
            received.take(first, &segment, first + 60_000);
        }
        assert!(received.ends_with(&body));
        script.ack = received.next(first);
        assert_eq!(script.card.counters().hits, hit);
    }
    assert_eq!(script.card.store().in_use(), (1, 1), "the last reply is not acknowledged yet");
    script.acknowledge(60_000);
    assert_eq!(script.card.store().in_use(), (1, 0));
}
