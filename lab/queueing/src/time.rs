//! Simulated time: whole picoseconds, so sums do not depend on their order and equal times are
//! equal.

use std::ops::{Add, Sub};

use serde::Serialize;

/// A point in simulated time, or a span of it, in picoseconds. Holds 213 days.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize)]
pub struct Time(pub u64);

impl Time {
    /// The beginning, and the empty span.
    pub const ZERO: Self = Self(0);
    /// Later than everything.
    pub const MAX: Self = Self(u64::MAX);

    /// So many seconds, to the nearest picosecond; what is negative is 0, and what is too large is
    /// [`Time::MAX`].
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e12).round() as u64)
    }

    /// The time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// The time in nanoseconds.
    pub fn nanoseconds(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl Add for Time {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Time {
    type Output = Self;
    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// A clock: how long cycles take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Clock {
    cycle_ps: f64,
}

impl Clock {
    /// A clock with so many million cycles per second.
    pub fn new(mhz: f64) -> Self {
        Self { cycle_ps: 1e6 / mhz }
    }

    /// How long so many cycles take, to the nearest picosecond.
    #[inline]
    pub fn cycles(self, cycles: f64) -> Time {
        Time((cycles * self.cycle_ps).round() as u64)
    }

    /// How many cycles fit in a mean span of so many picoseconds.
    pub fn cycles_in_ps(self, span_ps: f64) -> f64 {
        span_ps / self.cycle_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_rounded_to_picoseconds() {
        assert_eq!(Clock::new(200.0).cycles(3.0), Time(15_000));
        assert_eq!(Clock::new(66.0).cycles(1.0), Time(15_152));
        assert_eq!(Clock::new(66.0).cycles(66e6), Time(1_000_000_000_000));
    }

    #[test]
    fn seconds_never_wrap() {
        assert_eq!(Time::from_seconds(-1.0), Time::ZERO);
        assert_eq!(Time::from_seconds(1e30), Time::MAX);
        assert_eq!(Time::MAX + Time(1), Time::MAX);
        assert_eq!(Time::ZERO - Time(1), Time::ZERO);
    }
}
