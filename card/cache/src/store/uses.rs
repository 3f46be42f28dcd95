//! Which entries were used most since somebody last looked.
//!
//! A hit adds one to a number of its entry and nothing else; who looks pays. A look goes through
//! the places in parts of its own choice, so frames never wait for all of them.

use std::ops::Range;

use nicache_http::Key;

use super::index::Store;

/// An entry that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Under what it is found.
    pub key: Key,
    /// The host that its request named.
    pub host: Box<[u8]>,
    /// The request target.
    pub target: Box<[u8]>,
    /// Bytes of its body.
    pub body_len: u64,
    /// Is the entry dynamic?
    pub is_dynamic: bool,
    /// Hits since the last look.
    pub uses: u32,
}

/// The entries with the most uses among those that were looked at.
#[derive(Clone, Debug)]
pub struct MostUsed {
    max: usize,
    /// Most uses first.
    list: Vec<Used>,
}

impl MostUsed {
    /// Uses of at most `max` entries.
    pub fn new(max: usize) -> Self {
        Self { max, list: Vec::with_capacity(max) }
    }

    /// What was found, most uses first.
    pub fn list(&self) -> &[Used] {
        &self.list
    }

    /// Takes one that was used so often, if it is among the first.
    fn offer(&mut self, uses: u32, used: impl FnOnce() -> Used) {
        if uses == 0 || self.max == 0 {
            return;
        }
        if self.list.len() == self.max {
            if self.list.last().is_some_and(|last| last.uses >= uses) {
                return;
            }
            self.list.pop();
        }
        let at = self.list.partition_point(|other| other.uses >= uses);
        self.list.insert(at, used());
    }
}

impl Store {
    /// Looks at a part of the places, which are numbered from 0, and takes the entries there that
    /// were used most since the last look into `most`. Places that do not exist are empty.
    pub fn take_uses(&mut self, places: Range<usize>, most: &mut MostUsed) {
        let end = places.end.min(self.places.len());
        let Some(part) = self.places.get_mut(places.start.min(end)..end) else { return };
        for entry in
            part.iter_mut().filter_map(|place| place.entry.as_mut()).filter(|entry| !entry.dead)
        {
            let uses = entry.uses.wrapping_sub(entry.uses_seen);
            entry.uses_seen = entry.uses;
            most.offer(uses, || Used {
                key: entry.key,
                host: entry.host.clone(),
                target: entry.target.clone(),
                body_len: entry.body_len,
                is_dynamic: entry.is_dynamic(),
                uses,
            });
        }
    }

    /// Places for entries, taken or not.
    pub fn places(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn used(number: u64, uses: u32) -> Used {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let (host, target) = (Box::from(&b"a"[..]), Box::from(&b"/"[..]));
        Used { key: Key(key), host, target, body_len: number, is_dynamic: false, uses }
    }

    proptest! {
        #[test]
        fn the_first_of_a_sorted_list(
            uses in prop::collection::vec(0u32..20, 0..60),
            max in 0usize..12,
        ) {
            let mut most = MostUsed::new(max);
            let all: Vec<Used> =
                uses.iter().zip(0..).map(|(uses, number)| used(number, *uses)).collect();
            for one in &all {
                most.offer(one.uses, || one.clone());
            }
            let mut expected: Vec<Used> = all.into_iter().filter(|one| one.uses > 0).collect();
            expected.sort_by_key(|one| std::cmp::Reverse(one.uses));
            expected.truncate(max);
            prop_assert_eq!(most.list(), expected);
        }
    }
}
