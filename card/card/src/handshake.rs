//! Opening connections: watched while the host answers, or answered by the card itself.

use std::time::Duration;

use nicache_port::{FrameBuf, Port};
use nicache_tcp::ecn::EcnReceiver;
use nicache_tcp::half_open::Admission;
use nicache_tcp::handshake::{Agreement, Limits, SYN_ACK_REPETITIONS_MAX, answer, observed};
use nicache_tcp::splice::window_field;
use nicache_tcp::timestamps::{Paws, TsClock};
use nicache_tcp::{
    Flags, HeadRepr, SackBlocks, SegmentHead, Sender, SenderConfig, Seq, SynOptions, Time,
    Timestamps, isn,
};

use crate::card::{Card, Keep, request_frame_bytes};
use crate::config::Handshake;
use crate::flow::{Flow, FlowTimestamps, HostPhase, Phase};
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::packet::TcpFrame;

/// Shift of the windows that the card announces when it answers a SYN.
const CARD_WINDOW_SCALE: u8 = 7;
/// How long a client may take to answer before its handshake gives way, when the table is full. It
/// would be reset when it answers.
const HANDSHAKE_MIN: Duration = Duration::from_secs(1);
/// A SYN that is repeated so soon after the SYN-ACK tells of no other loss: timers of handshakes
/// wait for a second at least (RFC 6298 section 2.1).
const SYN_APART: Duration = Duration::from_millis(500);
/// Places of the flow table looked at for a flow that can be forgotten.
const FORGET_TRIES: usize = 32;

impl<W: Port, H: Port> Card<W, H> {
    /// A segment of a client on a connection that is not tracked.
    pub(crate) fn handle_unknown(&mut self, frame: &mut FrameBuf, tcp: &TcpFrame, now: Time) {
        let bytes = request_frame_bytes(frame, tcp, false);
        if self.answer_time_wait(tcp, now) {
            return;
        }
        let opening = tcp.head.flags.syn()
            && !tcp.head.flags.ack()
            && !tcp.head.flags.rst()
            && !tcp.head.flags.fin();
        // A flow with options that the card does not know (multipath, authentication) is the
        // host's.
        if !opening || tcp.head.unknown_option || tcp.payload_len() > 0 {
            if !self.answer_cookie(frame, tcp, now) {
                self.pass_to_host(frame, bytes);
            }
            return;
        }
        if !self.flows.has_room() {
            self.make_room(now);
        }
        let mut flow = Flow::opening(tcp, now);
        if self.config.handshake == Handshake::Card && !self.bypass && self.lease {
            self.prepare_own_handshake(&mut flow, now);
        }
        let answered = flow.phase == Phase::CardHandshake;
        let (open, limit) = (self.half_open.len(), self.half_open.limit());
        if answered && self.flows.has_room() && self.syn_pressure.is_on(open, limit, now) {
            self.send_cookie(&mut flow, tcp, now);
            return;
        }
        let is_admitted = match self.half_open.admit(now) {
            Admission::Admit => true,
            Admission::Replace(oldest) => {
                // Whoever completes that handshake goes on untracked, or asks the card again.
                self.counters.half_open_evicted += 1;
                self.with_flow(oldest, now, |_, _| Keep::No);
                true
            }
            Admission::Refuse => false,
        };
        let Some(index) = is_admitted.then(|| self.flows.insert(flow)).flatten() else {
            self.counters.flows_untracked += 1;
            self.pass_to_host(frame, bytes);
            return;
        };
        self.counters.flows += 1;
        self.half_open.begin(index, now);
        if answered {
            self.with_flow(index, now, |card, flow| {
                card.send_syn_ack(flow, now);
                Keep::Yes
            });
        } else {
            self.pass_to_host(frame, bytes);
            self.with_flow(index, now, |_, _| Keep::Yes);
        }
    }

    /// Gives up a place of the full table: of the oldest handshake, which may be one of a flood,
    /// before that of a connection; of one that goes on without the card before one that ends,
    /// which is the one that has been silent for longest among some.
    pub(crate) fn make_room(&mut self, now: Time) {
        if let Some(oldest) = self.half_open.oldest(now, HANDSHAKE_MIN) {
            self.counters.half_open_evicted += 1;
            self.with_flow(oldest, now, |_, _| Keep::No);
        } else if let Some(index) = self.flows.find_forgettable(FORGET_TRIES) {
            self.with_flow(index, now, |_, _| Keep::No);
        } else {
            self.end_one_silent(now, |_| true);
        }
    }

