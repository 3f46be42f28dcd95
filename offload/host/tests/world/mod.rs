//! A client, a wire, cards and the host in one process, with a clock that jumps.
//!
//! ```text
//! client.rs   another TCP (smoltcp) with its conversations, and what the replies on them were
//! folder.rs   files with all versions that they have had, and their witness
//! ```
//!
//! Everything happens in one thread and follows from [`Settings::seed`]. When nothing moves, the
//! clock goes to the next time at which something is due. Nothing left that could be due, a clock
//! that runs too far, and much work at one moment without a frame are failures.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod folder;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use nicache_bus::{Attachment, CardSide, HostSide, Window};
use nicache_coherence::RevisionTable;
use nicache_firmware::{Firmware, Progress};
use nicache_host::files::Site;
use nicache_host::server::{Broken, CardLink, Layout, Route, Service, ServiceConfig};
use nicache_host::{BLOCK_BYTES, Coherence, Directory};
use nicache_policy::{Fifo, Lfu, Lru, Policy, Popularity, PopularityConfig};
use nicache_port::{
    Burst, Capabilities, FaultConfig, FaultRates, Faulty, ManualClock, MemoryPort, Offload, Port,
    memory_wire, send_with_fallback,
};
use nicache_tcp::Time;
use nicache_watch::Coverage;

use self::client::{CLIENT_MAC, Client};
use self::folder::Folder;

/// Frames that a wire holds in each direction.
const WIRE_FRAMES: usize = 128;
/// Frames that are held back in each direction; more are lost.
const HELD_FRAMES: usize = 192;
/// Turns at one moment in which no frame moves.
const QUIET_TURNS_MAX: u32 = 2000;
/// What the clock shows at the beginning.
const START: Duration = Duration::from_secs(1000);

/// What a world is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Everything follows from it, the policy of the directories, too.
    pub seed: u64,
    /// Cards.
    pub cards: u32,
    /// What the cards' ports can do.
    pub capabilities: Capabilities,
    /// Blocks of each card's cache.
    pub cache_blocks: u32,
    /// Pages of the page cache.
    pub pages: u32,
    /// Places for heads.
    pub places: u32,
    /// Connections at most.
    pub connections: usize,
    /// What becomes of changed blocks.
    pub coherence: Coherence,
    /// By which card a client is served.
    pub route: Route,
    /// The wire, in both directions.
    pub rates: FaultRates,
    /// How often a card does nothing in a turn although it could, from 0 to 1.
    pub laziness: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            cards: 1,
            capabilities: Capabilities::FULL,
            cache_blocks: 64,
            pages: 1024,
            places: 256,
            connections: 64,
            coherence: Coherence::Lazy,
            route: Route::Fixed,
            rates: FaultRates { latency_ns: 100_000, ..FaultRates::default() },
            laziness: 0.0,
        }
    }
}

/// A card's wire. The bad part of it is at the client.
pub(crate) struct Wire {
    /// The card, if there is one.
    pub card: Option<Firmware<MemoryPort>>,
    /// The port of the next card.
    port: Option<MemoryPort>,
    /// The other end.
    end: Faulty<MemoryPort, ManualClock>,
    /// Where super-frames are cut for the client.
    cut: (MemoryPort, MemoryPort),
    segments: Burst,
}

/// A client, a wire, cards and the host in one process, with a clock that jumps to when something
/// is due.
pub(crate) struct World {
    /// The host.
    pub service: Service,
    /// Files.
    pub folder: Folder,
    /// The other end of all wires.
    pub client: Client,
    /// For the test's own decisions.
    pub random: fastrand::Rng,
    /// Cards that were found to be broken.
    pub broken: Vec<(usize, Broken)>,
    /// One for each card.
    pub wires: Vec<Wire>,
    /// What it is like.
    pub settings: Settings,
    /// Turns so far.
    pub turns: u64,
    window: Arc<Window>,
    clock: ManualClock,
    now_ns: u64,
    quiet_turns: u32,
    burst: Burst,
}

/// MAC address of a card's interface on the host.
pub(crate) fn card_mac(card: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, card as u8]
}

/// IPv4 address of a card's interface on the host.
pub(crate) fn card_address(card: usize) -> [u8; 4] {
    [10, 77, 0, 10 + card as u8]
}

impl World {
    /// With all cards attached, and no file.
    pub(crate) fn new(settings: Settings) -> Self {
        let folder = Folder::new();
        let watched =
            Some((Arc::clone(folder.table()), Coverage { ext4: true, ..Coverage::default() }));
        Self::with_site(settings, folder, watched)
    }

    /// A world with all cards attached and no witness: no file is kept.
    pub(crate) fn unwatched(settings: Settings) -> Self {
        Self::with_site(settings, Folder::new(), None)
    }

