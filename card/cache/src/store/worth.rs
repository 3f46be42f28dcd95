//! Pages that are purged more often than they are used: not worth the server's work for the card,
//! and put aside for a while (the "too dynamic" files of bos2009).
//!
//! A purge is *wasted* if the entry had fewer than [`HITS_MIN`] hits since the server last said it;
//! so is a try to have the page again that comes to nothing, because something has changed
//! meanwhile (one in [`TRY`]: while a change is under way every try comes to nothing). After
//! [`WASTED_MAX`] wasted purges in a row the page goes to the server like one that was never asked
//! for; the first time for [`FIRST`], each time twice as long. One purge that was worth it, and all
//! is forgotten.

use std::time::Duration;

use nicache_http::Key;
use nicache_tcp::Time;

use super::remembered::Remembered;

/// An entry costs the server one request more than no entry: below this many hits it saved nothing.
const HITS_MIN: u32 = 2;
/// Wasted purges in a row after which a page is put aside.
const WASTED_MAX: u8 = 4;
const FIRST: Duration = Duration::from_secs(2);
const DOUBLINGS_MAX: u32 = 6;
/// Tries within this time after another one that came to nothing say nothing new.
const TRY: Duration = Duration::from_secs(1);
/// Pages remembered.
const PAGES_MAX: usize = 4096;

#[derive(Default)]
struct Page {
    wasted: u8,
    times: u32,
    put_aside_until: Time,
    tried: Option<Time>,
}

/// What is remembered of pages that were purged.
pub(super) struct Worth {
    pages: Remembered<Key, Page>,
}

impl Worth {
    pub(super) fn new() -> Self {
        Self { pages: Remembered::new(PAGES_MAX) }
    }

    /// Is the page put aside now?
    pub(super) fn is_put_aside(&self, key: &Key, now: Time) -> bool {
        self.put_aside_until(key).is_some_and(|until| now < until)
    }

    /// Until when the page is put aside; may be over.
    pub(super) fn put_aside_until(&self, key: &Key) -> Option<Time> {
        self.pages.get(key).map(|page| page.put_aside_until)
    }

    /// An entry is purged after so many hits. True if its page is put aside from now on.
    pub(super) fn note_purge(&mut self, key: &Key, hits: u32, now: Time) -> bool {
        if hits >= HITS_MIN {
            self.pages.forget(key);
            return false;
        }
        let page = self.pages.get_or_insert(*key, Page::default);
        page.wasted += 1;
        if page.wasted < WASTED_MAX {
            return false;
        }
        page.wasted = 0;
        page.put_aside_until = now + FIRST * (1 << page.times.min(DOUBLINGS_MAX));
        page.times += 1;
        true
    }

    /// A try to have the page again came to nothing. True if it is put aside from now on.
    pub(super) fn note_try(&mut self, key: &Key, now: Time) -> bool {
        let page = self.pages.get_or_insert(*key, Page::default);
        if page.tried.is_some_and(|tried| now < tried + TRY) {
            return false;
        }
        page.tried = Some(now);
        self.note_purge(key, 0, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; 16]);

    #[test]
    fn tries_during_one_change_count_once() {
        let mut worth = Worth::new();
        let mut now = Time(1);
        for _ in 1..WASTED_MAX {
            for step in 0..10 {
                assert!(!worth.note_try(&KEY, now + Duration::from_millis(step)));
            }
            now += TRY;
        }
        assert!(worth.note_try(&KEY, now) && worth.is_put_aside(&KEY, now));
    }

    /// Purges in a row, without hits, until the page is put aside.
    fn wear_out(worth: &mut Worth, now: Time) {
        for _ in 1..WASTED_MAX {
            assert!(!worth.note_purge(&KEY, HITS_MIN - 1, now) && !worth.is_put_aside(&KEY, now));
        }
        assert!(worth.note_purge(&KEY, 0, now) && worth.is_put_aside(&KEY, now));
    }

    #[test]
    fn a_page_that_is_never_used_is_put_aside_for_longer_and_longer() {
        let mut worth = Worth::new();
        let mut now = Time(1);
        for times in 0..10 {
            wear_out(&mut worth, now);
            let over = now + FIRST * (1 << times.min(DOUBLINGS_MAX));
            assert!(worth.is_put_aside(&KEY, Time(over.0 - 1)) && !worth.is_put_aside(&KEY, over));
            now = over;
        }
    }

    #[test]
    fn a_page_that_is_used_recovers() {
        let mut worth = Worth::new();
        wear_out(&mut worth, Time(1));
        let later = Time(1) + FIRST;
        assert!(!worth.note_purge(&KEY, HITS_MIN, later));
        wear_out(&mut worth, later);
        // As the first time.
        assert!(!worth.is_put_aside(&KEY, later + FIRST));
    }

    #[test]
    fn others_are_not_concerned_and_memory_is_bounded() {
        let mut worth = Worth::new();
        for number in 0..2 * PAGES_MAX as u64 + 5 {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&number.to_le_bytes());
            worth.note_purge(&Key(key), 0, Time(1));
        }
        assert_eq!(worth.pages.len(), (PAGES_MAX, PAGES_MAX));
        assert!(!worth.is_put_aside(&KEY, Time(1)));
    }
}
