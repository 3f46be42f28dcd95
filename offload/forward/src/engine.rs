//! A forwarder with a card: receives are posted, frames wait in a queue, heads and what follows
//! them are sent, and entries come back.
//!
//! Read first: Yocum and Chase 2001, sections 3, 4.1 and 4.2.
//!
//! ```text
//!  free buffers ─▶ post ─▶ (card) ─▶ poll: receipts become frames ─▶ queue ─▶ decide ─▶ send ─▶ (card) ─▶ done ─▶ free buffers
//!                   │ an entry for each, or none                       │ rewrites headers     │ from its entry, from memory, or lost
//! ```
//!
//! The rule that keeps bytes apart (invariant F1): an entry is posted again only when every packet
//! that names it is done, and a buffer is posted again only when nothing refers to it. A packet is
//! done when its last command is.

use std::collections::VecDeque;
use std::ops::Range;

use arrayvec::ArrayVec;
use nicache_bus::Received;
use nicache_port::{Checksum, Offload};
use nicache_tcp::Time;
use nicache_tcp::checksum::{add, sum};

use crate::backend::{BUFFER_BYTES, Backend, Broken, ENTRY_BYTES, Extent, Loaded, Receipt};
use crate::cutting;
use crate::decision::{Decision, HEAD_BYTES_MAX, Head, Moment, Outgoing};
use crate::forwarder::Forwarder;
pub use crate::frame::Frame;
use crate::frame::{PIECES_MAX, Piece, fits, offload_told, overlap};
use crate::modes::{Mode, Pressure};
use crate::pcache::{Advice, Bound, BufferId, Order, Pcache, SendBind};
use crate::segmenting;
use crate::waiting::{WAITING_FOR, Waiting};

/// Neighbours have not been learned so often: those that wait are to be looked at again.
const NEVER: u64 = u64::MAX;

/// Commands that a frame takes at most: its head, and for each part an insertion and the part.
const ROOM: u64 = 1 + 2 * PIECES_MAX as u64;

/// Frames whose bytes are fetched to be looked at, at most.
const LOOKING_MAX: usize = 256;

/// How an engine is set up.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// See [`Mode`].
    pub mode: Mode,
    /// Which entry of a queue goes first.
    pub order: Order,
    /// Entries of the card's cache, of 4 KiB.
    pub entries: u32,
    /// Buffers of main memory, of 4352 bytes.
    pub buffers: u32,
    /// Receives that are posted at once at most; each holds an entry.
    pub posts: u32,
    /// Frames that wait to be forwarded at most; what comes then is dropped.
    pub queue: usize,
}

nicache_counters::counters! {
    /// What an engine has done.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EngineCounters {
        received: "Frames received from the card.",
        sent: "Packets given to the card.",
        card_bytes: "Bytes sent from the card's cache.",
        memory_bytes: "Bytes sent from main memory.",
        queue_full: "Frames dropped because too many waited; of one that goes to several, each that was not sent.",
        lost: "Packets not sent, because the card had lost their payload (direct).",
        spilled: "Entries fetched to main memory before they were taken (spill, adaptive).",
        posted_whole: "Receives posted without an entry of the card, because none could be had.",
        too_long: "Packets with more parts, or longer heads, than the card takes.",
        waited_in_vain: "Frames that waited for a neighbor in vain.",
        refused_receipts: "Invalid reports of the card.",
        refused: "Descriptors that the card refused.",
        looked_at: "Frames whose payload was read (services by name).",
        looked_in_vain: "Frames whose payload could not be read: it was lost, or too long.",
    }
}

/// What is known of a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    is_posted: bool,
    /// Whether an entry was posted with it.
    with_entry: bool,
    /// Whether its payload was to be copied, too.
    with_copy: bool,
    /// A frame that is not done with has it.
    is_held: bool,
    /// Its payload is in main memory, too.
    in_memory: bool,
    /// Packets and fetches under way that refer to it.
    under_way: u32,
    is_fetched: bool,
    /// Bytes of payload.
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    done: u64,
    buffer: BufferId,
    kind: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Memory,
    Entry,
    Fetch,
}