    fn with_site(
        settings: Settings,
        folder: Folder,
        watched: Option<(Arc<RevisionTable>, Coverage)>,
    ) -> Self {
        let config = ServiceConfig {
            ports: vec![80],
            connections: settings.connections,
            secret: [7; 16],
            pages: settings.pages,
            places: settings.places,
            cards: settings.cards,
            coherence: settings.coherence,
            route: settings.route,
            card_cuts: true,
        };
        let cards = 0..settings.cards as usize;
        let ports: Vec<CardLink> = cards
            .clone()
            .map(|card| CardLink {
                mac: card_mac(card),
                address: u32::from_be_bytes(card_address(card)),
                peer_mac: CLIENT_MAC,
            })
            .collect();
        let window =
            Arc::new(Window::create("test", Layout::new(&config).bytes() as usize).unwrap());
        let now = Time(START.as_nanos() as u64);
        let site = Site::new(folder.root(), vec!["index.html".into()], true, watched);
        let service = Service::new(&config, Arc::clone(&window), &ports, site, now);
        let clock = ManualClock::new(now.0);
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let wires =
            cards.clone().map(|_| Wire::new(&settings, random.u64(..), clock.clone())).collect();
        let client = Client::new(random.u64(..), now.0);
        let mut world = Self {
            service,
            folder,
            client,
            random,
            broken: Vec::new(),
            wires,
            settings,
            turns: 0,
            window,
            clock,
            now_ns: now.0,
            quiet_turns: 0,
            burst: Burst::new(64),
        };
        cards.for_each(|card| world.attach(card));
        world
    }

    /// The time.
    pub(crate) fn now(&self) -> Time {
        Time(self.now_ns)
    }

