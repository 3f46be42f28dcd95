//! Segments from clients.

use nicache_port::{FrameBuf, Port};
use nicache_tcp::rst::{self, Verdict};
use nicache_tcp::{AckInfo, Flags, SackBlocks, SegmentHead, Seq, Time, rewrite};

use crate::card::{Card, Keep, request_frame_bytes};
use crate::challenge::{is_near_window, is_recent};
use crate::flow::{Flow, HostPhase, Phase, ReplyTracking};
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::packet::TcpFrame;
use crate::timers::DELAYED_ACK;
use crate::transmit::{host_window, in_position};

impl<W: Port, H: Port> Card<W, H> {
    /// A segment of the client of a tracked connection.
    pub(crate) fn client_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        match flow.phase {
            Phase::HostHandshake => self.client_handshake_segment(flow, frame, tcp, now),
            Phase::CardHandshake => self.card_handshake_segment(flow, frame, tcp, now),
            Phase::Requests => self.client_request_segment(flow, frame, tcp, now),
            Phase::Opaque(until) => self.client_opaque_segment(flow, frame, tcp, until, now),
        }
    }

    pub(crate) fn client_request_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        flow.keep_alive.handle_segment(now);
        let is_new = (head.seq + tcp.payload_len()).gt(flow.rcv_nxt)
            || head.flags.fin()
            || head.ack.gt(flow.client_acked);
        if is_new || !flow.output_idle() {
            // Probes of an idle client do not keep the connection for ever.
            flow.active = now;
        }
        if head.flags.rst() {
            return match rst::judge(head.seq, flow.rcv_nxt, REQUEST_WINDOW_BYTES) {
                Verdict::Accept => {
                    self.reset_host(flow);
                    Keep::No
                }
                Verdict::ChallengeAck => {
                    self.challenge_client(flow, now);
                    Keep::Yes
                }
                Verdict::Drop => self.drop_unacceptable(),
            };
        }
        if head.flags.syn() {
            // RFC 5961 section 4.2; also the client's own SYN seen again.
            self.challenge_client(flow, now);
            return Keep::Yes;
        }
        if !head.flags.ack() {
            return self.drop_unacceptable();
        }
        if !is_near_window(flow, tcp) {
            self.answer_unacceptable(flow, tcp, now);
            return self.drop_unacceptable();
        }
        if let Some(stamps) = &mut flow.timestamps {
            if !stamps.client.accepts(head.timestamps, false, now) {
                // RFC 7323 section 5.3, R1.
                self.answer_unacceptable(flow, tcp, now);
                return self.drop_unacceptable();
            }
            if let Some(theirs) = head.timestamps {
                stamps.client.update(theirs, head.seq, flow.acked_to_client, now);
            }
        }
        if tcp.payload_len() > 0 {
            flow.ecn.handle_data(head.ecn, head.flags);
        }
        flow.client_echo = head.flags.contains(Flags::ECE) && flow.replies.is_empty();
        let payload = &frame.data()[tcp.payload_at..tcp.end];
        let Some(tell_host) = self.client_ack(flow, tcp, now) else {
            self.answer_unacceptable(flow, tcp, now);
            return self.drop_unacceptable();
        };
        let sent_to_host = flow.host.sender.end();
        let keep = self.client_data(flow, payload, tcp, frame, now);
        if keep == Keep::No {
            return keep;
        }
        self.advance(flow, now);
        if tell_host && flow.host.phase == HostPhase::Open && flow.host.sender.end() == sent_to_host
        {
            self.ack_host(flow, self.sack_for_host(flow, &head.sack));
        }
        if tcp.payload_len() > 0 {
            self.pump_client(flow, now);
        } else {
            self.pump_client_later(flow, now);
        }
        flow.head_timer.handle_input(has_partial_head(flow), now);
        self.keep_unless_over(flow, now)
    }

    /// Takes the acknowledgment. `None`: it acknowledges what was never sent. `Some(true)`: the
    /// host should hear of it.
    fn client_ack(&mut self, flow: &mut Flow, tcp: &TcpFrame, now: Time) -> Option<bool> {
        let head = &tcp.head;
        if head.ack.gt(flow.acknowledgeable()) || !is_recent(flow, head.ack) {
            return None;
        }
        let window = head.window_bytes(flow.splice.client_scale);
        flow.client_window_max = flow.client_window_max.max(window);
        if head.ack.ge(flow.client_acked) {
            flow.client_acked = head.ack;
            flow.client_edge = head.ack + window;
            flow.client_seq = head.seq;
        }
        self.card_ack(flow, tcp, now);
        if flow.host.phase != HostPhase::Open {
            return Some(false);
        }
        let position = flow.splice.out_to_host(flow.client_acked).min(flow.host.rcv_nxt);
        let advanced = position.gt(flow.host.acked);
        if advanced {
            flow.host.acked = position;
        }
        let outstanding = flow.host.acked.lt(flow.host.rcv_nxt);
        // While the client lacks bytes of the card, what it says is not about the host's.
        let ours_done = flow.replies.is_empty();
        // What the host has asked is answered by the client.
        let is_asked = std::mem::take(&mut flow.host_asks) || outstanding;
        let repeated = ours_done && is_asked && tcp.payload_len() == 0;
        let opened = ours_done && flow.host_replying() && host_window(flow) != flow.host.window;
        Some(advanced || repeated || opened)
    }

    /// Takes the acknowledgment of bytes that the card sent. The host's may follow them.
    fn card_ack(&mut self, flow: &mut Flow, tcp: &TcpFrame, now: Time) {
        let head = &tcp.head;
        if !flow.card_speaks() || head.ack.lt(flow.sender.una()) {
            return;
        }
        let nxt = flow.sender.acknowledgeable();
        let ack = head.ack.min(nxt);
        let mut sack = SackBlocks::EMPTY;
        for &(left, right) in head.sack.as_slice() {
            if right.le(nxt) {
                sack.push(left, right);
            }
        }
        let edge = head.ack + head.window_bytes(flow.splice.client_scale);
        let info = AckInfo {
            seq: head.seq,
            ack,
            window: edge.saturating_since(ack),
            sack,
            ts_ecr: flow
                .timestamps
                .zip(head.timestamps)
                .map(|(ours, theirs)| ours.clock.ticks(theirs.ecr)),
            carries_data: tcp.payload_len() > 0 || head.flags.fin(),
            ece: head.flags.contains(Flags::ECE),
        };
        let acked = flow.sender.handle_ack(&info, now).newly_acked;
        flow.reading.handle_progress(
            acked,
            flow.sender.end().saturating_since(flow.sender.una()),
            now,
        );
        while let Some(reply) = flow.replies.pop_acknowledged(flow.sender.una()) {
            self.forget_reply(&reply);
        }
    }

    /// The blocks that concern bytes of the host.
    fn sack_for_host(&self, flow: &Flow, sack: &SackBlocks) -> SackBlocks {
        let mut blocks = SackBlocks::EMPTY;
        if !flow.replies.is_empty() {
            return blocks;
        }
        for &(left, right) in sack.as_slice() {
            let (left, right) = (flow.splice.out_to_host(left), flow.splice.out_to_host(right));
            if left.ge(flow.host.acked) && right.le(flow.host.rcv_nxt) {
                blocks.push(left, right);
            }
        }
        blocks
    }

    /// Takes payload and FIN that are in order.
    fn client_data(
        &mut self,
        flow: &mut Flow,
        payload: &[u8],
        tcp: &TcpFrame,
        frame: &FrameBuf,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        let len = tcp.payload_len();
        if len == 0 && !head.flags.fin() {
            if head.seq.lt(flow.rcv_nxt) {
                // RFC 9293 section 3.10.7.4: not acceptable, so it is answered. Linux probes so
                // (section 3.8.4).
                self.ack_client(flow, now);
                self.probe_host(flow);
            }
            return Keep::Yes;
        }
        let end = head.seq + len;
        let is_old = (end + u32::from(head.flags.fin())).le(flow.rcv_nxt);
        if head.seq.gt(flow.rcv_nxt) || is_old || flow.client_fin {
            // A gap, or nothing new: RFC 5681 section 4.2 wants an immediate ACK. Requests are
            // short, so out-of-order data is not kept; the client sends it again. Nothing comes
            // behind a FIN (RFC 9293 section 3.10.7.4).
            self.ack_client(flow, now);
            if end.le(flow.rcv_nxt) {
                self.probe_host(flow);
            }
            return Keep::Yes;
        }
        let fresh = &payload[flow.rcv_nxt.since(head.seq) as usize..];
        let mut taken = 0;
        if flow.hold.as_ref().is_none_or(|hold| hold.len() == 0) {
            let done = self.answer_hits(flow, fresh, now);
            taken += done;
            flow.rcv_nxt += done as u32;
        }
        if taken < fresh.len() {
            if flow.hold.is_none() {
                if self.holds.is_empty() {
                    self.end_one_silent(now, |flow| flow.hold.is_some());
                }
                flow.hold = self.holds.take();
            }
            let output_idle = flow.output_idle();
            match &mut flow.hold {
                Some(hold) => {
                    let held = hold.append(&fresh[taken..]);
                    taken += held;
                    flow.rcv_nxt += held as u32;
                    // The host's reply will carry the ACK, if it comes soon.
                    flow.ack_due = flow.ack_due.or(Some(now + DELAYED_ACK));
                }
                None if output_idle => {
                    // No buffer is left: fail open.
                    self.counters.bypasses_by_card
                        [crate::counters::CardBypass::Resources.index()] += 1;
                    self.make_opaque(flow, None, now);
                    if flow.host.phase == HostPhase::Open {
                        self.pass_client_frame(flow, frame, tcp);
                    }
                    return Keep::Yes;
                }
                None => {}
            }
        }
        if taken < fresh.len() {
            // Not acknowledged, so the client sends it again.
            self.ack_client(flow, now);
            return Keep::Yes;
        }
        if head.flags.fin() {
            flow.rcv_nxt += 1;
            flow.client_fin = true;
            self.ack_client(flow, now);
        }
        Keep::Yes
    }

    fn client_opaque_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        until: Option<Seq>,
        now: Time,
    ) -> Keep {
        flow.active = now;
        flow.keep_alive.handle_segment(now);
        let head = &tcp.head;
        let fits = is_in_host_window(flow, tcp);
        if let (Some(stamps), Some(theirs), true) = (&mut flow.timestamps, head.timestamps, fits) {
            stamps.client.update(theirs, head.seq, head.seq, now);
        }
        if let Some(until) = until
            && (head.flags.fin() || (head.seq + tcp.payload_len()).gt(until))
        {
            flow.phase = Phase::Opaque(None);
            self.forget_reply_head(flow);
            flow.reply = ReplyTracking::Idle;
            self.counters.flows_opaque += 1;
        }
        if head.flags.ack() && head.ack.ge(flow.client_acked) && head.ack.le(flow.acknowledgeable())
        {
            flow.client_acked = head.ack;
            flow.client_edge = head.ack + head.window_bytes(flow.splice.client_scale);
            let position = flow.splice.out_to_host(head.ack);
            if position.gt(flow.host.acked) {
                flow.host.acked = position;
            }
        }
        if head.flags.fin() && fits && flow.host.phase == HostPhase::Open {
            flow.client_fin = true;
        }
        if head.flags.ack() && flow.card_speaks() {
            // Replies from before the connection became opaque.
            self.card_ack(flow, tcp, now);
            self.pump_client_later(flow, now);
        }
        if flow.phase == Phase::Opaque(None) {
            self.note_unfollowed(flow, &frame.data()[tcp.payload_at..tcp.end]);
        }
        if flow.host.phase == HostPhase::Open {
            self.pass_client_frame(flow, frame, tcp);
        } else if !head.flags.rst() {
            self.hold_for_host(flow, &frame.data()[tcp.payload_at..tcp.end], head, now);
        }
        if head.flags.rst() {
            return self.opaque_reset(flow, head.seq, now);
        }
        self.resume_requests(flow);
        self.keep_unless_over(flow, now)
    }

    /// Keeps what a client sends on an opaque connection while the host's side is being opened.
    /// What has no room, or is not in order, the client sends again.
    fn hold_for_host(&mut self, flow: &mut Flow, payload: &[u8], head: &SegmentHead, now: Time) {
        let end = head.seq + payload.len() as u32 + u32::from(head.flags.fin());
        if payload.is_empty() && !head.flags.fin() {
            return;
        }
        if head.seq.gt(flow.rcv_nxt) || end.le(flow.rcv_nxt) || flow.client_fin {
            self.ack_client(flow, now);
            return;
        }
        let fresh = &payload[payload.len().min(flow.rcv_nxt.since(head.seq) as usize)..];
        if flow.hold.is_none() {
            flow.hold = self.holds.take();
        }
        let taken = flow.hold.as_mut().map_or(0, |hold| hold.append(fresh));
        flow.forwarded += taken;
        flow.rcv_nxt += taken as u32;
        flow.ack_due = flow.ack_due.or(Some(now + DELAYED_ACK));
        if taken < fresh.len() {
            self.ack_client(flow, now);
        } else if head.flags.fin() {
            flow.rcv_nxt += 1;
            flow.client_fin = true;
            self.ack_client(flow, now);
        }
    }

    /// The client resets an opaque connection, or somebody who is not the client. Forgotten, it
    /// would go on with the numbers of both ends as they are.
    fn opaque_reset(&mut self, flow: &mut Flow, seq: Seq, now: Time) -> Keep {
        if flow.splice.is_identity() {
            return Keep::No;
        }
        let is_open = flow.host.phase == HostPhase::Open;
        match rst::judge(seq, expected_of_client(flow), REQUEST_WINDOW_BYTES) {
            Verdict::Accept if is_open => Keep::No,
            Verdict::Accept => {
                self.reset_host(flow);
                Keep::No
            }
            // The host knows better what it expects: if it goes on, it says so.
            Verdict::ChallengeAck if is_open => {
                flow.reset_passed = Some(now);
                Keep::Yes
            }
            Verdict::ChallengeAck | Verdict::Drop => Keep::Yes,
        }
    }

    /// Passes a client's frame to the host with its numbers mapped.
    pub(crate) fn pass_client_frame(&mut self, flow: &mut Flow, frame: &FrameBuf, tcp: &TcpFrame) {
        let bytes = request_frame_bytes(frame, tcp, false);
        if flow.splice.is_identity() {
            self.pass_to_host(frame, bytes);
            return;
        }
        let change = flow.splice.to_host(&tcp.head, flow.host_base);
        let complete = !matches!(frame.offload().checksum, nicache_port::Checksum::Partial { .. });
        let (headers, payload) = frame.data().split_at(tcp.payload_at);
        let mut copy = [0; crate::emit::HEADERS_BYTES_MAX];
        let copy = &mut copy[..headers.len()];
        copy.copy_from_slice(headers);
        rewrite(&mut copy[tcp.head_at..], &change, complete);
        let parts = [std::io::IoSlice::new(copy), std::io::IoSlice::new(payload)];
        self.ports.send_to_host(&parts, frame.offload(), bytes, &mut self.counters);
    }

    /// The client asks whether the connection still lives (RFC 9293 section 3.8.4): the host is
    /// asked, too, and resets the connection if it knows nothing of it. If it does, its answer ends
    /// here: the card's own has gone to the client.
    fn probe_host(&mut self, flow: &Flow) {
        if flow.replies.is_empty()
            && flow.host.phase == HostPhase::Open
            && flow.host.sender.all_acked()
        {
            self.send_host_probe(flow);
        }
    }

    /// Sends the host a segment that it has to answer, with a reset if it does not know the
    /// connection.
    pub(crate) fn send_host_probe(&mut self, flow: &Flow) {
        let head =
            crate::transmit::host_head(flow, in_position(flow) - 1, Flags::ACK, SackBlocks::EMPTY);
        self.emit_to_host(flow, &head);
    }

    fn drop_unacceptable(&mut self) -> Keep {
        self.counters.segments_unacceptable += 1;
        Keep::Yes
    }

    /// Tells the host that the client has reset the connection.
    pub(crate) fn reset_host(&mut self, flow: &mut Flow) {
        if matches!(flow.host.phase, HostPhase::Open | HostPhase::Closing) {
            let head = crate::transmit::host_head(
                flow,
                flow.host.sender.nxt(),
                Flags::RST | Flags::ACK,
                SackBlocks::EMPTY,
            );
            self.emit_to_host(flow, &head);
        }
    }
}

/// What the client sends next on an opaque connection, as far as is known.
pub(crate) fn expected_of_client(flow: &Flow) -> Seq {
    if flow.host.phase == HostPhase::Open {
        flow.splice.in_to_client(flow.host_acked_in)
    } else {
        flow.rcv_nxt
    }
}

/// Would the host of an opaque connection take the segment (RFC 9293 section 3.10.7.4)? Others may
/// be anybody's.
fn is_in_host_window(flow: &Flow, tcp: &TcpFrame) -> bool {
    let (sender, next) = (&flow.host.sender, expected_of_client(flow));
    let window = sender.window_edge().saturating_since(sender.una()).max(REQUEST_WINDOW_BYTES);
    let end = tcp.head.seq + tcp.head.segment_len(tcp.payload_len());
    (end + 1).ge(next) && tcp.head.seq.le(next + window)
}

/// Does the client owe the rest of a head? What is held and waits for nobody is not whole.
pub(crate) fn has_partial_head(flow: &Flow) -> bool {
    flow.phase == Phase::Requests
        && flow.held() > 0
        && flow.forwarded == 0
        && flow.wait.is_none()
        && flow.output_idle()
        && flow.host.phase != HostPhase::SynSent
}