/// What became of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Yes,
    /// There is no room for it now; nothing has changed.
    Full,
    /// It never will be.
    No,
}

/// A forwarder with a card: posts receives, queues frames, sends heads and what follows them, and
/// takes entries back. The [module](self) has the rule that keeps bytes apart (invariant F1).
#[derive(Debug)]
pub struct Engine<B> {
    backend: B,
    config: EngineConfig,
    pcache: Pcache,
    pressure: Pressure,
    buffers: Box<[Buffer]>,
    free: Vec<BufferId>,
    posted: u32,
    /// Entries of frames that are not done with, whose bytes only the card has.
    precious: u32,
    /// A frame whose last part has not come.
    partial: Option<Box<Frame>>,
    queue: VecDeque<Box<Frame>>,
    waiting: Waiting<Box<Frame>>,
    /// All of their bytes are wanted, in this order.
    looking: VecDeque<Box<Frame>>,
    #[allow(clippy::vec_box, reason = "frames go to and fro, and are long")]
    spare: Vec<Box<Frame>>,
    under_way: VecDeque<UnderWay>,
    head: Head,
    /// Which target of a group is the first to get the next frame.
    fan_first: usize,
    learned: u64,
    counters: EngineCounters,
    #[cfg(test)]
    pub(crate) forgets_release_rule: bool,
}

impl<B: Backend> Engine<B> {
    /// An engine with a backend whose cache is empty.
    pub fn new(backend: B, config: EngineConfig) -> Self {
        let entries = if config.mode == Mode::Copy { 0 } else { config.entries };
        Self {
            pcache: Pcache::new(entries, config.buffers, config.order),
            pressure: Pressure::default(),
            buffers: vec![Buffer::default(); config.buffers as usize].into_boxed_slice(),
            free: (0..config.buffers).rev().map(BufferId).collect(),
            posted: 0,
            precious: 0,
            partial: None,
            queue: VecDeque::with_capacity(config.queue + 1),
            waiting: Waiting::new(),
            looking: VecDeque::new(),
            spare: Vec::new(),
            under_way: VecDeque::new(),
            head: Head::new(),
            fan_first: 0,
            learned: 0,
            counters: EngineCounters::default(),
            backend,
            config,
            #[cfg(test)]
            forgets_release_rule: false,
        }
    }

    /// What it has done.
    pub fn counters(&self) -> &EngineCounters {
        &self.counters
    }

    /// Which buffer is in which entry.
    pub fn pcache(&self) -> &Pcache {
        &self.pcache
    }

    #[cfg(test)]
    pub(crate) fn pcache_mut(&mut self) -> &mut Pcache {
        &mut self.pcache
    }

    /// The card or what stands for it.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Frames that wait to be forwarded.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Buffers that nothing refers to.
    pub fn free_buffers(&self) -> usize {
        self.free.len()
    }

    /// Packets and fetches that the card is not done with, counted once for each buffer that they
    /// refer to.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Takes what the card is done with and what it has received, and posts receives.
    ///
    /// # Errors
    /// The card is broken. A new engine begins at a new attachment.
    pub fn poll(&mut self) -> Result<(), Broken> {
        self.counters.refused += self.backend.poll_refused()?;
        let done = self.backend.done()?;
        while let Some(over) = self.under_way.pop_front_if(|use_of| use_of.done <= done) {
            self.complete(over);
        }
        while let Some(receipt) = self.backend.poll_received()? {
            self.handle_receipt(&receipt)?;
        }
        self.post()?;
        self.backend.flush();
        Ok(())
    }

    /// The frame that has waited longest. It is to be [`finish`](Self::finish)ed, or
    /// [`put_back`](Self::put_back).
    pub fn take(&mut self) -> Option<Box<Frame>> {
        self.queue.pop_front()
    }

