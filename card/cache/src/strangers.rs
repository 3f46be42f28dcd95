//! Names of headers and cookies that keep requests from the card, so an operator can say what
//! they are. Never their values.
//!
//! The names that come most often, with counts that are too high by no more than that of the name
//! whose place was taken (Metwally, Agrawal, El Abbadi, "Efficient computation of frequent and
//! top-k elements in data streams", 2005).

use arrayvec::ArrayVec;
use nicache_http::{Stranger, UriKey};

/// Names kept.
const NAMES_MAX: usize = 64;
/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 64;
/// Pages of which it is remembered what last kept a request for them from the card.
const PAGES_MAX: usize = 1024;

/// A name that is not known to be harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrangeName {
    /// Of a cookie, not of a header.
    pub is_cookie: bool,
    /// The name, cut to 64 bytes.
    pub name: ArrayVec<u8, NAME_BYTES_MAX>,
}

impl StrangeName {
    fn of(stranger: Stranger<'_>) -> Self {
        let (is_cookie, bytes) = match stranger {
            Stranger::Header(name) => (false, name),
            Stranger::Cookie(name) => (true, name),
        };
        let mut name: ArrayVec<u8, NAME_BYTES_MAX> =
            bytes.iter().take(NAME_BYTES_MAX).copied().collect();
        if !is_cookie {
            name.make_ascii_lowercase();
        }
        Self { is_cookie, name }
    }
}

/// Names of headers and cookies that keep requests from the card, those that come most often, with
/// how often they came.
pub struct Strangers {
    names: Vec<(StrangeName, u64)>,
    /// Names of which the operator has not been told yet.
    new: Vec<StrangeName>,
    told: u64,
    pages: Box<[Option<(UriKey, StrangeName)>]>,
}

/// Names that an operator is told of as they come; more are in the table only.
const TOLD_MAX: u64 = 100;

impl Strangers {
    /// A table without names; takes the memory for all of them.
    pub fn new() -> Self {
        Self {
            names: Vec::with_capacity(NAMES_MAX),
            new: Vec::with_capacity(NAMES_MAX),
            told: 0,
            pages: vec![None; PAGES_MAX].into_boxed_slice(),
        }
    }

    /// A request for this page has a header or a cookie of that name.
    pub fn note(&mut self, page: UriKey, stranger: Stranger<'_>) {
        let stranger = StrangeName::of(stranger);
        self.pages[page.hash() as usize % PAGES_MAX] = Some((page, stranger.clone()));
        if let Some((_, count)) = self.names.iter_mut().find(|(known, _)| *known == stranger) {
            *count += 1;
            return;
        }
        if self.new.len() < NAMES_MAX && self.told < TOLD_MAX {
            self.told += 1;
            self.new.push(stranger.clone());
        }
        if self.names.len() < NAMES_MAX {
            self.names.push((stranger, 1));
        } else if let Some(rarest) = self.names.iter_mut().min_by_key(|(_, count)| *count) {
            *rarest = (stranger, rarest.1 + 1);
        }
    }

    /// What last kept a request for the page from the card.
    pub fn of_page(&self, page: UriKey) -> Option<&StrangeName> {
        let (known, stranger) = self.pages[page.hash() as usize % PAGES_MAX].as_ref()?;
        (*known == page).then_some(stranger)
    }

    /// All names with their counts.
    pub fn names(&self) -> &[(StrangeName, u64)] {
        &self.names
    }

    /// Takes a name of which the operator has not been told yet. Only the first 100 names are told.
    pub fn take_new(&mut self) -> Option<StrangeName> {
        self.new.pop()
    }
}

impl Default for Strangers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use nicache_http::KeyConfig;

    use super::*;

    fn page(path: &str) -> UriKey {
        let keys = KeyConfig::new([7; 16]);
        keys.uri_of(keys.origin_of(b"a"), path.as_bytes())
    }

    #[test]
    fn what_comes_often_stays_and_nothing_grows() {
        let mut strangers = Strangers::new();
        for number in 0..1000_u32 {
            strangers.note(page("/"), Stranger::Header(b"X-Often"));
            strangers.note(
                page(&format!("/{number}")),
                Stranger::Cookie(format!("c{number}").as_bytes()),
            );
        }
        assert_eq!(strangers.names().len(), NAMES_MAX);
        let often =
            strangers.names().iter().find(|(known, _)| known.name[..] == *b"x-often").unwrap();
        assert_eq!((often.1, often.0.is_cookie), (1000, false));
        assert!(strangers.of_page(page("/999")).unwrap().name[..] == *b"c999");
        assert!(std::iter::from_fn(|| strangers.take_new()).count() <= NAMES_MAX);
        strangers.note(page("/long"), Stranger::Header(&[b'x'; 300]));
        assert_eq!(strangers.of_page(page("/long")).unwrap().name.len(), NAME_BYTES_MAX);
        assert_eq!(strangers.of_page(page("/never")), None);
    }
}
