//! What a card and its host share besides the window, from the moment that both are there until one
//! of them is gone.
//!
//! ```text
//! byte      0  "nicache2"
//!          64  what has crossed the bus: one word per class, then transfers           the card writes
//!         128  where the card runs                                                the card writes
//!         192  where the host runs                                                the host writes
//!        4096  commands     1024 entries    host to card
//!              done          256            card to host
//!              free         1024            host to card
//!              received     1024            card to host
//! ```
//!
//! Whoever starts anew gets a new attachment, and so does the other side: what had been under way
//! is forgotten on both, and no index of a crashed process is believed. TCP repairs what is lost by
//! that.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nicache_crossing::{BusClass, BusCounters};

use crate::doorbell::Doorbell;
use crate::presence::Presence;
use crate::ring::{Consumer, Producer, ring_words};
use crate::window::{Window, Words};

/// Entries of the ring of commands.
pub const COMMANDS: usize = 1024;
/// Entries of the ring of completions.
pub const DONE: usize = 256;
/// Entries of the rings of free buffers and of received frames.
pub const FRAMES: usize = 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"nicache2");
const COUNTERS_AT: usize = 64;
const CARD_AT: usize = 128;
const HOST_AT: usize = 192;
const RINGS_AT: usize = 4096;
const RINGS: [usize; 4] = [COMMANDS, DONE, FRAMES, FRAMES];

const fn ring_bytes(entries: usize) -> usize {
    (ring_words(entries) * 8).next_multiple_of(64)
}

const ATTACHMENT_BYTES: usize = RINGS_AT
    + ring_bytes(RINGS[0])
    + ring_bytes(RINGS[1])
    + ring_bytes(RINGS[2])
    + ring_bytes(RINGS[3]);

/// Memory and doorbells that a card and its host share besides the window, until one of them is
/// gone. The [module](self) has the layout.
#[derive(Debug)]
pub struct Attachment {
    shared: Arc<Window>,
    to_card: Doorbell,
    to_host: Doorbell,
}

impl Attachment {
    /// A new one, for both sides.
    ///
    /// # Errors
    /// What the system says.
    pub fn create() -> io::Result<Self> {
        let shared = Window::create("nicache-bus", ATTACHMENT_BYTES)?;
        shared.word(0).store(MAGIC, Ordering::Release);
        Ok(Self { shared: Arc::new(shared), to_card: Doorbell::new()?, to_host: Doorbell::new()? })
    }

    /// The files that the other process needs for [`from_files`](Self::from_files).
    pub fn files(&self) -> [BorrowedFd<'_>; 3] {
        [self.shared.file(), self.to_card.as_fd(), self.to_host.as_fd()]
    }

    /// One that another process has made.
    ///
    /// # Errors
    /// `InvalidInput` if it is none, or what the system says.
    pub fn from_files([shared, to_card, to_host]: [OwnedFd; 3]) -> io::Result<Self> {
        let shared = Window::map(shared)?;
        if shared.bytes() != ATTACHMENT_BYTES as u64
            || shared.word(0).load(Ordering::Acquire) != MAGIC
        {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no attachment of this version",
            ));
        }
        let (to_card, to_host) = (Doorbell::from_file(to_card), Doorbell::from_file(to_host));
        Ok(Self { shared: Arc::new(shared), to_card, to_host })
    }

    fn ring(&self, number: usize) -> Words {
        let start =
            RINGS_AT + RINGS[..number].iter().map(|entries| ring_bytes(*entries)).sum::<usize>();
        Words::new(Arc::clone(&self.shared), start..start + ring_words(RINGS[number]) * 8)
    }

    /// The card's ends. To be called once.
    pub fn card(self) -> CardSide {
        CardSide {
            commands: Consumer::new(self.ring(0), COMMANDS),
            done: Producer::new(self.ring(1), DONE),
            free: Consumer::new(self.ring(2), FRAMES),
            received: Producer::new(self.ring(3), FRAMES),
            counted: Counted(Arc::clone(&self.shared)),
            presence: Presence::new(Arc::clone(&self.shared), CARD_AT, HOST_AT),
            bell: self.to_card,
            host_bell: self.to_host,
        }
    }

    /// The host's ends. To be called once.
    pub fn host(self) -> HostSide {
        HostSide {
            commands: Producer::new(self.ring(0), COMMANDS),
            done: Consumer::new(self.ring(1), DONE),
            free: Producer::new(self.ring(2), FRAMES),
            received: Consumer::new(self.ring(3), FRAMES),
            counted: Counted(Arc::clone(&self.shared)),
            presence: Presence::new(Arc::clone(&self.shared), HOST_AT, CARD_AT),
            bell: self.to_host,
            card_bell: self.to_card,
        }
    }
}

