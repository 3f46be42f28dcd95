//! A connection from its first segment to its end.

use std::time::Duration;

use nicache_forward::conntrack::{ConnectionId, Phase};
use nicache_forward::first_bytes::By;
use nicache_forward::saved::Saved;
use nicache_forward::services::{Chosen, Health};
use nicache_forward::switch::{LOOK_BYTES_MAX, LOOK_TIME};
use nicache_tcp::{HeadRepr, Seq, SynOptions, Timestamps};

use super::{
    ACK, CLIENT, FIN, OURS, RST, SERVER, SYN, Switching, data, hello, linux, service, switched,
    syn_ack,
};
use crate::world::{INSIDE, OUTSIDE, SERVERS, address};

#[test]
fn a_connection_by_name() {
    for is_told in [false, true] {
        let mut switching = Switching::new(service(By::Sni, is_told, true));
        let ours = switching.handshake(linux());
        let hello = hello("Www.Shop.Example");
        let first = Seq(CLIENT) + 1;
        // In two segments, of which the second one comes first.
        let (a, b) = hello.split_at(30);
        let gap = switching.client(data(first + 30, ours, 500), b).unwrap().remove(0);
        assert_eq!(gap.tcp.ack, first);
        let part = switching.client(data(first, ours, 500), a).unwrap().remove(0);
        assert_eq!(part.tcp.ack, first + 30);
        let mut all = switching.client(data(first + 30, ours, 500), b).unwrap();
        let end = first + hello.len() as u32;
        assert_eq!((all.len(), all[0].tcp.ack), (2, end), "an acknowledgment, and a SYN");
        let syn = all.pop().unwrap();
        let front = if is_told { 28 } else { 0 };
        assert_eq!(
            (syn.interface, syn.destination),
            (usize::from(OUTSIDE), (address(SERVERS[0]), 443))
        );
        assert_eq!((syn.tcp.seq, syn.tcp.flags), (Seq(CLIENT) - front, SYN));
        assert_eq!(syn.tcp.window, u16::try_from(500 << 7).unwrap());
        let asked = syn.tcp.syn_options.unwrap();
        // As long as it may do without timestamps, there is to be room for those that are put in.
        assert_eq!(
            (asked.mss, asked.window_scale, asked.sack_permitted),
            (Some(1448), Some(7), true)
        );

        // The back end scales its windows otherwise, and has another clock.
        let theirs = SynOptions {
            window_scale: Some(3),
            timestamps: Some(Timestamps { val: 90_000, ecr: 510 }),
            ..linux()
        };
        let answer = syn_ack(&syn, theirs);
        let sent = switching.server(&syn, answer, &[]).unwrap();
        let bytes: Vec<u8> = sent.iter().flat_map(|segment| segment.payload.clone()).collect();
        assert_eq!(bytes[front as usize..], hello);
        assert_eq!((sent[0].tcp.seq, sent[0].tcp.ack), (syn.tcp.seq + 1, Seq(SERVER) + 1));
        assert_eq!(sent[0].tcp.timestamps, Some(Timestamps { val: 510, ecr: 90_000 }));
        if is_told {
            let port = switching.port.to_be_bytes();
            let told = [
                &b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..],
                &[10, 1, 0, 2, 10, 1, 0, 100],
                &port,
                &443u16.to_be_bytes(),
            ]
            .concat();
            assert_eq!(bytes[..28], told);
        }
        let id = ConnectionId(switching.world.forwarder.connections().iter().next().unwrap().0.0);
        assert_eq!(switching.world.forwarder.save(id), None, "its first bytes are here alone");

        // They are lost, and come again; the client hears nothing of that.
        let again = switching.wait(Duration::from_secs(2));
        assert!(
            again.iter().all(|segment| segment.interface == usize::from(OUTSIDE))
                && !again.is_empty(),
            "{again:?}"
        );
        // An acknowledgment of half of them is not one for the client, who was told of all.
        let part = |ack| HeadRepr {
            timestamps: Some(Timestamps { val: 90_100, ecr: 510 }),
            window: 4000,
            ..data(Seq(SERVER) + 1, ack, 0)
        };
        let passed = switching.server(&syn, part(syn.tcp.seq + 11), &[]).unwrap().remove(0);
        assert_eq!((passed.tcp.ack, passed.tcp.seq), (end, ours));
        let passed = switching.server(&syn, part(end), &[]).unwrap().remove(0);
        assert_eq!((passed.tcp.ack, passed.tcp.seq), (end, ours));
        let shown = u32::from(passed.tcp.window) << 8;
        assert!((32_000 - 256..=32_000).contains(&shown), "{shown}: the window's right edge stays");
        assert_eq!(
            (switching.counter("switch_spliced"), switching.world.forwarder.waiting_counts()),
            (1, [0; 3])
        );

        // Another forwarder goes on.
        let saved: Saved = switching.world.forwarder.save(id).unwrap();
        let mut next = Switching::new(service(By::Sni, is_told, true));
        assert!(next.world.forwarder.restore(&saved, next.world.now));
        let mut before = passed.tcp.timestamps.unwrap().val;
        for switching in [&mut switching, &mut next] {
            let reply = HeadRepr {
                timestamps: Some(Timestamps { val: 90_500, ecr: 510 }),
                ..data(Seq(SERVER) + 1, end, 4000)
            };
            let passed = switching.server(&syn, reply, &[3; 900]).unwrap().remove(0);
            assert_eq!(
                (passed.source, passed.destination.1),
                ((address(OURS), 443), switching.port)
            );
            assert_eq!((passed.tcp.seq, passed.tcp.ack, passed.payload.len()), (ours, end, 900));
            let stamp = passed.tcp.timestamps.unwrap();
            assert_eq!((stamp.val - before, stamp.ecr), (400, 510));
            before = stamp.val - 400;
            let back = HeadRepr {
                timestamps: Some(Timestamps { val: 520, ecr: stamp.val }),
                ..data(end, ours + 900, 300)
            };
            let passed = switching.client(back, &[5; 1000]).unwrap().remove(0);
            assert_eq!(
                (passed.tcp.seq, passed.tcp.ack, passed.tcp.window),
                (end, Seq(SERVER) + 901, 300)
            );
            assert_eq!(passed.tcp.timestamps, Some(Timestamps { val: 520, ecr: 90_500 }));
            assert_eq!(passed.payload, [5; 1000]);
        }
        // Half-closed, and closed.
        let end = end + 1000;
        let fin = |seq, ack| HeadRepr { flags: ACK | FIN, ..data(seq, ack, 300) };
        assert!(switching.client(fin(end, ours + 900), &[]).unwrap()[0].tcp.flags.fin());
        assert_eq!(
            switching.server(&syn, data(Seq(SERVER) + 901, end + 1, 4000), &[1; 50]).unwrap()[0]
                .tcp
                .seq,
            ours + 900
        );
        assert!(
            switching.server(&syn, fin(Seq(SERVER) + 951, end + 1), &[]).unwrap()[0]
                .tcp
                .flags
                .fin()
        );
        switching.client(data(end + 1, ours + 951, 300), &[]).unwrap();
        let phase = switching.world.forwarder.connections().get(id).unwrap().phase();
        assert_eq!(phase, Phase::TimeWait);
    }
}

