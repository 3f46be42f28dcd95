//! A back end by the name that a client asks for, segment by segment: every frame that comes out is
//! judged anew, word by word.

use std::time::Duration;

use nicache_forward::conntrack::{ConnectionId, Phase};
use nicache_forward::first_bytes::By;
use nicache_forward::names::{Names, Pattern};
use nicache_forward::saved::Saved;
use nicache_forward::services::{BackEnd, ByName, ServiceConfig};
use nicache_forward::switch::{LOOK_BYTES_MAX, LOOK_TIME};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Decision, Drop, Head, Incoming, Moment};
use nicache_port::Offload;
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Packet, Tags, write_headers};
use nicache_tcp::{Flags, HeadRepr, SegmentHead, Seq, SynOptions, Timestamps, checksum};
use proptest::prelude::*;

use crate::packets::verify;
use crate::world::{CLIENTS, INSIDE, OUTSIDE, SERVERS, TAG, World, address};

const SYN: Flags = Flags::SYN;
const ACK: Flags = Flags::ACK;
const RST: Flags = Flags::RST;
const FIN: Flags = Flags::FIN;
const OURS: &str = "10.1.0.100";
/// Client and server have these numbers before their handshakes.
const CLIENT: u32 = u32::MAX - 3;
const SERVER: u32 = 7000;

/// A service whose first server has `shop.example` and whose second one the rest, if there is a
/// rest.
fn service(by: By, is_told: bool, has_rest: bool) -> impl FnOnce(&mut Config) {
    move |config| {
        let back_end = |number: usize| BackEnd {
            endpoint: Endpoint::new(address(SERVERS[number]), 443),
            weight: 1,
        };
        let shop =
            vec![Pattern::new("*.shop.example").unwrap(), Pattern::new("shop.example").unwrap()];
        let other = if has_rest { vec![] } else { vec![Pattern::new("other.example").unwrap()] };
        config.services = vec![ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new(address(OURS), 443),
            back_ends: vec![back_end(0), back_end(1)],
            masquerade: Some(0),
            by_name: Some(ByName {
                by,
                names: Names::new(&[shop, other]).unwrap(),
                proxy_protocol: is_told,
            }),
        }];
    }
}

