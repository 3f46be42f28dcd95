//! Packets as descriptors (Kim et al. 2002, section 4.3).
//!
//! For each part of a page the directory is asked. A block that is in the card's cache no longer
//! crosses the bus; one that is not is inserted, if there is a place for it, and then taken from
//! there like any other. What belongs to no file goes around the cache.
//!
//! A page that a descriptor refers to is pinned until the card is done with it, whatever becomes of
//! those who wanted it sent: an insertion of a page that has other bytes by then would spoil the
//! cache.
//!
//! Headers lie in places of their own in the window, one for each descriptor that can be under way,
//! so they stay until the card has read them.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use nicache_bus::attachment::COMMANDS;
use nicache_bus::{
    BusClass, Command, Completion, Doorbell, Flags, HostSide, Presence, PushError, RingError,
    Segmentation, Window, WindowError,
};

use crate::block::{BLOCK_BYTES, PageNumber, Revision};
use crate::directory::{Directory, Found};
use crate::mbuf::{Headers, Mbuf, PagePart};
use crate::page_cache::{Page, PageCache};

/// Bytes of a place for headers.
pub const HEADER_PLACE_BYTES: u64 = 128;
/// Bytes of the window that a driver needs for headers.
pub const HEADER_BYTES: u64 = HEADER_PLACE_BYTES * COMMANDS as u64;
/// Most commands of one packet: headers, and two for each part.
const COMMANDS_MAX: usize = 2 * 62 + 1;

/// Why a packet was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransmitError {
    /// The card has not yet done what it was told before.
    #[error("the ring of commands is full")]
    Full,
    /// More parts than a packet can have, or headers longer than they can be.
    #[error("the packet has too many parts, or too long headers")]
    TooLong,
    /// The card wrote an index that cannot be.
    #[error(transparent)]
    Card(#[from] RingError),
    /// The places for headers do not lie in the window.
    #[error(transparent)]
    Window(#[from] WindowError),
}

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DriverCounters {
        packets: "Packets given to the card.",
        commands: "Descriptors given to the card.",
        cached_bytes: "Bytes of files taken from the card's cache.",
        copied_bytes: "Bytes of files that crossed the bus for one packet only.",
        refused as "commands_refused": "Descriptors that the card refused: a bug of this side, or of the card.",
    }
}

/// One card, as the host sees it.
#[derive(Debug)]
pub struct Driver {
    side: HostSide,
    directory: Directory,
    headers_at: u64,
    /// Buffers of pages that descriptors refer to, each with the number behind its packet.
    under_way: VecDeque<(u64, Mbuf)>,
    counters: DriverCounters,
}

impl Driver {
    /// At a new attachment. Places for headers begin at `headers_at` in the window and have
    /// [`HEADER_BYTES`].
    pub fn new(side: HostSide, directory: Directory, headers_at: u64) -> Self {
        let under_way = VecDeque::with_capacity(COMMANDS);
        Self { side, directory, headers_at, under_way, counters: DriverCounters::default() }
    }

    /// The directory of its cache.
    pub fn directory(&mut self) -> &mut Directory {
        &mut self.directory
    }

    /// What has happened.
    pub fn counters(&self) -> &DriverCounters {
        &self.counters
    }

    /// Rung by the card.
    pub fn bell(&self) -> &Doorbell {
        &self.side.bell
    }

    /// Where the host runs, and where the card does.
    pub fn presence(&self) -> &Presence {
        &self.side.presence
    }

    /// The host's ends of the card's rings.
    pub fn side(&mut self) -> &mut HostSide {
        &mut self.side
    }

    /// Tells the card to send a packet, whose transport checksum it completes. It is on its way
    /// after [`flush`](Self::flush).
    ///
    /// # Errors
    /// See [`TransmitError`]; nothing is sent then.
    pub fn transmit(
        &mut self,
        headers: &Headers<'_>,
        payload: &[Mbuf],
        pages: &mut PageCache,
        window: &Window,
    ) -> Result<(), TransmitError> {
        let flags = Flags::FIRST.with(Flags::CHECKSUM);
        self.transmit_with(flags, BusClass::NetworkHeaders, headers, payload, pages, window)
    }