/// Each way in which it does not come to a back end: the client is reset, the reason is counted,
/// and nothing is left.
#[test]
fn connections_that_are_reset() {
    let first = Seq(CLIENT) + 1;
    let whole = |name: &str| (hello(name), By::Sni);
    let long =
        [&[22, 3, 1, 0x40, 0, 1, 0, 0x50, 0][..], &vec![0; LOOK_BYTES_MAX as usize]].concat();
    let cases: [(&str, (Vec<u8>, By)); 6] = [
        ("switch_malformed", (b"GET / HTTP/1.1\r\n\r\n".to_vec(), By::Sni)),
        ("switch_malformed", (hello("x"), By::Host)),
        ("switch_unknown_name", whole("nobody.example")),
        ("switch_unknown_name", (b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n".to_vec(), By::Host)),
        ("switch_too_long", (long, By::Sni)),
        (
            "switch_too_long",
            (
                [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; LOOK_BYTES_MAX as usize]].concat(),
                By::Host,
            ),
        ),
    ];
    for (name, (bytes, by)) in cases {
        let mut switching = Switching::new(service(by, false, false));
        let ours = switching.handshake(linux());
        let mut last = Vec::new();
        for (number, part) in bytes.chunks(1400).enumerate() {
            last = switching.client(data(first + 1400 * number as u32, ours, 500), part).unwrap();
            if last[0].tcp.flags.rst() {
                break;
            }
        }
        assert!(last[0].tcp.flags.rst() && last[0].tcp.seq == ours, "{name}: {last:?}");
        assert_eq!(
            (switching.counter(name), switching.world.forwarder.waiting_counts()),
            (1, [0; 3]),
            "{name}"
        );
        assert!(switching.world.forwarder.connections().is_empty());
        // And what still comes is answered with a reset.
        let stray = switching.client(data(first, ours, 500), b"x").unwrap().remove(0);
        assert!(stray.tcp.flags.rst() && stray.tcp.seq == ours);
    }
    // Who says nothing, or too little, for too long.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    switching.client(data(first, ours, 500), &hello("shop.example")[..9]).unwrap();
    assert!(switching.wait(LOOK_TIME - Duration::from_millis(1)).is_empty());
    assert!(switching.wait(Duration::from_secs(1))[0].tcp.flags.rst());
    assert_eq!(switching.counter("switch_late"), 1);
    // A back end that refuses, and one that is silent.
    for is_silent in [false, true] {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let ours = switching.handshake(linux());
        let syn = switching
            .client(data(first, ours, 500), &hello("shop.example"))
            .unwrap()
            .pop()
            .unwrap();
        let told = if is_silent {
            let mut told = Vec::new();
            for _ in 0..40 {
                told.extend(switching.wait(Duration::from_millis(250)));
            }
            assert_eq!(
                told.iter().filter(|segment| segment.tcp.flags == SYN).count(),
                2,
                "again, after 1 and 3 seconds"
            );
            let (client, server): (Vec<_>, Vec<_>) =
                told.into_iter().partition(|segment| segment.interface == usize::from(INSIDE));
            let last = server.last().unwrap();
            assert!(
                last.tcp.flags == RST && last.tcp.seq == syn.tcp.seq + 1,
                "it may have heard of it: {last:?}"
            );
            client.into_iter().next().unwrap()
        } else {
            let refusal =
                HeadRepr { ack: syn.tcp.seq + 1, flags: RST | ACK, ..HeadRepr::default() };
            let mut told = switching.server(&syn, refusal, &[]).unwrap();
            assert_eq!(told.len(), 1, "the client alone: {told:?}");
            told.remove(0)
        };
        assert!(told.tcp.flags.rst() && told.interface == usize::from(INSIDE), "{told:?}");
        let name = if is_silent { "switch_silent" } else { "switch_refused" };
        assert_eq!(
            (switching.counter(name), switching.world.forwarder.connections().len()),
            (1, 0)
        );
    }
}

/// Past the deadline of its drained back end, a connection is reset at both ends with the numbers
/// that each of them expects, whichever of them sends next and whether or not its first bytes have
/// arrived. A client's own reset arrives.
#[test]
fn a_connection_past_the_deadline() {
    let name = hello("shop.example");
    let (first, end) = (Seq(CLIENT) + 1, Seq(CLIENT) + 1 + name.len() as u32);
    for number in 0..16 {
        let [is_spliced, is_masqueraded, by_client, is_last] =
            [0, 1, 2, 3].map(|bit| number >> bit & 1 == 1);
        let case = format!("{is_spliced} {is_masqueraded} {by_client} {is_last}");
        let mut switching = Switching::new(|config| {
            service(By::Sni, false, true)(config);
            if !is_masqueraded {
                config.services[0].masquerade = None;
                config.interfaces[1].masquerade = vec![];
            }
        });
        let (syn, ours) = switched(&mut switching, linux(), linux());
        if is_spliced {
            switching.server(&syn, data(Seq(SERVER) + 1, end, 4000), &[]).unwrap();
        }
        let chosen = Chosen { service: 0, back_end: 0 };
        let until = switching.world.now;
        switching.world.forwarder.set_health(chosen, Health::Draining { until });
        let sent = match (by_client, is_last) {
            (false, _) => switching.server(&syn, data(Seq(SERVER) + 1, end, 4000), b"y"),
            (true, false) => switching.client(data(end, ours, 500), b"x"),
            (true, true) => {
                let fin = HeadRepr { flags: ACK | FIN, ..data(end, ours, 500) };
                switching.client(fin, &[])
            }
        };
        let mut resets = sent.unwrap();
        resets.sort_by_key(|out| out.interface);
        let resets: Vec<_> =
            resets.iter().map(|out| (out.interface, out.tcp.flags.rst(), out.tcp.seq)).collect();
        let expected = if is_spliced { end } else { first };
        let (inside, outside) = (usize::from(INSIDE), usize::from(OUTSIDE));
        assert_eq!(resets, [(inside, true, ours), (outside, true, expected)], "{case}");
        let forwarder = &switching.world.forwarder;
        assert!(forwarder.connections().is_empty(), "{case}");
        assert_eq!(
            (forwarder.waiting_counts(), forwarder.services().connections(chosen)),
            ([0; 3], 0)
        );
    }
    for is_spliced in [false, true] {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let (syn, ours) = switched(&mut switching, linux(), linux());
        if is_spliced {
            switching.server(&syn, data(Seq(SERVER) + 1, end, 4000), &[]).unwrap();
        }
        let until = switching.world.now;
        let chosen = Chosen { service: 0, back_end: 0 };
        switching.world.forwarder.set_health(chosen, Health::Draining { until });
        let rst = HeadRepr { flags: RST | ACK, ..data(end, ours, 0) };
        let passed = switching.client(rst, &[]).unwrap();
        assert_eq!(passed.len(), 1, "{passed:?}");
        assert_eq!((passed[0].interface, passed[0].tcp.seq), (usize::from(OUTSIDE), end));
        assert!(passed[0].tcp.flags.rst());
    }
}

/// A client begins anew between the ends of a connection that it has forgotten.
fn syn(seq: Seq) -> HeadRepr {
    HeadRepr { seq, flags: SYN, window: 64_000, syn_options: Some(linux()), ..HeadRepr::default() }
}

/// A back end that has forgotten the old connection, too, answers: it is reset, and the client's
/// next SYN is answered here, as the first one was.
#[test]
fn the_same_ends_again_while_spliced() {
    let end = Seq(CLIENT) + 1 + hello("shop.example").len() as u32;
    for is_closing in [false, true] {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let (first, ours) = switched(&mut switching, linux(), linux());
        switching.server(&first, data(Seq(SERVER) + 1, end, 4000), &[]).unwrap();
        if is_closing {
            let fin = HeadRepr { flags: ACK | FIN, ..data(end, ours, 500) };
            switching.client(fin, &[]).unwrap();
        }
        let again = Seq(CLIENT) + 5_000_000;
        let passed = switching.client(syn(again), &[]).unwrap();
        assert_eq!((passed.len(), passed[0].tcp.flags), (1, SYN), "the back end says");
        let answer = |ack| HeadRepr { seq: Seq(99), ack, ..syn_ack(&first, linux()) };
        // Nobody else's answer counts.
        assert!(switching.server(&first, answer(again + 2), &[]).is_err());
        assert_eq!(switching.world.forwarder.connections().len(), 1);
        let told = switching.server(&first, answer(again + 1), &[]).unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (told[0].interface, told[0].tcp.flags, told[0].tcp.seq),
            (usize::from(OUTSIDE), RST, again + 1)
        );
        assert!(switching.world.forwarder.connections().is_empty());
        let answer = switching.client(syn(again), &[]).unwrap();
        assert_eq!(
            (answer[0].interface, answer[0].tcp.flags, answer[0].tcp.ack),
            (usize::from(INSIDE), SYN | ACK, again + 1)
        );
    }
}