fn frame_of(
    is_inside: bool,
    from: (&str, u16),
    to: (&str, u16),
    repr: HeadRepr,
    payload: &[u8],
) -> Vec<u8> {
    let addresses = Addresses {
        source_mac: [4, 0, 0, 0, u8::from(!is_inside), 0],
        destination_mac: [2, 0, 0, 0, 1, u8::from(!is_inside)],
        tags: if is_inside { Tags::default() } else { Tags::from_bytes(&TAG).unwrap() },
        source: address(from.0).into(),
        destination: address(to.0).into(),
    };
    let repr = HeadRepr { src_port: from.1, dst_port: to.1, ..repr };
    let mut headers = [0; HEADERS_BYTES_MAX];
    let len = write_headers(&addresses, &repr, payload.len() as u32, 9, &mut headers);
    let mut frame = [&headers[..len], payload].concat();
    let at = addresses.tcp_at();
    let sum = checksum::finish(checksum::sum(&frame[at..]));
    frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// What came out: by which interface, its header, and its payload.
#[derive(Debug)]
struct Out {
    interface: usize,
    source: (std::net::IpAddr, u16),
    destination: (std::net::IpAddr, u16),
    tcp: SegmentHead,
    payload: Vec<u8>,
    /// Bytes of payload of each segment that it is cut into.
    cut: Option<u16>,
}

impl Out {
    /// Bytes of options and payload of its longest segment.
    fn segment_bytes(&self) -> usize {
        let payload = self.payload.len();
        self.tcp.header_len - 20 + self.cut.map_or(payload, |size| payload.min(size.into()))
    }
}

fn out(interface: usize, frame: &[u8], offload: Offload) -> Out {
    let seen = verify(frame, offload).unwrap();
    let packet = Packet::parse(frame).unwrap();
    let tcp = nicache_tcp::parse(&frame[packet.transport_at..packet.end]).unwrap();
    let payload = frame[packet.transport_at + tcp.header_len..packet.end].to_vec();
    Out {
        interface,
        source: seen.from(),
        destination: (seen.destination, seen.ports.1),
        tcp,
        payload,
        cut: offload.gso.map(|gso| gso.size),
    }
}

struct Switching {
    world: World,
    port: u16,
}

impl Switching {
    fn new(adjust: impl FnOnce(&mut Config)) -> Self {
        let mut world = World::new(adjust);
        world.now += Duration::from_secs(1000);
        Self { world, port: 4711 }
    }

    /// What a frame leads to, in order: what is passed on or answered, and what is said besides.
    fn give(&mut self, frame: &[u8], port: u8) -> Result<Vec<Out>, Drop> {
        let mut head = Head::new();
        let moment = Moment { now: self.world.now, random: 77 };
        // As of a card: headers first.
        let incoming = Incoming {
            look: &frame[..frame.len().min(120)],
            len: frame.len(),
            port,
            offload: Offload::default(),
        };
        let forwarder = &mut self.world.forwarder;
        let mut decision = forwarder.handle(&incoming, &mut head, moment);
        if decision == Decision::Look {
            decision =
                forwarder.handle_whole(&Incoming { look: frame, ..incoming }, &mut head, moment);
        }
        let mut all = Vec::new();
        match decision {
            // The checksum is still whole.
            Decision::Forward(passed) | Decision::Segment { whole: passed, .. } => {
                all.push(out(
                    passed.interface,
                    &[&head[..], &frame[passed.rest]].concat(),
                    passed.offload,
                ));
            }
            Decision::Answer { interface } => all.push(out(interface, &head, Offload::default())),
            Decision::Taken => {}
            Decision::Drop(why) => return Err(why),
            other => panic!("{other:?}"),
        }
        all.extend(self.own());
        Ok(all)
    }

    fn own(&mut self) -> Vec<Out> {
        std::iter::from_fn(|| self.world.forwarder.poll_own())
            .map(|(interface, frame)| out(interface, &frame, Offload::default()))
            .collect()
    }

    fn wait(&mut self, time: Duration) -> Vec<Out> {
        self.world.now += time;
        while self.world.forwarder.expire(self.world.now) {}
        self.own()
    }

    fn client(&mut self, repr: HeadRepr, payload: &[u8]) -> Result<Vec<Out>, Drop> {
        let frame = frame_of(true, (CLIENTS[0], self.port), (OURS, 443), repr, payload);
        self.give(&frame, INSIDE)
    }

    fn server(&mut self, to: &Out, repr: HeadRepr, payload: &[u8]) -> Result<Vec<Out>, Drop> {
        let (from, to) = (to.destination.0.to_string(), (to.source.0.to_string(), to.source.1));
        let frame = frame_of(false, (&from, 443), (&to.0, to.1), repr, payload);
        self.give(&frame, OUTSIDE)
    }

    fn counter(&self, name: &str) -> u64 {
        self.world.forwarder.counters().each().find(|(counter, _)| counter.name == name).unwrap().1
    }

    /// A handshake. Returns our number.
    fn handshake(&mut self, options: SynOptions) -> Seq {
        let syn = HeadRepr {
            seq: Seq(CLIENT),
            flags: SYN,
            window: 64_000,
            syn_options: Some(options),
            ..HeadRepr::default()
        };
        let answer = self.client(syn, &[]).unwrap().remove(0);
        assert!(
            answer.tcp.flags.syn() && answer.tcp.flags.ack() && answer.tcp.ack == Seq(CLIENT) + 1,
            "{answer:?}"
        );
        assert_eq!(answer.interface, usize::from(INSIDE));
        let ours = answer.tcp.seq + 1;
        let stamps = answer.tcp.timestamps.map(|stamps| Timestamps { val: 501, ecr: stamps.val });
        let ack = HeadRepr {
            seq: Seq(CLIENT) + 1,
            ack: ours,
            flags: ACK,
            window: 500,
            timestamps: stamps,
            ..HeadRepr::default()
        };
        assert!(self.client(ack, &[]).unwrap().is_empty());
        ours
    }
}

fn linux() -> SynOptions {
    SynOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { val: 500, ecr: 0 }),
        ecn: false,
    }
}

/// A ClientHello for a name, in one record.
fn hello(name: &str) -> Vec<u8> {
    long_hello(name, 0)
}

/// A ClientHello for a name with so many bytes of padding, in one record.
fn long_hello(name: &str, more: u16) -> Vec<u8> {
    let part = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let list = part(&[&[0][..], &part(name.as_bytes())].concat());
    let padding = match more {
        0 => Vec::new(),
        more => [&[0, 21][..], &part(&vec![0; usize::from(more)])].concat(),
    };
    let extensions = [&[0, 0][..], &part(&list), &padding].concat();
    let body =
        [&[3, 3][..], &[7; 32], &[0], &part(&[0x13, 1]), &[1, 0], &part(&extensions)].concat();
    let message = [&[1, 0][..], &part(&body)].concat();
    [&[22, 3, 1][..], &part(&message)].concat()
}

