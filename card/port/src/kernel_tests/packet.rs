//! Packet sockets on veth pairs: a client's and a server's namespace, and the card's between them.

use std::collections::BTreeMap;
use std::io::{IoSlice, Write};
use std::process::{Command, Stdio};

use super::harness::*;
use super::*;

/// The two namespaces at the ends, and the one in the middle with the interfaces `wire` and `host`.
struct Scene {
    client: Namespace,
    server: Namespace,
    card: Namespace,
}

fn scene() -> Option<Scene> {
    let (client, server, card) = (namespace()?, namespace()?, namespace()?);
    client.veth(1, &card, "wire");
    server.veth(2, &card, "host");
    Some(Scene { client, server, card })
}

/// Everything on the wire: the namespaces at the ends have other MAC addresses than the card's
/// interfaces.
const ALL: PacketConfig<'static> = PacketConfig {
    reception: Reception::Promiscuous,
    filter: None,
    queue: None,
    receive_buffer_bytes: 16 << 20,
    send_buffer_bytes: 16 << 20,
};

fn open(card: &Namespace, interface: &'static str, queues: usize) -> Vec<PacketSocket> {
    card.run(move || PacketSocket::open(interface, queues, &ALL)).unwrap()
}

impl Scene {
    fn open(&self, interface: &'static str) -> PacketSocket {
        open(&self.card, interface, 1).remove(0)
    }
    fn bridge(&self) -> Bridge {
        Bridge::start(self.open("wire"), self.open("host"))
    }
}

#[test]
fn a_hundred_megabytes_cross_in_super_frames() {
    let Some(scene) = scene() else { return };
    let bridge = scene.bridge();
    ping(&scene.client, v4(2, 0));
    transfer(&scene.client, &scene.server, v4(2, 0), 100 << 20);
    transfer(&scene.server, &scene.client, v6(1), 32 << 20);
    for PortSnapshot { receive, send } in bridge.stop() {
        println!("{receive:?} {send:?}");
        assert!(receive.super_frames > 100);
        assert!(
            receive.bytes > (MTU_FRAME_BYTES as u64) * receive.frames,
            "frames are short on average"
        );
        assert_eq!(send.refused, 0);
    }
}

#[test]
fn frames_without_offloads_cross_too() {
    let Some(scene) = scene() else { return };
    let bridge = Bridge::start(Plain(scene.open("wire")), Plain(scene.open("host")));
    transfer(&scene.client, &scene.server, v4(2, 0), 8 << 20);
    transfer(&scene.server, &scene.client, v6(1), 8 << 20);
    let [first, second] = bridge.stop();
    assert!(first.send.frames > (8 << 20) / 1448 && second.send.frames > (8 << 20) / 1448);
    assert_eq!((first.send.refused, second.send.refused), (0, 0));
}

/// What goes past the queueing discipline is not cut by the kernel, but dropped.
#[test]
fn super_frames_are_cut_for_a_link_that_takes_none() {
    let Some(scene) = scene() else { return };
    scene.card.command("ethtool", "-K host tso off");
    let host = scene.open("host");
    assert!(!host.capabilities().tso && scene.open("wire").capabilities().tso);
    let bridge = Bridge::start(scene.open("wire"), host);
    transfer(&scene.client, &scene.server, v4(2, 0), 8 << 20);
    transfer(&scene.client, &scene.server, v6(2), 8 << 20);
    let [wire, host] = bridge.stop();
    assert!(wire.receive.super_frames > 100, "{wire:?}");
    assert_eq!((host.send.super_frames, host.send.refused), (0, 0));
}

#[test]
fn a_tap_and_a_packet_socket_work_together() {
    let (Some(client), Some(server), Some(card)) = (namespace(), namespace(), namespace()) else {
        return;
    };
    client.veth(1, &card, "wire");
    let bridge = Bridge::start(open(&card, "wire", 1).remove(0), server.tap(2, 1).remove(0));
    transfer(&client, &server, v4(2, 0), 32 << 20);
    transfer(&server, &client, v6(1), 32 << 20);
    let [wire, _] = bridge.stop();
    assert!(wire.receive.super_frames > 100 && wire.send.super_frames > 100, "{wire:?}");
}

/// A port that puts tags on what it sends and takes them off from what it receives.
struct Tagging<P> {
    inner: P,
    tags: &'static [u8],
}

