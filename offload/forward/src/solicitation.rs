//! Questions for MAC addresses and their answers: ARP (RFC 826) and Neighbor Discovery (RFC 4861
//! sections 4.3, 4.4 and 7.1).
//!
//! Deliberately absent: router advertisements, redirects, and defending addresses against
//! duplicates.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use nicache_tcp::checksum::{add, finish, sum};
use nicache_tcp::frame::{ETHERNET_BYTES, Mac, Tags};

use crate::view::{ICMPV6, Transport, View};

const ARP_BYTES: usize = 28;
const ARP_ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const IPV6_BYTES: usize = 40;
/// ICMPv6 header, target, and one option with a MAC address.
const MESSAGE_BYTES: usize = 8 + 16 + 8;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
/// Hop limit of a message that has passed no router (RFC 4861 section 7.1).
const HOPS: u8 = 255;

/// Bytes of a frame with such a message at most.
pub const FRAME_BYTES_MAX: usize = ETHERNET_BYTES + 8 + IPV6_BYTES + MESSAGE_BYTES;
/// A frame with one question or answer.
pub type Frame = ArrayVec<u8, FRAME_BYTES_MAX>;

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// It asks for the target.
    pub is_question: bool,
    /// Whose MAC address is told. A question of nobody (RFC 4862 section 5.4) tells none.
    pub told: Option<(IpAddr, Mac)>,
    /// Who is asked for, or who answers.
    pub target: IpAddr,
}

/// Reads an ARP message. `None`: it is none that can be used.
pub fn parse_arp(frame: &[u8], at: usize) -> Option<Message> {
    let arp = frame.get(at..at + ARP_BYTES)?;
    let operation = u16::from_be_bytes([arp[6], arp[7]]);
    if arp[..6] != ARP_ETHERNET_IPV4 || !matches!(operation, ARP_REQUEST | ARP_REPLY) {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(arp[at], arp[at + 1], arp[at + 2], arp[at + 3]);
    let mac: Mac = arp[8..14].try_into().ok()?;
    let (sender, target) = (address(14), address(24));
    let told = (!sender.is_unspecified() && is_one(mac)).then_some((IpAddr::V4(sender), mac));
    let is_question = operation == ARP_REQUEST;
    Some(Message {
        is_question,
        told,
        target: IpAddr::V4(if is_question { target } else { sender }),
    })
}

/// Reads a message of Neighbor Discovery. `None`: it is none, or one that must not be believed.
pub fn parse_discovery(frame: &[u8], view: &View) -> Option<Message> {
    let IpAddr::V6(source) = view.source else { return None };
    let message = frame.get(view.transport_at..view.end)?;
    if view.protocol != ICMPV6
        || view.hops != HOPS
        || view.fragment.is_some()
        || message.len() < 24
        || message[1] != 0
    {
        return None;
    }
    let IpAddr::V6(destination) = view.destination else { return None };
    if finish(add(pseudo(source, destination, message.len()), sum(message))) != 0 {
        return None;
    }
    let target = Ipv6Addr::from(<[u8; 16]>::try_from(&message[8..24]).ok()?);
    if target.is_multicast() {
        return None;
    }
    let (is_question, wanted) = match message[0] {
        SOLICITATION => (true, OPTION_SOURCE),
        ADVERTISEMENT => (false, OPTION_TARGET),
        _ => return None,
    };
    let mac = option(&message[24..], wanted);
    let teller = if is_question { source } else { target };
    let told = mac.filter(|_| !teller.is_unspecified()).map(|mac| (IpAddr::V6(teller), mac));
    Some(Message { is_question, told, target: IpAddr::V6(target) })
}

/// Whether a packet is of Neighbor Discovery, and so for us alone. What a later fragment begins
/// with is not the kind of its message.
pub fn is_discovery(frame: &[u8], view: &View) -> bool {
    view.protocol == ICMPV6
        && view.source.is_ipv6()
        && view.transport != Transport::Later
        && frame.get(view.transport_at).is_some_and(|kind| (133..=137).contains(kind))
}

fn option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    while let [kind, words, ..] = options {
        let len = usize::from(*words) * 8;
        let option = options.get(..len).filter(|option| !option.is_empty())?;
        if *kind == wanted && len == 8 {
            return option[2..8].try_into().ok().filter(|mac| is_one(*mac));
        }
        options = &options[len..];
    }
    None
}

