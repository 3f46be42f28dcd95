//! All connections of the host: found by their ends, with a timer each.

use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::HashTable;
use nicache_tcp::challenge::ChallengeBudget;
use nicache_tcp::frame::FlowKey;
use nicache_tcp::half_open::{Admission, HalfOpen};
use nicache_tcp::isn::{IsnKey, initial, siphash24, timestamp_offset};
use nicache_tcp::time_wait::{Answer, Closed, TimeWaitTable};
use nicache_tcp::{Flags, HeadRepr, SegmentHead, Time, Wheel};

use super::connection::{Connection, Ends, Reaction, StackConfig};
use crate::mbuf::Mbuf;

/// Connections in TIME-WAIT that are remembered.
const TIME_WAIT_PLACES: usize = 32_768;
/// How long a handshake has its place even if others want it: a client that lives has answered by
/// then, or its SYN is lost and comes again.
const HANDSHAKE_MIN: Duration = Duration::from_secs(1);
/// When to look again at what had no room.
const SOON: Duration = Duration::from_millis(2);

/// A connection's place in the table. It is given to another one when that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// What a segment came to.
#[derive(Debug)]
pub enum Handled {
    /// It belongs to a connection, which is to be polled.
    Connection {
        /// Which connection it is.
        id: ConnectionId,
        /// It has just begun.
        is_new: bool,
        /// What has changed.
        reaction: Reaction,
    },
    /// It belongs to none; this header answers it.
    Answer(HeadRepr),
    /// It belongs to none.
    Nothing,
}

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct StackCounters {
        accepted as "connections_accepted": "Connections that were accepted.",
        refused as "connections_refused": "Connections that found no place.",
        strangers as "segments_of_strangers": "Segments that belong to no connection.",
        gave_up as "connections_gave_up": "Connections whose client was silent for too long.",
        too_slow as "connections_too_slow": "Connections whose client read too slowly, or kept its window closed.",
        half_open_evicted: "Connections forgotten before their handshake was complete, for another one.",
        challenges_refused: "Challenge acknowledgments not sent, because there were too many.",
    }
}

/// All connections of the host: found by their ends, with a timer each.
#[derive(Debug)]
pub struct Connections {
    config: StackConfig,
    places: Box<[Option<Box<Connection>>]>,
    free: Vec<u32>,
    index: HashTable<u32>,
    seed: foldhash::fast::FixedState,
    key: IsnKey,
    wheel: WheelOf,
    time_wait: TimeWaitTable,
    half_open: HalfOpen,
    challenges: ChallengeBudget,
    ports: Vec<u16>,
    counters: StackCounters,
}

struct WheelOf(Wheel);

impl std::fmt::Debug for WheelOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wheel(..)")
    }
}

impl Connections {
    /// Room for `capacity` connections to `ports`. `secret`: random bytes that clients cannot know.
    pub fn new(
        config: StackConfig,
        capacity: usize,
        ports: Vec<u16>,
        secret: [u8; 16],
        now: Time,
    ) -> Self {
        let seed = u64::from_le_bytes(*secret.first_chunk().unwrap_or(&[0; 8]));
        Self {
            config,
            places: (0..capacity).map(|_| None).collect(),
            free: (0..capacity as u32).rev().collect(),
            index: HashTable::with_capacity(capacity),
            seed: foldhash::fast::FixedState::with_seed(seed),
            key: IsnKey(secret),
            wheel: WheelOf(Wheel::new(capacity, now)),
            time_wait: TimeWaitTable::new(TIME_WAIT_PLACES),
            half_open: HalfOpen::new(capacity, (capacity / 2).max(1), HANDSHAKE_MIN),
            challenges: ChallengeBudget::default(),
            ports,
            counters: StackCounters::default(),
        }
    }

    /// What has happened.
    pub fn counters(&self) -> &StackCounters {
        &self.counters
    }

