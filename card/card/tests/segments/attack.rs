//! Floods, forged segments, and clients that take their time.

use std::time::Duration;

use nicache_card::Handshake;
use nicache_coherence::Class;
use nicache_tcp::{Flags, Seq};

use crate::script::{Script, Segment};

const S: Duration = Duration::from_secs(1);

#[test]
fn a_flood_of_syns_leaves_nothing_and_hits_go_on() {
    let mut script = Script::with_stored(b"body");
    let flows = script.card.flows();
    script.flood(200);
    assert!(script.card.flows() <= flows + 10, "{} flows", script.card.flows());
    assert!(script.card.counters().syn_cookies_sent >= 190);
    for timestamps in [false, true] {
        script.timestamps = timestamps;
        script.open_another();
        script.ask(60_000);
        assert!(
            script.take_body().ends_with(b"body"),
            "a hit on a connection that a cookie has opened"
        );
    }
    assert_eq!(script.card.counters().syn_cookies_accepted, 2);
    assert_eq!(script.card.counters().hits, 2);
    assert!(script.take_at_host().is_empty());
}

#[test]
fn forged_answers_to_cookies_are_the_host_s_business() {
    let mut script = Script::new(Handshake::Card);
    script.flood(50);
    let flows = script.card.flows();
    for guess in 0..100 {
        script.seq = Seq(5_000 + guess);
        script.ack = Seq(guess.wrapping_mul(0x9e37_79b9));
        script.acknowledge(60_000);
    }
    assert_eq!((script.card.flows(), script.card.counters().syn_cookies_accepted), (flows, 0));
    assert_eq!(script.take_at_host().len(), 100);
}

#[test]
fn a_cookie_is_good_for_two_minutes() {
    for (late, is_good) in [(60, true), (200, false)] {
        let mut script = Script::new(Handshake::Card);
        script.flood(50);
        script.send_client(Flags::SYN, 60_000, b"");
        let syn_ack = script.take_at_client().remove(0);
        script.wait(S * late);
        script.flood(50);
        script.seq += 1;
        script.ack = syn_ack.head.seq + 1;
        script.acknowledge(60_000);
        assert_eq!(
            script.card.counters().syn_cookies_accepted,
            u64::from(is_good),
            "after {late} s"
        );
    }
}

#[test]
fn half_open_connections_give_way_to_each_other_and_not_those_that_are_established() {
    let mut script = Script::new(Handshake::PassThrough);
    script.send_client(Flags::SYN, 60_000, b"");
    script.seq += 1;
    script.send_host(Flags::SYN | Flags::ACK, Seq(700_000), script.seq, b"");
    script.ack = Seq(700_001);
    script.acknowledge(60_000);
    script.flood(200);
    assert!(
        script.card.counters().half_open_evicted >= 180,
        "{:?}",
        script.card.counters().half_open_evicted
    );
    script.ask(60_000);
    assert_eq!(script.card.counters().misses, 1, "the card still follows the connection");
}

#[test]
fn challenges_are_limited() {
    // RFC 5961 sections 3.2, 4.2 and 7.
    let mut script = Script::with_stored(b"body");
    let seq = script.seq;
    let mut answers = 0;
    for round in 0..40 {
        script.seq = seq + 10 + round;
        script.send_client(if round % 2 == 0 { Flags::RST } else { Flags::SYN }, 60_000, b"");
        answers += script.take_at_client().len();
        script.wait(Duration::from_millis(25));
    }
    assert!((1..=3).contains(&answers), "{answers} in a second");
    script.seq = seq;
    script.ask(60_000);
    assert!(script.take_body().ends_with(b"body"), "it lives");
}

#[test]
fn acknowledgments_from_outside_of_the_window_do_not_count() {
    // RFC 9293 section 3.10.7.4, RFC 5961 section 5.
    let mut script = Script::with_stored(&[7; 3_000]);
    script.ask(60_000);
    let sent = script.take_at_client();
    let (seq, end) = (script.seq, sent.last().expect("a reply").end());
    for (forged_seq, forged_ack) in
        [(seq + 200_000, end), (seq - 200_000, end), (seq, end + 1), (seq, end - (1 << 30))]
    {
        (script.seq, script.ack) = (forged_seq, forged_ack);
        script.acknowledge(60_000);
    }
    script.wait(S * 2);
    let again = script.take_at_client();
    assert!(
        again
            .iter()
            .any(|segment| segment.head.seq == sent[0].head.seq && !segment.payload.is_empty()),
        "what is not acknowledged is repeated"
    );
}

