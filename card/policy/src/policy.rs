//! The contract between a cache and its policy.

use std::time::Duration;

use thiserror::Error;

/// Names an object. The card gives 64 bits of its keyed hash, so a client cannot choose keys
/// that collide; two objects with one key share their fate in the policy and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Key(pub u64);

impl Key {
    /// The key of the `n`th of a set of objects that are numbered from 0, as simulators number them
    /// in the order of their first requests: a [`Table`](crate::Table) finds it in the bucket of
    /// that number. So neighbours share cache lines of the table's heads, and those are mostly the
    /// popular ones, which appear early in a trace.
    #[inline]
    pub fn nth(n: u64) -> Self {
        Self(unscramble(n))
    }

    /// The last step of SplitMix64: simulators have keys in sequence, whose low bits alone would
    /// do, but also block numbers with common factors, whose low bits would not.
    #[inline]
    pub(crate) fn scrambled(self) -> u64 {
        nicache_random::mix(self.0)
    }
}

/// The inverse of [`Key::scrambled`]: the multiplicative inverses of its factors, and its shifts
/// undone.
#[inline]
fn unscramble(hash: u64) -> u64 {
    let mut key = hash ^ (hash >> 31) ^ (hash >> 62);
    key = key.wrapping_mul(0x3196_42B2_D24D_8EC3);
    key ^= (key >> 27) ^ (key >> 54);
    key = key.wrapping_mul(0x96DE_1B17_3F11_9089);
    key ^ (key >> 30) ^ (key >> 60)
}

/// Whether a reply may become an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Store it.
    Admit,
    /// Let it pass.
    Reject,
}

/// Why an object is no longer, or did not become, an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Removal {
    /// The object was a victim. Policies with ghost entries remember it.
    Evicted,
    /// The object's source changed or its entry expired: this says nothing about its worth.
    Purged,
    /// The object's reply was admitted but could not be stored (not shareable, source unknown,
    /// changed meanwhile). An object that is inserted under the same key stays inserted.
    Refused,
}

/// The object for which room is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// The object's key.
    pub key: Key,
    /// The object's size, in the unit of [`Policy::handle_insert`].
    pub bytes: u64,
}

/// The policy cannot follow another object: evict one and try again, or do not store the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the policy cannot follow further objects")]
pub struct TableFull;

/// What a policy holds, for metrics and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupancy {
    /// Objects inserted and not removed.
    pub objects: usize,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Keys remembered without an object: ghost entries, requests counted.
    pub ghosts: usize,
}

/// Replacement and admission.
///
/// # Order of calls
///
/// A request for a cached object is one `handle_hit`. Any other countable request is one
/// `handle_miss`; when the reply's length is known, `handle_reply`. The reply may be stored if
/// *both* said [`Admission::Admit`]. To store it, the cache asks `poll_victim(Some(incoming))`
/// until there is room, removing each victim (`handle_remove(victim, Evicted)`), and then calls
/// `handle_insert`. If a poll gives None, the policy holds what is there for worth more: the reply
/// is not stored. An admitted reply that is not stored for another reason is `handle_remove(key,
/// Refused)`; a purged object is `handle_remove(key, Purged)`.
///
/// Misses overlap: between the miss and the insertion of one key there may be any calls for any
/// keys, also another miss of the same key. A policy that keeps state for an admitted key must
/// therefore bear that no insertion follows.
///
/// # Sizes
///
/// `bytes` is what the object takes of the memory that the policy was given as its budget (on the
/// card: whole slots). It may differ from insertion to insertion. The budget steers decisions; who
/// enforces it is the cache, which alone knows what is free (a pinned victim's memory comes free
/// later).
///
/// # Ghosts
///
/// A policy may remember keys that are not inserted: it sees every miss before admission, and
/// `handle_remove` tells evictions (remember) from purges. `poll_victim` names the object for which
/// room is wanted, for policies whose choice depends on whether that is a ghost (ARC, LIRS) or how
/// often it was asked for (TinyLFU, popularity). A policy that must know at `handle_insert` what
/// the key was as a ghost keeps the ghost until then.
///
/// # Bounds
///
/// All memory is allocated at construction. Calls take constant time, amortised over the calls, or,
/// where a policy says so, time logarithmic in the number of objects; `handle_period_end` and what
/// it bounds are documented by each policy. No sequence of calls panics; calls that make no sense
/// (a hit of an unknown key, a removal of one never inserted) change nothing or count as a request.
pub trait Policy: Send {
    /// Its name in configuration, metrics and plots.
    fn name(&self) -> &'static str;

    /// Whether the object is inserted. A card has a directory of its own; simulators ask the
    /// policy.
    fn contains(&self, key: Key) -> bool;

    /// A cached object was served.
    fn handle_hit(&mut self, key: Key);

    /// An object that is not cached was asked for; `bytes` if its size is known already (in a
    /// simulation).
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission;

    /// The size of a reply became known; not a request. Also called when `handle_miss` rejected, to
    /// teach the size.
    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission;

    /// The object is an entry now, or (if it was one) has a new size. On an error the cache must
    /// not keep it.
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull>;

    /// The object is not an entry any longer, or was refused.
    fn handle_remove(&mut self, key: Key, removal: Removal);

    /// The inserted object to evict next, for the sake of `incoming` or (None) at any price. It
    /// stays inserted until `handle_remove`; another poll before that may name it again. Never
    /// names `incoming` itself.
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key>;

    /// Where the policy is the directory, too (in a simulation): whether the object is inserted; if
    /// so, this was its [`Policy::handle_hit`].
    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let hit = self.contains(key);
        if hit {
            self.handle_hit(key);
        }
        hit
    }

    /// [`Policy::poll_victim`] and the victim's removal as evicted.
    #[inline]
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let victim = self.poll_victim(incoming)?;
        self.handle_remove(victim, Removal::Evicted);
        Some(victim)
    }

    /// A period is over. Called every [`Policy::period`]; a policy without one ignores it.
    fn handle_period_end(&mut self) {}

    /// How long a period is; None if the policy needs none.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// What it holds.
    fn occupancy(&self) -> Occupancy;
}

/// For policies that are chosen while the program runs, behind filters that take any.
impl<P: Policy + ?Sized> Policy for Box<P> {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn contains(&self, key: Key) -> bool {
        (**self).contains(key)
    }
    fn handle_hit(&mut self, key: Key) {
        (**self).handle_hit(key);
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        (**self).handle_miss(key, bytes)
    }
    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission {
        (**self).handle_reply(key, bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        (**self).handle_insert(key, bytes)
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        (**self).handle_remove(key, removal);
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        (**self).poll_victim(incoming)
    }
    fn handle_request(&mut self, key: Key) -> bool {
        (**self).handle_request(key)
    }
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        (**self).evict(incoming)
    }
    fn handle_period_end(&mut self) {
        (**self).handle_period_end();
    }
    fn period(&self) -> Option<Duration> {
        (**self).period()
    }
    fn occupancy(&self) -> Occupancy {
        (**self).occupancy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_nth_key_is_found_in_its_bucket(n: u64) {
            proptest::prop_assert_eq!(Key::nth(n).scrambled(), n);
        }
    }
}
