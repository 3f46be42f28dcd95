//! The host's loop: frames in, requests, packets out. One thread.

use std::sync::Arc;
use std::time::Duration;

use nicache_bus::{
    Doorbell, HostSide, Peer, Post, Presence, PushError, Received, ReceivedChecksum, RingError,
    Window, WindowError,
};
use nicache_coherence::Epoch;
use nicache_http::{DateCache, KeyConfig};
use nicache_tcp::frame::{HEADERS_BYTES_MAX, write_headers};
use nicache_tcp::handshake::Limits;
use nicache_tcp::patience::{HeadTimer, ReadRules};
use nicache_tcp::{HeadRepr, SenderConfig, Time};

use super::config::{CardLink, FRAME_BYTES, FRAMES, Layout, Route, ServiceConfig};
use super::live::{LiveCounters, Playlist, Stream};
use super::output::{Output, PieceLimits};
use crate::block::Block;
use crate::directory::{Coherence, Directory};
use crate::driver::{Driver, TransmitError};
use crate::files::{Gone, Site};
use crate::mbuf::{Headers, Mbuf, Owner};
use crate::page_cache::PageCache;
use crate::places::Places;
use crate::stack::{
    ConnectionId, Connections, Ends, Handled, Incoming, StackConfig, parse as parse_frame,
};

/// Frames of one card in one turn at most.
const FRAMES_PER_TURN: usize = 64;
/// How often it is looked whether there is room for those who wait.
const RETRY: Duration = Duration::from_millis(5);
/// Popularity is counted over periods of so long (bos2009, section 2.2).
const PERIOD: Duration = Duration::from_secs(30);
/// A connection on which nothing happens for so long is closed.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// One that is being sent something is closed so much later: on a bad path, six losses in a row
/// take a minute.
const LOSSY: Duration = Duration::from_secs(240);
/// Viewers wait so long for a source that pauses, as the kernel's keep-alive would. One that is
/// gone is found with the next block.
const PAUSE: Duration = Duration::from_secs(7200);

/// Why a card is of no further use until it has a new attachment.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The card wrote an index that cannot be.
    #[error("the card is broken: {0}")]
    Card(#[from] RingError),
    /// Host memory is laid out wrongly: a bug of this side.
    #[error(transparent)]
    Window(#[from] WindowError),
}

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ServiceCounters {
        requests: "Requests that were answered.",
        content_bytes: "Bytes of files in replies.",
        unkept_bytes: "Bytes, in replies, of files that are not kept: nobody watches them, or they change all the time.",
        cut as "replies_cut": "Replies that ended early.",
        frames: "Frames that came from cards.",
        frames_ignored: "Frames that are not the host's.",
        frames_corrupt: "Frames with a wrong checksum.",
        frames_refused: "Frames that cards had no room for.",
        answers_dropped: "Answers to strangers that found no room.",
        rerouted as "connections_rerouted": "Connections that another card serves than the one they came by.",
    }
    beside {
        /// Replies by the hundred of their status: 2xx, 3xx, 4xx, 5xx.
        pub statuses: [u64; 4],
    }
    shown {
        "replies_2xx": "Replies with a status of 200 to 299.", |service| service.statuses[0];
        "replies_3xx": "Replies with a status of 300 to 399.", |service| service.statuses[1];
        "replies_4xx": "Replies with a status of 400 to 499.", |service| service.statuses[2];
        "replies_5xx": "Replies with a status of 500 to 599.", |service| service.statuses[3];
    }
}

/// One card.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) port: CardLink,
    pub(super) driver: Option<Driver>,
}

/// What is known of a connection beside its TCP.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) card: usize,
    pub(super) output: Output,
    /// Bytes of a request's content that are still to be skipped.
    pub(super) skip: u64,
    /// Bytes of the input that are not a whole head.
    pub(super) parsed: usize,
    /// No further request is read.
    pub(super) is_last: bool,
    /// It waits for room: in the ring, or for a head.
    pub(super) is_waiting: bool,
    pub(super) idle_due: Time,
    /// How long the head of a request takes.
    pub(super) head_timer: HeadTimer,
    /// It has asked for a file, so its card is chosen.
    pub(super) is_routed: bool,
}

