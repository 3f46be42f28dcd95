//! Requests that were read before: a head that is byte for byte the same means the same, and need
//! not be parsed again.
//!
//! Saves the parse, which takes some 120 ns for a plain request and 430 ns for a browser's. Only
//! heads of unconditional GET and HEAD requests that were hits are kept, and only where the head is
//! all that the segment holds. A head has two places by its hash: a newer one takes that which was
//! not used last, which costs a parse and nothing else.

use std::hash::BuildHasher;

use nicache_http::{ClientClass, Key, Signs};

/// Pairs of places; each place takes [`HEAD_BYTES`] and a few words.
const PAIRS: usize = 512;
/// Longer heads are parsed every time.
const HEAD_BYTES: usize = 704;

/// What a head means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The request's own key.
    pub key: Key,
    /// Of what class the client is, by its fields.
    pub class: ClientClass,
    /// What proxies have added.
    pub signs: Signs,
    /// HEAD, not GET.
    pub head_request: bool,
    /// The connection outlives the reply.
    pub keep_alive: bool,
    /// HTTP/1.0.
    pub http10: bool,
}

/// What the head means lies in front of its bytes, so a short one takes two cache lines.
#[repr(C, align(64))]
struct Place {
    len: u16,
    meaning: Meaning,
    bytes: [u8; HEAD_BYTES],
}

/// Heads and what they mean.
pub struct Memo {
    pairs: Box<[[Place; 2]]>,
    /// Which place of each pair was used last.
    last: Box<[u8]>,
    seed: foldhash::fast::FixedState,
}

impl Memo {
    /// An empty memo; `seed` keeps clients from choosing which heads share a place.
    pub fn new(seed: u64) -> Self {
        let class = ClientClass::default();
        let signs = Signs::default();
        let meaning = Meaning {
            key: Key([0; 16]),
            class,
            signs,
            head_request: false,
            keep_alive: false,
            http10: false,
        };
        let place = || Place { bytes: [0; HEAD_BYTES], len: 0, meaning };
        Self {
            pairs: (0..PAIRS).map(|_| [place(), place()]).collect(),
            last: vec![0; PAIRS].into_boxed_slice(),
            seed: foldhash::fast::FixedState::with_seed(seed),
        }
    }

    /// What `head` means, if it is known.
    #[inline]
    pub fn recall(&mut self, head: &[u8]) -> Option<Meaning> {
        if head.is_empty() || head.len() > HEAD_BYTES {
            return None;
        }
        let pair = self.pair_of(head);
        let last = usize::from(self.last[pair] & 1);
        let places = &self.pairs[pair];
        if places[last].holds(head) {
            return Some(places[last].meaning);
        }
        if places[1 - last].holds(head) {
            self.last[pair] = 1 - last as u8;
            return Some(places[1 - last].meaning);
        }
        None
    }

    /// Remembers a head that was parsed.
    pub fn note(&mut self, head: &[u8], meaning: Meaning) {
        if head.is_empty() || head.len() > HEAD_BYTES {
            return;
        }
        let pair = self.pair_of(head);
        self.last[pair] = 1 - (self.last[pair] & 1);
        let place = &mut self.pairs[pair][usize::from(self.last[pair])];
        place.bytes[..head.len()].copy_from_slice(head);
        place.len = head.len() as u16;
        place.meaning = meaning;
    }

    fn pair_of(&self, head: &[u8]) -> usize {
        self.seed.hash_one(head) as usize % PAIRS
    }
}

impl Place {
    #[inline]
    fn holds(&self, head: &[u8]) -> bool {
        self.bytes[..usize::from(self.len)] == *head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_are_recalled() {
        let mut memo = Memo::new(7);
        let meaning = Meaning {
            key: Key([9; 16]),
            class: ClientClass([1; 7]),
            signs: Signs::default(),
            head_request: false,
            keep_alive: true,
            http10: false,
        };
        assert_eq!(memo.recall(b"GET / HTTP/1.1\r\n\r\n"), None);
        memo.note(b"GET / HTTP/1.1\r\n\r\n", meaning);
        assert_eq!(memo.recall(b"GET / HTTP/1.1\r\n\r\n"), Some(meaning));
        assert_eq!(memo.recall(b"GET / HTTP/1.0\r\n\r\n"), None);
        assert_eq!(memo.recall(b"GET / HTTP/1.1\r\n\r\nG"), None);
        assert_eq!(memo.recall(b""), None);
        // Whatever shares its pair.
        for number in 0..4 * PAIRS {
            assert_eq!(memo.recall(b"GET / HTTP/1.1\r\n\r\n"), Some(meaning), "{number}");
            memo.note(format!("GET /{number} HTTP/1.1\r\n\r\n").as_bytes(), meaning);
        }
        memo.note(&[b'a'; HEAD_BYTES + 1], meaning);
        assert_eq!(memo.recall(&[b'a'; HEAD_BYTES + 1]), None);
    }
}
