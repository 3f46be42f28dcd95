//! Which frames go where, case by case.

use super::frames::{Case, cases};
use super::*;

/// Sends the cases and sees to it that each arrives in exactly one place.
pub(crate) fn check(
    cases: &[Case],
    from: &mut impl Port,
    card: &mut impl Port,
    rest: &mut impl Port,
    is_alive: bool,
) {
    let (mut at_card, mut at_rest) = (Vec::new(), Vec::new());
    for case in cases {
        send(from, &case.frame);
        at_card.extend(arrived(card));
        at_rest.extend(arrived(rest));
    }
    // What the kernel received on another CPU.
    let began = std::time::Instant::now();
    while at_card.len() + at_rest.len() < cases.len() && began.elapsed() < Duration::from_secs(2) {
        at_card.extend(arrived(card));
        at_rest.extend(arrived(rest));
    }
    for (number, case) in cases.iter().enumerate() {
        let count = |place: &[usize]| place.iter().filter(|found| **found == number).count();
        let expected = if case.is_cards && is_alive { (1, 0) } else { (0, 1) };
        assert_eq!(
            (count(&at_card), count(&at_rest)),
            expected,
            "(card, rest) for {}, alive: {is_alive}",
            case.name
        );
    }
}

#[test]
fn packet_sockets_get_the_services_and_the_rest_goes_by() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, INLINE, INLINE).unwrap();
    let files = steering.files();
    let (mut wire, mut host) =
        (filtered(&scene.card, "wire", files.wire), filtered(&scene.card, "host", files.host));
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    let (there, back) = (cases(false), cases(true));
    // Not alive yet.
    check(&there, &mut client, &mut wire, &mut server, false);
    check(&back, &mut server, &mut host, &mut client, false);
    let heartbeat = heartbeat(&steering);
    heartbeat.beat(now_ns(), LONG);
    let before = steering.counts().unwrap();
    check(&there, &mut client, &mut wire, &mut server, true);
    check(&back, &mut server, &mut host, &mut client, true);
    let after = steering.counts().unwrap();
    for (side, cases) in [&there, &back].into_iter().enumerate() {
        let cards = cases.iter().filter(|case| case.is_cards).count() as u64;
        assert_eq!(after[side].card - before[side].card, cards);
        // The kernels at the ends send some frames of their own.
        assert!(after[side].redirected - before[side].redirected >= cases.len() as u64 - cards);
        assert_eq!((after[side].passed, after[side].copied), (0, 0));
    }
    heartbeat.stop();
    check(&there, &mut client, &mut wire, &mut server, false);
    // Over is over, also if nobody says so.
    heartbeat.beat(now_ns(), Duration::ZERO);
    check(&back, &mut server, &mut host, &mut client, false);
}

#[test]
fn services_come_and_go() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, INLINE, INLINE).unwrap();
    let mut wire = filtered(&scene.card, "wire", steering.files().wire);
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    heartbeat(&steering).beat(now_ns(), LONG);
    let case = |is_cards| {
        let mut cases = cases(false);
        cases.retain(|case| case.name == "ipv4 other port");
        cases.iter_mut().for_each(|case| {
            case.is_cards = is_cards;
            let len = case.frame.len();
            case.frame[len - 2..].fill(0);
        });
        cases
    };
    check(&case(false), &mut client, &mut wire, &mut server, true);
    steering.add_service(&Service::port(443)).unwrap();
    check(&case(true), &mut client, &mut wire, &mut server, true);
    steering.remove_service(&Service::port(443)).unwrap();
    steering.remove_service(&Service::port(443)).unwrap();
    check(&case(false), &mut client, &mut wire, &mut server, true);
    for port in 1000..2000 {
        steering.add_service(&Service::port(port)).unwrap();
    }
    let full =
        (2000..2100).map(|port| steering.add_service(&Service::port(port))).find(Result::is_err);
    assert!(matches!(full, Some(Err(SteeringError::TooManyServices))), "{full:?}");
}