    /// The client, while the host answers the handshake.
    pub(crate) fn client_handshake_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        let bytes = request_frame_bytes(frame, tcp, false);
        flow.active = now;
        if head.flags.rst() {
            self.pass_to_host(frame, bytes);
            return Keep::No;
        }
        if head.flags.syn() {
            self.pass_to_host(frame, bytes);
            if tcp.payload_len() > 0 || head.unknown_option {
                return Keep::No;
            }
            *flow = Flow::opening(tcp, now);
            return Keep::Yes;
        }
        let has_bytes = tcp.payload_len() > 0 || head.flags.fin();
        let completes =
            flow.host.phase == HostPhase::Open && head.flags.ack() && head.ack == flow.out_next;
        if !completes || (head.seq != flow.rcv_nxt && !has_bytes) {
            self.pass_to_host(frame, bytes);
            // From the first byte of the client that the host gets past the card, the connection is
            // the host's alone: the card could no longer tell which request a reply is for.
            return if has_bytes { Keep::No } else { Keep::Yes };
        }
        flow.phase = Phase::Requests;
        observe_handshake(flow, head, now);
        flow.client_acked = head.ack;
        flow.client_edge = head.ack + head.window_bytes(flow.splice.client_scale);
        flow.host.acked = flow.host.rcv_nxt;
        if let (Some(stamps), Some(theirs)) = (&mut flow.timestamps, head.timestamps) {
            stamps.client.update(theirs, head.seq, flow.acked_to_client, now);
        }
        if !has_bytes {
            self.pass_to_host(frame, bytes);
            return Keep::Yes;
        }
        // The acknowledgment alone may have been lost or overtaken; its bytes are the card's, and
        // if they are not the first ones, the client sends them again.
        self.ack_host(flow, SackBlocks::EMPTY);
        self.client_request_segment(flow, frame, tcp, now)
    }

    /// The host, while it answers the handshake.
    pub(crate) fn host_handshake_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        let bytes = crate::bus::FrameBytes {
            network_headers: (frame.len() - tcp.payload_len() as usize) as u64,
            content: u64::from(tcp.payload_len()),
            ..Default::default()
        };
        self.pass_to_wire(frame, bytes);
        if head.flags.rst() {
            return Keep::No;
        }
        if let (true, true, Some(options)) = (head.flags.syn(), head.flags.ack(), head.syn_options)
            && head.ack == flow.rcv_nxt
        {
            if head.unknown_option {
                return Keep::No;
            }
            let agreed = observed(&flow.client_options, &options, &self.limits(flow));
            flow.splice.host_peer_scale = agreed.peer.window_scale;
            flow.splice.host_scale = agreed.our_scale;
            flow.out_next = head.seq + 1;
            self.agree(flow, &agreed, head.timestamps.map_or(0, |stamps| stamps.val), now);
            flow.syn_ack_tries = flow.syn_ack_tries.saturating_add(1);
            flow.host.syn_sent = now;
            self.open_host_side(flow, head.seq + 1, head.window_bytes(0), &options, now);
        }
        Keep::Yes
    }

    /// What the card can do toward a client.
    pub(crate) fn limits(&self, flow: &Flow) -> Limits {
        let v4 = flow.key.client.is_v4();
        Limits {
            mss: self.config.mss(v4),
            window_scale: Some(CARD_WINDOW_SCALE),
            sack: true,
            timestamps: true,
            ecn: true,
            v6: !v4,
        }
    }

    /// What both SYNs together agreed on, toward the client; `tsval` is the TSval of the SYN-ACK.
    pub(crate) fn agree(&mut self, flow: &mut Flow, agreed: &Agreement, tsval: u32, now: Time) {
        flow.card_scale = agreed.our_scale;
        flow.splice.card_scale = agreed.our_scale;
        flow.splice.client_scale = agreed.peer.window_scale;
        flow.mss = agreed.peer.mss;
        flow.ecn = EcnReceiver::new(agreed.peer.ecn);
        flow.timestamps = match (agreed.peer.timestamps, flow.client_options.timestamps) {
            (true, Some(client)) => {
                let mut clock = TsClock::default();
                clock.set(tsval, now);
                Some(FlowTimestamps {
                    clock,
                    client: Paws::new(client.val, now),
                    host: tsval,
                    sent: tsval,
                })
            }
            _ => None,
        };
        flow.sender = Sender::new(&SenderConfig::default(), flow.out_next, agreed.peer, 0, now);
    }

    /// The host's side is open: its next byte is `rcv_nxt`.
    fn open_host_side(
        &mut self,
        flow: &mut Flow,
        rcv_nxt: Seq,
        window: u32,
        options: &SynOptions,
        now: Time,
    ) {
        let first = flow.first_held();
        let limits = Limits { timestamps: flow.timestamps.is_some(), ..self.limits(flow) };
        let peer = answer(options, &limits, 0).peer;
        flow.host.phase = HostPhase::Open;
        flow.host.rcv_nxt = rcv_nxt;
        flow.host.acked = rcv_nxt;
        flow.host.fin_passed = false;
        flow.host.fin_taken = false;
        flow.host_base = rcv_nxt;
        flow.fill_looked_at = (now, rcv_nxt);
        flow.host_acked_in = first;
        flow.host.sender = Sender::new(&SenderConfig::default(), first, peer, window, now);
    }

    /// The card answers the SYN in the host's place.
    fn prepare_own_handshake(&mut self, flow: &mut Flow, now: Time) {
        let tuple = flow.key.tuple_bytes();
        let initial = isn::initial(&self.config.isn_key, &tuple, now);
        let tsval = TsClock::new(isn::timestamp_offset(&self.config.isn_key, &tuple)).at(now);
        flow.phase = Phase::CardHandshake;
        flow.out_next = initial + 1;
        flow.client_acked = initial;
        flow.client_edge = initial;
        // Promised before the host has said what it does.
        let limits = Limits { timestamps: self.host_has_timestamps, ..self.limits(flow) };
        let agreed = answer(&flow.client_options, &limits, tsval);
        self.agree(flow, &agreed, tsval, now);
    }

    /// Sends or repeats the card's SYN-ACK.
    pub(crate) fn send_syn_ack(&mut self, flow: &mut Flow, now: Time) {
        flow.syn_ack_tries += 1;
        flow.host.syn_sent = now;
        let limits = Limits { timestamps: flow.timestamps.is_some(), ..self.limits(flow) };
        let mut options = answer(&flow.client_options, &limits, 0).options;
        options.timestamps = flow.stamps_to_client(now);
        let head = HeadRepr {
            src_port: flow.key.server_port,
            dst_port: flow.key.client_port,
            seq: flow.out_next - 1,
            ack: flow.rcv_nxt,
            flags: Flags::SYN | Flags::ACK,
            window: window_field(REQUEST_WINDOW_BYTES, 0),
            syn_options: Some(options),
            ..Default::default()
        };
        self.emit_to_client(flow, &head);
    }

    /// The client, while the card answers the handshake.
    pub(crate) fn card_handshake_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        flow.active = now;
        if head.flags.rst() {
            // RFC 9293 section 3.10.7.4, SYN-RECEIVED.
            return if head.seq == flow.rcv_nxt { Keep::No } else { Keep::Yes };
        }
        if head.flags.syn() {
            if head.seq + 1 == flow.rcv_nxt {
                let (tries, last) = (flow.syn_ack_tries, flow.host.syn_sent);
                self.send_syn_ack(flow, now);
                if tries > 1 && now.since(last) < SYN_APART {
                    // The client's timer and the card's end at the same time, for the same loss.
                    flow.syn_ack_tries = tries;
                }
            }
            return Keep::Yes;
        }
        if !head.flags.ack() {
            return Keep::Yes;
        }
        if head.ack != flow.out_next {
            if head.seq.ge(flow.rcv_nxt) && head.seq.lt(flow.rcv_nxt + REQUEST_WINDOW_BYTES) {
                // The SYN was an old duplicate of one that the host has answered, on a connection
                // that the card does not track any longer.
                self.pass_to_host(frame, request_frame_bytes(frame, tcp, false));
                return Keep::No;
            }
            // RFC 9293 section 3.10.7.4: <SEQ=SEG.ACK><CTL=RST>.
            self.send_to_client(flow, head.ack, Flags::RST, now);
            return Keep::Yes;
        }
        flow.phase = Phase::Requests;
        observe_handshake(flow, head, now);
        flow.client_acked = head.ack;
        flow.client_edge = head.ack + head.window_bytes(flow.splice.client_scale);
        self.client_request_segment(flow, frame, tcp, now)
    }

    /// Opens a connection to the host in the client's name, for a request that is held.
    pub(crate) fn open_host(&mut self, flow: &mut Flow, now: Time) {
        flow.forwarded += self.prepend_preface(flow);
        flow.host.phase = HostPhase::SynSent;
        flow.host.syn_tries = 0;
        self.send_host_syn(flow, now);
    }

    /// Sends or repeats the SYN to the host: the client's own, just in front of the first byte
    /// held.
    pub(crate) fn send_host_syn(&mut self, flow: &mut Flow, now: Time) {
        flow.host.syn_tries += 1;
        flow.host.syn_sent = now;
        let first = flow.first_held();
        let mut options = flow.client_options;
        options.timestamps =
            flow.timestamps.map(|stamps| Timestamps { val: stamps.client.recent(), ecr: 0 });
        let head = HeadRepr {
            src_port: flow.key.client_port,
            dst_port: flow.key.server_port,
            seq: first - 1,
            flags: Flags::SYN,
            window: window_field(flow.client_edge.saturating_since(flow.client_acked), 0),
            syn_options: Some(options),
            ..Default::default()
        };
        self.emit_to_host(flow, &head);
    }

    /// The host answers the card's SYN.
    pub(crate) fn host_syn_answer(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        self.counters.bus.count_from_host(
            frame.len(),
            crate::bus::FrameBytes {
                network_headers: (frame.len() - tcp.payload_len() as usize) as u64,
                content: u64::from(tcp.payload_len()),
                ..Default::default()
            },
        );
        let first = flow.first_held();
        if !head.flags.ack() || head.ack != first {
            // An acknowledgment of an older incarnation (RFC 9293 section 3.10.7.3): reset it, and
            // send the SYN again, the first time at once.
            if head.flags.ack() && !head.flags.rst() {
                let reset = HeadRepr {
                    src_port: flow.key.client_port,
                    dst_port: flow.key.server_port,
                    seq: head.ack,
                    flags: Flags::RST,
                    ..Default::default()
                };
                self.emit_to_host(flow, &reset);
                if flow.host.syn_tries == 1 {
                    self.send_host_syn(flow, now);
                }
            }
            return Keep::Yes;
        }
        let options = match (head.flags.rst(), head.flags.syn(), head.syn_options) {
            (false, true, Some(options))
                if flow.timestamps.is_none() || head.timestamps.is_some() =>
            {
                options
            }
            (reset, syn, _) => {
                // Refused, or without the timestamps that the client was promised; then no other
                // client is promised them.
                self.host_has_timestamps &= reset || !syn;
                self.abort_client(flow, now);
                return Keep::No;
            }
        };
        let scaled = flow.client_options.window_scale.is_some() && options.window_scale.is_some();
        flow.splice.host_scale = if scaled { options.window_scale.unwrap_or(0) } else { 0 };
        flow.splice.host_peer_scale = if scaled { flow.splice.client_scale } else { 0 };
        if let (Some(theirs), Some(ours)) = (head.timestamps, flow.stamps_to_client(now))
            && let Some(stamps) = &mut flow.timestamps
        {
            stamps.host = theirs.val;
            flow.splice.ts_delta = ours.val.wrapping_sub(theirs.val);
        }
        self.open_host_side(flow, head.seq + 1, head.window_bytes(0), &options, now);
        if flow.host.syn_tries == 1 {
            flow.host.sender.observe_rtt(now.since(flow.host.syn_sent));
        }
        flow.splice.out_delta = flow.out_next.since(flow.host.rcv_nxt);
        self.ack_host(flow, SackBlocks::EMPTY);
        self.splice_at_hold(flow, now);
        Keep::Yes
    }
}

/// The round trip of the SYN-ACK to the client is the first sample: by the timestamp that comes
/// back, or if it was sent once (RFC 6298 section 3). Only if it was repeated more than once, the
/// first flight is small: one repetition is as likely early as needed (RFC 6928 section 2).
fn observe_handshake(flow: &mut Flow, head: &SegmentHead, now: Time) {
    match flow.syn_ack_tries {
        // A cookie's: nobody has noted when it was sent.
        0 => {}
        1 => flow.sender.observe_rtt(now.since(flow.host.syn_sent)),
        tries => {
            if let (Some(stamps), Some(theirs)) = (&flow.timestamps, head.timestamps) {
                flow.sender.observe_echo(stamps.clock.ticks(theirs.ecr), now);
            }
            if tries > 1 + SYN_ACK_REPETITIONS_MAX {
                flow.sender.handle_lost_handshake();
            }
        }
    }
}