fn data(seq: Seq, ack: Seq, window: u16) -> HeadRepr {
    HeadRepr {
        seq,
        ack,
        flags: ACK,
        window,
        timestamps: Some(Timestamps { val: 510, ecr: 9 }),
        ..HeadRepr::default()
    }
}

/// From the SYN to the end, by way of another forwarder: every number on either side is what that
/// side expects. A back end's answer to the SYN of a connection.
fn syn_ack(syn: &Out, options: SynOptions) -> HeadRepr {
    HeadRepr {
        seq: Seq(SERVER),
        ack: syn.tcp.seq + 1,
        flags: SYN | ACK,
        window: 60_000,
        syn_options: Some(options),
        ..HeadRepr::default()
    }
}

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

/// A flood of SYNs leaves nothing, and who answers his cookie comes through (RFC 4987 section 3.6).
#[test]
fn a_flood_of_syns() {
    let mut switching = Switching::new(service(By::Host, false, true));
    let syn = HeadRepr {
        seq: Seq(CLIENT),
        flags: SYN,
        window: 64_000,
        syn_options: Some(linux()),
        ..HeadRepr::default()
    };
    for port in 1..=5000 {
        switching.port = port;
        assert!(switching.client(syn, &[]).unwrap()[0].tcp.flags.syn());
    }
    let [half_open, ..] = switching.world.forwarder.waiting_counts();
    assert!(half_open <= 520, "{half_open}");
    assert_eq!(switching.counter("switch_cookies_sent"), 5000 - u64::from(half_open));
    switching.port = 60_000;
    let ours = switching.handshake(linux());
    assert_eq!(switching.counter("switch_cookies_answered"), 1);
    let stamps = Some(Timestamps { val: 505, ecr: 1 });
    let request = HeadRepr { timestamps: stamps, ..data(Seq(CLIENT) + 1, ours, 500) };
    let all = switching.client(request, b"GET / HTTP/1.1\r\nHost: a.shop.example\r\n\r\n").unwrap();
    let asked = all[1].tcp.syn_options.unwrap();
    assert_eq!(
        (all[1].tcp.flags, asked.window_scale, asked.sack_permitted),
        (SYN, Some(7), true),
        "what the cookie has kept"
    );
    // Whoever guesses is reset, and does not get in.
    switching.port = 60_001;
    let guess = switching.client(data(Seq(9), Seq(10), 500), b"x").unwrap().remove(0);
    assert!(guess.tcp.flags.rst());
    // Those that nobody completes are forgotten without a word.
    assert!(
        switching
            .wait(Duration::from_secs(11))
            .iter()
            .all(|segment| segment.interface == usize::from(OUTSIDE))
    );
    assert_eq!(switching.world.forwarder.waiting_counts()[0], 0);
}

/// Whoever sends segments of connections that nobody knows is answered, but not as often as he
/// likes; and who is refused meanwhile is told.
#[test]
fn a_flood_of_strays() {
    let mut switching = Switching::new(service(By::Sni, false, false));
    let first = Seq(CLIENT) + 1;
    // How many of so many are answered.
    let flood = |switching: &mut Switching, count: u32| {
        let mut resets = 0;
        for number in 0..count {
            switching.port = 1 + (number % 4000) as u16;
            let flags = [ACK, FIN, ACK | FIN, Flags::default()][number as usize % 4];
            match switching.client(HeadRepr { flags, ..data(Seq(number), Seq(9), 500) }, b"x") {
                Ok(all) => {
                    assert!(all.len() == 1 && all[0].tcp.flags.rst(), "{all:?}");
                    resets += 1;
                }
                Err(why) => assert_eq!(why, Drop::ResetLimit),
            }
        }
        resets
    };
    assert_eq!(flood(&mut switching, 5000), 200);
    switching.port = 50_000;
    let ours = switching.handshake(linux());
    let refused =
        switching.client(data(first, ours, 500), &hello("nobody.example")).unwrap().remove(0);
    assert!(refused.tcp.flags.rst(), "{refused:?}");
    // Over ten seconds they are a thousand in each.
    let mut sum = 0u64;
    for _ in 0..100 {
        switching.wait(Duration::from_millis(100));
        sum += flood(&mut switching, 300);
    }
    assert_eq!(sum, 100 * 100);
    assert_eq!(switching.counter("switch_stray"), 200 + sum);
    let held_back = 5000 + 30_000 - 200 - sum;
    assert_eq!(switching.counter("resets_held_back"), held_back);
    assert_eq!(switching.world.forwarder.counters().dropped_for(Drop::ResetLimit), held_back);
    // A while later, one is answered as ever.
    switching.wait(Duration::from_secs(1));
    assert_eq!(flood(&mut switching, 1), 1);
}

