//! After creation, nothing that a frame goes through allocates.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::process::Command;

use nicache_port::*;
use nicache_xdp::*;

/// Ethernet, IPv4 and TCP headers of a frame for port 80, and payload.
fn frame(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[23] = 6;
    frame[37] = 80;
    frame[46] = 5 << 4;
    frame
}

/// Frames from `near` are received at `far` by AF_XDP, and sent back.
fn rounds() {
    if let Err(error) = nicache_namespaces::enter_new() {
        return println!("skipped: no network namespace: {error}");
    }
    for arguments in [
        "link add dev near type veth peer name far",
        "link add dev other type veth peer name end",
        "link set dev near addrgenmode none up",
        "link set dev far addrgenmode none up",
    ] {
        let status =
            Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is needed");
        assert!(status.success(), "ip {arguments}");
    }
    let side = |interface, port| Side { interface, rest: Rest::Pass, port };
    let steering = Steering::attach(&SteeringConfig {
        services: &[Service::port(80)],
        wire: side("far", CardPort::Xdp { queues: 1 }),
        host: side("other", CardPort::Packet),
        has_first: false,
        connections: 100,
    })
    .unwrap();
    let heartbeat = Heartbeat::map(steering.files().heartbeat).unwrap();
    let mut far =
        XdpSocket::open("far", 0, steering.files().wire.sockets.as_fd(), &XdpConfig::default())
            .unwrap();
    let mut near = PacketSocket::open("near", 1, &PacketConfig::default()).unwrap().remove(0);
    let (frame, mut burst, mut back) = (frame(1000), Burst::new(32), Burst::new(32));
    let (mut there, mut returned) = (0, 0);
    let mut round = |now_ns| {
        heartbeat.beat(now_ns, LEASE);
        (0..40).for_each(|_| near.send(&[IoSlice::new(&frame)], Offload::default()).unwrap());
        near.flush().unwrap();
        while far.receive(&mut burst).unwrap() > 0 {
            for frame in &burst {
                far.send(
                    &[IoSlice::new(&frame.data()[..54]), IoSlice::new(&frame.data()[54..])],
                    Offload::default(),
                )
                .unwrap();
            }
            there += burst.len();
            far.flush().unwrap();
        }
        while near.receive(&mut back).unwrap() > 0 {
            returned += back.len();
        }
    };
    round(MonotonicClock.now_ns());
    let info =
        allocation_counter::measure(|| (0..300).for_each(|_| round(MonotonicClock.now_ns())));
    assert_eq!(info.count_total, 0);
    assert!(there > 300 * 40 - 100 && returned > 300 * 40 - 100, "{there} there, {returned} back");
}

#[test]
fn af_xdp_does_not_allocate() {
    std::thread::spawn(rounds).join().unwrap();
}
