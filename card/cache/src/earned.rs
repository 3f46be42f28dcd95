//! T: how old what nobody can see (the clock, chance, a program's own memory, a server's own rules)
//! may be in an entry. It is earned (docs/coherence.md).
//!
//! T is a quarter of the time for which the server has been seen to give the same answer, but not
//! less than a first bound and not more than a last one.

use std::time::Duration;

use nicache_coherence::Rule;

/// T is this part of the time for which the answer was the same.
const SHARE: u32 = 4;

/// Between what T is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeBounds {
    /// At first, and again after a difference that nothing explains.
    pub first: Duration,
    /// At last; not below `first`.
    pub most: Duration,
}

impl AgeBounds {
    /// T that does not grow.
    pub const fn fixed(age: Duration) -> Self {
        Self { first: age, most: age }
    }

    /// T of a page that must not earn more than it begins with.
    pub const fn unearned(self) -> Self {
        Self::fixed(self.first)
    }

    /// T of a page whose answer has been the same for so long.
    pub fn earned(&self, same_for: Duration) -> Duration {
        let most = self.most.max(self.first);
        if Rule::Earned.holds() { (same_for / SHARE).clamp(self.first, most) } else { most }
    }
}

impl Default for AgeBounds {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), most: Duration::from_secs(60) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_quarter_of_the_time_between_its_bounds() {
        let bounds = AgeBounds::default();
        for (same_for, age) in [
            (0, 1000),
            (3_999, 1000),
            (4_004, 1001),
            (100_000, 25_000),
            (240_000, 60_000),
            (9_000_000, 60_000),
        ] {
            assert_eq!(
                bounds.earned(Duration::from_millis(same_for)),
                Duration::from_millis(age),
                "{same_for}"
            );
        }
        let minutes = AgeBounds::fixed(Duration::from_secs(300));
        assert_eq!(minutes.earned(Duration::from_secs(1)), Duration::from_secs(300));
        assert_eq!(bounds.unearned().earned(Duration::from_secs(9_000)), Duration::from_secs(1));
        // A first bound beyond the last one counts.
        let odd = AgeBounds { first: Duration::from_secs(90), most: Duration::from_secs(60) };
        assert_eq!(odd.earned(Duration::ZERO), Duration::from_secs(90));
    }
}
