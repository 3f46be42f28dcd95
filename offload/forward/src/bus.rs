//! Our own card, by its rings (`docs/bus.md`).
//!
//! ```text
//! window   | heads: one place for each command that can be under way | buffers: headers, payload | headers, payload | ...
//! ```

use std::sync::Arc;

use nicache_bus::attachment::COMMANDS;
use nicache_bus::descriptor::{GENERATION_BLOCK_BYTES, HEADER_PLACE_BYTES};
use nicache_bus::{
    BusClass, CachePlace, Command, Completion, Flags, HostSide, Post, PushError, Received,
    Segmentation, Window,
};
use nicache_port::{Checksum, Offload};

use crate::backend::{
    BUFFER_BYTES, Backend, Broken, Capabilities, ENTRY_BYTES, Extent, Loaded, PAYLOAD_AT, Receipt,
};
use crate::decision::HEAD_BYTES_MAX;
use crate::pcache::BufferId;

const _: () = assert!(PAYLOAD_AT == HEADER_PLACE_BYTES && ENTRY_BYTES == GENERATION_BLOCK_BYTES);

/// Bytes of the window that heads take.
const HEADS_BYTES: u64 = HEAD_BYTES_MAX as u64 * COMMANDS as u64;
/// Where the checksum is in a header of UDP.
const UDP_CHECKSUM: u16 = 6;
/// Parts of a packet at most (`docs/bus.md`), without its head.
const EXTENTS_MAX: usize = 62;

/// Our own card as a backend, by its rings (`docs/bus.md`).
#[derive(Debug)]
pub struct Bus {
    side: HostSide,
    window: Arc<Window>,
    buffers: u32,
    refused: u64,
    #[cfg(test)]
    pub(crate) forgets_generations: bool,
}

impl Bus {
    /// Bytes of the window that so many buffers need.
    pub fn window_bytes(buffers: u32) -> u64 {
        HEADS_BYTES + u64::from(buffers) * u64::from(BUFFER_BYTES)
    }

    /// The backend of a card at a new attachment, with so many buffers.
    pub fn new(side: HostSide, window: Arc<Window>, buffers: u32) -> Self {
        Self {
            side,
            window,
            buffers,
            refused: 0,
            #[cfg(test)]
            forgets_generations: false,
        }
    }

    /// The host's ends of the card's rings.
    pub fn side(&mut self) -> &mut HostSide {
        &mut self.side
    }

    fn place(buffer: BufferId) -> u64 {
        HEADS_BYTES + u64::from(buffer.0) * u64::from(BUFFER_BYTES)
    }

    fn generation(&self, loaded: Loaded) -> u16 {
        #[cfg(test)]
        if self.forgets_generations {
            return 0;
        }
        loaded.generation
    }

    fn push(&mut self, command: Command) -> Result<u64, Broken> {
        match self.side.commands.push(command.encode()) {
            Ok(()) => Ok(self.side.commands.next()),
            Err(PushError::Peer(error)) => Err(error.into()),
            Err(PushError::Full) => unreachable!("the caller has looked for room"),
        }
    }
}

