//! What one end says, or does, is for the other end: the card neither keeps it nor says it itself.

use std::time::Duration;

use nicache_card::Handshake;
use nicache_tcp::{Flags, Seq};

use crate::script::{Script, Segment};

const HOST_ISN: Seq = Seq(500_000);

fn send(script: &mut Script, bytes: &[u8]) {
    script.send_client(Flags::ACK | Flags::PSH, 60_000, bytes);
    script.seq += bytes.len() as u32;
}

fn end(script: &mut Script) {
    script.send_client(Flags::ACK | Flags::FIN, 60_000, b"");
    script.seq += 1;
}

fn bytes(segments: &[Segment]) -> Vec<u8> {
    segments.iter().flat_map(|segment| segment.payload.clone()).collect()
}

/// A connection that the host has taken, with the card's splice in between.
fn open_at_host() -> Script {
    let mut script = Script::new(Handshake::PassThrough);
    script.send_client(Flags::SYN, 60_000, b"");
    script.seq += 1;
    script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, script.seq, b"");
    script.ack = HOST_ISN + 1;
    script.acknowledge(60_000);
    script.take_at_client();
    script.take_at_host();
    script
}

/// The host takes a request and says nothing yet.
fn ask(script: &mut Script) {
    script.ask(60_000);
    assert_eq!(bytes(&script.take_at_host()), Script::request());
    script.send_host(Flags::ACK, HOST_ISN + 1, script.seq, b"");
    script.take_at_client();
}

/// Something that the card answers, so it is not what the host is asked next.
fn answered(script: &mut Script) -> Seq {
    ask(script);
    let reply = b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\nhi";
    script.send_host(Flags::ACK, HOST_ISN + 1, script.seq, reply);
    assert_eq!(script.take_body(), reply);
    script.acknowledge(60_000);
    script.take_at_host();
    HOST_ISN + 1 + reply.len() as u32
}

#[test]
fn an_upload_that_ends_before_the_host_has_answered() {
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
    for pieces in [&[POST, b"abc", b"defghi"][..], &[POST, b"abcdefghi"], &[POST]] {
        let mut script = Script::new(Handshake::Card);
        script.open_another();
        pieces.iter().for_each(|piece| send(&mut script, piece));
        end(&mut script);
        let acknowledged = script.take_at_client().last().expect("an answer").head.ack;
        assert_eq!(acknowledged, script.seq, "the card has all of it");
        let syn = script.take_at_host().remove(0);
        assert!(syn.head.flags.syn());
        script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, syn.head.seq + 1, b"");
        let at_host = script.take_at_host();
        assert!(at_host.iter().all(|segment| !segment.head.flags.rst()));
        assert_eq!(bytes(&at_host), pieces.concat());
        let fin = at_host.last().expect("the last one");
        assert!(fin.head.flags.fin());
        assert_eq!(fin.end(), syn.head.seq + 1 + pieces.concat().len() as u32);
        // Its reply comes, and its end.
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        script.send_host(Flags::ACK | Flags::FIN, HOST_ISN + 1, fin.end() + 1, reply);
        let at_client = script.take_at_client();
        assert_eq!(bytes(&at_client), reply);
        let last = at_client.last().expect("the reply");
        assert!(last.head.flags.fin() && last.head.ack == script.seq);
    }
}

#[test]
fn bytes_that_overtake_others_of_an_upload_wait_for_them() {
    let mut script = Script::new(Handshake::Card);
    script.open_another();
    let post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n";
    send(&mut script, post);
    let gap = script.seq;
    script.seq += 3;
    send(&mut script, b"def");
    end(&mut script);
    assert!(script.take_at_client().iter().all(|segment| segment.head.ack.le(gap)));
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, syn.head.seq + 1, b"");
    let at_host = script.take_at_host();
    assert_eq!(bytes(&at_host), post);
    assert!(at_host.iter().all(|segment| !segment.head.flags.fin() && !segment.head.flags.rst()));
    script.seq = gap;
    send(&mut script, b"abcdef");
    end(&mut script);
    let at_host = script.take_at_host();
    assert_eq!(bytes(&at_host), b"abcdef");
    assert!(at_host.last().expect("the end").head.flags.fin());
}