#[test]
fn a_head_must_come_whole_in_time() {
    let mut script = Script::with_stored(b"body");
    for byte in Script::request()[..20].chunks(1) {
        script.send_client(Flags::ACK, 60_000, byte);
        script.seq += 1;
        script.wait(S * 4);
    }
    assert_eq!(script.card.counters().clients_head_slow, 1);
    assert!(script.take_at_client().iter().any(|segment| segment.head.flags.rst()));
    assert_eq!(script.card.flows(), 0);
}

#[test]
fn a_window_is_not_closed_for_ever() {
    let mut script = Script::with_stored(&[7; 30_000]);
    script.ask(2_000);
    let mut reset = false;
    for second in 0..200 {
        script.wait(S);
        for segment in script.take_at_client() {
            reset |= segment.head.flags.rst();
            // What is in order is taken, and the window is closed by it.
            if segment.head.seq == script.ack && segment.payload.len() > 1 {
                script.ack = segment.end();
            }
        }
        if !reset {
            script.acknowledge(0);
        }
        assert!(!reset || second > 100, "after {second} s");
    }
    assert!(reset);
    assert_eq!(script.card.counters().clients_window_closed, 1);
}

#[test]
fn a_reader_that_crawls_is_reset() {
    let mut script = Script::with_stored(&[7; 30_000]);
    script.ask(2_000);
    let mut reset = false;
    for _ in 0..100 {
        script.wait(S);
        reset |= script.take_at_client().iter().any(|segment| segment.head.flags.rst());
        if !reset {
            script.ack += 20;
            script.acknowledge(2_000);
        }
    }
    assert!(reset);
    assert_eq!(script.card.counters().clients_slow, 1);
}

/// The host begins to reply to a miss with 20 KB; the client acknowledges none of it.
fn unread_miss(script: &mut Script) -> (Seq, Seq) {
    script.open_another();
    script.ask(60_000);
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::SYN | Flags::ACK, Seq(500_000), syn.head.seq + 1, b"");
    let request = script
        .take_at_host()
        .into_iter()
        .find(|segment| !segment.payload.is_empty())
        .expect("the request");
    let head = b"HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Length: 20000\r\n\r\nbegin";
    script.send_host(Flags::ACK, Seq(500_001), request.end(), head);
    assert_eq!(script.card.fills_in_use(), 1);
    (Seq(500_001), request.end())
}

#[test]
fn who_does_not_read_a_miss_keeps_nobody_from_storing_it() {
    let mut script = Script::new(Handshake::Card);
    let (seq, ack) = unread_miss(&mut script);
    for second in 0..40 {
        // The host repeats it.
        script.send_host(Flags::ACK, seq, ack, b"HTTP/1.1 200 OK\r\n");
        script.wait(S);
        assert!(second < 2 || script.card.fills_in_use() == 0, "given up at once");
        assert!(second != 32 || script.card.flows() == 1, "the connection goes on");
    }
    assert_eq!(
        script.card.counters().cache.fills_aborted[nicache_cache::FillAbort::SlowClient.index()],
        1
    );
}

#[test]
fn only_the_first_waits_for_a_reply_in_vain() {
    let mut script = Script::new(Handshake::Card);
    let (seq, ack) = unread_miss(&mut script);
    let end = seq
        + script.take_at_client().iter().map(|segment| segment.payload.len() as u32).sum::<u32>();
    let first = script.client_port;
    script.open_another();
    script.ask(60_000);
    assert!(script.take_at_host().is_empty(), "it waits for the other's reply");
    for at in 0..30 {
        // The host is not silent.
        let second = std::mem::replace(&mut script.client_port, first);
        script.send_host(Flags::ACK, end + at, ack, b"x");
        script.client_port = second;
        script.wait(Duration::from_millis(10));
    }
    assert!(script.take_at_host().iter().any(|segment| segment.head.flags.syn()), "not for ever");
    script.open_another();
    script.ask(60_000);
    assert!(
        script.take_at_host().iter().any(|segment| segment.head.flags.syn()),
        "the next one not at all"
    );
    assert_eq!(script.card.counters().cache.waits_collapsed, 1);
}

