//! The connections that only this card can go on with, written down where they outlive it.
//!
//! A connection whose numbers the card has moved, or whose bytes it holds, is lost with the card: neither does the host know the client's numbers, nor the client the host's. Without
//! a word both would wait for each other. So the next card [tells the clients](crate::Card::adopt): a probe that no client takes for its own has it answer with the number that it
//! expects (RFC 9293 section 3.10.7.4), and with that number the connection is reset.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use nicache_port::Port;
use nicache_tcp::frame::{Address, Addresses, Tags};
use nicache_tcp::{Flags, HeadRepr, Seq, Time};

use crate::card::Card;
use crate::emit::Headers;
use crate::flow::{Flow, Phase};
use crate::packet::{FlowKey, Mac, TcpFrame};

/// Bytes of one record.
pub const RECORD_BYTES: usize = 64;
/// How long the next card looks out for connections of the last one.
const ADOPTED_FOR: Duration = Duration::from_secs(60);
/// Probes sent in one poll.
const PROBES: usize = 32;
const USED: u8 = 0xa5;
/// Place of the sum; a record that was being written when the card ended has a wrong one.
const SUM_AT: usize = RECORD_BYTES - 1;

/// Where records are written. Each flow has a place of its own.
pub trait Ledger: Send {
    /// Writes the record of a place below the number of flows; all 0: there is none any more.
    fn write(&mut self, place: u32, record: &[u8; RECORD_BYTES]);
}

/// A connection that a card has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    key: FlowKey,
    client_mac: Mac,
    server_mac: Mac,
    tags: Tags,
}

impl Orphan {
    fn of(flow: &Flow) -> Orphan {
        Orphan { key: flow.key, client_mac: flow.client_mac, server_mac: flow.server_mac, tags: flow.tags }
    }

    /// Which connection it is.
    pub fn key(&self) -> FlowKey {
        self.key
    }

    /// The record: a mark, addresses, ports, MACs, tags, a sum.
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[0] = USED;
        record[1..17].copy_from_slice(&self.key.client.octets());
        record[17..33].copy_from_slice(&self.key.server.octets());
        record[33..35].copy_from_slice(&self.key.client_port.to_be_bytes());
        record[35..37].copy_from_slice(&self.key.server_port.to_be_bytes());
        record[37..43].copy_from_slice(&self.client_mac);
        record[43..49].copy_from_slice(&self.server_mac);
        record[49..49 + self.tags.len()].copy_from_slice(self.tags.bytes());
        record[57] = self.tags.len() as u8;
        record[SUM_AT] = sum(&record);
        record
    }

    /// The connection of a record; `None` if there is none.
    pub fn decode(record: &[u8; RECORD_BYTES]) -> Option<Orphan> {
        if record[0] != USED || record[SUM_AT] != sum(record) {
            return None;
        }
        let address = |at: usize| {
            let octets: [u8; 16] = record[at..at + 16].try_into().ok()?;
            Some(Address::from(std::net::Ipv6Addr::from(octets)))
        };
        let port = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
        let mac = |at: usize| record[at..at + 6].try_into().ok();
        let tags = Tags::from_bytes(record.get(49..49 + usize::from(record[57]))?)?;
        let key = FlowKey {
            client: address(1)?,
            server: address(17)?,
            client_port: port(33),
            server_port: port(35),
            vlans: tags.vlans(),
        };
        Some(Orphan { key, client_mac: mac(37)?, server_mac: mac(43)?, tags })
    }
}

fn sum(record: &[u8; RECORD_BYTES]) -> u8 {
    record[..SUM_AT].iter().fold(0x5a, |sum: u8, byte| sum.rotate_left(1) ^ byte)
}

/// What a card has of the one before it.
#[derive(Default)]
pub(crate) struct Adopted {
    orphans: HashMap<FlowKey, Orphan>,
    /// Those that are to be probed yet.
    unprobed: VecDeque<FlowKey>,
    until: Option<Time>,
}

impl Adopted {
    /// Is there nothing to look out for? So it is with nearly all cards at nearly all times.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.orphans.is_empty()
    }

    /// When there is something to do.
    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        if self.unprobed.is_empty() { self.until } else { Some(now) }
    }
}

impl<W: Port, H: Port> Card<W, H> {
    /// Has connections that only this card can go on with written down from now on.
    pub fn keep_ledger(&mut self, ledger: Box<dyn Ledger>) {
        self.ledger = Some(ledger);
    }

    /// Takes over what another card has left behind: these connections are reset as soon as their clients show their numbers, which they are made to.
    pub fn adopt(&mut self, orphans: impl Iterator<Item = Orphan>, now: Time) {
        self.adopted.orphans = orphans.take(self.config.flows).map(|orphan| (orphan.key, orphan)).collect();
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

    /// A segment from a client or the host that belongs to no flow: true if it was one of a connection that is over.
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
        let headers = Headers::new(&addresses, &head, 0, u16::MAX, self.ports.ip_id, &capabilities, || 0);
        self.ports.send_to_wire(&[std::io::IoSlice::new(headers.bytes())], headers.offload, &mut self.counters);
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
        let headers = Headers::new(&addresses, &head, 0, u16::MAX, self.ports.ip_id, &capabilities, || 0);
        let bytes = crate::bus::FrameBytes { network_headers: headers.bytes().len() as u64, ..Default::default() };
        let parts = [std::io::IoSlice::new(headers.bytes())];
        self.ports.send_to_host(&parts, headers.offload, bytes, &mut self.counters);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_torn_ones_do_not() {
        let tags = Tags::from_bytes(&[0x81, 0, 0, 7]).unwrap();
        let key = FlowKey {
            client: Address::from(std::net::Ipv4Addr::new(10, 0, 0, 1)),
            server: Address::from(std::net::Ipv6Addr::LOCALHOST),
            client_port: 40_000,
            server_port: 80,
            vlans: tags.vlans(),
        };
        let orphan = Orphan { key, client_mac: [1; 6], server_mac: [2; 6], tags };
        let record = orphan.encode();
        assert_eq!(Orphan::decode(&record), Some(orphan));
        assert_eq!(Orphan::decode(&[0; RECORD_BYTES]), None);
        for at in 0..58 {
            let mut torn = record;
            torn[at] ^= 0x11;
            assert_eq!(Orphan::decode(&torn), None, "byte {at}");
        }
    }
}
