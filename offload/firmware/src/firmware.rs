//! The card's loop: commands, frames, and nothing else.

use std::sync::Arc;

use nicache_bus::descriptor::{PORTS_MAX, Refusal};
use nicache_bus::{
    BusClass, BusCounters, CardSide, Command, Completion, Flags, Meter, Peer, PushError, RingError,
    Window,
};
use nicache_port::{Burst, Port, send_with_fallback};

use crate::cache::Cache;
use crate::counters::FirmwareCounters;
use crate::dma::Dma;
use crate::receive::{Delivered, deliver};
use crate::transmit::Packet;

/// Commands in one turn at most, so frames are received meanwhile.
const COMMANDS_MAX: u64 = 128;
/// Frames received in one turn at most: more than the acknowledgments of what is sent in one.
const FRAMES_MAX: usize = 64;

/// How long a bell for a host on the same processor may wait, while there is something else to do.
const BELL_LATER_NS: u64 = 250_000;

/// How far a modelled bus may be taken ahead: a card that sleeps too long catches up by half of it.
const AHEAD_NS: u64 = 500_000;

/// Why an attachment is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The host wrote an index that cannot be.
    #[error("the host is broken: {0}")]
    Host(#[from] RingError),
    /// The wire port is gone.
    #[error("the wire port: {0}")]
    Port(#[from] std::io::Error),
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There may be more to do at once.
    Busy {
        /// Frames received and packets sent.
        packets: usize,
    },
    /// The modelled bus is taken, and the card is to come again at this time.
    Bus {
        /// In nanoseconds, of the clock that turns are given.
        until_ns: u64,
    },
    /// Nothing to do. Before it sleeps, the card asks for bells ([`Firmware::prepare_sleep`]).
    Idle,
}

/// The serve card: executes the host's descriptors, sends and receives frames, and decides nothing.
#[derive(Debug)]
pub struct Firmware<P> {
    ports: Vec<P>,
    side: CardSide,
    dma: Dma,
    cache: Cache,
    packet: Packet,
    burst: Burst,
    /// The port that the frames of the burst came by, and how many of them are done with.
    burst_port: usize,
    delivered: usize,
    /// More buffers than these are needed, or room for reports, so frames stay where they are.
    starved_with: Option<u64>,
    /// The host is to be rung for, since this time.
    bell_owed_ns: Option<u64>,
    counters: FirmwareCounters,
    told: BusCounters,
}

impl<P: Port> Firmware<P> {
    /// A card with so many bytes of cache, at a new attachment.
    ///
    /// # Errors
    /// There is no memory for the cache.
    pub fn new(
        port: P,
        side: CardSide,
        window: Arc<Window>,
        cache_bytes: u32,
        meter: Option<Arc<Meter>>,
    ) -> std::io::Result<Self> {
        Self::with_ports(vec![port], side, window, cache_bytes, meter)
    }

    /// A card with so many bytes of cache and several ports, which descriptors name by their
    /// places, at a new attachment.
    ///
    /// # Errors
    /// There is no memory for the cache, no port, or more of them than descriptors can name.
    pub fn with_ports(
        ports: Vec<P>,
        side: CardSide,
        window: Arc<Window>,
        cache_bytes: u32,
        meter: Option<Arc<Meter>>,
    ) -> std::io::Result<Self> {
        if !(1..=usize::from(PORTS_MAX)).contains(&ports.len()) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                "a card has 1 to 16 ports",
            ));
        }
        Ok(Self {
            ports,
            side,
            dma: Dma::new(window, meter),
            cache: Cache::new(cache_bytes)?,
            packet: Packet::new(),
            burst: Burst::new(FRAMES_MAX),
            burst_port: 0,
            delivered: 0,
            starved_with: None,
            bell_owed_ns: None,
            counters: FirmwareCounters::default(),
            told: BusCounters::default(),
        })
    }

    /// What it has done.
    pub fn counters(&self) -> &FirmwareCounters {
        &self.counters
    }

    /// What has crossed the bus.
    pub fn bus(&self) -> &BusCounters {
        self.dma.counters()
    }

    /// The first wire port.
    pub fn port(&self) -> &P {
        &self.ports[0]
    }

    /// All wire ports.
    pub fn ports(&self) -> &[P] {
        &self.ports
    }

    /// The first wire port, for a card that begins anew.
    pub fn into_port(self) -> P {
        self.into_ports().swap_remove(0)
    }

    /// All wire ports, for a card that begins anew.
    pub fn into_ports(self) -> Vec<P> {
        self.ports
    }

    /// Where the card runs, and where the host does.
    pub fn presence(&self) -> &nicache_bus::Presence {
        &self.side.presence
    }

    /// The bell that wakes the card.
    pub fn bell(&self) -> &nicache_bus::Doorbell {
        &self.side.bell
    }

    /// One turn: some commands, some frames.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn turn(&mut self, now_ns: u64) -> Result<Progress, Broken> {
        if self.is_bus_taken(now_ns) {
            return Ok(Progress::Bus { until_ns: self.dma.busy_until_ns() - AHEAD_NS / 2 });
        }
        let sent_before = self.counters.sent;
        let executed = self.execute(now_ns)?;
        let received = self.receive(now_ns)?;
        if self.told != *self.dma.counters() {
            self.told = *self.dma.counters();
            self.side.counted.tell(&self.told);
        }
        let is_bus_taken = self.is_bus_taken(now_ns);
        self.ring(now_ns, is_bus_taken || executed + received == 0);
        if is_bus_taken {
            return Ok(Progress::Bus { until_ns: self.dma.busy_until_ns() - AHEAD_NS / 2 });
        }
        let packets = (self.counters.sent - sent_before + received) as usize;
        Ok(if executed + received > 0 { Progress::Busy { packets } } else { Progress::Idle })
    }

    /// Rings for the host if it asked for that. One that sleeps on this processor would take it
    /// from the card, for each frame anew: it is rung for when the card has nothing else to do.
    fn ring(&mut self, now_ns: u64, is_idle: bool) {
        let Some(since_ns) = self.bell_owed_ns else { return };
        let is_beside = self.side.presence.pause() != Peer::Elsewhere;
        if is_beside && !is_idle && now_ns < since_ns + BELL_LATER_NS {
            return;
        }
        self.bell_owed_ns = None;
        self.side.host_bell.ring();
        self.side.presence.rouse();
    }

    /// Whether a modelled bus is taken for longer than the card may be ahead of it.
    fn is_bus_taken(&self, now_ns: u64) -> bool {
        self.dma.busy_until_ns() > now_ns + AHEAD_NS
    }

    /// Asks to be woken for the next command. True: the card may sleep, as far as the host is
    /// concerned.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn prepare_sleep(&mut self) -> Result<bool, Broken> {
        self.side.bell.hear();
        let is_quiet = self.side.commands.sleep_until_entry()?;
        let is_full = match self.starved_with {
            Some(buffers) => {
                self.side.free.sleep_until_more_than(buffers)?
                    & self.side.received.sleep_until_room()?
            }
            None => true,
        };
        Ok(is_quiet && is_full)
    }

    /// Whether frames wait for buffers of the host, or for room to report them: then it is only the
    /// bell that is worth waking for.
    pub fn is_starved(&self) -> bool {
        self.starved_with.is_some()
    }

    fn execute(&mut self, now_ns: u64) -> Result<u64, Broken> {
        let mut executed = 0;
        while executed < COMMANDS_MAX {
            let Some(entry) = self.side.commands.pop()? else { break };
            executed += 1;
            let descriptor = self.side.commands.popped() - 1;
            let outcome = match Command::decode(entry) {
                Ok(command) => self.carry_out(command, now_ns)?,
                Err(_) => Err(Refusal::Malformed),
            };
            match outcome {
                Ok(()) => self.counters.commands += 1,
                Err(refusal) => {
                    self.counters.refused += 1;
                    self.packet.spoil();
                    self.answer(Completion::Refused { refusal, descriptor }, now_ns)?;
                }
            }
            if self.is_bus_taken(now_ns) {
                break;
            }
        }
        self.dma.cross_entries(executed, now_ns);
        if executed > 0 {
            for port in &mut self.ports {
                port.flush()?;
            }
        }
        if self.side.commands.release() | self.side.done.publish() {
            self.bell_owed_ns.get_or_insert(now_ns);
        }
        Ok(executed)
    }

    fn carry_out(&mut self, command: Command, now_ns: u64) -> Result<Result<(), Refusal>, Broken> {
        match command {
            Command::CacheInit => {
                self.packet.clear();
                self.cache.clear();
                self.answer(Completion::CacheSize { bytes: self.cache.bytes() }, now_ns)?;
            }
            Command::CacheInsert { mmaddr, ncoffset, len, generation } => {
                // A refused one leaves the cache as it was.
                if !self.dma.contains(mmaddr, len) {
                    let is_there = self.cache.get(ncoffset, len).is_some();
                    return Ok(Err(if is_there { Refusal::Window } else { Refusal::Cache }));
                }
                let Some(place) = self.cache.load(ncoffset, len, generation) else {
                    return Ok(Err(Refusal::Cache));
                };
                if self.dma.read(mmaddr, place, BusClass::Content, now_ns).is_err() {
                    return Ok(Err(Refusal::Window));
                }
            }
            Command::CacheFetch { mmaddr, ncoffset, len, generation } => {
                let bytes = match self.cache.get_of(ncoffset, len, generation) {
                    Ok(bytes) => bytes,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                if self.dma.write(mmaddr, bytes, BusClass::Content, now_ns).is_err() {
                    return Ok(Err(Refusal::Window));
                }
            }
            Command::AppendMm { mmaddr, len, flags, class, port, segmentation } => {
                if flags.has(Flags::FIRST) {
                    if self.packet.is_begun() {
                        self.counters.dropped += 1;
                    }
                    self.packet.begin(flags, port, segmentation);
                    if usize::from(port) >= self.ports.len() {
                        return Ok(Err(Refusal::Packet));
                    }
                }
                if self.packet.is_spoilt() {
                    return Ok(self.end(flags));
                }
                let Some(room) = self.packet.room(len) else { return Ok(Err(Refusal::Packet)) };
                if self.dma.read(mmaddr, room, class, now_ns).is_err() {
                    return Ok(Err(Refusal::Window));
                }
                return Ok(self.end(flags));
            }
            Command::AppendCache { ncoffset, len, flags, generation } => {
                if self.packet.is_spoilt() {
                    return Ok(self.end(flags));
                }
                if let Err(refusal) = self.cache.get_of(ncoffset, len, generation) {
                    return Ok(Err(refusal));
                }
                if !self.packet.append_cache(ncoffset, len, generation) {
                    return Ok(Err(Refusal::Packet));
                }
                self.counters.cache_bytes += u64::from(len);
                return Ok(self.end(flags));
            }
        }
        Ok(Ok(()))
    }

    /// Sends the packet if these bytes were its last ones.
    fn end(&mut self, flags: Flags) -> Result<(), Refusal> {
        if !flags.has(Flags::LAST) {
            return Ok(());
        }
        let spoilt = self.packet.is_spoilt();
        let sent = match self.packet.gather(&self.cache) {
            _ if spoilt => Ok(false),
            Ok((parts, offload)) => {
                let port = &mut self.ports[self.packet.port()];
                Ok(send_with_fallback(port, &parts, offload).is_ok())
            }
            Err(refusal) => Err(refusal),
        };
        self.packet.clear();
        match sent {
            Ok(true) => self.counters.sent += 1,
            Ok(false) if spoilt => self.counters.dropped += 1,
            Ok(false) => self.counters.send_failed += 1,
            Err(_) => self.counters.dropped += 1,
        }
        sent.map(|_| ())
    }

    fn answer(&mut self, completion: Completion, now_ns: u64) -> Result<(), Broken> {
        match self.side.done.push(completion.encode()) {
            Ok(()) => self.dma.cross_entries(1, now_ns),
            Err(PushError::Full) => self.counters.untold += 1,
            Err(PushError::Peer(error)) => return Err(error.into()),
        }
        Ok(())
    }

    fn receive(&mut self, now_ns: u64) -> Result<u64, Broken> {
        let (mut frames, mut entries) = (0, 0);
        self.starved_with = None;
        // What the last turn has left, and then one burst of each port, from the one on whose turn
        // it is.
        for asked in 0..=self.ports.len() {
            while self.delivered < self.burst.len() && self.starved_with.is_none() {
                let (frame, port) = (&self.burst.frames()[self.delivered], self.burst_port as u8);
                let Self { side, cache, dma, counters, .. } = self;
                match deliver(frame, port, side, cache, dma, counters, now_ns)? {
                    Delivered::Done(crossed) => {
                        (frames, entries) = (frames + 1, entries + crossed);
                        self.delivered += 1;
                    }
                    Delivered::Wait(buffers) => self.starved_with = Some(buffers),
                }
            }
            if asked == self.ports.len() || frames >= FRAMES_MAX || self.starved_with.is_some() {
                break;
            }
            // What there is no buffer for waits in the port's own queue.
            let available = self.side.free.available()?;
            if available == 0 || self.side.received.room()? == 0 {
                self.starved_with = Some(available);
                break;
            }
            self.burst_port = (self.burst_port + 1) % self.ports.len();
            self.delivered = 0;
            self.ports[self.burst_port].receive(&mut self.burst)?;
        }
        self.dma.cross_entries(entries, now_ns);
        if self.side.free.release() | self.side.received.publish() {
            self.bell_owed_ns.get_or_insert(now_ns);
        }
        Ok(frames as u64)
    }
}
