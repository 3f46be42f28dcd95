//! The ranges of replies with several parts. They lie outside of the flows, which have no room for
//! them.

use nicache_http::{ByteRange, Ranges};

use crate::limits::PART_SETS_MAX;

/// Names the ranges of one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartsId(u16);

/// The ranges of all replies with several parts that clients have yet to acknowledge.
pub(crate) struct PartSets {
    sets: Box<[Ranges]>,
    free: Vec<u16>,
}

impl PartSets {
    /// Room for [`PART_SETS_MAX`] replies.
    pub(crate) fn new() -> Self {
        let sets = vec![Ranges::new(); PART_SETS_MAX].into_boxed_slice();
        Self { sets, free: (0..PART_SETS_MAX as u16).rev().collect() }
    }

    /// Is there no room?
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Replies that have a set.
    pub(crate) fn lent(&self) -> usize {
        self.sets.len() - self.free.len()
    }

    /// Keeps ranges until [`PartSets::give`]; `None` if there is no room.
    pub(crate) fn take(&mut self, ranges: &Ranges) -> Option<PartsId> {
        let index = self.free.pop()?;
        self.sets[usize::from(index)].clone_from(ranges);
        Some(PartsId(index))
    }

    /// The ranges.
    pub(crate) fn get(&self, id: PartsId) -> &[ByteRange] {
        &self.sets[usize::from(id.0)]
    }

    /// Nobody needs them any longer.
    pub(crate) fn give(&mut self, id: PartsId) {
        self.free.push(id.0);
    }
}

impl Default for PartSets {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_lent_and_given_back() {
        let mut sets = PartSets::new();
        let ranges = |from: u64| Ranges::from_iter([ByteRange { from, to: from + 1 }]);
        let ids: Vec<PartsId> =
            (0..PART_SETS_MAX as u64).map(|at| sets.take(&ranges(at)).unwrap()).collect();
        assert!(sets.is_full() && sets.take(&ranges(0)).is_none());
        assert!(ids.iter().enumerate().all(|(at, id)| sets.get(*id)[0].from == at as u64));
        sets.give(ids[5]);
        assert_eq!(sets.lent(), PART_SETS_MAX - 1);
        assert_eq!(sets.take(&ranges(7)), Some(ids[5]));
        assert_eq!(sets.get(ids[5])[0].from, 7);
    }
}
