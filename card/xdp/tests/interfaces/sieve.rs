//! Which frames of a link come by AF_XDP sockets, and which by the packet socket that sees what the
//! kernel gets.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use super::*;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

const OURS: [u8; 4] = [10, 77, 0, 9];
const THEIRS: [u8; 4] = [10, 77, 0, 1];
const OURS6: [u8; 16] = [0xfd; 16];
const THEIRS6: [u8; 16] = [0xfc; 16];

fn kept() -> Kept {
    let ports = [(false, 900..=999), (false, 22..=22), (true, 500..=501)];
    Kept {
        ports: ports.map(|(is_udp, ports)| KeptPorts { is_udp, ports }).to_vec(),
        addresses: vec![OURS.into(), OURS6.into()],
        answered: vec![
            (false, (OURS, 950).into()),
            (true, (OURS6, 501).into()),
            // Not a kept port.
            (true, (OURS, 80).into()),
        ],
    }
}

/// A frame, and whether this machine keeps it.
struct Case {
    name: String,
    frame: Vec<u8>,
    is_kept: bool,
}

fn ipv4(protocol: u8, options: usize, fragment: u16) -> Vec<u8> {
    let mut header = vec![0x45 + options as u8, 0, 0, 200, 0, 7];
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    header.extend([THEIRS, OURS].concat());
    header.extend(vec![1; 4 * options]);
    header
}

fn ipv6(next: u8) -> Vec<u8> {
    [&[0x60, 0, 0, 0, 0, 160, next, 64][..], &THEIRS6, &OURS6].concat()
}