#[test]
fn a_station_has_its_frames_and_shares_those_for_many() {
    let Some(scene) = scene() else { return };
    let station = (Rest::Station(mac(2)), CardPort::Packet);
    let steering = attach(&scene.card, station, INLINE).unwrap();
    let (mut client, mut server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
    let frame =
        |to: [u8; 6], number: u8| [&to[..], &mac(1), &[8, 0], &[0xca; 60], &[0, number]].concat();
    for (number, to) in [mac(2), mac(9), [0xff; 6], [1, 0, 0x5e, 0, 0, 1]].into_iter().enumerate() {
        send(&mut client, &frame(to, number as u8));
    }
    let (mut there, began) = (Vec::new(), std::time::Instant::now());
    while there.len() < 3 && began.elapsed() < DEADLINE {
        there.extend(arrived(&mut server));
    }
    // One that is not for it would be there by now.
    std::thread::sleep(Duration::from_millis(20));
    there.extend(arrived(&mut server));
    there.sort_unstable();
    assert_eq!(there, [0, 2, 3]);
    let counts = steering.counts().unwrap()[0];
    assert_eq!((counts.redirected, counts.passed), (1, 1));
    assert!(counts.copied >= 2);
}

#[test]
fn what_passes_reaches_the_stack() {
    let Some(scene) = scene() else { return };
    scene.card.ip("address add 10.77.0.3/24 dev wire");
    let pass = (Rest::Pass, CardPort::Packet);
    let steering = attach(&scene.card, pass, pass).unwrap();
    heartbeat(&steering).beat(now_ns(), LONG);
    transfer(&scene.client, &scene.card, v4(3, 8080), 1 << 20);
    assert!(steering.counts().unwrap()[0].passed > 0);
}

/// A segment of a connection with port 80 of host 2, with these flags.
fn segment(client_port: u16, from_client: bool, flags: u8, tags: &[u8]) -> Vec<u8> {
    let (from, to) = if from_client { (1, 2) } else { (2, 1) };
    let ports = if from_client { [client_port, 80] } else { [80, client_port] };
    let header = [0x45, 0, 0, 40, 0, 7, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, from, 10, 77, 0, to];
    let numbers = [0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0];
    let mark = [&[0xca; 60][..], &client_port.to_be_bytes()].concat();
    let ports = ports.map(u16::to_be_bytes).concat();
    [&mac(to)[..], &mac(from), tags, &[8, 0], &header, &ports, &numbers, &mark].concat()
}

const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const DATA: u8 = 0x18;

/// Client and server, and steering between them.
struct Ends {
    client: PacketSocket,
    server: PacketSocket,
    steering: Steering,
}

impl Ends {
    /// Does a segment arrive at the other end? Another frame that is sent after it does.
    fn passes(&mut self, client_port: u16, from_client: bool, flags: u8, tags: &[u8]) -> bool {
        let marker = {
            let cases = cases(!from_client);
            cases.into_iter().rev().find(|case| !case.is_cards).unwrap().frame
        };
        let marked = usize::from(u16::from_be_bytes(*marker.last_chunk().unwrap()));
        let (from, to) = match from_client {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        arrived(to);
        send(from, &segment(client_port, from_client, flags, tags));
        send(from, &marker);
        let began = std::time::Instant::now();
        let mut there = Vec::new();
        while !there.contains(&marked) {
            there.extend(arrived(to));
            assert!(began.elapsed() < DEADLINE, "the marker does not arrive");
        }
        there.contains(&usize::from(client_port))
    }
}

#[test]
fn what_is_lost_with_a_card_does_not_pass() {
    let Some(scene) = scene() else { return };
    for wire in [INLINE, (Rest::Redirect, CardPort::Xdp { queues: 1 })] {
        let steering = attach(&scene.card, wire, INLINE).unwrap();
        let (client, server) = (tapped(&scene.client, "eth0"), tapped(&scene.server, "eth0"));
        let heartbeat = heartbeat(&steering);
        let mut ends = Ends { client, server, steering };
        let lost = |port: u16| Connection { client: v4(1, port), server: v4(2, 80) };
        let both = |ends: &mut Ends, port| {
            [true, false].map(|from_client| ends.passes(port, from_client, DATA, &[]))
        };

        // There was no card yet.
        assert_eq!(both(&mut ends, 5000), [true; 2]);
        ends.steering.begin_term().unwrap();
        heartbeat.beat(now_ns(), LONG);
        assert_eq!(both(&mut ends, 5000), [false; 2], "the card's");
        heartbeat.stop();
        // Nobody has said yet what is lost: only what begins now passes.
        assert_eq!(both(&mut ends, 5000), [false; 2]);
        assert!(!ends.passes(5001, false, SYN_ACK, &[]) && !ends.passes(5001, true, SYN_ACK, &[]));
        assert!(ends.passes(5001, true, SYN, &[]) && ends.passes(5001, false, SYN_ACK, &[]));
        assert_eq!(both(&mut ends, 5001), [true; 2]);
        // Of two that were there, one is lost, in any VLAN.
        ends.steering.end_term([lost(5002)]).unwrap();
        assert_eq!(both(&mut ends, 5000), [true; 2]);
        assert_eq!(both(&mut ends, 5001), [true; 2]);
        assert_eq!(both(&mut ends, 5002), [false; 2]);
        assert!(!ends.passes(5002, true, DATA, &[0x81, 0, 0, 7]));
        let counts = ends.steering.counts().unwrap();
        assert!(counts[0].lost >= 4 && counts[1].lost >= 3, "{counts:?}");
        // Begun anew.
        assert!(ends.passes(5002, true, SYN, &[]));
        assert_eq!(both(&mut ends, 5002), [true; 2]);
        // What began without the card before may be lost with the next one.
        ends.steering.begin_term().unwrap();
        assert_eq!(both(&mut ends, 5001), [false; 2]);
        ends.steering.end_term([lost(5001)]).unwrap();
        assert_eq!(both(&mut ends, 5001), [false; 2]);
        assert_eq!(both(&mut ends, 5002), [true; 2]);
        // Begun anew before anybody has said what is lost; and the same when the card only stood
        // still for a moment, and had the next one of these ends.
        ends.steering.begin_term().unwrap();
        assert!(ends.passes(5004, true, SYN, &[]));
        ends.steering.end_term([lost(5004), lost(5005)]).unwrap();
        assert_eq!([both(&mut ends, 5004), both(&mut ends, 5005)], [[true; 2], [false; 2]]);
        ends.steering.begin_term().unwrap();
        heartbeat.beat(now_ns(), Duration::ZERO);
        assert!(ends.passes(5006, true, SYN, &[]));
        assert_eq!(both(&mut ends, 5006), [true; 2]);
        heartbeat.beat(now_ns(), LONG);
        assert_eq!(both(&mut ends, 5006), [false; 2], "the card's");
        heartbeat.beat(now_ns(), Duration::ZERO);
        assert_eq!(both(&mut ends, 5006), [false; 2]);
        ends.steering.end_term([lost(5006)]).unwrap();
        assert_eq!(both(&mut ends, 5006), [false; 2]);
        // More than there is room for: nothing passes but what begins.
        assert!(ends.steering.end_term((1..=101).map(lost)).is_err());
        assert_eq!(both(&mut ends, 5000), [false; 2]);
        assert!(ends.passes(5003, true, SYN, &[]));
        assert_eq!(both(&mut ends, 5003), [true; 2]);
        ends.steering.end_term((1..=100).map(lost)).unwrap();
        assert_eq!(both(&mut ends, 5000), [true; 2]);
    }
}
