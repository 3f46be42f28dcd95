//! Segments in packets that are not plain, on the way to becoming plain ones: options and extension
//! headers are taken away, fragments put together (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! The card must see what belongs to its connections: the server knows some of them not at all, and
//! the numbers of others differ from the client's by what the card has answered. A datagram's parts
//! are kept as they came until it is whole. If it turns out to be for somebody else, if parts
//! overlap, if there are too many of them, or one does not come in time, all go on as they are, and
//! whoever they are for judges them.

use std::io::IoSlice;
use std::ops::Range;
use std::time::Duration;

use nicache_port::{Checksum, FrameBuf, Gso, GsoKind, Offload};
use nicache_tcp::frame::Packet;
use nicache_tcp::wrapped::{Piece, Wrapped};
use nicache_tcp::{Codepoint, Time, address::Address};

use crate::packet::Side;

/// Datagrams that wait for parts. Of more of them the oldest goes on as it is.
const DATAGRAMS_MAX: usize = 32;
/// Bytes of all frames of a datagram.
const DATAGRAM_BYTES_MAX: usize = 16_384;
/// Its parts.
const PIECES_MAX: usize = 16;
/// For how long parts are waited for. The kernel waits for 30 s, and has time enough left when it
/// gets them.
const WAIT: Duration = Duration::from_secs(1);
/// Bytes before a TCP header, and its own, at most.
const HEAD_BYTES_MAX: usize = 128;

/// What has become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The frame is none of these, or for somebody else: it goes on as it is.
    No,
    /// The frame waits for others.
    Kept,
    /// The frame is a plain packet now, of all parts.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    side: Side,
    source: Address,
    destination: Address,
    vlans: u32,
    id: u32,
}

/// A part that is kept.
#[derive(Clone, Debug)]
struct Part {
    /// Where the frame lies.
    frame: Range<usize>,
    /// Where its bytes of the segment lie.
    bytes: Range<usize>,
    offset: usize,
    more: bool,
    ecn: Codepoint,
}

impl Part {
    fn covers(&self) -> Range<usize> {
        self.offset..self.offset + self.bytes.len()
    }
}

#[derive(Debug)]
struct Datagram {
    name: Option<Name>,
    since: Time,
    /// What comes of it goes on as it is.
    passes: bool,
    parts: Vec<Part>,
    len: usize,
    bytes: Box<[u8]>,
}

impl Datagram {
    fn new() -> Self {
        let bytes = vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice();
        Self {
            name: None,
            since: Time::ZERO,
            passes: false,
            parts: Vec::with_capacity(PIECES_MAX),
            len: 0,
            bytes,
        }
    }

    fn begin(&mut self, name: Name, now: Time) {
        (self.name, self.since, self.passes, self.len) = (Some(name), now, false, 0);
        self.parts.clear();
    }

    /// False: there is no room for it.
    fn keep(&mut self, frame: &[u8], wrapped: &Wrapped, piece: Piece) -> bool {
        let Some(place) = self.bytes.get_mut(self.len..self.len + frame.len()) else {
            return false;
        };
        if self.parts.len() >= PIECES_MAX {
            return false;
        }
        place.copy_from_slice(frame);
        self.parts.push(Part {
            frame: self.len..self.len + frame.len(),
            bytes: self.len + wrapped.payload_at..self.len + wrapped.end,
            offset: piece.offset,
            more: piece.more,
            ecn: wrapped.ecn(frame),
        });
        self.len += frame.len();
        true
    }

    /// The very bytes are there already.
    fn has(&self, frame: &[u8], wrapped: &Wrapped, piece: Piece) -> bool {
        let is_same = |part: &&Part| part.offset == piece.offset && part.more == piece.more;
        let known = self.parts.iter().find(is_same);
        known.is_some_and(|part| {
            self.bytes[part.bytes.clone()] == frame[wrapped.payload_at..wrapped.end]
        })
    }

    /// Two parts have the same place, or the last one is not the last.
    fn is_contradicted_by(&self, wrapped: &Wrapped, piece: Piece) -> bool {
        let range = piece.offset..piece.offset + (wrapped.end - wrapped.payload_at);
        self.parts.iter().any(|part| {
            let covers = part.covers();
            let overlap = range.start < covers.end && covers.start < range.end;
            let behind_last =
                !part.more && range.end > covers.start || !piece.more && covers.end > range.start;
            overlap || behind_last
        })
    }

    fn is_whole(&self) -> bool {
        let total = self.parts.iter().find(|part| !part.more).map(|part| part.covers().end);
        total == Some(self.parts.iter().map(|part| part.bytes.len()).sum())
    }

