//! The forwarder between two kernels: real clients, real servers, packet sockets with super-frames.
//!
//! ```text
//!  client ── veth ── middle: left, right ── veth ── server with nginx
//! ```

mod namespaces;

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use namespaces::{Namespace, nginx, send_back};
use nicache_forward::copying::Copying;
use nicache_forward::first_bytes::By;
use nicache_forward::interface::Interface;
use nicache_forward::names::Names;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::services::{BackEnd, ByName, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Drop as Dropped, Forwarder};
use nicache_port::{PacketConfig, PacketSocket};
use nicache_tcp::Time;

const LIMIT: Duration = Duration::from_secs(20);

struct World {
    client: Namespace,
    server: Namespace,
    middle: Namespace,
    folder: tempfile::TempDir,
}

/// A thread that forwards until it is told to stop.
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Copying<PacketSocket>>>,
}

impl World {
    fn new() -> Option<Self> {
        let (client, server, middle) =
            (Namespace::with_loopback()?, Namespace::with_loopback()?, Namespace::with_loopback()?);
        client.veth("eth0", &middle, "left");
        server.veth("eth0", &middle, "right");
        client.ip("address add 10.1.0.2/24 dev eth0");
        client.ip("route add default via 10.1.0.1");
        client.ip("address add fd01::2/64 dev eth0 nodad");
        client.ip("route add default via fd01::1");
        for last in [2, 11, 12, 13] {
            server.ip(format!("address add 192.0.2.{last}/24 dev eth0"));
            server.ip(format!("address add fd02::{last}/64 dev eth0 nodad"));
        }
        Some(Self { client, server, middle, folder: tempfile::tempdir().unwrap() })
    }

    fn config(&self) -> Config {
        let interface = |port: u8, v4: &str, v6: &str| Interface {
            port,
            tags: Default::default(),
            mac: [2, 0, 0, 0, 1, port],
            addresses: vec![(v4.parse().unwrap(), 24), (v6.parse().unwrap(), 64)],
            mtu: 1500,
            masquerade: Vec::new(),
        };
        Config::new(
            vec![interface(0, "10.1.0.1", "fd01::1"), interface(1, "192.0.2.1", "fd02::1")],
            77,
        )
    }

