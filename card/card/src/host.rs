//! Segments from the host.

use nicache_cache::{Answered, FillAbort};
use nicache_http::{Follower, HEAD_BYTES_MAX, Method, ReplyOutcome, parse_reply};
use nicache_port::{Checksum, FrameBuf, Port};
use nicache_tcp::{AckInfo, AckRewrite, Flags, SackBlocks, Seq, Time, rewrite};

use crate::bus::FrameBytes;
use crate::card::{Card, Keep};
use crate::emit::HEADERS_BYTES_MAX;
use crate::flow::hold::Hold;
use crate::flow::{Flow, HostPhase, Phase, ReplyTracking};
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::packet::TcpFrame;
use crate::transmit::in_position;
use crate::waiting::client_end;

/// How recent a hit must be for the host's FIN on an idle connection to be kept from the client.
const FIN_ABSORBED_AFTER_HIT: std::time::Duration = std::time::Duration::from_secs(65);

/// What the payload of a frame of the host is, for the bus.
#[derive(Clone, Copy, Default)]
struct Tracked {
    head_bytes: u64,
    /// The reply ended in this frame.
    finished: bool,
}

impl<W: Port, H: Port> Card<W, H> {
    /// A segment of the host of a tracked connection.
    pub(crate) fn host_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let was_asked = flow.host_alive.is_asked();
        flow.host_alive.handle_segment(now);
        flow.reset_passed = None;
        if flow.phase == Phase::HostHandshake {
            return self.host_handshake_segment(flow, frame, tcp, now);
        }
        match flow.host.phase {
            HostPhase::SynSent => return self.host_syn_answer(flow, frame, tcp, now),
            HostPhase::Closing => return self.host_closing_segment(flow, frame, tcp, now),
            HostPhase::Absent => {
                self.count_host_frame(frame, tcp, Tracked::default());
                return Keep::Yes;
            }
            HostPhase::Open => {}
        }
        let head = &tcp.head;
        if head.flags.rst() {
            return self.host_reset(flow, frame, tcp, now);
        }
        if head.flags.syn() {
            // The host has not seen the client's ACK (RFC 9293 section 3.10.7.4).
            self.count_host_frame(frame, tcp, Tracked::default());
            self.ack_host(flow, SackBlocks::EMPTY);
            return Keep::Yes;
        }
        if let (Some(stamps), Some(theirs)) = (&mut flow.timestamps, head.timestamps) {
            stamps.host = theirs.val;
        }
        let is_answer = was_asked && head.ack.le(flow.host_acked_in);
        if head.flags.ack() {
            self.host_ack(flow, tcp, now);
        }
        let len = tcp.payload_len();
        let end = head.seq + len + u32::from(head.flags.fin());
        if end.le(flow.host.acked) && (len > 0 || head.flags.fin()) && flow.phase == Phase::Requests
        {
            // The client has all of it already: a keep-alive probe, or a retransmission that
            // crossed the ACK.
            self.count_host_frame(frame, tcp, Tracked::default());
            self.ack_host(flow, SackBlocks::EMPTY);
            return Keep::Yes;
        }
        if head.seq.lt(flow.host_base) && (len > 0 || head.flags.fin()) {
            // From before a switch, and acknowledged: with the present deltas its bytes would take
            // the place of others.
            self.count_host_frame(frame, tcp, Tracked::default());
            let ack =
                crate::transmit::host_head(flow, in_position(flow), Flags::ACK, SackBlocks::EMPTY);
            self.emit_to_host(flow, &ack);
            return Keep::Yes;
        }
        if len == 0 && !head.flags.fin() {
            self.count_host_frame(frame, tcp, Tracked::default());
            if matches!(flow.phase, Phase::Opaque(_)) {
                if !is_answer {
                    // The client has not asked.
                    self.pass_host_frame(flow, frame, tcp);
                }
                self.resume_requests(flow);
            } else if head.seq.lt(flow.host.rcv_nxt) {
                // A keep-alive probe, or one of the client's window (RFC 9293 sections 3.8.4 and
                // 3.8.6.1). Only the client knows whether it is still there, and its window.
                if flow.host_replying() && flow.replies.is_empty() {
                    flow.host_asks = true;
                    self.pass_host_frame(flow, frame, tcp);
                } else {
                    self.ack_host(flow, SackBlocks::EMPTY);
                }
            }
            if flow.phase == Phase::Requests && has_unsent_request(flow) {
                // The host has now taken what went ahead of the request that is held.
                self.advance(flow, now);
                self.pump_client(flow, now);
            }
            return self.keep_unless_over(flow, now);
        }
        if flow.phase == Phase::Requests && !flow.host_replying() {
            if end.le(flow.host.rcv_nxt) {
                // The end of a reply again (RFC 8985 section 7.2, tail loss probe), which the
                // client may be missing.
                self.count_host_frame(frame, tcp, Tracked::default());
                self.pass_host_frame(flow, frame, tcp);
                return self.keep_unless_over(flow, now);
            }
            return self.host_unasked(flow, frame, tcp, now);
        }
        self.host_reply_segment(flow, frame, tcp, now)
    }

    /// Data or FIN of the reply that is under way, or of an opaque connection.
    fn host_reply_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let head = &tcp.head;
        let data_end = head.seq + tcp.payload_len();
        if tcp.payload_len() > 0 {
            self.waiters.handle_reply(&flow.key, || client_end(&flow.key), now);
        }
        if flow.changing.is_some() && flow.phase == Phase::Opaque(None) {
            self.invalidate_unfollowed(flow, &frame.data()[tcp.payload_at..tcp.end]);
        }
        let is_new = data_end.gt(flow.host.rcv_nxt);
        if (is_new || head.flags.fin()) && (flow.changing.is_some() || flow.unsafe_request) {
            let skipped = flow.host.rcv_nxt.since(head.seq);
            let next = if is_new && head.seq.le(flow.host.rcv_nxt) {
                &frame.data()[tcp.payload_at + skipped as usize..tcp.end]
            } else {
                &[]
            };
            if is_new && flow.changing.is_some() && flow.phase != Phase::Opaque(None) {
                self.invalidate_before(flow, next);
            }
            if flow.unsafe_request {
                self.note_answer(flow, next, head.flags.fin());
            }
        }
        self.pass_host_frame(flow, frame, tcp);
        let mut tracked = Tracked::default();
        if data_end.gt(flow.host.rcv_nxt) {
            if head.seq.le(flow.host.rcv_nxt) {
                let from = tcp.payload_at + flow.host.rcv_nxt.since(head.seq) as usize;
                tracked = self.track_reply(flow, &frame.data()[from..tcp.end], now);
            } else {
                self.lose_track(flow, now);
            }
            flow.host.rcv_nxt = data_end;
        }
        flow.out_next = flow.splice.out_to_client(flow.host.rcv_nxt);
        self.count_host_frame(frame, tcp, tracked);
        if head.flags.fin() && data_end.ge(flow.host.rcv_nxt) {
            self.end_at_close(flow);
            flow.host.rcv_nxt = data_end + 1;
            flow.out_next = flow.splice.out_to_client(flow.host.rcv_nxt);
            flow.host.fin_passed = true;
            if flow.phase == Phase::Requests {
                self.make_opaque(flow, None, now);
            }
        }
        if tracked.finished && flow.last_reply {
            // Nobody answers what follows, and the host's FIN is for the client (RFC 9112 section
            // 9.6).
            self.lose_track(flow, now);
        } else if tracked.finished {
            self.resume_requests(flow);
            self.advance(flow, now);
            self.pump_client(flow, now);
        }
        self.keep_unless_over(flow, now)
    }

    /// Follows the bytes of a reply. They have been passed on already.
    fn track_reply(&mut self, flow: &mut Flow, bytes: &[u8], now: Time) -> Tracked {
        let mut tracked = Tracked::default();
        let mut at = 0;
        while at < bytes.len() {
            match &mut flow.reply {
                // What the host does for an opaque connection is not over with its first word.
                ReplyTracking::Idle if flow.phase == Phase::Opaque(None) => break,
                ReplyTracking::Idle => {
                    // More than the reply said: nobody knows what follows.
                    self.lose_track(flow, now);
                    break;
                }
                ReplyTracking::Head { head_request, last } => {
                    let method = if *head_request { Method::Head } else { Method::Get };
                    let last = *last;
                    let fresh = &bytes[at..];
                    let before = flow.reply_head.take();
                    let begun = match before {
                        Some(hold) => self.continue_head(hold, fresh),
                        None => Some((None, 0)),
                    };
                    let Some((hold, known)) = begun else {
                        self.lose_track(flow, now);
                        break;
                    };
                    let outcome = match &hold {
                        Some(hold) if !ends_head(hold.bytes(), known) => ReplyOutcome::Partial,
                        Some(hold) => parse_reply(hold.bytes(), method),
                        None => parse_reply(fresh, method),
                    };
                    let head_len = match &outcome {
                        ReplyOutcome::Complete(reply) => {
                            let head_len = reply.head_len - known;
                            if !reply.interim {
                                let whole = hold.as_ref().map_or(fresh, Hold::bytes);
                                let head = &whole[..reply.head_len];
                                self.take_head(flow, reply, head, &fresh[head_len..], last);
                            }
                            head_len
                        }
                        ReplyOutcome::Partial => {
                            flow.reply_head = hold.or_else(|| self.begin_head(fresh));
                            if flow.reply_head.is_none() {
                                self.lose_track(flow, now);
                            }
                            tracked.head_bytes += fresh.len() as u64;
                            break;
                        }
                        // Odd: the card does not guess where it ends.
                        ReplyOutcome::Malformed(_) => {
                            flow.reply_head = hold;
                            self.lose_track(flow, now);
                            break;
                        }
                    };
                    let is_final =
                        matches!(outcome, ReplyOutcome::Complete(reply) if !reply.interim);
                    if let Some(hold) = hold {
                        self.holds.give(hold);
                    }
                    tracked.head_bytes += head_len as u64;
                    if is_final && self.may_lack_content(flow) {
                        self.lose_track(flow, now);
                        break;
                    }
                    at += head_len;
                    if matches!(&flow.reply,
                        ReplyTracking::Body(follower) if follower.is_finished())
                    {
                        self.finish_reply(flow);
                        tracked.finished = true;
                    }
                }
                ReplyTracking::Body(follower) => {
                    let (fills, store, counters) =
                        (&mut self.fills, &mut self.store, &mut self.counters.cache);
                    let fill = flow.fill;
                    let followed = follower.follow(&bytes[at..], |content| {
                        if let Some(fill) = fill {
                            fills.handle_body(fill, content, store, counters);
                        }
                    });
                    if followed.fault.is_some() {
                        self.lose_track(flow, now);
                        break;
                    }
                    match followed.finished_at {
                        Some(end) => {
                            at += end;
                            self.finish_reply(flow);
                            tracked.finished = true;
                        }
                        None => break,
                    }
                }
            }
        }
        tracked
    }

    /// Keeps the beginning of a head; `None` where that is too much. Client bytes go first: they
    /// get the last half of the buffers.
    fn begin_head(&mut self, beginning: &[u8]) -> Option<Hold> {
        let mut hold = self.holds.take_one_of_many()?;
        if hold.append(beginning) == beginning.len() {
            return Some(hold);
        }
        self.holds.give(hold);
        None
    }

    /// Adds to the beginning of a head, whose length it gives beside the whole; `None`: that is too
    /// long for a head.
    fn continue_head(&mut self, mut hold: Hold, bytes: &[u8]) -> Option<(Option<Hold>, usize)> {
        let known = hold.len();
        // What stands behind the head need not fit.
        let room = HEAD_BYTES_MAX.saturating_sub(known);
        let taken = &bytes[..bytes.len().min(room)];
        if !taken.is_empty() && hold.append(taken) == taken.len() {
            return Some((Some(hold), known));
        }
        self.holds.give(hold);
        None
    }

    /// The head of the final reply is whole.
    fn take_head(
        &mut self,
        flow: &mut Flow,
        reply: &nicache_http::ReplyHead<'_>,
        head: &[u8],
        rest: &[u8],
        last: bool,
    ) {
        if let Some(lesson) = flow.lesson.take() {
            self.store.learn(lesson, reply, head, rest, last);
        }
        if let Some(fill) = flow.fill {
            // A server of files that closes although the client would go on does so now and then;
            // a program that makes replies may do so always, which two of them that agree show. One
            // that does not say that it closes, and was asked to, is not odd: it need not say so
            // (RFC 9112 section 9.6).
            let closes_once = !reply.keep_alive && !last && !reply.always_closes();
            let is_odd = closes_once && !self.fills.wants_dynamic(fill);
            let goes_on = if is_odd {
                self.fills.abort(
                    fill,
                    FillAbort::Incomplete,
                    &mut self.store,
                    &mut self.counters.cache,
                );
                false
            } else {
                let (keys, store, counters) =
                    (&self.config.keys, &mut self.store, &mut self.counters.cache);
                self.fills.handle_head(
                    fill,
                    Answered { reply, head, closes_once },
                    keys,
                    store,
                    counters,
                )
            };
            if !goes_on {
                flow.fill = None;
            }
        }
        flow.last_reply = last || !reply.keep_alive;
        flow.reply = ReplyTracking::Body(Follower::new(reply.framing));
    }

    /// The final reply has come before all content that the client has announced and might keep for
    /// itself now (RFC 9110 section 10.1.1): what it sends next is content for one and a request
    /// for another.
    fn may_lack_content(&self, flow: &Flow) -> bool {
        let Phase::Opaque(Some(until)) = flow.phase else { return false };
        flow.expects_continue && flow.host_acked_in.lt(flow.splice.in_to_host(until))
    }

    fn finish_reply(&mut self, flow: &mut Flow) {
        let plain = matches!(&flow.reply, ReplyTracking::Body(follower) if follower.is_plain());
        flow.reply = ReplyTracking::Idle;
        self.end_unsafe_request(flow);
        let counters = &mut self.counters.cache;
        let fill = flow.fill.take();
        let next = fill.and_then(|fill| self.fills.finish(fill, plain, &mut self.store, counters));
        for recheck in next.into_iter().chain(flow.next.take().map(|next| *next)) {
            self.rechecks.ask(recheck, counters);
        }
    }

    /// The host closes: a reply that lasts until then is complete; any other is not.
    fn end_at_close(&mut self, flow: &mut Flow) {
        let is_whole = match &mut flow.reply {
            ReplyTracking::Body(follower) => follower.handle_close(),
            _ => false,
        };
        if is_whole {
            self.finish_reply(flow);
        } else {
            self.break_off_reply(flow);
        }
    }

    /// What was kept of a reply's head is of no use any longer.
    pub(crate) fn forget_reply_head(&mut self, flow: &mut Flow) {
        if let Some(hold) = flow.reply_head.take() {
            self.holds.give(hold);
        }
    }

    /// Where the reply ends is not known any longer.
    fn break_off_reply(&mut self, flow: &mut Flow) {
        self.forget_reply_head(flow);
        flow.reply = ReplyTracking::Idle;
        self.end_unsafe_request(flow);
        if let Some(fill) = flow.fill.take() {
            self.fills.abort(
                fill,
                FillAbort::Incomplete,
                &mut self.store,
                &mut self.counters.cache,
            );
        }
    }

    /// The card cannot follow the replies any longer: everything passes from here on.
    fn lose_track(&mut self, flow: &mut Flow, now: Time) {
        self.break_off_reply(flow);
        match flow.phase {
            Phase::Opaque(None) => {}
            Phase::Opaque(Some(_)) => {
                flow.phase = Phase::Opaque(None);
                self.counters.flows_opaque += 1;
            }
            // What the card has taken from the client behind the request goes on to the host.
            _ => self.make_opaque(flow, None, now),
        }
    }

    /// Passes a frame of the host to the client with its numbers mapped.
    fn pass_host_frame(&mut self, flow: &mut Flow, frame: &FrameBuf, tcp: &TcpFrame) {
        let mut change = flow.splice.to_client(&tcp.head, flow.rcv_nxt);
        let ack = if let AckRewrite::Set(ack) = change.ack { ack } else { flow.rcv_nxt };
        if flow.phase == Phase::Requests {
            // The card takes the client's bytes, so it is the card's window.
            change.window =
                Some(nicache_tcp::splice::window_field(REQUEST_WINDOW_BYTES, flow.card_scale));
            change.ack = AckRewrite::Set(flow.rcv_nxt);
        }
        if let (Some(stamps), Some(theirs)) = (&mut flow.timestamps, tcp.head.timestamps) {
            // TSval never goes back, whoever sends (RFC 7323 section 5.3).
            let value = Seq(theirs.val.wrapping_add(flow.splice.ts_delta)).max(Seq(stamps.sent));
            stamps.sent = value.0;
            change.tsval_delta = value.0.wrapping_sub(theirs.val);
        }
        flow.acked_to_client = flow.acked_to_client.max(ack);
        flow.ack_due = None;
        let complete = !matches!(frame.offload().checksum, Checksum::Partial { .. });
        let (headers, payload) = frame.data().split_at(tcp.payload_at);
        let mut copy = [0; HEADERS_BYTES_MAX];
        let copy = &mut copy[..headers.len()];
        copy.copy_from_slice(headers);
        rewrite(&mut copy[tcp.head_at..], &change, complete);
        let parts = [std::io::IoSlice::new(copy), std::io::IoSlice::new(payload)];
        self.ports.send_to_wire(&parts, frame.offload(), &mut self.counters);
    }

    fn count_host_frame(&mut self, frame: &FrameBuf, tcp: &TcpFrame, tracked: Tracked) {
        let payload = u64::from(tcp.payload_len());
        let head_bytes = tracked.head_bytes.min(payload);
        self.counters.bus.count_from_host(
            frame.len(),
            FrameBytes {
                network_headers: frame.len() as u64 - payload,
                application_headers: head_bytes,
                content: payload - head_bytes,
                other: 0,
            },
        );
    }

    /// The host has taken bytes of the client.
    pub(crate) fn host_ack(&mut self, flow: &mut Flow, tcp: &TcpFrame, now: Time) {
        flow.host_acked_in = flow.host_acked_in.max(tcp.head.ack);
        // In an opaque stretch the host acknowledges bytes that the client sent past the card's
        // sender.
        let info = AckInfo {
            seq: tcp.head.seq,
            ack: tcp.head.ack.min(flow.host.sender.nxt()),
            window: tcp.head.window_bytes(flow.splice.host_scale),
            sack: SackBlocks::EMPTY,
            ts_ecr: None,
            carries_data: tcp.payload_len() > 0,
            ece: false,
        };
        let outcome = flow.host.sender.handle_ack(&info, now);
        let taken = (outcome.newly_acked as usize).min(flow.forwarded);
        flow.forwarded -= taken;
        if let Some(hold) = &mut flow.hold {
            hold.consume(taken);
            if hold.len() == 0
                && let Some(hold) = flow.hold.take()
            {
                self.holds.give(hold);
            }
        }
        self.pump_host(flow, now);
    }

    /// Data or FIN that nobody asked for: the host closes an idle connection, or says that it was
    /// too slow.
    fn host_unasked(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        let recent_hit = flow.last_hit.is_some_and(|hit| now < hit + FIN_ABSORBED_AFTER_HIT);
        // While the client has yet to acknowledge bytes of the host, only the host can send them
        // again.
        let all_taken = flow.host.acked.ge(flow.host.rcv_nxt);
        if !flow.replies.is_empty() || ((recent_hit || has_unsent_request(flow)) && all_taken) {
            // The client is being served by the card, or has asked and the host has not heard it.
            // It need not know that the host is tired of waiting.
            self.counters.host_ends_absorbed += 1;
            self.count_host_frame(frame, tcp, Tracked::default());
            self.take_host_end(flow, tcp, now);
            return Keep::Yes;
        }
        self.splice_at_hold(flow, now);
        self.make_opaque(flow, None, now);
        self.host_reply_segment(flow, frame, tcp, now)
    }

    /// Takes what the host sends on a connection that the card closes toward it; nothing comes
    /// behind a FIN (RFC 9293 section 3.10.7.4).
    fn take_host_end(&mut self, flow: &mut Flow, tcp: &TcpFrame, now: Time) {
        let end = tcp.head.seq + tcp.payload_len();
        let is_open = !flow.host.fin_taken;
        if is_open && end.gt(flow.host.rcv_nxt) && tcp.head.seq.le(flow.host.rcv_nxt) {
            flow.host.rcv_nxt = end;
        }
        if is_open && tcp.head.flags.fin() && end == flow.host.rcv_nxt {
            flow.host.rcv_nxt = end + 1;
            flow.host.fin_taken = true;
        }
        flow.host.acked = flow.host.rcv_nxt;
        if flow.host.phase == HostPhase::Open {
            flow.host.phase = HostPhase::Closing;
            flow.host.sender.enqueue_fin();
        }
        self.ack_host(flow, SackBlocks::EMPTY);
        self.pump_host(flow, now);
    }

    fn host_closing_segment(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        self.count_host_frame(frame, tcp, Tracked::default());
        if tcp.head.flags.rst() {
            self.forget_host(flow);
            return self.after_host_is_gone(flow, now);
        }
        if tcp.head.flags.ack() {
            self.host_ack(flow, tcp, now);
        }
        if tcp.payload_len() > 0 || tcp.head.flags.fin() {
            self.take_host_end(flow, tcp, now);
        }
        if flow.host.fin_taken && flow.host.sender.all_acked() {
            self.forget_host(flow);
            return self.after_host_is_gone(flow, now);
        }
        Keep::Yes
    }

    fn after_host_is_gone(&mut self, flow: &mut Flow, now: Time) -> Keep {
        if flow.forwarded > 0 || matches!(flow.phase, Phase::Opaque(_)) {
            // A request came for the host while its connection was being closed: it gets another.
            self.open_host(flow, now);
            return Keep::Yes;
        }
        self.advance(flow, now);
        self.pump_client(flow, now);
        self.keep_unless_over(flow, now)
    }

    fn host_reset(
        &mut self,
        flow: &mut Flow,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> Keep {
        // RFC 5961 section 3.2: only the exact number counts. The host may have sent more than has
        // arrived; it answers the challenge with the number that it is shown.
        if tcp.head.seq != flow.host.rcv_nxt && tcp.head.seq != flow.host.acked {
            self.count_host_frame(frame, tcp, Tracked::default());
            self.counters.segments_unacceptable += 1;
            self.ack_host(flow, SackBlocks::EMPTY);
            return Keep::Yes;
        }
        let is_served = !flow.replies.is_empty() || has_unsent_request(flow);
        if flow.phase == Phase::Requests && is_served && !flow.host_replying() {
            self.count_host_frame(frame, tcp, Tracked::default());
            self.forget_host(flow);
            return self.after_host_is_gone(flow, now);
        }
        self.count_host_frame(frame, tcp, Tracked::default());
        self.abort_client(flow, now);
        Keep::No
    }

    /// The host knows the connection no longer; the next miss opens another.
    pub(crate) fn forget_host(&mut self, flow: &mut Flow) {
        flow.host.phase = HostPhase::Absent;
        flow.preface.owe();
        flow.host.fin_passed = false;
        flow.host.fin_taken = false;
    }

    /// Ends an opaque stretch whose end has come on both sides.
    pub(crate) fn resume_requests(&mut self, flow: &mut Flow) {
        let Phase::Opaque(Some(until)) = flow.phase else { return };
        if flow.host_replying() || flow.forwarded > 0 {
            return;
        }
        let host_facing = flow.splice.in_to_host(until);
        if flow.host_acked_in.lt(host_facing) {
            return;
        }
        flow.phase = Phase::Requests;
        flow.rcv_nxt = until;
        flow.acked_to_client = flow.acked_to_client.max(until);
        flow.host.sender.resume_at(host_facing);
    }
}

/// Does the card hold bytes of the client of which the host has none?
fn has_unsent_request(flow: &Flow) -> bool {
    flow.held() > 0 && flow.forwarded == 0
}

/// May a head end within these bytes, the first `known` of which have been looked at? A head ends
/// with an empty line.
pub(crate) fn ends_head(bytes: &[u8], known: usize) -> bool {
    let fresh = &bytes[known.saturating_sub(3)..];
    fresh.windows(2).any(|two| two == b"\n\n") || fresh.windows(3).any(|three| three == b"\n\r\n")
}