    /// A frame that could not be sent yet, to come first again.
    pub fn put_back(&mut self, frame: Box<Frame>) {
        self.queue.push_front(frame);
    }

    /// Nothing more is to be sent of a frame.
    pub fn finish(&mut self, frame: Box<Frame>) {
        for piece in &frame.pieces {
            self.let_go(piece.buffer);
        }
        self.spare.push(frame);
    }

    /// Sends a head and a range of a frame's bytes behind it. `is_again`: the same bytes are sent
    /// again afterwards, so it is worth having them on the card.
    ///
    /// # Errors
    /// The card is broken.
    pub fn send(
        &mut self,
        frame: &Frame,
        head: &[u8],
        rest: Range<usize>,
        offload: Offload,
        port: u8,
        is_again: bool,
    ) -> Result<Sent, Broken> {
        if !fits(head, offload) {
            self.counters.too_long += 1;
            return Ok(Sent::No);
        }
        let parts = frame.pieces.iter().filter(|piece| !overlap(piece, &rest).is_empty());
        let count = parts.clone().count();
        if count > self.backend.capabilities().extents_max {
            self.counters.too_long += 1;
            return Ok(Sent::No);
        }
        // Each part may have to be inserted first.
        if self.backend.room()? < 1 + 2 * count as u64 {
            return Ok(Sent::Full);
        }
        let is_lost = |piece: &Piece| {
            piece.is_split
                && !self.buffers[piece.buffer.0 as usize].in_memory
                && self.pcache.cached(piece.buffer).is_none()
        };
        if parts.clone().any(is_lost) {
            self.counters.lost += 1;
            return Ok(Sent::No);
        }
        let mut extents = ArrayVec::<Extent, PIECES_MAX>::new();
        let mut uses = ArrayVec::<(BufferId, Use), PIECES_MAX>::new();
        for piece in parts {
            let range = overlap(piece, &rest);
            let (at, len) = ((range.start - piece.frame_at) as u32, range.len() as u32);
            let loaded = if piece.is_split { self.bind(piece.buffer, is_again)? } else { None };
            match loaded {
                Some(loaded) => {
                    self.counters.card_bytes += u64::from(len);
                    uses.push((piece.buffer, Use::Entry));
                    extents.push(Extent::Card { loaded, at, len });
                }
                None => {
                    self.counters.memory_bytes += u64::from(len);
                    uses.push((piece.buffer, Use::Memory));
                    extents.push(Extent::Memory { buffer: piece.buffer, at: piece.at + at, len });
                }
            }
        }
        let done = self.backend.send(port, head, &extents, offload)?;
        self.counters.sent += 1;
        for (buffer, kind) in uses {
            self.buffers[buffer.0 as usize].under_way += 1;
            #[cfg(test)]
            let kind = if self.forgets_release_rule && kind == Use::Entry {
                let _ = self.pcache.pc_send_complete(buffer);
                Use::Memory
            } else {
                kind
            };
            self.under_way.push_back(UnderWay { done, buffer, kind });
        }
        Ok(Sent::Yes)
    }

    /// Changes bytes of a frame's payload in main memory, where they must be: the card's copy is no
    /// longer right.
    ///
    /// # Errors
    /// The card is broken. False: the bytes are not in main memory, or are being sent.
    pub fn change(&mut self, frame: &Frame, at: usize, bytes: &[u8]) -> Result<bool, Broken> {
        let range = at..at + bytes.len();
        let Some(piece) = frame
            .pieces
            .iter()
            .find(|piece| piece.frame_at <= at && range.end <= piece.frame_at + piece.len)
        else {
            return Ok(false);
        };
        let buffer = self.buffers[piece.buffer.0 as usize];
        if piece.is_split && !buffer.in_memory || buffer.under_way > 0 {
            return Ok(false);
        }
        self.backend.write(piece.buffer, piece.at + (at - piece.frame_at) as u32, bytes)?;
        self.pcache.pc_invalidate_binding(piece.buffer);
        Ok(true)
    }