/// What a frame's offload says after `bytes` more bytes of tags, or fewer, are before its IP
/// header.
fn shifted(offload: Offload, bytes: i32) -> Offload {
    let shift = |position: u16| (i32::from(position) + bytes) as u16;
    let checksum = match offload.checksum {
        Checksum::Partial { start, offset } => Checksum::Partial { start: shift(start), offset },
        other => other,
    };
    Offload {
        checksum,
        gso: offload.gso.map(|gso| Gso { header_len: shift(gso.header_len), ..gso }),
    }
}

impl<P: Port> Port for Tagging<P> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn receive(&mut self, burst: &mut Burst) -> std::io::Result<usize> {
        self.inner.receive(burst)?;
        let end = 12 + self.tags.len();
        for frame in burst.iter_mut() {
            // The kernels at both ends send frames of their own into the wire between the bridges.
            if frame.data().get(12..end) == Some(self.tags) {
                let bare = [&frame.data()[..12], &frame.data()[end..]].concat();
                let offload = shifted(frame.offload(), -(self.tags.len() as i32));
                frame.copy_from(&[IoSlice::new(&bare)], offload).unwrap();
            } else {
                assert!(!matches!(frame.data()[12..14], [8, 0]), "no tag: {frame:?}");
            }
        }
        Ok(burst.len())
    }
    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let (addresses, rest) = parts[0].split_at(12);
        let mut list = vec![IoSlice::new(addresses), IoSlice::new(self.tags), IoSlice::new(rest)];
        list.extend(&parts[1..]);
        self.inner.send(&list, shifted(offload, self.tags.len() as i32))
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

#[test]
fn vlan_tags_are_sent_and_put_back() {
    for tags in [&[0x81, 0, 0, 7][..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0x20, 7]] {
        let Some(scene) = scene() else { return };
        // Room for two tags; the kernel allows for one only.
        scene.card.ip("link add left mtu 1508 type veth peer name right mtu 1508");
        for side in ["left", "right"] {
            scene.card.ip(format!("link set {side} addrgenmode none up"));
        }
        let tagged = |name| Tagging { inner: scene.open(name), tags };
        let near = Bridge::start(scene.open("wire"), tagged("left"));
        let far = Bridge::start(tagged("right"), scene.open("host"));
        transfer(&scene.client, &scene.server, v4(2, 0), 16 << 20);
        transfer(&scene.server, &scene.client, v6(1), 4 << 20);
        let ([_, left], [right, _]) = (near.stop(), far.stop());
        println!("{left:?} {right:?}");
        assert!(left.send.super_frames > 20 && right.receive.super_frames > 20);
        assert_eq!((left.send.refused, right.send.refused), (0, 0));
    }
}

#[test]
fn flows_have_the_same_queue_in_both_directions_and_on_a_tap() {
    const QUEUES: usize = 4;
    let (Some(client), Some(server), Some(card)) = (namespace(), namespace(), namespace()) else {
        return;
    };
    client.veth(1, &card, "wire");
    server.veth(2, &card, "host");
    let mut wire = open(&card, "wire", QUEUES);
    let mut host = open(&card, "host", QUEUES);
    let other = namespace().unwrap();
    let mut tap = other.tap(1, QUEUES);
    for (namespace, peer) in [(&client, 2), (&server, 1), (&other, 2)] {
        namespace.ip(format!("neighbour add 10.77.0.{peer} lladdr 2:0:0:0:0:{peer} dev card0"));
    }
    let far = v4(2, 80);
    // One socket for all flows: a process that another test starts has a closed one, too, until it
    // executes its program, and with it the port.
    let service = udp_socket(&server, far);
    for flow in 0..64u16 {
        let near = v4(1, 20_000 + flow);
        udp_socket(&client, near).send_to(&[1; 64], far).unwrap();
        service.send_to(&[2; 64], near).unwrap();
        udp_socket(&other, near).send_to(&[3; 64], far).unwrap();
    }
    /// The queue of each flow, known by its client's port.
    fn queues<P: Port>(ports: &mut [P], at: usize, marker: u8) -> BTreeMap<u16, usize> {
        let (mut burst, mut found) = (Burst::new(8), BTreeMap::new());
        for (queue, port) in ports.iter_mut().enumerate() {
            while port.receive(&mut burst).unwrap() > 0 {
                for data in burst
                    .iter()
                    .map(FrameBuf::data)
                    .filter(|data| data.len() == 106 && data[105] == marker)
                {
                    let client = u16::from_be_bytes([data[at], data[at + 1]]);
                    assert_eq!(found.insert(client, queue), None, "twice");
                }
            }
        }
        found
    }
    let there = queues(&mut wire, 34, 1);
    assert_eq!(there.len(), 64);
    assert_eq!(there, queues(&mut host, 36, 2));
    assert_eq!(there, queues(&mut tap, 34, 3));
    let used: std::collections::BTreeSet<_> = there.values().collect();
    assert!(used.len() > 1, "{there:?}");
}

