//! Segments that the card sends by itself: replies and acknowledgments to clients, requests and
//! acknowledgments to the host.

use nicache_port::Port;
use nicache_tcp::handshake::{MSS_DEFAULT_V4, MSS_MIN};
use nicache_tcp::splice::window_field;
use nicache_tcp::{Flags, HeadRepr, SackBlocks, Seq, Time, Transmit, TransmitKind, checksum};

use crate::bus::FrameBytes;
use crate::card::Card;
use crate::counters::Counters;
use crate::emit::{Addresses, Gather, Headers};
use crate::flow::reply::ReplyKind;
use crate::flow::{Flow, HostPhase};
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::payload::{self, Piece, Sources};
use crate::ports::Ports;

impl<W: Port, H: Port> Card<W, H> {
    /// Sends a reply that goes in one segment, for the first time: the only one that is not
    /// acknowledged.
    #[inline]
    pub(crate) fn send_whole_reply(&mut self, flow: &mut Flow, transmit: &Transmit, now: Time) {
        let capabilities = self.ports.wire.capabilities();
        let only = flow.replies.only().filter(|reply| {
            let is_whole = reply.start == transmit.seq
                && reply.len() == transmit.len
                && reply.kind == ReplyKind::Full;
            is_whole && capabilities.checksum && reply.date == self.unix_s
        });
        let Some(&reply) = only else { return self.send_reply_segment(flow, transmit, now) };
        let head = reply_header(flow, transmit, now);
        self.ports.ip_id = self.ports.ip_id.wrapping_add(1);
        let ip_id = self.ports.ip_id;
        let Some(entry) = self.store.get(reply.entry) else { return };
        payload::render_whole(&reply, entry, &self.date, &mut self.heads);
        let headers = Headers::new(
            &to_client(flow),
            &head,
            transmit.len as usize,
            flow.mss,
            ip_id,
            &capabilities,
            || 0,
        );
        let mut gather = Gather::new();
        gather.push(headers.bytes());
        gather.push(self.heads.get(..reply.head_len as usize).unwrap_or_default());
        let mut whole = true;
        if let Ok(extents) = self.store.memory().extents(entry.body, 0..u64::from(reply.body_len)) {
            for extent in extents {
                whole &= gather.push(extent);
            }
        }
        if whole && gather.len() == headers.bytes().len() + transmit.len as usize {
            self.ports.send_to_wire(gather.parts(), headers.offload, &mut self.counters);
        }
    }

    /// Sends a segment, or super-frame, of replies.
    pub(crate) fn send_reply_segment(&mut self, flow: &mut Flow, transmit: &Transmit, now: Time) {
        if !matches!(transmit.kind, TransmitKind::New) {
            self.counters.retransmits += 1;
        }
        let head = reply_header(flow, transmit, now);
        let addresses = to_client(flow);
        let capabilities = self.ports.wire.capabilities();
        self.ports.ip_id = self.ports.ip_id.wrapping_add(segments(transmit.len, flow.mss) as u16);
        let ip_id = self.ports.ip_id;
        let from = Sources { store: &self.store, parts: &self.part_sets };
        payload::render(flow, from, &self.date, transmit.seq, transmit.len, &mut self.heads);
        let mut sum = (0u16, 0usize);
        if !capabilities.checksum {
            payload::visit(flow, from, transmit.seq, transmit.len, &self.heads, |piece| {
                let (piece_sum, len) = match piece {
                    Piece::Head(bytes) => (checksum::sum(bytes), bytes.len()),
                    Piece::Body(body, range) => (
                        self.store.memory().checksum(body, range.clone()).unwrap_or(0),
                        (range.end - range.start) as usize,
                    ),
                };
                sum = (checksum::concat(sum.0, sum.1, piece_sum), sum.1 + len);
            });
        }
        let headers = Headers::new(
            &addresses,
            &head,
            transmit.len as usize,
            flow.mss,
            ip_id,
            &capabilities,
            || sum.0,
        );
        let mut gather = Gather::new();
        gather.push(headers.bytes());
        let mut whole = true;
        payload::visit(flow, from, transmit.seq, transmit.len, &self.heads, |piece| match piece {
            Piece::Head(bytes) => whole &= gather.push(bytes),
            Piece::Body(body, range) => {
                if let Ok(extents) = self.store.memory().extents(body, range) {
                    for extent in extents {
                        whole &= gather.push(extent);
                    }
                }
            }
        });
        let counters = &mut self.counters;
        if whole && gather.len() == headers.bytes().len() + transmit.len as usize {
            self.ports.send_to_wire(gather.parts(), headers.offload, counters);
            return;
        }
        // More pieces than a gather list has places (many pipelined small replies): copied into
        // one.
        let linear = &mut self.linear;
        let mut filled = 0;
        payload::visit(flow, from, transmit.seq, transmit.len, &self.heads, |piece| {
            let mut copy = |bytes: &[u8]| {
                let end = (filled + bytes.len()).min(linear.len());
                linear[filled..end].copy_from_slice(&bytes[..end - filled]);
                filled = end;
            };
            match piece {
                Piece::Head(bytes) => copy(bytes),
                Piece::Body(body, range) => {
                    if let Ok(extents) = self.store.memory().extents(body, range) {
                        extents.for_each(&mut copy);
                    }
                }
            }
        });
        if filled == transmit.len as usize {
            let parts =
                [std::io::IoSlice::new(headers.bytes()), std::io::IoSlice::new(&linear[..filled])];
            self.ports.send_to_wire(&parts, headers.offload, counters);
        }
    }

