//! What the path does to packets, and what is fetched over it.

use std::time::Duration;

use nicache_port::{FaultConfig, FaultRates};
use serde::{Deserialize, Serialize};

/// Frames on their way in each direction at most: 11 MB, more than any window here.
const QUEUE_FRAMES: usize = 8_192;
/// Longest that a reordered frame is late, as a part of the round trip; and at least.
const LATE_PART: u64 = 2;
const LATE_NS_MIN: u64 = 2_000_000;

/// One cell of the matrix. Rates are per 1000 packets, of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Condition {
    /// Packets lost.
    pub loss: u32,
    /// Packets that are late by up to half a round trip.
    pub reorder: u32,
    /// Packets that arrive twice.
    pub duplicate: u32,
    /// Round-trip time in milliseconds.
    pub delay_ms: u32,
    /// MTU of the client's interface.
    pub mtu: u32,
    /// Bytes of the body.
    pub bytes: u64,
    /// Over IPv6.
    pub v6: bool,
}

impl Condition {
    const CLEAN: Self = Self {
        loss: 0,
        reorder: 0,
        duplicate: 0,
        delay_ms: 0,
        mtu: 1_500,
        bytes: 1_000_000,
        v6: false,
    };

    /// The matrix: losses by delays by sizes, and the other impairments one at a time and together.
    /// `quick`: a few of them.
    pub fn matrix(quick: bool) -> Vec<Self> {
        let clean = Self::CLEAN;
        if quick {
            return vec![
                clean,
                Self { loss: 10, delay_ms: 10, ..clean },
                Self { loss: 30, delay_ms: 10, bytes: 10_000, ..clean },
                Self { reorder: 20, delay_ms: 10, ..clean },
            ];
        }
        let mut all = Vec::new();
        for delay_ms in [0, 10, 50] {
            for loss in [0, 1, 10, 30, 100] {
                for bytes in [10_000, 1_000_000, 10_000_000] {
                    all.push(Self { loss, delay_ms, bytes, ..clean });
                }
            }
            for loss in [0, 10] {
                all.push(Self { loss, reorder: 20, delay_ms, ..clean });
                all.push(Self { loss, duplicate: 20, delay_ms, ..clean });
                all.push(Self { loss, reorder: 100, duplicate: 20, delay_ms, ..clean });
            }
            for mtu in [576, 1_280] {
                all.push(Self { loss: 10, mtu, delay_ms, ..clean });
            }
            for loss in [0, 10, 100] {
                all.push(Self { loss, v6: true, delay_ms, ..clean });
            }
        }
        all
    }

    /// For the forwarder: the frames that it receives at the client's end are one direction, those
    /// that it sends there the other.
    pub fn faults(&self, seed: u64) -> FaultConfig {
        let one_way = Duration::from_millis(u64::from(self.delay_ms)).as_nanos() as u64 / 2;
        let rates = FaultRates {
            loss: f64::from(self.loss) / 1e3,
            duplicate: f64::from(self.duplicate) / 1e3,
            reorder: f64::from(self.reorder) / 1e3,
            reorder_ns: (2 * one_way / LATE_PART).max(LATE_NS_MIN),
            latency_ns: one_way,
            ..FaultRates::default()
        };
        FaultConfig { seed, receive: rates, send: rates, queue_frames: QUEUE_FRAMES }
    }

    /// A perfect path, for preparations.
    pub fn perfect() -> FaultConfig {
        Self::CLEAN.faults(0)
    }

    /// Size, delay and faults as people say them: "1 MB, 50 ms, 1 % lost".
    pub fn label(&self) -> String {
        let size = match self.bytes {
            bytes if bytes >= 1_000_000 => format!("{} MB", bytes / 1_000_000),
            bytes => format!("{} KB", bytes / 1_000),
        };
        let mut label = format!("{size}, {} ms", self.delay_ms);
        for (rate, what) in [(self.loss, "lost"), (self.reorder, "late"), (self.duplicate, "twice")]
        {
            if rate > 0 {
                label += &format!(", {} % {what}", f64::from(rate) / 10.0);
            }
        }
        if self.mtu != Self::CLEAN.mtu {
            label += &format!(", MTU {}", self.mtu);
        }
        if self.v6 {
            label += ", IPv6";
        }
        label
    }

    /// What the path does, whatever is fetched: conditions with the same are one after the other.
    pub fn path(&self) -> (bool, u32, u32, u32, u32) {
        (self.v6, self.delay_ms, self.loss, self.reorder, self.duplicate)
    }

    /// Transfers at the same time: more than one where the path and not the machine is the limit.
    pub fn at_once(&self) -> usize {
        match (self.delay_ms, self.bytes, self.loss) {
            (0, ..) => 1,
            (_, ..100_000, _) => 8,
            (_, ..5_000_000, 10..) => 6,
            (_, _, 30..) => 6,
            (_, _, 10..) => 3,
            (50.., ..5_000_000, _) => 2,
            _ => 1,
        }
    }

    /// How often it is fetched in a repetition, for figures that say something: the smaller and the
    /// worse, the more is left to chance.
    pub fn transfers(&self) -> u32 {
        match (self.bytes, self.loss + self.reorder + self.duplicate) {
            (..100_000, 0) => 5,
            (..100_000, _) => 40,
            (..5_000_000, 0) => 4,
            (..5_000_000, _) => 12,
            (_, 0) => 2,
            (_, _) => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_conditions_apart() {
        let all = Condition::matrix(false);
        let mut labels: Vec<String> = all.iter().map(Condition::label).collect();
        labels.sort();
        labels.dedup();
        assert_eq!(labels.len(), all.len());
        assert!(labels.contains(&"1 MB, 50 ms, 1 % lost, 10 % late, 2 % twice".to_owned()));
    }

    #[test]
    fn half_of_the_round_trip_is_in_each_direction() {
        let faults = Condition { delay_ms: 50, loss: 100, ..Condition::CLEAN }.faults(7);
        assert_eq!(
            (faults.receive.latency_ns, faults.send.latency_ns, faults.send.loss),
            (25_000_000, 25_000_000, 0.1)
        );
        assert_eq!(Condition::perfect().send.loss, 0.0);
    }
}
