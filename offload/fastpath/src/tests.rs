//! Real kernels at both ends, a forwarder between packet sockets, and the programs beside it.
//!
//! ```text
//!  client 10.1.0.2 ── left: the forwarder :right ── server 192.0.2.2 and .3
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nicache_forward::conntrack::Phase;
use nicache_forward::copying::Copying;
use nicache_forward::fast_path::{Arrival, FastCounters, FastPath, Numbers, Passed, Way};
use nicache_forward::interface::Interface;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::note::Note;
use nicache_forward::routes::Routes;
use nicache_forward::rules::{Action, Rule};
use nicache_forward::services::{BackEnd, Chosen, Health, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Drop as Dropped, Forwarder};
use nicache_namespaces::Namespace;
use nicache_port::{PacketConfig, PacketSocket, Port};
use nicache_router::demo::file_byte;
use nicache_tcp::Time;
use nicache_tcp::frame::Tags;
use rustix::io::{read, retry_on_intr};

use crate::layout::{self, NUMBERS_BYTES};
use crate::maps::Handles;
use crate::{Maps, Programs};

mod by_name;
mod edges;

const LIMIT: Duration = Duration::from_secs(60);
const VLAN: u16 = 9;

type Job = Box<dyn FnOnce(&mut Copying<PacketSocket>) + Send>;

struct World {
    client: Namespace,
    server: Namespace,
    /// Has the programs and the interfaces.
    middle: Namespace,
    handles: Handles,
    is_lease_over: Arc<AtomicBool>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The maps, whose lease may be one that is over.
#[derive(Debug)]
struct Leased {
    maps: Maps,
    is_over: Arc<AtomicBool>,
}

impl FastPath for Leased {
    fn places(&self) -> u32 {
        self.maps.places()
    }

    fn has(&self, interface: usize) -> bool {
        self.maps.has(interface)
    }

    fn begin(&mut self, place: u32, numbers: Option<[Numbers; 2]>) -> std::io::Result<()> {
        self.maps.begin(place, numbers)
    }

    fn enter(&mut self, arrival: &Arrival, way: &Way) -> std::io::Result<()> {
        self.maps.enter(arrival, way)
    }

    fn leave(&mut self, arrival: &Arrival) -> std::io::Result<()> {
        self.maps.leave(arrival)
    }

    fn look(&mut self, place: u32) -> std::io::Result<([Numbers; 2], [Passed; 2])> {
        self.maps.look(place)
    }

    fn tell(&mut self, place: u32, numbers: [Numbers; 2]) -> std::io::Result<()> {
        self.maps.tell(place, numbers)
    }

    fn keep(&mut self, edition: u32, until: Time) -> std::io::Result<()> {
        let is_over = self.is_over.load(Ordering::Relaxed);
        self.maps.keep(edition, if is_over { Time(1) } else { until })
    }

