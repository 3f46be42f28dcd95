//! What an operator can set of a card.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use nicache_cache::Paths;
use nicache_http::KeyConfig;
use nicache_tcp::frame::{Address, IPV4_BYTES, IPV6_BYTES};
use nicache_tcp::isn::IsnKey;
use nicache_tcp::patience::{KeepAliveRules, ReadRules};

use crate::limits::{FLOWS_DEFAULT, MTU_DEFAULT};
use crate::own_ports::OwnPorts;

/// Bytes of a TCP header without options.
const TCP_HEADER_BYTES: usize = 20;
/// The number of an entry has room for so many beside that of the shard, in questions to the
/// watcher.
const ENTRIES_MAX: usize = 1 << 24;

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
    /// Connections tracked at most. Default 16384; each costs about 5 KiB.
    pub flows: usize,
    /// Connections at most whose handshake is not complete; with more, the oldest gives way, and
    /// the card's own handshakes are answered with SYN cookies from half of it on. At most half of
    /// `flows`. Default: 4096.
    pub half_open: usize,
    /// How long clients may take their time.
    pub patience: Patience,
    /// Entries at most. Each costs about 1 KiB beside its body, and up to 10 KiB more if clients of
    /// many kinds ask for it.
    pub entries: usize,
    /// What makes two requests the same, and which headers do not matter.
    pub keys: KeyConfig,
    /// Secret of this run that keeps clients from choosing collisions in the flow table.
    pub secret: u64,
    /// Secret of this run for initial sequence numbers (RFC 6528).
    pub isn_key: IsnKey,
    /// Bytes of an IP packet on the wire at most. Default 1500.
    pub mtu: u16,
    /// Are hits recorded for the access log?
    pub access_log: bool,
    /// What is set for paths: among other things, whether dynamic replies are cached, and how old
    /// they may become. Default: only files are cached.
    pub paths: Paths,
    /// Do the card's own replies carry Cache-Status (RFC 9211)? Default: no, so a client
    /// cannot tell them from the server's.
    pub cache_status: bool,
    /// Who asks the server again for the card.
    pub rechecker: Option<Rechecker>,
    /// Are requests of connections in good order answered the short way? The outcome is the same.
    /// Default: yes.
    pub prediction: bool,
}

/// How long clients may take their time. The defaults are generous: a mobile client in a tunnel is
/// not an attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Readers of replies from card memory.
    pub read: ReadRules,
    /// A client that has all and says nothing, of a connection that the card alone serves, as a
    /// server would close it. Default: 75 s, as nginx' keepalive_timeout.
    pub idle: Duration,
    /// Times that a SYN-ACK of the card is repeated, after 1 s, 2 s, 4 s, ... Default: 5, as Linux'
    /// tcp_synack_retries.
    pub syn_ack_retries: u8,
    /// From the first byte of a request's head to its last. Default: 60 s, as nginx'
    /// client_header_timeout.
    pub head: Duration,
    /// Clients of connections that the card cannot forget, while nothing happens.
    pub keep_alive: KeepAliveRules,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            read: ReadRules::default(),
            idle: Duration::from_secs(75),
            syn_ack_retries: 5,
            head: Duration::from_secs(60),
            keep_alive: KeepAliveRules::default(),
        }
    }
}

/// The client that asks the server again for the card
/// ([`Card::poll_recheck`](crate::Card::poll_recheck)): it connects like any other, and is told
/// apart by its address and port. Its requests are always forwarded.
#[derive(Clone, Debug)]
pub struct Rechecker {
    /// The client's address.
    pub address: Address,
    /// The client's ports, which nobody else at that address may use.
    pub ports: RangeInclusive<u16>,
    /// How it asks what clients ask who come through a proxy on this machine, if it can.
    pub as_proxy: Option<AsProxy>,
}

/// The address from which proxies on this machine reach the server. Servers may believe what a
/// proxy says by its address.
#[derive(Clone, Debug)]
pub struct AsProxy {
    /// The address.
    pub address: Address,
    /// Which TCP ports of the address belong to the card's own client.
    pub ports: Arc<OwnPorts>,
}

impl Rechecker {
    /// Is this an end of one of its connections?
    #[inline]
    pub(crate) fn has(&self, address: Address, port: u16) -> bool {
        match &self.as_proxy {
            _ if address == self.address => self.ports.contains(&port),
            Some(proxy) => address == proxy.address && proxy.ports.has(port),
            None => false,
        }
    }
}

impl CardConfig {
    /// A card for the given ports with defaults, for memory of `memory_bytes`.
    pub fn new(
        service_ports: Vec<u16>,
        memory_bytes: usize,
        keys: KeyConfig,
        secret: [u8; 16],
    ) -> Self {
        Self {
            service_ports,
            handshake: Handshake::default(),
            flows: FLOWS_DEFAULT,
            half_open: FLOWS_DEFAULT / 4,
            patience: Patience::default(),
            entries: (memory_bytes / 4096).clamp(64, ENTRIES_MAX),
            keys,
            secret: u64::from_le_bytes(std::array::from_fn(|at| secret[at] ^ secret[at + 8])),
            isn_key: IsnKey(secret),
            mtu: MTU_DEFAULT,
            access_log: false,
            paths: Paths::default(),
            cache_status: false,
            rechecker: None,
            prediction: true,
        }
    }

    /// Largest TCP payload of a segment toward the wire, options not deducted (RFC 9293 section
    /// 3.7.1).
    pub fn mss(&self, v4: bool) -> u16 {
        mss(self.mtu, v4)
    }
}

/// Largest TCP payload of a segment in a packet of `mtu` bytes, options not deducted.
pub(crate) fn mss(mtu: u16, v4: bool) -> u16 {
    let headers = if v4 { IPV4_BYTES } else { IPV6_BYTES } + TCP_HEADER_BYTES;
    mtu.saturating_sub(headers as u16)
}
