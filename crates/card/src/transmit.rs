//! Segments that the card sends by itself: replies and acknowledgments to clients, requests and acknowledgments to the host.

use nicache_http::HttpDate;
use nicache_port::Port;
use nicache_tcp::splice::window_field;
use nicache_tcp::{Flags, HeadRepr, SackBlocks, Seq, Time, Transmit, TransmitKind, checksum};

use crate::bus::FrameBytes;
use crate::card::{Card, Ports};
use crate::counters::Counters;
use crate::emit::{Addresses, Gather, Headers};
use crate::flow::reply::{Reply, ReplyKind};
use crate::flow::{Flow, HostPhase};
use crate::limits::{RENDERED_HEAD_BYTES_MAX, REQUEST_WINDOW_BYTES, SUPER_FRAME_BYTES};
use crate::store::Store;

impl<W: Port, H: Port> Card<W, H> {
    /// Sends what the client's window and the congestion window allow.
    pub(crate) fn pump_client(&mut self, flow: &mut Flow, now: Time) {
        let bytes_max = if self.ports.wire.capabilities().tso { SUPER_FRAME_BYTES } else { u32::from(flow.mss) };
        while let Some(transmit) = flow.sender.poll_transmit(now, bytes_max) {
            if !matches!(transmit.kind, TransmitKind::New) {
                self.counters.retransmits += 1;
            }
            self.send_reply_segment(flow, &transmit, now);
        }
    }

