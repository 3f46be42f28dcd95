//! What a card's cache keeps off the bus, by playing back a trace (Kim et al. 2002, section 3 and
//! Figure 3).
//!
//! The directory is the one that the host runs. The paper plays back requests one after the other;
//! with infinite demand many sessions are served at once, which changes the order in which blocks
//! are used, and for some logs much. Both are predicted.

use nicache_host::{BLOCK_BYTES, Block, Directory, FileNumber, Found, Revision};
use nicache_policy::Lru;
use nicache_replay::{SessionRequest, Sessions, Trace};

/// Caches of cards, with what was sent and what of it crossed.
struct Cards {
    directories: Vec<Directory>,
    sent: u64,
    crossed: u64,
}

impl Cards {
    fn new(cards: u32, memory_bytes: u64) -> Self {
        let places = Directory::places_of(memory_bytes);
        let policy = || Box::new(Lru::new(u64::from(places) * BLOCK_BYTES, places));
        Self {
            directories: (0..cards).map(|_| Directory::new(places, policy())).collect(),
            sent: 0,
            crossed: 0,
        }
    }

    /// Bytes of an object of so many bytes are sent in a session. A block that is not there crosses
    /// whole, if there is room for it.
    fn send(&mut self, session: usize, object: u32, bytes: u64, (from, to): (u64, u64)) {
        let count = self.directories.len();
        let directory = &mut self.directories[session % count];
        self.sent += to - from;
        for index in from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES) {
            let block = Block { file: FileNumber(object), index: index as u32 };
            directory.begin_packet();
            if !matches!(directory.find(block, Revision(1)), Found::Here(_)) {
                let end = bytes.min(block.offset() + BLOCK_BYTES);
                self.crossed += match directory.insert(block, Revision(1)) {
                    Some(_) => end - block.offset(),
                    None => to.min(end) - from.max(block.offset()),
                };
            }
        }
    }

    fn share_kept(&self) -> f64 {
        1.0 - self.crossed as f64 / self.sent.max(1) as f64
    }
}

/// Share of content that does not cross the bus, 0 to 1, if requests are served in the log's order.
/// Sessions take turns at the cards.
pub(super) fn share_in_order(
    trace: &Trace,
    sessions: &Sessions,
    cards: u32,
    memory_bytes: u64,
) -> f64 {
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
        cards.send(session, object, bytes, (0, bytes));
    }
    cards.share_kept()
}

/// Bytes that TCP sends before the first acknowledgment (RFC 6928), of segments with timestamps.
const FIRST_WINDOW_BYTES: u64 = 10 * 1448;
/// Bytes that the host has under way for one connection at most.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// A session under way.
struct Active {
    session: usize,
    /// The requests that are left, and where in the reply to the first one it is.
    requests: std::vec::IntoIter<SessionRequest>,
    reply: Option<SessionRequest>,
    at: u64,
    /// Bytes that it sends in its next turn.
    window: u64,
}

/// Share of content kept off the bus if so many sessions are served at once, and the next one
/// begins when one ends. In its turn each sends what slow start allows, twice as much as in the one
/// before, and at most the batch that was asked for.
pub(super) fn share_at_once(
    trace: &Trace,
    sessions: &Sessions,
    cards: u32,
    memory_bytes: u64,
    clients: usize,
) -> f64 {
    let mut cards = Cards::new(cards, memory_bytes);
    let mut next = 0;
    let mut begin = || {
        (next < sessions.len()).then(|| {
            let requests = sessions.requests(sessions.get(next)).to_vec().into_iter();
            next += 1;
            Active { session: next - 1, requests, reply: None, at: 0, window: FIRST_WINDOW_BYTES }
        })
    };
    let mut active: Vec<Active> = std::iter::from_fn(&mut begin).take(clients).collect();
    while !active.is_empty() {
        active.retain_mut(|turn| {
            let mut left = turn.window;
            while left > 0 {
                let Some(reply) = turn.reply else {
                    (turn.reply, turn.at) = (turn.requests.next(), 0);
                    if turn.reply.is_some() {
                        continue;
                    }
                    match begin() {
                        Some(another) => *turn = another,
                        None => return false,
                    }
                    left = turn.window;
                    continue;
                };
                let bytes = if reply.head { 0 } else { trace.objects[reply.object as usize].bytes };
                let to = bytes.min(turn.at + left);
                cards.send(turn.session, reply.object, bytes, (turn.at, to));
                left -= to - turn.at;
                turn.at = to;
                if to == bytes {
                    turn.reply = None;
                    // The next batch is asked for when this one is there.
                    if reply.ends_batch {
                        break;
                    }
                }
            }
            turn.window = (2 * turn.window).min(WINDOW_BYTES_MAX);
            true
        });
    }
    cards.share_kept()
}

#[cfg(test)]
mod tests {
    use nicache_replay::SessionConfig;
    use nicache_trace::{Record, Verb};

    use super::*;

    fn shares_of(
        bytes: u64,
        objects: &[u64],
        cards: u32,
        memory_bytes: u64,
        clients: usize,
    ) -> (f64, f64) {
        let mut trace = Trace::default();
        for (number, &object) in objects.iter().enumerate() {
            let (second, client) = (100 * number as u64, number as u64);
            let (time_us, verb, bytes) = (second * 1_000_000, Verb::Get, Some(bytes));
            trace
                .push(&Record {
                    time_us,
                    client,
                    object,
                    verb,
                    status: 200,
                    bytes,
                    ..Record::default()
                })
                .unwrap();
        }
        let sessions = Sessions::of(&trace, &SessionConfig::default());
        let at_once = share_at_once(&trace, &sessions, cards, memory_bytes, clients);
        (share_in_order(&trace, &sessions, cards, memory_bytes), at_once)
    }

    fn shares(objects: &[u64], cards: u32, memory_bytes: u64, clients: usize) -> (f64, f64) {
        shares_of(6000, objects, cards, memory_bytes, clients)
    }

    /// Five blocks, and room for four: who comes second finds none. Two at once use the first four
    /// in their first turns, and the last one in their second.
    #[test]
    fn two_at_once_share_what_one_after_the_other_does_not() {
        assert_eq!(shares_of(20_000, &[1, 1], 1, 16_384, 2), (0.0, 0.5));
        assert_eq!(shares_of(20_000, &[1, 1], 1, 16_384, 1), (0.0, 0.0));
    }

    #[test]
    fn worked_out_by_hand() {
        assert_eq!(shares(&[1, 1, 1, 1], 1, 8192, 1), (0.75, 0.75));
        assert_eq!(shares(&[1, 1, 1, 1], 2, 8192, 1), (0.5, 0.5), "each card has to get it");
        assert_eq!(shares(&[1, 2, 1, 2], 1, 8192, 1), (0.0, 0.0), "there is room for one");
        assert_eq!(shares(&[1, 2, 1, 2], 1, 16_384, 1), (0.5, 0.5));
        assert_eq!(shares(&[1, 1, 1, 1], 1, 0, 1), (0.0, 0.0));
        // One after the other they would do.
        assert_eq!(shares(&[1, 1, 2, 2], 1, 8192, 1), (0.5, 0.5));
    }
}