    /// How long the world has been there.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_nanos(self.now_ns) - START
    }

    fn directory(&self) -> Directory {
        let places = self.settings.cache_blocks;
        let bytes = u64::from(places) * BLOCK_BYTES;
        let policy: Box<dyn Policy> = match self.settings.seed % 4 {
            0 => Box::new(Fifo::new(bytes, places)),
            1 => Box::new(Lfu::new(bytes, places)),
            2 => Box::new(Popularity::new(&PopularityConfig::new(bytes, places))),
            _ => Box::new(Lru::new(bytes, places)),
        };
        Directory::new(places, policy)
    }

    /// Two ends of a new attachment; with its shared memory, for those who write there what they
    /// may not.
    pub(crate) fn attachment() -> (HostSide, CardSide, Window) {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let shared = Window::map(files[0].try_clone().unwrap()).unwrap();
        (made.host(), Attachment::from_files(files).unwrap().card(), shared)
    }

    /// A card begins anew, at a new attachment.
    pub(crate) fn attach(&mut self, card: usize) {
        let (host, side, _) = Self::attachment();
        self.attach_host(card, host);
        let wire = &mut self.wires[card];
        let mut port =
            wire.card.take().map(Firmware::into_port).or_else(|| wire.port.take()).unwrap();
        // What came while there was no card is lost.
        while port.receive(&mut self.burst).unwrap() > 0 {}
        let seen = Arc::new(Window::map(self.window.file().try_clone_to_owned().unwrap()).unwrap());
        wire.card = Some(
            Firmware::new(port, side, seen, self.settings.cache_blocks * BLOCK_BYTES as u32, None)
                .unwrap(),
        );
    }

    /// The host's half of it: the card is somebody else's.
    pub(crate) fn attach_host(&mut self, card: usize, side: HostSide) {
        let directory = self.directory();
        self.service.attach(card, side, directory).unwrap();
    }

    /// The card is gone.
    pub(crate) fn detach(&mut self, card: usize) {
        self.service.detach(card);
        let wire = &mut self.wires[card];
        wire.port = wire.port.take().or_else(|| wire.card.take().map(Firmware::into_port));
    }

    /// Host memory.
    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Puts a frame on a card's wire as it is.
    pub(crate) fn inject(&mut self, card: usize, frame: &[u8]) {
        let _ = self.wires[card].end.get_mut().send(&[IoSlice::new(frame)], Offload::default());
    }

    /// One turn of everybody, in which a card may be lazy unless the turn is `forced`. True:
    /// something moved.
    pub(crate) fn turn(&mut self, forced: bool) -> bool {
        self.turns += 1;
        let mut frames = 0;
        for card in 0..self.wires.len() {
            frames += self.wires[card].deliver(&mut self.burst, &mut self.client);
        }
        let moved = self.client.poll(self.now_ns);
        for (card, frame) in self.client.take_frames() {
            frames += 1;
            if let Some(wire) = self.wires.get_mut(card) {
                // One for which there is no room is lost.
                let _ = wire.end.send(&[IoSlice::new(&frame)], Offload::default());
            }
        }
        let unix_ns = i128::from(self.now_ns) + 1_700_000_000_000_000_000;
        let (done, broken) = self.service.turn(Time(self.now_ns), unix_ns);
        self.broken.extend(broken);
        let mut is_busy = false;
        for wire in &mut self.wires {
            if let Some(card) = &mut wire.card
                && (forced || self.random.f64() >= self.settings.laziness)
            {
                is_busy |= matches!(card.turn(self.now_ns).unwrap(), Progress::Busy { .. });
            }
        }
        self.quiet_turns = if frames > 0 || is_busy { 0 } else { self.quiet_turns + 1 };
        assert!(
            self.quiet_turns < QUIET_TURNS_MAX,
            "busy without anything moving at {:?}",
            self.age()
        );
        frames > 0 || moved || done > 0 || is_busy
    }

    /// Turns until `is_done`.
    ///
    /// # Panics
    /// When that takes longer than `limit`, of the clock here, or when it can never be.
    pub(crate) fn run_until(
        &mut self,
        limit: Duration,
        mut is_done: impl FnMut(&mut Self) -> bool,
    ) {
        let end = self.now() + limit;
        while !is_done(self) {
            if self.turn(false) || self.turn(true) {
                continue;
            }
            let due = self
                .next_due_ns()
                .unwrap_or_else(|| panic!("nothing will ever happen: {}", self.client.describe()));
            assert!(due <= end.0, "{limit:?} were not enough: {}", self.client.describe());
            self.set_now(due.max(self.now_ns + 1000));
        }
    }

    /// Turns for so long.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            if self.turn(false) || self.turn(true) {
                continue;
            }
            let due = self.next_due_ns().unwrap_or(end.0);
            self.set_now(due.max(self.now_ns + 1000).min(end.0));
        }
    }

    /// So many turns, with the clock going on when nothing moves, unless nothing will ever happen.
    pub(crate) fn run_turns(&mut self, turns: usize) {
        for _ in 0..turns {
            if self.turn(false) || self.turn(true) {
                continue;
            }
            let Some(due) = self.next_due_ns() else { return };
            self.set_now(due.max(self.now_ns + 1000));
        }
    }

    /// Turns at this moment, without the clock going on.
    pub(crate) fn settle(&mut self) {
        while self.turn(false) || self.turn(true) {}
    }

    fn set_now(&mut self, now_ns: u64) {
        self.quiet_turns = 0;
        self.now_ns = now_ns;
        self.clock.set_ns(now_ns);
    }

    fn next_due_ns(&mut self) -> Option<u64> {
        let wires = self.wires.iter().filter_map(|wire| wire.end.next_release_ns()).min();
        let service = self.service.next_due().map(|due| due.0);
        [wires, service, self.client.next_due_ns(self.now_ns)].into_iter().flatten().min()
    }

    /// What a directory knows is in the page cache, in the same revision (I8).
    pub(crate) fn check_inclusion(&mut self) {
        for card in 0..self.wires.len() {
            let Some(driver) = self.service.driver(card) else { continue };
            let known: Vec<_> = driver.directory().blocks().collect();
            for (block, revision) in known {
                let pages = self.service.pages();
                let page = pages.page_of(block).and_then(|page| pages.page(page));
                assert_eq!(
                    page.map(|page| page.revision),
                    Some(revision),
                    "card {card} has {block:?}"
                );
            }
        }
    }

    /// Lets all connections end, and finds nothing that is still taken.
    pub(crate) fn check_nothing_is_left(&mut self) {
        self.client.close_all();
        self.run_until(Duration::from_secs(400), |world| world.service.connections().is_empty());
        self.settle();
        assert_eq!(self.service.pages().pinned(), 0, "pages are pinned");
        assert_eq!(
            self.service.places().free_places(),
            self.settings.places as usize,
            "places are taken"
        );
        self.check_inclusion();
    }
}

impl Wire {
    fn new(settings: &Settings, seed: u64, clock: ManualClock) -> Self {
        let (card, client) = memory_wire(WIRE_FRAMES, settings.capabilities, Capabilities::PLAIN);
        let rates = FaultConfig {
            seed,
            receive: settings.rates,
            send: settings.rates,
            queue_frames: HELD_FRAMES,
        };
        let cut = memory_wire(64, Capabilities::PLAIN, Capabilities::PLAIN);
        let end = Faulty::new(client, &rates, clock);
        Self { card: None, port: Some(card), end, cut, segments: Burst::new(64) }
    }

    /// What has happened to frames on their way to the client.
    pub(crate) fn end(&mut self) -> &mut Faulty<MemoryPort, ManualClock> {
        &mut self.end
    }

    /// Hands frames to the client, cut and complete as a real wire has them, and returns how many.
    fn deliver(&mut self, burst: &mut Burst, client: &mut Client) -> usize {
        let frames = self.end.receive(burst).unwrap();
        for frame in burst.iter() {
            // What contradicts itself is dropped, because a real wire has no such frames.
            let _ =
                send_with_fallback(&mut self.cut.0, &[IoSlice::new(frame.data())], frame.offload());
            while self.cut.1.receive(&mut self.segments).unwrap() > 0 {
                self.segments.iter().for_each(|segment| client.take_frame(segment.data()));
            }
        }
        frames
    }
}
