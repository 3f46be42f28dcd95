//! Changes frames on their way, by a seed: bits, lengths, numbers, order.

use std::collections::BTreeMap;

use nicache_tcp::checksum;

use super::address::{MAC, NETWORK};

/// Share of the frames that pass as they are, in percent: conversations must get somewhere.
const UNCHANGED_PERCENT: u8 = 60;
/// Where the frame's type begins: what is before it, addresses of Ethernet, is left alone.
const TYPE_AT: usize = 12;
const IP_AT: usize = 14;
const TCP_AT: usize = 34;
/// Bytes that a frame is made longer by, at most.
const LONGER_MAX: usize = 600;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const ICMP: u8 = 1;
const TCP: u8 = 6;

/// Kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    BitsFlipped,
    BitsFlippedSummed,
    Truncated,
    TruncatedSummed,
    Duplicated,
    Reordered,
    FieldOfTcp,
    NumberAtAnEdge,
    Options,
    Payload,
    Longer,
    FieldOfIp,
    Tagged,
    TooBig,
}

const CHANGES: [Change; 14] = [
    Change::BitsFlipped,
    Change::BitsFlippedSummed,
    Change::Truncated,
    Change::TruncatedSummed,
    Change::Duplicated,
    Change::Reordered,
    Change::FieldOfTcp,
    Change::NumberAtAnEdge,
    Change::Options,
    Change::Payload,
    Change::Longer,
    Change::FieldOfIp,
    Change::Tagged,
    Change::TooBig,
];

/// The changer.
#[derive(Debug)]
pub(super) struct Tamper {
    random: fastrand::Rng,
    /// A frame that the next one overtakes.
    held: Option<Vec<u8>>,
    done: BTreeMap<Change, u64>,
}

