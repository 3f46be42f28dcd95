//! The card between wires in memory, in virtual time.

mod host;
mod preload;
mod watcher;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use nicache_cache::{AgeBounds, PathSettings, Paths, Store};
use nicache_card::{Card, CardConfig, Handshake};
use nicache_coherence::RevisionTable;
use nicache_http::KeyConfig;
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_port::{Burst, Capabilities, MemoryPort, Offload, Port, memory_wire};
use nicache_tcp::Time;

use crate::backend::{Backend, BackendError};
use crate::script::{Script, ServerAction};
use host::Host;
use preload::Keeper;
use watcher::{Agreeable, SOURCE};

/// Frames that a wire holds.
const WIRE_FRAMES: usize = 512;
/// Card memory, at least.
const MEMORY_BYTES_MIN: usize = 16 << 20;
/// Connections that the card can track.
const FLOWS: usize = 1024;
const UNIX_S: u64 = 1_700_000_000;
/// Rounds in which card and host may answer each other at one time.
const ROUNDS_MAX: usize = 10_000;
/// Timers of the card have a grain of a millisecond or so.
const TOLERANCE: Duration = Duration::from_millis(5);
/// The clock when the card was made. Zero would be a special case for timers.
const START: Duration = Duration::from_secs(100);

/// The card between wires in memory, in virtual time.
pub struct Ours {
    card: Card<MemoryPort, MemoryPort>,
    wire: MemoryPort,
    bus: MemoryPort,
    host: Host,
    burst: Burst,
    arrived: std::collections::VecDeque<Vec<u8>>,
    now: Duration,
    /// The clock when the script begins.
    start: Duration,
}

impl Ours {
    /// A card as the script wants it, with its objects in memory.
    ///
    /// # Errors
    /// The card does not keep an object, or is broken.
    pub fn new(script: &Script) -> Result<Self, BackendError> {
        let setup = &script.setup;
        let largest = setup.objects.iter().map(|object| object.reply_bytes).max().unwrap_or(0);
        let memory_bytes = (largest * 16).max(MEMORY_BYTES_MIN);
        let frame_bytes_max = usize::from(setup.mtu) + 14;
        let capabilities = Capabilities { frame_bytes_max, ..Capabilities::PLAIN };
        let (card_wire, wire) = memory_wire(WIRE_FRAMES, capabilities, capabilities);
        let (card_bus, bus) = memory_wire(WIRE_FRAMES, capabilities, capabilities);
        let table = RevisionTable::on_heap();
        table.renew_lease(u64::MAX);
        table.watch(SOURCE);
        let memory = CardMemory::new(memory_bytes, HugePages::No)
            .map_err(|error| BackendError::io("memory for the card", error))?;
        let mut config = CardConfig::new(vec![80], memory_bytes, KeyConfig::new([3; 16]), [5; 16]);
        config.handshake =
            if setup.card.passes_handshake { Handshake::PassThrough } else { Handshake::Card };
        config.flows = FLOWS;
        config.mtu = setup.mtu;
        // Scripts are about connections: an object stays while they last.
        let ages = AgeBounds::fixed(Duration::from_secs(86_400));
        config.paths = Paths::new(PathSettings { ages, ..PathSettings::default() }, Vec::new());
        let policy = Box::new(Lru::new(memory_bytes as u64, config.entries as u32));
        let store = Store::new(memory, policy, Arc::clone(&table), config.entries);
        let card = Card::new(
            card_wire,
            card_bus,
            config,
            store,
            Box::new(Agreeable::default()),
            time(START),
        );
        let mut ours = Self {
            card,
            wire,
            bus,
            host: Host::new(setup.ip, setup.mtu, &setup.objects),
            burst: Burst::new(64),
            arrived: std::collections::VecDeque::new(),
            now: START,
            start: Duration::ZERO,
        };
        // The host's sockets listen before the first SYN comes.
        ours.settle()?;
        if !setup.card.misses {
            preload::preload(&mut ours, setup)?;
        }
        ours.start = ours.now;
        Ok(ours)
    }

    /// Card and host do what is to be done at this time.
    fn settle(&mut self) -> Result<(), BackendError> {
        let broken = |error| BackendError::io("the card", error);
        for _ in 0..ROUNDS_MAX {
            let unix_s = UNIX_S + self.now.as_secs();
            let mut moved = self.card.poll(time(self.now), unix_s).map_err(broken)? > 0;
            while self.bus.receive(&mut self.burst).map_err(broken)? > 0 {
                moved = true;
                for frame in &self.burst {
                    self.host.handle_frame(frame.data());
                }
            }
            for frame in self.host.poll(self.now, unix_s) {
                moved = true;
                let _ = self.bus.send(&[IoSlice::new(&frame)], Offload::default());
            }
            while self.wire.receive(&mut self.burst).map_err(broken)? > 0 {
                moved = true;
                self.arrived.extend(self.burst.iter().map(|frame| frame.data().to_vec()));
            }
            if !moved {
                return Ok(());
            }
        }
        Err(BackendError::Unsupported(format!("card and host talk for ever at {:?}", self.now)))
    }

    fn next_due(&mut self) -> Option<Duration> {
        let card = self.card.next_due().map(|due| Duration::from_nanos(due.0));
        [card, self.host.next_due(self.now)].into_iter().flatten().min()
    }
}

fn time(now: Duration) -> Time {
    Time(now.as_nanos() as u64)
}

impl Keeper for Ours {
    fn stored(&self) -> u64 {
        self.card.counters().cache.fills_stored
    }

    fn why_not(&self) -> String {
        format!("{:?}", self.card.counters())
    }
}

impl Backend for Ours {
    fn now(&self) -> Duration {
        self.now.saturating_sub(self.start)
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), BackendError> {
        self.wire.send(&[IoSlice::new(frame)], Offload::default()).map_err(|error| {
            BackendError::Unsupported(format!("the frame does not fit on the wire: {error}"))
        })
    }

    fn receive(&mut self, until: Duration) -> Result<Option<(Duration, Vec<u8>)>, BackendError> {
        let until = self.start + until;
        loop {
            self.settle()?;
            if let Some(frame) = self.arrived.pop_front() {
                return Ok(Some((self.now(), frame)));
            }
            if self.now >= until {
                return Ok(None);
            }
            let next = self.next_due().unwrap_or(until);
            // Whole microseconds, the grain of the host's clock.
            self.now = next.clamp(
                self.now + Duration::from_micros(1),
                until.max(self.now + Duration::from_micros(1)),
            );
        }
    }

    fn act(&mut self, action: ServerAction) -> Result<(), BackendError> {
        self.host.act(action);
        self.settle()
    }

    fn tolerance(&self, _: Duration) -> (Duration, Duration) {
        (TOLERANCE, TOLERANCE)
    }
}