/// The host's loop, in one thread: takes frames in, answers requests, sends packets.
#[derive(Debug)]
pub struct Service {
    pub(super) window: Arc<Window>,
    pub(super) layout: Layout,
    pub(super) pages: PageCache,
    pub(super) places: Places,
    pub(super) site: Site,
    pub(super) keys: KeyConfig,
    pub(super) cards: Vec<Card>,
    pub(super) connections: Connections,
    pub(super) sessions: Box<[Option<Session>]>,
    pub(super) waiting: Vec<ConnectionId>,
    /// One of them waits for room in a ring of commands.
    pub(super) is_ring_full: bool,
    pub(super) touched: Vec<ConnectionId>,
    pub(super) streams: Vec<Stream>,
    pub(super) playlists: Vec<Playlist>,
    pub(super) live: LiveCounters,
    pub(super) dates: DateCache,
    pub(super) limits: PieceLimits,
    pub(super) coherence: Coherence,
    pub(super) route: Route,
    /// Up to where changes have been carried over to the cards.
    pub(super) carried: Epoch,
    pub(super) carry_due: Time,
    pub(super) period_due: Time,
    pub(super) now: Time,
    pub(super) unix_ns: i128,
    pub(super) ip_id: u16,
    pub(super) counters: ServiceCounters,
}