/// Connections that are refused by the thousand are not all told, and their next segments are those
/// of unknown ones.
#[test]
fn a_flood_of_refusals() {
    let mut switching = Switching::new(service(By::Sni, false, false));
    let (first, hello) = (Seq(CLIENT) + 1, hello("nobody.example"));
    let mut told = 0;
    for port in 1..=1000 {
        switching.port = port;
        let ours = switching.handshake(linux());
        match switching.client(data(first, ours, 500), &hello) {
            Ok(all) => told += u32::from(all[0].tcp.flags.rst()),
            Err(why) => assert_eq!(why, Drop::ResetLimit),
        }
    }
    assert_eq!((told, switching.counter("switch_unknown_name")), (200, 1000));
    assert_eq!(switching.world.forwarder.waiting_counts(), [0; 3]);
    assert!(
        switching.client(data(first, Seq(7), 500), &hello).unwrap()[0].tcp.flags.rst(),
        "it comes again"
    );
    // Those that wait in vain end all at once.
    let mut switching = Switching::new(service(By::Sni, false, false));
    for port in 1..=1000 {
        switching.port = port;
        switching.handshake(linux());
    }
    assert_eq!(switching.wait(LOOK_TIME + Duration::from_secs(1)).len(), 200);
    assert_eq!(
        (switching.counter("switch_late"), switching.counter("resets_held_back")),
        (1000, 800)
    );
}

proptest! {
    /// However a client cuts its first bytes, a back end gets them in segments that it takes (RFC
    /// 9293 section 3.7.1, RFC 6691), whatever is lost of them.
    #[test]
    fn first_bytes_in_segments_that_a_back_end_takes(
        more in 0u16..12_000,
        cut in prop_oneof![1usize..40, 40usize..1500, 1500usize..9000],
        mss in prop_oneof![Just(None), (48u16..600).prop_map(Some), (600u16..9000).prop_map(Some)],
        has_stamps in any::<bool>(),
        window in 1u16..,
        // Which ones of all. More of them, and it is given up after two minutes.
        lost in proptest::collection::btree_set(0usize..40, 0..6),
    ) {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let asked = linux();
        let asked = SynOptions { timestamps: asked.timestamps.filter(|_| has_stamps), ..asked };
        let ours = switching.handshake(asked);
        let hello = long_hello("shop.example", more);
        let first = Seq(CLIENT) + 1;
        let stamped = |repr: HeadRepr| HeadRepr {
            timestamps: repr.timestamps.filter(|_| has_stamps),
            ..repr
        };
        let mut said = Vec::new();
        for (number, part) in hello.chunks(cut).enumerate() {
            let seq = first + (number * cut) as u32;
            said.extend(switching.client(stamped(data(seq, ours, 500)), part).unwrap());
        }
        let syn = said.into_iter().find(|out| out.tcp.flags == SYN).unwrap();
        let theirs = Timestamps { val: 90_000, ecr: 510 };
        let answer = HeadRepr {
            seq: Seq(SERVER),
            ack: syn.tcp.seq + 1,
            flags: SYN | ACK,
            window,
            syn_options: Some(SynOptions {
                mss,
                timestamps: has_stamps.then_some(theirs),
                ..linux()
            }),
            ..HeadRepr::default()
        };
        let longest = usize::from(mss.unwrap_or(536)) - if has_stamps { 12 } else { 0 };
        let mut sent = switching.server(&syn, answer, &[]).unwrap();
        let mut count = 0;
        let mut got = vec![None; hello.len()];
        for turn in 0.. {
            prop_assert!(turn < 3000, "it does not come to an end");
            let mut is_news = false;
            for out in std::mem::take(&mut sent) {
                let at = out.tcp.seq.since(first) as usize;
                prop_assert_eq!(out.interface, usize::from(OUTSIDE));
                prop_assert!(
                    (1..=longest).contains(&out.payload.len()),
                    "{} bytes, {longest} at most",
                    out.payload.len()
                );
                prop_assert_eq!(&out.payload[..], &hello[at..at + out.payload.len()]);
                prop_assert_eq!(out.tcp.flags.psh(), at + out.payload.len() == hello.len());
                prop_assert_eq!(out.tcp.timestamps.is_some(), has_stamps);
                count += 1;
                if lost.contains(&(count - 1)) {
                    continue;
                }
                is_news = true;
                for (place, byte) in got[at..].iter_mut().zip(&out.payload) {
                    *place = Some(*byte);
                }
            }
            let whole = got.iter().take_while(|byte| byte.is_some()).count();
            if is_news {
                let ack = stamped(data(Seq(SERVER) + 1, first + whole as u32, 8000));
                let all = switching.server(&syn, ack, &[]).unwrap();
                sent.extend(all.into_iter().filter(|out| out.interface == usize::from(OUTSIDE)));
            }
            if whole == hello.len() {
                break;
            }
            if sent.is_empty() {
                sent = switching.wait(Duration::from_millis(100));
            }
        }
        prop_assert_eq!(
            (switching.counter("switch_spliced"), switching.world.forwarder.waiting_counts()),
            (1, [0; 3])
        );
    }
}