#[test]
fn who_closes_the_window_on_a_miss_keeps_nobody_from_storing_it() {
    for window in [0, 60_000] {
        let mut script = Script::new(Handshake::Card);
        unread_miss(&mut script);
        // The client has taken what came, but not the reply's end.
        let reply: usize =
            script.take_at_client().iter().map(|segment| segment.payload.len()).sum();
        script.ack += reply as u32;
        script.acknowledge(window);
        script.wait(3 * S);
        assert_eq!(
            script.card.fills_in_use(),
            usize::from(window > 0),
            "a host that is slow may be waited for"
        );
        let given_up = script.card.counters().cache.fills_aborted
            [nicache_cache::FillAbort::SlowClient.index()];
        assert_eq!(given_up, u64::from(window == 0));
    }
}

#[test]
fn a_connection_whose_ends_are_both_silent_with_bytes_on_the_way_is_forgotten() {
    let mut script = Script::new(Handshake::Card);
    unread_miss(&mut script);
    script.wait(S * 250);
    assert_eq!(script.card.flows(), 1, "the host repeats its bytes every two minutes at least");
    script.wait(S * 60);
    assert_eq!(script.card.flows(), 0);
    assert_eq!(script.card.holds_in_use(), 0);
}

#[test]
fn a_client_that_vanishes_behind_a_closed_window_is_forgotten() {
    let mut script = Script::new(Handshake::Card);
    unread_miss(&mut script);
    let reply: usize = script.take_at_client().iter().map(|segment| segment.payload.len()).sum();
    script.ack += reply as u32;
    script.acknowledge(0);
    script.wait(S * 250);
    assert_eq!(script.card.flows(), 1, "the host asks for room every two minutes at least");
    script.wait(S * 110);
    assert_eq!(script.card.flows(), 0);
}

#[test]
fn a_host_that_has_closed_owes_nothing_more() {
    let mut script = Script::new(Handshake::Card);
    let (seq, ack) = unread_miss(&mut script);
    // It closes in the middle of the reply; the client acknowledges that, and vanishes.
    let sent: usize = script.take_at_client().iter().map(|segment| segment.payload.len()).sum();
    script.send_host(Flags::ACK | Flags::FIN, seq + sent as u32, ack, b"");
    script.ack += sent as u32 + 1;
    script.acknowledge(60_000);
    script.wait(S * 250);
    assert_eq!(script.card.flows(), 1);
    script.wait(S * 60);
    assert_eq!(script.card.flows(), 0);
}

/// A connection on which a hit has moved the numbers, and then a request that the card does not
/// follow; what it is at the host.
fn moved_and_opaque(script: &mut Script) -> (Seq, Seq) {
    script.open_another();
    script.ask(60_000);
    script.take_body();
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\nContent-Length: 1\r\n\r\nx";
    script.acknowledge(60_000);
    script.take_at_host();
    script.send_client(Flags::ACK | Flags::PSH, 60_000, post);
    script.seq += post.len() as u32;
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::SYN | Flags::ACK, Seq(500_000), syn.head.seq + 1, b"");
    let request = script
        .take_at_host()
        .into_iter()
        .find(|segment| !segment.payload.is_empty())
        .expect("the request");
    (Seq(500_001), request.end())
}

#[test]
fn resets_that_others_forge_do_not_undo_a_splice() {
    for (offset, lives) in
        [(1_000_000, true), (0u32.wrapping_sub(1), true), (500, true), (0, false)]
    {
        let mut script = Script::with_stored(b"body");
        let (seq, ack) = moved_and_opaque(&mut script);
        let next = script.ack;
        script.send_host(Flags::ACK, seq, ack, b"");
        let right = script.seq;
        script.seq = Seq(right.0.wrapping_add(offset));
        script.send_client(Flags::RST, 0, b"");
        script.seq = right;
        script.take_at_client();
        // The host takes the reset, or goes on.
        if lives {
            script.send_host(Flags::ACK, seq, ack, b"HTTP/1.1 200 OK\r\n\r\n");
            let segments = script.take_at_client();
            assert!(
                segments
                    .iter()
                    .any(|segment| !segment.payload.is_empty() && segment.head.seq == next),
                "{offset}"
            );
            script.wait(S * 30);
        }
        assert_eq!(script.card.flows(), 1 + usize::from(lives), "{offset}");
    }
}