    /// With a service by name for each version of IP.
    fn config_by_name(&self) -> Config {
        let mut config = self.config();
        config.externals = ["192.0.2.1", "fd02::1"]
            .map(|text| External {
                address: address(text),
                ports: 1024..=65_535,
                filtering: Filtering::default(),
            })
            .into();
        let service = |vip: &str, back_end: &str, through: usize| ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new(address(vip), 80),
            back_ends: vec![BackEnd { endpoint: Endpoint::new(address(back_end), 80), weight: 1 }],
            masquerade: Some(through),
            by_name: Some(ByName {
                by: By::Host,
                names: Names::new(&[vec![]]).unwrap(),
                proxy_protocol: false,
            }),
        };
        config.services =
            vec![service("10.1.0.100", "192.0.2.11", 0), service("fd01::100", "fd02::11", 1)];
        config
    }

    fn start(&self, config: Config) -> Running {
        let ports = self.middle.run(|| {
            ["left", "right"].map(|name| {
                PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0)
            })
        });
        // The kernel gives frames to our address to nobody.
        for (name, interface) in ["left", "right"].into_iter().zip(&config.interfaces) {
            let [a, b, c, d, e, f] = interface.mac;
            self.middle.ip(format!("link set {name} address {a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{f:x}"));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let begin = Instant::now();
            let forwarder = Forwarder::new(config, Time::ZERO).unwrap();
            let mut copying = Copying::new(forwarder, Vec::from(ports), 32);
            let mut random = fastrand::Rng::with_seed(1);
            while !is_over.load(Ordering::Relaxed) {
                let now = Time(begin.elapsed().as_nanos() as u64);
                if copying.turn(now, || random.u32(..)).unwrap() == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            copying
        });
        Running { stop, thread: Some(thread) }
    }

    /// What `curl` says to a URL, asked again until there is an answer.
    fn curl(&self, url: &str) -> Vec<u8> {
        let begin = Instant::now();
        loop {
            let output = self.client.output(&format!("curl -sS -g --max-time 15 {url}"));
            if output.status.success() {
                return output.stdout;
            }
            assert!(begin.elapsed() < LIMIT, "{url}: {output:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn ask(&self, url: &str) -> String {
        String::from_utf8(self.curl(url)).unwrap()
    }

    /// A file that only a transfer without a fault equals.
    fn file(&self, bytes: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(bytes as u64);
        let file: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(bytes).collect();
        std::fs::write(self.folder.path().join("file"), &file).unwrap();
        file
    }
}

impl Running {
    fn stop(mut self) -> Copying<PacketSocket> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes a call again that was interrupted. One with a time limit is, even if this process has only
/// stood still for a moment.
fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Whether an address answers an echo request of the kernel's.
fn echoes(from: &Namespace, to: &str) -> bool {
    use rustix::io::retry_on_intr;
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt,
    };
    let to: std::net::SocketAddr = to.parse().unwrap();
    from.run(move || {
        std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).unwrap();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LIMIT)).unwrap();
        let mut request = vec![8, 0, 0, 0, 0, 0, 0, 1];
        request.extend([7; 57]);
        sendto(&socket, &request, SendFlags::empty(), &to).unwrap();
        let mut reply = [0; 100];
        let received = retry_on_intr(|| recv(&socket, &mut reply[..], RecvFlags::empty()));
        let (len, _) = received.unwrap();
        len == 65 && reply[0] == 0 && reply[8..65] == [7; 57]
    })
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_client_behind_an_address() {
    let Some(world) = World::new() else { return };
    let mut config = world.config();
    config.externals = ["192.0.2.1", "fd02::1"]
        .map(|text| External {
            address: address(text),
            ports: 1024..=65_535,
            filtering: Filtering::default(),
        })
        .into();
    // The server knows no way to the client.
    config.interfaces[1].masquerade = vec![0, 1];
    let file = world.file(24 << 20);
    let _nginx = nginx(&world.server, world.folder.path(), "one", "192.0.2.2:80");
    let running = world.start(config);
    assert_eq!(world.ask("http://192.0.2.2/who"), "one 192.0.2.1");
    assert!(world.curl("http://192.0.2.2/file") == file, "the file arrived otherwise");
    // Errors come back: the kernel's own echo, and ports that nobody listens at.
    assert!(echoes(&world.client, "192.0.2.2:0"));
    assert!(echoes(&world.client, "10.1.0.1:0"), "the forwarder itself");
    let refused = world.client.output("curl -sS --max-time 10 http://192.0.2.2:81/");
    assert_eq!(refused.status.code(), Some(7), "a reset, and no silence: {refused:?}");
    // A datagram of three fragments each way.
    let echo = world.server.run(|| std::net::UdpSocket::bind("192.0.2.2:9").unwrap());
    let asking = world.client.run(|| std::net::UdpSocket::bind("10.1.0.2:0").unwrap());
    for socket in [&echo, &asking] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    let datagram: Vec<u8> = (0..4000u32).map(|at| (at % 251) as u8).collect();
    asking.send_to(&datagram, "192.0.2.2:9").unwrap();
    let mut buffer = [0; 5000];
    let (len, from) = uninterrupted(|| echo.recv_from(&mut buffer)).unwrap();
    assert_eq!((&buffer[..len], from.ip()), (&datagram[..], address("192.0.2.1")));
    echo.send_to(&datagram, from).unwrap();
    let answer = uninterrupted(|| asking.recv_from(&mut buffer)).unwrap();
    assert_eq!(answer, (4000, "192.0.2.2:9".parse().unwrap()));
    let copying = running.stop();
    let counters = copying.forwarder().counters();
    println!("{counters:?} {:?}", copying.counters());
    assert_eq!((copying.counters().send_failed, counters.outside), (0, 0));
    assert_eq!(counters.dropped_for(Dropped::Untranslated), 0);
    assert!(counters.forwarded < 12_000, "super-frames: {}", counters.forwarded);
}

#[test]
fn one_address_for_three_back_ends() {
    let Some(world) = World::new() else { return };
    let mut config = world.config();
    let services = [("10.1.0.100", "192.0.2"), ("fd01::100", "fd02:")].map(|(vip, net)| {
        let separator = if net.contains(':') { ":" } else { "." };
        let back_end = |last: u16| BackEnd {
            endpoint: Endpoint::new(address(&format!("{net}{separator}{last}")), 80),
            weight: 1,
        };
        ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new(address(vip), 80),
            back_ends: [11, 12, 13].map(back_end).into(),
            masquerade: None,
            by_name: None,
        }
    });
    config.services = services.into();
    // The servers see clients, and answer by the forwarder.
    world.server.ip("route add 10.1.0.0/24 via 192.0.2.1");
    world.server.ip("route add fd01::/64 via fd02::1");
    let file = world.file(8 << 20);
    let _servers = [11, 12, 13].map(|last| {
        let listen = format!("192.0.2.{last}:80; listen [fd02::{last}]:80");
        nginx(&world.server, world.folder.path(), &format!("back-end-{last}"), &listen)
    });
    let running = world.start(config);
    for (vip, client) in [("10.1.0.100", "10.1.0.2"), ("[fd01::100]", "fd01::2")] {
        let mut seen = std::collections::BTreeMap::<String, u32>::new();
        for _ in 0..30 {
            let answer = world.ask(&format!("http://{vip}/who"));
            let (name, from) = answer.split_once(' ').unwrap();
            assert_eq!(from, client, "the client's address is kept");
            *seen.entry(name.to_owned()).or_default() += 1;
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert!(world.curl(&format!("http://{vip}/file")) == file, "the file arrived otherwise");
    }
    let copying = running.stop();
    println!("{:?} {:?}", copying.forwarder().counters(), copying.counters());
    assert_eq!((copying.counters().send_failed, copying.forwarder().counters().outside), (0, 0));
    assert_eq!(copying.forwarder().counters().begun, 62);
}

