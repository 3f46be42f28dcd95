//! The host's loop: frames in, requests, packets out. One thread.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use nicache_bus::{BusClass, Doorbell, HostSide, PushError, Received, RingError, Window, WindowError};
use nicache_coherence::Epoch;
use nicache_http::{DateCache, HttpDate, KeyConfig};
use nicache_tcp::handshake::Limits;
use nicache_tcp::{HeadRepr, SenderConfig, Time};

use super::listing::{KIND, encode, error_page, listing_page};
use super::live::{Behind, LiveCounters, LiveSource, PLAYLIST_BYTES_MAX, Stream, segments};
use super::output::{Next, Output, Source};
use super::range::{self, Wanted};
use super::reply::{Body, Head};
use super::request::{Asked, Parsed, parse};
use super::validator::{Validators, Verdict, judge, range_applies};
use crate::block::{BLOCK_BYTES, Block, Revision};
use crate::directory::{Coherence, Directory};
use crate::driver::{Driver, HEADER_BYTES, TransmitError};
use crate::files::{Found, Gone, LoadError, OpenFile, Site, load};
use crate::mbuf::{Headers, Mbuf, Owner};
use crate::page_cache::PageCache;
use crate::places::{PLACE_BYTES, Places};
use crate::stack::{
    Connection, ConnectionId, Connections, Ends, HEADERS_BYTES_MAX, Handled, Incoming,
    PACKET_PARTS_MAX, StackConfig, TCP_AT, parse as parse_frame, write_headers,
};

/// Bytes of a buffer for a received frame.
pub const FRAME_BYTES: u64 = 2048;
/// Buffers for received frames of each card.
pub const FRAMES: u64 = 512;
/// Frames of one card in one turn at most.
const FRAMES_PER_TURN: usize = 64;
/// Bytes of a connection that TCP has at most; the rest waits.
const QUEUE_BYTES: u32 = 1 << 20;
/// Replies of a connection that are prepared at most.
const REPLIES_MAX: usize = 64;
/// How often a playlist is looked at.
const PLAYLIST_EVERY: Duration = Duration::from_millis(100);
/// How often changes are carried over to the cards.
const CARRY_EVERY: Duration = Duration::from_millis(2);
/// Blocks of a file by which a card is chosen.
const BLOCKS_COUNTED: u32 = 64;
/// How often a file that changes meanwhile is looked up again.
const TRIES: usize = 3;
/// A connection on which nothing happens for so long is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Settings.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// TCP ports.
    pub ports: Vec<u16>,
    /// Connections at most.
    pub connections: usize,
    /// Random bytes that clients cannot know.
    pub secret: [u8; 16],
    /// Pages of the page cache.
    pub pages: u32,
    /// Places for heads of replies.
    pub places: u32,
    /// Cards.
    pub cards: u32,
    /// What becomes of blocks whose file has changed.
    pub coherence: Coherence,
    /// By which card a client of several is served.
    pub route: Route,
}

/// By which card a client is served (Kim et al. 2002, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// The one that it came by.
    #[default]
    Fixed,
    /// The one that has most blocks of what it asks for first; of what none has, one that follows from the file.
    Affinity,
}

/// Where things are in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    cards: u64,
    places_at: u64,
    pages_at: u64,
    end: u64,
}

/// Of each card: places for headers, then buffers for frames.
const CARD_BYTES: u64 = HEADER_BYTES + FRAMES * FRAME_BYTES;

impl Layout {
    /// For these settings.
    pub fn new(config: &ServiceConfig) -> Layout {
        let cards = u64::from(config.cards);
        let places_at = cards * CARD_BYTES;
        let pages_at = (places_at + u64::from(config.places) * PLACE_BYTES).next_multiple_of(BLOCK_BYTES);
        Layout { cards, places_at, pages_at, end: pages_at + u64::from(config.pages) * BLOCK_BYTES }
    }

    /// Bytes of the window.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    fn headers_at(&self, card: usize) -> u64 {
        card as u64 * CARD_BYTES
    }

    fn frames_at(&self, card: usize) -> u64 {
        self.headers_at(card) + HEADER_BYTES
    }
}

/// What the host is on a card's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardPort {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address, in host byte order.
    pub address: u32,
    /// MAC address of the other end of the wire.
    pub peer_mac: [u8; 6],
}

