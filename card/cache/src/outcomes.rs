//! What last became of a page that is not served from card memory, to tell an operator why.
//!
//! Tables of fixed size in which each page has one place: two that share it overwrite each other.
//! They are written when a fill ends or a request is passed, never for a hit, and read only on
//! request.

use nicache_coherence::RefusalReason;
use nicache_http::{BypassReason, Key, NotShared, UriKey};
use nicache_tcp::Time;

use crate::counters::FillAbort;

/// Pages remembered; a power of two.
const PLACES: usize = 4096;
/// Pages of which it is remembered what last became of any request for them; a power of two.
const PAGES: usize = 1024;

/// What became of a reply that might have been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is in card memory.
    Stored,
    /// The reply is the first of two that must agree.
    First,
    /// The reply differed from another although no source had changed.
    Differed,
    /// The reply's head says that it is not for everybody.
    NotShared(NotShared),
    /// The card gave up the fill.
    Aborted(FillAbort),
    /// The watcher refused to let the reply become an entry.
    Refused(RefusalReason),
}

/// What last became of a reply to a client.
#[derive(Debug)]
pub struct LastReply {
    page: UriKey,
    /// The whole head of the client's request.
    pub head: Vec<u8>,
    /// What became of the reply.
    pub outcome: Outcome,
    /// When the client's request was forwarded.
    pub at: Time,
}

/// What last became of pages that are not served from card memory, to tell an operator why. Fixed
/// in size: two pages that share a place overwrite each other.
pub(crate) struct Outcomes {
    places: Box<[Option<(Key, Outcome, Time)>]>,
    pages: Box<[Option<LastReply>]>,
}

/// Why the last request for a page was passed that the card did not look up.
pub struct Bypassed {
    pages: Box<[Option<(UriKey, BypassReason, Time)>]>,
}

impl Bypassed {
    /// None was passed.
    pub fn new() -> Self {
        Self { pages: vec![None; PAGES].into_boxed_slice() }
    }

    /// A request for the page is passed.
    pub fn note(&mut self, page: UriKey, reason: BypassReason, now: Time) {
        self.pages[place_of_page(page)] = Some((page, reason, now));
    }

    /// The last one.
    pub fn last(&self, page: UriKey) -> Option<(BypassReason, Time)> {
        self.pages[place_of_page(page)]
            .filter(|(known, ..)| *known == page)
            .map(|(_, reason, at)| (reason, at))
    }
}

impl Default for Bypassed {
    fn default() -> Self {
        Self::new()
    }
}

impl Outcomes {
    pub(crate) fn new() -> Self {
        let pages = std::iter::repeat_with(|| None).take(PAGES).collect();
        Self { places: vec![None; PLACES].into_boxed_slice(), pages }
    }

    /// Takes note of the end of a fill for `base`, and of the page and the head of the request if a
    /// client has sent it.
    pub(crate) fn note(
        &mut self,
        base: &Key,
        request: Option<(UriKey, &[u8])>,
        outcome: Outcome,
        now: Time,
    ) {
        self.places[place_of(base)] = Some((*base, outcome, now));
        let Some((page, request)) = request else { return };
        let place = &mut self.pages[place_of_page(page)];
        // The room of the one before is used again.
        let mut head = place.take().map_or_else(Vec::new, |before| before.head);
        head.clear();
        head.extend_from_slice(request);
        *place = Some(LastReply { page, head, outcome, at: now });
    }

    /// What last became of a reply for the page to any client.
    pub(crate) fn last_of_page(&self, page: UriKey) -> Option<&LastReply> {
        self.pages[place_of_page(page)].as_ref().filter(|last| last.page == page)
    }

    /// What last became of a reply for `base`, and of which request's time: when it was forwarded.
    pub(crate) fn last(&self, base: &Key) -> Option<(Outcome, Time)> {
        self.places[place_of(base)]
            .filter(|(key, ..)| key == base)
            .map(|(_, outcome, at)| (outcome, at))
    }
}

fn place_of_page(page: UriKey) -> usize {
    page.hash() as usize % PAGES
}

fn place_of(base: &Key) -> usize {
    base.low_u64() as usize % PLACES
}

#[cfg(test)]
mod tests {
    use nicache_http::KeyConfig;

    use super::*;

    #[test]
    fn the_last_outcome_is_told_and_no_other_pages() {
        let mut outcomes = Outcomes::new();
        let keys = KeyConfig::new([7; 16]);
        let page = keys.uri_of(keys.origin_of(b"a"), b"/");
        let key = |low: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&low.to_le_bytes());
            Key(bytes)
        };
        assert_eq!(outcomes.last(&key(1)), None);
        outcomes.note(&key(1), None, Outcome::First, Time(5));
        outcomes.note(
            &key(1),
            Some((page, b"GET")),
            Outcome::Refused(RefusalReason::Wrote),
            Time(6),
        );
        assert_eq!(outcomes.last(&key(1)), Some((Outcome::Refused(RefusalReason::Wrote), Time(6))));
        outcomes.note(&key(2), None, Outcome::Stored, Time(6));
        let last = outcomes.last_of_page(page).unwrap();
        assert_eq!((&*last.head, last.at), (&b"GET"[..], Time(6)));
        outcomes.note(&key(1 + PLACES as u64), Some((page, b"HEAD")), Outcome::Stored, Time(7));
        assert_eq!(outcomes.last_of_page(page).unwrap().head, b"HEAD");
        assert!(outcomes.last_of_page(UriKey::default()).is_none());
        assert_eq!(outcomes.last(&key(1)), None);
    }
}