#[test]
fn several_queues_carry_a_transfer() {
    let Some(scene) = scene() else { return };
    let (wire, host) = (open(&scene.card, "wire", 2), open(&scene.card, "host", 2));
    let bridges: Vec<Bridge> =
        wire.into_iter().zip(host).map(|(wire, host)| Bridge::start(wire, host)).collect();
    for _ in 0..4 {
        transfer(&scene.client, &scene.server, v4(2, 0), 4 << 20);
    }
    let bytes: u64 = bridges.into_iter().map(|bridge| bridge.stop()[0].receive.bytes).sum();
    assert!(bytes > 16 << 20 && bytes < 20 << 20, "{bytes}");
}

fn promiscuity(namespace: &Namespace) -> u64 {
    let show = || Command::new("ip").args(["-d", "link", "show", "dev", "wire"]).output().unwrap();
    let text = String::from_utf8(namespace.run(show).stdout).unwrap();
    let mut words = text.split_whitespace().skip_while(|word| *word != "promiscuity");
    words.nth(1).and_then(|number| number.parse().ok()).expect("`ip -d link` shows promiscuity")
}

/// Waits for it to end: a process that another test starts has the descriptors, too, until it
/// executes its program.
fn expect_no_promiscuity(namespace: &Namespace) {
    let start = Instant::now();
    while promiscuity(namespace) > 0 {
        assert!(start.elapsed() < DEADLINE, "the interface is still promiscuous");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn promiscuity_ends_with_the_socket() {
    let Some(scene) = scene() else { return };
    assert_eq!(promiscuity(&scene.card), 0);
    let socket = scene.open("wire");
    assert_eq!(promiscuity(&scene.card), 1);
    drop(socket);
    expect_no_promiscuity(&scene.card);
    let config = PacketConfig { reception: Reception::Addresses(&[MAC]), ..ALL };
    let socket = scene.card.run(move || PacketSocket::open("wire", 1, &config)).unwrap();
    // A veth has no filter for further addresses, so it becomes promiscuous for them.
    assert_eq!(promiscuity(&scene.card), 1);
    drop(socket);
    expect_no_promiscuity(&scene.card);
}

#[test]
fn a_killed_owner_leaves_nothing() {
    const NUMBER: &str = "NICACHE_PORT_TEST_PACKET";
    if let Ok(number) = std::env::var(NUMBER) {
        let socket = PacketSocket::inherit(number.parse().unwrap()).unwrap();
        println!("open on {}", socket.interface());
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::sleep(DEADLINE);
        }
    }
    let Some(scene) = scene() else { return };
    let socket = scene.open("wire");
    let number = socket.keep_across_exec().unwrap();
    let mut child = Reaped(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kernel_tests::packet::a_killed_owner_leaves_nothing", "--nocapture"])
            .env(NUMBER, number.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    drop(socket);
    let mut text = String::new();
    let mut lines = std::io::BufReader::new(child.0.stdout.take().unwrap());
    while !text.contains("open on wire") {
        assert!(std::io::BufRead::read_line(&mut lines, &mut text).unwrap() > 0, "{text}");
    }
    assert_eq!(promiscuity(&scene.card), 1);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    expect_no_promiscuity(&scene.card);
}

#[test]
fn an_interface_may_go_down_and_up_and_vanish() {
    let Some(scene) = scene() else { return };
    let mut socket = scene.open("wire");
    let mut burst = Burst::new(4);
    let mut drain = |socket: &mut PacketSocket| while socket.receive(&mut burst).unwrap() > 0 {};
    let frame = [[0xff; 14], [0; 14], [0; 14], [0; 14], [0; 14]].concat();
    drain(&mut socket);
    scene.card.ip("link set wire down");
    drain(&mut socket);
    socket.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
    socket.flush().unwrap();
    assert_eq!(socket.send_dropped(), 1);
    scene.card.ip("link set wire up");
    scene.client.ip("neighbour replace 10.77.0.2 lladdr 2:0:0:0:0:2 dev card0");
    let start = Instant::now();
    loop {
        // The carrier comes a moment later.
        let _ = udp_socket(&scene.client, v4(1, 0)).send_to(b"up again", v4(2, 9));
        let mut found = false;
        while socket.receive(&mut burst).unwrap() > 0 {
            found |= burst.iter().any(|frame| frame.data().ends_with(b"up again"));
        }
        if found {
            break;
        }
        assert!(start.elapsed() < DEADLINE, "nothing is received after the interface came up");
        std::thread::sleep(Duration::from_millis(10));
    }
    socket.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
    socket.flush().unwrap();
    assert_eq!(socket.send_dropped(), 1);

    let closed = scene.open("host");
    scene.card.ip("link delete wire");
    let error = (0..1000).find_map(|_| socket.receive(&mut burst).err()).expect("nothing is told");
    assert!(error.to_string().contains("`wire` is gone"), "{error}");
    let long = [IoSlice::new(&frame), IoSlice::new(&[0; 3000])];
    assert!(matches!(socket.send(&long, Offload::default()), Err(SendError::Io(_))));
    assert!(matches!(PacketSocket::from_owned_fd(socket.into()), Err(PacketError::Gone(_))));
    scene.card.ip("link delete host");
    drop(closed);
}

#[test]
fn what_cannot_be_opened_or_sent_says_why() {
    let Some(scene) = scene() else { return };
    let open = |name: &'static str| scene.card.run(move || PacketSocket::open(name, 1, &ALL));
    assert!(matches!(open("none"), Err(PacketError::NoInterface(name)) if name == "none"));
    assert!(matches!(open("lo"), Err(PacketError::NotEthernet(_))));
    let mut socket = open("wire").unwrap().remove(0);
    assert_eq!(socket.capabilities().frame_bytes_max, MTU_FRAME_BYTES);
    let send = |socket: &mut PacketSocket, len: usize| {
        let frame = vec![0; len];
        socket.send(&[IoSlice::new(&frame)], Offload::default())
    };
    send(&mut socket, MTU_FRAME_BYTES).unwrap();
    assert!(matches!(send(&mut socket, MTU_FRAME_BYTES + 100), Err(SendError::TooLong)));
    assert!(matches!(send(&mut socket, 3000), Err(SendError::TooLong)));
    assert!(matches!(send(&mut socket, FRAME_BYTES_MAX + 1), Err(SendError::TooLong)));
    assert!(matches!(send(&mut socket, 13), Err(SendError::Invalid)));
    // A new MTU is known before long.
    scene.client.ip("link set card0 mtu 4000");
    scene.card.ip("link set wire mtu 4000");
    let mut burst = Burst::new(4);
    (0..300).for_each(|_| drop(socket.receive(&mut burst)));
    assert_eq!(socket.capabilities().frame_bytes_max, 4014);
    send(&mut socket, 4014).unwrap();
    let denied = scene.card.run(|| {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        // Of this thread only.
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).unwrap();
        PacketSocket::open("wire", 1, &ALL)
    });
    assert!(matches!(denied, Err(PacketError::NotPermitted)), "{denied:?}");
}

#[test]
fn frames_that_find_the_ring_or_the_queue_full_are_counted() {
    let Some(scene) = scene() else { return };
    let config = PacketConfig { receive_buffer_bytes: 200_000, ..ALL };
    let mut socket =
        scene.card.run(move || PacketSocket::open("wire", 1, &config)).unwrap().remove(0);
    scene.client.ip("neighbour add 10.77.0.2 lladdr 2:0:0:0:0:2 dev card0");
    let sender = udp_socket(&scene.client, v4(1, 0));
    let mut burst = Burst::new(64);
    let mut arrived = |socket: &mut PacketSocket, marker: &[u8]| {
        let mut count = 0;
        while socket.receive(&mut burst).unwrap() > 0 {
            count += burst.iter().filter(|frame| frame.data().ends_with(marker)).count();
        }
        // The socket asks the kernel how many were dropped once in many receives. Meanwhile the
        // kernel may send frames of its own.
        for _ in 0..300 {
            socket.receive(&mut burst).unwrap();
            count += burst.iter().filter(|frame| frame.data().ends_with(marker)).count();
        }
        count
    };
    // More than there are slots.
    const SENT: usize = 5000;
    for _ in 0..SENT {
        sender.send_to(&[5; 100], v4(2, 9)).unwrap();
    }
    let found = arrived(&mut socket, &[5; 100]);
    let dropped = socket.overflowed();
    assert!(found > 4000 && found < SENT, "{found}");
    // The kernel has sent some frames of its own.
    assert!(dropped as usize >= SENT - found, "{found} arrived, {dropped} dropped");

    // Long ones, more than the queue has memory for.
    let mut large = scene
        .client
        .run(|| PacketSocket::open("card0", 1, &PacketConfig::default()))
        .unwrap()
        .remove(0);
    let recipe = Recipe { payload: vec![6; 30_000], ..Recipe::default() };
    let (frame, offload) = recipe.build(Some(1000));
    for _ in 0..100 {
        large.send(&[IoSlice::new(&frame)], offload).unwrap();
    }
    let found = arrived(&mut socket, &[6; 1000]);
    assert!((1..100).contains(&found), "{found}");
    assert_eq!(socket.overflowed(), dropped + 100 - found as u64);
    assert_eq!(socket.receive_dropped(), socket.overflowed());
}

#[test]
fn another_reader_goes_on_where_one_has_stopped() {
    let Some(scene) = scene() else { return };
    let mut socket = scene.open("wire");
    let mut sender = scene
        .client
        .run(|| PacketSocket::open("card0", 1, &PacketConfig::default()))
        .unwrap()
        .remove(0);
    let mut burst = Burst::new(7);
    let (mut sent, mut found) = (0u32, Vec::new());
    // Around the ring more than once; every second frame goes through the queue.
    for round in 0..900 {
        for _ in 0..10 {
            let mut recipe = Recipe { seq: sent, ..Recipe::default() };
            recipe.payload = vec![9; if sent.is_multiple_of(2) { 100 } else { 3000 }];
            let (frame, offload) =
                recipe.build(sent.is_multiple_of(2).then_some(1000).xor(Some(1000)));
            sender.send(&[IoSlice::new(&frame)], offload).unwrap();
            sent += 1;
        }
        sender.flush().unwrap();
        // Mostly leaves some behind.
        for _ in 0..if round % 20 == 19 { 100 } else { 1 } {
            socket.receive(&mut burst).unwrap();
            let seq =
                |frame: &FrameBuf| u32::from_be_bytes(frame.data()[38..42].try_into().unwrap());
            found.extend(
                burst.iter().filter(|frame| frame.data()[..6] == [1, 2, 3, 4, 5, 6]).map(seq),
            );
        }
        if round % 3 == 0 {
            socket = PacketSocket::from_owned_fd(socket.into()).unwrap();
        }
    }
    assert!(found == (0..sent).collect::<Vec<_>>(), "{} of {sent}", found.len());
}

#[test]
fn frames_that_a_killed_reader_has_left_in_the_queue_are_found() {
    let Some(scene) = scene() else { return };
    let mut socket = scene.open("wire");
    let mut sender = scene
        .client
        .run(|| PacketSocket::open("card0", 1, &PacketConfig::default()))
        .unwrap()
        .remove(0);
    let mut burst = Burst::new(16);
    let mut send = |seq: u32| {
        let (frame, offload) =
            Recipe { seq, payload: vec![9; 3000], ..Recipe::default() }.build(Some(1000));
        sender.send(&[IoSlice::new(&frame)], offload).unwrap();
    };
    let mut receive = |socket: &mut PacketSocket, times: usize| {
        let mut found = Vec::new();
        for _ in 0..times {
            socket.receive(&mut burst).unwrap();
            let own = burst.iter().filter(|frame| frame.data()[..6] == [1, 2, 3, 4, 5, 6]);
            found.extend(
                own.map(|frame| u32::from_be_bytes(frame.data()[38..42].try_into().unwrap())),
            );
        }
        found
    };
    receive(&mut socket, 10);
    (0..5).for_each(&mut send);
    assert_eq!(socket.forget_queued(), 5);
    let mut socket = PacketSocket::from_owned_fd(socket.into()).unwrap();
    assert_eq!(receive(&mut socket, 300), [0, 1, 2, 3, 4]);
    // From then on frames come at once again.
    (5..9).for_each(&mut send);
    assert_eq!(receive(&mut socket, 2), [5, 6, 7, 8]);
    assert_eq!(socket.receive_dropped(), 0);
}
