//! AF_XDP sockets on veth pairs, between the kernels at both ends.

use std::io::IoSlice;
use std::os::fd::AsFd;

use super::frames::cases;
use super::table::check;
use super::*;

const DRIVER: (Rest, CardPort) = (Rest::Redirect, CardPort::Xdp { queues: 1 });

fn open_with(
    card: &Namespace,
    interface: &'static str,
    files: SideFiles<'_>,
    config: XdpConfig,
) -> Result<XdpSocket, XdpError> {
    let sockets = files.sockets.try_clone_to_owned().unwrap();
    card.run(move || XdpSocket::open(interface, 0, sockets.as_fd(), &config))
}

fn open(card: &Namespace, interface: &'static str, files: SideFiles<'_>) -> XdpSocket {
    open_with(card, interface, files, XdpConfig::default()).unwrap()
}

/// Opens both sides and forwards between them, alive.
fn bridge(scene: &Scene, steering: &Steering) -> Bridge {
    let files = steering.files();
    let (wire, host) =
        (open(&scene.card, "wire", files.wire), open(&scene.card, "host", files.host));
    heartbeat(steering).beat(now_ns(), LONG);
    Bridge::start(wire, host, |_| {})
}

#[test]
fn the_driver_steers_as_packet_sockets_do() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let files = steering.files();
    let (mut wire, mut host) =
        (open(&scene.card, "wire", files.wire), open(&scene.card, "host", files.host));
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    let heartbeat = heartbeat(&steering);
    let (there, back) = (cases(false), cases(true));
    check(&there, &mut client, &mut wire, &mut server, false);
    heartbeat.beat(now_ns(), LONG);
    check(&there, &mut client, &mut wire, &mut server, true);
    check(&back, &mut server, &mut host, &mut client, true);
    assert_eq!(
        steering.counts().unwrap()[0].card,
        there.iter().filter(|case| case.is_cards).count() as u64
    );
    // Its socket is gone, but it counts as alive: what would have been its own goes nowhere, until
    // it does not.
    drop(wire);
    let own = there.iter().position(|case| case.is_cards).unwrap();
    let other = there.iter().position(|case| !case.is_cards).unwrap();
    let began = std::time::Instant::now();
    while !arrived(&mut server).contains(&other) {
        send(&mut client, &there[own].frame);
        send(&mut client, &there[other].frame);
        std::thread::sleep(Duration::from_millis(2));
        assert!(began.elapsed() < DEADLINE);
    }
    send(&mut client, &there[own].frame);
    std::thread::sleep(Duration::from_millis(20));
    assert!(!arrived(&mut server).contains(&own));
    heartbeat.stop();
    check(&there, &mut client, &mut host, &mut server, false);
}

#[test]
fn a_hundred_megabytes_cross() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let bridge = bridge(&scene, &steering);
    // The kernels leave checksums partial, which is found out.
    transfer(&scene.client, &scene.server, v4(2, 80), 100 << 20);
    let [wire, host] = bridge.stop();
    println!("{wire:?} {host:?}");
    assert!(wire.receive.bytes > 100 << 20 && host.send.bytes > 100 << 20);
    assert_eq!((wire.receive.super_frames, wire.send.refused, host.send.refused), (0, 0, 0));
}

#[test]
fn ipv6_and_complete_checksums_cross() {
    let Some(scene) = scene() else { return };
    scene.complete_checksums();
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let bridge = bridge(&scene, &steering);
    transfer(&scene.client, &scene.server, v4(2, 80), 8 << 20);
    transfer(&scene.client, &scene.server, v6(2, 80), 8 << 20);
    let [wire, _] = bridge.stop();
    assert!(wire.receive.bytes > 16 << 20, "{wire:?}");
}