    /// Acknowledges to the client what the card has taken.
    pub(crate) fn ack_client(&mut self, flow: &mut Flow, now: Time) {
        flow.ack_due = None;
        flow.acked_to_client = flow.rcv_nxt;
        let seq = out_position(flow);
        let flags = Flags::ACK | flow.ecn.flags();
        self.send_to_client(flow, seq, flags, now);
    }

    /// Sends a segment without payload to the client.
    pub(crate) fn send_to_client(&mut self, flow: &mut Flow, seq: Seq, flags: Flags, now: Time) {
        let head = HeadRepr {
            src_port: flow.key.server_port,
            dst_port: flow.key.client_port,
            seq,
            ack: flow.rcv_nxt,
            flags,
            window: window_field(REQUEST_WINDOW_BYTES, flow.card_scale),
            timestamps: flow.stamps_to_client(now),
            ..HeadRepr::default()
        };
        self.emit_to_client(flow, &head);
    }

    /// Sends a segment that consists of a header to the client.
    pub(crate) fn emit_to_client(&mut self, flow: &Flow, head: &HeadRepr) {
        self.ports.ip_id = self.ports.ip_id.wrapping_add(1);
        let capabilities = self.ports.wire.capabilities();
        let headers = Headers::new(
            &to_client(flow),
            head,
            0,
            flow.mss,
            self.ports.ip_id,
            &capabilities,
            || 0,
        );
        self.ports.send_to_wire(
            &[std::io::IoSlice::new(headers.bytes())],
            headers.offload,
            &mut self.counters,
        );
    }

    /// Sends to the host what it has yet to get of the client's bytes.
    pub(crate) fn pump_host(&mut self, flow: &mut Flow, now: Time) {
        if !matches!(flow.host.phase, HostPhase::Open | HostPhase::Closing) {
            return;
        }
        // A client may say that it takes nothing at all.
        let mss = flow.client_options.mss.unwrap_or(MSS_DEFAULT_V4).max(MSS_MIN);
        let mss = mss.min(self.config.mss(flow.key.client.is_v4()));
        while let Some(transmit) = flow.host.sender.poll_transmit(now, u32::from(mss)) {
            let mut flags = Flags::ACK;
            if transmit.fin {
                flags = flags | Flags::FIN;
            }
            if transmit.len > 0 {
                flags = flags | Flags::PSH;
            }
            let head = host_head(flow, transmit.seq, flags, SackBlocks::EMPTY);
            let payload = flow.hold.as_ref().map_or(&[][..], |hold| {
                let at = transmit.seq.saturating_since(flow.host.sender.una()) as usize;
                let end = (at + transmit.len as usize).min(flow.forwarded).min(hold.len());
                &hold.bytes()[at.min(end)..end]
            });
            send_host_frame(&mut self.ports, &mut self.counters, flow, &head, payload);
        }
    }

