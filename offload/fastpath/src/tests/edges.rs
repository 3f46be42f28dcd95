//! What the programs must not take, and what they must not make of a packet: frames made by hand.

use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use nicache_port::{Burst, FrameBuf, Offload};
use nicache_tcp::checksum::{finish, sum};
use nicache_tcp::{Flags, HeadRepr, Seq, SynOptions};

use super::by_name::End;
use super::*;

const CLIENT: &str = "10.1.0.9";
const SERVER: &str = "192.0.2.9";

/// A forwarder that knows where the ends without kernels are.
fn world() -> Option<World> {
    let world = World::new(false, true, |_| {})?;
    world.ask(|forwarder| {
        for (number, host) in [CLIENT, SERVER].into_iter().enumerate() {
            forwarder.set_neighbour(number, address(host), [4, 0, 0, 0, 9, number as u8]);
        }
    });
    Some(world)
}

fn outside(world: &World) -> u64 {
    world.ask(|forwarder| forwarder.counters().outside)
}

/// A connection of TCP in the kernel, with the next number of each end.
fn open(world: &World, port: u16) -> (End, End, [Seq; 2]) {
    let (from, to) = ((address(CLIENT), port), (address(SERVER), 80));
    let mut client = End::new(&world.client, 0, from, to);
    let mut server = End::new(&world.server, 1, to, from);
    let mut numbers = [Seq(u32::MAX - 10), Seq(7000)];
    let options = SynOptions {
        mss: Some(1400),
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        ecn: false,
    };
    let syn = HeadRepr {
        seq: numbers[0],
        flags: Flags::SYN,
        window: 60_000,
        syn_options: Some(options),
        ..HeadRepr::default()
    };
    client.send(syn, b"", false);
    server.to = server.get().from;
    let flags = Flags::SYN | Flags::ACK;
    let answer = HeadRepr { seq: numbers[1], ack: numbers[0] + 1, flags, ..syn };
    server.send(answer, b"", false);
    client.get();
    numbers = numbers.map(|number| number + 1);
    for _ in 0..10 {
        client.send(data(numbers[0], numbers[1]), b"0123456789", false);
        server.get();
        numbers[0] += 10;
        server.send(data(numbers[1], numbers[0]), b"0123456789", false);
        client.get();
        numbers[1] += 10;
    }
    let fast = world.fast();
    assert!(fast.connections == 1 && fast.packets > 0, "{fast:?}");
    (client, server, numbers)
}

fn data(seq: Seq, ack: Seq) -> HeadRepr {
    HeadRepr { seq, ack, flags: Flags::ACK, window: 60_000, ..HeadRepr::default() }
}

/// F7: what is outside the windows changes nothing in the kernel either. It is passed on by the
/// forwarder, who counts it.
#[test]
fn segments_outside_the_windows_go_up() {
    let Some(world) = world() else { return };
    let (mut client, mut server, [seq, ack]) = open(&world, 4711);
    let far = 1_000_000;
    for (case, repr) in [
        ("ahead", data(seq + far, ack)),
        ("behind", data(seq - far, ack)),
        ("acknowledges what was not sent", data(seq, ack + far)),
        ("acknowledges what is long over", data(seq, ack - far)),
    ] {
        let (before, strange) = (world.fast().packets, outside(&world));
        client.send(repr, b"x", false);
        assert_eq!(server.get().tcp.seq, repr.seq, "{case}");
        assert_eq!((world.fast().packets, outside(&world)), (before, strange + 1), "{case}");
        // And what is within them goes on there.
        client.send(data(seq, ack), b"x", false);
        server.get();
        assert_eq!((world.fast().packets, outside(&world)), (before + 1, strange + 1), "{case}");
    }
}

/// What ends a connection, or is urgent, is the forwarder's to see.
#[test]
fn segments_that_change_more_go_up() {
    let Some(world) = world() else { return };
    for (number, (flags, phase)) in [
        (Flags::URG | Flags::ACK, Phase::Open),
        (Flags::FIN | Flags::ACK, Phase::Closing),
        (Flags::RST | Flags::ACK, Phase::Reset),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut client, mut server, [seq, ack]) = open(&world, 5000 + number as u16);
        let before = world.fast().packets;
        client.send(HeadRepr { flags, ..data(seq, ack) }, b"", false);
        assert_eq!(server.get().tcp.flags, flags);
        let fast = world.fast();
        assert_eq!(fast.packets, before, "{flags:?}");
        assert_eq!(fast.connections, u64::from(phase == Phase::Open), "{flags:?}");
        let phases: Vec<Phase> = world.notes().iter().map(|(_, phase)| *phase).collect();
        assert!(phases.contains(&phase), "{flags:?}: {phases:?}");
        if phase == Phase::Open {
            client.send(HeadRepr { flags: Flags::RST, ..data(seq, ack) }, b"", false);
            server.get();
            within(|| (world.fast().connections == 0).then_some(()));
        }
    }
}

/// A forwarder that hangs decides nothing: when its lease is over, packets come up.
#[test]
fn nothing_counts_when_the_lease_is_over() {
    let Some(world) = World::new(false, true, |_| {}) else { return };
    let _echo = world.echo("192.0.2.2:9", b'a');
    let socket = world.asking("10.1.0.2:0", "192.0.2.2:9");
    let mut turn = 0;
    let mut gained = |is_over: bool| {
        world.is_lease_over.store(is_over, Ordering::Relaxed);
        world.ask(|forwarder| forwarder.sweep(now()));
        let before = world.fast().packets;
        for _ in 0..10 {
            turn += 1;
            exchange(&socket, 100, turn);
        }
        world.fast().packets - before
    };
    assert!(gained(false) > 0);
    assert_eq!(gained(true), 0);
    assert_eq!(gained(false), 20);
    assert_eq!(world.notes()[0].0.packets, [30, 30]);
}