impl Service {
    /// A service at host memory of [`Layout::bytes`], with cards that are yet to be
    /// [attached](Self::attach).
    pub fn new(
        config: &ServiceConfig,
        window: Arc<Window>,
        ports: &[CardLink],
        site: Site,
        now: Time,
    ) -> Self {
        let layout = Layout::new(config);
        let limits = Limits {
            mss: 1460,
            window_scale: Some(7),
            sack: true,
            timestamps: true,
            ecn: true,
            v6: false,
        };
        let stack = StackConfig {
            limits,
            // No client is given up before it is idle: then it is told.
            sender: SenderConfig { give_up: IDLE + LOSSY, ..SenderConfig::default() },
            card_cuts: config.card_cuts,
            read: ReadRules::default(),
        };
        Self {
            layout,
            pages: PageCache::new(layout.pages_at, config.pages),
            places: Places::new(layout.places_at, config.places),
            site,
            keys: KeyConfig::new(config.secret),
            cards: ports.iter().map(|&port| Card { port, driver: None }).collect(),
            connections: Connections::new(
                stack,
                config.connections,
                config.ports.clone(),
                config.secret,
                now,
            ),
            sessions: (0..config.connections).map(|_| None).collect(),
            waiting: Vec::new(),
            is_ring_full: false,
            touched: Vec::new(),
            streams: Vec::new(),
            playlists: Vec::new(),
            live: LiveCounters::default(),
            dates: DateCache::default(),
            limits: PieceLimits::for_pages(config.pages),
            coherence: config.coherence,
            route: config.route,
            carried: Epoch::default(),
            carry_due: now,
            period_due: now + PERIOD,
            now,
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

    /// The connections of the host's TCP.
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

    /// A card's driver, if it is attached.
    pub fn driver(&mut self, card: usize) -> Option<&mut Driver> {
        self.cards.get_mut(card)?.driver.as_mut()
    }

    /// A card is there, with an empty cache for which `directory` is.
    ///
    /// # Errors
    /// It is broken already.
    pub fn attach(
        &mut self,
        card: usize,
        mut side: HostSide,
        directory: Directory,
    ) -> Result<(), Broken> {
        self.detach(card);
        let frames_at = self.layout.frames_at(card);
        for number in 0..FRAMES {
            let place = Post::whole(frames_at + number * FRAME_BYTES, FRAME_BYTES as u32);
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
        let is_its = |id: &ConnectionId| {
            self.sessions[id.0 as usize].as_ref().is_some_and(|session| session.card == card)
        };
        self.touched.extend(self.connections.ids().filter(is_its));
        Ok(())
    }

    /// A card is gone. Connections stay; what was under way on them is sent again when it is back.
    pub fn detach(&mut self, card: usize) {
        if let Some(mut driver) = self.cards[card].driver.take() {
            driver.abandon(&mut self.pages);
        }
    }

    /// Ends all connections: those that owe their clients nothing in order, all others by a reset.
    /// The next turns say so.
    pub fn end_all(&mut self, now: Time) {
        for id in self.connections.ids().collect::<Vec<_>>() {
            self.end(id, false, now);
        }
    }

    /// Whether everything that there was to say has gone out by the cards that are there.
    pub fn has_said_all(&mut self) -> bool {
        let mut drivers = self.cards.iter_mut().filter_map(|card| card.driver.as_mut());
        self.touched.is_empty()
            && self.waiting.is_empty()
            && drivers.all(|driver| driver.is_done().unwrap_or(true))
    }

    /// One turn; returns how much there was to do. `unix_ns` are nanoseconds since 1970. An error
    /// is one card's, which is detached.
    pub fn turn(&mut self, now: Time, unix_ns: i128) -> (usize, Option<(usize, Broken)>) {
        (self.now, self.unix_ns) = (now, unix_ns);
        self.is_ring_full = false;
        let mut done = 0;
        let mut broken = None;
        for card in 0..self.cards.len() {
            match self.receive(card, now) {
                Ok(frames) => done += frames,
                Err(error) => broken = Some((card, error)),
            }
        }
        if now >= self.period_due {
            self.period_due = now + PERIOD;
            let drivers = self.cards.iter_mut().filter_map(|card| card.driver.as_mut());
            drivers.for_each(|driver| driver.directory().handle_period_end());
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
        let Self { cards, pages, .. } = self;
        for (number, card) in cards.iter_mut().enumerate() {
            if let Some(driver) = &mut card.driver {
                driver.flush();
                if let Err(error) = driver.reap(pages) {
                    broken = Some((number, error.into()));
                }
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
        // What waits for room is woken by whoever gives it; a look from time to time costs little.
        let waiting = (!self.waiting.is_empty()).then_some(self.now + RETRY);
        [self.connections.next_due(), carry, playlist, waiting].into_iter().flatten().min()
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

    /// Where the host runs, as each card that is attached sees it.
    pub fn presences(&self) -> impl Iterator<Item = &Presence> {
        self.cards.iter().filter_map(|card| card.driver.as_ref()).map(Driver::presence)
    }

    /// Nothing to do: whether a card runs on the same processor, or will when it is woken.
    pub fn is_beside_card(&self) -> bool {
        self.presences().any(|presence| presence.pause() != Peer::Elsewhere)
    }

    pub(super) fn session(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.0 as usize)?.as_mut()
    }

    fn is_idle(&mut self, id: ConnectionId, now: Time) -> bool {
        self.idle_end(id).is_some_and(|due| due <= now)
    }

    /// When the connection is closed if nothing happens until then.
    fn idle_end(&mut self, id: ConnectionId) -> Option<Time> {
        let owes = self
            .connections
            .get(id)
            .is_some_and(|connection| connection.unacknowledged_bytes() > 0);
        self.session(id).map(|session| {
            let more = match session.output.is_live() {
                _ if owes => LOSSY,
                true => PAUSE,
                false => Duration::ZERO,
            };
            let idle = session.idle_due + more;
            session.head_timer.next_timeout(IDLE).map_or(idle, |head| head.min(idle))
        })
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
                && u64::from(received.len) <= FRAME_BYTES;
            if !is_place {
                self.counters.frames_refused += 1;
                continue;
            }
            // The card may change it at any time: it is looked at in private.
            let frame = &mut bytes[..received.len as usize];
            self.window.read(received.mmaddr, frame)?;
            let place = Post::whole(received.mmaddr, FRAME_BYTES as u32);
            match driver.side().free.push(place.encode()) {
                Ok(()) => {}
                Err(PushError::Peer(error)) => return Err(error.into()),
                // Only a card that made up a place can have filled it.
                Err(PushError::Full) => self.counters.frames_refused += 1,
            }
            self.counters.frames += 1;
            let is_right = received.checksum != ReceivedChecksum::Unverified;
            self.handle_frame(card, frame, is_right, now)?;
        }
        if let Some(driver) = &mut self.cards[card].driver {
            driver.poll_done()?;
            let side = driver.side();
            if side.received.release() | side.free.publish() {
                side.card_bell.ring();
            }
        }
        Ok(frames)
    }

    fn handle_frame(
        &mut self,
        card: usize,
        frame: &[u8],
        is_right: bool,
        now: Time,
    ) -> Result<(), Broken> {
        let CardLink { mac, address, .. } = self.cards[card].port;
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
                                head_timer: HeadTimer::default(),
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
        let addresses = ends.to_client();
        let len = write_headers(&addresses, head, 0, self.next_ip_id(), &mut bytes);
        let headers =
            Headers { bytes: &bytes[..len], transport: addresses.tcp_at() as u8, segment: 0 };
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
        // One that ended in order still has to acknowledge the client's FIN.
        if self
            .connections
            .get(id)
            .is_none_or(|connection| connection.is_over() && !connection.must_wait())
        {
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
        // Bytes that come one by one do not keep a connection for ever.
        let owes = connection.unacknowledged_bytes() > 0;
        if let Some(session) = self.session(id) {
            session.head_timer.handle_input(session.parsed > 0 && !owes && !session.is_last, now);
        }
        let (Some(idle_due), Some(session)) = (self.idle_end(id), self.session(id)) else {
            return Ok(());
        };
        let card = session.card;
        match self.cards[card].driver {
            Some(_) => self.connections.arm(id, Some(idle_due), now),
            // What its timers ask for would have to wait.
            None => self.connections.arm_alone(id, idle_due),
        }
        Ok(())
    }

    /// Frees what the client has.
    fn release(&mut self, id: ConnectionId) {
        let Self { connections, pages, places, .. } = self;
        if let Some(connection) = connections.get(id) {
            connection.release(|buffer| free(pages, places, buffer));
        }
    }

    /// The connection is over, or to be ended.
    fn end(&mut self, id: ConnectionId, is_gone: bool, now: Time) {
        let Self { connections, sessions, pages, places, streams, .. } = self;
        let Some(session) = &mut sessions[id.0 as usize] else { return };
        let is_cut = session.output.len() > 0;
        session.output.clear(pages, |pages, buffer| free(pages, places, buffer));
        if !is_gone && let Some(connection) = connections.get(id) {
            // One that owes nothing is closed in order. A reply that is cut must not look whole.
            match connection.unacknowledged_bytes() {
                0 if connection.can_send() && !is_cut => connection.finish(),
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

    /// The connection is looked at again in the next turn.
    pub(super) fn wait(&mut self, id: ConnectionId) {
        if let Some(session) = self.session(id)
            && !session.is_waiting
        {
            session.is_waiting = true;
            self.waiting.push(id);
        }
    }
}

/// A buffer is no longer needed.
pub(super) fn free(pages: &mut PageCache, places: &mut Places, buffer: Mbuf) {
    match buffer {
        Mbuf::Pages { .. } => pages.unpin_all(&buffer),
        Mbuf::Bytes { owner: Owner::Page(page), .. } => pages.unpin(page),
        Mbuf::Bytes { owner: Owner::Place(place), .. } => places.free(place),
        Mbuf::Bytes { owner: Owner::Nobody, .. } => {}
    }
}

/// What the page cache no longer has, no directory may know (invariant I8).
pub(super) fn forget(cards: &mut [Card], block: Block, gone: Gone) {
    for driver in cards.iter_mut().filter_map(|card| card.driver.as_mut()) {
        match gone {
            Gone::Evicted | Gone::Used => driver.directory().exclude(block),
            Gone::Outdated => driver.directory().invalidate(block),
        }
    }
}
