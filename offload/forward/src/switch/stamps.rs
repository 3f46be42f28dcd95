//! Options that a client was promised before its back end was known, and that its back end then
//! does without.
//!
//! Read first: RFC 7323 sections 2.2, 3.2 and 4.3, RFC 2018 section 2.
//!
//! A connection uses timestamps in both directions or in none. Here the client's half has them and
//! the back end's half has not: they are taken out of what the client sends, and put into what the
//! back end sends, from a clock of our own. So its segments become longer by 12 bytes, and are cut
//! if that is too long. SACK blocks are taken out of what the client sends. Windows are translated
//! in any case ([`nicache_tcp::splice`]). Segments that are longer than the back end takes are cut
//! ([`crate::segmenting`]), and the size is learned for the clients that come later (`learned`).
//!
//! The other way round there is nothing to do: a back end is asked for no more than its client has
//! offered.

use nicache_tcp::timestamps::{Paws, TsClock};
use nicache_tcp::wire::{CHECKSUM_OFFSET, HEADER_BYTES_MAX, HEADER_BYTES_MIN};
use nicache_tcp::{
    AckRewrite, HeadRepr, Rewrite, SackRewrite, SegmentHead, Seq, SynOptions, Time, Timestamps,
    checksum,
};

use super::Switched;
use crate::decision::Head;
use crate::packet::Packet;
use crate::tcp_track::Direction;
use crate::view::View;

const DATA_OFFSET: usize = 12;
const NOP: u8 = 1;
const IPV4_LENGTH: usize = 2;
const IPV4_CHECKSUM: usize = 10;
const IPV6_LENGTH: usize = 4;

/// What a back end does without, of what its client uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Timestamps. [`nicache_tcp::Splice::ts_delta`] is then the offset of our clock.
    pub timestamps: bool,
    /// SACK.
    pub sack: bool,
}

impl Lacks {
    /// Of a back end that has answered `asked` with `answer`.
    pub(super) fn of(asked: &SynOptions, answer: &SynOptions) -> Self {
        Self {
            timestamps: asked.timestamps.is_some() && answer.timestamps.is_none(),
            sack: asked.sack_permitted && !answer.sack_permitted,
        }
    }
}

/// What is echoed to a client whose back end has no timestamps (RFC 7323 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Echo {
    /// `None`: another forwarder has seen its last segment, and none has come since.
    recent: Option<Paws>,
    /// The last acknowledgment that it was sent.
    acked: Option<Seq>,
}

impl Echo {
    /// Of a client with this last timestamp, that was told of `acked`.
    pub(super) fn new(recent: Paws, acked: Seq) -> Self {
        Self { recent: Some(recent), acked: Some(acked) }
    }

    fn handle_client(&mut self, stamps: Timestamps, seq: Seq, now: Time) {
        match &mut self.recent {
            Some(recent) => recent.update(stamps, seq, self.acked.unwrap_or(seq), now),
            None => self.recent = Some(Paws::new(stamps.val, now)),
        }
    }
}

/// How a segment of a connection is changed whose back end was chosen by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spliced {
    pub(crate) numbers: Rewrite,
    pub(crate) options: Option<Restamp>,
    /// Bytes of options and payload that the end takes which it goes to.
    pub(crate) takes: u16,
}

/// A header whose options are written anew: its timestamps, and SACK blocks as it has them then. It
/// becomes no shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restamp {
    timestamps: Option<Timestamps>,
    /// Bytes that it becomes longer.
    pub(crate) growth: usize,
}

impl Switched {
    /// How a segment is changed beyond its numbers. `None`: not at all.
    pub(super) fn restamp(
        &self,
        direction: Direction,
        tcp: &SegmentHead,
        change: &mut Rewrite,
        now: Time,
    ) -> Option<Restamp> {
        if self.lacks.sack && direction == Direction::Original {
            change.sack = SackRewrite::Strip;
        }
        // Options of a SYN are of the handshake, and resets go without (RFC 7323 section 3.2).
        let is_plain = !tcp.flags.syn() && !tcp.flags.rst();
        let timestamps = match direction {
            _ if !self.lacks.timestamps => return None,
            Direction::Original if tcp.timestamps.is_some() => None,
            Direction::Reply if is_plain => {
                let ecr = self.echo.recent.map_or(0, |recent| recent.recent());
                Some(Timestamps { val: TsClock::new(self.splice.ts_delta).at(now), ecr })
            }
            _ => return None,
        };
        let len = HeadRepr { timestamps, sack: tcp.sack, ..HeadRepr::default() }.len();
        Some(Restamp { timestamps, growth: len.saturating_sub(tcp.header_len) })
    }

