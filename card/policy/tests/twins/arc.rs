//! ARC against figure 4 of Megiddo and Modha 2003 as it stands, for pages, and against lists that
//! are searched, for objects with sizes and calls in any order.

use nicache_policy::{Admission, Arc, Incoming, Key, Occupancy, Policy, Removal, TableFull};

use crate::twin::{calls, compare, endure_senseless_sizes, request};
use proptest::prelude::*;

/// Figure 4. Pages of size 1, most recently used in front.
#[derive(Default)]
struct Figure {
    c: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

fn take(list: &mut Vec<u64>, page: u64) -> bool {
    let at = list.iter().position(|&other| other == page);
    at.map(|at| list.remove(at)).is_some()
}

impl Figure {
    fn request(&mut self, x: u64) -> bool {
        if take(&mut self.t1, x) || take(&mut self.t2, x) {
            self.t2.insert(0, x);
            return true;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&x) {
            let delta = if b1 >= b2 { 1.0 } else { b2 / b1 };
            self.p = (self.p + delta).min(self.c as f64);
            self.replace(x);
            take(&mut self.b1, x);
            self.t2.insert(0, x);
        } else if self.b2.contains(&x) {
            let delta = if b2 >= b1 { 1.0 } else { b1 / b2 };
            self.p = (self.p - delta).max(0.0);
            self.replace(x);
            take(&mut self.b2, x);
            self.t2.insert(0, x);
        } else {
            let l1 = self.t1.len() + self.b1.len();
            let all = l1 + self.t2.len() + self.b2.len();
            if l1 == self.c {
                if self.t1.len() < self.c {
                    self.b1.pop();
                    self.replace(x);
                } else {
                    self.t1.pop();
                }
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop();
                }
                self.replace(x);
            }
            self.t1.insert(0, x);
        }
        false
    }

    fn replace(&mut self, x: u64) {
        let t1 = self.t1.len() as f64;
        if t1 >= 1.0 && (self.b2.contains(&x) && t1 == self.p || t1 > self.p) {
            self.b1.splice(0..0, self.t1.pop());
        } else {
            self.b2.splice(0..0, self.t2.pop());
        }
    }
}

/// ARC for objects with sizes, with lists that are searched, in the order of the trait's calls.
pub(crate) struct Lists {
    /// T1, T2, B1, B2; most recently used in front.
    lists: [Vec<(Key, u64)>; 4],
    p: f64,
    bytes_max: u64,
    objects_max: usize,
}

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

impl Lists {
    pub(crate) fn new(bytes_max: u64, objects_max: usize) -> Self {
        Self { lists: Default::default(), p: 0.0, bytes_max, objects_max }
    }
    fn find(&self, key: Key) -> Option<usize> {
        (0..4).find(|&list| self.lists[list].iter().any(|object| object.0 == key))
    }
    fn bytes(&self, lists: &[usize]) -> u128 {
        lists.iter().flat_map(|&list| &self.lists[list]).map(|object| u128::from(object.1)).sum()
    }
    fn objects(&self, lists: &[usize]) -> usize {
        lists.iter().map(|&list| self.lists[list].len()).sum()
    }
    fn take(&mut self, key: Key) -> Option<(Key, u64)> {
        let list = self.find(key)?;
        let at = self.lists[list].iter().position(|object| object.0 == key)?;
        Some(self.lists[list].remove(at))
    }
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }
    fn bound(&mut self) {
        let c = u128::from(self.bytes_max);
        while (self.bytes(&[T1, B1]) > c || self.objects(&[T1, B1]) > self.objects_max)
            && !self.lists[B1].is_empty()
        {
            self.lists[B1].pop();
        }
        while (self.bytes(&[T1, T2, B1, B2]) > 2 * c
            || self.objects(&[T1, T2, B1, B2]) > 2 * self.objects_max)
            && self.objects(&[B1, B2]) > 0
        {
            let list = if self.lists[B2].is_empty() { B1 } else { B2 };
            self.lists[list].pop();
        }
    }
}

impl Policy for Lists {
    fn name(&self) -> &'static str {
        "model"
    }
    fn contains(&self, key: Key) -> bool {
        self.find(key).is_some_and(|list| list < B1)
    }
    fn handle_hit(&mut self, key: Key) {
        if self.contains(key) {
            let object = self.take(key).unwrap();
            self.lists[T2].insert(0, object);
        }
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        if let Some(list @ (B1 | B2)) = self.find(key) {
            let size = self.lists[list].iter().find(|object| object.0 == key).unwrap().1 as f64;
            let (b1, b2) = (self.bytes(&[B1]) as f64, self.bytes(&[B2]) as f64);
            if size > 0.0 && list == B1 {
                self.p = (self.p + size * if b1 >= b2 { 1.0 } else { b2 / b1 })
                    .min(self.bytes_max as f64);
            } else if size > 0.0 {
                self.p = (self.p - size * if b2 >= b1 { 1.0 } else { b1 / b2 }).max(0.0);
            }
        }
        self.admits(bytes.unwrap_or(0))
    }
    fn handle_reply(&mut self, _: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        if !self.contains(key) && self.objects(&[T1, T2]) == self.objects_max {
            return Err(TableFull);
        }
        let list = if self.take(key).is_some() { T2 } else { T1 };
        self.lists[list].insert(0, (key, bytes));
        self.bound();
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal == Removal::Purged {
            self.take(key);
        } else if removal == Removal::Evicted
            && let Some(list @ (T1 | T2)) = self.find(key)
        {
            let object = self.take(key).unwrap();
            self.lists[list + B1].insert(0, object);
            self.bound();
        }
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let key = incoming.map(|incoming| incoming.key);
        let is_in_b2 = key.is_some_and(|key| self.find(key) == Some(B2));
        let t1 = self.bytes(&[T1]) as f64;
        let first = if t1 > self.p || (t1 == self.p && is_in_b2) { T1 } else { T2 };
        let last = |list: usize| {
            self.lists[list].iter().rev().map(|object| object.0).find(|&other| Some(other) != key)
        };
        last(first).or_else(|| last(T1 + T2 - first))
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.bytes(&[T1, T2]) as u64;
        Occupancy { objects: self.objects(&[T1, T2]), bytes, ghosts: self.objects(&[B1, B2]) }
    }
}

proptest! {
    #[test]
    fn with_pages_it_is_the_papers(
        c in 1usize..10,
        pages in prop::collection::vec(prop_oneof![0u64..6, 0u64..30], 0..600),
    ) {
        let mut figure = Figure { c, ..Figure::default() };
        let mut arc = Arc::new(c as u64, c as u32);
        for page in pages {
            prop_assert_eq!(request(&mut arc, page, 1, c as u64).0, figure.request(page));
            for page in 0..30 {
                let is_there = figure.t1.contains(&page) || figure.t2.contains(&page);
                prop_assert_eq!(arc.contains(Key(page)), is_there);
            }
            prop_assert_eq!(arc.occupancy().ghosts, figure.b1.len() + figure.b2.len());
        }
    }

    #[test]
    fn behaves_like_searched_lists(objects_max in 1u32..12, calls in calls()) {
        let ghosts_max = 2 * objects_max as usize;
        let mut model = Lists::new(1000, objects_max as usize);
        compare(&mut Arc::new(1000, objects_max), &mut model, 1000, ghosts_max, calls)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Arc::new);
}