#[test]
fn a_packet_socket_and_an_xdp_socket_work_together() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, INLINE).unwrap();
    let files = steering.files();
    let (wire, host) =
        (open(&scene.card, "wire", files.wire), filtered(&scene.card, "host", files.host));
    heartbeat(&steering).beat(now_ns(), LONG);
    let bridge = Bridge::start(wire, host, |_| {});
    transfer(&scene.client, &scene.server, v4(2, 80), 8 << 20);
    let [wire, host] = bridge.stop();
    assert!(wire.receive.bytes > 8 << 20 && host.send.bytes > 8 << 20);
}

#[test]
fn packet_sockets_under_steering_keep_super_frames() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, INLINE, INLINE).unwrap();
    let files = steering.files();
    let (wire, host) =
        (filtered(&scene.card, "wire", files.wire), filtered(&scene.card, "host", files.host));
    let heartbeat = heartbeat(&steering);
    // The rest goes by in super-frames, too.
    transfer(&scene.client, &scene.server, v4(2, 0), 32 << 20);
    let passed = steering.counts().unwrap()[0];
    assert!(passed.redirected < (32 << 20) / 1448, "{passed:?}");
    heartbeat.beat(now_ns(), LONG);
    let bridge = Bridge::start(wire, host, |_| {});
    transfer(&scene.client, &scene.server, v4(2, 80), 100 << 20);
    let [wire, _] = bridge.stop();
    assert!(wire.receive.bytes > 100 << 20 && wire.receive.super_frames > 100, "{wire:?}");
}

#[test]
fn long_frames_go_through_several_chunks() {
    let Some(scene) = scene_with("mtu 8000") else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let files = steering.files();
    let (mut wire, mut host) =
        (open(&scene.card, "wire", files.wire), open(&scene.card, "host", files.host));
    if !wire.has_many_chunks() {
        println!("skipped: this kernel has no multi-buffer AF_XDP");
        assert_eq!(wire.capabilities().frame_bytes_max, 4096);
        return;
    }
    assert_eq!(wire.capabilities().frame_bytes_max, 8014);
    heartbeat(&steering).beat(now_ns(), LONG);
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    let mut burst = Burst::new(8);
    for len in [60, 3000, 4096, 4097, 6000, 8014] {
        let mut frame = cases(false)[0].frame.clone();
        frame.resize(len, 0);
        frame.iter_mut().enumerate().skip(60).for_each(|(at, byte)| *byte = (at * 7) as u8);
        let mut receive = |port: &mut dyn Port, what: &str| {
            let began = std::time::Instant::now();
            loop {
                port.receive(&mut burst).unwrap();
                if let Some(found) = burst.iter().find(|found| found.len() == len) {
                    assert!(found.data() == frame, "{what} {len}");
                    return;
                }
                assert!(began.elapsed() < DEADLINE, "{what} {len}: never");
            }
        };
        send(&mut client, &frame);
        receive(&mut wire, "received");
        let (head, tail) = frame.split_at(len / 3);
        host.send(&[IoSlice::new(head), IoSlice::new(tail)], Offload::default()).unwrap();
        host.flush().unwrap();
        receive(&mut server, "sent");
    }
}

