//! Routers that say that a packet is too long for the next link ([`TooBig`]).
//!
//! Anybody can send such a message, so it counts only if it quotes bytes that are under way now
//! (RFC 5927 section 4.1). Whoever sent these obeys it: the card, or the host, to which the message
//! passes with the host's own number.

use std::io::IoSlice;

use nicache_port::{FrameBuf, Port};
use nicache_tcp::Time;
use nicache_tcp::handshake::TIMESTAMPS_BYTES;

use crate::bus::FrameBytes;
use crate::card::{Card, Keep};
use crate::flow::Flow;
use crate::too_big::TooBig;

/// Paths that carry less are not believed in (IPv4: Linux' `min_pmtu`; IPv6: RFC 8200 section 5).
const MTU_MIN_V4: u32 = 552;
const MTU_MIN_V6: u32 = 1280;
/// Bytes of the quoted headers that are rewritten for the host at most: all that a router quotes of
/// IPv6 (RFC 4443 section 2.4).
const MESSAGE_BYTES_MAX: usize = 1500;

impl<W: Port, H: Port> Card<W, H> {
    /// A router has dropped a segment that was on its way to the client.
    pub(crate) fn path_too_narrow(
        &mut self,
        flow: &mut Flow,
        frame: &FrameBuf,
        told: &TooBig,
        now: Time,
    ) -> Keep {
        let is_under_way = told.seq.ge(flow.client_acked) && told.seq.lt(flow.sent());
        if !is_under_way {
            self.counters.too_big_ignored += 1;
            return Keep::Yes;
        }
        let v4 = flow.key.client.is_v4();
        if !v4 && told.mtu < MTU_MIN_V6 {
            // RFC 8201 section 4: such a message must be discarded.
            self.counters.too_big_ignored += 1;
            return Keep::Yes;
        }
        let mtu = told.mtu.max(if v4 { MTU_MIN_V4 } else { MTU_MIN_V6 });
        let options = if flow.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 };
        let mss = crate::config::mss(u16::try_from(mtu).unwrap_or(u16::MAX), v4) - options;
        if mss < flow.mss {
            self.counters.too_big_obeyed += 1;
            flow.mss = mss;
            flow.sender.handle_path_mtu(mss);
        }
        if flow.card_speaks() && told.seq.ge(flow.sender.una()) {
            self.pump_client(flow, now);
        } else {
            self.pass_too_big(flow, frame, told);
        }
        Keep::Yes
    }

    /// Tells the host about a segment of its own.
    fn pass_too_big(&mut self, flow: &Flow, frame: &FrameBuf, told: &TooBig) {
        let mut copy = [0; MESSAGE_BYTES_MAX];
        let Some(copy) = copy.get_mut(..frame.len()) else {
            self.counters.too_big_ignored += 1;
            return;
        };
        copy.copy_from_slice(frame.data());
        told.renumber(copy, flow.splice.out_to_host(told.seq));
        self.ports.send_to_host(
            &[IoSlice::new(copy)],
            frame.offload(),
            FrameBytes::other(frame.len()),
            &mut self.counters,
        );
    }
}
