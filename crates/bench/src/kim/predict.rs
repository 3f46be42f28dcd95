//! What a card's cache keeps off the bus, by playing back a trace (Kim et al. 2002, section 3 and Figure 3).
//!
//! The directory is the one that the host runs. The paper plays back requests one after the other; with infinite demand many sessions are served at once, which changes the order in
//! which blocks are used, and for some logs much. Both are predicted.

use nicache_host::{BLOCK_BYTES, Block, Directory, FileNumber, Found, Revision};
use nicache_policy::Lru;
use nicache_replay::{Sessions, Trace};

/// Caches of cards, with what was sent and what of it crossed.
struct Cards {
    directories: Vec<Directory>,
    sent: u64,
    crossed: u64,
}

impl Cards {
    fn new(cards: u32, memory_bytes: u64) -> Cards {
        let places = Directory::places_of(memory_bytes);
        let policy = || Box::new(Lru::new(u64::from(places) * BLOCK_BYTES, places));
        Cards { directories: (0..cards).map(|_| Directory::new(places, policy())).collect(), sent: 0, crossed: 0 }
    }

    /// A block of an object of so many bytes is sent in a session.
    fn send(&mut self, session: usize, object: u32, bytes: u64, index: u64) {
        let count = self.directories.len();
        let directory = &mut self.directories[session % count];
        let block = Block { file: FileNumber(object), index: index as u32 };
        let len = (bytes - block.offset()).min(BLOCK_BYTES);
        self.sent += len;
        directory.begin_packet();
        if !matches!(directory.find(block, Revision(1)), Found::Here(_)) {
            self.crossed += len;
            directory.insert(block, Revision(1));
        }
    }

    fn share_kept(&self) -> f64 {
        1.0 - self.crossed as f64 / self.sent.max(1) as f64
    }
}

/// Share of content that does not cross the bus, 0 to 1, if requests are served in the log's order. Sessions take turns at the cards.
pub fn share_in_order(trace: &Trace, sessions: &Sessions, cards: u32, memory_bytes: u64) -> f64 {
    let mut cards = Cards::new(cards, memory_bytes);
    let mut asked: Vec<(u64, usize, u32)> = Vec::with_capacity(sessions.requests_len());
    for index in 0..sessions.len() {
        let session = sessions.get(index);
        for request in sessions.requests(session).iter().filter(|request| !request.head) {
            let at_ns = session.begin_ns + u64::from(request.after_s) * 1_000_000_000;
            asked.push((at_ns, index, request.object));
        }
    }
    asked.sort_by_key(|(at_ns, ..)| *at_ns);
    for (_, session, object) in asked {
        let bytes = trace.objects[object as usize].bytes;
        (0..bytes.div_ceil(BLOCK_BYTES)).for_each(|index| cards.send(session, object, bytes, index));
    }
    cards.share_kept()
}

/// A session under way.
struct Active {
    session: usize,
    /// The requests that are left, and the next block of the first one.
    requests: std::vec::IntoIter<u32>,
    object: Option<u32>,
    block: u64,
}

/// The same if so many sessions are served at once, block by block in turn, and the next one begins when one ends.
pub fn share_at_once(trace: &Trace, sessions: &Sessions, cards: u32, memory_bytes: u64, clients: usize) -> f64 {
    let mut cards = Cards::new(cards, memory_bytes);
    let mut next = 0;
    let mut begin = || {
        (next < sessions.len()).then(|| {
            let asked = sessions.requests(sessions.get(next)).iter().filter(|request| !request.head);
            let requests: Vec<u32> = asked.map(|request| request.object).collect();
            next += 1;
            Active { session: next - 1, requests: requests.into_iter(), object: None, block: 0 }
        })
    };
    let mut active: Vec<Active> = std::iter::from_fn(&mut begin).take(clients).collect();
    while !active.is_empty() {
        active.retain_mut(|turn| {
            loop {
                let Some(object) = turn.object else {
                    (turn.object, turn.block) = (turn.requests.next(), 0);
                    if turn.object.is_some() {
                        continue;
                    }
                    match begin() {
                        Some(another) => *turn = another,
                        None => return false,
                    }
                    continue;
                };
                let bytes = trace.objects[object as usize].bytes;
                if turn.block >= bytes.div_ceil(BLOCK_BYTES) {
                    turn.object = None;
                    continue;
                }
                cards.send(turn.session, object, bytes, turn.block);
                turn.block += 1;
                return true;
            }
        });
    }
    cards.share_kept()
}

#[cfg(test)]
mod tests {
    use nicache_replay::{Record, SessionConfig, Verb};

    use super::*;

    fn shares(objects: &[u64], cards: u32, memory_bytes: u64, clients: usize) -> (f64, f64) {
        let mut trace = Trace::default();
        for (number, &object) in objects.iter().enumerate() {
            let (second, client) = (100 * number as u64, number as u64);
            trace.push(&Record { second, client, object, verb: Verb::Get, status: 200, bytes: Some(6000) }).unwrap();
        }
        let sessions = Sessions::of(&trace, &SessionConfig::default());
        let at_once = share_at_once(&trace, &sessions, cards, memory_bytes, clients);
        (share_in_order(&trace, &sessions, cards, memory_bytes), at_once)
    }

    #[test]
    fn worked_out_by_hand() {
        assert_eq!(shares(&[1, 1, 1, 1], 1, 8192, 1), (0.75, 0.75));
        assert_eq!(shares(&[1, 1, 1, 1], 2, 8192, 1), (0.5, 0.5), "each card has to get it");
        assert_eq!(shares(&[1, 2, 1, 2], 1, 8192, 1), (0.0, 0.0), "there is room for one");
        assert_eq!(shares(&[1, 2, 1, 2], 1, 16_384, 1), (0.5, 0.5));
        assert_eq!(shares(&[1, 1, 1, 1], 1, 0, 1), (0.0, 0.0));
        // With room for the first block alone, the second one takes its place each time. Two at once use each block together.
        assert_eq!(shares(&[1, 1], 1, 4096, 2), (0.0, 0.5));
        // One after the other they would do.
        assert_eq!(shares(&[1, 1, 2, 2], 1, 8192, 1), (0.5, 0.5));
        assert_eq!(shares(&[1, 2, 1, 2], 1, 8192, 4).1, 0.5);
    }
}
