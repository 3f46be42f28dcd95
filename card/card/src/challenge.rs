//! Segments that do not fit their connection: answered at a limited rate, so whoever forges
//! them gets no packets for it (RFC 5961).

use nicache_port::Port;
use nicache_tcp::{Seq, Time, isn};

use crate::card::Card;
use crate::flow::Flow;
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::packet::TcpFrame;

impl<W: Port, H: Port> Card<W, H> {
    /// Tells the client where its connection stands, unless it was told just now (RFC 5961 sections
    /// 3 to 5 and 7).
    pub(crate) fn challenge_client(&mut self, flow: &mut Flow, now: Time) {
        let second = (now.0 / 1_000_000_000).to_be_bytes();
        let random = isn::siphash24(&self.config.isn_key.0, &second) as u32;
        if self.challenges.allows(&mut flow.challenged, now, random) {
            self.counters.challenges_sent += 1;
            self.ack_client(flow, now);
        } else {
            self.counters.challenges_refused += 1;
        }
    }

    /// Answers a segment that is dropped: bytes that come again are acknowledged each time, because
    /// their sender waits for that; all else is challenged.
    pub(crate) fn answer_unacceptable(&mut self, flow: &mut Flow, tcp: &TcpFrame, now: Time) {
        if tcp.payload_len() > 0 {
            self.ack_client(flow, now);
        } else {
            self.challenge_client(flow, now);
        }
    }
}

/// Whether a segment lies near the window of what is expected (RFC 9293 section 3.10.7.4). A
/// keep-alive probe, one number before, does.
pub(crate) fn is_near_window(flow: &Flow, tcp: &TcpFrame) -> bool {
    let end = tcp.head.seq + tcp.head.segment_len(tcp.payload_len());
    (end + 1).ge(flow.acked_to_client) && tcp.head.seq.le(flow.rcv_nxt + REQUEST_WINDOW_BYTES)
}

/// Whether an acknowledgment is of the recent past (RFC 5961 section 5.2): not older than the
/// largest window that the client ever offered.
pub(crate) fn is_recent(flow: &Flow, ack: Seq) -> bool {
    ack.ge(flow.client_acked)
        || flow.client_acked.since(ack) <= flow.client_window_max.max(u32::from(u16::MAX))
}