#[test]
fn a_reset_that_the_host_has_taken_ends_it() {
    let mut script = Script::with_stored(b"body");
    let (seq, ack) = moved_and_opaque(&mut script);
    script.send_host(Flags::ACK, seq, ack, b"");
    // The client has sent more than the host has acknowledged.
    script.send_client(Flags::ACK | Flags::PSH, 60_000, b"more");
    script.seq += 4;
    script.send_client(Flags::RST, 0, b"");
    assert_eq!(script.card.flows(), 2, "the host may not have got as far");
    script.wait(S * 12);
    assert_eq!(script.card.flows(), 1);
}

#[test]
fn a_port_may_be_used_again_after_a_reset() {
    let mut script = Script::with_stored(b"body");
    let (seq, ack) = moved_and_opaque(&mut script);
    script.send_host(Flags::ACK, seq, ack, b"");
    script.send_client(Flags::ACK | Flags::PSH, 60_000, b"more");
    script.seq += 4;
    script.send_client(Flags::RST, 0, b"");
    script.take_at_client();
    script.seq += 1_000_000;
    for _ in 0..2 {
        script.send_client(Flags::SYN, 60_000, b"");
        script.wait(S);
    }
    assert!(
        script
            .take_at_client()
            .iter()
            .any(|segment| segment.head.flags.contains(Flags::SYN | Flags::ACK))
    );
}

#[test]
fn acknowledgments_that_others_forge_do_not_keep_a_connection() {
    let mut script = Script::with_stored(b"body");
    let (seq, ack) = moved_and_opaque(&mut script);
    script.send_host(Flags::ACK, seq, ack, b"HTTP/1.1 200 OK\r\n\r\n");
    let right = script.ack;
    script.ack += 1_000_000;
    script.acknowledge(60_000);
    script.ack = right;
    // The client has vanished, and after a while the host is tired of repeating.
    assert_eq!(script.card.flows(), 2);
    script.wait(S * 330);
    assert_eq!(script.card.flows(), 1, "the other one is shared with the host");
}

#[test]
fn who_forges_the_end_of_a_connection_does_not_end_it() {
    // Numbers from outside of the window, and a SYN (RFC 5961 section 4) when the client has closed
    // its side.
    for closes_itself in [false, true] {
        let mut script = Script::with_stored(b"body");
        let (seq, ack) = quiet_and_opaque(&mut script);
        let flows = script.card.flows();
        if closes_itself {
            script.send_client(Flags::FIN | Flags::ACK, 60_000, b"");
            script.seq += 1;
            script.send_host(Flags::ACK, seq, ack + 1, b"");
        }
        let right = script.seq;
        script.seq += 1_000_000_000;
        script.send_client(Flags::FIN | Flags::ACK, 60_000, b"");
        script.seq += 1_000_000;
        script.take_at_host();
        script.send_client(Flags::SYN, 60_000, b"");
        script.seq = right;
        assert_eq!(script.card.flows(), flows);
        let at_host = probes_at_host(&mut script);
        assert!(
            at_host.iter().any(|segment| segment.head.flags.syn()),
            "the host judges: {at_host:?}"
        );
        assert!(!at_host.iter().any(|segment| segment.head.flags.rst()));
        if !closes_itself {
            script.wait(S * 320);
        }
        script.take_at_client();
        script.send_host(Flags::ACK, seq, ack + u32::from(closes_itself), b"more");
        let next = script.ack;
        assert!(
            script
                .take_at_client()
                .iter()
                .any(|segment| segment.head.seq == next && segment.payload == b"more")
        );
    }
}

#[test]
fn timestamps_that_others_forge_are_not_shown_to_the_host() {
    let mut script = Script::with_stored(b"body");
    (script.timestamps, script.host_timestamps) = (true, true);
    quiet_and_opaque(&mut script);
    script.wait(S * 10);
    (script.seq, script.tsval) = (script.seq + 1_000_000_000, 1 << 30);
    script.acknowledge(60_000);
    script.take_at_host();
    script.wait(S * 295);
    let [probe] = &probes_at_host(&mut script)[..] else { panic!("one probe") };
    let shown = probe.head.timestamps.expect("agreed").val;
    assert!(shown < 1 << 29, "{shown}");
}

