//! Which of several back ends a connection goes to, the same one each time, with few changes when a
//! back end comes or goes.
//!
//! Read first: Eisenbud et al. 2016, "Maglev: A Fast and Reliable Software Network Load Balancer",
//! section 3.4.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// Places of a table: a prime, and more than a hundred times the number of back ends (section 5.3
/// of the paper).
pub const PLACES: usize = 65_537;
/// Back ends of one table at most.
pub const BACK_ENDS_MAX: usize = 512;

const NOBODY: u16 = u16::MAX;

/// Chooses one of several back ends for a connection, the same one each time, with few changes when
/// a back end comes or goes (Eisenbud et al. 2016, section 3.4).
#[derive(Debug)]
pub struct Maglev {
    table: Box<[u16]>,
}

/// A back end whose turns to choose a place come.
struct Turns {
    number: u16,
    /// Which place it tries next.
    place: usize,
    skip: usize,
    weight: u32,
    turns: u32,
}

impl Maglev {
    /// A table for back ends, each with the number of its name and its weight; those with weight 0
    /// get nothing. `seed`: the same for all who balance for one service.
    ///
    /// # Panics
    /// If there are more than [`BACK_ENDS_MAX`].
    pub fn new(back_ends: &[(u64, u16)], seed: u64) -> Self {
        assert!(back_ends.len() <= BACK_ENDS_MAX, "{} back ends", back_ends.len());
        let mut table = vec![NOBODY; PLACES].into_boxed_slice();
        let heaviest = back_ends.iter().map(|(_, weight)| u32::from(*weight)).max().unwrap_or(0);
        if heaviest == 0 {
            return Self { table };
        }
        let hash =
            |name: u64, salt: u64| FixedState::with_seed(seed ^ salt).hash_one(name) as usize;
        // Those that get nothing cost nothing, either: a place to begin at, a step, and a weight.
        let mut active: Vec<Turns> = (0u16..)
            .zip(back_ends)
            .filter(|(_, (_, weight))| *weight > 0)
            .map(|(number, (name, weight))| Turns {
                number,
                place: hash(*name, 1) % PLACES,
                skip: hash(*name, 2) % (PLACES - 1) + 1,
                weight: u32::from(*weight),
                turns: 0,
            })
            .collect();
        let mut filled = 0;
        while filled < PLACES {
            for turns in &mut active {
                // The heaviest has a turn in each round, the others as often as their weight says.
                turns.turns += turns.weight;
                if turns.turns < heaviest {
                    continue;
                }
                turns.turns -= heaviest;
                let place = loop {
                    let place = turns.place;
                    turns.place += turns.skip;
                    if turns.place >= PLACES {
                        turns.place -= PLACES;
                    }
                    if table[place] == NOBODY {
                        break place;
                    }
                };
                table[place] = turns.number;
                filled += 1;
                if filled == PLACES {
                    break;
                }
            }
        }
        Self { table }
    }

    /// The back end for a connection, by a hash of what it is known by. `None`: there is none.
    pub fn find(&self, hash: u64) -> Option<usize> {
        let number = self.table[(hash % PLACES as u64) as usize];
        (number != NOBODY).then_some(usize::from(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Maglev {
        /// Where the table is: another one is elsewhere.
        pub(crate) fn at(&self) -> *const u16 {
            self.table.as_ptr()
        }
    }

    fn shares(maglev: &Maglev, back_ends: usize) -> Vec<usize> {
        let mut shares = vec![0; back_ends];
        (0..PLACES as u64)
            .filter_map(|hash| maglev.find(hash))
            .for_each(|number| shares[number] += 1);
        shares
    }

    /// Balancers of other versions choose the same: who gets nothing changes nothing.
    #[test]
    fn who_gets_nothing_changes_nothing() {
        let few = Maglev::new(&[(10, 1), (11, 3)], 7);
        let many = Maglev::new(&[(1, 0), (10, 1), (2, 0), (11, 3), (3, 0)], 7);
        for hash in 0..PLACES as u64 {
            assert_eq!(few.find(hash).map(|number| [1, 3][number]), many.find(hash));
        }
    }

    #[test]
    fn by_weight() {
        let maglev = Maglev::new(&[(10, 1), (11, 2), (12, 0), (13, 1)], 7);
        let shares = shares(&maglev, 4);
        assert_eq!(shares[2], 0);
        for (share, expected) in [(shares[0], 0.25), (shares[1], 0.5), (shares[3], 0.25)] {
            assert!((share as f64 / PLACES as f64 - expected).abs() < 0.01, "{shares:?}");
        }
        assert_eq!(Maglev::new(&[(1, 0)], 7).find(3), None);
        assert_eq!(Maglev::new(&[], 7).find(3), None);
    }

    /// Section 5.3 of the paper: about the share of the one that went, and little else.
    #[test]
    fn few_change_when_one_goes() {
        let all: Vec<(u64, u16)> = (0..10).map(|name| (name, 1)).collect();
        let less: Vec<(u64, u16)> =
            all.iter().map(|(name, _)| (*name, u16::from(*name != 4))).collect();
        let (before, after) = (Maglev::new(&all, 1), Maglev::new(&less, 1));
        let moved =
            (0..PLACES as u64).filter(|hash| before.find(*hash) != after.find(*hash)).count();
        let share = moved as f64 / PLACES as f64;
        assert!((0.1..0.13).contains(&share), "{share}");
        assert!((0..PLACES as u64).all(|hash| after.find(hash) != Some(4)));
    }
}
