//! A bad wire: loses, duplicates, reorders, delays and corrupts frames, the same ones for the same
//! seed.
//!
//! Each direction has its own generator and draws the same number of words for each frame, whatever
//! happens to it. So the fate of a frame depends on the seed, its number in its direction and the
//! rates, not on what the other direction carries; and changing one rate leaves the other faults
//! where they were. With *lanes* ([`Faulty::with_lanes`]) it is the frame's number in its lane that
//! counts, so flows are independent of each other, too.
//!
//! Time comes from a [`Clock`], and nothing happens by itself: a frame that is held back moves on
//! with the first [`receive`](Port::receive), [`send`](Port::send) or [`flush`](Port::flush) after
//! its time. Who sleeps meanwhile must not sleep past [`next_release_ns`](Faulty::next_release_ns).
//!
//! Deliberately absent: bandwidth limits; errors that the link's own check sequence would catch
//! (those are losses).

mod draw;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

pub use draw::LaneOf;

use draw::{Draw, WORDS};
use nicache_random::{SplitMix64, below};

use crate::clock::Clock;
use crate::frame::{Burst, Checksum, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, FrameBuf, Offload};
use crate::gather::{SendError, parts_len};
use crate::port::{Capabilities, Port};
use crate::segment::{HEADER_BYTES_MAX, Segments, complete_in_place, network_header};

/// Frames taken from the port inside at a time.
const SCRATCH_FRAMES: usize = 16;

/// What happens to the frames of one direction. Probabilities are per frame, from 0 to 1,
/// independent of each other; a super-frame counts as one frame. The default is a perfect wire.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FaultRates {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame arrives twice. The copy follows the frame at once.
    pub duplicate: f64,
    /// Probability that a frame is late, while those behind it overtake it.
    pub reorder: f64,
    /// Most nanoseconds that such a frame is late; at least 1, evenly distributed.
    pub reorder_ns: u64,
    /// Probability that a bit of a frame is flipped. See [`Faulty`].
    pub corrupt: f64,
    /// Probability that a frame, and all behind it, are delayed.
    pub delay: f64,
    /// Most nanoseconds of such a delay; at least 1, evenly distributed.
    pub delay_ns: u64,
    /// Nanoseconds that every frame takes.
    pub latency_ns: u64,
}

/// What a path does to frames, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultConfig {
    /// What all decisions follow from.
    pub seed: u64,
    /// Frames from the port inside.
    pub receive: FaultRates,
    /// Frames to the port inside.
    pub send: FaultRates,
    /// Frames that can be held back in each direction; more are lost. Default: 256. Costs up to
    /// [`FRAME_BYTES_MAX`] bytes each, used as far as frames have been long.
    pub queue_frames: usize,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            receive: FaultRates::default(),
            send: FaultRates::default(),
            queue_frames: 256,
        }
    }
}

/// What has happened in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Frames that came in.
    pub frames: u64,
    /// Lost on purpose.
    pub lost: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Frames that were made late.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that a delay began with.
    pub delayed: u64,
    /// Lost because too many were held back.
    pub overflowed: u64,
    /// Held back, then refused by the port inside.
    pub refused: u64,
}

/// A port behind a bad wire.
///
/// A corrupted frame has a bit flipped behind its IP header and [`Checksum::Unverified`], its
/// checksum having been completed before: a receiver that verifies TCP checksums finds every one.
/// (One bit changes the sum always; UDP without checksum is defenceless.) Of a super-frame, the
/// first segment arrives, corrupted, and the others are lost.
#[derive(Debug)]
pub struct Faulty<P, C> {
    inner: P,
    clock: C,
    receiving: Direction,
    sending: Direction,
    scratch: Burst,
    corrupted: FrameBuf,
}

