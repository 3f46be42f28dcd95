//! A card with its ports, and what crosses them: everything that comes out is checked, and given to
//! whom it is for.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IoSlice;
use std::sync::{Arc, PoisonError};

use nicache_cache::{PathSettings, Paths, Store};
use nicache_card::{Card, CardConfig, Handshake, limits};
use nicache_coherence::RevisionTable;
use nicache_http::KeyConfig;
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_port::{
    Burst, Capabilities, Checksum, FrameBuf, Gso, GsoKind, MemoryPort, Offload, Port, memory_wire,
};
use nicache_tcp::frame::{Packet, Tags};
use nicache_tcp::wire::CHECKSUM_OFFSET;
use nicache_tcp::{Flags, HeadRepr, Seq, Time};

use super::choices::Choices;
use super::client::Client;
use super::content::{self, PATHS};
use super::host::{HostEnd, Server, Wants};
use super::line::{self, Line, Segment};
use super::watcher::{SharedMood, Watcher};

const MEMORY_BYTES: usize = 1 << 20;
const MTU: usize = 1500;
const UNIX_S: u64 = 1_700_000_100;
/// Smallest payload that card and host fill segments with, whatever a client takes.
const MSS_MIN: u16 = 64;
/// Smallest payload that card and host fill segments with on connections that a SYN cookie has
/// opened.
const COOKIE_MSS_MIN: u16 = 216;
/// Frames of one side that can be repeated.
const MEMORIES: usize = 32;
/// Frames that a wire holds in one direction.
const WIRE_FRAMES: usize = 24;
/// Number of the server's address.
pub(super) const SERVER: u8 = 9;

/// What was done to a frame on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// Which byte, from the IP header on.
    pub at: usize,
    /// Which bits.
    pub bits: u8,
    /// Whether the sums are made right afterwards.
    pub is_summed: bool,
}

/// Which checks do not hold any longer.
#[derive(Debug, Default)]
pub(super) struct Lies {
    /// Headers of the host were changed: any of its bytes may be anywhere.
    pub host_order: bool,
    /// Heads of replies were changed.
    pub host_content: bool,
    /// Segments came in the name of whomever.
    pub anybody: bool,
}

/// What a card has done in a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Digest of the frames that came out of it.
    pub frames: u64,
    /// All that was counted but the next.
    pub counters: String,
    /// Hits that were answered the short way.
    pub predicted: u64,
}

