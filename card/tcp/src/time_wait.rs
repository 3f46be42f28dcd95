//! Connections in TIME-WAIT (RFC 9293 section 3.6.1): a table of fixed capacity, allocated once.
//!
//! Sets of eight places, chosen by the hash of the four-tuple. A full set gives up its oldest
//! entry: a stray segment then finds no connection, which is the risk that every bounded table
//! takes.

use core::time::Duration;

use crate::options::Timestamps;
use crate::seq::Seq;
use crate::time::Time;
use crate::wire::SegmentHead;

/// How long to wait: Linux' 60 s in place of two maximum segment lifetimes of RFC 9293 (4 minutes).
pub const TIME_WAIT: Duration = Duration::from_secs(60);

const WAYS: usize = 8;

/// What is kept of a closed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Our next sequence number, FIN included.
    pub snd_nxt: Seq,
    /// The peer's next sequence number, FIN included.
    pub rcv_nxt: Seq,
    /// TS.Recent, if timestamps were in use.
    pub ts_recent: Option<u32>,
}

impl Closed {
    /// May this SYN open a new connection in the place of the old one (RFC 6191 section 2, RFC 9293
    /// section 3.6.1, MAY-2)? If its timestamp is later, or its number is beyond the last one.
    /// Either is enough, as for Linux: clients behind one address have clocks of their own.
    #[must_use]
    pub fn may_reopen(&self, head: &SegmentHead) -> bool {
        let is_later =
            |(recent, theirs): (u32, Timestamps)| (theirs.val.wrapping_sub(recent) as i32) > 0;
        head.seq.gt(self.rcv_nxt) || self.ts_recent.zip(head.timestamps).is_some_and(is_later)
    }
}

/// What to do with a segment that meets a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Acknowledge (again); the wait begins anew.
    Acknowledge,
    /// The segment may open a new connection; the entry is gone.
    NewConnection,
    /// Drop it.
    Drop,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    expires: Time,
    closed: Closed,
}

/// The table; see the module head.
#[derive(Debug)]
pub struct TimeWaitTable {
    sets: Box<[[Option<Entry>; WAYS]]>,
}

impl TimeWaitTable {
    /// A table of at least `capacity` places (56 bytes each).
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(WAYS).max(1).next_power_of_two();
        Self { sets: vec![[None; WAYS]; sets].into_boxed_slice() }
    }

    /// Places in the table.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    fn set(&mut self, hash: u64) -> &mut [Option<Entry>; WAYS] {
        // The upper half: the caller's flow table is likely to use the lower bits.
        let index = (hash >> 32) as usize & (self.sets.len() - 1);
        &mut self.sets[index]
    }

    /// Adds the connection with this hash of its four-tuple (keyed, so nobody can aim at a
    /// set). Returns whether a living entry had to give way.
    pub fn insert(&mut self, hash: u64, closed: Closed, now: Time) -> bool {
        let entry = Entry { hash, expires: now + TIME_WAIT, closed };
        let set = self.set(hash);
        let rank = |place: &Option<Entry>| match place {
            Some(e) if e.hash == hash => (0, Time::ZERO),
            None => (1, Time::ZERO),
            Some(e) => (2, e.expires),
        };
        let Some(place) = set.iter_mut().min_by_key(|place| rank(place)) else {
            return false;
        };
        let evicted = place.is_some_and(|e| e.hash != hash && e.expires > now);
        *place = Some(entry);
        evicted
    }

    /// The connection with this hash, if it is still waiting.
    pub fn get(&mut self, hash: u64, now: Time) -> Option<Closed> {
        self.set(hash)
            .iter()
            .flatten()
            .find(|e| e.hash == hash && e.expires > now)
            .map(|e| e.closed)
    }

    /// Forgets a connection.
    pub fn remove(&mut self, hash: u64) {
        for place in self.set(hash) {
            if place.is_some_and(|e| e.hash == hash) {
                *place = None;
            }
        }
    }

    /// A segment with `payload_len` bytes of payload for a connection with this hash; `None` when
    /// there is none.
    pub fn handle_segment(
        &mut self,
        hash: u64,
        head: &SegmentHead,
        payload_len: u32,
        now: Time,
    ) -> Option<Answer> {
        let closed = self.get(hash, now)?;
        let answer = judge(&closed, head, payload_len);
        match answer {
            Answer::NewConnection => self.remove(hash),
            Answer::Acknowledge => {
                // RFC 9293 section 3.10.7.4: a retransmitted FIN restarts the wait.
                if head.flags.fin() {
                    self.insert(hash, closed, now);
                }
            }
            Answer::Drop => {}
        }
        Some(answer)
    }
}