impl<P: Port, C: Clock> Faulty<P, C> {
    /// Does to frames of `inner` what `config` says, as time passes by `clock`.
    pub fn new(inner: P, config: &FaultConfig, clock: C) -> Self {
        let mut seeds = SplitMix64::new(config.seed);
        Self {
            inner,
            clock,
            receiving: Direction::new(&config.receive, seeds.next_u64(), config.queue_frames),
            sending: Direction::new(&config.send, seeds.next_u64(), config.queue_frames),
            scratch: Burst::new(SCRATCH_FRAMES),
            corrupted: FrameBuf::new(),
        }
    }

    /// Wraps `inner`; frames of a lane share the wire with those of others, but what happens to
    /// them follows from their number in their lane. `lane_of` sees what a frame received has, and
    /// the first part of what is sent.
    pub fn with_lanes(inner: P, config: &FaultConfig, clock: C, lane_of: LaneOf) -> Self {
        let mut seeds = SplitMix64::new(config.seed);
        let mut faulty = Self::new(inner, config, clock);
        faulty.receiving.draw = Draw::with_lanes(seeds.next_u64(), lane_of);
        faulty.sending.draw = Draw::with_lanes(seeds.next_u64(), lane_of);
        faulty
    }

    /// When the next frame that is held back may move on; `None` if none is.
    pub fn next_release_ns(&self) -> Option<u64> {
        let due = [&self.receiving, &self.sending].map(|direction| direction.held.next_due_ns());
        due.into_iter().flatten().min()
    }

    /// What has happened to frames received.
    pub fn receive_counters(&self) -> FaultCounters {
        self.receiving.counters
    }

    /// What has happened to frames sent.
    pub fn send_counters(&self) -> FaultCounters {
        self.sending.counters
    }

    /// Changes the rates from the next frame on.
    pub fn set_rates(&mut self, receive: &FaultRates, send: &FaultRates) {
        self.receiving.rates = *receive;
        self.sending.rates = *send;
    }

    /// Begins anew, as if it had just been made with `config`, but for `queue_frames`, the lanes
    /// and what the counters have counted. Frames held back are lost.
    pub fn restart(&mut self, config: &FaultConfig) {
        let mut seeds = SplitMix64::new(config.seed);
        self.receiving.restart(&config.receive, seeds.next_u64());
        self.sending.restart(&config.send, seeds.next_u64());
    }

    /// The port inside.
    pub fn get_ref(&self) -> &P {
        &self.inner
    }

    /// The port inside. Frames that go through it directly meet no fault.
    pub fn get_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Sends what is due.
    fn release(&mut self, now_ns: u64) {
        while let Some(slot) = self.sending.held.take_due(now_ns) {
            let frame = &self.sending.held.slots[slot];
            if self.inner.send(&[IoSlice::new(frame.data())], frame.offload()).is_err() {
                self.sending.counters.refused += 1;
            }
            self.sending.held.free.push(slot);
        }
    }
}

impl<P: Port, C: Clock> Port for Faulty<P, C> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        let now_ns = self.clock.now_ns();
        self.release(now_ns);
        burst.clear();
        self.receiving.deliver(now_ns, burst);
        // As many rounds as fill the burst, so a flood of frames that get lost cannot keep us
        // here.
        for _ in 0..burst.capacity().div_ceil(SCRATCH_FRAMES) {
            if burst.len() == burst.capacity() {
                break;
            }
            match self.inner.receive(&mut self.scratch) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) if !burst.is_empty() => break,
                Err(error) => return Err(error),
            }
            for frame in &mut self.scratch {
                self.receiving.handle_frame(now_ns, frame);
            }
            self.receiving.deliver(now_ns, burst);
        }
        Ok(burst.len())
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let now_ns = self.clock.now_ns();
        self.release(now_ns);
        if !self.inner.capabilities().supports(&offload) {
            return Err(SendError::Unsupported);
        }
        if parts_len(parts) > FRAME_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let Some(fate) = self.sending.decide(now_ns, parts.first().map_or(&[], |part| part)) else {
            return Ok(());
        };
        let (mut parts, mut offload) = (parts, offload);
        let whole;
        if let Some(word) = fate.corrupt {
            self.corrupted.copy_from(parts, offload)?;
            corrupt(&mut self.corrupted, word);
            offload = self.corrupted.offload();
            whole = [IoSlice::new(self.corrupted.data())];
            parts = &whole;
        }
        let mut result = Ok(());
        for _ in 0..=usize::from(fate.duplicate) {
            if fate.due_ns <= now_ns {
                result = self.inner.send(parts, offload);
            } else {
                self.sending.hold_copy(fate.due_ns, parts, offload);
            }
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        let now_ns = self.clock.now_ns();
        self.release(now_ns);
        self.inner.flush()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn receive_dropped(&self) -> u64 {
        self.inner.receive_dropped()
    }

    fn send_dropped(&self) -> u64 {
        self.inner.send_dropped()
    }
}