/// What an end agrees to.
fn options() -> impl Strategy<Value = SynOptions> {
    let mss = prop_oneof![Just(None), (536u16..1460).prop_map(Some)];
    (mss, proptest::option::of(0u8..15), any::<bool>(), any::<bool>()).prop_map(
        |(mss, window_scale, sack, stamps)| {
            let timestamps = stamps.then_some(Timestamps { val: 500, ecr: 0 });
            SynOptions { mss, window_scale, sack_permitted: sack, timestamps, ecn: false }
        },
    )
}

/// A connection of a client that offers `asked`, up to the back end's answer to the SYN. Returns
/// the SYN and our number.
fn switched(switching: &mut Switching, asked: SynOptions, theirs: SynOptions) -> (Out, Seq) {
    let ours = switching.handshake(asked);
    let stamps = asked.timestamps.map(|_| Timestamps { val: 510, ecr: 9 });
    let first = HeadRepr { timestamps: stamps, ..data(Seq(CLIENT) + 1, ours, 500) };
    let syn = switching.client(first, &hello("shop.example")).unwrap().pop().unwrap();
    let options = syn.tcp.syn_options.unwrap();
    // Nobody agrees to what he was not asked for.
    let agreed = SynOptions {
        window_scale: theirs.window_scale.filter(|_| options.window_scale.is_some()),
        sack_permitted: theirs.sack_permitted && options.sack_permitted,
        timestamps: theirs
            .timestamps
            .zip(options.timestamps)
            .map(|(_, asked)| Timestamps { val: 90_000, ecr: asked.val }),
        ..theirs
    };
    let answer = syn_ack(&syn, agreed);
    switching.server(&syn, answer, &[]).unwrap();
    (syn, ours)
}