    /// A segment that belongs to the connection, and is passed on changed.
    pub(crate) fn follow_stamps(
        &mut self,
        direction: Direction,
        packet: &Packet<'_>,
        change: &Rewrite,
        now: Time,
    ) {
        if !self.lacks.timestamps {
            return;
        }
        match (direction, change.ack) {
            (Direction::Original, _) => {
                let header = &packet.frame[packet.view.transport_at..packet.view.headers_end];
                if let Ok(SegmentHead { timestamps: Some(stamps), seq, .. }) =
                    nicache_tcp::parse(header)
                {
                    self.echo.handle_client(stamps, seq, now);
                }
            }
            (Direction::Reply, AckRewrite::Set(ack)) => self.echo.acked = Some(ack),
            (Direction::Reply, AckRewrite::Add(_)) => {}
        }
    }
}

impl Restamp {
    /// Writes the options of the segment whose headers `head` ends with. False: the packet would be
    /// longer than a packet can be.
    #[must_use]
    pub(crate) fn write(&self, head: &mut Head, view: &View, is_partial: bool) -> bool {
        let at = view.transport_at;
        let Ok(tcp) = nicache_tcp::parse(&head[at..]) else { return true };
        let repr = HeadRepr { timestamps: self.timestamps, sack: tcp.sack, ..HeadRepr::default() };
        let mut bytes = [NOP; HEADER_BYTES_MAX];
        let (old_len, used) = (tcp.header_len, repr.len());
        repr.emit(&mut bytes[..used]);
        bytes[used..].fill(NOP);
        let len = used.max(old_len);
        if !self.lengthen(head, view, len - old_len) {
            return false;
        }
        let old = checksum::sum(&head[at..]);
        let segment_len = view.end - at;
        head.truncate(at + HEADER_BYTES_MIN);
        if head.try_extend_from_slice(&bytes[HEADER_BYTES_MIN..len]).is_err() {
            return false;
        }
        head[at + DATA_OFFSET] = head[at + DATA_OFFSET] & 0x0f | ((len / 4) as u8) << 4;
        let new = checksum::sum(&head[at..]);
        // The pseudo-header has the length of the segment.
        let lengths = ((segment_len as u16), (segment_len + len - old_len) as u16);
        let field = at + CHECKSUM_OFFSET;
        let before = u16::from_be_bytes([head[field], head[field + 1]]);
        let after = if is_partial {
            checksum::add(checksum::sub(before, lengths.0), lengths.1)
        } else {
            checksum::update(before, checksum::add(old, lengths.0), checksum::add(new, lengths.1))
        };
        head[field..field + 2].copy_from_slice(&after.to_be_bytes());
        true
    }