    /// Sends a frame of our own.
    ///
    /// # Errors
    /// The card is broken.
    pub fn send_own(&mut self, frame: &[u8], port: u8) -> Result<Sent, Broken> {
        if self.backend.room()? < 1 {
            return Ok(Sent::Full);
        }
        self.backend.send(port, frame, &[], Offload::default())?;
        self.counters.sent += 1;
        Ok(Sent::Yes)
    }

    /// Forwards so many of the frames that wait. Returns how many that were. `random` is called for
    /// each.
    ///
    /// # Errors
    /// The card is broken.
    pub fn forward(
        &mut self,
        forwarder: &mut Forwarder,
        most: usize,
        now: Time,
        mut random: impl FnMut() -> u32,
    ) -> Result<usize, Broken> {
        if forwarder.learned() != self.learned || self.waiting.is_due(now) {
            self.learned = forwarder.learned();
            for _ in 0..self.waiting.len() {
                // Who would have to wait for room goes on waiting.
                if self.backend.room()? < ROOM {
                    self.learned = NEVER;
                    break;
                }
                let Some((frame, until)) = self.waiting.take() else { break };
                let moment = Moment { now, random: random() };
                if let Some(frame) = self.pass(forwarder, frame, moment)? {
                    self.wait_again(forwarder, frame, until, now);
                }
            }
        }
        let mut count = self.pass_whole(forwarder, now, &mut random)?;
        while count < most {
            let Some(frame) = self.take() else { break };
            let moment = Moment { now, random: random() };
            match self.pass(forwarder, frame, moment)? {
                None => count += 1,
                Some(frame) if self.backend.room()? < ROOM => {
                    self.put_back(frame);
                    break;
                }
                Some(frame) => {
                    count += 1;
                    self.wait_again(forwarder, frame, now + WAITING_FOR, now);
                }
            }
        }
        while self.backend.room()? > 0
            && let Some((interface, question)) = forwarder.poll_question()
        {
            self.send_own(&question, forwarder.interfaces()[interface].port)?;
        }
        while self.backend.room()? > 0
            && let Some((interface, frame)) = forwarder.poll_own()
        {
            self.send_own(&frame, forwarder.interfaces()[interface].port)?;
        }
        self.backend.flush();
        Ok(count)
    }

    /// What becomes of one frame. It comes back if it has to wait, for a neighbour or for room.
    fn pass(
        &mut self,
        forwarder: &mut Forwarder,
        frame: Box<Frame>,
        moment: Moment,
    ) -> Result<Option<Box<Frame>>, Broken> {
        // A connection's state must not advance by a packet that is looked at twice.
        if self.backend.room()? < ROOM {
            return Ok(Some(frame));
        }
        let mut head = std::mem::take(&mut self.head);
        let incoming = frame.incoming();
        let decision = forwarder.handle(&incoming, &mut head, moment);
        self.act(forwarder, frame, decision, head, moment)
    }