impl Tamper {
    /// With a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), held: None, done: BTreeMap::new() }
    }

    /// How often each change was made.
    pub(super) fn told(&self) -> BTreeMap<String, u64> {
        self.done.iter().map(|(change, count)| (format!("changed_{change:?}"), *count)).collect()
    }

    /// Sends what becomes of an IPv4 frame with a segment.
    pub(super) fn apply(&mut self, mut frame: Vec<u8>, mut send: impl FnMut(&[u8])) {
        let overtaken = self.held.take();
        if self.random.u8(..100) < UNCHANGED_PERCENT {
            send(&frame);
        } else {
            let change = self.random.choice(CHANGES).unwrap_or(Change::BitsFlipped);
            *self.done.entry(change).or_default() += 1;
            match change {
                Change::Duplicated => {
                    send(&frame);
                    send(&frame);
                }
                Change::Reordered => self.held = Some(frame),
                Change::TooBig => {
                    send(&frame);
                    send(&self.too_big(&frame));
                }
                change => {
                    self.alter(&mut frame, change);
                    send(&frame);
                }
            }
        }
        if let Some(frame) = overtaken {
            send(&frame);
        }
    }

    fn alter(&mut self, frame: &mut Vec<u8>, change: Change) {
        let random = &mut self.random;
        match change {
            Change::BitsFlipped | Change::BitsFlippedSummed => {
                for _ in 0..random.usize(1..8) {
                    let at = random.usize(TYPE_AT..frame.len());
                    frame[at] ^= 1 << random.u32(..8);
                }
            }
            Change::Truncated | Change::TruncatedSummed => {
                frame.truncate(random.usize(IP_AT..frame.len()));
            }
            Change::FieldOfTcp => {
                let fields = [(0, 2), (4, 4), (8, 4), (12, 1), (13, 1), (14, 2), (16, 2), (18, 2)];
                let (at, len) = random.choice(fields).unwrap_or((4, 4));
                random.fill(&mut frame[TCP_AT + at..TCP_AT + at + len]);
            }
            Change::NumberAtAnEdge => {
                let at = TCP_AT + if random.bool() { 4 } else { 8 };
                let step = [1, 2, 1_460, 65_535, 65_536, 1 << 20, 1 << 30, (1 << 31) - 1, 1 << 31];
                let step = random.choice(step).unwrap_or(1u32);
                let number =
                    u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
                let moved = if random.bool() {
                    number.wrapping_add(step)
                } else {
                    number.wrapping_sub(step)
                };
                frame[at..at + 4].copy_from_slice(&moved.to_be_bytes());
            }
            Change::Options => {
                // Words between header and payload, where options stand.
                let words = random.usize(1..=10);
                let len = (5 + words).min(15);
                let mut options: Vec<u8> = (0..(len - 5) * 4).map(|_| random.u8(..)).collect();
                if random.bool() {
                    // One that looks right at least: a kind that is known and its length.
                    let (kind, bytes) = random
                        .choice([(2, 4), (3, 3), (4, 2), (5, 10), (8, 10), (30, 12)])
                        .unwrap_or((8, 10));
                    options[..2].copy_from_slice(&[kind, bytes]);
                }
                frame.splice(TCP_AT + 20..TCP_AT + 20, options);
                frame[TCP_AT + 12] = (len as u8) << 4;
            }
            Change::Payload => {
                let from = TCP_AT + 20;
                if frame.len() > from {
                    for _ in 0..random.usize(1..6) {
                        let at = random.usize(from..frame.len());
                        frame[at] = random.u8(..);
                    }
                }
            }
            Change::Longer => frame.extend((0..random.usize(1..LONGER_MAX)).map(|_| b'a')),
            Change::FieldOfIp => {
                let fields = [(0, 1), (1, 1), (2, 2), (6, 2), (8, 1), (9, 1), (10, 2)];
                let (at, len) = random.choice(fields).unwrap_or((2, 2));
                random.fill(&mut frame[IP_AT + at..IP_AT + at + len]);
            }
            Change::Tagged => {
                let kind = if random.bool() { [0x81, 0x00] } else { [0x88, 0xa8] };
                let tag = [kind[0], kind[1], random.u8(..), random.u8(..)];
                for _ in 0..random.usize(1..4) {
                    frame.splice(TYPE_AT..TYPE_AT, tag);
                }
            }
            Change::Duplicated | Change::Reordered | Change::TooBig => {}
        }
        // Lengths tell the truth half of the time, sums most of the time: what is wrong there is
        // dropped at once.
        let keeps_sums = matches!(change, Change::BitsFlipped | Change::Truncated);
        if frame.len() >= TCP_AT
            && matches!(change, Change::TruncatedSummed | Change::Options | Change::Longer)
            && random.bool()
        {
            let len = (frame.len() - IP_AT) as u16;
            frame[IP_AT + 2..IP_AT + 4].copy_from_slice(&len.to_be_bytes());
        }
        if !keeps_sums && random.u8(..8) > 0 {
            sum(frame);
        }
    }

    /// A router's message about a segment that the server may have sent to the sender of this one
    /// (RFC 792, RFC 1191).
    fn too_big(&mut self, frame: &[u8]) -> Vec<u8> {
        let random = &mut self.random;
        let mut message = frame[..IP_AT + 20].to_vec();
        message[IP_AT + 9] = ICMP;
        let mtu = random.choice([0, 68, 296, 576, 1_280, 1_499, 65_535]).unwrap_or(576u16);
        message.extend([3, if random.u8(..8) > 0 { 4 } else { random.u8(..) }, 0, 0, 0, 0]);
        message.extend(mtu.to_be_bytes());
        let quoted = message.len();
        message.extend_from_slice(&frame[IP_AT..(TCP_AT + 8).min(frame.len())]);
        // It is about the other direction.
        for (one, other, len) in [(12, 16, 4), (20, 22, 2)] {
            for byte in 0..len {
                message.swap(quoted + one + byte, quoted + other + byte);
            }
        }
        // The number of a segment to the client is near what the client acknowledges.
        let number: [u8; 4] = std::array::from_fn(|byte| frame[TCP_AT + 8 + byte]);
        let near = u32::from_be_bytes(number).wrapping_add(random.u32(..3_000)).to_be_bytes();
        message[quoted + 24..quoted + 28].copy_from_slice(&near);
        let len = (message.len() - IP_AT) as u16;
        message[IP_AT + 2..IP_AT + 4].copy_from_slice(&len.to_be_bytes());
        sum(&mut message);
        message
    }
}