    fn send_reply_segment(&mut self, flow: &mut Flow, transmit: &Transmit, now: Time) {
        let mut flags = Flags::ACK;
        if transmit.fin {
            flags = flags | Flags::FIN;
        }
        if transmit.len > 0 && transmit.seq + transmit.len == flow.out_next {
            flags = flags | Flags::PSH;
        }
        let head = HeadRepr {
            src_port: flow.key.server_port,
            dst_port: flow.key.client_port,
            seq: transmit.seq,
            ack: flow.rcv_nxt,
            flags,
            window: window_field(REQUEST_WINDOW_BYTES, flow.card_scale),
            timestamps: flow.stamps_to_client(now),
            sack: SackBlocks::EMPTY,
            syn_options: None,
        };
        flow.acked_to_client = flow.rcv_nxt;
        flow.ack_due = None;
        let addresses = to_client(flow);
        let capabilities = self.ports.wire.capabilities();
        self.ports.ip_id = self.ports.ip_id.wrapping_add(transmit.len.div_ceil(u32::from(flow.mss)).max(1) as u16);
        let ip_id = self.ports.ip_id;
        render_heads(flow, &self.store, &self.date, transmit.seq, transmit.len, &mut self.heads);
        let mut sum = (0u16, 0usize);
        let mut headers = None;
        if capabilities.checksum {
            headers =
                Some(Headers::new(&addresses, &head, transmit.len as usize, flow.mss, ip_id, &capabilities, || 0));
        } else {
            visit_payload(flow, &self.store, transmit.seq, transmit.len, &self.heads, |piece| {
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
        let headers = headers.unwrap_or_else(|| {
            Headers::new(&addresses, &head, transmit.len as usize, flow.mss, ip_id, &capabilities, || sum.0)
        });
        let mut gather = Gather::new();
        gather.push(headers.bytes());
        let mut whole = true;
        visit_payload(flow, &self.store, transmit.seq, transmit.len, &self.heads, |piece| match piece {
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
        // More pieces than a gather list has places (many pipelined small replies): copied into one.
        let linear = &mut self.linear;
        let mut filled = 0;
        visit_payload(flow, &self.store, transmit.seq, transmit.len, &self.heads, |piece| {
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
            let parts = [std::io::IoSlice::new(headers.bytes()), std::io::IoSlice::new(&linear[..filled])];
            self.ports.send_to_wire(&parts, headers.offload, counters);
        }
    }

    /// Acknowledges to the client what the card has taken.
    pub(crate) fn ack_client(&mut self, flow: &mut Flow, now: Time) {
        flow.ack_due = None;
        flow.acked_to_client = flow.rcv_nxt;
        let seq = out_position(flow);
        self.send_to_client(flow, seq, Flags::ACK, now);
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
            sack: SackBlocks::EMPTY,
            syn_options: None,
        };
        self.emit_to_client(flow, &head);
    }

    /// Sends a segment that consists of a header to the client.
    pub(crate) fn emit_to_client(&mut self, flow: &Flow, head: &HeadRepr) {
        self.ports.ip_id = self.ports.ip_id.wrapping_add(1);
        let capabilities = self.ports.wire.capabilities();
        let headers = Headers::new(&to_client(flow), head, 0, flow.mss, self.ports.ip_id, &capabilities, || 0);
        self.ports.send_to_wire(&[std::io::IoSlice::new(headers.bytes())], headers.offload, &mut self.counters);
    }

    /// Sends to the host what it has yet to get of the client's bytes.
    pub(crate) fn pump_host(&mut self, flow: &mut Flow, now: Time) {
        if !matches!(flow.host.phase, HostPhase::Open | HostPhase::Closing) {
            return;
        }
        let mss = flow.client_options.mss.unwrap_or(536).min(self.config.mss);
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
        let head = host_head(flow, flow.host.sender.nxt(), Flags::ACK, sack);
        flow.host.window = host_window(flow);
        send_host_frame(&mut self.ports, &mut self.counters, flow, &head, &[]);
    }

    /// Sends a segment that consists of a header to the host.
    pub(crate) fn emit_to_host(&mut self, flow: &Flow, head: &HeadRepr) {
        send_host_frame(&mut self.ports, &mut self.counters, flow, head, &[]);
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
    let headers = Headers::new(&to_host(flow), head, payload.len(), u16::MAX, ports.ip_id, &capabilities, || {
        checksum::sum(payload)
    });
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
        syn_options: None,
    }
}

/// The sequence number that the client expects next from this side.
pub(crate) fn out_position(flow: &Flow) -> Seq {
    flow.sent()
}

fn to_client(flow: &Flow) -> Addresses {
    Addresses {
        source_mac: flow.server_mac,
        destination_mac: flow.client_mac,
        source: flow.key.server,
        destination: flow.key.client,
    }
}

fn to_host(flow: &Flow) -> Addresses {
    Addresses {
        source_mac: flow.client_mac,
        destination_mac: flow.server_mac,
        source: flow.key.client,
        destination: flow.key.server,
    }
}

enum Piece<'a> {
    Head(&'a [u8]),
    Body(nicache_memory::BodyId, std::ops::Range<u64>),
}

/// The part of `reply` that lies in `len` bytes from `seq`: first and last byte, counted from the reply's start.
fn overlap(reply: &Reply, seq: Seq, len: u32) -> Option<(u32, u32)> {
    let from = seq.saturating_since(reply.start);
    let to = (seq + len).saturating_since(reply.start).min(reply.len());
    (from < to).then_some((from, to))
}

/// Renders the heads that lie in `len` bytes from `seq`, each into a place of its own. A retransmission renders the
/// same bytes again, with the date of the first time.
fn render_heads(flow: &Flow, store: &Store, now: &HttpDate, seq: Seq, len: u32, heads: &mut [u8]) {
    for (reply, place) in flow.replies.iter().zip(heads.chunks_exact_mut(RENDERED_HEAD_BYTES_MAX)) {
        let Some((from, _)) = overlap(reply, seq, len) else { continue };
        if from >= reply.head_len {
            continue;
        }
        let Some(entry) = store.get(reply.entry) else { continue };
        let template = match reply.kind {
            ReplyKind::NotModified => entry.not_modified.as_ref(),
            ReplyKind::Full | ReplyKind::HeadOnly => Some(&entry.template),
        };
        let Some(template) = template else { continue };
        let filled = if reply.date == now.unix_s() {
            template.render(now, place)
        } else {
            template.render(&HttpDate::from_unix_s(reply.date), place)
        };
        if reply.kind == ReplyKind::Full
            && let Some(rest) = place.get_mut(filled..filled + entry.prefix.len())
        {
            rest.copy_from_slice(&entry.prefix);
        }
    }
}

/// Calls `visit` with the pieces of `len` bytes from `seq`, in order.
fn visit_payload<'a>(
    flow: &Flow,
    store: &Store,
    seq: Seq,
    len: u32,
    heads: &'a [u8],
    mut visit: impl FnMut(Piece<'a>),
) {
    for (reply, head) in flow.replies.iter().zip(heads.chunks_exact(RENDERED_HEAD_BYTES_MAX)) {
        let Some((from, to)) = overlap(reply, seq, len) else { continue };
        if from < reply.head_len {
            visit(Piece::Head(&head[from as usize..to.min(reply.head_len) as usize]));
        }
        if to > reply.head_len
            && let Some(entry) = store.get(reply.entry)
        {
            let first = from.max(reply.head_len) - reply.head_len;
            visit(Piece::Body(entry.body, u64::from(first)..u64::from(to - reply.head_len)));
        }
    }
}
