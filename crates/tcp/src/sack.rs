//! The scoreboard of a sender: which bytes above the cumulative acknowledgment have arrived
//! (RFC 2018, RFC 6675 section 3). Bounded: see [`RANGES_MAX`].

use crate::seq::Seq;

/// Most disjoint ranges remembered. When a peer reports more, the highest range is forgotten: its
/// bytes count as not arrived and are at worst sent again (SACK is advisory, RFC 2018 section 8).
pub const RANGES_MAX: usize = 16;

/// Sorted, disjoint, not adjacent ranges `[left, right)` of bytes known to have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scoreboard {
    ranges: [(Seq, Seq); RANGES_MAX],
    len: u8,
}

/// A run of bytes not known to have arrived, and what has arrived above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First byte.
    pub start: Seq,
    /// Behind the last byte.
    pub end: Seq,
    /// Disjoint ranges that arrived above.
    pub ranges_above: u32,
    /// Bytes that arrived above.
    pub bytes_above: u32,
}

impl Scoreboard {
    /// The ranges, lowest first.
    #[must_use]
    pub fn ranges(&self) -> &[(Seq, Seq)] {
        &self.ranges[..usize::from(self.len)]
    }

    /// Nothing above the cumulative acknowledgment is known to have arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Bytes known to have arrived.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        self.ranges().iter().map(|(l, r)| r.since(*l)).sum()
    }

    /// Bytes at or above `seq` known to have arrived.
    #[must_use]
    pub fn bytes_from(&self, seq: Seq) -> u32 {
        self.ranges().iter().map(|(l, r)| r.saturating_since(l.max(seq))).sum()
    }

    /// Behind the highest byte known to have arrived.
    #[must_use]
    pub fn highest(&self) -> Option<Seq> {
        self.ranges().last().map(|(_, r)| *r)
    }

    /// The byte at `seq` is known to have arrived.
    #[must_use]
    pub fn contains(&self, seq: Seq) -> bool {
        self.ranges().iter().any(|(l, r)| l.le(seq) && seq.lt(*r))
    }

    /// Adds a range; returns the bytes that were not known before. The caller has checked that the
    /// range lies within what is outstanding.
    pub fn insert(&mut self, left: Seq, right: Seq) -> u32 {
        let before = self.bytes();
        let mut merged = [(Seq(0), Seq(0)); RANGES_MAX + 1];
        let mut count = 0;
        let (mut left, mut right, mut placed) = (left, right, false);
        for &(l, r) in self.ranges() {
            if r.lt(left) {
                merged[count] = (l, r);
                count += 1;
            } else if l.gt(right) {
                if !placed {
                    merged[count] = (left, right);
                    count += 1;
                    placed = true;
                }
                merged[count] = (l, r);
                count += 1;
            } else {
                left = left.min(l);
                right = right.max(r);
            }
        }
        if !placed {
            merged[count] = (left, right);
            count += 1;
        }
        let count = count.min(RANGES_MAX);
        self.ranges[..count].copy_from_slice(&merged[..count]);
        self.len = count as u8;
        self.bytes().saturating_sub(before)
    }

    /// Everything below `una` is acknowledged. A range that holds `una` itself means that
    /// the receiver dropped what it had reported (RFC 2018 section 8): a true acknowledgment would
    /// have covered it. Everything is then forgotten, and true is returned.
    pub fn advance(&mut self, una: Seq) -> bool {
        if self.contains(una) {
            self.clear();
            return true;
        }
        let gone = self.ranges().iter().take_while(|(_, r)| r.le(una)).count();
        let len = usize::from(self.len);
        self.ranges.copy_within(gone..len, 0);
        self.len = (len - gone) as u8;
        false
    }

    /// The holes between `una` and `nxt`, lowest first.
    pub fn holes(&self, una: Seq, nxt: Seq) -> impl Iterator<Item = Hole> + '_ {
        let mut at = una;
        let mut index = 0;
        let mut bytes_above = self.bytes();
        core::iter::from_fn(move || {
            loop {
                let next = self.ranges().get(index).copied();
                let hole = Hole {
                    start: at,
                    end: next.map_or(nxt, |(l, _)| l),
                    ranges_above: (usize::from(self.len) - index.min(usize::from(self.len))) as u32,
                    bytes_above,
                };
                match next {
                    Some((l, r)) => {
                        bytes_above -= r.since(l);
                        at = r;
                        index += 1;
                    }
                    None if at.ge(nxt) => return None,
                    None => at = nxt,
                }
                if hole.start.lt(hole.end) {
                    return Some(hole);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board(ranges: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for &(l, r) in ranges {
            board.insert(Seq(l), Seq(r));
        }
        board
    }

    #[test]
    fn holes_and_what_is_above_them() {
        let board = board(&[(20, 30), (50, 60)]);
        let holes: Vec<_> = board.holes(Seq(10), Seq(70)).collect();
        let hole = |start, end, ranges_above, bytes_above| Hole {
            start: Seq(start),
            end: Seq(end),
            ranges_above,
            bytes_above,
        };
        assert_eq!(holes, [hole(10, 20, 2, 20), hole(30, 50, 1, 10), hole(60, 70, 0, 0)]);
        assert_eq!(Scoreboard::default().holes(Seq(5), Seq(5)).count(), 0);
    }

    #[test]
    fn reneging_is_seen() {
        // RFC 2018 section 8.
        let mut board = board(&[(20, 30)]);
        assert!(!board.advance(Seq(15)));
        assert!(board.advance(Seq(20)));
        assert!(board.is_empty());
    }

    #[test]
    fn a_full_board_forgets_the_highest() {
        let mut board = Scoreboard::default();
        for i in (0..=RANGES_MAX as u32).rev() {
            board.insert(Seq(i * 10), Seq(i * 10 + 5));
        }
        assert_eq!(board.ranges().len(), RANGES_MAX);
        assert_eq!(board.highest(), Some(Seq((RANGES_MAX as u32 - 1) * 10 + 5)));
    }

    proptest! {
        /// Against a set of bytes, round the wrap of the sequence space.
        #[test]
        fn equals_a_set_of_bytes(base: u32, ranges in proptest::collection::vec((0u32..200, 1u32..20), 0..12), una in 0u32..220) {
            let base = Seq(base);
            let mut set = std::collections::BTreeSet::new();
            let mut board = Scoreboard::default();
            for (l, n) in ranges {
                let fresh = (l..l + n).filter(|b| set.insert(*b)).count();
                prop_assert_eq!(board.insert(base + l, base + (l + n)) as usize, fresh);
            }
            prop_assert_eq!(board.bytes() as usize, set.len());
            prop_assert_eq!(board.bytes_from(base + una) as usize, set.iter().filter(|b| **b >= una).count());
            for b in 0..220 {
                prop_assert_eq!(board.contains(base + b), set.contains(&b));
            }
            let missing: Vec<u32> = (0..220).filter(|b| !set.contains(b)).collect();
            let holes: Vec<u32> = board
                .holes(base, base + 220)
                .flat_map(|h| h.start.since(base)..h.end.since(base))
                .collect();
            prop_assert_eq!(holes, missing);
            let reneged = board.advance(base + una);
            prop_assert_eq!(reneged, set.contains(&una));
            if !reneged {
                prop_assert_eq!(board.bytes() as usize, set.iter().filter(|b| **b >= una).count());
            }
        }
    }
}
