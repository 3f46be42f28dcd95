//! A client's question whether the connection still lives (RFC 9293 section 3.8.4) is answered at
//! once, whatever is under way.

use nicache_card::Handshake;
use nicache_coherence::Class;
use nicache_tcp::{Flags, Seq};

use crate::script::Script;

/// Each form of a probe has one answer, with the numbers of the connection.
fn is_answered(script: &mut Script) {
    script.take_at_client();
    let next = script.seq;
    // Linux sends no byte; older stacks send one that the other end has already.
    for payload in [&b""[..], b"\0"] {
        script.seq = next - 1;
        script.send_client(Flags::ACK, 60_000, payload);
        script.seq = next;
        let answers = script.take_at_client();
        let [answer] = &answers[..] else { panic!("one answer: {answers:?}") };
        assert!(
            answer.head.flags.ack() && !answer.head.flags.rst() && answer.payload.is_empty(),
            "{answer:?}"
        );
        assert_eq!((answer.head.ack, answer.head.seq), (next, script.ack));
    }
}

#[test]
fn before_the_first_request() {
    let mut script = Script::new(Handshake::Card);
    let mut end = script.open_as([10, 0, 0, 7], 41_000);
    script.take_turns(&mut end);
    is_answered(&mut script);
}

#[test]
fn while_the_server_works_and_afterwards() {
    let mut script = Script::with_class(Handshake::Card, Class::Dynamic);
    script.open_another();
    script.ask(60_000);
    // The host has not accepted the connection.
    is_answered(&mut script);
    let mut script = Script::with_class(Handshake::Card, Class::Dynamic);
    script.open_another();
    script.ask(60_000);
    let request = script.take_request().expect("the request");
    (0..3).for_each(|_| is_answered(&mut script));
    assert!(script.reply(&request, b"late").ends_with(b"late"));
    script.take_at_host();
    is_answered(&mut script);
    // It knows the connection; later it does not.
    let asked = |script: &mut Script| {
        script.take_at_host().into_iter().next().expect("the host is asked, too").head
    };
    let probe = asked(&mut script);
    script.send_host(Flags::ACK, probe.ack, probe.seq + 1, b"");
    assert!(script.take_at_client().is_empty(), "the client has its answer");
    is_answered(&mut script);
    let probe = asked(&mut script);
    script.send_host(Flags::RST, probe.ack, Seq(0), b"");
    assert!(script.take_at_client().iter().any(|segment| segment.head.flags.rst()));
}

#[test]
fn after_a_hit() {
    let mut script = Script::with_stored(b"stored");
    script.ask(60_000);
    assert!(script.take_body().ends_with(b"stored"));
    script.acknowledge(60_000);
    is_answered(&mut script);
}