/// A client whose news of its window was lost, and one that has gone: only they can say.
#[test]
fn what_the_host_asks_is_answered_by_the_client() {
    let mut script = open_at_host();
    ask(&mut script);
    let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\nbeginning";
    script.send_host(Flags::ACK, HOST_ISN + 1, script.seq, reply);
    assert_eq!(script.take_body(), reply);
    script.acknowledge(0);
    assert!(script.take_at_host().iter().any(|segment| segment.head.window == 0));
    let next = HOST_ISN + 1 + reply.len() as u32;
    for window in [0, 60_000] {
        script.send_host(Flags::ACK, next - 1, script.seq, b"");
        assert!(script.take_at_host().is_empty(), "nobody speaks for the client");
        let probe = script.take_at_client().pop().expect("the question");
        assert_eq!((probe.head.seq, probe.head.ack), (script.ack - 1, script.seq));
        script.acknowledge(window);
        let answer = script.take_at_host().pop().expect("the answer");
        assert_eq!((answer.head.ack, answer.head.window), (next, window));
    }
}

#[test]
fn a_host_that_is_tired_of_waiting_does_not_end_a_client_that_has_begun_to_ask() {
    for reset in [false, true] {
        let mut script = open_at_host();
        let next = answered(&mut script);
        send(&mut script, b"GET /other HT");
        let flags = if reset { Flags::RST } else { Flags::FIN };
        script.send_host(flags | Flags::ACK, next, script.seq - 13, b"");
        assert!(script.take_at_client().iter().all(|s| !s.head.flags.fin() && !s.head.flags.rst()));
        let at_host = script.take_at_host();
        assert!(bytes(&at_host).is_empty());
        if let Some(fin) = at_host.iter().find(|segment| segment.head.flags.fin()) {
            script.send_host(Flags::ACK, next + 1, fin.end() + 1, b"");
        }
        send(&mut script, b"TP/1.1\r\nHost: a\r\n\r\n");
        let syn = script.take_at_host().pop().expect("another connection");
        assert!(syn.head.flags.syn());
        script.send_host(Flags::SYN | Flags::ACK, Seq(900_000), syn.head.seq + 1, b"");
        assert_eq!(bytes(&script.take_at_host()), b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}

#[test]
fn half_a_head_and_the_end() {
    let mut script = open_at_host();
    send(&mut script, b"GET /obj");
    end(&mut script);
    let at_host = script.take_at_host();
    assert_eq!(bytes(&at_host), b"GET /obj");
    assert!(at_host.last().expect("its end").head.flags.fin());
}

/// A host that has just closed, and whose last number the card's SYN lies below, acknowledges that.
#[test]
fn the_host_is_asked_again_at_once_if_it_means_an_earlier_connection() {
    let mut script = Script::new(Handshake::Card);
    script.open_another();
    script.ask(60_000);
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::ACK, Seq(40_000), syn.head.seq + 2, b"");
    let at_host = script.take_at_host();
    assert!(at_host[0].head.flags.rst());
    assert!(at_host[1].head.flags.syn() && at_host[1].head.seq == syn.head.seq);
    // But it may go on for ever.
    script.send_host(Flags::ACK, Seq(40_000), syn.head.seq + 2, b"");
    assert!(script.take_at_host().iter().all(|segment| !segment.head.flags.syn()));
}

/// A client that has closed its direction behind an upload waits for as long as the server thinks.
#[test]
fn a_client_that_has_closed_waits_for_its_reply() {
    let mut script = Script::new(Handshake::Card);
    script.open_another();
    send(&mut script, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    end(&mut script);
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, syn.head.seq + 1, b"");
    let fin = script.take_at_host().pop().expect("the end");
    script.send_host(Flags::ACK, HOST_ISN + 1, fin.end() + 1, b"");
    for _ in 0..500 {
        script.wait(Duration::from_secs(1));
        if !script.take_at_host().is_empty() {
            script.send_host(Flags::ACK, HOST_ISN + 1, fin.end() + 1, b"");
        }
        assert!(script.take_at_client().iter().all(|segment| !segment.head.flags.rst()));
    }
    script.send_host(Flags::ACK, HOST_ISN + 1, fin.end() + 1, b"HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(script.take_body(), b"HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn a_client_that_waits_for_the_reply_to_its_upload_does_not_give_way() {
    let mut script = Script::new(Handshake::Card);
    script.open_another();
    send(&mut script, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    let syn = script.take_at_host().remove(0);
    script.send_host(Flags::SYN | Flags::ACK, HOST_ISN, syn.head.seq + 1, b"");
    let request = script.take_at_host().pop().expect("the request");
    script.send_host(Flags::ACK, HOST_ISN + 1, request.end(), b"");
    script.wait(Duration::from_secs(6));
    (0..15).for_each(|_| script.open_another());
    script.client_port += 1;
    script.send_client(Flags::SYN, 60_000, b"");
    let counters = script.card.counters();
    assert_eq!((counters.silent_evicted, counters.flows_untracked), (0, 1));
}
