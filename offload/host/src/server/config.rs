//! Settings, and where things are in host memory.

use crate::block::BLOCK_BYTES;
use crate::directory::Coherence;
use crate::driver::HEADER_BYTES;
use crate::places::PLACE_BYTES;

/// Bytes of a buffer for a received frame.
pub const FRAME_BYTES: u64 = 2048;
/// Buffers for received frames of each card.
pub const FRAMES: u64 = 512;

/// Settings of [`Service`](super::Service).
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
    /// Whether packets are longer than segments, for the card to cut.
    pub card_cuts: bool,
}

/// By which card a client is served (Kim et al. 2002, section 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// The one that it came by.
    #[default]
    Fixed,
    /// The one that has most blocks of what it asks for first; of what none has, one that follows
    /// from the file.
    Affinity,
}

/// Where things are in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    cards: u64,
    pub(super) places_at: u64,
    pub(super) pages_at: u64,
    end: u64,
}

/// Of each card: places for headers, then buffers for frames.
const CARD_BYTES: u64 = HEADER_BYTES + FRAMES * FRAME_BYTES;

impl Layout {
    /// The layout of a window for these settings.
    pub fn new(config: &ServiceConfig) -> Self {
        let cards = u64::from(config.cards);
        let places_at = cards * CARD_BYTES;
        let pages_at =
            (places_at + u64::from(config.places) * PLACE_BYTES).next_multiple_of(BLOCK_BYTES);
        Self { cards, places_at, pages_at, end: pages_at + u64::from(config.pages) * BLOCK_BYTES }
    }

    /// Bytes of the window.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    pub(super) fn headers_at(&self, card: usize) -> u64 {
        card as u64 * CARD_BYTES
    }

    pub(super) fn frames_at(&self, card: usize) -> u64 {
        self.headers_at(card) + HEADER_BYTES
    }
}

/// What the host is on a card's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardLink {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address, in host byte order.
    pub address: u32,
    /// MAC address of the other end of the wire.
    pub peer_mac: [u8; 6],
}
