//! The programs against a model of what a service flow is, on frames that are changed at random
//! (`BPF_PROG_TEST_RUN`).

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use proptest::prelude::*;

use super::frames::cases;
use super::*;

/// Runs a socket filter on a frame: whether it lets the frame in. `None`: the kernel does not run
/// it on such a frame.
fn admits(filter: BorrowedFd<'_>, frame: &[u8]) -> Option<bool> {
    // For socket filters a test run takes an Ethernet header away, which a packet socket does not:
    // another one is put in front.
    let frame = [&[0; 12][..], &[0x88, 0xb5], frame].concat();
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ..Default::default()
    };
    // SAFETY: the frame and the options live during the call, which writes to nothing but the
    // options.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(filter.as_raw_fd(), &raw mut options) };
    (result == 0).then_some(options.retval != 0)
}

/// An end of a connection.
type End = (IpAddr, u16);

/// A datagram in fragments.
type Datagram = (IpAddr, IpAddr, u32);

/// The two ends of the TCP segment in an IP packet, with the datagram that it is only the first
/// part of; a later part; and the packet that an error quotes.
enum Packet {
    Segment(End, End, Option<Datagram>),
    Part(Datagram),
    Error(Vec<u8>),
}

fn parse(version: u8, packet: &[u8], is_quoted: bool) -> Option<Packet> {
    let (from, to, protocol, part, rest) = if version == 4 {
        let header: [u8; 20] = *packet.first_chunk()?;
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let (is_later, more) = (fragment & 0x1fff != 0, fragment & 0x2000 != 0);
        let is_plain = header[0] == 0x45 && !is_later && (!more || is_quoted);
        let is_of_tcp = header[9] == 6 && (0x45..0x50).contains(&header[0]) && !is_quoted;
        if !is_plain && !is_of_tcp {
            return None;
        }
        let address =
            |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let id = u32::from(u16::from_be_bytes([header[4], header[5]]));
        let part = (!is_quoted && (is_later || more)).then_some((id, !is_later));
        let header_len = usize::from(header[0] & 0xf) * 4;
        (address(12), address(16), header[9], part, packet.get(header_len..).unwrap_or_default())
    } else {
        let header: [u8; 40] = *packet.first_chunk()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
        let (mut next, mut rest, mut part) = (header[6], &packet[40..], None);
        for _ in 0..3 {
            if is_quoted || ![0, 44, 60].contains(&next) {
                break;
            }
            let extension: [u8; 8] = *rest.first_chunk()?;
            let mut len = 8;
            if next == 44 {
                let place = u16::from_be_bytes([extension[2], extension[3]]);
                let id =
                    u32::from_be_bytes([extension[4], extension[5], extension[6], extension[7]]);
                part = (place & 0xfff9 != 0).then_some((id, place & 0xfff8 == 0));
            } else if extension[1] > 7 {
                return None;
            } else {
                len += usize::from(extension[1]) * 8;
            }
            (next, rest) = (extension[0], rest.get(len..).unwrap_or_default());
        }
        // Errors are looked for in plain packets only.
        if next == 58 && header[6] != 58 {
            return None;
        }
        (address(8), address(24), next, part, rest)
    };
    if let (6, Some((id, false))) = (protocol, part) {
        return Some(Packet::Part((from, to, id)));
    }
    match (protocol, version) {
        (6, _) => {
            let ports: [u8; 4] = *rest.first_chunk()?;
            let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
            let datagram = part.map(|(id, _)| (from, to, id));
            Some(Packet::Segment((from, port(0)), (to, port(2)), datagram))
        }
        (1, 4) | (58, 6) if !is_quoted => {
            let is_error = match (*rest.first_chunk::<2>()?, version) {
                ([kind, _], 4) => [3, 11, 12].contains(&kind),
                ([kind, _], _) => (1..=4).contains(&kind),
            };
            is_error.then(|| Packet::Error(rest.get(8..).unwrap_or_default().to_vec()))
        }
        _ => None,
    }
}

fn is_served((address, port): End) -> bool {
    // A mapped address is the IPv4 address.
    services().iter().any(|service| {
        let is_here = |wanted: IpAddr| wanted.to_canonical() == address.to_canonical();
        service.port == port && service.address.is_none_or(is_here)
    })
}

/// Is the frame the card's? `known` are the datagrams whose first part was.
fn expected(frame: &[u8], from_host: bool, known: &mut HashSet<Datagram>) -> Option<bool> {
    let (mut ethertype, mut rest) = (&frame[12..14], &frame[14..]);
    for _ in 0..2 {
        if [[0x81, 0], [0x88, 0xa8]].contains(&ethertype.try_into().unwrap()) {
            (ethertype, rest) = (rest.get(2..4)?, rest.get(4..)?);
        }
    }
    let version = match ethertype {
        [8, 0] => 4,
        [0x86, 0xdd] => 6,
        _ => return None,
    };
    Some(match parse(version, rest, false)? {
        Packet::Segment(from, to, datagram) => {
            let is_served = is_served(if from_host { from } else { to });
            known.extend(datagram.filter(|_| is_served));
            is_served
        }
        Packet::Part(datagram) => known.contains(&datagram),
        // What it quotes went the other way.
        Packet::Error(quoted) => match parse(version, &quoted, true)? {
            Packet::Segment(from, to, _) => is_served(if from_host { to } else { from }),
            Packet::Error(_) | Packet::Part(_) => false,
        },
    })
}

#[test]
fn changed_frames_are_judged_as_the_model_does() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene.card, INLINE, INLINE).unwrap();
    heartbeat(&steering).beat(now_ns(), LONG);
    let all = [cases(false), cases(true)];
    // What frames are made of, put where it matters.
    let byte = prop_oneof![
        any::<u8>(),
        proptest::sample::select(vec![
            0, 1, 2, 3, 4, 6, 8, 11, 12, 17, 44, 58, 60, 0x20, 0x40, 0x45, 0x47, 0x60, 0x81, 0x88,
            0xa8, 80, 81
        ])
    ];
    let changes = proptest::collection::vec((12usize..90, byte), 0..4);
    let strategy =
        (any::<bool>(), 0usize..10_000, changes, prop_oneof![4 => Just(1000), 1 => 14usize..120]);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 20_000,
        ..ProptestConfig::default()
    });
    let (mut admitted, mut judged) = (0, 0);
    let counted = std::cell::RefCell::new((&mut admitted, &mut judged));
    let known = std::cell::RefCell::new(HashSet::new());
    runner
        .run(&strategy, |(from_host, number, changes, len)| {
            let cases = &all[usize::from(from_host)];
            let mut frame = cases[number % cases.len()].frame.clone();
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.truncate(len);
            let files = steering.files();
            let filter = if from_host { files.host.filter } else { files.wire.filter };
            if let Some(found) = admits(filter, &frame) {
                prop_assert_eq!(
                    found,
                    expected(&frame, from_host, &mut known.borrow_mut()) == Some(true),
                    "{:02x?}",
                    frame
                );
                let mut counted = counted.borrow_mut();
                *counted.0 += u32::from(found);
                *counted.1 += 1;
            }
            Ok(())
        })
        .unwrap();
    println!("{admitted} of {judged} are the card's");
    assert!(judged > 15_000 && admitted > 1000, "{admitted} of {judged}");
}
