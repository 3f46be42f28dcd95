//! Ports that the card's own client has open at an address which others use, too.
//!
//! A connection is the client's from when it is established until just before it is closed. In that
//! time the kernel lets nobody else have its two ends.

use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 4;

/// One bit for each of 256 ports, which the client sets and the card reads.
#[derive(Debug)]
pub struct OwnPorts {
    first: u16,
    open: [AtomicU64; WORDS],
}

impl OwnPorts {
    /// How many ports there can be.
    pub const COUNT: u16 = WORDS as u16 * u64::BITS as u16;

    /// None is open of those that begin with this one.
    pub fn new(first: u16) -> Self {
        Self { first, open: Default::default() }
    }

    /// The client's connection from this port is established. Before it sends anything.
    pub fn note_open(&self, port: u16) {
        if let Some((word, bit)) = self.place(port) {
            self.open[word].fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// The client is about to close it.
    pub fn note_closed(&self, port: u16) {
        if let Some((word, bit)) = self.place(port) {
            self.open[word].fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Is this port the client's?
    #[inline]
    pub fn has(&self, port: u16) -> bool {
        self.place(port)
            .is_some_and(|(word, bit)| self.open[word].load(Ordering::SeqCst) & bit != 0)
    }

    fn place(&self, port: u16) -> Option<(usize, u64)> {
        let at = port.checked_sub(self.first).filter(|at| *at < Self::COUNT)?;
        Some((usize::from(at) / u64::BITS as usize, 1 << (u32::from(at) % u64::BITS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_open_by_itself() {
        let ports = OwnPorts::new(61_000);
        let all = || (0..=u16::MAX).filter(|port| ports.has(*port)).collect::<Vec<_>>();
        assert_eq!(all(), []);
        for port in [0, 60_999, 61_000, 61_063, 61_064, 61_255, 61_256, u16::MAX] {
            ports.note_open(port);
        }
        assert_eq!(all(), [61_000, 61_063, 61_064, 61_255]);
        for port in [61_063, 61_256, 5] {
            ports.note_closed(port);
        }
        assert_eq!(all(), [61_000, 61_064, 61_255]);
    }
}
