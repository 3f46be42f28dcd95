//! The paper's forwarder (section 5.1): a 733 MHz CPU, an I/O bus, and a card with two links.
//!
//! The constants are fitted to Table 2 and Figure 6. What makes the fit is that the CPU is stalled
//! for nearly all of the time that the bus is busy: without that, packets of 1500 bytes would run
//! at 60 MB/s however they are forwarded, and PCACHE would gain nothing.

use serde::{Deserialize, Serialize};

/// What a link carries.
pub const LINK_BYTES_PER_S: f64 = 125e6;
/// Bytes of a page, by which the host handles payload, and of the largest piece that crosses before
/// the next hop can begin.
const PAGE_BYTES: u64 = 4096;

/// How payload is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// To main memory and back.
    Copy,
    /// To main memory; it is sent from the card.
    Pcache,
    /// It stays on the card.
    Direct,
}

impl How {
    /// All ways, in the order of the paper's columns.
    pub const ALL: [Self; 3] = [Self::Copy, Self::Pcache, Self::Direct];

    /// How often payload crosses the bus.
    pub fn crossings(self) -> u64 {
        match self {
            Self::Copy => 2,
            Self::Pcache => 1,
            Self::Direct => 0,
        }
    }
}

/// The constants of the paper's forwarder, fitted to its Table 2 and Figure 6.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Bytes that cross the bus per second, both directions together.
    pub bus_bytes_per_s: f64,
    /// CPU time of a packet, in microseconds.
    pub packet_us: f64,
    /// CPU time of each page of it.
    pub page_us: f64,
    /// Share of the bus's time for which the CPU is stalled.
    pub stalled: f64,
    /// What a hop adds to the time of a packet, whatever its length.
    pub hop_us: f64,
    /// What a hop adds for each byte that a receive takes over the bus, in nanoseconds.
    pub receive_ns: f64,
    /// What a hop adds for each byte that a send takes over the bus, in nanoseconds.
    pub send_ns: f64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            bus_bytes_per_s: 118e6,
            packet_us: 21.5,
            page_us: 4.5,
            stalled: 0.95,
            hop_us: 35.3,
            receive_ns: 5.0,
            send_ns: 8.33,
        }
    }
}

impl Machine {
    /// From end to end, if it takes `direct_us` without a forwarder in between: store and forward,
    /// so a link and a bus add up. Packets longer than a page cross piece by piece.
    pub fn latency_us(&self, direct_us: f64, bytes: u64, how: How) -> f64 {
        let link_us = bytes as f64 / LINK_BYTES_PER_S * 1e6;
        let piece = bytes.min(PAGE_BYTES) as f64 / 1e3;
        let receive = if how == How::Direct { 0.0 } else { piece * self.receive_ns };
        let send = if how == How::Copy { piece * self.send_ns } else { 0.0 };
        direct_us + self.hop_us + link_us + receive + send
    }

    /// How long the bus takes for payload that crosses so often.
    pub fn bus_us(&self, bytes: u64, crossings: u64) -> f64 {
        (bytes * crossings) as f64 / self.bus_bytes_per_s * 1e6
    }

    /// How long a packet keeps the CPU, busy or stalled.
    pub fn cpu_us(&self, bytes: u64, crossings: u64) -> f64 {
        let pages = bytes.div_ceil(PAGE_BYTES) as f64;
        self.packet_us + pages * self.page_us + self.stalled * self.bus_us(bytes, crossings)
    }

    /// The most bytes per second that are forwarded, if all payload is on the card that can be; and
    /// the share of the CPU that takes.
    pub fn peak(&self, bytes: u64, how: How) -> (f64, f64) {
        let (cpu_us, bus_us) =
            (self.cpu_us(bytes, how.crossings()), self.bus_us(bytes, how.crossings()));
        let link_us = bytes as f64 / LINK_BYTES_PER_S * 1e6;
        let slowest_us = cpu_us.max(bus_us).max(link_us);
        (bytes as f64 / slowest_us * 1e6, cpu_us / slowest_us)
    }
}