/// After the end of a connection each SYN of its client is answered here, whatever its number: the
/// back end would answer one that is meant for us.
#[test]
fn the_same_ends_again_after_the_end() {
    let end = Seq(CLIENT) + 1 + hello("shop.example").len() as u32;
    for again in [Seq(CLIENT) - 100_000, end + 1, end + 100_000] {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let (first, ours) = switched(&mut switching, linux(), linux());
        switching.server(&first, data(Seq(SERVER) + 1, end, 4000), &[]).unwrap();
        let fin = |seq, ack| HeadRepr { flags: ACK | FIN, ..data(seq, ack, 500) };
        switching.client(fin(end, ours), &[]).unwrap();
        switching.server(&first, fin(Seq(SERVER) + 1, end + 1), &[]).unwrap();
        switching.client(data(end + 1, ours + 1, 500), &[]).unwrap();
        assert_eq!(switching.world.forwarder.connections().count(Phase::TimeWait), 1);
        let answer = switching.client(syn(again), &[]).unwrap();
        assert_eq!(answer.len(), 1, "{answer:?}");
        assert_eq!(
            (answer[0].interface, answer[0].tcp.flags, answer[0].tcp.ack),
            (usize::from(INSIDE), SYN | ACK, again + 1)
        );
        assert!(switching.world.forwarder.connections().is_empty());
    }
}
