//! What a card's cache keeps off the bus, by playing back a trace in order (Kim et al. 2002, section 3 and Figure 3).
//!
//! The directory is the one that the host runs.

use nicache_host::{BLOCK_BYTES, Block, Directory, FileNumber, Found, Revision};
use nicache_policy::Lru;
use nicache_replay::{Sessions, Trace};

/// Share of content that does not cross the bus, 0 to 1. Sessions take turns at the cards.
pub fn share_kept(trace: &Trace, sessions: &Sessions, cards: u32, memory_bytes: u64) -> f64 {
    let places = Directory::places_of(memory_bytes);
    let policy = || Box::new(Lru::new(u64::from(places) * BLOCK_BYTES, places));
    let mut directories: Vec<Directory> = (0..cards).map(|_| Directory::new(places, policy())).collect();
    let mut asked: Vec<(u64, usize, u32)> = Vec::with_capacity(sessions.requests_len());
    for index in 0..sessions.len() {
        let session = sessions.get(index);
        for request in sessions.requests(session).iter().filter(|request| !request.head) {
            let at_ns = session.begin_ns + u64::from(request.after_s) * 1_000_000_000;
            asked.push((at_ns, index, request.object));
        }
    }
    asked.sort_by_key(|(at_ns, ..)| *at_ns);
    let (mut sent, mut crossed) = (0, 0);
    for (_, session, object) in asked {
        let directory = &mut directories[session % cards as usize];
        let bytes = trace.objects[object as usize].bytes;
        sent += bytes;
        for index in 0..bytes.div_ceil(BLOCK_BYTES) {
            let block = Block { file: FileNumber(object), index: index as u32 };
            directory.begin_packet();
            if !matches!(directory.find(block, Revision(1)), Found::Here(_)) {
                crossed += (bytes - block.offset()).min(BLOCK_BYTES);
                directory.insert(block, Revision(1));
            }
        }
    }
    1.0 - crossed as f64 / sent.max(1) as f64
}

#[cfg(test)]
mod tests {
    use nicache_replay::{Record, SessionConfig, Verb};

    use super::*;

    fn share(objects: &[u64], cards: u32, memory_bytes: u64) -> f64 {
        let mut trace = Trace::default();
        for (number, &object) in objects.iter().enumerate() {
            let (second, client) = (100 * number as u64, number as u64);
            trace.push(&Record { second, client, object, verb: Verb::Get, status: 200, bytes: Some(6000) }).unwrap();
        }
        share_kept(&trace, &Sessions::of(&trace, &SessionConfig::default()), cards, memory_bytes)
    }

    #[test]
    fn worked_out_by_hand() {
        assert_eq!(share(&[1, 1, 1, 1], 1, 8192), 0.75);
        assert_eq!(share(&[1, 1, 1, 1], 2, 8192), 0.5, "each card has to get it");
        assert_eq!(share(&[1, 2, 1, 2], 1, 8192), 0.0, "there is room for one");
        assert_eq!(share(&[1, 2, 1, 2], 1, 16_384), 0.5);
        assert_eq!(share(&[1, 1, 1, 1], 1, 0), 0.0);
        // With room for the first block alone, the second one takes its place each time.
        assert_eq!(share(&[1, 1], 1, 4096), 0.0);
    }
}