/// A card with its ports, and what crosses them: everything that comes out is checked, and given to
/// whom it is for.
pub(super) struct Traffic {
    /// The card.
    pub card: Card<MemoryPort, MemoryPort>,
    /// Frames.
    pub line: Line,
    /// Who changed what.
    pub table: Arc<RevisionTable>,
    /// The watcher, and the versions of objects.
    pub mood: SharedMood,
    /// The time.
    pub now: Time,
    /// All that have ever opened a connection.
    pub clients: Vec<Client>,
    /// All that have ever been opened at the host.
    pub ends: Vec<HostEnd>,
    /// The server.
    pub server: Server,
    /// What cannot be checked any longer.
    pub lies: Lies,
    /// Of the next frames to clients and to the host, those whose bit is set are lost.
    pub losses: [u32; 2],
    /// What becomes of the next frame of a client and of the host.
    pub changes: [Option<Change>; 2],
    /// Ends answer at once: clients acknowledge, the host does, the server serves.
    pub at_once: [bool; 3],
    /// A witness is stopped in the middle.
    has_gap: bool,
    host_timestamps: bool,
    host_wraps: bool,
    super_frames: bool,
    ports: [MemoryPort; 2],
    burst: Burst,
    capabilities: Capabilities,
    /// Frames that were sent into the card, by their hashes.
    given: HashSet<u64>,
    memories: [VecDeque<Vec<u8>>; 2],
    free_bytes: u64,
    entries: usize,
    flows: usize,
    hosts_seen: u8,
    /// All frames that have come out of the card, and when.
    seen: DefaultHasher,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// VLAN tags that occur: none, one, two.
fn tags(choice: u8) -> Tags {
    let bytes = [0x88, 0xa8, 0x20, 0x07, 0x81, 0x00, 0x01, 0x00];
    let bytes = match choice {
        0 => &bytes[..0],
        1 => &bytes[4..],
        _ => &bytes[..],
    };
    Tags::from_bytes(bytes).expect("tags")
}

impl Traffic {
    /// A card as the first bytes want it, which answers expected requests the short way or not.
    pub(super) fn new(choices: &mut Choices<'_>, prediction: bool) -> Self {
        let (shape, habits, size) = (choices.byte(), choices.byte(), choices.byte());
        let line = Line { is_v6: shape & 2 != 0, tags: tags((shape >> 5) & 3) };
        let plain =
            Capabilities { frame_bytes_max: 14 + line.tags.len() + MTU, ..Capabilities::PLAIN };
        let capabilities = match (shape >> 2) & 3 {
            0 | 1 => plain,
            2 => Capabilities { checksum: true, ..plain },
            _ => Capabilities::FULL,
        };
        let (wire, client_end) = memory_wire(WIRE_FRAMES, capabilities, capabilities);
        let (host, host_end) = memory_wire(WIRE_FRAMES, capabilities, capabilities);
        let table = RevisionTable::on_heap();
        table.renew_lease(u64::MAX);
        let memory = CardMemory::new(MEMORY_BYTES, HugePages::No).expect("1 MiB");
        let free_bytes = memory.free_bytes();
        let mut config = CardConfig::new(vec![80], MEMORY_BYTES, KeyConfig::new([3; 16]), [5; 16]);
        config.handshake = if shape & 1 == 0 { Handshake::Card } else { Handshake::PassThrough };
        config.flows = [64, 16, 4, 256][usize::from(size & 3)];
        config.half_open = config.flows / 2;
        config.entries = [64, 3][usize::from(size >> 2 & 1)];
        config.cache_status = size & 8 != 0;
        config.prediction = prediction;
        if size & 16 != 0 {
            config.paths = Paths::new(
                PathSettings { keeps_dynamic: true, ..PathSettings::default() },
                Vec::new(),
            );
        }
        let (entries, flows) = (config.entries, config.flows);
        let policy = Box::new(Lru::new(MEMORY_BYTES as u64, entries as u32));
        let store = Store::new(memory, policy, Arc::clone(&table), entries);
        let mood = SharedMood::default();
        mood.lock().unwrap_or_else(PoisonError::into_inner).computed =
            if size & 16 != 0 { 0b0011_0000 } else { 0 };
        let watcher = Watcher::new(Arc::clone(&mood), Arc::clone(&table));
        Self {
            card: Card::new(wire, host, config, store, Box::new(watcher), Time(0)),
            line,
            table,
            mood,
            now: Time(1_000_000_000),
            clients: Vec::new(),
            ends: Vec::new(),
            server: Server::default(),
            lies: Lies::default(),
            losses: [0; 2],
            changes: [None; 2],
            at_once: [habits & 1 == 0, habits & 2 == 0, habits & 4 == 0],
            has_gap: false,
            host_timestamps: habits & 8 == 0,
            host_wraps: habits & 16 != 0,
            super_frames: habits & 32 != 0 && capabilities.tso,
            ports: [client_end, host_end],
            burst: Burst::new(4),
            capabilities,
            given: HashSet::new(),
            memories: Default::default(),
            free_bytes,
            entries,
            flows,
            hosts_seen: 0,
            seen: DefaultHasher::new(),
        }
    }

    /// Milliseconds since the start.
    pub(super) fn now_ms(&self) -> u32 {
        (self.now.0 / 1_000_000) as u32
    }

    /// A client sends what lies between two places of what it has to send.
    pub(super) fn send_client(&mut self, number: usize, flags: Flags, from: usize, to: usize) {
        let client = &mut self.clients[number];
        client.sent = client.sent.max(to);
        let head = client.head(flags, from, (self.now.0 / 1_000_000) as u32);
        let frame = self.line.segment(client.address, SERVER, &head, &client.out[from..to], false);
        self.give(0, frame, Offload::default(), Some(number));
    }

    /// The host sends at most `len` bytes on a connection. Whether there was anything.
    pub(super) fn send_host(&mut self, number: usize, again: bool) -> bool {
        let end = &mut self.ends[number];
        let mss = usize::from(end.mss());
        let len = if self.super_frames { 4 * mss } else { mss };
        let Some((from, to, is_last)) = end.next(len, again) else { return false };
        let flags = if is_last { Flags::ACK | Flags::FIN } else { Flags::ACK | Flags::PSH };
        let head = end.head(flags, from, (self.now.0 / 1_000_000) as u32);
        let payload = end.bytes(from, to).to_vec();
        self.emit_host(number, &head, &payload);
        true
    }