    fn unsent(&self) -> u64 {
        self.maps.unsent()
    }
}

fn now() -> Time {
    Time(nicache_clock::monotonic_ns())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Asks until the answer is there.
fn within<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < LIMIT, "it does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl World {
    fn new(
        is_tagged: bool,
        with_fast_path: bool,
        adjust: impl FnOnce(&mut Config),
    ) -> Option<Self> {
        let make = Namespace::with_loopback;
        let (client, server, middle) = (make()?, make()?, make()?);
        client.veth("eth0", &middle, "left");
        server.veth("eth0", &middle, "right");
        let ip = |namespace: &Namespace, arguments: &str| namespace.ip(arguments);
        ip(&client, "address add 10.1.0.2/24 dev eth0");
        ip(&client, "route add default via 10.1.0.1");
        ip(&client, "address add fd01::2/64 dev eth0 nodad");
        ip(&client, "route add default via fd01::1");
        for last in [2, 3] {
            ip(&server, &format!("address add 192.0.2.{last}/24 dev eth0"));
            ip(&server, &format!("address add fd02::{last}/64 dev eth0 nodad"));
        }
        let interface = |port: u8, v4: &str, v6: &str, masquerade| Interface {
            port,
            tags: if is_tagged && port == 1 {
                Tags::from_bytes(&[0x81, 0, 0, 9]).unwrap()
            } else {
                Tags::default()
            },
            mac: [2, 0, 0, 0, 1, port],
            addresses: vec![(address(v4), 24), (address(v6), 64)],
            mtu: 1500,
            masquerade,
        };
        let left = interface(0, "10.1.0.1", "fd01::1", vec![]);
        let mut config =
            Config::new(vec![left, interface(1, "192.0.2.1", "fd02::1", vec![0, 1])], 77);
        config.externals = ["192.0.2.1", "fd02::1"]
            .map(|text| External {
                address: address(text),
                ports: 1024..=65_535,
                filtering: Filtering::default(),
            })
            .into();
        adjust(&mut config);
        let (sockets, maps, handles) = middle.run(move || {
            // The kernel gives frames to these addresses to nobody: it has no address of its own.
            for (name, last) in [("left", 0), ("right", 1)] {
                let arguments = format!("link set {name} address 02:00:00:00:01:0{last}");
                assert!(
                    std::process::Command::new("ip")
                        .args(arguments.split(' '))
                        .status()
                        .unwrap()
                        .success()
                );
            }
            let indexes = ["left", "right"].map(|name| {
                let listed = std::process::Command::new("ip")
                    .args(["-o", "link", "show", name])
                    .output()
                    .unwrap();
                let text = String::from_utf8(listed.stdout).unwrap();
                text.split(':').next().unwrap().parse::<u32>().unwrap()
            });
            let mut programs = Programs::load(64).unwrap();
            for index in indexes {
                programs.attach(index).unwrap();
            }
            let filter = with_fast_path.then(|| programs.filter());
            let open = |name: &str| {
                let config = PacketConfig { filter, ..PacketConfig::default() };
                PacketSocket::open(name, 1, &config).unwrap().remove(0)
            };
            let sockets = vec![open("left"), open("right")];
            let (handles, take) = programs.handles();
            let interfaces =
                [Some((indexes[0], None)), Some((indexes[1], is_tagged.then_some(VLAN)))];
            let maps =
                Maps::open(&handles, take.try_clone_to_owned().unwrap(), interfaces).unwrap();
            (sockets, (programs, maps), handles)
        });
        let is_lease_over = Arc::new(AtomicBool::new(false));
        let maps = {
            let (programs, maps) = maps;
            (programs, Leased { maps, is_over: Arc::clone(&is_lease_over) })
        };
        let (jobs, inbox) = channel::<Job>();
        let thread = std::thread::spawn(move || {
            let (_programs, maps) = maps;
            let mut forwarder = Forwarder::new(config, now()).unwrap();
            if with_fast_path {
                forwarder.set_fast_path(Box::new(maps), now()).unwrap();
            }
            let mut copying = Copying::new(forwarder, sockets, 32);
            let mut random = fastrand::Rng::with_seed(1);
            let mut swept = now();
            loop {
                let mut done = copying.turn(now(), || random.u32(..)).unwrap();
                if now().since(swept) > Duration::from_millis(100) {
                    swept = now();
                    copying.forwarder_mut().sweep(swept);
                }
                loop {
                    match inbox.try_recv() {
                        Ok(job) => job(&mut copying),
                        Err(std::sync::mpsc::TryRecvError::Empty) => break,
                        Err(_) => return,
                    }
                    done += 1;
                }
                if done == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let (jobs, thread) = (Some(jobs), Some(thread));
        Some(Self { client, server, middle, handles, is_lease_over, jobs, thread })
    }

    fn ask<T: Send + 'static>(&self, job: impl FnOnce(&mut Forwarder) -> T + Send + 'static) -> T {
        let (done, result) = channel();
        let job: Job = Box::new(move |copying| drop(done.send(job(copying.forwarder_mut()))));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        result.recv().expect("the forwarder is at work")
    }

    fn fast(&self) -> FastCounters {
        self.ask(|forwarder| {
            forwarder.catch_up_all();
            forwarder.fast_counters().unwrap_or_default()
        })
    }

    fn notes(&self) -> Vec<(Note, Phase)> {
        self.ask(|forwarder| {
            forwarder.catch_up_all();
            forwarder
                .connections()
                .iter()
                .map(|(_, connection)| (connection.note, connection.phase()))
                .collect()
        })
    }

    fn dropped(&self, why: Dropped) -> u64 {
        self.ask(move |forwarder| forwarder.counters().dropped_for(why))
    }

    /// A socket of the server's that answers each datagram with its name in front.
    fn echo(&self, at: &str, name: u8) -> Echo {
        let at = at.to_owned();
        let socket = self.server.run(move || UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&[&[name], &buffer[..len]].concat(), from);
                }
            }
        });
        Echo { stop: Some(stop), thread: Some(thread) }
    }

    fn asking(&self, from: &str, to: &str) -> UdpSocket {
        let (from, to) = (from.to_owned(), to.to_owned());
        let socket = self.client.run(move || {
            let socket = UdpSocket::bind(from).unwrap();
            socket.connect(to).unwrap();
            socket
        });
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Echo {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends a datagram and returns who has answered. The answer is the datagram.
fn exchange(socket: &UdpSocket, len: usize, turn: usize) -> u8 {
    let datagram: Vec<u8> = (0..len).map(|at| file_byte(at + 1000 * turn)).collect();
    socket.send(&datagram).unwrap();
    let mut buffer = [0; 8192];
    let got = retry_on_intr(|| read(socket, &mut buffer)).unwrap();
    assert!(got == len + 1 && buffer[1..got] == datagram[..], "turn {turn}: {got} bytes");
    buffer[0]
}

const BYTES: usize = 3 << 20;

/// Sends bytes and closes its half, and gets as many back.
fn transfer(world: &World, server: &str) {
    transfer_behind(world, server, server, b"");
}

/// The same with an address for clients, who send `head` before.
fn transfer_behind(world: &World, server: &str, for_clients: &str, head: &'static [u8]) {
    let [server, address]: [SocketAddr; 2] = [server, for_clients].map(|at| at.parse().unwrap());
    let listener = world.server.run(move || TcpListener::bind(server).unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let (mut first, mut all) = (vec![0; head.len()], vec![0; BYTES]);
        stream.read_exact(&mut first).unwrap();
        assert_eq!(first, head);
        stream.read_exact(&mut all).unwrap();
        assert!(
            all.iter().enumerate().all(|(at, byte)| *byte == file_byte(at)),
            "the server got something else"
        );
        stream.write_all(&all).unwrap();
        let mut end = [0];
        assert_eq!(retry_on_intr(|| read(&stream, &mut end)), Ok(0));
    });
    let mut stream = world.client.run(move || TcpStream::connect_timeout(&address, LIMIT).unwrap());
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut all: Vec<u8> = (0..BYTES).map(file_byte).collect();
    stream.write_all(head).unwrap();
    stream.write_all(&all).unwrap();
    let sent = std::mem::replace(&mut all, vec![0; BYTES]);
    stream.read_exact(&mut all).unwrap();
    assert!(all == sent, "the client got something else");
    drop(stream);
    serving.join().unwrap();
}

/// Numbers turn over every 4 GiB, and what the forwarder has told is of the connection's beginning.
#[test]
fn a_connection_stays_when_it_has_moved_half_a_turn_since_something_was_told() {
    let Some(world) = World::new(false, true, |_| {}) else { return };
    let listener = world.server.run(|| TcpListener::bind("192.0.2.2:80").unwrap());
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
    });
    let mut stream = world.client.run(|| TcpStream::connect("192.0.2.2:80").unwrap());
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut exchange = |count: u64| {
        for _ in 0..count {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
    };
    exchange(20);
    assert_eq!(world.fast().connections, 1);
    let told = MapHandle::from_map_id(world.handles.told).unwrap();
    let place = (0..64u32)
        .find(|place| {
            let value = told.lookup(&place.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
            value.iter().any(|byte| *byte != 0)
        })
        .unwrap();
    let value = told.lookup(&place.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let mut numbers = layout::read_numbers(&value).unwrap();
    for side in &mut numbers {
        for number in [&mut side.end, &mut side.max_end, &mut side.acked] {
            *number += (1 << 31) - 100;
        }
    }
    let telling = u32::from_ne_bytes(value[NUMBERS_BYTES - 4..].try_into().unwrap());
    let value = layout::numbers(numbers, telling);
    told.update(&place.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
    let before = world.fast().packets;
    exchange(200);
    assert!(world.fast().packets - before >= 380, "{:?}", world.fast());
    drop(stream);
    echo.join().unwrap();
}

/// Bytes and counters are the same with and without, for both versions of IP.
#[test]
fn bytes_and_counters_are_those_of_the_slow_way() {
    for with_fast_path in [true, false] {
        // An end that has waited for long sends again what has come, and that may be outside.
        let has_none_outside = (0..3).any(|_| {
            let Some(world) = World::new(false, with_fast_path, |_| {}) else { return true };
            carry_all(&world, with_fast_path);
            let (outside, untranslated) = world.ask(|forwarder| {
                let counters = forwarder.counters();
                (counters.outside, counters.dropped_for(Dropped::Untranslated))
            });
            println!("{outside} outside");
            assert_eq!(untranslated, 0);
            outside == 0
        });
        assert!(has_none_outside, "fast path: {with_fast_path}");
    }
}

fn carry_all(world: &World, with_fast_path: bool) {
    for server in ["192.0.2.2:80", "[fd02::2]:80"] {
        transfer(world, server);
        // Both ends are seen to close: no number was missed.
        within(|| {
            let notes = world.notes();
            notes.iter().all(|(_, phase)| *phase == Phase::TimeWait).then_some(())
        });
        let fast = world.fast();
        assert_eq!((fast.connections, fast.unsent, fast.failed), (0, 0, 0), "{fast:?}");
    }
    let notes = world.notes();
    assert_eq!(notes.len(), 2);
    for (note, _) in &notes {
        assert!(note.bytes.iter().all(|bytes| *bytes > BYTES as u64), "{note:?}");
    }
    let fast = world.fast();
    if with_fast_path {
        assert!(fast.bytes > 2 * BYTES as u64 && fast.entered == 2, "{fast:?}");
    } else {
        assert_eq!(fast, FastCounters::default());
    }
    for (from, to) in [("10.1.0.2:0", "192.0.2.2:9"), ("[fd01::2]:0", "[fd02::2]:9")] {
        let _echo = world.echo(to, b'a');
        let socket = world.asking(from, to);
        let before = world.fast().packets;
        for turn in 0..50 {
            exchange(&socket, 1 + 29 * turn % 1400, turn);
        }
        let bytes: u64 = (0..50).map(|turn| 1 + 29 * turn % 1400).sum();
        let headers = if to.starts_with('[') { 48 } else { 28 };
        let notes = world.notes();
        let note = notes.iter().find(|(note, phase)| {
            *phase == Phase::Datagrams
                && note.bytes == [bytes + 50 * headers, bytes + 50 * (headers + 1)]
        });
        assert_eq!(note.map(|(note, _)| note.packets), Some([50, 50]), "{notes:?}");
        let gained = world.fast().packets - before;
        assert!(if with_fast_path { gained >= 80 } else { gained == 0 }, "{gained}");
    }
}

/// Packets that need more than new headers come to the forwarder, and go on being answered.
#[test]
fn what_is_not_plain_goes_up() {
    let Some(world) = World::new(false, true, |config| config.interfaces[1].mtu = 1400) else {
        return;
    };
    let _echo = world.echo("192.0.2.2:9", b'a');
    let socket = world.asking("10.1.0.2:0", "192.0.2.2:9");
    rustix::net::sockopt::set_ip_mtu_discover(
        &socket,
        rustix::net::sockopt::Ipv4PathMtuDiscovery::DONT,
    )
    .unwrap();
    for turn in 0..10 {
        exchange(&socket, 100, turn);
    }
    let before = world.fast();
    assert!(before.packets >= 10, "{before:?}");
    // Longer than the next link takes, and in fragments: the first is cut, and both come back.
    exchange(&socket, 1450, 11);
    exchange(&socket, 4000, 12);
    // Without hops left: its sender is told.
    let hops = world.dropped(Dropped::Hops);
    let answered = world.ask(|forwarder| forwarder.counters().answered);
    socket.set_ttl(1).unwrap();
    socket.send(b"x").unwrap();
    within(|| (world.dropped(Dropped::Hops) > hops).then_some(()));
    assert!(world.ask(|forwarder| forwarder.counters().answered) > answered);
    socket.set_ttl(64).unwrap();
    for turn in 20..30 {
        exchange(&socket, 100, turn);
    }
    let after = world.fast();
    assert!(after.packets >= before.packets + 20, "{before:?} {after:?}");
    assert_eq!(world.ask(|forwarder| forwarder.connections().len()), 1);
}

fn datagrams(action: Action) -> Rule {
    Rule {
        interface: None,
        protocol: Some(Protocol::Udp),
        source: None,
        destination: None,
        ports: None,
        action,
    }
}

/// Rules, limits, neighbours, routes: what changes counts from the next packet on.
#[test]
fn what_changes_counts_at_once() {
    let Some(world) = World::new(false, true, |_| {}) else { return };
    let _echo = world.echo("192.0.2.2:9", b'a');
    let socket = world.asking("10.1.0.2:0", "192.0.2.2:9");
    let mut turn = 0;
    let mut exchanges = |count: usize| {
        for _ in 0..count {
            turn += 1;
            exchange(&socket, 100, turn);
        }
    };
    let is_fast = || world.notes().iter().any(|(note, _)| note_is_fast(&world, note));
    exchanges(10);
    assert!(is_fast());

    // A rule drops what is established.
    world.ask(|forwarder| forwarder.set_rules(vec![datagrams(Action::Drop)], now()));
    for _ in 0..5 {
        socket.send(b"dropped").unwrap();
    }
    within(|| (world.dropped(Dropped::Rule) >= 5).then_some(()));
    // A limit counts each packet: seven datagrams of 128 bytes in all.
    let limit = Action::Limit { bytes_per_s: 1, burst_bytes: 7 * 128 + 100 };
    world.ask(move |forwarder| forwarder.set_rules(vec![datagrams(limit)], now()));
    for _ in 0..20 {
        socket.send(&[0; 100]).unwrap();
    }
    within(|| (world.dropped(Dropped::Rule) >= 5 + 13).then_some(()));
    world.ask(|forwarder| forwarder.set_rules(Vec::new(), now()));
    drain(&socket);
    // One that is wide enough lets all pass, and looks at each.
    let limit = Action::Limit { bytes_per_s: 1 << 30, burst_bytes: 1 << 20 };
    world.ask(move |forwarder| forwarder.set_rules(vec![datagrams(limit)], now()));
    let before = world.fast().packets;
    exchanges(10);
    assert_eq!(world.fast().packets, before);
    world.ask(|forwarder| forwarder.set_rules(Vec::new(), now()));
    exchanges(10);
    assert!(is_fast() && world.fast().packets >= before + 10);

    // The server has another network card.
    world.server.ip("link set eth0 address 06:00:00:00:00:01");
    let mac = [6, 0, 0, 0, 0, 1];
    world.ask(move |forwarder| forwarder.learn_neighbour(1, address("192.0.2.2"), mac, now()));
    exchanges(10);
    assert!(is_fast());

    // No way leads there any longer.
    let routes = world.ask(|forwarder| {
        let routes = forwarder.routes().clone();
        forwarder
            .set_routes(Routes::new(routes.iter().filter(|route| route.interface == 0).copied()));
        routes
    });
    socket.send(b"x").unwrap();
    within(|| (world.dropped(Dropped::NoRoute) >= 1).then_some(()));
    let voided = world.fast().voided;
    world.ask(move |forwarder| forwarder.set_routes(routes));
    exchanges(10);
    let fast = world.fast();
    assert_eq!((fast.voided, fast.failed, fast.unsent), (voided + 1, 0, 0));
    assert!(is_fast());
}

fn note_is_fast(world: &World, note: &Note) -> bool {
    let note = *note;
    world.ask(move |forwarder| forwarder.is_fast(&note))
}

/// What has come so far is taken.
fn drain(socket: &UdpSocket) {
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    while retry_on_intr(|| read(socket, &mut [0; 8192])).is_ok() {}
    socket.set_read_timeout(Some(LIMIT)).unwrap();
}

/// A back end that is down, and up, and down; and one that is drained.
#[test]
fn datagrams_leave_a_back_end_that_is_down() {
    let service = |config: &mut Config| {
        let back_end =
            |last: u8| BackEnd { endpoint: Endpoint::new([192, 0, 2, last], 9), weight: 1 };
        config.services = vec![ServiceConfig {
            protocol: Protocol::Udp,
            address: Endpoint::new([10, 1, 0, 100], 53),
            back_ends: vec![back_end(2), back_end(3)],
            masquerade: Some(0),
            by_name: None,
        }];
    };
    let Some(world) = World::new(false, true, service) else { return };
    let _echoes = [world.echo("192.0.2.2:9", 0), world.echo("192.0.2.3:9", 1)];
    let socket = world.asking("10.1.0.2:0", "10.1.0.100:53");
    let mut turn = 0;
    let mut settle = |world: &World| -> u8 {
        let names: Vec<u8> = (0..12)
            .map(|_| {
                turn += 1;
                exchange(&socket, 64, turn)
            })
            .collect();
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
        assert!(world.notes().iter().any(|(note, _)| note_is_fast(world, note)));
        names[0]
    };
    let set = |name: u8, health: Health| {
        let chosen = Chosen { service: 0, back_end: name.into() };
        world.ask(move |forwarder| forwarder.set_health(chosen, health));
    };
    for flap in 0..3 {
        let name = settle(&world);
        set(name, Health::Down);
        assert_eq!(settle(&world), 1 - name, "flap {flap}");
        set(name, Health::Up);
    }
    let name = settle(&world);
    set(name, Health::Draining { until: now() + Duration::from_millis(300) });
    within(|| (exchange(&socket, 64, 0) == 1 - name).then_some(()));
    let fast = world.fast();
    assert_eq!((fast.failed, fast.unsent), (0, 0), "{fast:?}");
}

/// A server on a VLAN, whose tag the kernel takes out and puts in: frames with another tag, or
/// none, would not be answered.
#[test]
fn a_tag_is_put_in_and_taken_out() {
    let Some(world) = World::new(true, true, |_| {}) else { return };
    world.ask(|forwarder| forwarder.set_neighbour(1, address("192.0.2.2"), [6, 0, 0, 0, 0, 2]));
    // No VLAN devices in every kernel: the server is a program that turns frames round. Sums do not
    // change by that.
    let mut port = world
        .server
        .run(|| PacketSocket::open("eth0", 1, &PacketConfig::default()).unwrap().remove(0));
    let (stop, stopped) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let (mut burst, mut strange) = (nicache_port::Burst::new(32), 0);
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            if port.receive(&mut burst).unwrap() == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            for frame in &burst {
                let mut data = frame.data().to_vec();
                let is_datagram = data.len() > 60 && data[..6] == [6, 0, 0, 0, 0, 2];
                if !is_datagram {
                    continue;
                }
                if data[12..18] != [0x81, 0, 0, VLAN as u8, 8, 0] || data[18 + 8] != 63 {
                    strange += 1;
                    continue;
                }
                for (a, b, len) in [(0, 6, 6), (18 + 12, 18 + 16, 4), (38, 40, 2)] {
                    let first = data[a..a + len].to_vec();
                    data.copy_within(b..b + len, a);
                    data[b..b + len].copy_from_slice(&first);
                }
                let parts = [std::io::IoSlice::new(&data)];
                nicache_port::send_with_fallback(&mut port, &parts, frame.offload()).unwrap();
            }
            port.flush().unwrap();
        }
        strange
    });
    let socket = world.asking("10.1.0.2:0", "192.0.2.2:9");
    for turn in 0..50 {
        let datagram: Vec<u8> = (0..40 + 20 * turn).map(|at| file_byte(at + 1000 * turn)).collect();
        socket.send(&datagram).unwrap();
        let mut buffer = [0; 2000];
        let got = retry_on_intr(|| read(&socket, &mut buffer)).unwrap();
        assert!(buffer[..got] == datagram[..], "turn {turn}");
    }
    drop(stop);
    assert_eq!(thread.join().unwrap(), 0);
    let fast = world.fast();
    assert!(fast.packets >= 80 && fast.unsent == 0, "{fast:?}");
}

/// Who has entered connections is gone: everything comes up at once, and nothing is forwarded by
/// what is left.
#[test]
fn nothing_outlives_who_has_decided() {
    let Some(world) = World::new(false, true, |_| {}) else { return };
    let _echo = world.echo("192.0.2.2:9", b'a');
    let socket = world.asking("10.1.0.2:0", "192.0.2.2:9");
    for turn in 0..10 {
        exchange(&socket, 100, turn);
    }
    let before = world.ask(|forwarder| {
        forwarder.catch_up_all();
        forwarder.clear_fast_path();
        forwarder.counters().packets
    });
    for turn in 10..20 {
        exchange(&socket, 100, turn);
    }
    // Frames of IPv6's own housekeeping may come up, too.
    assert!(world.ask(|forwarder| forwarder.counters().packets) - before >= 20);
    assert_eq!(world.notes()[0].0.packets, [20, 20]);
}