    /// Does what was decided of a frame. It comes back if it has to wait for a neighbour.
    fn act(
        &mut self,
        forwarder: &mut Forwarder,
        frame: Box<Frame>,
        decision: Decision,
        mut head: Head,
        moment: Moment,
    ) -> Result<Option<Box<Frame>>, Broken> {
        let port_of =
            |forwarder: &Forwarder, interface: usize| forwarder.interfaces()[interface].port;
        match decision {
            Decision::Forward(Outgoing { interface, rest, offload }) => {
                self.send(&frame, &head, rest, offload, port_of(forwarder, interface), false)?;
            }
            Decision::Cut { whole, network_at, mtu } => {
                let port = port_of(forwarder, whole.interface);
                self.send_cut(&frame, &mut head, whole, (network_at, mtu), port)?;
            }
            Decision::Segment { whole, network_at } => {
                let port = port_of(forwarder, whole.interface);
                self.send_segments(&frame, &mut head, whole, network_at, port)?;
            }
            Decision::FanOut { group, targets } => {
                // Who found no room the last time comes first.
                let first = self.fan_first.checked_rem(targets).unwrap_or(0);
                for number in 0..targets {
                    let target = (first + number) % targets;
                    if self.backend.room()? < ROOM {
                        self.counters.queue_full += (targets - number) as u64;
                        self.fan_first = target;
                        break;
                    }
                    let one = forwarder.fan_out(
                        &frame.incoming(),
                        (group, target),
                        &mut head,
                        moment.now,
                    );
                    match one {
                        Decision::Forward(Outgoing { interface, rest, offload }) => {
                            let port = port_of(forwarder, interface);
                            self.send(&frame, &head, rest, offload, port, number + 1 < targets)?;
                        }
                        Decision::Cut { whole, network_at, mtu } => {
                            let port = port_of(forwarder, whole.interface);
                            self.send_cut(&frame, &mut head, whole, (network_at, mtu), port)?;
                        }
                        Decision::Answer { interface } => {
                            self.send_own(&head, port_of(forwarder, interface))?;
                        }
                        _ => {}
                    }
                }
            }
            Decision::Answer { interface } => {
                self.send_own(&head, port_of(forwarder, interface))?;
            }
            Decision::Wait => {
                self.head = head;
                return Ok(Some(frame));
            }
            Decision::Look => {
                self.head = head;
                self.look_at(frame)?;
                return Ok(None);
            }
            Decision::Taken | Decision::Drop(_) => {}
        }
        self.head = head;
        self.finish(frame);
        Ok(None)
    }

    /// Sends a packet in pieces. If there is no room for one of them, the packet is lost, because
    /// the receiver needs all of them; the pieces before it have been sent.
    fn send_cut(
        &mut self,
        frame: &Frame,
        head: &mut Head,
        whole: Outgoing,
        (network_at, mtu): (usize, u32),
        port: u8,
    ) -> Result<(), Broken> {
        let Outgoing { rest, offload, .. } = whole;
        let sum = match offload.checksum {
            Checksum::Partial { .. } => self.payload_sum(frame, &rest)?,
            _ => Some(0),
        };
        let Some(offload) = sum.and_then(|sum| cutting::complete(head, network_at, offload, sum))
        else {
            self.counters.lost += 1;
            return Ok(());
        };
        let mut one = Head::new();
        for number in 0.. {
            let Some(range) = cutting::piece(head, network_at, &rest, mtu, number, &mut one) else {
                break;
            };
            match self.send(frame, &one, range, offload, port, true)? {
                Sent::Yes => {}
                Sent::Full => {
                    self.counters.queue_full += 1;
                    break;
                }
                Sent::No => break,
            }
        }
        Ok(())
    }

    /// Sends a packet as a super-frame, or as it is if its checksum is wrong or cannot be looked
    /// at.
    fn send_segments(
        &mut self,
        frame: &Frame,
        head: &mut Head,
        whole: Outgoing,
        network_at: usize,
        port: u8,
    ) -> Result<(), Broken> {
        let Outgoing { rest, offload, .. } = whole;
        let sum = match offload.checksum {
            Checksum::Unverified => self.payload_sum(frame, &rest)?,
            _ => Some(0),
        };
        let opened = sum.and_then(|sum| {
            segmenting::open_checksum(head, network_at, offload, (rest.len(), sum))
        });
        let offload = opened.unwrap_or(Offload { gso: None, ..offload });
        self.send(frame, head, rest, offload, port, false)?;
        Ok(())
    }