#[test]
fn what_cannot_be_opened_or_sent_says_why() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let files = steering.files();
    let mut socket = open(&scene.card, "wire", files.wire);
    assert_eq!((socket.interface(), socket.queue(), socket.is_zero_copy()), ("wire", 0, false));
    assert_eq!(socket.capabilities(), Capabilities::PLAIN);
    let again = open_with(&scene.card, "wire", files.wire, XdpConfig::default());
    assert!(matches!(again, Err(XdpError::Busy { queue: 0, .. })), "{again:?}");
    let none = open_with(&scene.card, "none", files.wire, XdpConfig::default());
    assert!(matches!(none, Err(XdpError::NoInterface(_))), "{none:?}");
    let odd = open_with(
        &scene.card,
        "wire",
        files.wire,
        XdpConfig { frames: 100, ..XdpConfig::default() },
    );
    assert!(matches!(odd, Err(XdpError::BadFrames(100))), "{odd:?}");
    let sockets = files.host.sockets.try_clone_to_owned().unwrap();
    let queue =
        scene.card.run(move || XdpSocket::open("host", 3, sockets.as_fd(), &XdpConfig::default()));
    assert!(matches!(queue, Err(XdpError::NoQueue { queue: 3, .. })), "{queue:?}");
    let sockets = files.host.sockets.try_clone_to_owned().unwrap();
    let denied = scene.card.run(move || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        // Of this thread only.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).unwrap();
        XdpSocket::open("host", 0, sockets.as_fd(), &XdpConfig::default())
    });
    assert!(matches!(denied, Err(XdpError::NotPermitted)), "{denied:?}");

    let long = vec![0; 1523];
    assert!(matches!(
        socket.send(&[IoSlice::new(&long)], Offload::default()),
        Err(SendError::TooLong)
    ));
    assert!(matches!(
        socket.send(&[IoSlice::new(&long[..13])], Offload::default()),
        Err(SendError::Invalid)
    ));
    let partial = Offload { checksum: Checksum::Partial { start: 34, offset: 16 }, gso: None };
    assert!(matches!(
        socket.send(&[IoSlice::new(&long[..60])], partial),
        Err(SendError::Unsupported)
    ));
    let parts = [IoSlice::new(&long[..1]); PARTS_MAX + 1];
    assert!(matches!(socket.send(&parts, Offload::default()), Err(SendError::TooManyParts)));
}

#[test]
fn more_frames_than_the_rings_hold_are_sent_and_none_is_lost_on_the_way() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let config = XdpConfig { frames: 64, ..XdpConfig::default() };
    let mut host = open_with(&scene.card, "host", steering.files().host, config).unwrap();
    let mut server = tapped(&scene.server, "eth0");
    let mut frame = cases(false)[0].frame.clone();
    let mut found = Vec::new();
    for number in 0..1000u16 {
        let len = frame.len();
        frame[len - 2..].copy_from_slice(&number.to_be_bytes());
        host.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
        if number % 100 == 0 {
            found.extend(arrived(&mut server));
        }
    }
    host.flush().unwrap();
    let began = std::time::Instant::now();
    while found.len() < 1000 && began.elapsed() < DEADLINE {
        found.extend(arrived(&mut server));
    }
    assert_eq!(found, (0..1000).collect::<Vec<_>>());
}

#[test]
fn an_interface_may_vanish() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    let mut socket = open(&scene.card, "wire", steering.files().wire);
    let frame = cases(false)[0].frame.clone();
    scene.card.ip("link set wire down");
    let mut burst = Burst::new(4);
    for _ in 0..1000 {
        socket.receive(&mut burst).unwrap();
    }
    scene.card.ip("link delete wire");
    let error = (0..1000).find_map(|_| socket.receive(&mut burst).err()).expect("nothing is told");
    assert!(error.to_string().contains("`wire` is gone"), "{error}");
    for _ in 0..200 {
        let _ = socket.send(&[IoSlice::new(&frame)], Offload::default());
        let _ = socket.flush();
    }
}

