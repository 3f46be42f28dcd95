//! A bus that is slower than this machine's: so results that were bound by the interconnect
//! come out on a fast one.
//!
//! Data crosses in bursts. Each costs, beside its bytes, the time of so many more: addresses,
//! waiting for the target, turning the bus round. That is what Figure 4 of Kim et al. 2002 calls
//! PCI overhead. A transfer is any copy between the window and the card, a descriptor, too.
//!
//! All cards of a host share one bus, and so one [`Meter`].

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::atomic::Ordering;

use crate::window::Window;

/// How fast a bus is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusModel {
    /// Bytes per second, without any overhead.
    pub bytes_per_s: f64,
    /// Most bytes of one burst.
    pub burst_bytes: u32,
    /// What a burst costs beside its bytes, in bytes' time.
    pub overhead_bytes: u32,
}

impl BusModel {
    /// PCI of 64 bits at 33 MHz, as in the paper: 8 bytes each 30 ns. Bursts of 128 bytes with
    /// seven cycles of overhead each make overhead 30 % of the time of full frames, as its Figure 4
    /// shows; burst length and cycles are fitted, not taken from the paper.
    pub const PCI_64_33: Self =
        Self { bytes_per_s: 8.0 * 33.333e6, burst_bytes: 128, overhead_bytes: 56 };
    /// PCI of 64 bits at 66 MHz: 8 bytes each 15 ns, with bursts of 128 bytes and seven cycles of
    /// overhead each, as at 33 MHz.
    pub const PCI_64_66: Self =
        Self { bytes_per_s: 8.0 * 66.667e6, burst_bytes: 128, overhead_bytes: 56 };
    /// PCI Express 4.0 with eight lanes: 16 GT/s each, 128b/130b, payloads of 256 bytes with 24
    /// bytes around each.
    pub const PCIE_GEN4_X8: Self = Self {
        bytes_per_s: 8.0 * 16e9 / 8.0 * 128.0 / 130.0,
        burst_bytes: 256,
        overhead_bytes: 24,
    };

    const NAMED: [(&'static str, Self); 3] = [
        ("pci-64-33", Self::PCI_64_33),
        ("pci-64-66", Self::PCI_64_66),
        ("pcie-gen4-x8", Self::PCIE_GEN4_X8),
    ];

    /// What a transfer costs beside its bytes, in bytes' time.
    pub fn overhead(&self, bytes: u64) -> u64 {
        bytes.div_ceil(u64::from(self.burst_bytes.max(1))) * u64::from(self.overhead_bytes)
    }

    /// How long a transfer takes, in nanoseconds.
    pub fn time_ns(&self, bytes: u64) -> u64 {
        ((bytes + self.overhead(bytes)) as f64 * 1e9 / self.bytes_per_s).ceil() as u64
    }
}

impl fmt::Display for BusModel {
    /// Writes the model's name, or its figures as [`FromStr`] reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMED.iter().find(|(_, model)| model == self) {
            Some((name, _)) => f.write_str(name),
            None => {
                let megabits = self.bytes_per_s * 8.0 / 1e6;
                write!(f, "{megabits},burst={},overhead={}", self.burst_bytes, self.overhead_bytes)
            }
        }
    }
}

impl FromStr for BusModel {
    type Err = String;

    /// A name, or `MBIT/s` with further words: `2000,burst=128,overhead=56`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, model)) = Self::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*model);
        }
        let names = Self::NAMED.map(|(name, _)| name).join(", ");
        let odd =
            || format!("`{text}` is not a bus: {names}, or Mbit/s,burst=BYTES,overhead=BYTES");
        let mut words = text.split(',');
        let megabits: f64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(odd)?;
        if !(megabits.is_finite() && megabits >= 1.0) {
            return Err(odd());
        }
        let mut model =
            Self { bytes_per_s: megabits * 1e6 / 8.0, burst_bytes: 4096, overhead_bytes: 0 };
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(odd)?;
            let value: u32 = value.parse().map_err(|_| odd())?;
            match name {
                "burst" if value > 0 => model.burst_bytes = value,
                "overhead" => model.overhead_bytes = value,
                _ => return Err(odd()),
            }
        }
        Ok(model)
    }
}

