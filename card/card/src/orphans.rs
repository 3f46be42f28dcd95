//! Connections that a card leaves behind, as records that outlive it, and what the next card has of
//! them.

use std::collections::{HashMap, VecDeque};

use nicache_tcp::Time;
use nicache_tcp::frame::{Address, Tags};

use crate::flow::Flow;
use crate::packet::{FlowKey, Mac};

/// Bytes of one record.
pub const RECORD_BYTES: usize = 64;
const USED: u8 = 0xa5;
/// Place of the sum; a record that was being written when the card ended has a wrong one.
const SUM_AT: usize = RECORD_BYTES - 1;

/// Where records are written. Each flow has a place of its own.
pub trait Ledger: Send {
    /// Writes the record of a place below the number of flows; all 0: there is none any longer.
    fn write(&mut self, place: u32, record: &[u8; RECORD_BYTES]);
}

/// A connection that a card has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub(crate) key: FlowKey,
    pub(crate) client_mac: Mac,
    pub(crate) server_mac: Mac,
    pub(crate) tags: Tags,
}

impl Orphan {
    pub(crate) fn of(flow: &Flow) -> Self {
        Self {
            key: flow.key,
            client_mac: flow.client_mac,
            server_mac: flow.server_mac,
            tags: flow.tags,
        }
    }

    /// Which connection it is.
    pub fn key(&self) -> FlowKey {
        self.key
    }

    /// The record: a mark, addresses, ports, MACs, tags, a sum.
    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
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
    pub fn decode(record: &[u8; RECORD_BYTES]) -> Option<Self> {
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
        Some(Self { key, client_mac: mac(37)?, server_mac: mac(43)?, tags })
    }
}

fn sum(record: &[u8; RECORD_BYTES]) -> u8 {
    record[..SUM_AT].iter().fold(0x5a, |sum: u8, byte| sum.rotate_left(1) ^ byte)
}

/// What a card has of the one before it.
#[derive(Default)]
pub(crate) struct Adopted {
    pub(crate) orphans: HashMap<FlowKey, Orphan>,
    /// Connections in `orphans` that have not been probed yet.
    pub(crate) unprobed: VecDeque<FlowKey>,
    pub(crate) until: Option<Time>,
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
