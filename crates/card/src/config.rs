//! What an operator can set of a card.

use std::ops::RangeInclusive;

use nicache_http::KeyConfig;
use nicache_tcp::isn::IsnKey;

use crate::limits::FLOWS_DEFAULT;
use crate::path::Paths;

/// Who answers a client's SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Handshake {
    /// The host; the card takes over at the first hit (bos2009 section 2.1).
    #[default]
    PassThrough,
    /// The card; the host hears of a connection at its first miss.
    Card,
}

/// Configuration of a card.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// TCP ports of the server that speak HTTP. Others pass.
    pub service_ports: Vec<u16>,
    /// Who answers a client's SYN. Default: the host.
    pub handshake: Handshake,
    /// Connections tracked at most. Default 16384; each costs about 2 KiB.
    pub flows: usize,
    /// Entries at most. Each costs about 1 KiB beside its body.
    pub entries: usize,
    /// What makes two requests the same, and which headers do not matter.
    pub keys: KeyConfig,
    /// Secret of this run that keeps clients from choosing collisions in the flow table.
    pub secret: u64,
    /// Secret of this run for initial sequence numbers (RFC 6528).
    pub isn_key: IsnKey,
    /// Largest TCP payload of a segment toward the wire, by its MTU.
    pub mss: u16,
    /// Are hits recorded for the access log?
    pub access_log: bool,
    /// What is set for paths: among other things, whether computed replies are cached, and how old they may become. Default: only files are
    /// cached.
    pub paths: Paths,
    /// Who asks the server again for the card.
    pub rechecker: Option<Rechecker>,
}

/// The client that asks the server again for the card ([`Card::poll_recheck`](crate::Card::poll_recheck)): it connects like any other,
/// and is told apart by its address and port. Its requests are always forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rechecker {
    /// Its IPv4 address.
    pub address: u32,
    /// Its ports, which nobody else at that address may use.
    pub ports: RangeInclusive<u16>,
}

impl CardConfig {
    /// A card for the given ports with defaults, for memory of `memory_bytes`.
    pub fn new(service_ports: Vec<u16>, memory_bytes: usize, keys: KeyConfig, secret: [u8; 16]) -> CardConfig {
        CardConfig {
            service_ports,
            handshake: Handshake::default(),
            flows: FLOWS_DEFAULT,
            entries: (memory_bytes / 4096).max(64),
            keys,
            secret: u64::from_le_bytes(std::array::from_fn(|at| secret[at] ^ secret[at + 8])),
            isn_key: IsnKey(secret),
            mss: 1460,
            access_log: false,
            paths: Paths::default(),
            rechecker: None,
        }
    }
}
