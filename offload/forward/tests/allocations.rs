//! What a packet of a connection that is known goes through allocates nothing: received by the port
//! of a link (AF_XDP on its queues, and a packet socket), rewritten, and sent by another one, with
//! a card in every mode, and without one.

mod namespaces;

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use namespaces::Namespace;
use nicache_bus::{Attachment, Window};
use nicache_firmware::Firmware;
use nicache_forward::bus::Bus;
use nicache_forward::copying::Copying;
use nicache_forward::engine::{Engine, EngineConfig};
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::pcache::Order;
use nicache_forward::tuple::Protocol;
use nicache_forward::view::{View, network_of};
use nicache_forward::{Config, Forwarder};
use nicache_port::{Burst, Offload, PacketConfig, PacketSocket, Port};
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Tags, write_headers};
use nicache_tcp::{Flags, HeadRepr, Seq, Time};
use nicache_xdp::{Kept, LinkPort, Sieve, XdpConfig, XdpSocket};

const LIMIT: Duration = Duration::from_secs(20);
const BUFFERS: u32 = 960;
const PAYLOAD: u32 = 1000;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const OURS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))];

fn forwarder() -> Forwarder {
    let interface = |port: u8, masquerade| Interface {
        port,
        tags: Tags::default(),
        mac: [2, 0, 0, 0, 1, port],
        addresses: vec![(OURS[usize::from(port)], 24)],
        mtu: 1500,
        masquerade,
    };
    let mut config = Config::new(vec![interface(0, vec![]), interface(1, vec![0])], 7);
    config.externals =
        vec![External { address: OURS[1], ports: 1024..=65_535, filtering: Filtering::default() }];
    let mut forwarder = Forwarder::new(config, Time::ZERO).unwrap();
    for (interface, address) in [(0, CLIENT), (1, SERVER)] {
        forwarder.set_neighbour(interface, address, [4, 0, 0, 0, 0, interface as u8]);
    }
    forwarder
}

/// An end of the connection, whose segments are all made from one frame.
struct End {
    socket: PacketSocket,
    frame: Vec<u8>,
    burst: Burst,
    arrived: u32,
}

impl End {
    fn new(namespace: &Namespace, number: u8, to: (IpAddr, u16), repr: HeadRepr) -> Self {
        let socket = namespace
            .run(|| PacketSocket::open("eth0", 1, &PacketConfig::default()).unwrap().remove(0));
        let (address, port) = if number == 0 { (CLIENT, 4711) } else { (SERVER, 80) };
        let addresses = Addresses {
            source_mac: [4, 0, 0, 0, 0, number],
            destination_mac: [2, 0, 0, 0, 1, number],
            tags: Tags::default(),
            source: address.into(),
            destination: to.0.into(),
        };
        let repr = HeadRepr { src_port: port, dst_port: to.1, window: 60_000, ..repr };
        let mut headers = [0; HEADERS_BYTES_MAX];
        let payload = if repr.flags.syn() { 0 } else { PAYLOAD };
        let len = write_headers(&addresses, &repr, payload, 1, &mut headers);
        let frame = [&headers[..len], &vec![7; payload as usize]].concat();
        Self { socket, frame, burst: Burst::new(32), arrived: 0 }
    }

    fn send(&mut self) {
        self.socket.send(&[IoSlice::new(&self.frame)], Offload::default()).unwrap();
        self.socket.flush().unwrap();
    }

    /// The next segment, behind the bytes of this one; as many have come from the other end.
    fn advance(&mut self) {
        for at in [38, 42] {
            let field = &mut self.frame[at..at + 4];
            let number = u32::from_be_bytes([field[0], field[1], field[2], field[3]]);
            field.copy_from_slice(&number.wrapping_add(PAYLOAD).to_be_bytes());
        }
    }

    /// Waits until a segment is there, and tells where it comes from.
    fn expect(&mut self, turn: &mut impl FnMut()) -> (IpAddr, u16) {
        let began = Instant::now();
        loop {
            turn();
            self.socket.receive(&mut self.burst).unwrap();
            let segment = self.burst.frames().iter().find_map(|frame| {
                let (_, at) = network_of(frame.data())?;
                let view = View::parse(frame.data(), at, frame.data().len()).ok()?;
                let tuple = view.tuple().filter(|tuple| tuple.protocol == Protocol::Tcp)?;
                Some((tuple.source.address, tuple.source.port))
            });
            if let Some(from) = segment {
                self.arrived += 1;
                return from;
            }
            assert!(began.elapsed() < LIMIT, "no segment comes");
        }
    }
}

