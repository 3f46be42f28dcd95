//! After creation, nothing that a frame goes through allocates.

use std::io::IoSlice;

use nicache_port::*;

const SUPER_FRAME: Offload = Offload {
    checksum: Checksum::Partial { start: 34, offset: 16 },
    gso: Some(Gso { kind: GsoKind::Tcp4, size: 1448, header_len: 54, ecn: false }),
};

/// Ethernet, IPv4 and TCP headers and 20,000 bytes.
fn super_frame() -> Vec<u8> {
    let mut frame = vec![0; 54 + 20_000];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[23] = 6;
    frame[46] = 5 << 4;
    frame
}

/// Allocations of 50 rounds of sending and receiving, after one to get started.
fn allocations(mut near: impl Port, mut far: impl Port, clock: &ManualClock) -> u64 {
    let frame = super_frame();
    let parts = [IoSlice::new(&frame[..54]), IoSlice::new(&frame[54..])];
    let mut burst = Burst::new(32);
    let mut arrived = 0;
    let mut round = || {
        send_with_fallback(&mut near, &parts, SUPER_FRAME).unwrap();
        send_with_fallback(&mut far, &parts, SUPER_FRAME).unwrap();
        clock.advance_ns(1000);
        near.flush().unwrap();
        arrived += far.receive(&mut burst).unwrap() + near.receive(&mut burst).unwrap();
    };
    round();
    let info = allocation_counter::measure(|| (0..50).for_each(|_| round()));
    assert!(arrived > 50, "{arrived} frames");
    info.count_total
}

#[test]
fn the_packet_path_does_not_allocate() {
    let bad = FaultRates {
        loss: 0.1,
        duplicate: 0.2,
        reorder: 0.2,
        reorder_ns: 3000,
        corrupt: 0.2,
        delay: 0.2,
        delay_ns: 2000,
        latency_ns: 10,
    };
    let config = FaultConfig { seed: 3, receive: bad, send: bad, queue_frames: 64 };
    for capabilities in [Capabilities::FULL, Capabilities::PLAIN] {
        let clock = ManualClock::new(0);
        let (near, far) = memory_wire(64, capabilities, capabilities);
        let near = Counted::new(Faulty::new(near, &config, clock.clone()));
        let far = Pcap::new(far, std::io::sink(), clock.clone(), 100).unwrap();
        assert_eq!(allocations(near, far, &clock), 0);
    }
}

/// Two packet sockets on a veth pair in a namespace of the calling thread; `None`, with the reason
/// printed, without the privilege.
fn packet_sockets() -> Option<[PacketSocket; 2]> {
    if let Err(error) = nicache_namespaces::enter_new() {
        println!("skipped: no network namespace: {error}");
        return None;
    }
    for arguments in [
        "link add dev near type veth peer name far",
        "link set dev near addrgenmode none up",
        "link set dev far addrgenmode none up",
    ] {
        let status = std::process::Command::new("ip")
            .args(arguments.split(' '))
            .status()
            .expect("iproute2 is needed");
        assert!(status.success(), "ip {arguments}");
    }
    Some(
        ["near", "far"]
            .map(|name| PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0)),
    )
}

#[test]
fn packet_sockets_do_not_allocate() {
    let sockets = || {
        let Some([near, far]) = packet_sockets() else { return };
        assert_eq!(allocations(near, far, &ManualClock::new(0)), 0);
        // Short frames go another way.
        let Some([mut near, mut far]) = packet_sockets() else { return };
        let frame = &super_frame()[..100];
        let mut burst = Burst::new(32);
        let mut arrived = 0;
        let mut round = || {
            (0..40).for_each(|_| near.send(&[IoSlice::new(frame)], Offload::default()).unwrap());
            near.flush().unwrap();
            while far.receive(&mut burst).unwrap() > 0 {
                arrived += burst.len();
            }
        };
        round();
        assert_eq!(allocation_counter::measure(|| (0..300).for_each(|_| round())).count_total, 0);
        assert_eq!(arrived, 301 * 40);
    };
    std::thread::spawn(sockets).join().unwrap();
}

#[test]
fn the_counter_counts() {
    assert_eq!(
        allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100]))).count_total,
        1
    );
}