/// Why a card is of no more use until it has a new attachment.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The card wrote an index that cannot be.
    #[error("the card is broken: {0}")]
    Card(#[from] RingError),
    /// Host memory is laid out wrongly: a bug of this side.
    #[error(transparent)]
    Window(#[from] WindowError),
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounters {
    /// Requests that were answered.
    pub requests: u64,
    /// Replies by the hundred of their status: 2xx, 3xx, 4xx, 5xx.
    pub statuses: [u64; 4],
    /// Bytes of files that were queued.
    pub content_bytes: u64,
    /// Bytes of these whose files could not be kept, so that they were read for one reply.
    pub unkept_bytes: u64,
    /// Replies that could not be completed: their file changed while a slow client took it.
    pub cut: u64,
    /// Frames received.
    pub frames: u64,
    /// Frames that were for nobody here.
    pub frames_ignored: u64,
    /// Frames with a wrong checksum.
    pub frames_corrupt: u64,
    /// What cards said of frames and could not be.
    pub frames_refused: u64,
    /// Answers that found no room, to be asked for again.
    pub answers_dropped: u64,
    /// Connections that are served by another card than they came by.
    pub rerouted: u64,
}

/// One card.
#[derive(Debug)]
struct Card {
    port: CardPort,
    driver: Option<Driver>,
}

/// A playlist whose segments are live.
#[derive(Debug)]
struct Playlist {
    path: Vec<u8>,
    revision: Option<Revision>,
    segments: Vec<Vec<u8>>,
    /// Files that it has named before, and that are still in use.
    retiring: Vec<Arc<OpenFile>>,
    due: Time,
}

/// What is known of a connection beside its TCP.
#[derive(Debug)]
struct Session {
    card: usize,
    output: Output,
    /// Bytes of a request's content that are still to be skipped.
    skip: u64,
    /// Bytes of the input that are no whole head.
    parsed: usize,
    /// No further request is read.
    is_last: bool,
    /// It waits for room: in the ring, or for a head.
    is_waiting: bool,
    idle_due: Time,
    /// It has asked for a file, so that its card is chosen.
    is_routed: bool,
}

/// See the module's head.
#[derive(Debug)]
pub struct Service {
    window: Arc<Window>,
    layout: Layout,
    pages: PageCache,
    places: Places,
    site: Site,
    keys: KeyConfig,
    cards: Vec<Card>,
    connections: Connections,
    sessions: Box<[Option<Session>]>,
    waiting: Vec<ConnectionId>,
    /// One of them waits for room in a ring of commands.
    is_ring_full: bool,
    touched: Vec<ConnectionId>,
    streams: Vec<Stream>,
    playlists: Vec<Playlist>,
    live: LiveCounters,
    dates: DateCache,
    coherence: Coherence,
    route: Route,
    /// Up to where changes have been carried over to the cards.
    carried: Epoch,
    carry_due: Time,
    unix_ns: i128,
    ip_id: u16,
    counters: ServiceCounters,
}

impl Service {
    /// A service at host memory of [`Layout::bytes`], with cards that are yet to be [attached](Self::attach).
    pub fn new(config: &ServiceConfig, window: Arc<Window>, ports: &[CardPort], site: Site, now: Time) -> Service {
        let layout = Layout::new(config);
        let limits = Limits { mss: 1460, window_scale: Some(7), sack: true, timestamps: true, v6: false };
        let stack = StackConfig { limits, sender: SenderConfig::default() };
        Service {
            layout,
            pages: PageCache::new(layout.pages_at, config.pages),
            places: Places::new(layout.places_at, config.places),
            site,
            keys: KeyConfig::new(config.secret),
            cards: ports.iter().map(|&port| Card { port, driver: None }).collect(),
            connections: Connections::new(stack, config.connections, config.ports.clone(), config.secret, now),
            sessions: (0..config.connections).map(|_| None).collect(),
            waiting: Vec::new(),
            is_ring_full: false,
            touched: Vec::new(),
            streams: Vec::new(),
            playlists: Vec::new(),
            live: LiveCounters::default(),
            dates: DateCache::default(),
            coherence: config.coherence,
            route: config.route,
            carried: Epoch::default(),
            carry_due: now,
            unix_ns: 0,
            ip_id: 0,
            counters: ServiceCounters::default(),
            window,
        }
    }

    /// What has happened.
    pub fn counters(&self) -> &ServiceCounters {
        &self.counters
    }

    /// The connections.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// The document root.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The page cache.
    pub fn pages(&self) -> &PageCache {
        &self.pages
    }

    /// Places for heads of replies.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// What has come live.
    pub fn live(&self) -> &LiveCounters {
        &self.live
    }

    /// Serves something live from now on.
    pub fn add_live(&mut self, source: LiveSource) {
        let LiveSource { path, fifo } = source;
        match fifo {
            Some(fifo) => self.streams.push(Stream::new(path, fifo, self.streams.len() as u32)),
            None => {
                let (segments, retiring) = (Vec::new(), Vec::new());
                self.playlists.push(Playlist { path, revision: None, segments, retiring, due: Time::ZERO });
            }
        }
    }

    /// Readable when there is more of a stream.
    pub fn live_files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.streams.iter().map(AsFd::as_fd)
    }

    /// A card's driver, if it is attached.
    pub fn driver(&mut self, card: usize) -> Option<&mut Driver> {
        self.cards.get_mut(card)?.driver.as_mut()
    }

    /// A card is there, with an empty cache for which `directory` is.
    ///
    /// # Errors
    /// It is broken already.
    pub fn attach(&mut self, card: usize, mut side: HostSide, directory: Directory) -> Result<(), Broken> {
        self.detach(card);
        let frames_at = self.layout.frames_at(card);
        for number in 0..FRAMES {
            let place =
                Received { mmaddr: frames_at + number * FRAME_BYTES, len: FRAME_BYTES, checksums_right: false };
            match side.free.push(place.encode()) {
                Ok(()) => {}
                Err(PushError::Peer(error)) => return Err(error.into()),
                Err(PushError::Full) => break,
            }
        }
        if side.free.publish() {
            side.card_bell.ring();
        }
        self.cards[card].driver = Some(Driver::new(side, directory, self.layout.headers_at(card)));
        // What their timers asked for meanwhile is done now.
        let session_of = |id: &ConnectionId| self.sessions[id.0 as usize].as_ref();
        let is_its = |id: &ConnectionId| session_of(id).is_some_and(|session| session.card == card);
        self.touched.extend(self.connections.ids().filter(is_its));
        Ok(())
    }

    /// A card is gone. Connections stay; what was under way on them is sent again when it is back.
    pub fn detach(&mut self, card: usize) {
        if let Some(mut driver) = self.cards[card].driver.take() {
            driver.abandon(&mut self.pages);
        }
    }

    /// One turn; returns how much there was to do. `unix_ns` are nanoseconds since 1970. An error is one card's, which is detached.
    pub fn turn(&mut self, now: Time, unix_ns: i128) -> (usize, Option<(usize, Broken)>) {
        self.unix_ns = unix_ns;
        self.is_ring_full = false;
        let mut done = 0;
        let mut broken = None;
        for card in 0..self.cards.len() {
            match self.receive(card, now) {
                Ok(frames) => done += frames,
                Err(error) => broken = Some((card, error)),
            }
        }
        done += self.read_streams();
        self.read_playlists(now);
        if let Err(error) = self.carry_changes(now) {
            broken = Some(error);
        }
        while let Some((id, is_gone)) = self.connections.poll_timer(now) {
            done += 1;
            if is_gone || self.is_idle(id, now) {
                // Without its card nobody could be told.
                let card = self.session(id).map(|session| session.card);
                let is_gone = is_gone || card.is_some_and(|card| self.cards[card].driver.is_none());
                self.end(id, is_gone, now);
            } else {
                self.touched.push(id);
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        for id in waiting.drain(..) {
            if let Some(session) = self.session(id)
                && std::mem::take(&mut session.is_waiting)
            {
                self.touched.push(id);
            }
        }
        self.waiting = waiting;
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for id in touched.drain(..) {
            if let Err((card, error)) = self.serve(id, now) {
                broken = Some((card, error));
            }
        }
        self.touched = touched;
        for card in &mut self.cards {
            if let Some(driver) = &mut card.driver {
                driver.flush();
            }
        }
        if let Some((card, _)) = &broken {
            self.detach(*card);
        }
        (done, broken)
    }

    /// When to come again, if nothing else happens.
    pub fn next_due(&self) -> Option<Time> {
        let carry = (self.coherence != Coherence::Lazy).then_some(self.carry_due);
        let playlist = self.playlists.iter().map(|playlist| playlist.due).min();
        [self.connections.next_due(), carry, playlist].into_iter().flatten().min()
    }

    fn read_streams(&mut self) -> usize {
        let Service { streams, pages, window, live, cards, touched, .. } = self;
        let mut done = 0;
        for stream in streams {
            if stream.read(pages, window, live, |block, gone| forget(cards, block, gone)) {
                done += 1;
                touched.extend(stream.viewers());
            }
            stream.retire(pages, |block, gone| forget(cards, block, gone));
        }
        done
    }

    /// Segments that a playlist names no more go as soon as nobody is sent them.
    fn read_playlists(&mut self, now: Time) {
        for number in 0..self.playlists.len() {
            if now < self.playlists[number].due {
                continue;
            }
            self.playlists[number].due = now + PLAYLIST_EVERY;
            let path = self.playlists[number].path.clone();
            if let Found::File { file, .. } = self.site.find(&path)
                && self.playlists[number].revision != Some(file.revision)
                && file.bytes <= PLAYLIST_BYTES_MAX
            {
                let mut text = vec![0; file.bytes as usize];
                let Ok(len) = rustix::io::pread(&*file, &mut text, 0) else { continue };
                let named = segments(&path, &String::from_utf8_lossy(&text[..len]));
                let before = std::mem::replace(&mut self.playlists[number].segments, named);
                self.playlists[number].revision = Some(file.revision);
                for segment in before {
                    if !self.playlists[number].segments.contains(&segment)
                        && let Found::File { file, .. } = self.site.find(&segment)
                    {
                        self.playlists[number].retiring.push(file);
                    }
                }
            }
            let Service { playlists, pages, cards, .. } = self;
            playlists[number].retiring.retain(|file| {
                let blocks = (0..file.bytes.div_ceil(BLOCK_BYTES) as u32).map(|index| Block { file: file.number, index });
                let is_used = |block| pages.page_of(block).is_some_and(|page| pages.is_pinned(page));
                if blocks.clone().any(is_used) {
                    return true;
                }
                blocks.for_each(|block| forget(cards, block, Gone::Used));
                false
            });
        }
    }

    /// Carries changes of files over to the cards, unless they are to find out themselves.
    fn carry_changes(&mut self, now: Time) -> Result<(), (usize, Broken)> {
        if self.coherence == Coherence::Lazy || now < self.carry_due {
            return Ok(());
        }
        self.carry_due = now + CARRY_EVERY;
        let Some(epoch) = self.site.table().map(|table| table.epoch()) else { return Ok(()) };
        if epoch == self.carried {
            return Ok(());
        }
        let mut is_carried = true;
        for file in self.site.changed_files() {
            let blocks = file.bytes.div_ceil(BLOCK_BYTES) as u32;
            let is_known = |cards: &mut Vec<Card>, block| {
                cards.iter_mut().filter_map(|card| card.driver.as_mut()).any(|driver| driver.directory().knows(block))
            };
            let known: Vec<Block> = (0..blocks)
                .map(|index| Block { file: file.number, index })
                .filter(|&block| is_known(&mut self.cards, block))
                .collect();
            match self.coherence {
                Coherence::Lazy => {}
                Coherence::Eager => known.into_iter().for_each(|block| forget(&mut self.cards, block, Gone::Outdated)),
                Coherence::Update if known.is_empty() => {}
                // One that is still being written is carried over when it is done.
                Coherence::Update => match self.site.look_again(&file) {
                    Some(again) => self.update_blocks(&again, &known)?,
                    None => is_carried = false,
                },
            }
        }
        if is_carried {
            self.carried = epoch;
        }
        Ok(())
    }

    fn update_blocks(&mut self, file: &OpenFile, known: &[Block]) -> Result<(), (usize, Broken)> {
        let Service { pages, window, site, cards, .. } = self;
        let Some(table) = site.table() else { return Ok(()) };
        for &block in known {
            let range = (block.offset(), (block.offset() + BLOCK_BYTES).min(file.bytes));
            let mut found = Vec::new();
            // The page of the former revision goes, and what the cards have of it stays, to be replaced.
            let gone = |gone_block: Block, gone| {
                if gone_block != block {
                    forget(cards, gone_block, gone);
                }
            };
            let loaded = if range.0 < range.1 {
                load(file, table, range, pages, window, &mut found, gone)
            } else {
                Err(LoadError::Changed)
            };
            for (number, card) in cards.iter_mut().enumerate() {
                let Some(driver) = &mut card.driver else { continue };
                let is_updated = match (loaded, found.first()) {
                    (Ok(()), Some(&page)) => driver.update(page, pages).map_err(|error| (number, error.into()))?,
                    _ => false,
                };
                if !is_updated {
                    driver.directory().invalidate_older(block, file.revision);
                }
            }
            found.into_iter().for_each(|page| pages.unpin(page));
        }
        Ok(())
    }

    /// Chooses the card for a connection that asks for its first file.
    fn choose_card(&mut self, id: ConnectionId, file: &OpenFile) {
        let count = self.cards.len();
        let Some(session) = self.sessions[id.0 as usize].as_mut() else { return };
        if std::mem::replace(&mut session.is_routed, true) || self.route == Route::Fixed || count < 2 {
            return;
        }
        let came_by = session.card;
        let blocks = (file.bytes.div_ceil(BLOCK_BYTES) as u32).min(BLOCKS_COUNTED);
        let known = |card: &mut Card| match &mut card.driver {
            None => None,
            Some(driver) => {
                let knows = |index: &u32| driver.directory().knows(Block { file: file.number, index: *index });
                Some((0..blocks).filter(knows).count())
            }
        };
        let counts: Vec<Option<usize>> = self.cards.iter_mut().map(known).collect();
        let most = counts.iter().flatten().max().copied().unwrap_or(0);
        let chosen = match most {
            0 => Some(file.number.0 as usize % count).filter(|card| counts[*card].is_some()),
            most if counts[came_by] == Some(most) => Some(came_by),
            most => counts.iter().position(|count| *count == Some(most)),
        };
        if let Some(card) = chosen
            && card != came_by
            && let Some(connection) = self.connections.get(id)
        {
            let CardPort { mac, peer_mac, .. } = self.cards[card].port;
            connection.reroute(mac, peer_mac);
            self.counters.rerouted += 1;
            if let Some(session) = self.session(id) {
                session.card = card;
            }
        }
    }

    /// Asks all cards for bells. True: none has anything at this moment.
    ///
    /// # Errors
    /// A card is broken; it is detached.
    pub fn prepare_sleep(&mut self) -> Result<bool, (usize, Broken)> {
        let mut may_sleep = true;
        for card in 0..self.cards.len() {
            let Some(driver) = &mut self.cards[card].driver else { continue };
            let is_ring_full = self.is_ring_full;
            let side = driver.side();
            side.bell.hear();
            let asked = side.received.sleep_until_entry().and_then(|is_empty| {
                Ok(is_empty && (!is_ring_full || side.commands.sleep_until_room()?))
            });
            match asked {
                Ok(is_quiet) => may_sleep &= is_quiet,
                Err(error) => {
                    self.detach(card);
                    return Err((card, error.into()));
                }
            }
        }
        Ok(may_sleep)
    }

    /// Rung by cards that are attached.
    pub fn bells(&self) -> impl Iterator<Item = &Doorbell> {
        self.cards.iter().filter_map(|card| card.driver.as_ref()).map(Driver::bell)
    }

    fn session(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.0 as usize)?.as_mut()
    }

    fn is_idle(&mut self, id: ConnectionId, now: Time) -> bool {
        self.session(id).is_some_and(|session| session.idle_due <= now)
    }

    fn receive(&mut self, card: usize, now: Time) -> Result<usize, Broken> {
        let mut bytes = [0; FRAME_BYTES as usize];
        let mut frames = 0;
        while frames < FRAMES_PER_TURN {
            let Some(driver) = &mut self.cards[card].driver else { return Ok(frames) };
            let Some(entry) = driver.side().received.pop()? else { break };
            frames += 1;
            let received = Received::decode(entry);
            let first = self.layout.frames_at(card);
            let is_place = received.mmaddr >= first
                && received.mmaddr < first + FRAMES * FRAME_BYTES
                && (received.mmaddr - first).is_multiple_of(FRAME_BYTES)
                && received.len <= FRAME_BYTES;
            if !is_place {
                self.counters.frames_refused += 1;
                continue;
            }
            // The card may change it at any time: it is looked at in private.
            let frame = &mut bytes[..received.len as usize];
            self.window.read(received.mmaddr, frame)?;
            let place = Received { len: FRAME_BYTES, checksums_right: false, ..received };
            match driver.side().free.push(place.encode()) {
                Ok(()) => {}
                Err(PushError::Peer(error)) => return Err(error.into()),
                // Only a card that made up a place can have filled it.
                Err(PushError::Full) => self.counters.frames_refused += 1,
            }
            self.counters.frames += 1;
            self.handle_frame(card, frame, received.checksums_right, now)?;
        }
        if let Some(driver) = &mut self.cards[card].driver {
            driver.poll_done()?;
            driver.reap(&mut self.pages)?;
            let side = driver.side();
            if side.received.release() | side.free.publish() {
                side.card_bell.ring();
            }
        }
        Ok(frames)
    }

    fn handle_frame(&mut self, card: usize, frame: &[u8], is_right: bool, now: Time) -> Result<(), Broken> {
        let CardPort { mac, address, .. } = self.cards[card].port;
        match parse_frame(frame, is_right, mac, address) {
            Incoming::Nothing => self.counters.frames_ignored += 1,
            Incoming::Corrupt => self.counters.frames_corrupt += 1,
            Incoming::Answer(answer) => self.answer(card, &answer)?,
            Incoming::Tcp { ends, head, payload } => {
                match self.connections.handle_segment(ends, &head, &frame[payload], now) {
                    Handled::Nothing => {}
                    Handled::Answer(head) => self.answer_head(card, &ends, &head)?,
                    Handled::Connection { id, is_new, reaction } => {
                        if is_new {
                            self.sessions[id.0 as usize] = Some(Session {
                                card,
                                output: Output::default(),
                                skip: 0,
                                parsed: 0,
                                is_last: false,
                                is_waiting: false,
                                idle_due: now + IDLE,
                                is_routed: false,
                            });
                        }
                        if let Some(session) = self.session(id)
                            && (reaction.acked || reaction.readable && !session.is_last)
                        {
                            session.idle_due = now + IDLE;
                        }
                        if reaction.acked {
                            self.release(id);
                        }
                        self.touched.push(id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Sends a frame that is none of a connection's.
    fn answer(&mut self, card: usize, frame: &[u8]) -> Result<(), Broken> {
        let headers = Headers { bytes: frame, transport: 0, segment: 0 };
        let sent = match &mut self.cards[card].driver {
            Some(driver) => driver.transmit_as_is(&headers, &mut self.pages, &self.window),
            None => Ok(()),
        };
        self.ignore_full(sent)
    }

    fn answer_head(&mut self, card: usize, ends: &Ends, head: &HeadRepr) -> Result<(), Broken> {
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(ends, head, 0, self.next_ip_id(), &mut bytes);
        let headers = Headers { bytes: &bytes[..len], transport: TCP_AT as u8, segment: 0 };
        let sent = match &mut self.cards[card].driver {
            Some(driver) => driver.transmit(&headers, &[], &mut self.pages, &self.window),
            None => Ok(()),
        };
        self.ignore_full(sent)
    }

    fn ignore_full(&mut self, sent: Result<(), TransmitError>) -> Result<(), Broken> {
        match sent {
            Ok(()) => Ok(()),
            Err(TransmitError::Full | TransmitError::TooLong) => {
                self.counters.answers_dropped += 1;
                Ok(())
            }
            Err(TransmitError::Card(error)) => Err(error.into()),
            Err(TransmitError::Window(error)) => Err(error.into()),
        }
    }

    fn next_ip_id(&mut self) -> u16 {
        self.ip_id = self.ip_id.wrapping_add(1);
        self.ip_id
    }

    /// Requests, replies and packets of a connection.
    fn serve(&mut self, id: ConnectionId, now: Time) -> Result<(), (usize, Broken)> {
        if self.session(id).is_none() {
            return Ok(());
        }
        if self.connections.get(id).is_none_or(|connection| connection.is_over()) {
            self.end(id, true, now);
            return Ok(());
        }
        self.read_requests(id);
        self.fill_queue(id);
        self.transmit(id, now)?;
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        if connection.is_over() {
            self.end(id, true, now);
            return Ok(());
        }
        let Some(Session { card, idle_due, .. }) = self.session(id) else { return Ok(()) };
        let (card, idle_due) = (*card, *idle_due);
        match self.cards[card].driver {
            Some(_) => self.connections.arm(id, Some(idle_due), now),
            // What its timers ask for would have to wait.
            None => self.connections.arm_alone(id, idle_due),
        }
        Ok(())
    }

    /// Frees what the client has.
    fn release(&mut self, id: ConnectionId) {
        let Service { connections, pages, places, .. } = self;
        if let Some(connection) = connections.get(id) {
            connection.release(|buffer| free(pages, places, buffer));
        }
    }

    /// The connection is over, or to be ended.
    fn end(&mut self, id: ConnectionId, is_gone: bool, now: Time) {
        let Service { connections, sessions, pages, places, streams, .. } = self;
        let Some(session) = &mut sessions[id.0 as usize] else { return };
        session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
        if !is_gone && let Some(connection) = connections.get(id) {
            // One that owes nothing is closed in order.
            match connection.unacknowledged_bytes() {
                0 if connection.can_send() => connection.finish(),
                _ => connection.abort(),
            }
            session.is_last = true;
            session.idle_due = now + IDLE;
            self.touched.push(id);
            return;
        }
        sessions[id.0 as usize] = None;
        streams.iter_mut().for_each(|stream| stream.leave(id));
        connections.remove(id, |buffer| free(pages, places, buffer), now);
    }

    fn read_requests(&mut self, id: ConnectionId) {
        loop {
            let Some(session) = self.session(id) else { return };
            if session.is_last {
                // RFC 9112 section 9.6: the client's end is behind it.
                if let Some(connection) = self.connections.get(id) {
                    connection.consume(connection.input().len());
                }
                return;
            }
            if session.output.len() >= REPLIES_MAX {
                return;
            }
            if session.skip > 0 {
                let skip = session.skip;
                let Some(connection) = self.connections.get(id) else { return };
                let bytes = (connection.input().len() as u64).min(skip);
                connection.consume(bytes as usize);
                let Some(session) = self.session(id) else { return };
                session.skip -= bytes;
                if session.skip > 0 {
                    return;
                }
            }
            let parsed_before = self.session(id).map_or(0, |session| session.parsed);
            let Some(connection) = self.connections.get(id) else { return };
            let input = connection.input();
            let is_read_out = connection.is_read_out();
            if input.is_empty() || !nicache_http::is_worth_parsing(input, parsed_before) {
                if is_read_out {
                    self.no_more_requests(id);
                }
                return;
            }
            // The head is copied: replies are queued on the same connection.
            let input = input.to_vec();
            match parse(&input, &self.keys) {
                Parsed::Partial => {
                    if let Some(session) = self.session(id) {
                        session.parsed = input.len();
                    }
                    if is_read_out {
                        self.no_more_requests(id);
                    }
                    return;
                }
                Parsed::Lost { status } => {
                    if self.reply_with_page(id, status, None, false, false, false).is_none() {
                        return self.wait(id);
                    }
                    self.done_with(id, input.len(), 0, false);
                }
                Parsed::Request { len, body, keep_alive, is_old, is_head, asked } => {
                    let replied = match asked {
                        Ok(asked) => self.reply(id, &asked, keep_alive, is_old),
                        Err(405) => self.reply_with_page(id, 405, Some("GET, HEAD"), keep_alive, is_old, false),
                        Err(status) => self.reply_with_page(id, status, None, keep_alive, is_old, is_head),
                    };
                    if replied.is_none() {
                        return self.wait(id);
                    }
                    self.done_with(id, len, body, keep_alive);
                }
            }
        }
    }

    fn done_with(&mut self, id: ConnectionId, head: usize, body: u64, keep_alive: bool) {
        if let Some(connection) = self.connections.get(id) {
            connection.consume(head);
        }
        if let Some(session) = self.session(id) {
            session.parsed = 0;
            session.skip = body;
            session.is_last = !keep_alive;
        }
    }

    fn no_more_requests(&mut self, id: ConnectionId) {
        if let Some(session) = self.session(id) {
            session.is_last = true;
        }
    }

    /// The connection is looked at again in the next turn.
    fn wait(&mut self, id: ConnectionId) {
        if let Some(session) = self.session(id)
            && !session.is_waiting
        {
            session.is_waiting = true;
            self.waiting.push(id);
        }
    }

    /// `None`: there is no room for the head.
    fn reply(&mut self, id: ConnectionId, asked: &Asked<'_>, keep_alive: bool, is_old: bool) -> Option<()> {
        if let Some(stream) = self.streams.iter().position(|stream| stream.path() == asked.path) {
            return self.reply_live(id, stream, asked, is_old);
        }
        let mut tries = 0;
        loop {
            match self.site.find(&asked.path) {
                Found::File { file, changed_ns } => {
                    self.choose_card(id, &file);
                    match self.reply_with_file(id, asked, &file, changed_ns, keep_alive, is_old) {
                        Ok(queued) => return queued,
                        Err(LoadError::Changed) if tries < TRIES => tries += 1,
                        Err(_) => return self.reply_with_page(id, 503, None, keep_alive, is_old, asked.is_head),
                    }
                }
                Found::Directory => {
                    let query = String::from_utf8_lossy(asked.query);
                    let location = format!("{}/{query}", encode(&asked.path));
                    // What looks like a host would lead to another one.
                    let location = format!("/{}", location.trim_start_matches('/'));
                    let mut head = Head::new(301, Body::Bytes { len: 0, kind: KIND }, keep_alive, is_old);
                    head.location = Some(&location);
                    return match self.push_head(id, &head) {
                        Ok(queued) => queued,
                        Err(()) => self.reply_with_page(id, 404, None, keep_alive, is_old, asked.is_head),
                    };
                }
                Found::Listing(Some(names)) => {
                    let page = listing_page(&asked.path, &names);
                    return self.reply_with_text(id, 200, &page, None, keep_alive, is_old, asked.is_head);
                }
                Found::Missing => return self.reply_with_page(id, 404, None, keep_alive, is_old, asked.is_head),
                Found::Listing(None) | Found::Forbidden => {
                    return self.reply_with_page(id, 403, None, keep_alive, is_old, asked.is_head);
                }
            }
        }
    }

    /// A stream ends with its connection.
    fn reply_live(&mut self, id: ConnectionId, stream: usize, asked: &Asked<'_>, is_old: bool) -> Option<()> {
        let kind = kind_of(&asked.path);
        let head = Head::new(200, Body::Endless { kind: &kind }, false, is_old);
        self.push_head(id, &head).ok()??;
        let session = self.session(id)?;
        session.is_last = true;
        if !asked.is_head {
            session.output.push_live(stream);
            self.streams[stream].join(id);
        }
        Some(())
    }

    fn reply_with_file(
        &mut self,
        id: ConnectionId,
        asked: &Asked<'_>,
        file: &Arc<OpenFile>,
        changed_ns: i128,
        keep_alive: bool,
        is_old: bool,
    ) -> Result<Option<()>, LoadError> {
        let validators = Validators::of(file, changed_ns, self.unix_ns);
        match judge(asked, &validators) {
            Verdict::Failed => {
                return Ok(self.reply_with_page(id, 412, None, keep_alive, is_old, asked.is_head));
            }
            Verdict::NotModified => {
                let mut head = Head::new(304, Body::None, keep_alive, is_old);
                head.validators = Some(&validators);
                return Ok(self.push_head(id, &head).unwrap_or(None));
            }
            Verdict::Proceed => {}
        }
        let kind = kind_of(&asked.path);
        let wanted = match asked.range {
            Some(value) if range_applies(asked, &validators) => range::parse(value, file.bytes),
            _ => Wanted::Whole,
        };
        match wanted {
            Wanted::Nothing => {
                let page = error_page(416);
                let mut head = Head::new(416, Body::Bytes { len: page.len() as u64, kind: KIND }, keep_alive, is_old);
                head.content_range = Some(format!("bytes */{}", file.bytes));
                Ok(self.push_head_and_text(id, &head, &page, asked.is_head))
            }
            Wanted::Whole => {
                let mut head = Head::new(200, Body::Bytes { len: file.bytes, kind: &kind }, keep_alive, is_old);
                head.validators = Some(&validators);
                self.push_file(id, &head, file, &[("", (0, file.bytes))], "", asked.is_head)
            }
            Wanted::Parts(parts) => match parts.as_slice() {
                [(from, to)] => {
                    let mut head = Head::new(206, Body::Bytes { len: to - from, kind: &kind }, keep_alive, is_old);
                    head.validators = Some(&validators);
                    head.content_range = Some(format!("bytes {from}-{}/{}", to - 1, file.bytes));
                    self.push_file(id, &head, file, &[("", (*from, *to))], "", asked.is_head)
                }
                parts => self.push_parts(id, asked, file, &validators, &kind, parts, keep_alive, is_old),
            },
        }
    }

    /// RFC 9110 section 14.6.
    #[expect(clippy::too_many_arguments, reason = "what a reply is made of")]
    fn push_parts(
        &mut self,
        id: ConnectionId,
        asked: &Asked<'_>,
        file: &Arc<OpenFile>,
        validators: &Validators,
        kind: &str,
        parts: &[(u64, u64)],
        keep_alive: bool,
        is_old: bool,
    ) -> Result<Option<()>, LoadError> {
        let boundary = format!("nicache-{:x}-{:x}", file.revision.0, self.unix_ns);
        let heads: Vec<String> = parts
            .iter()
            .map(|(from, to)| {
                let range = format!("bytes {from}-{}/{}", to - 1, file.bytes);
                format!("\r\n--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n")
            })
            .collect();
        let end = format!("\r\n--{boundary}--\r\n");
        let content: u64 = parts.iter().map(|(from, to)| to - from).sum();
        let len = content + heads.iter().map(|head| head.len() as u64).sum::<u64>() + end.len() as u64;
        let kind = format!("multipart/byteranges; boundary={boundary}");
        let mut head = Head::new(206, Body::Bytes { len, kind: &kind }, keep_alive, is_old);
        head.validators = Some(validators);
        let pieces: Vec<(&str, (u64, u64))> = heads.iter().map(String::as_str).zip(parts.iter().copied()).collect();
        self.push_file(id, &head, file, &pieces, &end, asked.is_head)
    }

    /// A head, then pieces of a file each with what is in front of it, then what is behind them. Nothing is queued unless all of it is.
    fn push_file(
        &mut self,
        id: ConnectionId,
        head: &Head<'_>,
        file: &Arc<OpenFile>,
        pieces: &[(&str, (u64, u64))],
        end: &str,
        is_head: bool,
    ) -> Result<Option<()>, LoadError> {
        let mut output = Output::default();
        let queued = (|| {
            let text = head.write(&self.date());
            let Some(buffer) = self.text_buffer(&text) else { return Ok(None) };
            output.push(buffer);
            if is_head {
                return Ok(Some(()));
            }
            for (text, range) in pieces {
                if !text.is_empty() {
                    let Some(buffer) = self.text_buffer(text) else { return Ok(None) };
                    output.push(buffer);
                }
                let Service { pages, window, site, cards, .. } = self;
                let mut source = Source { pages, window, table: site.table().map(Arc::as_ref) };
                output.sendfile(file, *range, &mut source, |block, gone| forget(cards, block, gone))?;
            }
            if !end.is_empty() {
                let Some(buffer) = self.text_buffer(end) else { return Ok(None) };
                output.push(buffer);
            }
            Ok(Some(()))
        })();
        if queued != Ok(Some(())) {
            let Service { pages, places, .. } = self;
            output.clear(pages, |pages, buffer| free(pages, places, buffer));
            return queued;
        }
        if !is_head {
            let bytes: u64 = pieces.iter().map(|(_, (from, to))| to - from).sum();
            self.counters.content_bytes += bytes;
            self.counters.unkept_bytes += if file.is_kept { 0 } else { bytes };
        }
        self.count(head.status);
        if let Some(session) = self.session(id) {
            session.output.append(output);
        }
        Ok(Some(()))
    }

    fn reply_with_page(
        &mut self,
        id: ConnectionId,
        status: u16,
        allow: Option<&str>,
        keep_alive: bool,
        is_old: bool,
        is_head: bool,
    ) -> Option<()> {
        self.reply_with_text(id, status, &error_page(status), allow, keep_alive, is_old, is_head)
    }

    #[expect(clippy::too_many_arguments, reason = "what a reply is made of")]
    fn reply_with_text(
        &mut self,
        id: ConnectionId,
        status: u16,
        page: &str,
        allow: Option<&str>,
        keep_alive: bool,
        is_old: bool,
        is_head: bool,
    ) -> Option<()> {
        let mut head = Head::new(status, Body::Bytes { len: page.len() as u64, kind: KIND }, keep_alive, is_old);
        head.allow = allow;
        self.push_head_and_text(id, &head, page, is_head)
    }

    fn push_head_and_text(&mut self, id: ConnectionId, head: &Head<'_>, page: &str, is_head: bool) -> Option<()> {
        let places_of = |page: &str| 1 + (page.len() as u64).div_ceil(PLACE_BYTES) as usize;
        if places_of(page) > self.places.places() && head.status == 200 {
            // A list that is longer than all places together is not to be had.
            return self.reply_with_page(id, 503, None, head.keep_alive, head.is_old, is_head);
        }
        if self.places.free_places() < places_of(page) {
            return None;
        }
        let text = head.write(&self.date());
        let head_buffer = self.text_buffer(&text)?;
        let mut buffers = vec![head_buffer];
        if !is_head {
            for part in page.as_bytes().chunks(PLACE_BYTES as usize) {
                buffers.push(self.places.write(part, BusClass::Content, &self.window)?);
            }
        }
        self.count(head.status);
        let session = self.session(id)?;
        buffers.into_iter().for_each(|buffer| session.output.push(buffer));
        Some(())
    }

    /// `Err`: it is longer than a place.
    fn push_head(&mut self, id: ConnectionId, head: &Head<'_>) -> Result<Option<()>, ()> {
        let text = head.write(&self.date());
        if text.len() as u64 > PLACE_BYTES {
            return Err(());
        }
        let Some(buffer) = self.text_buffer(&text) else { return Ok(None) };
        self.count(head.status);
        if let Some(session) = self.session(id) {
            session.output.push(buffer);
        }
        Ok(Some(()))
    }

    fn text_buffer(&mut self, text: &str) -> Option<Mbuf> {
        self.places.write(text.as_bytes(), BusClass::ApplicationHeaders, &self.window)
    }

    fn date(&mut self) -> HttpDate {
        *self.dates.at((self.unix_ns / 1_000_000_000) as u64)
    }

    fn count(&mut self, status: u16) {
        self.counters.requests += 1;
        self.counters.statuses[usize::from(status / 100).clamp(2, 5) - 2] += 1;
    }

    /// Hands to TCP what it may have.
    fn fill_queue(&mut self, id: ConnectionId) {
        let Service { connections, sessions, pages, places, window, site, cards, counters, streams, live, .. } = self;
        let (Some(connection), Some(session)) = (connections.get(id), &mut sessions[id.0 as usize]) else { return };
        while connection.unacknowledged_bytes() < QUEUE_BYTES {
            let mut source = Source { pages, window, table: site.table().map(Arc::as_ref) };
            match session.output.next(&mut source, |block, gone| forget(cards, block, gone)) {
                Ok(Next::Buffer(buffer)) if connection.can_send() => connection.send(buffer),
                Ok(Next::Buffer(buffer)) => free(pages, places, buffer),
                Ok(Next::Live(stream)) => match streams[stream].next(id, pages) {
                    Ok(Some(buffer)) if connection.can_send() => {
                        counters.content_bytes += u64::from(buffer.len());
                        connection.send(buffer);
                    }
                    Ok(Some(buffer)) => free(pages, places, buffer),
                    // A viewer that has closed its side is not waited for.
                    Ok(None) if connection.is_read_out() => {
                        session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
                        connection.finish();
                        return;
                    }
                    Ok(None) => return,
                    Err(Behind) => {
                        live.cut += 1;
                        streams[stream].leave(id);
                        session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
                        connection.abort();
                        return;
                    }
                },
                Ok(Next::Nothing) => {
                    if session.is_last {
                        connection.finish();
                    }
                    return;
                }
                // Pages come back when clients acknowledge what they have.
                Err(LoadError::NoRoom) => return self.wait(id),
                Err(_) => {
                    counters.cut += 1;
                    session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
                    session.is_last = true;
                    connection.abort();
                    return;
                }
            }
        }
    }

    /// Sends what TCP may send now.
    fn transmit(&mut self, id: ConnectionId, now: Time) -> Result<(), (usize, Broken)> {
        let Some(session) = self.session(id) else { return Ok(()) };
        let card = session.card;
        let failed = |error: TransmitError| match error {
            TransmitError::Card(error) => (card, Broken::Card(error)),
            TransmitError::Window(error) => (card, Broken::Window(error)),
            TransmitError::Full | TransmitError::TooLong => unreachable!("there was room, and parts are counted"),
        };
        loop {
            let Service { connections, pages, window, cards, ip_id, .. } = self;
            // Without its card, what is sent is lost; TCP repairs it when the card is back.
            let (Some(connection), Some(driver)) = (connections.get(id), &mut cards[card].driver) else { return Ok(()) };
            if !driver.has_room(pages).map_err(|error| (card, error.into()))? {
                self.is_ring_full = true;
                self.wait(id);
                return Ok(());
            }
            let Some(outgoing) = connection.poll(now) else { return Ok(()) };
            let mut sent = 0;
            loop {
                let mut parts = ArrayVec::<Mbuf, PACKET_PARTS_MAX>::new();
                let left = outgoing.len - sent;
                let len = if left > 0 { connection.queue().gather(outgoing.head.seq + sent, left, &mut parts) } else { 0 };
                let mut head = outgoing.head;
                head.seq = outgoing.head.seq + sent;
                let is_end = sent + len >= outgoing.len;
                if !is_end {
                    head.flags = without_end(head.flags);
                }
                *ip_id = ip_id.wrapping_add(1);
                send(driver, connection, &head, len, outgoing.mss, &parts, *ip_id, pages, window).map_err(failed)?;
                sent += len;
                if is_end || len == 0 {
                    break;
                }
                if !driver.has_room(pages).map_err(|error| (card, error.into()))? {
                    // Not sent, as if it had been lost.
                    break;
                }
            }
        }
    }
}

/// Of a packet that others of the same burst follow.
fn without_end(flags: nicache_tcp::Flags) -> nicache_tcp::Flags {
    nicache_tcp::Flags(flags.0 & !(nicache_tcp::Flags::FIN.0 | nicache_tcp::Flags::PSH.0))
}

#[expect(clippy::too_many_arguments, reason = "what a packet is made of")]
fn send(
    driver: &mut Driver,
    connection: &Connection,
    head: &HeadRepr,
    len: u32,
    mss: u16,
    parts: &[Mbuf],
    ip_id: u16,
    pages: &mut PageCache,
    window: &Window,
) -> Result<(), TransmitError> {
    let mut bytes = [0; HEADERS_BYTES_MAX];
    let header_len = write_headers(connection.ends(), head, len, ip_id, &mut bytes);
    let segment = if len > u32::from(mss) { mss } else { 0 };
    let headers = Headers { bytes: &bytes[..header_len], transport: TCP_AT as u8, segment };
    driver.transmit(&headers, parts, pages, window)
}

/// Media type by the name.
fn kind_of(path: &[u8]) -> String {
    let kind = match path.ends_with(b"/") {
        true => Some("text/html"),
        false => mime_guess::from_path(String::from_utf8_lossy(path).as_ref()).first_raw(),
    };
    kind.unwrap_or("application/octet-stream").to_owned()
}

/// A buffer is needed no more.
fn free(pages: &mut PageCache, places: &mut Places, buffer: Mbuf) {
    match buffer {
        Mbuf::Page { page, .. } | Mbuf::Bytes { owner: Owner::Page(page), .. } => pages.unpin(page),
        Mbuf::Bytes { owner: Owner::Place(place), .. } => places.free(place),
        Mbuf::Bytes { owner: Owner::Nobody, .. } => {}
    }
}

/// What the page cache has no more, no directory may know (invariant I8).
fn forget(cards: &mut [Card], block: Block, gone: Gone) {
    for driver in cards.iter_mut().filter_map(|card| card.driver.as_mut()) {
        match gone {
            Gone::Evicted | Gone::Used => driver.directory().exclude(block),
            Gone::Outdated => driver.directory().invalidate(block),
        }
    }
}