fn is_one(mac: Mac) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// A frame that asks the link for a neighbour.
///
/// # Panics
/// If the addresses are of two versions.
pub fn ask(target: IpAddr, source: IpAddr, mac: Mac, tags: &Tags) -> Frame {
    match (source, target) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            arp(ARP_REQUEST, (mac, source), ([0; 6], target), [0xff; 6], tags)
        }
        (IpAddr::V6(source), IpAddr::V6(target)) => {
            let [.., a, b, c] = target.octets();
            // RFC 4291 section 2.7.1, RFC 2464 section 7.
            let group = Ipv6Addr::new(
                0xff02,
                0,
                0,
                0,
                0,
                1,
                0xff00 | u16::from(a),
                u16::from_be_bytes([b, c]),
            );
            let to = [0x33, 0x33, 0xff, a, b, c];
            discovery(SOLICITATION, [0; 4], (mac, source), (to, group), target, OPTION_SOURCE, tags)
        }
        _ => panic!("addresses of two versions"),
    }
}

/// A frame that answers a question for an address of ours.
pub fn answer(target: IpAddr, mac: Mac, asker: (IpAddr, Mac), tags: &Tags) -> Frame {
    match (target, asker.0) {
        (IpAddr::V4(target), IpAddr::V4(to)) => {
            arp(ARP_REPLY, (mac, target), (asker.1, to), asker.1, tags)
        }
        (IpAddr::V6(target), IpAddr::V6(to)) => {
            // Router, solicited, override.
            discovery(
                ADVERTISEMENT,
                [0xe0, 0, 0, 0],
                (mac, target),
                (asker.1, to),
                target,
                OPTION_TARGET,
                tags,
            )
        }
        _ => panic!("addresses of two versions"),
    }
}

fn ethernet(to: Mac, from: Mac, tags: &Tags, kind: u16) -> Frame {
    let mut frame = Frame::new();
    let mut extend =
        |bytes: &[u8]| frame.try_extend_from_slice(bytes).expect("room for an Ethernet header");
    extend(&to);
    extend(&from);
    extend(tags.bytes());
    extend(&kind.to_be_bytes());
    frame
}

fn arp(
    operation: u16,
    sender: (Mac, Ipv4Addr),
    target: (Mac, Ipv4Addr),
    to: Mac,
    tags: &Tags,
) -> Frame {
    let mut frame = ethernet(to, sender.0, tags, crate::view::ETHERTYPE_ARP);
    let parts: [&[u8]; 6] = [
        &ARP_ETHERNET_IPV4,
        &operation.to_be_bytes(),
        &sender.0,
        &sender.1.octets(),
        &target.0,
        &target.1.octets(),
    ];
    parts.into_iter().for_each(|part| frame.try_extend_from_slice(part).expect("room for ARP"));
    frame
}

fn discovery(
    kind: u8,
    flags: [u8; 4],
    (mac, source): (Mac, Ipv6Addr),
    (to_mac, to): (Mac, Ipv6Addr),
    target: Ipv6Addr,
    option: u8,
    tags: &Tags,
) -> Frame {
    let mut frame = ethernet(to_mac, mac, tags, crate::view::ETHERTYPE_IPV6);
    let len = (MESSAGE_BYTES as u16).to_be_bytes();
    let parts: [&[u8]; 8] = [
        &[0x60, 0, 0, 0, len[0], len[1], ICMPV6, HOPS],
        &source.octets(),
        &to.octets(),
        &[kind, 0, 0, 0],
        &flags,
        &target.octets(),
        &[option, 1],
        &mac,
    ];
    parts
        .into_iter()
        .for_each(|part| frame.try_extend_from_slice(part).expect("room for a message"));
    let at = frame.len() - MESSAGE_BYTES;
    let field = finish(add(pseudo(source, to, MESSAGE_BYTES), sum(&frame[at..])));
    frame[at + 2..at + 4].copy_from_slice(&field.to_be_bytes());
    frame
}

fn pseudo(source: Ipv6Addr, destination: Ipv6Addr, len: usize) -> u16 {
    add(add(sum(&source.octets()), sum(&destination.octets())), add(len as u16, u16::from(ICMPV6)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::network_of;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];

    #[test]
    fn questions_and_answers() {
        for (source, target) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::1:2")] {
            let (source, target): (IpAddr, IpAddr) =
                (source.parse().unwrap(), target.parse().unwrap());
            let tags = Tags::from_bytes(&[0x81, 0, 0, 7]).unwrap();
            let parse = |frame: &Frame| {
                let (_, at) = network_of(frame).unwrap();
                match source {
                    IpAddr::V4(_) => parse_arp(frame, at),
                    IpAddr::V6(_) => {
                        parse_discovery(frame, &View::parse(frame, at, frame.len()).unwrap())
                    }
                }
            };
            let question = ask(target, source, MAC, &tags);
            let expected = Message { is_question: true, told: Some((source, MAC)), target };
            assert_eq!(parse(&question), Some(expected));
            let answer = answer(target, [4; 6], (source, MAC), &tags);
            let expected = Message { is_question: false, told: Some((target, [4; 6])), target };
            assert_eq!(parse(&answer), Some(expected));
            assert_eq!(answer[..6], MAC);
        }
    }
}
