//! What a frame goes through in the card allocates nothing: a hit on a connection that stays, one
//! on a new connection, and what passes between client and host.

use nicache_card::Handshake;
use nicache_tcp::{Flags, Seq};

use crate::script::Script;

/// Times that the card allocates in 100 rounds of `round`, after some to get started.
fn allocations(script: &mut Script, mut round: impl FnMut(&mut Script)) -> u64 {
    for _ in 0..10 {
        round(script);
    }
    script.allocations = 0;
    for _ in 0..100 {
        round(script);
    }
    script.allocations
}

#[test]
fn hits_on_a_connection_that_stays() {
    let mut script = Script::with_stored(&[7; 5000]);
    let counted = allocations(&mut script, |script| {
        script.ask(60_000);
        assert!(script.take_body().len() > 5000);
        script.acknowledge(60_000);
    });
    assert_eq!((counted, script.card.counters().hits), (0, 110));
}

#[test]
fn hits_on_new_connections() {
    let mut script = Script::with_stored(&[7; 100]);
    let counted = allocations(&mut script, |script| {
        script.open_another();
        script.ask(60_000);
        assert!(script.take_body().len() > 100);
        script.acknowledge(60_000);
        script.send_client(Flags::RST, 0, b"");
    });
    assert_eq!((counted, script.card.counters().hits), (0, 110));
}

#[test]
fn what_passes_between_client_and_host() {
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: own=1\r\n\r\n";
    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut script = Script::new(Handshake::Card);
    script.open_another();
    let (mut seq, mut is_open) = (Seq(500_000), false);
    let counted = allocations(&mut script, |script| {
        script.send_client(Flags::ACK | Flags::PSH, 60_000, REQUEST);
        script.seq += REQUEST.len() as u32;
        if !is_open {
            let syn = script.take_at_host().remove(0);
            script.send_host(Flags::SYN | Flags::ACK, seq, syn.head.seq + 1, b"");
            (seq, is_open) = (seq + 1, true);
        }
        let at_host = script.take_at_host();
        let asked = at_host.iter().find(|segment| !segment.payload.is_empty()).expect("passed on");
        script.send_host(Flags::ACK | Flags::PSH, seq, asked.end(), REPLY);
        seq += REPLY.len() as u32;
        assert_eq!(script.take_body(), REPLY);
        script.acknowledge(60_000);
    });
    assert_eq!((counted, script.card.counters().hits), (0, 0));
}