    /// What all parts have met: congestion if one has (RFC 3168 section 5.3).
    fn ecn(&self) -> Codepoint {
        let is_congested = self.parts.iter().any(|part| part.ecn == Codepoint::Congested);
        let first = self.parts.first().map_or(Codepoint::NotCapable, |part| part.ecn);
        if is_congested { Codepoint::Congested } else { first }
    }
}

/// Makes plain packets of those with options, extension headers or fragments. Parts of a datagram
/// are kept until it is whole or given up.
pub(crate) struct Reassembly {
    datagrams: Vec<Datagram>,
    waiting: usize,
}

impl Reassembly {
    /// Nothing waits. All memory is allocated here.
    pub(crate) fn new() -> Self {
        Self { datagrams: (0..DATAGRAMS_MAX).map(|_| Datagram::new()).collect(), waiting: 0 }
    }

    /// When the oldest is to be given up.
    pub(crate) fn due(&self) -> Option<Time> {
        if self.waiting == 0 {
            return None;
        }
        let waiting = self.datagrams.iter().filter(|datagram| datagram.name.is_some());
        waiting.map(|datagram| datagram.since + WAIT).min()
    }

    /// Looks at a frame that is not a plain packet. What goes on as it is before it is handed to
    /// `pass`, with the side that it came from.
    pub(crate) fn take(
        &mut self,
        frame: &mut FrameBuf,
        side: Side,
        now: Time,
        is_service: impl Fn(u16) -> bool,
        pass: impl FnMut(Side, &[u8]),
    ) -> Taken {
        // What a machine hands over before it is on the wire is not in pieces.
        let is_wire = frame.offload().gso.is_none()
            && !matches!(frame.offload().checksum, Checksum::Partial { .. });
        let Some(wrapped) = Wrapped::parse(frame.data()) else { return Taken::No };
        match wrapped.piece {
            None if is_service(service_port(frame.data(), &wrapped, side)) => {
                strip(frame, &wrapped)
            }
            Some(piece) if is_wire => {
                self.take_piece(frame, &wrapped, piece, side, now, is_service, pass)
            }
            _ => Taken::No,
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a frame with what is known of it, and two things to be done"
    )]
    fn take_piece(
        &mut self,
        frame: &mut FrameBuf,
        wrapped: &Wrapped,
        piece: Piece,
        side: Side,
        now: Time,
        is_service: impl Fn(u16) -> bool,
        mut pass: impl FnMut(Side, &[u8]),
    ) -> Taken {
        let (source, destination) = (wrapped.source, wrapped.destination);
        let name = Name { side, source, destination, vlans: wrapped.tags.vlans(), id: piece.id };
        self.give_up(now, &mut pass);
        let at = self.find_or_begin(name, now, &mut pass);
        let datagram = &mut self.datagrams[at];
        if datagram.passes {
            return Taken::No;
        }
        if datagram.has(frame.data(), wrapped, piece) {
            return Taken::Kept;
        }
        let is_first = piece.offset == 0;
        let is_other = is_first && !is_service(service_port(frame.data(), wrapped, side));
        if is_other
            || datagram.is_contradicted_by(wrapped, piece)
            || !datagram.keep(frame.data(), wrapped, piece)
        {
            // Parts that come later must not be waited for, either.
            datagram.pass(&mut pass);
            datagram.passes = true;
            return Taken::No;
        }
        if !datagram.is_whole() {
            return Taken::Kept;
        }
        let is_plain = datagram.join(frame).is_some();
        if !is_plain {
            datagram.pass(&mut pass);
        }
        datagram.name = None;
        self.waiting -= 1;
        if is_plain { Taken::Plain } else { Taken::Kept }
    }

    fn find_or_begin(
        &mut self,
        name: Name,
        now: Time,
        pass: &mut impl FnMut(Side, &[u8]),
    ) -> usize {
        if let Some(at) = self.datagrams.iter().position(|datagram| datagram.name == Some(name)) {
            return at;
        }
        let free = self.datagrams.iter().position(|datagram| datagram.name.is_none());
        let at = free.unwrap_or_else(|| {
            let oldest =
                (0..DATAGRAMS_MAX).min_by_key(|&at| self.datagrams[at].since).unwrap_or_default();
            self.datagrams[oldest].pass(pass);
            self.waiting -= 1;
            oldest
        });
        self.datagrams[at].begin(name, now);
        self.waiting += 1;
        at
    }