    /// The host sends that segment.
    pub(super) fn emit_host(&mut self, number: usize, head: &HeadRepr, payload: &[u8]) {
        let (address, mss) = (self.ends[number].address, self.ends[number].mss());
        let is_partial = self.super_frames && payload.len() > usize::from(mss);
        let frame = self.line.segment(SERVER, address, head, payload, is_partial);
        let mut offload = Offload::default();
        if is_partial {
            let start = self.line.tcp_at();
            offload.checksum =
                Checksum::Partial { start: start as u16, offset: CHECKSUM_OFFSET as u16 };
            let kind = if self.line.is_v6 { GsoKind::Tcp6 } else { GsoKind::Tcp4 };
            let header_len = (start + head.len()) as u16;
            offload.gso = Some(Gso { kind, size: mss, header_len, ecn: false });
        }
        self.give(1, frame, offload, None);
    }

    /// A frame goes to the card, from clients (0) or the host (1).
    pub(super) fn give(
        &mut self,
        side: usize,
        mut frame: Vec<u8>,
        offload: Offload,
        of: Option<usize>,
    ) {
        if let Some(change) = self.changes[side].take()
            && offload == Offload::default()
        {
            self.change(side, &mut frame, change, of);
        } else if offload == Offload::default() {
            self.memories[side].truncate(MEMORIES - 1);
            self.memories[side].push_front(frame.clone());
        }
        self.given.insert(hash(&frame));
        let _ = self.ports[side].send(&[IoSlice::new(&frame)], offload);
    }

    fn change(&mut self, side: usize, frame: &mut [u8], change: Change, of: Option<usize>) {
        let ip_at = 14 + self.line.tags.len();
        let payload_at = Packet::parse(frame)
            .and_then(|packet| Some(packet.transport_at + line::segment(frame)?.head.header_len))
            .unwrap_or(frame.len());
        let Some(len) = frame.len().checked_sub(ip_at).filter(|&len| len > 0) else { return };
        let at = ip_at + change.at % len;
        frame[at] ^= change.bits;
        if at >= payload_at {
            // Nobody makes up bytes of bodies.
            frame[at] &= 0x7f;
        }
        if change.is_summed {
            line::sum_again(frame);
        }
        match (side, of) {
            (0, Some(of)) => {
                self.clients[of].has_lied = true;
                let names = ip_at + 8..self.line.tcp_at() + 4;
                self.lies.anybody |= names.contains(&at);
            }
            (0, None) => self.lies.anybody = true,
            _ if at >= payload_at => self.lies.host_content = true,
            _ => self.lies.host_order = true,
        }
    }

    /// An earlier frame comes once more.
    pub(super) fn give_again(&mut self, side: usize, which: usize) {
        if let Some(frame) = self.memories[side].get(which) {
            let _ = self.ports[side].send(&[IoSlice::new(frame)], Offload::default());
        }
    }

    /// An earlier frame of that side.
    pub(super) fn memory(&self, side: usize, which: usize) -> Option<&Vec<u8>> {
        self.memories[side].get(which)
    }

    /// The card works until nothing moves.
    pub(super) fn settle(&mut self) {
        for _ in 0..40 {
            self.card.poll(self.now, UNIX_S).expect("ports in memory do not break");
            let to_clients = self.take(0);
            let to_host = self.take(1);
            for (frame, offload) in &to_clients {
                self.at_client(frame, offload);
            }
            for (frame, offload) in &to_host {
                self.at_host(frame, offload);
            }
            if to_clients.is_empty() && to_host.is_empty() && self.ports_are_idle() {
                break;
            }
        }
        self.check_limits();
    }

    /// What the card has done until now: a digest of the frames that have come out of it, what it
    /// has counted, and how many hits were answered the short way.
    pub(super) fn outcome(&self) -> Outcome {
        let mut counters = self.card.counters().clone();
        let predicted = std::mem::take(&mut counters.hits_predicted);
        Outcome { frames: self.seen.finish(), counters: format!("{counters:?}"), predicted }
    }

    fn ports_are_idle(&self) -> bool {
        self.card.wire().pending() == 0 && self.card.host().pending() == 0
    }

    fn take(&mut self, side: usize) -> Vec<(Vec<u8>, Offload)> {
        let mut frames = Vec::new();
        while self.ports[side].receive(&mut self.burst).expect("in memory") > 0 {
            frames.extend(
                self.burst.iter().map(|frame: &FrameBuf| (frame.data().to_vec(), frame.offload())),
            );
        }
        (side, self.now.0, &format!("{frames:?}")).hash(&mut self.seen);
        frames
    }

