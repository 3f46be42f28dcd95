//! A back end by the name that a client asks for, segment by segment: every frame that comes out is
//! judged anew, word by word.

mod back_ends;
mod connections;
mod floods;
mod segments;

use std::time::Duration;

use nicache_forward::first_bytes::By;
use nicache_forward::names::{Names, Pattern};
use nicache_forward::services::{BackEnd, ByName, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Decision, Drop, Head, Incoming, Moment};
use nicache_port::Offload;
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Packet, Tags, write_headers};
use nicache_tcp::{Flags, HeadRepr, SegmentHead, Seq, SynOptions, Timestamps, checksum};

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
