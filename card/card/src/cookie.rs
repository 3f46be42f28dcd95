//! The card's own handshake under a flood: SYNs are answered from nothing and leave nothing
//! ([`nicache_tcp::syn_cookie`]); a connection begins with the segment that completes the
//! handshake.

use nicache_port::{FrameBuf, Port};
use nicache_tcp::cookie_keys::COOKIE_LIFE;
use nicache_tcp::handshake::{Limits, answer};
use nicache_tcp::splice::window_field;
use nicache_tcp::timestamps::{Paws, TsClock};
use nicache_tcp::{Flags, HeadRepr, Time, isn};

use crate::card::Card;
use crate::config::Handshake;
use crate::flow::{Flow, Phase};
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::packet::TcpFrame;

impl<W: Port, H: Port> Card<W, H> {
    /// Answers a SYN with a cookie. `flow` has what the handshake would agree on; it is not kept.
    pub(crate) fn send_cookie(&mut self, flow: &mut Flow, tcp: &TcpFrame, now: Time) {
        self.counters.syn_cookies_sent += 1;
        self.syn_pressure.handle_sent(now);
        self.cookies_until = Some(now + COOKIE_LIFE);
        let tuple = flow.key.tuple_bytes();
        let tsval = TsClock::new(isn::timestamp_offset(&self.config.isn_key, &tuple)).at(now);
        let mut asked = flow.client_options;
        asked.timestamps = asked.timestamps.filter(|_| flow.timestamps.is_some());
        let cookie = self.cookie_keys.make(&tuple, tcp.head.seq, &asked, tsval, now);
        if cookie.tsval.is_none() {
            // Nobody would remember the other options.
            (asked.window_scale, asked.sack_permitted, asked.ecn) = (None, false, false);
        }
        let limits = Limits { timestamps: cookie.tsval.is_some(), ..self.limits(flow) };
        let head = HeadRepr {
            src_port: flow.key.server_port,
            dst_port: flow.key.client_port,
            seq: cookie.seq,
            ack: flow.rcv_nxt,
            flags: Flags::SYN | Flags::ACK,
            window: window_field(REQUEST_WINDOW_BYTES, 0),
            syn_options: Some(answer(&asked, &limits, cookie.tsval.unwrap_or(0)).options),
            ..Default::default()
        };
        self.emit_to_client(flow, &head);
    }

    /// Takes a segment of an unknown connection if it answers a cookie; true if so.
    pub(crate) fn answer_cookie(
        &mut self,
        frame: &mut FrameBuf,
        tcp: &TcpFrame,
        now: Time,
    ) -> bool {
        let head = &tcp.head;
        let may_answer = self.config.handshake == Handshake::Card
            && self.cookies_until.is_some_and(|until| now < until)
            && head.flags.ack()
            && !head.flags.syn()
            && !head.flags.rst();
        if !may_answer {
            return false;
        }
        let tuple = tcp.key.tuple_bytes();
        let (client, ours) = (head.seq - 1, head.ack - 1);
        let Some(options) = self.cookie_keys.open(&tuple, client, ours, head.timestamps, now)
        else {
            return false;
        };
        let mut flow = Flow::opening(tcp, now);
        flow.client_options = options;
        flow.rcv_nxt = head.seq;
        flow.acked_to_client = head.seq;
        flow.phase = Phase::CardHandshake;
        flow.out_next = head.ack;
        flow.client_acked = ours;
        flow.client_edge = ours;
        let tsval = TsClock::new(isn::timestamp_offset(&self.config.isn_key, &tuple)).at(now);
        let limits = Limits { timestamps: options.timestamps.is_some(), ..self.limits(&flow) };
        let agreed = answer(&options, &limits, tsval);
        self.agree(&mut flow, &agreed, tsval, now);
        if let (Some(stamps), Some(theirs)) = (&mut flow.timestamps, head.timestamps) {
            stamps.sent = theirs.ecr;
            stamps.client = Paws::new(theirs.val, now);
        }
        self.syn_pressure.handle_answered(now);
        if !self.flows.has_room() {
            self.make_room(now);
        }
        let Some(index) = self.flows.insert(flow) else {
            // The handshake was completed with a card that is full by now.
            return false;
        };
        self.counters.flows += 1;
        self.counters.syn_cookies_accepted += 1;
        self.with_flow(index, now, |card, flow| card.card_handshake_segment(flow, frame, tcp, now));
        true
    }
}
