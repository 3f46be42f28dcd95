//! What crosses the bus between a card and its host, each byte in one class (Kim et al. 2002,
//! Figure 4; invariant I9).

#![forbid(unsafe_code)]

use std::fmt;

/// What a byte on the bus is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BusClass {
    /// Bytes of files, and bodies of replies and requests.
    Content = 0,
    /// Ethernet, IP and TCP headers of the service's connections.
    NetworkHeaders = 1,
    /// Heads of HTTP messages.
    ApplicationHeaders = 2,
    /// What says what to do with the rest: descriptors and completions, metadata of frames. What a
    /// modelled bus loses for each burst is time, not bytes, so it is told apart from it.
    Overhead = 3,
    /// What is none of the above, or not told apart, such as whole frames that a host receives.
    Other = 4,
}

impl BusClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Content,
        Self::NetworkHeaders,
        Self::ApplicationHeaders,
        Self::Overhead,
        Self::Other,
    ];

    /// The class with a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The class's name in tables, JSON and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::NetworkHeaders => "network_headers",
            Self::ApplicationHeaders => "application_headers",
            Self::Overhead => "overhead",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for BusClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Bytes that have crossed, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusCounters {
    /// In the order of [`BusClass::ALL`].
    pub bytes: [u64; BusClass::ALL.len()],
    /// Transfers: copies that the card made between the window and its memory.
    pub transfers: u64,
}

impl BusCounters {
    /// Counts a transfer.
    pub fn add(&mut self, class: BusClass, bytes: u64) {
        self.bytes[class as usize] += bytes;
        self.transfers += 1;
    }

    /// Bytes of one class.
    pub fn of(&self, class: BusClass) -> u64 {
        self.bytes[class as usize]
    }

    /// Bytes of all classes.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// What has crossed since an earlier count.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut bytes = self.bytes;
        bytes.iter_mut().zip(earlier.bytes).for_each(|(now, then)| *now -= then);
        Self { bytes, transfers: self.transfers - earlier.transfers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_in_one_class() {
        let mut counters = BusCounters::default();
        for (number, class) in BusClass::ALL.into_iter().enumerate() {
            assert_eq!(BusClass::from_number(number as u8), Some(class));
            counters.add(class, 1 << number);
        }
        assert_eq!((counters.total(), counters.transfers), (31, 5));
        assert_eq!(counters.of(BusClass::Overhead), 8);
        assert_eq!(counters.since(&counters), BusCounters::default());
        assert_eq!(BusClass::from_number(5), None);
    }
}