    /// What has waited too long goes on as it is.
    pub(crate) fn give_up(&mut self, now: Time, mut pass: impl FnMut(Side, &[u8])) {
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        for datagram in self.datagrams.iter_mut().filter(|datagram| datagram.name.is_some()) {
            if now >= datagram.since + WAIT {
                datagram.pass(&mut pass);
                datagram.name = None;
                self.waiting -= 1;
            }
        }
    }
}

impl Datagram {
    /// All that is kept goes on as it is.
    fn pass(&mut self, pass: &mut impl FnMut(Side, &[u8])) {
        let Some(name) = self.name else { return };
        for part in self.parts.drain(..) {
            pass(name.side, &self.bytes[part.frame]);
        }
        self.len = 0;
    }

    /// Makes the frame the whole datagram: if it is longer than its longest part was, one that is
    /// cut into segments which are not.
    fn join(&mut self, frame: &mut FrameBuf) -> Option<()> {
        let ecn = self.ecn();
        self.parts.sort_unstable_by_key(|part| part.offset);
        let first = self.parts.first()?;
        let first_frame = &self.bytes[first.frame.clone()];
        let wrapped = Wrapped::parse(first_frame)?;
        let segment_len = self.parts.iter().map(|part| part.bytes.len()).sum::<usize>();
        let longest = self.parts.iter().map(|part| part.bytes.len()).max()?;
        let mut head = [0; HEAD_BYTES_MAX];
        let head_len = wrapped.write_plain_head(first_frame, segment_len, ecn, &mut head)?;
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX + 1];
        pieces[0] = IoSlice::new(&head[..head_len]);
        for (piece, part) in pieces[1..].iter_mut().zip(&self.parts) {
            *piece = IoSlice::new(&self.bytes[part.bytes.clone()]);
        }
        frame.copy_from(&pieces[..=self.parts.len()], Offload::default()).ok()?;
        cut(frame, longest);
        Some(())
    }
}

/// Says how a plain frame is cut into segments of at most so many bytes of TCP, if it is longer,
/// and right.
fn cut(frame: &mut FrameBuf, longest: usize) -> Option<()> {
    let packet = Packet::parse(frame.data())?;
    let bytes = frame.data().get(packet.transport_at..packet.end)?;
    let header_len = usize::from(*bytes.get(12)? >> 4) * 4;
    let is_long = bytes.len() > longest && longest > header_len;
    if !is_long || !packet.is_segment_right(frame.data()) {
        return None;
    }
    let flags = bytes[13];
    let kind = if packet.source.is_v4() { GsoKind::Tcp4 } else { GsoKind::Tcp6 };
    let gso = Gso {
        kind,
        size: u16::try_from(longest - header_len).ok()?,
        header_len: u16::try_from(packet.transport_at + header_len).ok()?,
        ecn: flags & CWR != 0,
    };
    let start = u16::try_from(packet.transport_at).ok()?;
    let sum = packet.pseudo_header_sum(frame.data());
    let field = packet.transport_at + CHECKSUM_AT;
    frame.data_mut().get_mut(field..field + 2)?.copy_from_slice(&sum.to_be_bytes());
    let checksum = Checksum::Partial { start, offset: CHECKSUM_AT as u16 };
    frame.set_offload(Offload { checksum, gso: Some(gso) });
    Some(())
}

/// Where the checksum is in a TCP header, and the flag of a window that was reduced (RFC 3168
/// section 6.1).
const CHECKSUM_AT: usize = 16;
const CWR: u8 = 0x80;

fn service_port(frame: &[u8], wrapped: &Wrapped, side: Side) -> u16 {
    let at = wrapped.payload_at + if side == Side::Wire { 2 } else { 0 };
    frame.get(at..at + 2).map_or(0, |port| u16::from_be_bytes([port[0], port[1]]))
}