/// The bus's clock, shared by all of its cards: when it is free, and how long it has been busy.
#[derive(Debug)]
pub struct Meter {
    shared: Window,
    model: BusModel,
}

const FREE_AT: usize = 0;
const BUSY_AT: usize = 64;
const OVERHEAD_AT: usize = 128;
const METER_BYTES: usize = 4096;

impl Meter {
    /// Makes the meter of a bus of this kind that nobody has used.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(model: BusModel) -> io::Result<Self> {
        Ok(Self { shared: Window::create("nicache-bus-clock", METER_BYTES)?, model })
    }

    /// One that another process has made.
    ///
    /// # Errors
    /// `InvalidInput` if it is none, or what the system says.
    pub fn map(file: OwnedFd, model: BusModel) -> io::Result<Self> {
        let shared = Window::map(file)?;
        if shared.bytes() != METER_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no clock of a bus"));
        }
        Ok(Self { shared, model })
    }

    /// The meter's file, to be handed to the other cards.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.shared.file()
    }

    /// Takes the bus for a transfer as soon as it is free; the card may go on at the time that is
    /// returned (of the same clock as `now_ns`).
    pub fn charge(&self, bytes: u64, now_ns: u64) -> u64 {
        let time_ns = self.model.time_ns(bytes);
        self.shared.word(BUSY_AT).fetch_add(time_ns, Ordering::Relaxed);
        self.shared.word(OVERHEAD_AT).fetch_add(self.model.overhead(bytes), Ordering::Relaxed);
        let free = self.shared.word(FREE_AT);
        let mut before = free.load(Ordering::Relaxed);
        loop {
            let end = before.max(now_ns) + time_ns;
            match free.compare_exchange_weak(before, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return end,
                Err(other) => before = other,
            }
        }
    }

    /// For how long the bus has been taken, in nanoseconds.
    pub fn busy_ns(&self) -> u64 {
        self.shared.word(BUSY_AT).load(Ordering::Relaxed)
    }

    /// What of that was overhead, in bytes' time.
    pub fn overhead_bytes(&self) -> u64 {
        self.shared.word(OVERHEAD_AT).load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_the_papers_for_full_frames() {
        let model = BusModel::PCI_64_33;
        // Descriptors, headers, and 1448 bytes of content.
        let transfers = [16, 16, 66, 1448];
        let overhead: u64 = transfers.iter().map(|bytes| model.overhead(*bytes)).sum();
        let share = overhead as f64 / (overhead + transfers.iter().sum::<u64>()) as f64;
        assert!((0.28..0.36).contains(&share), "{share}");
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!("pci-64-66".parse(), Ok(BusModel::PCI_64_66));
        let model: BusModel = "800,burst=64,overhead=8".parse().unwrap();
        assert_eq!(model, BusModel { bytes_per_s: 1e8, burst_bytes: 64, overhead_bytes: 8 });
        assert_eq!((model.overhead(65), model.time_ns(92)), (16, 1080));
        for model in [model, BusModel::PCI_64_33] {
            assert_eq!(model.to_string().parse(), Ok(model));
        }
        for odd in ["", "isa", "0", "-5", "nan", "800,burst=0", "800,x=1", "800,burst"] {
            assert!(odd.parse::<BusModel>().unwrap_err().contains("pcie-gen4-x8"), "{odd}");
        }
    }

    #[test]
    fn cards_take_turns() {
        let model = BusModel { bytes_per_s: 1e9, burst_bytes: 4096, overhead_bytes: 0 };
        let first = Meter::create(model).unwrap();
        let second = Meter::map(first.file().try_clone_to_owned().unwrap(), model).unwrap();
        assert_eq!(first.charge(100, 1000), 1100);
        assert_eq!(second.charge(50, 1010), 1150);
        assert_eq!(first.charge(10, 5000), 5010);
        assert_eq!(second.busy_ns(), 160);
        assert!(
            Meter::map(Window::create("x", 8).unwrap().file().try_clone_to_owned().unwrap(), model)
                .is_err()
        );
    }
}