    /// Connections that there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The connection with this number, if it is there.
    pub fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.places.get_mut(id.0 as usize)?.as_deref_mut()
    }

    fn find(&self, key: &FlowKey) -> Option<ConnectionId> {
        let found = self.index.find(self.seed.hash_one(key), |&index| {
            self.places[index as usize]
                .as_ref()
                .is_some_and(|connection| connection.ends().key == *key)
        });
        found.map(|&index| ConnectionId(index))
    }

    /// A segment of a client.
    pub fn handle_segment(
        &mut self,
        ends: Ends,
        head: &SegmentHead,
        payload: &[u8],
        now: Time,
    ) -> Handled {
        if let Some(id) = self.find(&ends.key) {
            let Some(connection) = self.get(id) else { return Handled::Nothing };
            let reaction = connection.handle_segment(head, payload, now);
            if !connection.is_opening() {
                self.half_open.end(id.0);
            }
            if reaction.challenge {
                self.challenge(id, now);
            }
            return Handled::Connection { id, is_new: false, reaction };
        }
        let hash = self.seed.hash_one(ends.key);
        match self.time_wait.handle_segment(hash, head, payload.len() as u32, now) {
            Some(Answer::Acknowledge) => {
                let Some(closed) = self.time_wait.get(hash, now) else { return Handled::Nothing };
                return Handled::Answer(answer(head, closed.snd_nxt, closed.rcv_nxt, Flags::ACK));
            }
            Some(Answer::Drop) => return Handled::Nothing,
            Some(Answer::NewConnection) | None => {}
        }
        let is_service = self.ports.contains(&ends.key.server_port);
        if is_service && head.flags.syn() && !head.flags.ack() && !head.flags.rst() {
            return self.accept(ends, head, now);
        }
        self.counters.strangers += 1;
        // RFC 9293 section 3.10.7.2: what neither opens nor acknowledges is dropped where somebody
        // listens.
        if head.flags.rst() || is_service && !head.flags.ack() {
            return Handled::Nothing;
        }
        // RFC 9293 section 3.10.7.1.
        Handled::Answer(if head.flags.ack() {
            HeadRepr { ack: nicache_tcp::Seq(0), ..answer(head, head.ack, head.seq, Flags::RST) }
        } else {
            let end = head.seq + head.segment_len(payload.len() as u32);
            answer(head, nicache_tcp::Seq(0), end, Flags::RST | Flags::ACK)
        })
    }

    fn accept(&mut self, ends: Ends, syn: &SegmentHead, now: Time) -> Handled {
        let admission = self.half_open.admit(now);
        let oldest = match admission {
            Admission::Admit if self.free.is_empty() => self.half_open.oldest(now, HANDSHAKE_MIN),
            Admission::Replace(oldest) => Some(oldest),
            Admission::Admit => None,
            Admission::Refuse => {
                self.counters.refused += 1;
                return Handled::Nothing;
            }
        };
        if let Some(oldest) = oldest {
            // Nothing is queued before the handshake is complete.
            self.counters.half_open_evicted += 1;
            self.remove(ConnectionId(oldest), |_| {}, now);
        }
        let Some(place) = self.free.pop() else {
            self.counters.refused += 1;
            return Handled::Nothing;
        };
        self.half_open.begin(place, now);
        let tuple = ends.key.tuple_bytes();
        let (start, offset) =
            (initial(&self.key, &tuple, now), timestamp_offset(&self.key, &tuple));
        let connection = Connection::accept(ends, syn, start, offset, &self.config, now);
        self.places[place as usize] = Some(Box::new(connection));
        let (seed, places) = (&self.seed, &self.places);
        let hash_of = |&index: &u32| {
            places[index as usize]
                .as_ref()
                .map_or(0, |connection| seed.hash_one(connection.ends().key))
        };
        self.index.insert_unique(seed.hash_one(ends.key), place, hash_of);
        self.counters.accepted += 1;
        Handled::Connection { id: ConnectionId(place), is_new: true, reaction: Reaction::default() }
    }

    fn challenge(&mut self, id: ConnectionId, now: Time) {
        let second = (now.0 / 1_000_000_000).to_be_bytes();
        let random = siphash24(&self.key.0, &second) as u32;
        let Some(connection) = self.places.get_mut(id.0 as usize).and_then(Option::as_deref_mut)
        else {
            return;
        };
        connection.challenge(&mut self.challenges, random, now);
        self.counters.challenges_refused = self.challenges.refused();
    }

    /// Has the timer of a connection that was just polled fire when it has something to do, or when
    /// `other` has come. What it could have sent at once waits for room in a ring, and is looked at
    /// a little later.
    pub fn arm(&mut self, id: ConnectionId, other: Option<Time>, now: Time) {
        let due = self
            .get(id)
            .and_then(|connection| connection.next_timeout())
            .map(|due| due.max(now + SOON));
        if let Some(due) = [due, other].into_iter().flatten().min() {
            self.wheel.0.arm(id.0, due);
        }
    }

    /// Has the timer of a connection fire at `due`, whatever it has to do.
    pub fn arm_alone(&mut self, id: ConnectionId, due: Time) {
        self.wheel.0.arm(id.0, due);
    }

    /// The next connection whose timer has fired. It is to be [armed](Self::arm) again. Call until
    /// `None`.
    pub fn poll_timer(&mut self, now: Time) -> Option<(ConnectionId, bool)> {
        while let Some(index) = self.wheel.0.poll(now) {
            let id = ConnectionId(index);
            if let Some(connection) = self.get(id) {
                let is_gone = connection.handle_timeout(now);
                let is_slow = connection.impatience().is_some();
                self.counters.gave_up += u64::from(is_gone);
                self.counters.too_slow += u64::from(is_slow);
                return Some((id, is_gone));
            }
        }
        None
    }

    /// When to look at the timers again.
    pub fn next_due(&self) -> Option<Time> {
        self.wheel.0.next_due()
    }

    /// Forgets a connection that is over; one that ended in order waits (TIME-WAIT). Its buffers
    /// are handed out.
    pub fn remove(&mut self, id: ConnectionId, free: impl FnMut(Mbuf), now: Time) {
        let Some(mut connection) = self.places.get_mut(id.0 as usize).and_then(Option::take) else {
            return;
        };
        connection.clear(free);
        let hash = self.seed.hash_one(connection.ends().key);
        if let Ok(entry) = self.index.find_entry(hash, |&index| index == id.0) {
            entry.remove();
        }
        self.wheel.0.disarm(id.0);
        self.half_open.end(id.0);
        if connection.must_wait() {
            let (snd_nxt, rcv_nxt) = connection.next_numbers();
            let closed = Closed { snd_nxt, rcv_nxt, ts_recent: connection.ts_recent() };
            self.time_wait.insert(hash, closed, now);
        }
        self.free.push(id.0);
    }

    /// The numbers of all connections.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> {
        (0..self.places.len() as u32)
            .filter(|&index| self.places[index as usize].is_some())
            .map(ConnectionId)
    }
}