    /// The ones'-complement sum of a range of a frame. `None`: a part of it is in an entry alone,
    /// and the range begins or ends within that.
    fn payload_sum(&self, frame: &Frame, range: &Range<usize>) -> Result<Option<u16>, Broken> {
        let mut all = 0;
        for piece in &frame.pieces {
            let part = overlap(piece, range);
            if part.is_empty() {
                continue;
            }
            let sum_of_part = if part.len() == piece.len && piece.is_split {
                piece.sum
            } else if !piece.is_split || self.buffers[piece.buffer.0 as usize].in_memory {
                self.sum_in_memory(piece, &part)?
            } else {
                return Ok(None);
            };
            // At an odd place its bytes are the other halves of words.
            let is_odd = (part.start - range.start) % 2 == 1;
            all = add(all, if is_odd { sum_of_part.swap_bytes() } else { sum_of_part });
        }
        Ok(Some(all))
    }

    fn sum_in_memory(&self, piece: &Piece, part: &Range<usize>) -> Result<u16, Broken> {
        // Of an even size, so the next one begins with a word.
        let (mut bytes, mut all) = ([0; 512], 0);
        for at in part.clone().step_by(bytes.len()) {
            let bytes = &mut bytes[..(part.end - at).min(512)];
            self.backend.read(piece.buffer, piece.at + (at - piece.frame_at) as u32, bytes)?;
            all = add(all, sum(bytes));
        }
        Ok(all)
    }

    fn wait_again(&mut self, forwarder: &mut Forwarder, frame: Box<Frame>, until: Time, now: Time) {
        if let Some(frame) = self.waiting.add(frame, forwarder.waits_for(), until, now) {
            self.counters.waited_in_vain += 1;
            forwarder.give_up();
            self.finish(frame);
        }
    }

    /// The entry that a buffer's payload is sent from. `None`: it is sent from main memory.
    fn bind(&mut self, buffer: BufferId, is_again: bool) -> Result<Option<Loaded>, Broken> {
        let is_cached = self.pcache.cached(buffer).is_some();
        // To load an entry for one send alone would only push out others.
        let may_load = is_again
            && self
                .pcache
                .next_evicted()
                .is_some_and(|evicted| evicted.is_none_or(|old| !self.is_precious(old)));
        if !is_cached && !may_load {
            return Ok(None);
        }
        match self.pcache.pc_send_bind(buffer) {
            Ok(SendBind::Hit(Bound { entry, generation, .. })) => {
                Ok(Some(Loaded { entry, generation }))
            }
            Ok(SendBind::Miss(Bound { entry, generation, .. })) => {
                let loaded = Loaded { entry, generation };
                self.backend.insert(buffer, loaded, self.buffers[buffer.0 as usize].len)?;
                Ok(Some(loaded))
            }
            Ok(SendBind::Uncached) | Err(_) => Ok(None),
        }
    }

    /// Only the card has its bytes, and they are still wanted.
    fn is_precious(&self, buffer: BufferId) -> bool {
        let Buffer { is_held, in_memory, .. } = self.buffers[buffer.0 as usize];
        is_held && !in_memory
    }

    fn complete(&mut self, UnderWay { buffer, kind, .. }: UnderWay) {
        if kind != Use::Memory && self.pcache.pc_send_complete(buffer).is_err() {
            debug_assert!(false, "a send of {buffer:?} was not pending");
        }
        let known = &mut self.buffers[buffer.0 as usize];
        known.under_way -= 1;
        if kind == Use::Fetch {
            self.precious -= u32::from(known.is_held && !known.in_memory);
            known.in_memory = true;
            known.is_fetched = false;
            self.pcache.pc_advise(buffer, Advice::Demote);
        }
        self.free_if_unused(buffer);
    }

    fn free_if_unused(&mut self, buffer: BufferId) {
        let Buffer { is_posted, is_held, under_way, .. } = self.buffers[buffer.0 as usize];
        if !is_posted && !is_held && under_way == 0 {
            self.free.push(buffer);
        }
    }

