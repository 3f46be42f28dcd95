//! Copies over the bus: counted, and taking as long as the modelled bus takes.

use std::sync::Arc;

use nicache_bus::{BusClass, BusCounters, Meter, Window, WindowError};

/// The card's way to host memory.
#[derive(Debug)]
pub(crate) struct Dma {
    window: Arc<Window>,
    meter: Option<Arc<Meter>>,
    counters: BusCounters,
    busy_until_ns: u64,
}

impl Dma {
    /// Over a bus as fast as this machine, or over that of `meter`.
    pub(crate) fn new(window: Arc<Window>, meter: Option<Arc<Meter>>) -> Self {
        Self { window, meter, counters: BusCounters::default(), busy_until_ns: 0 }
    }

    /// What has crossed.
    pub(crate) fn counters(&self) -> &BusCounters {
        &self.counters
    }

    /// Until when the last transfer takes. The card does nothing more with the bus before that.
    pub(crate) fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns
    }

    /// Whether so many bytes are in the window.
    pub(crate) fn contains(&self, mmaddr: u64, len: u32) -> bool {
        mmaddr.checked_add(u64::from(len)).is_some_and(|end| end <= self.window.bytes())
    }

    /// Moves bytes from host memory to the card.
    ///
    /// # Errors
    /// The bytes do not lie in the window; nothing has crossed.
    pub(crate) fn read(
        &mut self,
        mmaddr: u64,
        into: &mut [u8],
        class: BusClass,
        now_ns: u64,
    ) -> Result<(), WindowError> {
        self.window.read(mmaddr, into)?;
        self.cross(into.len() as u64, class, now_ns);
        Ok(())
    }

    /// Moves bytes from the card to host memory.
    ///
    /// # Errors
    /// As with [`read`](Self::read).
    pub(crate) fn write(
        &mut self,
        mmaddr: u64,
        from: &[u8],
        class: BusClass,
        now_ns: u64,
    ) -> Result<(), WindowError> {
        self.window.write(mmaddr, from)?;
        self.cross(from.len() as u64, class, now_ns);
        Ok(())
    }

    /// Entries of rings, several of them in one transfer.
    pub(crate) fn cross_entries(&mut self, entries: u64, now_ns: u64) {
        if entries > 0 {
            self.cross(entries * 16, BusClass::Overhead, now_ns);
        }
    }

    fn cross(&mut self, bytes: u64, class: BusClass, now_ns: u64) {
        self.counters.add(class, bytes);
        if let Some(meter) = &self.meter {
            self.busy_until_ns = meter.charge(bytes, now_ns);
        }
    }
}