impl Backend for Bus {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            host_names_entries: true,
            fetch: true,
            many_sends: true,
            checksum: true,
            extents_max: EXTENTS_MAX,
        }
    }

    fn post(&mut self, buffer: BufferId, split: Option<(Loaded, bool)>) -> Result<bool, Broken> {
        let split = split.map(|(loaded, copy)| CachePlace {
            ncoffset: loaded.entry.0 * ENTRY_BYTES,
            generation: loaded.generation,
            copy,
        });
        let post = Post { mmaddr: Self::place(buffer), len: BUFFER_BYTES, split, chain: true };
        match self.side.free.push(post.encode()) {
            Ok(()) => Ok(true),
            Err(PushError::Full) => Ok(false),
            Err(PushError::Peer(error)) => Err(error.into()),
        }
    }

    fn poll_received(&mut self) -> Result<Option<Receipt>, Broken> {
        // What is not a buffer of ours is skipped: a card that makes places up is broken, and costs
        // buffers at most.
        while let Some(entry) = self.side.received.pop()? {
            let report = Received::decode(entry);
            let at = report.mmaddr.wrapping_sub(HEADS_BYTES);
            let number = at / u64::from(BUFFER_BYTES);
            if report.mmaddr >= HEADS_BYTES
                && at.is_multiple_of(u64::from(BUFFER_BYTES))
                && number < u64::from(self.buffers)
            {
                return Ok(Some(Receipt { buffer: BufferId(number as u32), report }));
            }
            self.refused += 1;
        }
        Ok(None)
    }

    fn read(&self, buffer: BufferId, at: u32, into: &mut [u8]) -> Result<(), Broken> {
        Ok(self.window.read(Self::place(buffer) + u64::from(at), into)?)
    }

    fn write(&mut self, buffer: BufferId, at: u32, from: &[u8]) -> Result<(), Broken> {
        Ok(self.window.write(Self::place(buffer) + u64::from(at), from)?)
    }

    fn room(&mut self) -> Result<u64, Broken> {
        Ok(self.side.commands.room()?)
    }

    fn send(
        &mut self,
        port: u8,
        head: &[u8],
        extents: &[Extent],
        offload: Offload,
    ) -> Result<u64, Broken> {
        let mmaddr = self.side.commands.next() % COMMANDS as u64 * HEAD_BYTES_MAX as u64;
        self.window.write(mmaddr, head)?;
        let (mut flags, mut segmentation) = (Flags::FIRST, Segmentation::default());
        if let Checksum::Partial { start, offset } = offload.checksum {
            flags = flags.with(Flags::CHECKSUM);
            if offset == UDP_CHECKSUM {
                flags = flags.with(Flags::UDP);
            }
            // Positions that do not fit were looked at when the frame came.
            segmentation.transport = start as u8;
            if let Some(gso) = offload.gso {
                (segmentation.size, segmentation.header_len) = (gso.size, gso.header_len as u8);
            }
        }
        if extents.is_empty() {
            flags = flags.with(Flags::LAST);
        }
        let class = BusClass::NetworkHeaders;
        let mut done = self.push(Command::AppendMm {
            mmaddr,
            len: head.len() as u32,
            flags,
            class,
            port,
            segmentation,
        })?;
        for (number, extent) in extents.iter().enumerate() {
            let flags = if number + 1 == extents.len() { Flags::LAST } else { Flags::default() };
            done = self.push(match *extent {
                Extent::Memory { buffer, at, len } => Command::AppendMm {
                    mmaddr: Self::place(buffer) + u64::from(at),
                    len,
                    flags,
                    class: BusClass::Content,
                    port: 0,
                    segmentation: Segmentation::default(),
                },
                Extent::Card { loaded, at, len } => Command::AppendCache {
                    ncoffset: loaded.entry.0 * ENTRY_BYTES + at,
                    len,
                    flags,
                    generation: self.generation(loaded),
                },
            })?;
        }
        Ok(done)
    }

    fn insert(&mut self, buffer: BufferId, loaded: Loaded, len: u32) -> Result<u64, Broken> {
        let (mmaddr, ncoffset) =
            (Self::place(buffer) + u64::from(PAYLOAD_AT), loaded.entry.0 * ENTRY_BYTES);
        self.push(Command::CacheInsert { mmaddr, ncoffset, len, generation: loaded.generation })
    }

    fn fetch(&mut self, buffer: BufferId, loaded: Loaded, len: u32) -> Result<u64, Broken> {
        let (mmaddr, ncoffset) =
            (Self::place(buffer) + u64::from(PAYLOAD_AT), loaded.entry.0 * ENTRY_BYTES);
        self.push(Command::CacheFetch { mmaddr, ncoffset, len, generation: loaded.generation })
    }

    fn done(&mut self) -> Result<u64, Broken> {
        Ok(self.side.commands.released()?)
    }

    fn poll_refused(&mut self) -> Result<u64, Broken> {
        while let Some(entry) = self.side.done.pop()? {
            self.refused +=
                u64::from(!matches!(Completion::decode(entry), Some(Completion::CacheSize { .. })));
        }
        if self.side.done.release() {
            self.side.card_bell.ring();
        }
        Ok(std::mem::take(&mut self.refused))
    }

    fn flush(&mut self) {
        if self.side.commands.publish() | self.side.free.publish() | self.side.received.release() {
            self.side.card_bell.ring();
        }
    }

    fn prepare_sleep(&mut self, wants_done: bool, wants_posts: bool) -> Result<bool, Broken> {
        let HostSide { commands, done, free, received, bell, .. } = &mut self.side;
        bell.hear();
        // Each of them is asked, whatever the others say: who does not sleep now asks anew.
        let nothing_came = received.sleep_until_entry()? & done.sleep_until_entry()?;
        let nothing_done = !wants_done || commands.sleep_until_room()?;
        let nothing_taken = !wants_posts || free.sleep_until_room()?;
        Ok(nothing_came && nothing_done && nothing_taken)
    }
}