/// What is to happen to a frame that is not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    due_ns: u64,
    duplicate: bool,
    /// Selects the bit.
    corrupt: Option<u64>,
}

#[derive(Debug)]
struct Direction {
    rates: FaultRates,
    draw: Draw,
    /// When the last frame in order is due; none in order is due earlier.
    line_ns: u64,
    held: Held,
    counters: FaultCounters,
}

impl Direction {
    fn new(rates: &FaultRates, seed: u64, queue_frames: usize) -> Self {
        Self {
            rates: *rates,
            draw: Draw::new(seed),
            line_ns: 0,
            held: Held::new(queue_frames),
            counters: FaultCounters::default(),
        }
    }

    fn restart(&mut self, rates: &FaultRates, seed: u64) {
        self.rates = *rates;
        self.draw.restart(seed);
        self.line_ns = 0;
        while let Some(slot) = self.held.take_due(u64::MAX) {
            self.held.free.push(slot);
        }
    }

    /// Decides about the next frame, which begins with `head`; `None`: it is lost.
    fn decide(&mut self, now_ns: u64, head: &[u8]) -> Option<Fate> {
        let words: [u64; WORDS] = self.draw.words(head);
        let [loss, duplicate, reorder, reorder_by, corrupt, corrupt_at, delay, delay_by] = words;
        let rates = &self.rates;
        let counters = &mut self.counters;
        counters.frames += 1;
        if happens(rates.loss, loss) {
            counters.lost += 1;
            return None;
        }
        let duplicate = happens(rates.duplicate, duplicate);
        let corrupt = happens(rates.corrupt, corrupt).then_some(corrupt_at);
        let mut due_ns = now_ns.saturating_add(rates.latency_ns);
        if happens(rates.delay, delay) {
            counters.delayed += 1;
            due_ns = due_ns.saturating_add(1 + below(delay_by, rates.delay_ns));
        }
        due_ns = due_ns.max(self.line_ns);
        if happens(rates.reorder, reorder) {
            counters.reordered += 1;
            due_ns = due_ns.saturating_add(1 + below(reorder_by, rates.reorder_ns));
        } else {
            self.line_ns = due_ns;
        }
        counters.duplicated += u64::from(duplicate);
        counters.corrupted += u64::from(corrupt.is_some());
        Some(Fate { due_ns, duplicate, corrupt })
    }

    /// Takes a received frame in, in exchange for a free buffer.
    fn handle_frame(&mut self, now_ns: u64, frame: &mut FrameBuf) {
        let Some(fate) = self.decide(now_ns, frame.data()) else {
            return;
        };
        if let Some(word) = fate.corrupt {
            corrupt(frame, word);
        }
        if fate.duplicate {
            self.hold_copy(fate.due_ns, &[IoSlice::new(frame.data())], frame.offload());
        }
        self.hold(fate.due_ns, frame);
    }

    /// Moves what is due into a burst, as far as there is room.
    fn deliver(&mut self, now_ns: u64, burst: &mut Burst) {
        while let Some(room) = burst.next_free()
            && let Some(slot) = self.held.take_due(now_ns)
        {
            std::mem::swap(room, &mut self.held.slots[slot]);
            self.held.free.push(slot);
            burst.push();
        }
    }

