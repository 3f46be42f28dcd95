//! The hand-made ends' common part: frames over IPv4 and TCP, and the client.

use std::collections::HashMap;

use nicache_port::Offload;
use nicache_tcp::{Flags, HeadRepr, SackBlocks, SegmentHead, Seq, SynOptions, Timestamps};

use super::stage::{Sent, StageEnd, partial};

/// Where the TCP header starts.
pub(super) const TCP_AT: usize = 34;
/// Segment size with timestamps on an Ethernet.
pub(super) const MSS: u16 = 1448;
const MAC_CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ADDRESS_CLIENT: [u8; 4] = [10, 77, 0, 1];
const ADDRESS_SERVER: [u8; 4] = [10, 77, 0, 2];
const PORT_FIRST: u16 = 20_000;
/// Ports below are those of the connections that fill card memory, and stay open.
const PORT_AGAIN: u16 = 21_000;
const PORT_LAST: u16 = 60_000;
const PORT_SERVER: u16 = 80;

/// From which end a frame comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// The client.
    Client,
    /// The host.
    Host,
}

/// Builds a frame in `frame`; its checksums are left to whoever receives it.
pub(super) fn build(frame: &mut Vec<u8>, from: From, head: &HeadRepr, payload: &[u8]) -> Offload {
    let (source_mac, destination_mac, source, destination) = match from {
        From::Client => (MAC_CLIENT, MAC_SERVER, ADDRESS_CLIENT, ADDRESS_SERVER),
        From::Host => (MAC_SERVER, MAC_CLIENT, ADDRESS_SERVER, ADDRESS_CLIENT),
    };
    let ip_len = (20 + head.len() + payload.len()) as u16;
    frame.clear();
    frame.extend_from_slice(&destination_mac);
    frame.extend_from_slice(&source_mac);
    frame.extend_from_slice(&[0x08, 0x00, 0x45, 0x00]);
    frame.extend_from_slice(&ip_len.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&destination);
    frame.resize(TCP_AT + head.len(), 0);
    head.emit(&mut frame[TCP_AT..]);
    frame.extend_from_slice(payload);
    let mut offload = partial(TCP_AT as u16);
    if payload.len() > usize::from(MSS) {
        offload.gso = Some(nicache_port::Gso {
            kind: nicache_port::GsoKind::Tcp4,
            size: MSS,
            header_len: (TCP_AT + head.len()) as u16,
            ecn: false,
        });
    }
    offload
}

/// The TCP header and the payload length of a frame that the card sent.
pub(super) fn read(sent: &Sent) -> Option<(SegmentHead, u32)> {
    let tcp = sent.start().get(TCP_AT..)?;
    let head = nicache_tcp::parse(tcp).ok()?;
    let payload = sent.len.checked_sub(TCP_AT + head.header_len)?;
    Some((head, payload as u32))
}

/// A SYN's options, as Linux sends them.
pub(super) fn syn_options(val: u32, ecr: u32) -> SynOptions {
    SynOptions {
        mss: Some(1460),
        window_scale: Some(10),
        sack_permitted: true,
        timestamps: Some(Timestamps { val, ecr }),
        ecn: false,
    }
}

/// What the two ends know of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peer {
    /// Next byte to send.
    pub next: Seq,
    /// Next byte expected.
    pub expected: Seq,
    /// Last timestamp heard.
    pub heard: u32,
}

/// Connections of a client, in turn.
pub(super) struct Client {
    end: StageEnd,
    ports: Vec<u16>,
    connections: HashMap<u16, Peer>,
    requests: Vec<Vec<u8>>,
    frame: Vec<u8>,
    inbox: Vec<Sent>,
    ticks: u32,
    next_port: u16,
    /// Payload bytes that have come, in all.
    pub received: u64,
}

impl Client {
    /// A client that asks `requests[n]` on connection `n`.
    pub(super) fn new(end: StageEnd, requests: Vec<Vec<u8>>) -> Self {
        Self {
            end,
            ports: Vec::new(),
            connections: HashMap::new(),
            requests,
            frame: Vec::with_capacity(4096),
            inbox: Vec::new(),
            ticks: 1000,
            next_port: PORT_FIRST,
            received: 0,
        }
    }

    /// Milliseconds of the client's own clock.
    pub(super) fn set_ticks(&mut self, ticks: u32) {
        self.ticks = ticks;
    }

    /// Begins a connection for each request; earlier ones are forgotten.
    pub(super) fn open_all(&mut self) {
        self.ports.clear();
        self.connections.clear();
        for number in 0..self.requests.len() {
            let port = self.next_port;
            self.next_port = if port >= PORT_LAST { PORT_AGAIN } else { port + 1 };
            self.ports.push(port);
            let start = Seq(self.ticks.wrapping_mul(250_000).wrapping_add(u32::from(port)));
            self.connections.insert(port, Peer { next: start + 1, ..Peer::default() });
            let head = HeadRepr {
                seq: start,
                flags: Flags::SYN,
                window: 64_240,
                syn_options: Some(syn_options(self.ticks, 0)),
                ..self.head(number)
            };
            self.send(&head, &[]);
        }
    }

    /// Sends each connection's request, which acknowledges all that has come.
    pub(super) fn ask_all(&mut self) {
        for number in 0..self.requests.len() {
            let head = HeadRepr { flags: Flags::ACK | Flags::PSH, ..self.head(number) };
            let request = std::mem::take(&mut self.requests[number]);
            self.send(&head, &request);
            if let Some(peer) = self.connections.get_mut(&self.ports[number]) {
                peer.next += request.len() as u32;
            }
            self.requests[number] = request;
        }
    }

    /// Acknowledges what has come on each connection.
    pub(super) fn acknowledge_all(&mut self) {
        for number in 0..self.requests.len() {
            let head = self.head(number);
            self.send(&head, &[]);
        }
    }

    /// Ends each connection, acknowledging all.
    pub(super) fn close_all(&mut self) {
        for number in 0..self.requests.len() {
            let head = HeadRepr { flags: Flags::ACK | Flags::FIN, ..self.head(number) };
            self.send(&head, &[]);
            if let Some(peer) = self.connections.get_mut(&self.ports[number]) {
                peer.next += 1;
            }
        }
    }

    /// Takes what the card has sent.
    pub(super) fn take_all(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.end.take(&mut inbox);
        for (head, payload) in inbox.iter().filter_map(read) {
            let Some(peer) = self.connections.get_mut(&head.dst_port) else { continue };
            if let Some(stamps) = head.timestamps {
                peer.heard = stamps.val;
            }
            if head.flags.syn() {
                peer.expected = head.seq + 1;
            } else if head.seq == peer.expected {
                peer.expected = peer.expected + payload + u32::from(head.flags.fin());
                self.received += u64::from(payload);
            }
        }
        self.inbox = inbox;
    }

    /// An acknowledgment on connection `number`.
    fn head(&self, number: usize) -> HeadRepr {
        let port = self.ports[number];
        let peer = self.connections.get(&port).copied().unwrap_or_default();
        HeadRepr {
            src_port: port,
            dst_port: PORT_SERVER,
            seq: peer.next,
            ack: peer.expected,
            flags: Flags::ACK,
            window: 502,
            timestamps: Some(Timestamps { val: self.ticks, ecr: peer.heard }),
            sack: SackBlocks::EMPTY,
            ..HeadRepr::default()
        }
    }

    fn send(&mut self, head: &HeadRepr, payload: &[u8]) {
        let offload = build(&mut self.frame, From::Client, head, payload);
        self.end.give(&self.frame, offload);
    }
}