/// A connection that is opaque and moved; the host has what the client has sent, and the client all
/// that the host has.
fn quiet_and_opaque(script: &mut Script) -> (Seq, Seq) {
    let (seq, ack) = moved_and_opaque(script);
    let reply = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    script.send_host(Flags::ACK, seq, ack, reply);
    script.ack += reply.len() as u32;
    script.acknowledge(60_000);
    script.take_at_client();
    script.take_at_host();
    (seq + reply.len() as u32, ack)
}

/// What the host gets on the connection that the script speaks on.
fn probes_at_host(script: &mut Script) -> Vec<Segment> {
    let port = script.client_port;
    script.take_at_host().into_iter().filter(|segment| segment.head.src_port == port).collect()
}

#[test]
fn a_connection_that_the_host_knows_no_longer_is_over() {
    let mut script = Script::with_stored(b"body");
    let (seq, ack) = quiet_and_opaque(&mut script);
    script.wait(S * 299);
    assert!(probes_at_host(&mut script).is_empty());
    script.wait(S * 2);
    let [probe] = &probes_at_host(&mut script)[..] else { panic!("one probe") };
    assert_eq!((probe.head.seq, probe.head.ack, probe.payload.len()), (ack - 1, seq, 0));
    let flows = script.card.flows();
    // RFC 9293 section 3.10.7.1.
    script.send_host(Flags::RST, probe.head.ack, Seq(0), b"");
    assert_eq!(script.card.flows(), flows - 1);
    let resets = script.take_at_client();
    assert!(
        resets.iter().any(|segment| segment.head.flags.rst() && segment.head.seq == script.ack),
        "{resets:?}"
    );
}

#[test]
fn a_host_that_answers_nothing_is_gone() {
    let mut script = Script::with_stored(b"body");
    quiet_and_opaque(&mut script);
    let flows = script.card.flows();
    script.wait(S * 345);
    assert_eq!(probes_at_host(&mut script).len(), 5);
    assert_eq!(script.card.flows(), flows);
    script.wait(S * 10);
    assert!(script.card.flows() < flows);
    assert!(script.take_at_client().iter().any(|segment| segment.head.flags.rst()));
}

#[test]
fn a_closed_window_alone_does_not_end_a_connection() {
    let mut script = Script::with_stored(b"body");
    let (seq, ack) = quiet_and_opaque(&mut script);
    script.acknowledge(0);
    script.take_at_host();
    let flows = script.card.flows();
    for _ in 0..200 {
        script.wait(S * 5);
        for probe in probes_at_host(&mut script) {
            assert_eq!(probe.head.seq, ack - 1);
            script.send_host(Flags::ACK, seq, ack, b"");
        }
    }
    script.take_at_client();
    script.send_host(Flags::ACK, seq, ack, b"x");
    let next = script.ack;
    assert!(
        script
            .take_at_client()
            .iter()
            .any(|segment| segment.head.seq == next && segment.payload == b"x")
    );
    assert!(script.card.flows() >= flows - 1, "the other one's host is silent");
}

#[test]
fn an_opaque_connection_lasts_as_long_as_both_of_its_ends_do() {
    for lives in [true, false] {
        let mut script = Script::with_stored(b"body");
        let (seq, ack) = quiet_and_opaque(&mut script);
        let mut asked = 0;
        for at_s in (0..15_000).step_by(5) {
            script.wait(S * 5);
            for probe in probes_at_host(&mut script) {
                if probe.head.seq == ack - 1 {
                    script.send_host(Flags::ACK, seq, ack, b"");
                }
            }
            let mut segments = script.take_at_client();
            segments.retain(|segment| segment.head.dst_port == script.client_port);
            assert!(
                at_s >= 7_190 || segments.is_empty(),
                "the host's answers are not the client's business"
            );
            for segment in segments.iter().filter(|segment| !segment.head.flags.rst()) {
                assert_eq!((segment.head.seq, segment.head.ack), (script.ack - 1, script.seq));
                asked += 1;
                if lives {
                    script.acknowledge(60_000);
                }
            }
        }
        // RFC 9293 section 3.8.4, as Linux does.
        assert_eq!(asked, if lives { 2 } else { 9 });
        let next = script.ack;
        script.take_at_client();
        script.send_host(Flags::ACK, seq, ack, b"more");
        let passed = script
            .take_at_client()
            .iter()
            .any(|segment| segment.head.seq == next && segment.payload == b"more");
        assert_eq!(passed, lives);
    }
}