    /// A frame is done with a buffer; headers and payload of a frame may have the same one.
    fn let_go(&mut self, buffer: BufferId) {
        let known = &mut self.buffers[buffer.0 as usize];
        if !std::mem::take(&mut known.is_held) {
            return;
        }
        self.precious -= u32::from(known.with_entry && !known.in_memory);
        if known.under_way == 0 {
            // What was never sent will not be.
            self.pcache.pc_advise(buffer, Advice::Demote);
        }
        self.free_if_unused(buffer);
    }

    fn handle_receipt(&mut self, Receipt { buffer, report }: &Receipt) -> Result<(), Broken> {
        let known = &mut self.buffers[buffer.0 as usize];
        let bytes_max =
            if report.is_split { u32::from(report.header_len) + ENTRY_BYTES } else { BUFFER_BYTES };
        if !std::mem::take(&mut known.is_posted) {
            self.counters.refused_receipts += 1;
            return Ok(());
        }
        self.posted -= 1;
        let (with_entry, with_copy) = (known.with_entry, known.with_copy);
        let is_odd = report.len > bytes_max
            || report.is_split && (!with_entry || report.len <= u32::from(report.header_len))
            || report.len == 0 && !report.is_unused
            || report.header_len > 0 && !(report.is_split && report.is_first);
        let is_split = report.is_split && !is_odd && report.len > 0;
        if with_entry && self.pcache.pc_receive_complete(*buffer, is_split).is_err() {
            debug_assert!(false, "a receive into {buffer:?} was not pending");
        }
        let known = &mut self.buffers[buffer.0 as usize];
        known.with_entry = is_split;
        if is_odd || report.len == 0 {
            self.counters.refused_receipts += u64::from(is_odd);
            self.free_if_unused(*buffer);
            return self.drop_partial();
        }
        known.is_held = true;
        known.in_memory = !is_split || report.is_copied && with_copy;
        known.len = report.len - u32::from(report.header_len);
        self.precious += u32::from(!known.in_memory);
        if report.is_first {
            self.drop_partial()?;
            self.partial = Some(self.spare.pop().unwrap_or_else(Frame::boxed));
            self.begin(*buffer, report)?;
        }
        let Some(mut frame) = self.partial.take() else {
            self.counters.refused_receipts += 1;
            self.let_go(*buffer);
            return Ok(());
        };
        if !frame.add(*buffer, report) {
            self.counters.refused_receipts += 1;
            self.let_go(*buffer);
            self.finish(frame);
            return Ok(());
        }
        if !report.is_last {
            self.partial = Some(frame);
            return Ok(());
        }
        self.counters.received += 1;
        frame.offload = frame.offload_of(frame.offload);
        if self.queue.len() >= self.config.queue {
            self.counters.queue_full += 1;
            self.finish(frame);
        } else {
            self.queue.push_back(frame);
        }
        Ok(())
    }

    /// A frame whose rest does not come.
    fn drop_partial(&mut self) -> Result<(), Broken> {
        if let Some(frame) = self.partial.take() {
            self.counters.refused_receipts += 1;
            self.finish(frame);
        }
        Ok(())
    }

    fn begin(&mut self, buffer: BufferId, report: &Received) -> Result<(), Broken> {
        let Some(frame) = &mut self.partial else { return Ok(()) };
        frame.clear();
        frame.port = report.port;
        let look = if report.is_split { u32::from(report.header_len) } else { report.len };
        let mut bytes = [0; HEAD_BYTES_MAX];
        let bytes = &mut bytes[..(look as usize).min(HEAD_BYTES_MAX)];
        self.backend.read(buffer, 0, bytes)?;
        frame.look.try_extend_from_slice(bytes).expect("it is as long");
        frame.offload = offload_told(report);
        Ok(())
    }
}

mod looking;
mod posting;
mod sleeping;
#[cfg(test)]
mod tests;
