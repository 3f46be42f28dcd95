//! What must cross the bus, counted by what the host tells the card and hears from it: an account
//! apart from the card's own.

use nicache_bus::{BusClass, BusCounters};

use super::*;

/// Bytes of an entry of a ring.
const ENTRY: u64 = 16;

/// The card's backend, with an account of what crosses if the card refuses nothing.
#[derive(Debug)]
pub(super) struct Counting {
    pub bus: Bus,
    pub crossed: BusCounters,
}

impl Counting {
    pub(super) fn new(bus: Bus) -> Self {
        Self { bus, crossed: BusCounters::default() }
    }

    fn count_command(&mut self, class: BusClass, bytes: u64) {
        self.crossed.add(BusClass::Overhead, ENTRY);
        self.crossed.add(class, bytes);
    }

    /// The buffer's post and its report, and what the card has written to it.
    fn count_receipt(&mut self, report: &Received) {
        self.crossed.add(BusClass::Overhead, 2 * ENTRY);
        if !report.is_split {
            self.crossed.add(BusClass::Other, u64::from(report.len));
            return;
        }
        let header_len = u32::from(report.header_len);
        self.crossed.add(BusClass::NetworkHeaders, u64::from(header_len));
        if report.is_copied {
            self.crossed.add(BusClass::Content, u64::from(report.len - header_len));
        }
    }
}

impl Backend for Counting {
    fn capabilities(&self) -> crate::backend::Capabilities {
        self.bus.capabilities()
    }

    fn post(&mut self, buffer: BufferId, split: Option<(Loaded, bool)>) -> Result<bool, Broken> {
        self.bus.post(buffer, split)
    }

    fn poll_received(&mut self) -> Result<Option<Receipt>, Broken> {
        let receipt = self.bus.poll_received()?;
        receipt.iter().for_each(|receipt| self.count_receipt(&receipt.report));
        Ok(receipt)
    }

    fn read(&self, buffer: BufferId, at: u32, into: &mut [u8]) -> Result<(), Broken> {
        self.bus.read(buffer, at, into)
    }

    fn write(&mut self, buffer: BufferId, at: u32, from: &[u8]) -> Result<(), Broken> {
        self.bus.write(buffer, at, from)
    }

    fn room(&mut self) -> Result<u64, Broken> {
        self.bus.room()
    }

    fn send(
        &mut self,
        port: u8,
        head: &[u8],
        extents: &[Extent],
        offload: Offload,
    ) -> Result<u64, Broken> {
        self.count_command(BusClass::NetworkHeaders, head.len() as u64);
        for extent in extents {
            let from_memory = match *extent {
                Extent::Memory { len, .. } => u64::from(len),
                Extent::Card { .. } => 0,
            };
            self.count_command(BusClass::Content, from_memory);
        }
        self.bus.send(port, head, extents, offload)
    }

    fn insert(&mut self, buffer: BufferId, loaded: Loaded, len: u32) -> Result<u64, Broken> {
        self.count_command(BusClass::Content, u64::from(len));
        self.bus.insert(buffer, loaded, len)
    }

    fn fetch(&mut self, buffer: BufferId, loaded: Loaded, len: u32) -> Result<u64, Broken> {
        self.count_command(BusClass::Content, u64::from(len));
        self.bus.fetch(buffer, loaded, len)
    }

    fn done(&mut self) -> Result<u64, Broken> {
        self.bus.done()
    }

    fn poll_refused(&mut self) -> Result<u64, Broken> {
        self.bus.poll_refused()
    }

    fn flush(&mut self) {
        self.bus.flush();
    }

    fn prepare_sleep(&mut self, wants_done: bool, wants_posts: bool) -> Result<bool, Broken> {
        self.bus.prepare_sleep(wants_done, wants_posts)
    }
}
