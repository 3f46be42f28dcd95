//! A client's end of one connection: it sends when it is told to, and keeps what comes.

use std::collections::BTreeMap;

use nicache_tcp::{Flags, HeadRepr, SackBlocks, Seq, SynOptions, Timestamps};

use super::line::Segment;

/// Shift of a client's windows, if it scales them.
const WINDOW_SCALE: u8 = 7;

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The object.
    pub path: u8,
    /// Its version when the request was made.
    pub floor: u8,
    /// Whether the reply may be a part.
    pub is_partial: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Client {
    /// Number of its address.
    pub address: u8,
    /// Its port.
    pub port: u16,
    /// Options of its SYN.
    pub options: SynOptions,
    /// First number of its own.
    first: Seq,
    /// First number of the server, once it is known.
    pub peer_first: Option<Seq>,
    /// The header of the PROXY protocol that it begins with; empty if it begins with none.
    pub preface: Vec<u8>,
    /// All that it wants to send.
    pub out: Vec<u8>,
    /// How much of it was sent, and acknowledged.
    pub sent: usize,
    acked: usize,
    /// It has nothing more to send.
    pub fin: bool,
    /// What has come in order.
    pub got: Vec<u8>,
    fin_got: bool,
    /// What has come out of order, by place.
    later: BTreeMap<usize, Vec<u8>>,
    /// Bytes of room.
    pub window: u32,
    recent: u32,
    /// The connection was reset.
    pub is_dead: bool,
    /// Something in its name was not what a client sends.
    pub has_lied: bool,
    /// Requests, in order.
    pub asked: Vec<Asked>,
    /// What was ever shown at each place of the stream toward it.
    pub shown: Vec<Option<u8>>,
}

impl Client {
    /// One that has not sent its SYN yet.
    pub(super) fn new(address: u8, port: u16, first: Seq, options: SynOptions) -> Self {
        Self {
            address,
            port,
            options,
            first,
            peer_first: None,
            preface: Vec::new(),
            out: Vec::new(),
            sent: 0,
            acked: 0,
            fin: false,
            got: Vec::new(),
            fin_got: false,
            later: BTreeMap::new(),
            window: 60_000,
            recent: 0,
            is_dead: false,
            has_lied: false,
            asked: Vec::new(),
            shown: Vec::new(),
        }
    }

    /// The header of a segment that begins at `at` of what it sends.
    pub(super) fn head(&self, flags: Flags, at: usize, now_ms: u32) -> HeadRepr {
        let is_syn = flags.syn();
        let timestamps = self
            .options
            .timestamps
            .map(|_| Timestamps { val: now_ms, ecr: if is_syn { 0 } else { self.recent } });
        let mut sack = SackBlocks::EMPTY;
        if self.options.sack_permitted {
            for (&place, bytes) in self.later.iter().rev() {
                let left = self.seq_of_peer(place);
                sack.push(left, left + bytes.len() as u32);
            }
        }
        let scale = if is_syn || self.options.window_scale.is_none() { 0 } else { WINDOW_SCALE };
        HeadRepr {
            src_port: self.port,
            dst_port: 80,
            seq: if is_syn { self.first } else { self.first + 1 + at as u32 },
            ack: if is_syn {
                Seq(0)
            } else {
                self.seq_of_peer(self.got.len()) + u32::from(self.fin_got)
            },
            flags,
            window: (self.window >> scale).min(0xffff) as u16,
            timestamps,
            sack,
            syn_options: is_syn.then_some(SynOptions { timestamps, ..self.options }),
            ..HeadRepr::default()
        }
    }

    fn seq_of_peer(&self, place: usize) -> Seq {
        self.peer_first.unwrap_or(Seq(0)) + 1 + place as u32
    }

    /// What a timeout has it send again: from where to where.
    pub(super) fn unacknowledged(&self) -> (usize, usize) {
        (self.acked.min(self.out.len()), self.out.len())
    }

    /// A segment has come. Whether it wants an answer.
    pub(super) fn take(&mut self, segment: &Segment) -> bool {
        let head = &segment.head;
        if self.is_dead {
            return false;
        }
        if head.flags.rst() {
            self.is_dead = true;
            return false;
        }
        if let Some(theirs) = head.timestamps {
            self.recent = theirs.val;
        }
        if head.flags.syn() {
            let fits = head.flags.ack() && head.ack == self.first + 1;
            if fits && self.peer_first.is_none() {
                self.peer_first = Some(head.seq);
            }
            return fits;
        }
        let Some(peer_first) = self.peer_first else { return false };
        let acked = head.ack.since(self.first + 1) as usize;
        if head.flags.ack() && acked <= self.sent + 1 {
            self.acked = self.acked.max(acked);
        }
        let place = head.seq.since(peer_first + 1) as usize;
        let len = segment.payload.len();
        let is_far = place > self.got.len() + (1 << 20);
        if len > 0 && !is_far && place + len > self.got.len() {
            self.later.insert(place, segment.payload.clone());
        }
        self.join();
        if head.flags.fin() && place + len == self.got.len() {
            self.fin_got = true;
        }
        len > 0 || head.flags.fin() || is_far
    }

    fn join(&mut self) {
        while let Some((&place, _)) = self.later.first_key_value() {
            if place > self.got.len() {
                return;
            }
            if let Some((place, bytes)) = self.later.pop_first()
                && place + bytes.len() > self.got.len()
            {
                let fresh = self.got.len() - place;
                self.got.extend(&bytes[fresh..]);
            }
        }
    }
}