fn judge(closed: &Closed, head: &SegmentHead, payload_len: u32) -> Answer {
    if head.flags.rst() {
        // RFC 1337: a reset must not end TIME-WAIT early.
        return Answer::Drop;
    }
    if head.flags.syn() && !head.flags.ack() {
        return if closed.may_reopen(head) { Answer::NewConnection } else { Answer::Acknowledge };
    }
    // RFC 9293 section 3.10.7.4: what does not sit at RCV.NXT is not acceptable, and answered.
    if head.segment_len(payload_len) > 0 || head.seq != closed.rcv_nxt {
        Answer::Acknowledge
    } else {
        Answer::Drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Timestamps;
    use crate::wire::{Flags, HeadRepr, parse};

    fn closed(ts_recent: Option<u32>) -> Closed {
        Closed { snd_nxt: Seq(500), rcv_nxt: Seq(1_000), ts_recent }
    }

    fn head(flags: Flags, seq: u32, ts: Option<u32>) -> SegmentHead {
        let repr = HeadRepr {
            flags,
            seq: Seq(seq),
            timestamps: ts.map(|val| Timestamps { val, ecr: 0 }),
            ..HeadRepr::default()
        };
        let mut bytes = [0; 60];
        let len = repr.emit(&mut bytes);
        parse(&bytes[..len]).unwrap()
    }

    #[test]
    fn entries_expire_and_the_oldest_gives_way() {
        let mut table = TimeWaitTable::new(8);
        let t0 = Time::from_millis(1);
        for i in 0..8 {
            assert!(!table.insert(i, closed(None), t0 + Duration::from_secs(i)));
        }
        let now = t0 + Duration::from_secs(10);
        assert!(table.insert(8, closed(None), now));
        assert_eq!(table.get(0, now), None);
        assert_eq!(table.get(1, now), Some(closed(None)));
        assert_eq!(table.get(1, t0 + Duration::from_secs(62)), None);
        assert!(
            !table.insert(9, closed(None), t0 + Duration::from_secs(62)),
            "an expired one is free"
        );
        table.remove(8);
        assert_eq!(table.get(8, now), None);
    }

    #[test]
    fn a_retransmitted_fin_is_acknowledged_and_restarts_the_wait() {
        // RFC 9293 section 3.10.7.4.
        let mut table = TimeWaitTable::new(8);
        table.insert(1, closed(None), Time::ZERO);
        let late = Time::ZERO + Duration::from_secs(59);
        let fin = head(Flags::FIN | Flags::ACK, 999, None);
        assert_eq!(table.handle_segment(1, &fin, 0, late), Some(Answer::Acknowledge));
        assert!(table.get(1, late + Duration::from_secs(59)).is_some());
        assert_eq!(table.handle_segment(2, &fin, 0, late), None);
        let ack = head(Flags::ACK, 1_000, None);
        assert_eq!(table.handle_segment(1, &ack, 0, late), Some(Answer::Drop));
    }

    #[test]
    fn resets_do_not_end_the_wait() {
        // RFC 1337.
        let mut table = TimeWaitTable::new(8);
        table.insert(1, closed(None), Time::ZERO);
        assert_eq!(
            table.handle_segment(1, &head(Flags::RST, 1_000, None), 0, Time(1)),
            Some(Answer::Drop)
        );
        assert!(table.get(1, Time(1)).is_some());
    }

    #[test]
    fn a_later_syn_reopens() {
        // RFC 6191 section 2.
        let mut table = TimeWaitTable::new(8);
        table.insert(1, closed(Some(50)), Time::ZERO);
        assert_eq!(
            table.handle_segment(1, &head(Flags::SYN, 5, Some(49)), 0, Time(1)),
            Some(Answer::Acknowledge)
        );
        assert_eq!(
            table.handle_segment(1, &head(Flags::SYN, 5, Some(51)), 0, Time(1)),
            Some(Answer::NewConnection)
        );
        assert_eq!(table.get(1, Time(1)), None);
        table.insert(1, closed(None), Time::ZERO);
        assert_eq!(
            table.handle_segment(1, &head(Flags::SYN, 1_000, None), 0, Time(1)),
            Some(Answer::Acknowledge)
        );
        assert_eq!(
            table.handle_segment(1, &head(Flags::SYN, 1_001, None), 0, Time(1)),
            Some(Answer::NewConnection)
        );
    }
}
