//! Which request headers select among the variants of a resource (RFC 9110 section 12.5.5).

use hashbrown::HashTable;
use nicache_http::{Key, VaryNames};

/// Resources with a `Vary` that can be remembered. A further one is not stored.
const RULES_MAX: usize = 4096;

/// Base key → header names of the server's last `Vary`.
pub struct VaryRules {
    rules: HashTable<(Key, VaryNames)>,
    changes: u64,
}

impl VaryRules {
    /// No rules, with room for all that will ever be kept.
    pub fn new() -> Self {
        Self { rules: HashTable::with_capacity(RULES_MAX), changes: 0 }
    }

    /// The names that select among the variants of `base`, if the server ever sent a `Vary` for it.
    #[inline]
    pub fn names(&self, base: &Key) -> Option<&VaryNames> {
        if self.rules.is_empty() {
            return None;
        }
        self.rules.find(base.low_u64(), |(key, _)| key == base).map(|(_, names)| names)
    }

    /// How often a rule was added or changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes the server's `Vary`. False if there is no room: the reply must not be stored then.
    pub fn note(&mut self, base: &Key, names: &VaryNames) -> bool {
        if let Some((_, known)) = self.rules.find_mut(base.low_u64(), |(key, _)| key == base) {
            self.changes += u64::from(known != names);
            *known = *names;
            return true;
        }
        if self.rules.len() == RULES_MAX {
            return false;
        }
        self.changes += 1;
        self.rules.insert_unique(base.low_u64(), (*base, *names), |(key, _)| key.low_u64());
        true
    }
}

impl Default for VaryRules {
    fn default() -> Self {
        Self::new()
    }
}