    /// Tells the card to send a short frame that is complete as it is, and no connection's. It is
    /// on its way after [`flush`](Self::flush).
    ///
    /// # Errors
    /// See [`TransmitError`]; nothing is sent then.
    pub fn transmit_as_is(
        &mut self,
        frame: &Headers<'_>,
        pages: &mut PageCache,
        window: &Window,
    ) -> Result<(), TransmitError> {
        self.transmit_with(Flags::FIRST, BusClass::Other, frame, &[], pages, window)
    }

    fn transmit_with(
        &mut self,
        flags: Flags,
        class: BusClass,
        headers: &Headers<'_>,
        payload: &[Mbuf],
        pages: &mut PageCache,
        window: &Window,
    ) -> Result<(), TransmitError> {
        let len = u8::try_from(headers.bytes.len()).map_err(|_| TransmitError::TooLong)?;
        let most = 2 * payload.iter().map(|mbuf| mbuf.places() as usize).sum::<usize>() + 1;
        if u64::from(len) > HEADER_PLACE_BYTES || most > COMMANDS_MAX {
            return Err(TransmitError::TooLong);
        }
        // Whatever each part takes: with a part of a command the ring would be left in the middle
        // of a packet.
        self.reap(pages)?;
        if self.side.commands.room()? < most as u64 {
            return Err(TransmitError::Full);
        }
        self.directory.begin_packet();
        let mut commands = ArrayVec::<Command, COMMANDS_MAX>::new();
        let mmaddr =
            self.headers_at + self.side.commands.next() % COMMANDS as u64 * HEADER_PLACE_BYTES;
        window.write(mmaddr, headers.bytes)?;
        let segmentation =
            Segmentation { size: headers.segment, header_len: len, transport: headers.transport };
        commands.push(Command::AppendMm {
            mmaddr,
            len: u32::from(len),
            flags,
            class,
            port: 0,
            segmentation,
        });
        for mbuf in payload.iter().filter(|mbuf| !mbuf.is_empty()) {
            match *mbuf {
                Mbuf::Bytes { mmaddr, len, class, .. } => {
                    commands.push(append_mm(mmaddr, len, class));
                }
                Mbuf::Pages { revision, .. } => {
                    mbuf.page_parts()
                        .for_each(|part| self.append(part, revision, pages, &mut commands));
                }
            }
        }
        match commands.last_mut() {
            Some(Command::AppendMm { flags, .. } | Command::AppendCache { flags, .. }) => {
                *flags = flags.with(Flags::LAST);
            }
            _ => unreachable!("a packet ends with bytes"),
        }
        for command in &commands {
            match self.side.commands.push(command.encode()) {
                Ok(()) => {}
                Err(PushError::Peer(error)) => return Err(error.into()),
                Err(PushError::Full) => unreachable!("there was room"),
            }
        }
        for mbuf in payload {
            if let Mbuf::Pages { .. } = mbuf {
                pages.pin_all(mbuf);
                self.under_way.push_back((self.side.commands.next(), *mbuf));
            }
        }
        self.counters.packets += 1;
        self.counters.commands += commands.len() as u64;
        Ok(())
    }

    /// Replaces a block in the card's cache by another revision of it, which a page has. False: it
    /// is not there, or the ring is full.
    ///
    /// # Errors
    /// The card wrote an index that cannot be.
    pub fn update(&mut self, number: PageNumber, pages: &mut PageCache) -> Result<bool, RingError> {
        let Some(page) = pages.page(number).copied() else { return Ok(false) };
        if !self.has_room(pages)? {
            return Ok(false);
        }
        let Some(ncoffset) = self.directory.update(page.block, page.revision) else {
            return Ok(false);
        };
        let insert = Command::CacheInsert {
            mmaddr: pages.mmaddr(number),
            ncoffset,
            len: u32::from(page.len),
            generation: 0,
        };
        match self.side.commands.push(insert.encode()) {
            Ok(()) => {}
            Err(PushError::Peer(error)) => return Err(error),
            Err(PushError::Full) => unreachable!("there was room"),
        }
        let Page { block, revision, len } = page;
        let mbuf = Mbuf::Pages { first: number, block, revision, start: 0, len: u32::from(len) };
        pages.pin_all(&mbuf);
        self.under_way.push_back((self.side.commands.next(), mbuf));
        self.counters.commands += 1;
        Ok(true)
    }