    fn check_frame(&mut self, frame: &[u8], offload: &Offload) {
        if !self.given.contains(&hash(frame)) {
            line::check(frame, offload, 14 + self.line.tags.len() + MTU);
            assert!(self.capabilities.supports(offload));
        }
    }

    fn is_lost(&mut self, side: usize) -> bool {
        let lost = self.losses[side] & 1 == 1;
        self.losses[side] >>= 1;
        lost
    }

    fn at_client(&mut self, frame: &[u8], offload: &Offload) {
        self.check_frame(frame, offload);
        let Some(segment) = line::segment(frame) else { return };
        let is_for = |client: &Client| {
            self.line.address(client.address) == segment.destination
                && client.port == segment.head.dst_port
        };
        let found = self.clients.iter().rposition(is_for);
        if !self.lies.host_order {
            let (line, ends) = (self.line, &self.ends);
            content::check(&segment.payload, &self.server.made, |number| {
                ends.iter().any(|end| {
                    let key = (line.address(end.address), end.port);
                    end.number == number && key == (segment.destination, segment.head.dst_port)
                })
            });
        }
        let Some(number) = found else { return };
        let client = &self.clients[number];
        if !client.is_dead && !client.has_lied && !self.lies.host_order && !self.lies.anybody {
            self.check_segment(number, &segment, offload);
        }
        if self.is_lost(0) {
            return;
        }
        let wants = self.clients[number].take(&segment);
        if wants && self.at_once[0] {
            let at = self.clients[number].sent;
            self.send_client(number, Flags::ACK, at, at);
        }
    }

    /// What a client sees that has told no lies: segments that it can take, and the same bytes at
    /// the same place, whenever they come.
    fn check_segment(&mut self, number: usize, segment: &Segment, offload: &Offload) {
        // A cookie has no room for smaller ones.
        let least =
            if self.card.counters().syn_cookies_accepted > 0 { COOKIE_MSS_MIN } else { MSS_MIN };
        let client = &mut self.clients[number];
        let most =
            client.options.mss.unwrap_or(if self.line.is_v6 { 1220 } else { 536 }).max(least);
        let len = offload.gso.map_or(segment.payload.len(), |gso| usize::from(gso.size));
        assert!(len <= usize::from(most), "{len} bytes for a client that takes {most}");
        let Some(first) = client.peer_first.filter(|_| !segment.head.flags.syn()) else { return };
        let place = segment.head.seq.since(first + 1) as usize;
        if self.lies.host_content || segment.payload.is_empty() {
            return;
        }
        assert!(place < 1 << 22, "bytes from nowhere: {:?} after {first:?}", segment.head);
        let end = place + segment.payload.len();
        if client.shown.len() < end {
            client.shown.resize(end, None);
        }
        for (shown, &byte) in client.shown[place..end].iter_mut().zip(&segment.payload) {
            assert!(
                shown.is_none_or(|shown| shown == byte),
                "another byte at the same place than before"
            );
            *shown = Some(byte);
        }
    }

    fn at_host(&mut self, frame: &[u8], offload: &Offload) {
        self.check_frame(frame, offload);
        let Some(segment) = line::segment(frame) else { return };
        if self.is_lost(1) || segment.destination != self.line.address(SERVER) {
            return;
        }
        let Some(address) = (1..SERVER).find(|&number| self.line.address(number) == segment.source)
        else {
            return;
        };
        let is_of = |end: &HostEnd| (end.address, end.port) == (address, segment.head.src_port);
        let found = self.ends.iter().rposition(is_of).filter(|&found| !self.ends[found].is_dead);
        if segment.head.flags.syn() && !segment.head.flags.ack() {
            self.syn_at_host(found, address, &segment);
            return;
        }
        let Some(number) = found else { return };
        let wants = self.ends[number].take(&segment);
        if wants == Wants::Reset {
            let head =
                HeadRepr { seq: segment.head.ack, ..self.ends[number].head(Flags::RST, 0, 0) };
            self.ends[number].is_dead = true;
            self.emit_host(number, &head, &[]);
            return;
        }
        if self.at_once[2] {
            self.serve(number);
            self.flush_host(number, 4);
        }
        if wants == Wants::Ack && self.at_once[1] {
            self.ack_host(number, Flags::ACK);
        }
    }