#[test]
fn who_says_nothing_gives_way_when_the_table_is_full() {
    let mut script = Script::with_stored(b"body");
    for _ in 0..20 {
        script.open_another();
        script.wait(Duration::from_millis(500));
    }
    assert_eq!(script.card.flows(), 16, "the table is full");
    assert!(
        script.card.counters().silent_evicted >= 4,
        "{}",
        script.card.counters().silent_evicted
    );
    script.ask(60_000);
    assert!(script.take_body().ends_with(b"body"), "the newest is served");
    assert_eq!(script.card.counters().flows_untracked, 0);
}

#[test]
fn who_has_vanished_is_not_waited_for_long_when_the_card_closes() {
    let mut script = Script::with_stored(b"body");
    script.open_another();
    script.ask(60_000);
    script.take_body();
    script.acknowledge(60_000);
    assert_eq!(script.card.flows(), 2);
    script.wait(S * 74);
    assert_eq!(script.card.flows(), 2);
    script.wait(S * 62);
    assert_eq!(
        script.card.flows(),
        1,
        "75 s idle, and 60 s for the FIN; the other is shared with the host"
    );
}

#[test]
fn who_has_just_spoken_does_not_give_way() {
    let mut script = Script::with_stored(b"body");
    (0..15).for_each(|_| script.open_another());
    let evicted = script.card.counters().silent_evicted;
    script.take_at_host();
    script.client_port += 1;
    script.send_client(Flags::SYN, 60_000, b"");
    assert_eq!(
        (script.card.counters().silent_evicted, script.card.counters().flows_untracked),
        (evicted, 1)
    );
    assert_eq!(script.take_at_host().len(), 1, "the host answers it");
}

#[test]
fn timers_that_are_due_at_once_do_not_keep_the_card_from_its_frames() {
    let mut script = Script::with_flows(Handshake::Card, Class::Static, 1_000);
    script.flood(200);
    assert_eq!(script.card.half_open(), 200);
    let mut repeated = Vec::new();
    while repeated.len() < 10 && repeated.iter().sum::<usize>() < 200 {
        script.poll_once_after(if repeated.is_empty() {
            S + Duration::from_millis(100)
        } else {
            Duration::ZERO
        });
        assert!(script.card.next_due().is_some());
        repeated.push(script.take_at_client().len());
    }
    assert_eq!(repeated, [64, 64, 64, 8]);
}

#[test]
fn handshakes_do_not_push_each_other_out_of_a_full_table() {
    let mut script = Script::with_stored(b"body");
    (0..14).for_each(|_| script.open_another());
    assert_eq!(script.card.flows(), 15);
    // One that is slow to answer takes the last place; then others come.
    script.client_port += 1;
    script.send_client(Flags::SYN, 60_000, b"");
    let syn_ack = script.take_at_client().pop().expect("an answer");
    script.flood(20);
    assert_eq!(script.card.counters().half_open_evicted, 0);
    assert_eq!(script.card.counters().flows_untracked, 20, "the host answers them");
    script.seq += 1;
    script.ack = syn_ack.head.seq + 1;
    script.ask(60_000);
    assert!(script.take_body().ends_with(b"body"));
}

#[test]
fn who_says_nothing_gives_his_buffer_to_others() {
    // 16 buffers are there at least.
    let mut script = Script::with_flows(Handshake::Card, Class::Static, 40);
    for _ in 0..17 {
        script.open_another();
        // The beginning of a head.
        script.send_client(Flags::ACK, 60_000, b"GET /");
        script.wait(Duration::from_millis(400));
    }
    assert_eq!((script.card.holds_in_use(), script.card.counters().silent_evicted), (16, 1));
    assert_eq!(script.card.counters().bypasses(), 0);
}
