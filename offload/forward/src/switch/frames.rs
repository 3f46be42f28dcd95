//! Segments of our own: answers to clients, and what is said to back ends in their name.

use nicache_tcp::checksum;
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Mac, write_headers};
use nicache_tcp::handshake::Limits;
use nicache_tcp::splice::window_field;
use nicache_tcp::wire::CHECKSUM_OFFSET;
use nicache_tcp::{Flags, HeadRepr, SegmentHead, Time, Timestamps};

use super::{SCALE, Step, Switch, Waiting};
use crate::counters::Drop;
use crate::decision::{Decision, HEAD_BYTES_MAX, Head};
use crate::forwarder::Forwarder;
use crate::interface::Interface;
use crate::packet::Packet;
use crate::tuple::Tuple;

/// Bytes of payload of a segment of ours at most: it is sent as a head.
pub(super) const OWN_BYTES_MAX: u16 = (HEAD_BYTES_MAX - HEADERS_BYTES_MAX) as u16 / 8 * 8;

/// A whole frame by an interface.
pub(crate) fn frame(
    interface: &Interface,
    to: Mac,
    tuple: &Tuple,
    repr: HeadRepr,
    payload: &[u8],
) -> Vec<u8> {
    let addresses = Addresses {
        source_mac: interface.mac,
        destination_mac: to,
        tags: interface.tags,
        source: tuple.source.address.into(),
        destination: tuple.destination.address.into(),
    };
    let repr = HeadRepr { src_port: tuple.source.port, dst_port: tuple.destination.port, ..repr };
    let mut headers = [0; HEADERS_BYTES_MAX];
    let len = write_headers(&addresses, &repr, payload.len() as u32, 0, &mut headers);
    let mut frame = [&headers[..len], payload].concat();
    let tcp_at = addresses.tcp_at();
    let sum = checksum::finish(checksum::sum(&frame[tcp_at..]));
    frame[tcp_at + CHECKSUM_OFFSET..tcp_at + CHECKSUM_OFFSET + 2]
        .copy_from_slice(&sum.to_be_bytes());
    frame
}

impl Waiting {
    /// A segment to the client: what we have of it, and how much more we take.
    pub(super) fn segment(&self, flags: Flags, now: Time) -> HeadRepr {
        HeadRepr {
            seq: self.ours + u32::from(!flags.syn()),
            ack: self.receiver.nxt(),
            flags: flags | Flags::ACK,
            window: window_field(self.receiver.window(), self.scale),
            timestamps: self
                .options
                .timestamps
                .map(|_| Timestamps { val: self.clock.at(now), ecr: self.recent.recent() }),
            ..HeadRepr::default()
        }
    }
}

impl Forwarder {
    pub(super) fn switch(&mut self) -> &mut Switch {
        self.switch.as_deref_mut().expect("a service is by name")
    }

    /// What we offer clients of a service.
    pub(super) fn offer(&mut self, service: u16, is_v6: bool) -> Limits {
        // The back end is not known yet: no segment is longer than any link takes.
        let mtu = self
            .links
            .interfaces
            .iter()
            .map(|interface| interface.mtu)
            .min()
            .unwrap_or(0)
            .min(65_535);
        let mss = (mtu as u16).saturating_sub(if is_v6 { 60 } else { 40 });
        let learned = &self.switch().learned;
        let (timestamps, mss) = (learned.offers_timestamps(service), learned.mss(service, mss));
        Limits { mss, window_scale: Some(SCALE), sack: true, timestamps, ecn: false, v6: is_v6 }
    }

    /// The answer to a packet is this segment.
    pub(crate) fn answer(
        &mut self,
        packet: &Packet<'_>,
        head: &mut Head,
        repr: HeadRepr,
    ) -> Decision {
        let mut mac = [0; 6];
        mac.copy_from_slice(&packet.frame[6..12]);
        let tuple = packet.view.tuple().map_or(Tuple::NOBODY, Tuple::reversed);
        let frame = frame(&self.links.interfaces[packet.interface], mac, &tuple, repr, &[]);
        head.clear();
        head.try_extend_from_slice(&frame).expect("headers alone");
        Decision::Answer { interface: packet.interface }
    }

    /// A segment that belongs to nothing (RFC 9293 section 3.10.7.1).
    pub(super) fn answer_stray(
        &mut self,
        packet: &Packet<'_>,
        tcp: &SegmentHead,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        if !self.switch().stray_resets.take(now) {
            self.counters.resets_held_back += 1;
            return Err(Drop::ResetLimit);
        }
        self.counters.switch_stray += 1;
        let len = packet.view.end - packet.view.transport_at - tcp.header_len;
        let repr = if tcp.flags.ack() {
            HeadRepr { seq: tcp.ack, flags: Flags::RST, ..HeadRepr::default() }
        } else {
            let ack = tcp.seq + tcp.segment_len(len as u32);
            HeadRepr { ack, flags: Flags::RST | Flags::ACK, ..HeadRepr::default() }
        };
        Ok(self.answer(packet, head, repr))
    }

    /// Whether a client may be told that its connection ends here.
    pub(super) fn may_reset(&mut self, now: Time) -> bool {
        let may = self.switch().ending_resets.take(now);
        self.counters.resets_held_back += u64::from(!may);
        may
    }

    /// Tells a client that its connection ends, without having been asked.
    pub(super) fn reset_client(&mut self, waiting: &Waiting, now: Time) {
        if !self.may_reset(now) {
            return;
        }
        let interface = waiting.interface;
        let mut repr = HeadRepr { timestamps: None, ..waiting.segment(Flags::RST, now) };
        if let Step::Draining { id, drain } = &waiting.step
            && let Some(switched) =
                self.conntrack.get(*id).and_then(|connection| connection.note.switched)
        {
            // Its back end may have said something: behind what the client has of that.
            repr.seq = switched.splice.out_to_client(drain.ack);
        }
        let frame = frame(
            &self.links.interfaces[interface],
            waiting.mac,
            &waiting.tuple.reversed(),
            repr,
            &[],
        );
        self.switch().queue(interface, frame);
    }

    /// Says something to a back end. False: there is no way to it at the moment; its MAC address is
    /// asked for.
    pub(super) fn tell_back_end(
        &mut self,
        tuple: &Tuple,
        repr: HeadRepr,
        payload: &[u8],
        now: Time,
    ) -> bool {
        let destination = tuple.destination.address;
        let Some(route) = self.links.routes.find(destination).copied() else { return false };
        if !self.links.may_leave(route.interface, tuple.source.address) {
            return false;
        }
        let Some(mac) = self.links.resolve(&route, destination, now) else { return false };
        let frame = frame(&self.links.interfaces[route.interface], mac, tuple, repr, payload);
        self.switch().queue(route.interface, frame)
    }
}