/// Allocations of 300 segments each way, on this thread and while `turn` passes them on, after some
/// to get started.
fn allocations(ends: &[Namespace; 2], mut turn: impl FnMut()) -> u64 {
    let of = |seq: u32, ack: u32, flags| HeadRepr {
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        ..HeadRepr::default()
    };
    let mut client = End::new(&ends[0], 0, (SERVER, 80), of(99, 0, Flags::SYN));
    let mut server = End::new(&ends[1], 1, (OURS[1], 0), of(0, 0, Flags::ACK));
    client.send();
    let from = server.expect(&mut turn);
    assert_eq!(from.0, OURS[1], "it is translated");
    let mut server = End::new(&ends[1], 1, from, of(699, 100, Flags::SYN | Flags::ACK));
    server.send();
    assert_eq!(client.expect(&mut turn), (SERVER, 80));
    let mut client = End::new(&ends[0], 0, (SERVER, 80), of(100, 700, Flags::ACK));
    let mut server = End::new(&ends[1], 1, from, of(700, 100 + PAYLOAD, Flags::ACK));
    let mut round = || {
        client.send();
        server.expect(&mut turn);
        client.advance();
        server.send();
        client.expect(&mut turn);
        server.advance();
    };
    (0..200).for_each(|_| round());
    let counted = allocation_counter::measure(|| (0..300).for_each(|_| round())).count_total;
    assert_eq!((client.arrived, server.arrived), (500, 500));
    counted
}

/// What is at a link as long as a test goes on.
type Link = (Sieve, LinkPort);

fn link(middle: &Namespace, name: &'static str) -> Link {
    middle.run(move || {
        let sieve = Sieve::attach(name, 1, Kept::default()).unwrap();
        // The kernel lets go of a queue some time after its last socket is closed.
        let began = Instant::now();
        let socket = loop {
            match XdpSocket::open(name, 0, sieve.sockets(), &XdpConfig::default()) {
                Ok(socket) => break socket,
                Err(error) => assert!(began.elapsed() < LIMIT, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let passed = PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0);
        (sieve, LinkPort::new(vec![socket], passed).unwrap())
    })
}

#[test]
fn packets_between_links_allocate_nothing() {
    let (Some(client), Some(server), Some(middle)) =
        (Namespace::with_loopback(), Namespace::with_loopback(), Namespace::with_loopback())
    else {
        return;
    };
    client.veth("eth0", &middle, "left");
    server.veth("eth0", &middle, "right");
    for (name, number) in [("left", 0), ("right", 1)] {
        middle.ip(format!("link set {name} address 2:0:0:0:1:{number}"));
    }
    // What kernels say of themselves is not counted.
    for (namespace, names) in
        [(&client, &["eth0"][..]), (&server, &["eth0"]), (&middle, &["left", "right"])]
    {
        namespace.run(move || {
            for name in names {
                let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
                std::fs::write(path, "1").unwrap();
            }
        });
    }
    let ends = [client, server];
    let began = Instant::now();
    let now = || Time(began.elapsed().as_nanos() as u64);

    let [(left, one), (right, other)] = ["left", "right"].map(|name| link(&middle, name));
    let mut copying = Copying::new(forwarder(), vec![one, other], 32);
    let counted = allocations(&ends, || {
        copying.turn(now(), || 9).unwrap();
    });
    assert_eq!(counted, 0, "without a card");
    drop((copying, left, right));

    for mode in Mode::ALL {
        let [(left, one), (right, other)] = ["left", "right"].map(|name| link(&middle, name));
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let window = Arc::new(Window::create("test", Bus::window_bytes(BUFFERS) as usize).unwrap());
        let seen = Arc::new(Window::map(window.file().try_clone_to_owned().unwrap()).unwrap());
        let side = Attachment::from_files(files).unwrap().card();
        let mut card = Firmware::with_ports(vec![one, other], side, seen, 2 << 20, None).unwrap();
        let setup = EngineConfig {
            mode,
            order: Order::Mru,
            entries: 512,
            buffers: BUFFERS,
            posts: 256,
            queue: 400,
        };
        let mut engine = Engine::new(Bus::new(made.host(), window, BUFFERS), setup);
        let mut forwarder = forwarder();
        let counted = allocations(&ends, || {
            card.turn(now().0).unwrap();
            engine.poll().unwrap();
            forwarder.expire(now());
            engine.forward(&mut forwarder, 64, now(), || 9).unwrap();
        });
        assert_eq!(counted, 0, "{mode}");
        let counters = engine.counters();
        assert_eq!((counters.lost, counters.refused), (0, 0), "{mode}");
        assert!(counters.sent >= 1000, "{mode}: {counters:?}");
        drop((card, left, right));
    }
}

#[test]
fn the_counter_counts() {
    let info = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(info.count_total, 1);
}
