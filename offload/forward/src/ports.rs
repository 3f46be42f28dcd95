//! External ports, each given to one user at a time (invariant F6).

use std::ops::RangeInclusive;

const WORD: usize = 64;

/// The ports of one protocol at one external address.
#[derive(Debug)]
pub struct Ports {
    range: RangeInclusive<u16>,
    /// A bit for each port; those outside of the range are set for good.
    used: Box<[u64; 65_536 / WORD]>,
    free: u32,
}

impl Ports {
    /// All of a range, free. An empty range has none.
    pub fn new(range: RangeInclusive<u16>) -> Self {
        let mut used = Box::new([u64::MAX; 65_536 / WORD]);
        let mut free = 0;
        for port in range.clone() {
            used[usize::from(port) / WORD] &= !(1 << (usize::from(port) % WORD));
            free += 1;
        }
        Self { range, used, free }
    }

    /// Ports that nobody has.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Whether somebody may be given the port at all.
    pub fn contains(&self, port: u16) -> bool {
        self.range.contains(&port)
    }

    /// Takes the port that is wanted, or else the first free one from where `random` points, which
    /// strangers then cannot guess (RFC 6056).
    pub fn take(&mut self, wanted: u16, random: u32) -> Option<u16> {
        if self.is_free(wanted) {
            self.set(wanted);
            return Some(wanted);
        }
        if self.free == 0 {
            return None;
        }
        let span = u32::from(*self.range.end()) - u32::from(*self.range.start()) + 1;
        let start = usize::from(*self.range.start()) + (random % span) as usize;
        let words = self.used.len();
        // The word that it begins in comes twice: its upper bits first, and its lower ones last.
        for step in 0..=words {
            let at = (start / WORD + step) % words;
            let above = u64::MAX << (start % WORD);
            let mask = match step {
                0 => above,
                _ if step == words => !above,
                _ => u64::MAX,
            };
            let open = !self.used[at] & mask;
            if open != 0 {
                let port = (at * WORD) as u16 + open.trailing_zeros() as u16;
                self.set(port);
                return Some(port);
            }
        }
        None
    }

    /// Gives a port back.
    pub fn release(&mut self, port: u16) {
        let bit = 1 << (usize::from(port) % WORD);
        let word = &mut self.used[usize::from(port) / WORD];
        debug_assert!(*word & bit != 0, "port {port} is free already");
        if *word & bit != 0 && self.range.contains(&port) {
            *word &= !bit;
            self.free += 1;
        }
    }

    fn is_free(&self, port: u16) -> bool {
        self.used[usize::from(port) / WORD] & 1 << (usize::from(port) % WORD) == 0
    }

    fn set(&mut self, port: u16) {
        self.used[usize::from(port) / WORD] |= 1 << (usize::from(port) % WORD);
        self.free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_of_them_and_no_more() {
        for range in [0..=65_535, 1024..=65_535, 60_000..=60_000, 100..=355] {
            let count = range.clone().count();
            let mut ports = Ports::new(range.clone());
            let taken: BTreeSet<u16> =
                (0..count).map(|number| ports.take(7, number as u32 * 40_503).unwrap()).collect();
            assert_eq!(taken.len(), count);
            assert!(taken.iter().all(|port| range.contains(port)));
            assert_eq!((ports.take(7, 9), ports.free()), (None, 0));
        }
    }

    proptest! {
        #[test]
        fn as_a_set(
            steps in proptest::collection::vec((any::<bool>(), 990u16..1100, any::<u32>()), 0..300),
        ) {
            let mut ports = Ports::new(1000..=1080);
            let mut model = BTreeSet::new();
            for (take, port, random) in steps {
                if take {
                    let given = ports.take(port, random);
                    if (1000..=1080).contains(&port) && !model.contains(&port) {
                        prop_assert_eq!(given, Some(port));
                    }
                    prop_assert_eq!(given.is_none(), model.len() == 81);
                    if let Some(given) = given {
                        prop_assert!((1000..=1080).contains(&given) && model.insert(given));
                    }
                } else if model.remove(&port) {
                    ports.release(port);
                }
                prop_assert_eq!(ports.free() as usize, 81 - model.len());
            }
        }
    }
}