#[test]
fn packet_sockets_follow_the_queues_of_the_wire() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    const QUEUES: u32 = 3;
    let Some(scene) = scene_with("numrxqueues 3 numtxqueues 3") else { return };
    let driver = (Rest::Redirect, CardPort::Xdp { queues: QUEUES });
    for (wire, host) in [(driver, driver), (driver, DRIVER), (INLINE, driver), (DRIVER, driver)] {
        assert!(
            matches!(attach(&scene.card, wire, host), Err(SteeringError::Queues)),
            "{wire:?} {host:?}"
        );
    }
    let steering = attach(&scene.card, driver, INLINE).unwrap();
    heartbeat(&steering).beat(now_ns(), LONG);
    let files = steering.files();
    let mut wire: Vec<XdpSocket> = (0..QUEUES)
        .map(|queue| {
            let sockets = files.wire.sockets.try_clone_to_owned().unwrap();
            scene
                .card
                .run(move || XdpSocket::open("wire", queue, sockets.as_fd(), &XdpConfig::default()))
                .unwrap()
        })
        .collect();
    let [filter, queue] =
        [files.host.filter, files.host_queue].map(|fd| fd.try_clone_to_owned().unwrap());
    let mut host = scene.card.run(move || {
        let config = PacketConfig {
            filter: Some(filter.as_fd()),
            queue: Some(queue.as_fd()),
            ..PacketConfig::default()
        };
        PacketSocket::open("host", QUEUES as usize, &config).unwrap()
    });
    let (mut client, cpus) = (tapped(&scene.client, "eth0"), sched_getaffinity(None).unwrap());
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).collect();
    let mut server = tapped(&scene.server, "eth0");
    let flow = |from_host: bool, number: u8, tags: &[u8], ipv6: bool| {
        let name = format!(
            "{}ipv{} service",
            if tags.is_empty() { "" } else { "vlan " },
            if ipv6 { 6 } else { 4 }
        );
        let mut frame = cases(from_host).into_iter().find(|case| case.name == name).unwrap().frame;
        // The client's port, and a mark.
        let at = 14 + tags.len() + if ipv6 { 40 } else { 20 } + if from_host { 3 } else { 1 };
        frame[at] = number;
        let len = frame.len();
        frame[len - 2..].copy_from_slice(&[0, number]);
        frame
    };
    let mut used = std::collections::BTreeSet::new();
    for number in 0..60u8 {
        let (tags, ipv6) =
            (if number % 3 == 0 { &[0x81, 0, 0, 7][..] } else { &[] }, number % 2 == 0);
        // A veth's queue is that of the sender's CPU.
        let mut only = CpuSet::new();
        only.set(cpus[usize::from(number) % cpus.len()]);
        sched_setaffinity(None, &only).unwrap();
        send(&mut client, &flow(false, number, tags, ipv6));
        let began = std::time::Instant::now();
        let queue = loop {
            match wire.iter_mut().position(|socket| arrived(socket) == [usize::from(number)]) {
                Some(queue) => break queue,
                None => {
                    assert!(
                        began.elapsed() < DEADLINE,
                        "flow {number} does not arrive at the wire"
                    );
                }
            }
        };
        used.insert(queue);
        send(&mut server, &flow(true, number, tags, ipv6));
        let began = std::time::Instant::now();
        let other = loop {
            match host.iter_mut().position(|socket| arrived(socket) == [usize::from(number)]) {
                Some(queue) => break queue,
                None => {
                    assert!(
                        began.elapsed() < DEADLINE,
                        "flow {number} does not arrive at the host"
                    );
                }
            }
        };
        assert_eq!(queue, other, "flow {number}");
    }
    assert!(used.len() > 1 || cpus.len() == 1, "{used:?}");
}

#[test]
fn a_closed_socket_makes_room_for_the_next() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, DRIVER, DRIVER).unwrap();
    heartbeat(&steering).beat(now_ns(), LONG);
    let (mut client, files) = (tapped(&scene.client, "eth0"), steering.files());
    for _ in 0..3 {
        let began = std::time::Instant::now();
        let mut socket = loop {
            match open_with(&scene.card, "wire", files.wire, XdpConfig::default()) {
                // The kernel ends the last one a moment after it was closed.
                Err(XdpError::Busy { .. }) if began.elapsed() < DEADLINE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => break opened.unwrap(),
            }
        };
        send(&mut client, &cases(false)[0].frame);
        let began = std::time::Instant::now();
        while arrived(&mut socket).is_empty() {
            assert!(began.elapsed() < DEADLINE);
        }
    }
}
