//! The ways to find what a page is made of, fed with the same requests and edits, and what comes of
//! each.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::site::{SCRIPTS, Source};

/// A way to find what a page is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The paper's: what the server opened while the request was in flight, intersected over all
    /// requests for the page (section 2.3).
    Contraction,
    /// What the server looked at while the request was in flight, but for what is proven to be
    /// another request's.
    Exact,
    /// What the server looked at while the request was in flight.
    Union,
    /// What [`Method::Exact`] finds, and every file that any process of the server has read before:
    /// it may be in memory that they share.
    Whole,
}

impl Method {
    /// All, in the order of the report.
    pub const ALL: [Self; 4] = [Self::Contraction, Self::Exact, Self::Union, Self::Whole];
    /// The methods whose sets differ in size, which figures show.
    pub const DRAWN: [Self; 3] = [Self::Contraction, Self::Exact, Self::Union];

    /// The method's name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Contraction => "the paper's contraction",
            Self::Exact => "nicache, exact",
            Self::Union => "nicache, union",
            Self::Whole => "exact + files read before",
        }
    }
}

/// What was seen of one request.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Files opened by the server while it was in flight.
    pub opened: BTreeSet<Source>,
    /// Files looked at while it was in flight, opened or not.
    pub looked_at: BTreeSet<Source>,
    /// Files looked at that are not proven to be another request's.
    pub own: BTreeSet<Source>,
}

/// How large the sets are after so many requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Pages that have a set.
    pub pages: usize,
    /// Pages whose set has another page's file.
    pub too_large: usize,
    /// The most files of other pages in one set.
    pub excess: usize,
}

/// What edits have led to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purges {
    /// Pages purged that were made of the edited file.
    pub right: u64,
    /// Pages purged that were not.
    pub wrong: u64,
    /// Pages not purged although they were.
    pub missed: u64,
    /// Replies not kept because of an edit of a file, while they were made, that they were not made
    /// of.
    pub refused: u64,
}

/// One method's knowledge.
#[derive(Debug)]
pub(super) struct Knowledge {
    method: Method,
    sets: HashMap<usize, BTreeSet<Source>>,
    /// Pages that are in the cache.
    cached: HashSet<usize>,
    /// Every file that was ever opened.
    read: BTreeSet<Source>,
    purges: Purges,
}

impl Knowledge {
    /// Nothing yet.
    pub(super) fn new(method: Method) -> Self {
        Self {
            method,
            sets: HashMap::new(),
            cached: HashSet::new(),
            read: BTreeSet::new(),
            purges: Purges::default(),
        }
    }

    /// A request for the page of this script was answered; `edited` was changed since it had been
    /// sent. Its reply is in the cache from now on, unless it may be older than an edit.
    pub(super) fn note(&mut self, script: usize, seen: &Seen, edited: &[Source]) {
        self.read.extend(&seen.opened);
        match self.method {
            Method::Contraction => {
                self.sets
                    .entry(script)
                    .and_modify(|set| set.retain(|source| seen.opened.contains(source)))
                    .or_insert_with(|| seen.opened.clone());
            }
            Method::Exact | Method::Whole => drop(self.sets.insert(script, seen.own.clone())),
            Method::Union => drop(self.sets.insert(script, seen.looked_at.clone())),
        }
        if edited.iter().any(|source| source.belongs_to(script)) {
            return;
        }
        // The paper has no such rule.
        if self.method != Method::Contraction
            && edited.iter().any(|source| self.depends(script, *source))
        {
            self.purges.refused += 1;
            return;
        }
        self.cached.insert(script);
    }

    fn depends(&self, script: usize, source: Source) -> bool {
        self.sets.get(&script).is_some_and(|set| set.contains(&source))
            || self.method == Method::Whole && self.read.contains(&source)
    }

    /// A file was changed: what depends on it, as far as is known, leaves the cache.
    pub(super) fn edit(&mut self, source: Source) {
        for script in (0..SCRIPTS).filter(|script| self.cached.contains(script)).collect::<Vec<_>>()
        {
            match (self.depends(script, source), source.belongs_to(script)) {
                (true, true) => self.purges.right += 1,
                (true, false) => self.purges.wrong += 1,
                (false, true) => self.purges.missed += 1,
                (false, false) => continue,
            }
            // One that was missed is counted once: the next request for it brings it back.
            self.cached.remove(&script);
        }
    }

    /// How large the sets are: of the files that belong to one script alone, as in the paper.
    pub(super) fn sizes(&self) -> Sizes {
        let excess = |(script, set): (&usize, &BTreeSet<Source>)| {
            set.iter()
                .filter(|source| matches!(source, Source::Data(_)) && !source.belongs_to(*script))
                .count()
        };
        let excesses: Vec<usize> = self.sets.iter().map(excess).collect();
        Sizes {
            pages: excesses.len(),
            too_large: excesses.iter().filter(|&&excess| excess > 0).count(),
            excess: excesses.into_iter().max().unwrap_or(0),
        }
    }

    /// What edits have led to so far.
    pub(super) fn purges(&self) -> Purges {
        self.purges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(opened: &[Source], looked_at: &[Source], own: &[Source]) -> Seen {
        let set = |sources: &[Source]| sources.iter().copied().collect();
        Seen { opened: set(opened), looked_at: set(looked_at), own: set(own) }
    }

    #[test]
    fn contraction_gets_small_and_misses_what_is_in_memory() {
        let mut known = Knowledge::new(Method::Contraction);
        let (data, include) = (Source::Data(3), Source::Include(3));
        known.note(3, &seen(&[data, include, Source::Data(4), Source::Data(5)], &[], &[]), &[]);
        assert_eq!(known.sizes(), Sizes { pages: 1, too_large: 1, excess: 2 });
        known.note(3, &seen(&[data, Source::Data(5)], &[], &[]), &[]);
        assert_eq!(known.sizes().excess, 1);
        known.edit(include);
        assert_eq!(known.purges(), Purges { right: 0, wrong: 0, missed: 1, refused: 0 });
        known.note(3, &seen(&[data], &[], &[]), &[]);
        known.edit(data);
        known.edit(data);
        assert_eq!(known.purges(), Purges { right: 1, wrong: 0, missed: 1, refused: 0 });
    }

    #[test]
    fn the_union_purges_what_it_need_not() {
        let (own, other) = (Source::Data(3), Source::Data(4));
        for (method, wrong) in [(Method::Union, 1), (Method::Exact, 0), (Method::Whole, 1)] {
            let mut known = Knowledge::new(method);
            known.note(3, &seen(&[other], &[own, other], &[own]), &[]);
            known.edit(other);
            assert_eq!(known.purges(), Purges { right: 0, wrong, missed: 0, refused: 0 });
            known.note(3, &seen(&[other], &[own, other], &[own]), &[other]);
            assert_eq!(known.purges().refused, wrong);
        }
    }
}
