//! Which back ends of a service have a name: exactly, by the end of it, or because nobody else has
//! it.
//!
//! An exact name comes before `*.end`, and a longer end before a shorter one. Back ends with the
//! same names are a *set*, among which a connection is balanced.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::first_bytes::name::Name;

/// Names of a service at most.
pub const NAMES_MAX: usize = 4096;
/// Sets of a service at most; each has a table of 128 KiB.
pub const SETS_MAX: usize = 64;

/// A name as it is set up: `shop.example` or `*.shop.example`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    name: Name,
    is_end: bool,
}

impl Pattern {
    /// Reads a name, or `*.` and the end of names. `None`: the text is neither.
    pub fn new(text: &str) -> Option<Self> {
        let (rest, is_end) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let name =
            if is_end { Name::new(rest.as_bytes()) } else { Name::of_authority(rest.as_bytes()) };
        // A port is said by the service.
        let has_port = !rest.starts_with('[') && rest.contains(':');
        Some(Self { name: name.filter(|_| !has_port)?, is_end })
    }
}

/// Why names are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// See [`NAMES_MAX`].
    #[error("a service has at most {NAMES_MAX} names")]
    TooMany,
    /// See [`SETS_MAX`].
    #[error("a service has at most {SETS_MAX} groups of back ends with the same names")]
    TooManySets,
}

/// Which back ends of a service have a name: exactly, by the end of it, or because nobody else has
/// it. An exact name comes first, then the longest end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    exact: HashMap<Name, u16, FixedState>,
    ends: HashMap<Name, u16, FixedState>,
    others: Option<u16>,
    sets: Vec<Vec<u16>>,
}

impl Names {
    /// From what each back end has, in their order; one without names has all that nobody else has.
    ///
    /// # Errors
    /// See [`NamesError`].
    pub fn new(back_ends: &[Vec<Pattern>]) -> Result<Self, NamesError> {
        let mut holders: HashMap<Option<&Pattern>, Vec<u16>, FixedState> = HashMap::default();
        for (number, patterns) in (0u16..).zip(back_ends) {
            let unnamed = patterns.is_empty().then_some(None);
            for pattern in patterns.iter().map(Some).chain(unnamed) {
                let of = holders.entry(pattern).or_default();
                if of.last() != Some(&number) {
                    of.push(number);
                }
            }
        }
        if holders.len() > NAMES_MAX {
            return Err(NamesError::TooMany);
        }
        let mut names = Self::default();
        // In an order that does not depend on the table's.
        let mut holders: Vec<_> = holders.into_iter().collect();
        holders.sort_by(|a, b| a.1.cmp(&b.1));
        for (pattern, back_ends) in holders {
            let set = match names.sets.iter().position(|known| *known == back_ends) {
                Some(set) => set,
                None => {
                    names.sets.push(back_ends);
                    names.sets.len() - 1
                }
            } as u16;
            match pattern {
                None => names.others = Some(set),
                Some(Pattern { name, is_end: false }) => {
                    names.exact.insert(name.clone(), set);
                }
                Some(Pattern { name, is_end: true }) => drop(names.ends.insert(name.clone(), set)),
            }
        }
        if names.sets.len() > SETS_MAX { Err(NamesError::TooManySets) } else { Ok(names) }
    }

    /// The set of those that have a name, or of those that have what nobody else has. `None`:
    /// nobody has it.
    pub fn find(&self, name: Option<&Name>) -> Option<u16> {
        let Some(name) = name else { return self.others };
        if let Some(set) = self.exact.get(name) {
            return Some(*set);
        }
        let mut rest = name.as_bytes();
        while let Some(dot) =
            rest.iter().position(|byte| *byte == b'.').filter(|_| !self.ends.is_empty())
        {
            rest = &rest[dot + 1..];
            if let Some(set) = Name::new(rest).and_then(|end| self.ends.get(&end)) {
                return Some(*set);
            }
        }
        self.others
    }

    /// The back ends of each set.
    pub fn sets(&self) -> &[Vec<u16>] {
        &self.sets
    }

    /// How many names there are, without those that nobody else has.
    pub fn len(&self) -> usize {
        self.exact.len() + self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_counts() {
        let patterns =
            |all: &[&str]| all.iter().map(|text| Pattern::new(text).unwrap()).collect::<Vec<_>>();
        let back_ends = [
            patterns(&["shop.example", "*.example"]),
            patterns(&["*.shop.example", "shop.example"]),
            patterns(&[]),
            patterns(&["*.example"]),
            patterns(&[]),
        ];
        let names = Names::new(&back_ends).unwrap();
        let of = |text: &str| {
            names
                .find(Some(&Name::new(text.as_bytes()).unwrap()))
                .map(|set| names.sets()[set as usize].clone())
        };
        assert_eq!(of("shop.example"), Some(vec![0, 1]));
        assert_eq!(of("a.shop.example"), Some(vec![1]));
        assert_eq!(of("b.a.shop.example"), Some(vec![1]));
        assert_eq!(of("other.example"), Some(vec![0, 3]));
        assert_eq!(of("example"), Some(vec![2, 4]));
        assert_eq!(
            names.find(None).map(|set| names.sets()[set as usize].clone()),
            Some(vec![2, 4])
        );
        let strict = Names::new(&back_ends[..2]).unwrap();
        assert_eq!((strict.find(None), strict.find(Some(&Name::new(b"x").unwrap()))), (None, None));
        for odd in ["", "*", "*.", "a*.b", "a b", "a:80", "*.*.a"] {
            assert_eq!(Pattern::new(odd), None, "{odd}");
        }
    }
}