    /// The length in the header of IP.
    fn lengthen(&self, head: &mut Head, view: &View, more: usize) -> bool {
        let is_v4 = view.source.is_ipv4();
        let at = view.network_at + if is_v4 { IPV4_LENGTH } else { IPV6_LENGTH };
        let old = u16::from_be_bytes([head[at], head[at + 1]]);
        let Some(new) = u16::try_from(more).ok().and_then(|more| old.checked_add(more)) else {
            return false;
        };
        head[at..at + 2].copy_from_slice(&new.to_be_bytes());
        if is_v4 {
            let at = view.network_at + IPV4_CHECKSUM;
            let field = u16::from_be_bytes([head[at], head[at + 1]]);
            head[at..at + 2].copy_from_slice(&checksum::update(field, old, new).to_be_bytes());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use nicache_tcp::frame::{
        Addresses, ETHERNET_BYTES, HEADERS_BYTES_MAX, Packet, Tags, write_headers,
    };
    use nicache_tcp::{Flags, SackBlocks};
    use proptest::prelude::*;

    use super::*;

    fn stamps() -> impl Strategy<Value = Option<Timestamps>> {
        proptest::option::of(any::<(u32, u32)>().prop_map(|(val, ecr)| Timestamps { val, ecr }))
    }

    proptest! {
        /// All lengths and checksums are right afterwards, and nothing but the options is another.
        #[test]
        fn a_header_is_right(
            before in stamps(),
            after in stamps(),
            blocks in 0u32..=4,
            is_v6 in any::<bool>(),
            is_tagged in any::<bool>(),
            is_partial in any::<bool>(),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let address = |last: u8| {
                if is_v6 {
                    std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into()
                } else {
                    std::net::Ipv4Addr::new(10, 0, 0, last).into()
                }
            };
            let addresses = Addresses {
                source_mac: [1; 6],
                destination_mac: [2; 6],
                tags: if is_tagged {
                    Tags::from_bytes(&[0x81, 0, 0, 9]).unwrap()
                } else {
                    Tags::default()
                },
                source: address(1),
                destination: address(2),
            };
            let mut sack = SackBlocks::EMPTY;
            for number in 0..blocks {
                sack.push(Seq(100 * number), Seq(100 * number + 50));
            }
            let repr = HeadRepr {
                src_port: 7,
                seq: Seq(5),
                flags: Flags::ACK | Flags::PSH,
                window: 9,
                timestamps: before,
                sack,
                ..HeadRepr::default()
            };
            let mut headers = [0; HEADERS_BYTES_MAX];
            let len = write_headers(&addresses, &repr, payload.len() as u32, 3, &mut headers);
            let mut frame = [&headers[..len], &payload].concat();
            let field = addresses.tcp_at() + CHECKSUM_OFFSET;
            if !is_partial {
                let sum = checksum::finish(checksum::sum(&frame[addresses.tcp_at()..]));
                frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            }
            let view =
                View::parse(&frame, ETHERNET_BYTES + addresses.tags.len(), frame.len()).unwrap();
            let old = nicache_tcp::parse(&frame[view.transport_at..]).unwrap();
            let growth = HeadRepr { timestamps: after, sack: old.sack, ..repr }
                .len()
                .saturating_sub(old.header_len);
            let mut head = Head::new();
            head.try_extend_from_slice(&frame[..view.headers_end]).unwrap();
            let restamp = Restamp { timestamps: after, growth };
            prop_assert!(restamp.write(&mut head, &view, is_partial));
            prop_assert_eq!(head.len(), view.headers_end + growth);
            let changed = [&head[..], &payload].concat();
            let packet = Packet::parse(&changed).unwrap();
            prop_assert_eq!(packet.end, changed.len());
            prop_assert!(packet.is_header_right(&changed));
            if is_partial {
                let value = u16::from_be_bytes([changed[field], changed[field + 1]]);
                prop_assert!(checksum::same(value, packet.pseudo_header_sum(&changed)));
            } else {
                prop_assert!(packet.is_segment_right(&changed));
            }
            let new = nicache_tcp::parse(&changed[packet.transport_at..]).unwrap();
            prop_assert_eq!(new.timestamps, after);
            let most = if after.is_some() { 3 } else { 4 };
            prop_assert_eq!(new.sack.as_slice(), &old.sack.as_slice()[..old.sack.len().min(most)]);
            prop_assert_eq!((new.seq, new.flags, new.window), (old.seq, old.flags, old.window));
            prop_assert_eq!(&changed[packet.transport_at + new.header_len..], &payload[..]);
        }
    }

    #[test]
    fn a_packet_that_is_as_long_as_it_can_be_does_not_become_longer() {
        let mut frame = vec![0; 14 + 65_535];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14..34].copy_from_slice(&[
            0x45, 0, 0xff, 0xff, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame[46] = 0x50;
        frame[47] = 0x10;
        let view = View::parse(&frame, 14, frame.len()).unwrap();
        let mut head = Head::new();
        head.try_extend_from_slice(&frame[..view.headers_end]).unwrap();
        let restamp = Restamp { timestamps: Some(Timestamps { val: 1, ecr: 2 }), growth: 12 };
        assert!(!restamp.write(&mut head, &view, false));
    }
}