/// A frame of random bytes from an attacker's MAC address, half of the time with headers that look
/// right at first. Never ARP: an answer in the name of another machine would be an attack on the
/// network, not on the card.
pub(super) fn random_frame(
    random: &mut fastrand::Rng,
    server_mac: [u8; 6],
    server: [u8; 4],
) -> Vec<u8> {
    let mut frame = vec![0; random.usize(IP_AT..1_515)];
    random.fill(&mut frame);
    frame[..6].copy_from_slice(&server_mac);
    frame[6..12].copy_from_slice(&MAC);
    let kind = random.choice([IPV4, IPV6, [0x81, 0x00], [0x12, 0x34]]).unwrap_or(IPV4);
    frame[TYPE_AT..IP_AT].copy_from_slice(&kind);
    if kind == IPV4 && frame.len() > TCP_AT + 20 {
        let len = (frame.len() - IP_AT) as u16;
        frame[IP_AT..IP_AT + 2].copy_from_slice(&[0x45, 0]);
        frame[IP_AT + 2..IP_AT + 4].copy_from_slice(&len.to_be_bytes());
        frame[IP_AT + 6..IP_AT + 8].copy_from_slice(&[0x40, 0]);
        frame[IP_AT + 9] = if random.u8(..4) > 0 { TCP } else { random.u8(..) };
        frame[IP_AT + 12..IP_AT + 14].copy_from_slice(&NETWORK);
        frame[IP_AT + 16..TCP_AT].copy_from_slice(&server);
        frame[TCP_AT + 2..TCP_AT + 4].copy_from_slice(&80u16.to_be_bytes());
        if random.bool() {
            frame[TCP_AT + 12] = 0x50;
        }
        sum(&mut frame);
    }
    frame
}

/// Makes the sums of an IPv4 frame right, as far as its lengths let.
fn sum(frame: &mut [u8]) {
    if frame.len() < TCP_AT || frame[TYPE_AT..IP_AT] != IPV4 {
        return;
    }
    let header = (usize::from(frame[IP_AT] & 15) * 4).clamp(20, frame.len() - IP_AT);
    frame[IP_AT + 10..IP_AT + 12].fill(0);
    let ip_sum = !checksum::sum(&frame[IP_AT..IP_AT + header]);
    frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&ip_sum.to_be_bytes());
    let end = (IP_AT + usize::from(u16::from_be_bytes([frame[IP_AT + 2], frame[IP_AT + 3]])))
        .min(frame.len());
    let at = IP_AT + header;
    match frame[IP_AT + 9] {
        TCP if end >= at + 20 => {
            frame[at + 16..at + 18].fill(0);
            let address = |from: usize| std::array::from_fn(|byte| frame[from + byte]);
            let pseudo = checksum::pseudo_header_v4(
                address(IP_AT + 12),
                address(IP_AT + 16),
                (end - at) as u32,
            );
            let sum = !checksum::add(pseudo, checksum::sum(&frame[at..end]));
            frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        }
        ICMP if end >= at + 8 => {
            frame[at + 2..at + 4].fill(0);
            let sum = !checksum::sum(&frame[at..end]);
            frame[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Packet, Tags, write_headers};
    use nicache_tcp::{Flags, HeadRepr, Seq};

    use super::*;

    fn frame() -> Vec<u8> {
        let addresses = Addresses {
            source_mac: MAC,
            destination_mac: [2; 6],
            tags: Tags::default(),
            source: Ipv4Addr::new(198, 19, 0, 1).into(),
            destination: Ipv4Addr::new(10, 0, 0, 2).into(),
        };
        let head = HeadRepr {
            src_port: 1,
            dst_port: 80,
            seq: Seq(5),
            ack: Seq(9),
            flags: Flags::ACK,
            ..HeadRepr::default()
        };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, &head, 5, 1, &mut bytes);
        let mut frame = [&bytes[..len], b"hello"].concat();
        sum(&mut frame);
        frame
    }

    #[test]
    fn sums_are_right() {
        let frame = frame();
        let packet = Packet::parse(&frame).unwrap();
        assert!(packet.is_header_right(&frame) && packet.is_segment_right(&frame));
        let message = Tamper::new(1).too_big(&frame);
        let packet = Packet::parse(&message).unwrap();
        assert!(packet.is_header_right(&message) && packet.is_message_right(&message));
    }

    #[test]
    fn a_seed_repeats_a_run_and_every_change_happens() {
        let run = |seed| {
            let (mut tamper, mut sent) = (Tamper::new(seed), Vec::new());
            (0..2_000).for_each(|_| tamper.apply(frame(), |frame| sent.push(frame.to_vec())));
            (sent, tamper.told())
        };
        let (one, other, third) = (run(7), run(7), run(8));
        assert_eq!(one, other);
        assert_ne!(one.0, third.0);
        assert_eq!(one.1.len(), CHANGES.len());
        assert!(one.0.iter().any(|sent| *sent == frame()));
    }

    #[test]
    fn random_frames_are_no_arp() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2_000 {
            let frame = random_frame(&mut random, [2; 6], [10, 0, 0, 2]);
            assert!(frame.len() >= IP_AT && frame[TYPE_AT..IP_AT] != [0x08, 0x06]);
        }
    }
}