    /// Tells the host what the client has of its bytes.
    pub(crate) fn ack_host(&mut self, flow: &mut Flow, sack: SackBlocks) {
        let echo = if flow.client_echo { Flags::ECE } else { Flags::default() };
        let head = host_head(flow, flow.host.sender.nxt(), Flags::ACK | echo, sack);
        flow.host.window = host_window(flow);
        send_host_frame(&mut self.ports, &mut self.counters, flow, &head, &[]);
    }

    /// Sends a segment that consists of a header to the host.
    pub(crate) fn emit_to_host(&mut self, flow: &Flow, head: &HeadRepr) {
        send_host_frame(&mut self.ports, &mut self.counters, flow, head, &[]);
    }
}

/// The header of a segment of replies, whose acknowledgment is then given.
#[inline]
fn reply_header(flow: &mut Flow, transmit: &Transmit, now: Time) -> HeadRepr {
    let mut flags = Flags::ACK | flow.ecn.flags();
    if transmit.fin {
        flags = flags | Flags::FIN;
    }
    if transmit.cwr {
        flags = flags | Flags::CWR;
    }
    if transmit.len > 0 && transmit.seq + transmit.len == flow.out_next {
        flags = flags | Flags::PSH;
    }
    let timestamps = flow.stamps_to_client(now);
    flow.acked_to_client = flow.rcv_nxt;
    flow.ack_due = None;
    HeadRepr {
        src_port: flow.key.server_port,
        dst_port: flow.key.client_port,
        seq: transmit.seq,
        ack: flow.rcv_nxt,
        flags,
        window: window_field(REQUEST_WINDOW_BYTES, flow.card_scale),
        timestamps,
        sack: SackBlocks::EMPTY,
        syn_options: None,
        ecn: transmit.ecn,
    }
}

fn send_host_frame<W: Port, H: Port>(
    ports: &mut Ports<W, H>,
    counters: &mut Counters,
    flow: &Flow,
    head: &HeadRepr,
    payload: &[u8],
) {
    ports.ip_id = ports.ip_id.wrapping_add(1);
    let capabilities = ports.host.capabilities();
    let headers = Headers::new(
        &to_host(flow),
        head,
        payload.len(),
        u16::MAX,
        ports.ip_id,
        &capabilities,
        || checksum::sum(payload),
    );
    let bytes = FrameBytes {
        network_headers: headers.bytes().len() as u64,
        application_headers: payload.len() as u64,
        content: 0,
        other: 0,
    };
    let parts = [std::io::IoSlice::new(headers.bytes()), std::io::IoSlice::new(payload)];
    ports.send_to_host(&parts, headers.offload, bytes, counters);
}

/// The window that the host may use: what the client's window leaves beyond the bytes of others.
pub(crate) fn host_window(flow: &Flow) -> u32 {
    flow.splice.out_to_host(flow.client_edge).saturating_since(flow.host.acked)
}

/// The header of a segment of the card to the host.
pub(crate) fn host_head(flow: &Flow, seq: Seq, flags: Flags, sack: SackBlocks) -> HeadRepr {
    HeadRepr {
        src_port: flow.key.client_port,
        dst_port: flow.key.server_port,
        seq,
        ack: flow.host.acked,
        flags,
        window: window_field(host_window(flow), flow.splice.host_peer_scale),
        timestamps: flow.stamps_to_host(),
        sack,
        ..HeadRepr::default()
    }
}

/// The sequence number that the host expects next, as far as is known: on an opaque connection it
/// is ahead of what the card has sent.
pub(crate) fn in_position(flow: &Flow) -> Seq {
    flow.host.sender.nxt().max(flow.host_acked_in)
}

/// The sequence number that the client expects next from this side.
pub(crate) fn out_position(flow: &Flow) -> Seq {
    flow.sent()
}

/// Segments of `len` bytes, one at least. Most replies are one, and need no division.
pub(crate) fn segments(len: u32, mss: u16) -> u32 {
    if len <= u32::from(mss) { 1 } else { len.div_ceil(u32::from(mss)) }
}

fn to_client(flow: &Flow) -> Addresses {
    Addresses {
        source_mac: flow.server_mac,
        destination_mac: flow.client_mac,
        tags: flow.tags,
        source: flow.key.server,
        destination: flow.key.client,
    }
}

fn to_host(flow: &Flow) -> Addresses {
    Addresses {
        source_mac: flow.client_mac,
        destination_mac: flow.server_mac,
        tags: flow.tags,
        source: flow.key.client,
        destination: flow.key.server,
    }
}