fn answer(
    head: &SegmentHead,
    seq: nicache_tcp::Seq,
    ack: nicache_tcp::Seq,
    flags: Flags,
) -> HeadRepr {
    HeadRepr {
        src_port: head.dst_port,
        dst_port: head.src_port,
        seq,
        ack,
        flags,
        ..HeadRepr::default()
    }
}

#[cfg(test)]
mod tests {
    use nicache_tcp::handshake::Limits;
    use nicache_tcp::patience::ReadRules;
    use nicache_tcp::{SenderConfig, Seq};

    use super::*;

    fn connections(capacity: usize) -> Connections {
        let limits = Limits {
            mss: 1460,
            window_scale: Some(7),
            sack: true,
            timestamps: true,
            ecn: true,
            v6: false,
        };
        let config = StackConfig {
            limits,
            sender: SenderConfig::default(),
            card_cuts: true,
            read: ReadRules::default(),
        };
        Connections::new(config, capacity, vec![80], [7; 16], Time::ZERO)
    }

    fn ends(client_port: u16) -> Ends {
        let key = FlowKey { client_port, server_port: 80, ..FlowKey::default() };
        Ends { key, client_mac: [1; 6], server_mac: [2; 6] }
    }

    fn segment(client_port: u16, seq: u32, ack: u32, flags: Flags) -> SegmentHead {
        let repr = HeadRepr {
            src_port: client_port,
            dst_port: 80,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            ..HeadRepr::default()
        };
        let mut bytes = [0; 60];
        let len = repr.emit(&mut bytes);
        nicache_tcp::parse(&bytes[..len]).unwrap()
    }