    /// Holds a frame back, in exchange for a free buffer.
    fn hold(&mut self, due_ns: u64, frame: &mut FrameBuf) {
        match self.held.put(due_ns) {
            Some(slot) => std::mem::swap(frame, slot),
            None => self.counters.overflowed += 1,
        }
    }

    /// Holds a copy of a frame back.
    fn hold_copy(&mut self, due_ns: u64, parts: &[IoSlice<'_>], offload: Offload) {
        // The frame fits: both callers have checked.
        let held = self.held.put(due_ns).is_some_and(|slot| slot.copy_from(parts, offload).is_ok());
        self.counters.overflowed += u64::from(!held);
    }
}

/// Frames that wait for their time.
#[derive(Debug)]
struct Held {
    slots: Box<[FrameBuf]>,
    free: Vec<usize>,
    /// By time, then by arrival, with the slot; capacity reserved for all slots.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    arrivals: u64,
}

impl Held {
    fn new(frames: usize) -> Self {
        Self {
            slots: (0..frames).map(|_| FrameBuf::new()).collect(),
            free: (0..frames).rev().collect(),
            order: BinaryHeap::with_capacity(frames),
            arrivals: 0,
        }
    }

    fn put(&mut self, due_ns: u64) -> Option<&mut FrameBuf> {
        let slot = self.free.pop()?;
        self.order.push(Reverse((due_ns, self.arrivals, slot)));
        self.arrivals += 1;
        Some(&mut self.slots[slot])
    }

    /// The slot of the next frame that is due. The caller takes the frame out and gives the slot
    /// back to `free`.
    fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        self.order.pop().map(|Reverse((_, _, slot))| slot)
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((due_ns, _, _))| *due_ns)
    }
}

/// Whether something of this probability happens, with 53 bits as f64 has.
fn happens(probability: f64, word: u64) -> bool {
    const SCALE: f64 = (1u64 << 53) as f64;
    (word >> 11) < (probability.clamp(0.0, 1.0) * SCALE) as u64
}

/// Flips a bit, as described at [`Faulty`].
fn corrupt(frame: &mut FrameBuf, word: u64) {
    match (frame.offload().gso, frame.offload().checksum) {
        (Some(_), _) => keep_first_segment(frame),
        (None, Checksum::Partial { start, offset }) => {
            // `None` for a position outside of the frame, which then has no checksum to complete.
            let _ = complete_in_place(frame.data_mut(), usize::from(start), usize::from(offset));
        }
        (None, Checksum::Unverified | Checksum::Valid) => {}
    }
    frame.set_offload(Offload::default());
    let (start, end) = transport_range(frame.data());
    let bit = below(word, (end - start) as u64 * 8);
    if let Some(byte) = frame.data_mut().get_mut(start + (bit / 8) as usize) {
        *byte ^= 1 << (bit % 8);
    }
}

fn keep_first_segment(frame: &mut FrameBuf) {
    let mut header = [0; HEADER_BYTES_MAX];
    let parts = [IoSlice::new(frame.data())];
    let Ok(segments) = Segments::new(&parts, &frame.offload()) else {
        return;
    };
    let (header_len, _) = segments.emit_header(0, &parts, false, &mut header);
    let end = segments.payload(0).end;
    frame.data_mut()[..header_len].copy_from_slice(&header[..header_len]);
    frame.set_len(end);
}

/// Where the transport header and payload of an IP packet are, without Ethernet padding; else
/// everything behind the Ethernet header.
fn transport_range(frame: &[u8]) -> (usize, usize) {
    let ip_range = || {
        let (ethertype, network) = network_header(frame)?;
        let ip = frame.get(network..)?;
        let (header_len, packet_len) = match ethertype {
            0x0800 => (
                usize::from(ip.first()? & 0x0f) * 4,
                usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?])),
            ),
            0x86dd => (40, 40 + usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]))),
            _ => return None,
        };
        (header_len < packet_len && packet_len <= ip.len())
            .then_some((network + header_len, network + packet_len))
    };
    ip_range().unwrap_or_else(|| (ETHERNET_HEADER_BYTES.min(frame.len()), frame.len()))
}

#[cfg(test)]
mod tests;