proptest! {
    /// Whatever a client and its back end agree to, each sees what it has agreed to and no more,
    /// and all bytes arrive (RFC 7323, RFC 2018).
    #[test]
    fn ends_that_do_not_agree(
        asked in options(),
        theirs in options(),
        is_taken_over in any::<bool>(),
        steps in proptest::collection::vec(
            (any::<bool>(), 0usize..1400, 0u64..3000, 1u16.., any::<bool>()),
            1..30,
        ),
    ) {
        let mut switching = Switching::new(service(By::Sni, false, true));
        let (syn, ours) = switched(&mut switching, asked, theirs);
        let client_stamps = asked.timestamps.is_some();
        let server_stamps = client_stamps && theirs.timestamps.is_some();
        let sack = asked.sack_permitted && theirs.sack_permitted;
        let scales = asked.window_scale.zip(theirs.window_scale);
        let client_scale = asked.window_scale.unwrap_or(0);
        let (server_scale, seen_scale) = scales.map_or((0, 0), |(asked, theirs)| (theirs, asked));
        let card_scale = if asked.window_scale.is_some() { 8 } else { 0 };
        let mut client = Seq(CLIENT) + 1 + hello("shop.example").len() as u32;
        let mut server = Seq(SERVER) + 1;
        let server_clock =
            |switching: &Switching| 90_000 + (switching.world.now.0 / 1_000_000) as u32 - 1_000_000;
        let ack = HeadRepr {
            timestamps: server_stamps.then_some(Timestamps { val: 90_000, ecr: 510 }),
            ..data(server, client, 60_000 >> server_scale)
        };
        let passed = switching.server(&syn, ack, &[]).unwrap().remove(0);
        prop_assert_eq!(passed.tcp.timestamps.is_some(), client_stamps);
        prop_assert_eq!(switching.counter("switch_spliced"), 1);
        prop_assert_eq!(
            switching.counter("switch_unstamped"),
            u64::from(client_stamps && !server_stamps)
        );
        let mut last = passed.tcp.timestamps.map_or(0, |stamps| stamps.val);
        let (mut told, mut acked) = (510, Some(client));
        if is_taken_over {
            let id =
                ConnectionId(switching.world.forwarder.connections().iter().next().unwrap().0.0);
            let saved: Saved = switching.world.forwarder.save(id).unwrap();
            let mut next = Switching::new(service(By::Sni, false, true));
            next.world.now = switching.world.now;
            prop_assert!(next.world.forwarder.restore(&saved, next.world.now));
            switching = next;
            // From the client's next segment on, it is echoed.
            (told, acked) = (if server_stamps { 510 } else { 0 }, None);
        }
        let mut ends = server - SERVER;
        let mut value = 600;
        for (is_client, len, pause, window, has_gap) in steps {
            switching.wait(Duration::from_millis(pause));
            let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut blocks = nicache_tcp::SackBlocks::EMPTY;
            if is_client {
                value += 1 + pause as u32;
                if has_gap && asked.sack_permitted {
                    blocks.push(ours + ends.0, ours + (ends.0 + 9));
                }
                let repr = HeadRepr {
                    timestamps: client_stamps.then_some(Timestamps { val: value, ecr: last }),
                    sack: blocks,
                    ..data(client, ours + (server - (SERVER + 1)).0, window)
                };
                let out = switching.client(repr, &payload).unwrap().remove(0);
                // RFC 7323 section 4.3: the timestamp of what was the next one to be acknowledged.
                if server_stamps || acked.is_none_or(|acked| client == acked) {
                    told = value;
                }
                prop_assert_eq!(
                    (out.tcp.seq, out.tcp.ack, &out.payload),
                    (client, server, &payload)
                );
                prop_assert!(out.segment_bytes() <= theirs.mss.unwrap_or(536).into(), "{out:?}");
                prop_assert_eq!(out.tcp.timestamps.is_some(), server_stamps);
                if let Some(stamps) = out.tcp.timestamps {
                    prop_assert_eq!(stamps.val, value);
                }
                prop_assert_eq!(!out.tcp.sack.is_empty(), !blocks.is_empty() && sack);
                let (granted, shown) =
                    (u64::from(window) << client_scale, u64::from(out.tcp.window) << seen_scale);
                prop_assert!(
                    shown <= granted
                        && (granted - shown < 1 << seen_scale || out.tcp.window == u16::MAX)
                );
                client += len as u32;
            } else {
                if has_gap && sack {
                    for number in 0..4 - usize::from(server_stamps) as u32 {
                        blocks.push(client + 100 * number, client + (100 * number + 9));
                    }
                }
                let stamps = Timestamps { val: server_clock(&switching), ecr: told };
                let repr = HeadRepr {
                    timestamps: server_stamps.then_some(stamps),
                    sack: blocks,
                    ..data(server, client, window)
                };
                let out = switching.server(&syn, repr, &payload).unwrap().remove(0);
                prop_assert_eq!((out.tcp.ack, &out.payload), (client, &payload));
                prop_assert_eq!(out.tcp.seq, ours + (server - (SERVER + 1)).0);
                prop_assert!(out.segment_bytes() <= asked.mss.unwrap_or(536).into(), "{out:?}");
                prop_assert_eq!(out.tcp.timestamps.is_some(), client_stamps);
                if let Some(stamps) = out.tcp.timestamps {
                    prop_assert!(
                        stamps.val.wrapping_sub(last) <= 3000 * 30,
                        "{} after {last}",
                        stamps.val
                    );
                    prop_assert!(stamps.ecr == told, "{stamps:?}, not {told}");
                    last = stamps.val;
                }
                let most = if client_stamps { 3 } else { 4 };
                prop_assert_eq!(
                    out.tcp.sack.as_slice(),
                    &blocks.as_slice()[..blocks.len().min(most)]
                );
                let (granted, shown) =
                    (u64::from(window) << server_scale, u64::from(out.tcp.window) << card_scale);
                prop_assert!(
                    shown <= granted
                        && (granted - shown < 1 << card_scale || out.tcp.window == u16::MAX)
                );
                acked = Some(client);
                server += len as u32;
                ends = server - SERVER;
            }
        }
        // A reset passes.
        let reset = switching
            .server(&syn, HeadRepr { seq: server, flags: RST, ..HeadRepr::default() }, &[])
            .unwrap();
        prop_assert!(reset[0].tcp.flags.rst() && reset[0].tcp.timestamps.is_none());
        prop_assert_eq!(reset[0].tcp.seq, ours + (server - (SERVER + 1)).0);
    }
}