/// Takes away what is between the fixed IP header and TCP.
fn strip(frame: &mut FrameBuf, wrapped: &Wrapped) -> Taken {
    let mut head = [0; HEAD_BYTES_MAX];
    let segment_len = wrapped.end - wrapped.payload_at;
    let ecn = wrapped.ecn(frame.data());
    let Some(head_len) = wrapped.write_plain_head(frame.data(), segment_len, ecn, &mut head) else {
        return Taken::No;
    };
    let gone = wrapped.payload_at - head_len;
    let Some(offload) = frame.offload().nearer(gone as u16) else { return Taken::No };
    let data = frame.data_mut();
    data.copy_within(wrapped.payload_at..wrapped.end, head_len);
    data[..head_len].copy_from_slice(&head[..head_len]);
    frame.set_len(head_len + segment_len);
    frame.set_offload(offload);
    Taken::Plain
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Tags, write_headers};
    use nicache_tcp::{Flags, HeadRepr, Seq, checksum};
    use proptest::prelude::*;

    use super::*;

    const IP_AT: usize = 14;
    const TCP_AT: usize = 34;

    /// A segment to a port of a service, with a right checksum.
    fn segment(port: u16, payload: usize) -> Vec<u8> {
        let v4 = |last| Ipv4Addr::new(10, 0, 0, last).into();
        let addresses = Addresses {
            source_mac: [1; 6],
            destination_mac: [2; 6],
            tags: Tags::default(),
            source: v4(1),
            destination: v4(2),
        };
        let tcp = HeadRepr {
            flags: Flags::ACK,
            src_port: 5000,
            dst_port: port,
            seq: Seq(7),
            ..HeadRepr::default()
        };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, &tcp, payload as u32, 3, &mut bytes);
        let mut frame = bytes[..len].to_vec();
        frame.extend((0..payload).map(|at| at as u8));
        let sum = !checksum::sum(&frame[TCP_AT..]);
        frame[TCP_AT + CHECKSUM_AT..TCP_AT + CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
        // It may be cut.
        frame[IP_AT + 6] = 0;
        seal(&mut frame);
        frame
    }

    fn seal(frame: &mut [u8]) {
        frame[IP_AT + 10..IP_AT + 12].fill(0);
        let sum = !checksum::sum(&frame[IP_AT..TCP_AT]);
        frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum.to_be_bytes());
    }

    /// The part of a frame with these bytes of the segment.
    fn part(frame: &[u8], bytes: Range<usize>) -> Vec<u8> {
        let segment = &frame[TCP_AT..];
        let more = if bytes.end < segment.len() { IPV4_MORE } else { 0 };
        let mut cut = [&frame[..TCP_AT], &segment[bytes.clone()]].concat();
        cut[IP_AT + 2..IP_AT + 4].copy_from_slice(&((20 + bytes.len()) as u16).to_be_bytes());
        cut[IP_AT + 6..IP_AT + 8].copy_from_slice(&(more | (bytes.start / 8) as u16).to_be_bytes());
        seal(&mut cut);
        cut
    }
    const IPV4_MORE: u16 = 0x2000;

    fn numbered(mut frame: Vec<u8>, id: u16) -> Vec<u8> {
        frame[IP_AT + 4..IP_AT + 6].copy_from_slice(&id.to_be_bytes());
        seal(&mut frame);
        frame
    }

    struct Bench {
        reassembly: Reassembly,
        passed: Vec<Vec<u8>>,
        now: Time,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                reassembly: Reassembly::new(),
                passed: Vec::new(),
                now: Time::ZERO + Duration::from_secs(9),
            }
        }

        /// What becomes of it; what goes on is in `passed`, the frame itself, too.
        fn take(&mut self, bytes: &[u8]) -> (Taken, FrameBuf) {
            let mut frame = FrameBuf::new();
            frame.copy_from(&[IoSlice::new(bytes)], Offload::default()).unwrap();
            let passed = &mut self.passed;
            let pass = |_, bytes: &[u8]| passed.push(bytes.to_vec());
            let taken =
                self.reassembly.take(&mut frame, Side::Wire, self.now, |port| port == 80, pass);
            if taken == Taken::No {
                self.passed.push(bytes.to_vec());
            }
            (taken, frame)
        }
    }

    /// Cuts of a segment, in an order.
    fn cuts() -> impl Strategy<Value = (usize, Vec<usize>, Vec<usize>)> {
        (100usize..3000, prop::collection::btree_set(3usize..120, 0..6)).prop_flat_map(
            |(payload, places)| {
                let len = payload + 20;
                let mut ends: Vec<usize> =
                    places.into_iter().map(|place| place * 8).filter(|end| *end < len).collect();
                ends.push(len);
                let order = (0..ends.len()).collect::<Vec<_>>();
                (Just(payload), Just(ends), Just(order).prop_shuffle())
            },
        )
    }

    fn parts(frame: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends).map(|(start, end)| part(frame, start..*end)).collect()
    }

    proptest! {
        /// In whatever order parts come, and however often: the last one makes it whole, and its
        /// bytes are those that were sent.
        #[test]
        fn parts_are_put_together((payload, ends, order) in cuts(), twice in any::<bool>()) {
            let (frame, mut bench) = (segment(80, payload), Bench::new());
            let parts = parts(&frame, &ends);
            if parts.len() == 1 {
                return Ok(());
            }
            for (count, at) in order.iter().enumerate() {
                let is_last = count + 1 == order.len();
                if twice && !is_last {
                    prop_assert_eq!(bench.take(&parts[*at]).0, Taken::Kept);
                }
                let (taken, whole) = bench.take(&parts[*at]);
                prop_assert_eq!(taken, if is_last { Taken::Plain } else { Taken::Kept });
                if !is_last {
                    continue;
                }
                let longest = parts.iter().map(|part| part.len() - TCP_AT).max().unwrap();
                let gso = whole.offload().gso.unwrap();
                prop_assert_eq!(usize::from(gso.size), longest - 20);
                prop_assert_eq!(&whole.data()[TCP_AT + 20..], &frame[TCP_AT + 20..]);
                prop_assert_eq!(&whole.data()[..TCP_AT + 16], &frame[..TCP_AT + 16]);
            }
            prop_assert!(bench.passed.is_empty());
            prop_assert_eq!(bench.reassembly.due(), None);
        }

        /// What is not a service's goes on as it came, all of it.
        #[test]
        fn others_have_all_their_parts((payload, ends, order) in cuts()) {
            let (frame, mut bench) = (segment(81, payload), Bench::new());
            let mut parts = parts(&frame, &ends);
            if parts.len() == 1 {
                return Ok(());
            }
            order.iter().for_each(|at| drop(bench.take(&parts[*at])));
            bench.passed.sort();
            parts.sort();
            prop_assert_eq!(&bench.passed, &parts);
        }

        /// However many come, so many datagrams wait at most, and none for ever; what goes on came
        /// before, and once.
        #[test]
        fn floods_go_on(frames in prop::collection::vec((0u16..60, 0usize..6, 1usize..6), 0..300)) {
            let (frame, mut bench) = (segment(80, 200), Bench::new());
            let mut sent = Vec::new();
            for (id, start, len) in frames {
                let end = ((start + len) * 24).min(220);
                let bytes = numbered(part(&frame, (start * 24).min(end - 1) / 8 * 8..end), id);
                bench.take(&bytes);
                sent.push(bytes);
                prop_assert!(bench.reassembly.waiting <= DATAGRAMS_MAX);
            }
            bench.now += WAIT;
            let passed = &mut bench.passed;
            bench.reassembly.give_up(bench.now, |_, bytes| passed.push(bytes.to_vec()));
            prop_assert_eq!((bench.reassembly.waiting, bench.reassembly.due()), (0, None));
            for passed in &bench.passed {
                let at = sent.iter().position(|bytes| bytes == passed);
                prop_assert!(at.is_some());
                sent.swap_remove(at.unwrap());
            }
        }
    }

    #[test]
    fn parts_that_overlap_are_for_the_server_to_judge() {
        let (frame, mut bench) = (segment(80, 200), Bench::new());
        let parts = [part(&frame, 0..104), part(&frame, 96..160), part(&frame, 104..220)];
        assert_eq!(
            parts.each_ref().map(|part| bench.take(part).0),
            [Taken::Kept, Taken::No, Taken::No]
        );
        assert_eq!(bench.passed, parts);
    }

    #[test]
    fn parts_that_wait_in_vain_go_on() {
        let (frame, mut bench) = (segment(80, 200), Bench::new());
        let first = part(&frame, 0..104);
        assert_eq!(bench.take(&first).0, Taken::Kept);
        assert_eq!(bench.reassembly.due(), Some(bench.now + WAIT));
        bench.now += WAIT;
        let passed = &mut bench.passed;
        bench.reassembly.give_up(bench.now, |_, bytes| passed.push(bytes.to_vec()));
        assert_eq!(bench.passed, [first]);
    }

    #[test]
    fn congestion_on_the_way_of_one_part_is_that_of_all() {
        let (frame, mut bench) = (segment(80, 200), Bench::new());
        let (first, mut last) = (part(&frame, 0..104), part(&frame, 104..220));
        last[IP_AT + 1] |= 3;
        seal(&mut last);
        bench.take(&first);
        let (taken, whole) = bench.take(&last);
        assert_eq!((taken, whole.data()[IP_AT + 1]), (Taken::Plain, 3));
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut frame = segment(80, 200);
        frame[TCP_AT + 30] ^= 1;
        let mut bench = Bench::new();
        bench.take(&part(&frame, 0..104));
        let (taken, whole) = bench.take(&part(&frame, 104..220));
        assert_eq!((taken, whole.offload()), (Taken::Plain, Offload::default()));
        assert!(!Packet::parse(whole.data()).unwrap().is_segment_right(whole.data()));
    }
}