/// What the card has.
#[derive(Debug)]
pub struct CardSide {
    /// What it is to do.
    pub commands: Consumer<Words>,
    /// What it answers.
    pub done: Producer<Words>,
    /// Where frames may go.
    pub free: Consumer<Words>,
    /// Where they are.
    pub received: Producer<Words>,
    /// Where it tells what has crossed.
    pub counted: Counted,
    /// Where it runs, and where the host does.
    pub presence: Presence,
    /// Rung for the card.
    pub bell: Doorbell,
    /// Rung by it.
    pub host_bell: Doorbell,
}

/// What the host has.
#[derive(Debug)]
pub struct HostSide {
    /// What the card is to do.
    pub commands: Producer<Words>,
    /// What it answers.
    pub done: Consumer<Words>,
    /// Where frames may go.
    pub free: Producer<Words>,
    /// Where they are.
    pub received: Consumer<Words>,
    /// What the card says has crossed.
    pub counted: Counted,
    /// Where it runs, and where the card does.
    pub presence: Presence,
    /// Rung for the host.
    pub bell: Doorbell,
    /// Rung by it.
    pub card_bell: Doorbell,
}

/// The card's counts, for everybody to read.
#[derive(Debug, Clone)]
pub struct Counted(Arc<Window>);

impl Counted {
    /// Tells. Only the card does.
    pub fn tell(&self, counters: &BusCounters) {
        for (number, count) in counters.bytes.iter().chain([&counters.transfers]).enumerate() {
            self.0.word(COUNTERS_AT + 8 * number).store(*count, Ordering::Relaxed);
        }
    }

    /// What the card has told last. Its words are not of one moment.
    pub fn read(&self) -> BusCounters {
        let word = |number: usize| self.0.word(COUNTERS_AT + 8 * number).load(Ordering::Relaxed);
        BusCounters { bytes: std::array::from_fn(word), transfers: word(BusClass::ALL.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Command;

    fn both() -> (HostSide, CardSide) {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        (made.host(), Attachment::from_files(files).unwrap().card())
    }

    /// Where docs/bus.md draws them.
    #[test]
    fn rings_begin_where_they_are_drawn() {
        let start = |number: usize| {
            RINGS_AT + RINGS[..number].iter().map(|entries| ring_bytes(*entries)).sum::<usize>()
        };
        assert_eq!([0, 1, 2, 3, 4].map(start), [4096, 20_736, 25_088, 41_728, ATTACHMENT_BYTES]);
        assert_eq!(ATTACHMENT_BYTES, 58_368);
    }

    #[test]
    fn rings_do_not_touch_each_other() {
        let (mut host, mut card) = both();
        for number in 0..COMMANDS as u64 {
            host.commands.push([number, 1]).unwrap();
        }
        for number in 0..FRAMES as u64 {
            host.free.push([number, 2]).unwrap();
            card.received.push([number, 3]).unwrap();
        }
        for number in 0..DONE as u64 {
            card.done.push([number, 4]).unwrap();
        }
        let rings = [
            host.commands.publish(),
            host.free.publish(),
            card.received.publish(),
            card.done.publish(),
        ];
        assert_eq!(rings, [true; 4]);
        for number in 0..FRAMES as u64 {
            assert_eq!(card.commands.pop(), Ok(Some([number, 1])));
            assert_eq!(card.free.pop(), Ok(Some([number, 2])));
            assert_eq!(host.received.pop(), Ok(Some([number, 3])));
        }
        for number in 0..DONE as u64 {
            assert_eq!(host.done.pop(), Ok(Some([number, 4])));
        }
    }

    #[test]
    fn bells_and_counts_arrive() {
        let (mut host, card) = both();
        host.commands.push(Command::CacheInit.encode()).unwrap();
        if host.commands.publish() {
            host.card_bell.ring();
        }
        assert!(card.bell.hear() && !host.bell.hear());
        let mut counters = BusCounters::default();
        counters.add(BusClass::Overhead, 16);
        card.counted.tell(&counters);
        assert_eq!(host.counted.read(), counters);
    }

    #[test]
    fn something_else_is_refused() {
        let made = Attachment::create().unwrap();
        let mut files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        files[0] =
            Window::create("other", ATTACHMENT_BYTES).unwrap().file().try_clone_to_owned().unwrap();
        assert!(Attachment::from_files(files).unwrap_err().to_string().contains("no attachment"));
    }
}