/// What one back end has said counts for the clients that come later, and a segment that would be
/// too long with timestamps is cut.
#[test]
fn what_back_ends_have_said() {
    let mut switching = Switching::new(service(By::Sni, false, true));
    let asked_of = |switching: &mut Switching| {
        switching.port += 1;
        let syn = HeadRepr {
            seq: Seq(CLIENT),
            flags: SYN,
            syn_options: Some(linux()),
            ..HeadRepr::default()
        };
        switching.client(syn, &[]).unwrap().remove(0).tcp.syn_options.unwrap()
    };
    assert_eq!(asked_of(&mut switching).mss, Some(1460));
    let (syn, _) = switched(&mut switching, linux(), SynOptions { mss: Some(1460), ..linux() });
    assert_eq!(syn.tcp.syn_options.unwrap().mss, Some(1448));
    switching.port += 1;
    // One has timestamps, so the next one is not expected to do without. It does.
    let theirs = SynOptions { mss: Some(1200), timestamps: None, ..linux() };
    let ours = switching.handshake(linux());
    let first = data(Seq(CLIENT) + 1, ours, 500);
    let syn = switching.client(first, &hello("shop.example")).unwrap().pop().unwrap();
    assert_eq!(syn.tcp.syn_options.unwrap().mss, Some(1460));
    let answer = syn_ack(&syn, theirs);
    let sent = switching.server(&syn, answer, &[]).unwrap();
    assert!(
        sent.iter()
            .all(|out| out.tcp.timestamps.is_none() && out.interface == usize::from(OUTSIDE)),
        "{sent:?}"
    );
    let end = Seq(CLIENT) + 1 + hello("shop.example").len() as u32;
    let plain = HeadRepr { timestamps: None, ..data(Seq(SERVER) + 1, end, 4000) };
    switching.server(&syn, plain, &[]).unwrap();
    // 1500 bytes, which would become 1512, are cut, and nobody is asked for less.
    let cut = switching.server(&syn, plain, &vec![7; 1460]).unwrap().remove(0);
    assert_eq!((cut.payload.len(), cut.cut, cut.segment_bytes()), (1460, Some(1448), 1460));
    assert_eq!(switching.counter("switch_cut"), 1);
    let frame = |len: usize| {
        let from = syn.destination.0.to_string();
        frame_of(
            false,
            (&from, 443),
            (&syn.source.0.to_string(), syn.source.1),
            plain,
            &vec![7; len],
        )
    };
    let (interface, passed, _) =
        switching.world.handle(&frame(1448), OUTSIDE, Offload::default()).unwrap();
    assert_eq!((interface, passed.len()), (usize::from(INSIDE), 14 + 1500));
    // A router on the client's side takes 1400: the back end may send 12 less.
    let error = router_error(&passed, 1400);
    let (interface, error, _) = switching.world.handle(&error, INSIDE, Offload::default()).unwrap();
    let seen = verify(&error, Offload::default()).unwrap();
    let at = seen.transport_at + 6;
    assert_eq!(
        (interface, u16::from_be_bytes([error[at], error[at + 1]])),
        (usize::from(OUTSIDE), 1388)
    );
    // Later ones are not offered timestamps, nor longer segments than that one takes.
    let offered = asked_of(&mut switching);
    assert_eq!((offered.timestamps, offered.mss), (None, Some(1200)));
}

/// What a router says that has a frame of ours, and a next link that takes less.
fn router_error(frame: &[u8], mtu: u16) -> Vec<u8> {
    let recipe = crate::packets::Recipe::error(address(CLIENTS[1]), frame, 200, (3, 4), mtu);
    recipe.raw_frame()
}

/// What has heard of a connection that ends hears of its end, at the number that it expects (RFC
/// 5961 section 3.2).
#[test]
fn ends_of_connections_that_wait() {
    let first = Seq(CLIENT) + 1;
    // The client resets while its back end is asked.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    let end = first + hello("shop.example").len() as u32;
    let syn =
        switching.client(data(first, ours, 500), &hello("shop.example")).unwrap().pop().unwrap();
    // First it only sends no more, which is taken later.
    let fin = switching
        .client(HeadRepr { flags: ACK | FIN, ..data(end, ours, 500) }, &[])
        .unwrap()
        .remove(0);
    assert_eq!((fin.tcp.ack, fin.tcp.flags), (end, ACK));
    let told =
        switching.client(HeadRepr { seq: end, flags: RST, ..HeadRepr::default() }, &[]).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].interface, told[0].tcp.flags, told[0].tcp.seq),
        (usize::from(OUTSIDE), RST, syn.tcp.seq + 1)
    );
    assert_eq!(
        (switching.world.forwarder.connections().len(), switching.world.forwarder.waiting_counts()),
        (0, [0; 3])
    );

    // A back end that has said something, and then nothing more.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let theirs = SynOptions { mss: Some(60), ..linux() };
    let (syn, ours) = switched(&mut switching, linux(), theirs);
    let stamps = Some(Timestamps { val: 90_001, ecr: 510 });
    let greeting = HeadRepr { timestamps: stamps, ..data(Seq(SERVER) + 1, first + 48, 4000) };
    assert_eq!(switching.server(&syn, greeting, b"hello").unwrap()[0].payload, b"hello");
    switching.client(data(end, ours + 5, 500), &[]).unwrap();
    let mut told = Vec::new();
    for _ in 0..400 {
        told.extend(
            switching.wait(Duration::from_secs(1)).into_iter().filter(|out| out.tcp.flags.rst()),
        );
    }
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((told[0].interface, told[0].tcp.seq), (usize::from(INSIDE), ours + 5));
    assert_eq!((told[1].interface, told[1].tcp.seq), (usize::from(OUTSIDE), first + 48));
    assert_eq!((told[1].tcp.ack, switching.counter("switch_silent")), (Seq(SERVER) + 6, 1));

    // A back end that resets before it has all of the first bytes.
    let mut switching = Switching::new(service(By::Sni, false, true));
    let (syn, ours) = switched(&mut switching, linux(), linux());
    let reset = HeadRepr { seq: Seq(SERVER) + 1, flags: RST, ..HeadRepr::default() };
    let told = switching.server(&syn, reset, &[]).unwrap();
    assert_eq!((told.len(), told[0].tcp.seq, told[0].interface), (1, ours, usize::from(INSIDE)));
    assert_eq!(switching.world.forwarder.waiting_counts(), [0; 3]);
    assert!(switching.wait(Duration::from_secs(5)).is_empty(), "nothing is sent again");
}

