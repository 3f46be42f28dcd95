//! What probe frames find: links that work, and links that do not.

use std::os::fd::{AsFd, OwnedFd};

use super::frames::cases;
use super::table::check;
use super::*;

const DRIVER: (Rest, CardPort) = (Rest::Redirect, CardPort::Xdp { queues: 1 });

/// Attaches as said, opens ports and probes, in the card's namespace. `is_connected`: whether
/// AF_XDP sockets are entered where the programs look for them.
fn probed(
    card: &Namespace,
    wire: (Rest, CardPort),
    is_connected: bool,
) -> Result<Vec<String>, ProbeError> {
    let sockets =
        if wire.1 == CardPort::Packet { ProbeSockets::Packet } else { ProbeSockets::Copied };
    probed_as(card, wire, is_connected, sockets)
}

/// With sockets toward the wire that are said to be such ones.
fn probed_as(
    card: &Namespace,
    wire: (Rest, CardPort),
    is_connected: bool,
    sockets: ProbeSockets,
) -> Result<Vec<String>, ProbeError> {
    let steering = attach(card, wire, INLINE).unwrap();
    let other = attach_elsewhere();
    card.run(move || {
        let files = steering.files();
        let packet = |interface, filter: OwnedFd| -> Box<dyn Port> {
            let config = PacketConfig { filter: Some(filter.as_fd()), ..PacketConfig::default() };
            Box::new(PacketSocket::open(interface, 1, &config).unwrap().remove(0))
        };
        let is_xdp = wire.1 != CardPort::Packet;
        let mut first: Box<dyn Port> = if is_xdp {
            let sockets =
                if is_connected { files.wire.sockets } else { other.files().wire.sockets };
            Box::new(XdpSocket::open("wire", 0, sockets, &XdpConfig::default()).unwrap())
        } else {
            packet("wire", files.wire.filter.try_clone_to_owned().unwrap())
        };
        let mut second = packet("host", files.host.filter.try_clone_to_owned().unwrap());
        let mut sides = [
            ProbeSide { interface: "wire", ports: vec![first.as_mut()], sockets, rest: wire.0 },
            ProbeSide {
                interface: "host",
                ports: vec![second.as_mut()],
                sockets: ProbeSockets::Packet,
                rest: Rest::Redirect,
            },
        ];
        probe(&files.probe, &mut sides, 0x1234_5678_9abc_def1)
    })
}

/// Steering between interfaces that have nothing to do with the test.
fn attach_elsewhere() -> Steering {
    let scene = scene().unwrap();
    attach(&scene.card, DRIVER, INLINE).unwrap()
}

fn wait_for_carrier(scene: &Scene) {
    for name in ["wire", "host"] {
        let began = std::time::Instant::now();
        while !scene.card.ip(format!("link show {name}")).contains("LOWER_UP")
            || scene.card.ip(format!("link show {name}")).contains("state DOWN")
        {
            assert!(began.elapsed() < DEADLINE);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn links_that_work() {
    let Some(scene) = scene() else { return };
    wait_for_carrier(&scene);
    for wire in [
        INLINE,
        DRIVER,
        (Rest::Station(mac(2)), CardPort::Packet),
        (Rest::Station(mac(2)), DRIVER.1),
    ] {
        assert_eq!(probed(&scene.card, wire, true).unwrap(), [] as [String; 0], "{wire:?}");
    }
}

/// Programs and sockets are there, and frames get lost between them.
#[test]
fn a_card_that_hears_nothing() {
    let Some(scene) = scene() else { return };
    wait_for_carrier(&scene);
    let found = probed(&scene.card, DRIVER, false);
    assert!(matches!(&found, Err(ProbeError::Deaf(name)) if name == "wire"), "{found:?}");
}

/// Sockets into whose memory the driver receives are sent nothing, so it is not seen here that they
/// are deaf.
#[test]
fn nothing_is_made_to_come_in_behind_the_back_of_a_driver() {
    let Some(scene) = scene() else { return };
    wait_for_carrier(&scene);
    let found = probed_as(&scene.card, DRIVER, false, ProbeSockets::ZeroCopy).unwrap();
    assert_eq!(found, ["wire receives into the card's memory itself"]);
}

/// Something on this machine throws away what leaves toward the server.
#[test]
fn what_passes_is_lost() {
    let Some(scene) = scene() else { return };
    wait_for_carrier(&scene);
    scene.card.command("tc", "qdisc replace dev host root blackhole");
    let found = probed(&scene.card, INLINE, true);
    assert!(matches!(&found, Err(ProbeError::Cut { to, .. }) if to == "host"), "{found:?}");
}

/// A lack of carrier, or of anybody who answers, is not a failure.
#[test]
fn a_network_that_is_silent_or_gone() {
    let Some(scene) = scene() else { return };
    scene.client.ip("link set eth0 down");
    assert!(!probed(&scene.card, INLINE, true).unwrap().is_empty());
    scene.card.ip("link set wire down");
    assert_eq!(probed(&scene.card, INLINE, true).unwrap(), ["wire is down"]);
}

/// Where a program of somebody else is run by the kernel in the driver's place, frames pass as they
/// are.
#[test]
fn behind_generic_xdp_frames_are_whole() {
    let Some(scene) = scene() else { return };
    let object = std::env::temp_dir().join(format!("nicache-steer-{}.o", std::process::id()));
    std::fs::write(&object, include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"))).unwrap();
    let command = format!(
        "link set dev wire xdpgeneric obj {} sec xdp.frags program wire_rest",
        object.display()
    );
    let attached =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.card.ip(command)));
    std::fs::remove_file(&object).unwrap();
    attached.unwrap();
    let steering = attach(&scene.card, INLINE, INLINE).unwrap();
    let mut wire = filtered(&scene.card, "wire", steering.files().wire);
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    check(&cases(false), &mut client, &mut wire, &mut server, false);
    heartbeat(&steering).beat(now_ns(), LONG);
    check(&cases(false), &mut client, &mut wire, &mut server, true);
    heartbeat(&steering).stop();
    transfer(&scene.client, &scene.server, v4(2, 0), 8 << 20);
    scene.card.ip("link set dev wire xdpgeneric off");
}