/// The same the other way.
fn back(mut header: Vec<u8>) -> Vec<u8> {
    let (at, len) = if header[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
    let from = header[at..at + len].to_vec();
    header.copy_within(at + len..at + 2 * len, at);
    header[at + len..at + 2 * len].copy_from_slice(&from);
    header
}

fn to_port(port: u16) -> Vec<u8> {
    [40_000u16.to_be_bytes(), port.to_be_bytes()].concat()
}

fn from_port(port: u16) -> Vec<u8> {
    [port.to_be_bytes(), 40_000u16.to_be_bytes()].concat()
}

fn error(kind: u8) -> Vec<u8> {
    vec![kind, 1, 0, 0, 0, 0, 5, 0]
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let tag = [0x81, 0, 0, 7];
    let service_tag = [0x88, 0xa8, 0, 7];
    let two = [0x88, 0xa8, 0, 9, 0x81, 0, 0, 7];
    for (tags, tagged, few) in [
        (&[][..], "", true),
        (&tag, "vlan ", true),
        (&service_tag, "ad ", true),
        (&two, "qinq ", false),
    ] {
        let mut add = |name: &str, ethertype: u16, parts: &[Vec<u8>], is_kept: bool| {
            let mut frame = [&[0xff; 6][..], &mac(1), tags, &ethertype.to_be_bytes()].concat();
            parts.iter().for_each(|part| frame.extend(part));
            // A mark to know it by.
            frame.extend([0xca; 60]);
            frame.extend((cases.len() as u16).to_be_bytes());
            cases.push(Case { name: format!("{tagged}{name}"), frame, is_kept: is_kept && few });
        };
        add("arp", ARP, &[vec![0, 1, 8, 0, 6, 4, 0, 1]], true);
        add("something else", 0x1234, &[], false);
        for (port, keeps_tcp, keeps_udp) in [
            (22, true, false),
            (80, false, false),
            (899, false, false),
            (900, true, false),
            (999, true, false),
            (1000, false, false),
            (500, false, true),
            (502, false, false),
        ] {
            for (protocol, keeps) in [(TCP, keeps_tcp), (UDP, keeps_udp)] {
                add(
                    &format!("ipv4 {protocol} {port}"),
                    IPV4,
                    &[ipv4(protocol, 0, 0), to_port(port)],
                    keeps,
                );
                add(
                    &format!("ipv6 {protocol} {port}"),
                    IPV6,
                    &[ipv6(protocol), to_port(port)],
                    keeps,
                );
            }
        }
        add("ipv4 options", IPV4, &[ipv4(TCP, 3, 0), to_port(22)], true);
        add("ipv4 most options", IPV4, &[ipv4(TCP, 10, 0), to_port(22)], true);
        add("ipv4 first fragment", IPV4, &[ipv4(TCP, 0, 0x2000), to_port(22)], false);
        add("ipv4 later fragment", IPV4, &[ipv4(TCP, 0, 5), to_port(22)], false);
        add("ipv4 that may not be cut", IPV4, &[ipv4(TCP, 0, 0x4000), to_port(22)], true);
        add("ipv4 icmp", IPV4, &[ipv4(1, 0, 0), to_port(22)], false);
        let mut odd = ipv4(TCP, 0, 0);
        odd[0] = 0x44;
        add("ipv4 short header", IPV4, &[odd, to_port(22)], false);
        for (kind, keeps) in [
            (132u8, false),
            (133, true),
            (135, true),
            (136, true),
            (137, true),
            (138, false),
            (128, false),
        ] {
            add(&format!("icmpv6 {kind}"), IPV6, &[ipv6(ICMPV6), vec![kind, 0, 0, 0]], keeps);
        }
        // The same ports of others: connections through the forwarder.
        for port in [22, 950] {
            let to = to_port(port);
            add(
                &format!("ipv4 elsewhere {port}"),
                IPV4,
                &[back(ipv4(TCP, 0, 0)), to.clone()],
                false,
            );
            add(&format!("ipv6 elsewhere {port}"), IPV6, &[back(ipv6(TCP)), to], false);
        }
        // Services of the forwarder at them.
        for (port, keeps4, keeps6) in [(950, false, true), (951, true, true)] {
            add(&format!("ipv4 service {port}"), IPV4, &[ipv4(TCP, 0, 0), to_port(port)], keeps4);
            add(&format!("ipv6 service {port}"), IPV6, &[ipv6(TCP), to_port(port)], keeps6);
        }
        for (port, keeps4, keeps6) in [(501, true, false), (500, true, true)] {
            add(
                &format!("ipv4 udp service {port}"),
                IPV4,
                &[ipv4(UDP, 0, 0), to_port(port)],
                keeps4,
            );
            add(&format!("ipv6 udp service {port}"), IPV6, &[ipv6(UDP), to_port(port)], keeps6);
        }
        // Errors, about what a kept port has sent and about what others have.
        for (kind, is_error) in [(3, true), (5, false), (8, false), (11, true), (12, true)] {
            let about = |inner: Vec<u8>, ports| [ipv4(1, 0, 0), error(kind), inner, ports];
            let mut add = |name: &str, parts: &[Vec<u8>], keeps| {
                add(&format!("ipv4 icmp {kind} {name}"), IPV4, parts, keeps);
            };
            let sent = || back(ipv4(TCP, 0, 0));
            add("about ours", &about(sent(), from_port(22)), is_error);
            add("about ours with options", &about(back(ipv4(TCP, 3, 0)), from_port(22)), is_error);
            add("about a first piece", &about(back(ipv4(TCP, 0, 0x2000)), from_port(22)), is_error);
            add("about a later piece", &about(back(ipv4(TCP, 0, 5)), from_port(22)), false);
            add("about a service's", &about(sent(), from_port(950)), false);
            add("about another port's", &about(sent(), from_port(80)), false);
            add("about what came", &about(ipv4(TCP, 0, 0), from_port(22)), false);
            add("about an echo", &about(back(ipv4(1, 0, 0)), from_port(22)), false);
            let [_, kind, inner, ports] = about(sent(), from_port(22));
            add("for another", &[back(ipv4(1, 0, 0)), kind, inner, ports], false);
        }
        for (kind, is_error) in [(1, true), (2, true), (3, true), (4, true), (5, false)] {
            let about = |inner: Vec<u8>, ports| [ipv6(ICMPV6), error(kind), inner, ports];
            let mut add = |name: &str, parts: &[Vec<u8>], keeps| {
                add(&format!("ipv6 icmp {kind} {name}"), IPV6, parts, keeps);
            };
            add("about ours", &about(back(ipv6(TCP)), from_port(22)), is_error);
            add("about another port's", &about(back(ipv6(TCP)), from_port(80)), false);
            add("about what came", &about(ipv6(TCP), from_port(22)), false);
            let [_, kind, inner, ports] = about(back(ipv6(TCP)), from_port(22));
            add("for another", &[back(ipv6(ICMPV6)), kind, inner, ports], false);
        }
        add("ipv6 fragment", IPV6, &[ipv6(44), vec![TCP, 0, 0, 0, 0, 0, 0, 1], to_port(22)], false);
        add("ipv6 as ipv4", IPV6, &[ipv4(TCP, 0, 0), to_port(22)], false);
    }
    // Cut where the port would be.
    let short =
        [&[0xff; 6][..], &mac(1), &IPV4.to_be_bytes(), &ipv4(TCP, 0, 0), &[0x9c, 0x40]].concat();
    cases.push(Case { name: "cut".into(), frame: short, is_kept: false });
    cases
}

/// The program at `wire`, with sockets on these of its queues.
fn sieved(
    card: &Namespace,
    queues: u32,
    with_sockets: &'static [u32],
) -> (Sieve, Vec<XdpSocket>, PacketSocket) {
    card.run(move || {
        let sieve = Sieve::attach("wire", queues, kept()).unwrap();
        let open = |queue: &u32| {
            XdpSocket::open("wire", *queue, sieve.sockets(), &XdpConfig::default()).unwrap()
        };
        let sockets = with_sockets.iter().map(open).collect();
        let passed = PacketSocket::open("wire", 1, &PacketConfig::default()).unwrap().remove(0);
        (sieve, sockets, passed)
    })
}

fn heard(port: &mut impl Port) -> Vec<Vec<u8>> {
    let (mut burst, mut all) = (Burst::new(64), Vec::new());
    while port.receive(&mut burst).unwrap() > 0 {
        all.extend(burst.iter().map(|frame| frame.data().to_vec()));
    }
    all
}

/// Each frame comes to one of both, and to the right one.
#[test]
fn each_frame_has_one_place() {
    let Some(scene) = scene() else { return };
    let (mut sieve, mut sockets, mut passed) = sieved(&scene.card, 1, &[0]);
    let mut client = tapped(&scene.client, "eth0");
    let cases = cases();
    let (mut by_socket, mut by_kernel) = (BTreeSet::new(), BTreeSet::new());
    for case in &cases {
        send(&mut client, &case.frame);
        // What one has not yet got, the other one may get.
        let began = std::time::Instant::now();
        while !by_socket.contains(&case.frame) && !by_kernel.contains(&case.frame) {
            by_socket.extend(heard(&mut sockets[0]));
            by_kernel.extend(heard(&mut passed));
            assert!(began.elapsed() < DEADLINE, "{} came nowhere", case.name);
        }
    }
    std::thread::sleep(Duration::from_millis(100));
    by_socket.extend(heard(&mut sockets[0]));
    by_kernel.extend(heard(&mut passed));
    for Case { name, frame, is_kept } in &cases {
        assert_eq!(
            (by_kernel.contains(frame), by_socket.contains(frame)),
            (*is_kept, !is_kept),
            "{name}"
        );
    }
    // Another address is this machine's now.
    let elsewhere = |family: &str| {
        let name = format!("{family} elsewhere 22");
        cases.iter().find(|case| case.name == name).unwrap().frame.clone()
    };
    sieve.set_addresses(&[THEIRS.into(), OURS6.into()].into()).unwrap();
    for (frame, is_kept) in [
        (elsewhere("ipv4"), true),
        (elsewhere("ipv6"), false),
        (cases.iter().find(|case| case.name == "ipv4 6 22").unwrap().frame.clone(), false),
    ] {
        send(&mut client, &frame);
        let began = std::time::Instant::now();
        let place = loop {
            if heard(&mut passed).contains(&frame) {
                break true;
            }
            if heard(&mut sockets[0]).contains(&frame) {
                break false;
            }
            assert!(began.elapsed() < DEADLINE, "it came nowhere");
        };
        assert_eq!(place, is_kept);
    }
    // Without a socket everything is the kernel's, and without the program, too.
    drop(sockets);
    let other = cases.iter().find(|case| !case.is_kept).unwrap();
    let comes = |passed: &mut PacketSocket, client: &mut PacketSocket| {
        let began = std::time::Instant::now();
        while !heard(passed).contains(&other.frame) {
            send(client, &other.frame);
            assert!(began.elapsed() < DEADLINE);
        }
    };
    comes(&mut passed, &mut client);
    assert!(scene.card.ip("link show wire").contains("xdp"));
    drop(sieve);
    assert_without_program(&scene.card, "wire");
    comes(&mut passed, &mut client);
}

/// All queues are one port; a queue without a socket is heard, too, and whoever sleeps is woken.
#[test]
fn all_queues_are_one_port() {
    let Some(scene) = scene_with("numrxqueues 3 numtxqueues 3") else { return };
    let settings = scene.card.run(|| Settings::of("wire")).unwrap();
    assert_eq!(settings.receive_queues, Some(3), "{settings:?}");
    let (sieve, sockets, passed) = sieved(&scene.card, 3, &[0, 2]);
    let mut port = LinkPort::new(sockets, passed).unwrap();
    let program: OwnedFd = sieve.program().try_clone_to_owned().unwrap();
    let mut client = tapped(&scene.client, "eth0");
    // The other end of a veth chooses by its own queue, which a flow of the kernel's has by its
    // hash.
    let mut seen = 0;
    for source in 0..60u16 {
        let udp = [&source.to_be_bytes()[..], &[0, 9, 0, 68, 0, 0]].concat();
        let frame =
            [&mac(9)[..], &mac(1), &IPV4.to_be_bytes(), &ipv4(UDP, 0, 0), &udp, &[7; 60]].concat();
        send(&mut client, &frame);
        let began = std::time::Instant::now();
        loop {
            if heard(&mut port).contains(&frame) {
                seen += 1;
                break;
            }
            assert!(began.elapsed() < DEADLINE, "from {source}");
            wait(&[port.wait_fd().unwrap()], Some(Duration::from_secs(1))).unwrap();
        }
    }
    assert_eq!(seen, 60);
    send(&mut port, &[&mac(1)[..], &mac(9), &[0x12, 0x34], &[3; 60]].concat());
    let began = std::time::Instant::now();
    while heard(&mut client).is_empty() {
        assert!(began.elapsed() < DEADLINE, "what it sends does not come");
    }
    drop(program);
}

/// A link that works is found to, and one whose sockets are not in the program's map is found dead.
#[test]
fn probes_of_one_link() {
    let Some(scene) = scene_with("numrxqueues 2 numtxqueues 2") else { return };
    let elsewhere = Namespace::new().unwrap();
    elsewhere.ip("link add wire type veth peer name other");
    elsewhere.ip("link set wire up");
    elsewhere.ip("link set other up");
    let (other, ..) = sieved(&elsewhere, 2, &[]);
    for is_connected in [true, false] {
        let map = other.sockets().try_clone_to_owned().unwrap();
        let found = scene.card.run(move || {
            use std::os::fd::AsFd;
            let sieve = Sieve::attach("wire", 2, kept()).unwrap();
            let map = if is_connected { sieve.sockets() } else { map.as_fd() };
            // The kernel lets go of a queue some time after its last socket is closed.
            let open = |queue| {
                (0..1000)
                    .find_map(|_| {
                        match XdpSocket::open("wire", queue, map, &XdpConfig::default()) {
                            Err(XdpError::Busy { .. }) => {
                                std::thread::sleep(Duration::from_millis(10));
                                None
                            }
                            opened => Some(opened.unwrap()),
                        }
                    })
                    .expect("the queue becomes free")
            };
            let mut sockets = [open(0), open(1)];
            let ports = sockets.iter_mut().map(|socket| socket as &mut dyn Port).collect();
            let mut side = ProbeSide {
                interface: "wire",
                ports,
                sockets: ProbeSockets::Copied,
                rest: Rest::Pass,
            };
            probe_link(sieve.program(), &mut side, 0x1234_5678_9abc_def1)
        });
        match found {
            Ok(untried) => assert!(
                is_connected && untried[..].concat().contains("other queues"),
                "{untried:?}"
            ),
            Err(error) => assert!(!is_connected && matches!(error, ProbeError::Deaf(_)), "{error}"),
        }
    }
}

/// Drivers that run no XDP programs, and programs that are there already.
#[test]
fn links_that_cannot_be_had() {
    let Some(scene) = scene() else { return };
    scene.card.ip("link add none type bridge");
    let attached = scene.card.run(|| Sieve::attach("none", 1, kept()).map(drop));
    assert!(matches!(attached, Err(SteeringError::NoXdp { .. })), "{attached:?}");
    let (_first, ..) = sieved(&scene.card, 1, &[]);
    let again = scene.card.run(|| Sieve::attach("wire", 1, kept()).map(drop));
    assert!(matches!(again, Err(SteeringError::Busy(_))), "{again:?}");
    assert!(scene.card.run(|| Sieve::attach("nowhere", 1, kept()).is_err()));
}
