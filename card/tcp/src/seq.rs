//! Sequence numbers: positions in a byte stream modulo 2^32 (RFC 9293 section 3.4).
//!
//! Comparisons are meaningful for numbers less than 2^31 apart, which the largest window
//! (RFC 7323 section 2.3) guarantees for everything that belongs to one connection. There is no
//! `Ord`: the relation is not transitive round the circle.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A TCP sequence number; arithmetic wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Signed distance from `from` to `self`, in bytes: positive when `self` is later.
    #[inline]
    #[must_use]
    pub const fn distance(self, from: Self) -> i32 {
        self.0.wrapping_sub(from.0) as i32
    }

    /// Bytes from `from` forward to `self`, for positions known to be in that order.
    #[inline]
    #[must_use]
    pub const fn since(self, from: Self) -> u32 {
        self.0.wrapping_sub(from.0)
    }

    /// Bytes from `from` forward to `self`, or 0 when `self` is not later than `from`.
    #[inline]
    #[must_use]
    pub const fn saturating_since(self, from: Self) -> u32 {
        let d = self.distance(from);
        if d > 0 { d as u32 } else { 0 }
    }

    /// `self` is before `other`.
    #[inline]
    #[must_use]
    pub const fn lt(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// `self` is before `other` or equal to it.
    #[inline]
    #[must_use]
    pub const fn le(self, other: Self) -> bool {
        self.distance(other) <= 0
    }

    /// `self` is after `other`.
    #[inline]
    #[must_use]
    pub const fn gt(self, other: Self) -> bool {
        self.distance(other) > 0
    }

    /// `self` is after `other` or equal to it.
    #[inline]
    #[must_use]
    pub const fn ge(self, other: Self) -> bool {
        self.distance(other) >= 0
    }

    /// The later of two positions.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.ge(other) { self } else { other }
    }

    /// The earlier of two positions.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.le(other) { self } else { other }
    }

    /// `start <= self < start + len`, for any `len` up to 2^32 - 1.
    #[inline]
    #[must_use]
    pub const fn within(self, start: Self, len: u32) -> bool {
        self.since(start) < len
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    #[inline]
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl SubAssign<u32> for Seq {
    #[inline]
    fn sub_assign(&mut self, bytes: u32) {
        *self = *self - bytes;
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_across_the_wrap() {
        let high = Seq(u32::MAX - 1);
        let low = high + 10;
        assert_eq!(low, Seq(8));
        assert!(high.lt(low) && low.gt(high) && high.le(high) && high.ge(high));
        assert_eq!(low.distance(high), 10);
        assert_eq!(high.distance(low), -10);
        assert_eq!(high.saturating_since(low), 0);
        assert_eq!(high.max(low), low);
        assert_eq!(high.min(low), high);
        assert!(low.within(high, 11) && !low.within(high, 10) && !high.within(low, 5));
    }

    proptest! {
        #[test]
        fn adding_moves_forward(start: u32, by in 1u32..=i32::MAX as u32) {
            let a = Seq(start);
            let b = a + by;
            prop_assert!(a.lt(b) && b.gt(a));
            prop_assert_eq!(b.since(a), by);
            prop_assert_eq!(b - by, a);
        }
    }
}