/// A back end by name whose kernel does without timestamps, SACK or window scaling, or begins to:
/// what its client was promised is kept.
#[test]
fn a_back_end_that_does_without_options() {
    let Some(world) = World::new() else { return };
    let file = world.file(6 << 20);
    let _nginx =
        nginx(&world.server, world.folder.path(), "one", "192.0.2.11:80; listen [fd02::11]:80");
    let set = |name: &str, is_on: bool| {
        let value = if is_on { "1" } else { "0" };
        let path = format!("/proc/sys/net/ipv4/tcp_{name}");
        world.server.run(move || std::fs::write(path, value).unwrap());
    };
    for kind in 0..8u8 {
        let [stamps, sack, scaling] = [0, 1, 2].map(|bit| kind & 1 << bit != 0);
        // One of which nothing is known, and one whose back end has had timestamps until now.
        for had_stamps in if stamps { &[false][..] } else { &[false, true] } {
            let running = world.start(world.config_by_name());
            let mut count = 0;
            for vip in ["10.1.0.100", "[fd01::100]"] {
                let ask = |stamps: bool| {
                    for (name, is_on) in
                        [("timestamps", stamps), ("sack", sack), ("window_scaling", scaling)]
                    {
                        set(name, is_on);
                    }
                    // The second one is after what the first one has taught.
                    for _ in 0..2 {
                        assert!(
                            world.curl(&format!("http://{vip}/file")) == file,
                            "{vip}: the file arrived otherwise"
                        );
                    }
                };
                if *had_stamps {
                    ask(true);
                    count += 2;
                }
                ask(stamps);
                count += 2;
            }
            let counters = *running.stop().forwarder().counters();
            let unstamped = if stamps { 0 } else { 2 };
            // None had to be tried again.
            let seen =
                (counters.switch_accepted, counters.switch_spliced, counters.switch_unstamped);
            assert_eq!(seen, (count, count, unstamped), "{kind}: {counters:?}");
        }
    }
}

/// Neither end gets a segment that is longer than it has said, though the client was told a size
/// before its back end was known, and a back end without timestamps leaves no room for those that
/// are put in. Nobody hears ICMP.
#[test]
fn no_end_gets_longer_segments_than_it_takes() {
    const SERVER: u32 = 500;
    const CLIENT: u32 = 400;
    let Some(world) = World::new() else { return };
    world.client.ip(format!("route replace 10.1.0.0/24 dev eth0 advmss {CLIENT}"));
    world.client.ip(format!("-6 route replace fd01::/64 dev eth0 metric 100 advmss {CLIENT}"));
    world.server.ip(format!("route replace 192.0.2.0/24 dev eth0 advmss {SERVER}"));
    world.server.ip(format!("-6 route replace fd02::/64 dev eth0 metric 100 advmss {SERVER}"));
    for (namespace, mss) in [(&world.client, CLIENT), (&world.server, SERVER)] {
        let nft = |arguments: String| namespace.command("nft", arguments);
        nft("add table inet short".into());
        nft("add chain inet short in { type filter hook prerouting priority -300 ; }".into());
        for (version, headers) in [("ipv4", 40), ("ipv6", 60)] {
            let most = headers + mss;
            nft(format!(
                "add rule inet short in meta nfproto {version} meta l4proto tcp meta length > {most} drop"
            ));
        }
        nft("add rule inet short in icmp type destination-unreachable drop".into());
        nft("add rule inet short in icmpv6 type packet-too-big drop".into());
    }
    // Whole super-frames would be dropped, too.
    for end in ["left", "right"] {
        world.middle.command("ethtool", format!("-K {end} tso off gso off"));
    }
    let file = world.file(1 << 20);
    let path = world.folder.path().join("file");
    for listen in ["192.0.2.11:80", "[fd02::11]:80"] {
        let listener = world.server.run(move || TcpListener::bind(listen).unwrap());
        std::thread::spawn(move || send_back(&listener));
    }
    let running = world.start(world.config_by_name());
    for vip in ["10.1.0.100", "[fd01::100]"] {
        for stamps in ["1", "0"] {
            world.server.run(move || {
                std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", stamps).unwrap();
            });
            let output = world.client.output(&format!(
                "curl -sS -g --max-time 30 -H Expect: --data-binary @{} http://{vip}/",
                path.display()
            ));
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && output.stdout == file,
                "{vip}, timestamps {stamps}: {error}"
            );
        }
    }
    let counters = *running.stop().forwarder().counters();
    let seen = (counters.switch_accepted, counters.switch_spliced, counters.switch_unstamped);
    assert_eq!(seen, (4, 4, 2), "{counters:?}");
    assert!(counters.switch_cut > 0, "{counters:?}");
}