/// Ends of datagrams without kernels.
struct Datagrams {
    sockets: [PacketSocket; 2],
    burst: Burst,
    /// Where the server sees the client.
    seen: (Ipv4Addr, u16),
}

impl Datagrams {
    /// A connection in the kernel.
    fn open(world: &World) -> Self {
        let open = |namespace: &Namespace| {
            namespace
                .run(|| PacketSocket::open("eth0", 1, &PacketConfig::default()).unwrap().remove(0))
        };
        let sockets = [open(&world.client), open(&world.server)];
        let mut ends = Self { sockets, burst: Burst::new(32), seen: (Ipv4Addr::UNSPECIFIED, 0) };
        for turn in 0..6 {
            ends.send(0, datagram(0, (v4(CLIENT), 5000), (v4(SERVER), 9), &[turn; 20]));
            let got = ends.get(1);
            let port = u16::from_be_bytes([got[34], got[35]]);
            ends.seen = (Ipv4Addr::from(<[u8; 4]>::try_from(&got[26..30]).unwrap()), port);
            ends.send(1, datagram(1, (v4(SERVER), 9), ends.seen, &[turn; 20]));
            ends.get(0);
        }
        let fast = world.fast();
        assert!(fast.connections == 1 && fast.packets > 0, "{fast:?}");
        ends
    }

    fn send(&mut self, number: usize, frame: Vec<u8>) {
        self.sockets[number].send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
        self.sockets[number].flush().unwrap();
    }

    /// The next datagram that comes to an end, whose IP header is as it should be.
    fn get(&mut self, number: usize) -> Vec<u8> {
        let Self { sockets, burst, .. } = self;
        let mac = [4, 0, 0, 0, 9, number as u8];
        within(|| {
            sockets[number].receive(burst).unwrap();
            let mut all = burst.frames().iter().map(FrameBuf::data);
            let got = all.find(|data| data.len() > 42 && data[..6] == mac && data[23] == 17)?;
            assert_eq!(finish(sum(&got[14..34])), 0, "the header's sum");
            Some(got[..14 + usize::from(u16::from_be_bytes([got[16], got[17]]))].to_vec())
        })
    }
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

const HEADER_SUM_AT: usize = 24;
const UDP_SUM_AT: usize = 40;
const PAYLOAD_AT: usize = 42;

/// A frame of an end, with right sums.
fn datagram(number: u8, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len() as u16;
    let mut out = vec![2, 0, 0, 0, 1, number, 4, 0, 0, 0, 9, number, 8, 0, 0x45, 0];
    out.extend((20 + len).to_be_bytes());
    out.extend([0, 7, 0x40, 0, 64, 17, 0, 0]);
    out.extend(from.0.octets());
    out.extend(to.0.octets());
    let header_sum = finish(sum(&out[14..34]));
    out[HEADER_SUM_AT..HEADER_SUM_AT + 2].copy_from_slice(&header_sum.to_be_bytes());
    for half in [from.1, to.1, len, 0] {
        out.extend(half.to_be_bytes());
    }
    out.extend(payload);
    let pseudo = [&out[26..34], &[0, 17], &len.to_be_bytes()[..]].concat();
    let all = finish(sum(&[&pseudo[..], &out[34..]].concat()));
    out[UDP_SUM_AT..UDP_SUM_AT + 2].copy_from_slice(&all.to_be_bytes());
    out
}

/// A header that was damaged on its way stays so: a new sum would hide that.
#[test]
fn headers_with_wrong_sums_go_up() {
    let Some(world) = world() else { return };
    let mut ends = Datagrams::open(&world);
    let frame = |byte| datagram(0, (v4(CLIENT), 5000), (v4(SERVER), 9), &[byte; 20]);
    let (before, dropped) = (world.fast().packets, world.dropped(Dropped::Malformed));
    let mut damaged = frame(1);
    damaged[HEADER_SUM_AT] ^= 0x40;
    ends.send(0, damaged);
    ends.send(0, frame(2));
    assert_eq!(ends.get(1)[PAYLOAD_AT], 2);
    within(|| (world.dropped(Dropped::Malformed) == dropped + 1).then_some(()));
    assert_eq!(world.fast().packets, before + 1);
}

/// RFC 768: 0 means none. A sum that comes to that is written as 0xffff, and none stays none.
#[test]
fn datagrams_whose_sum_is_nothing() {
    let Some(world) = world() else { return };
    let mut ends = Datagrams::open(&world);
    let ways = [(0, (v4(CLIENT), 5000), (v4(SERVER), 9)), (1, (v4(SERVER), 9), ends.seen)];
    for (number, from, to) in ways {
        let other = 1 - usize::from(number);
        let before = world.fast().packets;
        ends.send(number.into(), datagram(number, from, to, &[0; 20]));
        let got = ends.get(other);
        // With this in the payload, the sum of all that comes out is 0xffff.
        let mut payload = [0; 20];
        payload[..2].copy_from_slice(&got[UDP_SUM_AT..UDP_SUM_AT + 2]);
        ends.send(number.into(), datagram(number, from, to, &payload));
        let got = ends.get(other);
        assert_eq!(got[UDP_SUM_AT..UDP_SUM_AT + 2], [0xff, 0xff]);
        let mut unsummed = datagram(number, from, to, &[9; 20]);
        unsummed[UDP_SUM_AT..UDP_SUM_AT + 2].fill(0);
        ends.send(number.into(), unsummed);
        let got = ends.get(other);
        assert_eq!(got[UDP_SUM_AT..UDP_SUM_AT + 2], [0, 0]);
        assert_eq!(world.fast().packets, before + 3, "by the kernel");
    }
}
