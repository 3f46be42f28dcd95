//! The connections that only this card can go on with, written down where they outlive it.
//!
//! A connection whose numbers the card has moved, or whose bytes it holds, is lost with the card:
//! neither does the host know the client's numbers, nor the client the host's. Without a word both
//! would wait for each other. So the next card [tells the clients](crate::Card::adopt): a probe
//! that no client takes for its own has it answer with the number that it expects (RFC 9293 section
//! 3.10.7.4), and with that number the connection is reset.

use std::time::Duration;

use nicache_port::Port;
use nicache_tcp::frame::Addresses;
use nicache_tcp::{Flags, HeadRepr, Seq, Time};

use crate::card::Card;
use crate::emit::Headers;
use crate::flow::{Flow, Phase};
use crate::orphans::{Adopted, Ledger, Orphan, RECORD_BYTES};
use crate::packet::TcpFrame;

/// How long the next card looks out for connections of the last one.
const ADOPTED_FOR: Duration = Duration::from_secs(60);
/// Probes sent in one poll.
const PROBES: usize = 32;

impl<W: Port, H: Port> Card<W, H> {
    /// Has connections that only this card can go on with written down from now on.
    pub fn keep_ledger(&mut self, ledger: Box<dyn Ledger>) {
        self.ledger = Some(ledger);
    }

    /// Takes over what another card has left behind: these connections are reset as soon as their
    /// clients show their numbers, which they are made to.
    pub fn adopt(&mut self, orphans: impl Iterator<Item = Orphan>, now: Time) {
        self.adopted.orphans =
            orphans.take(self.config.flows).map(|orphan| (orphan.key, orphan)).collect();
        self.adopted.unprobed = self.adopted.orphans.keys().copied().collect();
        self.adopted.until = (!self.adopted.is_empty()).then_some(now + ADOPTED_FOR);
    }

    /// Notes whether the connection is lost with this card.
    #[inline]
    pub(crate) fn note_in_ledger(&mut self, place: u32, flow: &mut Flow, lives: bool) {
        // While the host answers the handshake, the numbers are its own.
        let is_sole = lives && flow.phase != Phase::HostHandshake && !flow.is_forgettable();
        if flow.in_ledger == is_sole {
            return;
        }
        flow.in_ledger = is_sole;
        if let Some(ledger) = &mut self.ledger {
            let record = if is_sole { Orphan::of(flow).encode() } else { [0; RECORD_BYTES] };
            ledger.write(place, &record);
        }
    }

    /// Probes some of the clients of the card before this one.
    pub(crate) fn poll_adopted(&mut self, now: Time) {
        if self.adopted.until.is_some_and(|until| now >= until) {
            self.adopted = Adopted::default();
        }
        for _ in 0..PROBES {
            let Some(key) = self.adopted.unprobed.pop_front() else { return };
            if let Some(orphan) = self.adopted.orphans.get(&key).copied() {
                self.send_to_orphan(&orphan, Seq(0), Flags::ACK);
            }
        }
    }

    /// A segment from a client or the host that belongs to no flow: true if it was one of a
    /// connection that is over.
    pub(crate) fn reset_orphan(&mut self, tcp: &TcpFrame, from_client: bool) -> bool {
        let flags = tcp.head.flags;
        let Some(orphan) = self.adopted.orphans.get(&tcp.key).copied() else { return false };
        if from_client && flags.syn() && !flags.ack() {
            // The client has begun anew.
            self.adopted.orphans.remove(&tcp.key);
            return false;
        }
        if flags.rst() {
            return !from_client;
        }
        if flags.ack() {
            // RFC 9293 section 3.10.7.1: <SEQ=SEG.ACK><CTL=RST>.
            if from_client {
                self.counters.orphans_reset += 1;
                self.send_to_orphan(&orphan, tcp.head.ack, Flags::RST);
            } else {
                self.reset_host_of(&orphan, tcp.head.ack);
            }
        }
        true
    }

    fn send_to_orphan(&mut self, orphan: &Orphan, seq: Seq, flags: Flags) {
        let addresses = Addresses {
            source_mac: orphan.server_mac,
            destination_mac: orphan.client_mac,
            tags: orphan.tags,
            source: orphan.key.server,
            destination: orphan.key.client,
        };
        let (src_port, dst_port) = (orphan.key.server_port, orphan.key.client_port);
        let head = HeadRepr { src_port, dst_port, seq, flags, ..HeadRepr::default() };
        self.ports.ip_id = self.ports.ip_id.wrapping_add(1);
        let capabilities = self.ports.wire.capabilities();
        let headers =
            Headers::new(&addresses, &head, 0, u16::MAX, self.ports.ip_id, &capabilities, || 0);
        self.ports.send_to_wire(
            &[std::io::IoSlice::new(headers.bytes())],
            headers.offload,
            &mut self.counters,
        );
    }

    fn reset_host_of(&mut self, orphan: &Orphan, seq: Seq) {
        let addresses = Addresses {
            source_mac: orphan.client_mac,
            destination_mac: orphan.server_mac,
            tags: orphan.tags,
            source: orphan.key.client,
            destination: orphan.key.server,
        };
        let (src_port, dst_port) = (orphan.key.client_port, orphan.key.server_port);
        let head = HeadRepr { src_port, dst_port, seq, flags: Flags::RST, ..HeadRepr::default() };
        self.ports.ip_id = self.ports.ip_id.wrapping_add(1);
        let capabilities = self.ports.host.capabilities();
        let headers =
            Headers::new(&addresses, &head, 0, u16::MAX, self.ports.ip_id, &capabilities, || 0);
        let bytes = crate::bus::FrameBytes {
            network_headers: headers.bytes().len() as u64,
            ..Default::default()
        };
        let parts = [std::io::IoSlice::new(headers.bytes())];
        self.ports.send_to_host(&parts, headers.offload, bytes, &mut self.counters);
    }
}
