//! Instants handed in by the caller; this crate never reads a clock.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds since an arbitrary origin that is the same for all flows of a card.
///
/// Arithmetic saturates: an instant before the origin is the origin, one after the end is
/// [`Time::MAX`] (584 years).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin; also used for "already due".
    pub const ZERO: Self = Self(0);
    /// The last instant; also used for "never".
    pub const MAX: Self = Self(u64::MAX);

    /// An instant a number of milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Whole milliseconds since the origin.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time since `earlier`, zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The first of some instants, `None` being never. A chain of iterators over them takes longer, and
/// every segment needs it several times.
#[inline]
#[must_use]
pub fn earliest<const N: usize>(times: [Option<Time>; N]) -> Option<Time> {
    let mut first = Time::MAX;
    let mut is_any = false;
    for time in times {
        first = first.min(time.unwrap_or(Time::MAX));
        is_any |= time.is_some();
    }
    is_any.then_some(first)
}

/// When something was sent, in microseconds modulo 2^32: half the size of a [`Time`], for records
/// of which there are many. Comparisons are meaningful for instants less than 35 minutes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub u32);

impl Stamp {
    /// The stamp of an instant.
    #[must_use]
    pub const fn at(now: Time) -> Self {
        Self((now.0 / 1_000) as u32)
    }

    /// Microseconds since `earlier`, zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        let d = self.0.wrapping_sub(earlier.0) as i32;
        if d > 0 { d as u32 } else { 0 }
    }

    /// `self` is later than `other`.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// The later of the two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if other.is_after(self) { other } else { self }
    }
}

/// A duration in nanoseconds, saturating at 584 years.
#[inline]
pub(crate) fn nanos(d: Duration) -> u64 {
    d.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(d.subsec_nanos()))
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}

impl Sub<Self> for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_later_than_anything() {
        assert_eq!(earliest([]), None);
        assert_eq!(earliest([None, None]), None);
        assert_eq!(earliest([None, Some(Time(7)), Some(Time(3)), None]), Some(Time(3)));
        assert_eq!(earliest([Some(Time::MAX), None]), Some(Time::MAX));
    }

    #[test]
    fn stamps_wrap() {
        let early = Stamp::at(Time(u64::from(u32::MAX) * 1_000));
        let late = Stamp::at(Time((u64::from(u32::MAX) + 6) * 1_000));
        assert_eq!((late.since(early), early.since(late)), (6, 0));
        assert!(late.is_after(early) && !early.is_after(late) && !early.is_after(early));
        assert_eq!((early.max(late), late.max(early)), (late, late));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time(5) - Time(9), Duration::ZERO);
        assert_eq!(Time::from_millis(3) - Time::from_millis(1), Duration::from_millis(2));
        assert_eq!(Time::ZERO + Duration::MAX, Time::MAX);
    }
}
