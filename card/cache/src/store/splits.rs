//! Pages of which the server has given clients of different classes different answers: there the
//! class is a part of the key.

use nicache_http::Key;

use super::remembered::Remembered;
use super::seen::Traits;

/// Pages remembered. One that is forgotten is learned anew: until then an entry answers the classes
/// that it was seen to answer.
const PAGES_MAX: usize = 4096;

/// Base key → traits that count.
pub(super) struct Splits {
    pages: Remembered<Key, Traits>,
    changes: u64,
}

impl Splits {
    pub(super) fn new() -> Self {
        Self { pages: Remembered::new(PAGES_MAX), changes: 0 }
    }

    /// The traits that count for a page.
    #[inline]
    pub(super) fn of(&self, base: &Key) -> Traits {
        if self.changes == 0 {
            return Traits::default();
        }
        self.pages.get(base).copied().unwrap_or_default()
    }

    /// From now on these count, too.
    pub(super) fn note(&mut self, base: &Key, traits: Traits) {
        let known = self.pages.get_or_insert(*base, Traits::default);
        *known = known.union(traits);
        self.changes += 1;
    }

    /// How often that has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use nicache_http::Trait;

    use super::*;

    #[test]
    fn what_counts_adds_up() {
        let mut splits = Splits::new();
        let (page, other) = (Key([1; 16]), Key([2; 16]));
        let one = |of: Trait| Traits::of(|other| other == of);
        splits.note(&page, one(Trait::Agent));
        splits.note(&page, one(Trait::Origin));
        assert_eq!(splits.of(&page).iter().collect::<Vec<_>>(), [Trait::Origin, Trait::Agent]);
        assert!(splits.of(&other).is_empty());
        assert_eq!(splits.changes(), 2);
    }
}