    /// Whether the next packet has room, whatever it is made of.
    ///
    /// # Errors
    /// The card wrote an index that cannot be.
    pub fn has_room(&mut self, pages: &mut PageCache) -> Result<bool, RingError> {
        if self.side.commands.room()? >= COMMANDS_MAX as u64 {
            return Ok(true);
        }
        self.reap(pages)?;
        Ok(self.side.commands.room()? >= COMMANDS_MAX as u64)
    }

    /// Unpins what the card is done with.
    ///
    /// # Errors
    /// The card wrote an index that cannot be.
    pub fn reap(&mut self, pages: &mut PageCache) -> Result<(), RingError> {
        let released = self.side.commands.released()?;
        while let Some((_, mbuf)) = self.under_way.pop_front_if(|(number, _)| *number <= released) {
            pages.unpin_all(&mbuf);
        }
        Ok(())
    }

    /// Whether the card has done everything that it was told.
    ///
    /// # Errors
    /// The card wrote an index that cannot be.
    pub fn is_done(&mut self) -> Result<bool, RingError> {
        Ok(self.side.commands.released()? == self.side.commands.next())
    }

    /// The card is gone: nothing is under way any longer.
    pub fn abandon(&mut self, pages: &mut PageCache) {
        self.under_way.drain(..).for_each(|(_, mbuf)| pages.unpin_all(&mbuf));
        self.directory.clear();
    }

    fn append(
        &mut self,
        PagePart { page, block, start, len }: PagePart,
        revision: Revision,
        pages: &PageCache,
        commands: &mut ArrayVec<Command, COMMANDS_MAX>,
    ) {
        let mmaddr = pages.mmaddr(page);
        let offset = match self.directory.find(block, revision) {
            Found::Here(offset) => Some(offset),
            Found::Younger => None,
            // Only what can be found in the page cache may be in the card's (invariant I8).
            Found::Outdated | Found::Missing => match pages.page(page) {
                Some(held) if held.block == block && held.revision == revision => {
                    let offset = self.directory.insert(block, revision);
                    if let Some(ncoffset) = offset {
                        commands.push(Command::CacheInsert {
                            mmaddr,
                            ncoffset,
                            len: u32::from(held.len),
                            generation: 0,
                        });
                    }
                    offset
                }
                _ => None,
            },
        };
        let command = match offset {
            Some(offset) => {
                self.counters.cached_bytes += u64::from(len);
                let ncoffset = offset + start;
                // What lies behind the bytes before it is one descriptor with them.
                if let Some(Command::AppendCache { ncoffset: at, len: before, .. }) =
                    commands.last_mut()
                    && *at + *before == ncoffset
                {
                    *before += len;
                    return;
                }
                Command::AppendCache { ncoffset, len, flags: Flags::default(), generation: 0 }
            }
            None => {
                self.counters.copied_bytes += u64::from(len);
                append_mm(mmaddr + u64::from(start), len, BusClass::Content)
            }
        };
        commands.push(command);
    }

    /// Lets the card see what was transmitted.
    pub fn flush(&mut self) {
        if self.side.commands.publish() {
            self.side.card_bell.ring();
        }
    }

    /// Reads what the card answered; the size of its cache, if it told that.
    ///
    /// # Errors
    /// The card wrote an index that cannot be.
    pub fn poll_done(&mut self) -> Result<Option<u64>, RingError> {
        let mut size = None;
        while let Some(entry) = self.side.done.pop()? {
            match Completion::decode(entry) {
                Some(Completion::CacheSize { bytes }) => size = Some(bytes),
                Some(Completion::Refused { .. }) | None => {
                    self.counters.refused += 1;
                    // It may have been an insertion: what is in the cache is not known.
                    self.directory.clear();
                }
            }
        }
        if self.side.done.release() {
            self.side.card_bell.ring();
        }
        Ok(size)
    }

    /// Asks the card for an empty cache and its size.
    ///
    /// # Errors
    /// See [`PushError`].
    pub fn init_cache(&mut self) -> Result<(), PushError> {
        self.directory.clear();
        self.side.commands.push(Command::CacheInit.encode())?;
        self.flush();
        Ok(())
    }
}

fn append_mm(mmaddr: u64, len: u32, class: BusClass) -> Command {
    Command::AppendMm {
        mmaddr,
        len,
        flags: Flags::default(),
        class,
        port: 0,
        segmentation: Segmentation::default(),
    }
}

const _: () = assert!(BLOCK_BYTES <= u16::MAX as u64, "parts of pages are u16");