    fn establish(table: &mut Connections, port: u16) {
        let Handled::Connection { id, .. } =
            table.handle_segment(ends(port), &segment(port, 100, 0, Flags::SYN), b"", Time::ZERO)
        else {
            panic!("no place")
        };
        let syn_ack = table.get(id).unwrap().poll(Time::ZERO).unwrap().head;
        let third = segment(port, 101, syn_ack.seq.0.wrapping_add(1), Flags::ACK);
        table.handle_segment(ends(port), &third, b"", Time::ZERO);
        assert!(!table.get(id).unwrap().is_opening());
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut table = connections(2);
        establish(&mut table, 1);
        establish(&mut table, 2);
        let third = table.handle_segment(ends(3), &segment(3, 100, 0, Flags::SYN), b"", Time::ZERO);
        assert!(matches!(third, Handled::Nothing));
        assert_eq!((table.len(), table.counters().accepted, table.counters().refused), (2, 2, 1));
        table.remove(ConnectionId(0), |_| {}, Time::ZERO);
        let again = table.handle_segment(ends(3), &segment(3, 100, 0, Flags::SYN), b"", Time::ZERO);
        assert!(matches!(again, Handled::Connection { is_new: true, .. }));
    }

    #[test]
    fn a_flood_takes_no_place_from_those_who_have_one() {
        let mut table = connections(4);
        establish(&mut table, 1);
        establish(&mut table, 2);
        for port in 100..200 {
            table.handle_segment(ends(port), &segment(port, 100, 0, Flags::SYN), b"", Time::ZERO);
        }
        assert_eq!((table.len(), table.counters().accepted, table.counters().refused), (4, 4, 98));
        let later = Time::from_millis(1_000);
        for port in 300..310 {
            table.handle_segment(ends(port), &segment(port, 100, 0, Flags::SYN), b"", later);
        }
        assert_eq!(
            (table.len(), table.counters().half_open_evicted, table.counters().refused),
            (4, 2, 106)
        );
        for port in [1, 2] {
            let known = table.handle_segment(
                ends(port),
                &segment(port, 101, 0, Flags::RST),
                b"",
                Time::ZERO,
            );
            assert!(matches!(
                known,
                Handled::Connection { reaction: Reaction { over: true, .. }, .. }
            ));
        }
    }

    #[test]
    fn strangers_are_reset() {
        let mut table = connections(2);
        let Handled::Answer(reset) =
            table.handle_segment(ends(9), &segment(9, 5, 77, Flags::ACK), b"x", Time::ZERO)
        else {
            panic!("no answer")
        };
        assert_eq!((reset.flags, reset.seq), (Flags::RST, Seq(77)));
        let syn = segment(9, 5, 0, Flags::SYN);
        let elsewhere = Ends { key: FlowKey { server_port: 81, ..ends(9).key }, ..ends(9) };
        let Handled::Answer(reset) = table.handle_segment(elsewhere, &syn, b"", Time::ZERO) else {
            panic!("no answer")
        };
        assert_eq!((reset.flags, reset.ack), (Flags::RST | Flags::ACK, Seq(6)));
        let nothing =
            table.handle_segment(ends(9), &segment(9, 5, 0, Flags::PSH), b"x", Time::ZERO);
        assert!(matches!(nothing, Handled::Nothing));
        let reset = table.handle_segment(ends(9), &segment(9, 5, 0, Flags::RST), b"", Time::ZERO);
        assert!(matches!(reset, Handled::Nothing));
    }

    #[test]
    fn one_that_nobody_completes_is_given_up() {
        let mut table = connections(2);
        table.handle_segment(ends(1), &segment(1, 100, 0, Flags::SYN), b"", Time::ZERO);
        table.arm(ConnectionId(0), None, Time::ZERO);
        let mut rounds = 0;
        loop {
            let due = table.next_due().expect("a timer");
            let Some((id, is_gone)) = table.poll_timer(due + std::time::Duration::from_millis(4))
            else {
                continue;
            };
            if is_gone {
                table.remove(id, |_| {}, due);
                break;
            }
            table.arm(id, None, due);
            rounds += 1;
            assert!(rounds < 20, "it is repeated for ever");
        }
        assert!(table.is_empty());
    }
}
