//! The hand-made host: completes handshakes and answers every request with the same reply.

use std::collections::HashMap;

use nicache_tcp::{Flags, HeadRepr, SackBlocks, Seq, Timestamps};

use super::client::{From, Peer, build, read, syn_options};
use super::stage::{Sent, StageEnd};

/// A host.
pub(super) struct Host {
    end: StageEnd,
    connections: HashMap<u16, Peer>,
    reply: Vec<u8>,
    frame: Vec<u8>,
    inbox: Vec<Sent>,
    ticks: u32,
    /// Requests that have come.
    pub requests: u64,
}

impl Host {
    /// A host with this reply.
    pub(super) fn new(end: StageEnd, reply: Vec<u8>) -> Self {
        Self {
            end,
            connections: HashMap::new(),
            reply,
            frame: Vec::new(),
            inbox: Vec::new(),
            ticks: 500_000,
            requests: 0,
        }
    }

    /// Milliseconds of the host's own clock.
    pub(super) fn set_ticks(&mut self, ticks: u32) {
        self.ticks = ticks;
    }

    /// Answers what has come from the card.
    pub(super) fn answer_all(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.end.take(&mut inbox);
        for (head, payload) in inbox.iter().filter_map(read) {
            let mut flags = Flags::ACK;
            if head.flags.rst() {
                self.connections.remove(&head.src_port);
                continue;
            }
            if head.flags.syn() {
                let start = Seq(u32::from(head.src_port).wrapping_mul(0x9e37_79b1));
                self.connections
                    .insert(head.src_port, Peer { next: start, expected: head.seq + 1, heard: 0 });
                flags = flags | Flags::SYN;
            }
            let Some(peer) = self.connections.get_mut(&head.src_port) else { continue };
            if let Some(stamps) =
                head.timestamps.or_else(|| head.syn_options.and_then(|options| options.timestamps))
            {
                peer.heard = stamps.val;
            }
            let mut body: &[u8] = &[];
            if !head.flags.syn() {
                if head.seq != peer.expected {
                    continue;
                }
                peer.expected = peer.expected + payload + u32::from(head.flags.fin());
                if payload > 0 {
                    self.requests += 1;
                    body = &self.reply;
                    flags = flags | Flags::PSH;
                } else if head.flags.fin() {
                    flags = flags | Flags::FIN;
                } else {
                    continue;
                }
            }
            let answer = HeadRepr {
                src_port: head.dst_port,
                dst_port: head.src_port,
                seq: peer.next,
                ack: peer.expected,
                flags,
                window: 64_000,
                timestamps: Some(Timestamps { val: self.ticks, ecr: peer.heard }),
                sack: SackBlocks::EMPTY,
                syn_options: head.flags.syn().then(|| syn_options(self.ticks, peer.heard)),
                ..HeadRepr::default()
            };
            peer.next =
                peer.next + body.len() as u32 + u32::from(flags.syn()) + u32::from(flags.fin());
            let offload = build(&mut self.frame, From::Host, &answer, body);
            self.end.give(&self.frame, offload);
        }
        self.inbox = inbox;
    }
}
