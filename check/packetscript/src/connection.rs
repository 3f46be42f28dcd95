//! What is known of one connection: where its relative numbers begin, and what both ends say on it.

use std::collections::HashMap;

use crate::content::Streams;
use crate::option::TcpOption;
use crate::packet::Packet;

const SYN: u8 = 2;

/// A connection of the script.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Its number.
    pub number: u16,
    /// Number of the client's SYN on the wire.
    pub client_isn: u32,
    /// Number of the server's SYN on the wire, once it has come.
    pub server_isn: Option<u32>,
    /// What both ends say.
    pub streams: Streams,
    /// The server's first and last TSval.
    stamps: Option<(u32, u32)>,
    /// Timestamps that the script has named.
    names: HashMap<String, u32>,
}

impl Connection {
    /// A connection on which nothing was said.
    pub(crate) fn new(number: u16, client_isn: u32, streams: Streams) -> Self {
        Self { number, client_isn, server_isn: None, streams, stamps: None, names: HashMap::new() }
    }

    /// Takes note of what a segment of the server tells about numbers.
    pub(crate) fn observe(&mut self, packet: &Packet) {
        if packet.flags & SYN != 0 && self.server_isn != Some(packet.seq) {
            self.server_isn = Some(packet.seq);
            self.stamps = None;
        }
        if let Some((val, _)) = timestamps(&packet.options) {
            let first = self.stamps.map_or(val, |(first, _)| first);
            self.stamps = Some((first, val));
        }
    }

    /// The server's numbers begin here; 0 as long as it has sent none.
    pub(crate) fn server_base(&self) -> u32 {
        self.server_isn.unwrap_or(0)
    }

    /// The server's first TSval; 0 as long as it has sent none.
    pub(crate) fn stamp_base(&self) -> u32 {
        self.stamps.map_or(0, |(first, _)| first)
    }

    /// The server's last TSval; 0 as long as it has sent none.
    pub(crate) fn last_stamp(&self) -> u32 {
        self.stamps.map_or(0, |(_, last)| last)
    }

    /// Names a timestamp.
    pub(crate) fn name_stamp(&mut self, name: &str, value: u32) {
        self.names.insert(name.to_owned(), value);
    }

    /// The timestamp of that name.
    pub(crate) fn named_stamp(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }
}

/// TSval and TSecr among options.
pub(crate) fn timestamps(options: &[TcpOption]) -> Option<(u32, u32)> {
    options.iter().find_map(|option| match option {
        TcpOption::Timestamps { val, ecr } => Some((*val, *ecr)),
        _ => None,
    })
}