    fn syn_at_host(&mut self, found: Option<usize>, address: u8, syn: &Segment) {
        let number = match found.filter(|&found| self.ends[found].peer_first == syn.head.seq) {
            Some(found) => found,
            None if self.hosts_seen + 1 == content::VERSIONS => return,
            None => {
                let first =
                    if self.host_wraps { Seq(0u32.wrapping_sub(200)) } else { Seq(700_000) };
                let first = first + u32::from(self.hosts_seen) * 1_000_000;
                let end = HostEnd::new(address, self.hosts_seen, syn, first, self.host_timestamps);
                self.hosts_seen += 1;
                self.ends.push(end);
                self.ends.len() - 1
            }
        };
        if self.at_once[1] {
            self.ack_host(number, Flags::SYN | Flags::ACK);
        }
    }

    /// The host says what it has got.
    pub(super) fn ack_host(&mut self, number: usize, flags: Flags) {
        let end = &self.ends[number];
        let head = end.head(flags, end.sent(), self.now_ms());
        self.emit_host(number, &head, &[]);
    }

    /// The server answers all requests on a connection.
    pub(super) fn serve(&mut self, number: usize) {
        let mood = Arc::clone(&self.mood);
        let mut mood = mood.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(changed) = self.ends[number].serve(&mood.versions, &mut self.server) {
            if let Some(changed) = changed {
                bump(&mut mood.versions, changed.0);
                if !self.has_gap {
                    self.table.record_change(super::watcher::slot(changed.0));
                }
            }
        }
    }

    /// The host sends at most so many segments.
    pub(super) fn flush_host(&mut self, number: usize, segments: usize) {
        for _ in 0..segments {
            if !self.send_host(number, false) {
                break;
            }
        }
    }

    /// Somebody writes an object.
    pub(super) fn write(&mut self, path: u8) {
        let mood = Arc::clone(&self.mood);
        bump(&mut mood.lock().unwrap_or_else(PoisonError::into_inner).versions, path);
        if !self.has_gap {
            self.table.record_change(super::watcher::slot(path));
        }
    }

    /// A witness is stopped in the middle, so nobody tells of changes; or it goes on.
    pub(super) fn turn_gap(&mut self) {
        self.has_gap = !self.has_gap;
        match self.has_gap {
            true => self.table.begin_gap(),
            false => self.table.end_gap(),
        }
    }

    /// Present versions.
    pub(super) fn versions(&self) -> [u8; PATHS] {
        self.mood.lock().unwrap_or_else(PoisonError::into_inner).versions
    }

    /// Time passes, and the card is polled whenever it is due.
    pub(super) fn wait(&mut self, ms: u64) {
        let until = Time(self.now.0 + ms * 1_000_000);
        for _ in 0..30 {
            let Some(due) = self.card.next_due().filter(|&due| due < until) else { break };
            self.now = due.max(Time(self.now.0 + 1_000));
            self.settle();
        }
        self.now = until.max(self.now);
        self.settle();
    }

    fn check_limits(&self) {
        let (in_use, bus) = (self.card.in_use(), &self.card.counters().bus);
        assert!(in_use.flows <= self.flows && in_use.fills <= nicache_cache::limits::FILLS_MAX);
        assert!(in_use.holds <= (self.flows / limits::FLOWS_PER_HOLD).max(16));
        assert!(
            in_use.part_sets <= limits::PART_SETS_MAX && in_use.entries <= self.entries,
            "{in_use:?}"
        );
        assert!(self.card.store().memory().used_bytes() <= MEMORY_BYTES as u64);
        assert_eq!(bus.total(), bus.sum_of_classes());
    }

    /// Nobody says anything any more: whatever was open goes away by itself, and all memory comes
    /// back.
    pub(super) fn end(&mut self) {
        {
            let mood = Arc::clone(&self.mood);
            let mut mood = mood.lock().unwrap_or_else(PoisonError::into_inner);
            (mood.is_deaf, mood.is_mute) = (false, false);
        }
        for _ in 0..400 {
            self.now = Time(self.now.0 + 60_000_000_000);
            self.card.poll(self.now, UNIX_S).expect("ports in memory do not break");
            for side in [0, 1] {
                for (frame, offload) in self.take(side) {
                    self.check_frame(&frame, &offload);
                }
            }
            let in_use = self.card.in_use();
            if in_use.flows == 0 && in_use.fills == 0 {
                break;
            }
        }
        self.card.purge(|_| true);
        assert_eq!(self.card.in_use(), nicache_card::InUse::default());
        let memory = self.card.store().memory();
        assert_eq!((memory.used_bytes(), memory.free_bytes()), (0, self.free_bytes));
    }
}

fn bump(versions: &mut [u8; PATHS], path: u8) {
    let version = &mut versions[usize::from(path)];
    *version = (*version + 1).min(content::VERSIONS - 1);
}