/// A back end that answers a SYN from an old connection is told that this is over (RFC 9293 section
/// 3.10.7.3), and its answer to a SYN is for nobody but us.
#[test]
fn a_back_end_with_an_old_connection() {
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    let syn = switching
        .client(data(Seq(CLIENT) + 1, ours, 500), &hello("shop.example"))
        .unwrap()
        .pop()
        .unwrap();
    let challenge = HeadRepr { timestamps: None, ..data(Seq(99_000), Seq(33_000), 500) };
    let told = switching.server(&syn, challenge, &[]).unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].interface, told[0].tcp.flags, told[0].tcp.seq),
        (usize::from(OUTSIDE), RST, Seq(33_000))
    );
    assert_eq!((told[0].source, told[0].destination), (syn.source, syn.destination));
    let again = switching.wait(Duration::from_secs(2)).remove(0);
    assert_eq!((again.tcp.flags, again.tcp.seq), (SYN, syn.tcp.seq));
    let theirs = Timestamps { val: 90_000, ecr: 510 };
    let answer = HeadRepr {
        seq: Seq(SERVER),
        ack: syn.tcp.seq + 1,
        flags: SYN | ACK,
        window: 60_000,
        syn_options: Some(SynOptions { timestamps: Some(theirs), ..linux() }),
        ..HeadRepr::default()
    };
    let sent = switching.server(&syn, answer, &[]).unwrap();
    assert!(!sent.is_empty() && sent[0].interface == usize::from(OUTSIDE));
    // All of that is lost, and it answers the SYN once more.
    assert_eq!(switching.server(&syn, answer, &[]).unwrap_err(), Drop::Switch);
    assert!(!switching.wait(Duration::from_secs(2)).is_empty());
}

/// A client's segment that was late does not turn back the clock that its back end sees: what comes
/// behind would be taken for an old one (RFC 7323 section 5).
#[test]
fn a_late_segment_does_not_turn_back_the_clock() {
    let mut switching = Switching::new(service(By::Sni, false, true));
    let ours = switching.handshake(linux());
    let hello = hello("shop.example");
    let at = |seq, val| HeadRepr {
        timestamps: Some(Timestamps { val, ecr: 9 }),
        ..data(seq, ours, 500)
    };
    let first = Seq(CLIENT) + 1;
    switching.client(at(first, 600), &hello[..20]).unwrap();
    switching.client(at(first, 550), &hello[..10]).unwrap();
    let echoed = switching.client(at(first + 40, 610), &hello[40..50]).unwrap().remove(0);
    assert_eq!(echoed.tcp.timestamps.unwrap().ecr, 600, "RFC 7323 section 4.3");
    let syn = switching.client(at(first + 20, 620), &hello[20..]).unwrap().pop().unwrap();
    assert_eq!(syn.tcp.timestamps.unwrap().val, 620);
    let theirs = SynOptions { timestamps: Some(Timestamps { val: 90_000, ecr: 620 }), ..linux() };
    let answer = syn_ack(&syn, theirs);
    switching.server(&syn, answer, &[]).unwrap();
    switching.client(at(first, 560), &hello[..10]).unwrap();
    let again = switching.wait(Duration::from_secs(2));
    assert_eq!(again[0].tcp.timestamps.unwrap().val, 620, "{again:?}");
}
