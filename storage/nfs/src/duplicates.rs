//! The duplicate-request cache: a request that must run once, runs once, however often it comes.
//!
//! A client that hears no answer sends the same call again, often on a new connection and from
//! another port, while the first may still be under way. What makes two calls the same: the
//! client's address, the call's number (XID), the procedure, the caller, and a checksum of the
//! arguments, because a client that starts anew uses numbers again. The caller is the user and the
//! groups and not the credential's bytes: older Linux puts the time into those whenever it
//! sends a call. A call that is under way has an
//! entry, too: its repetition waits for the same answer.
//!
//! The oldest answers go first when there are too many, or after some minutes. Answers to WRITEs
//! have room of their own: a client writes more often in a second than it removes or renames in an
//! hour, and a REMOVE that runs twice says that the file was never there. No answer outlasts the
//! server.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::credential::Claim;
use crate::protocol::Procedure;

/// What makes two calls the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallKey {
    /// The client's address. Not its port, which may be another one on a new connection.
    pub client: IpAddr,
    /// The client's number for the call.
    pub xid: u32,
    /// The procedure.
    pub procedure: Procedure,
    /// Of caller and arguments.
    pub checksum: u128,
}

/// What to do with a call.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// The call is new: execute it, then [`complete`](Duplicates::complete) it.
    Run,
    /// The call was executed before: this was the answer.
    Repeat(Box<[u8]>),
    /// The call is under way, and the answer goes to the one who asked now, too.
    Wait,
    /// The call is under way and asked for too often: no answer.
    Drop,
}

/// How many ask for the same call while it is under way.
const WAITING_MAX: usize = 4;
const SHARDS: usize = 16;

/// The cache. `W` is where to send an answer.
#[derive(Debug)]
pub(crate) struct Duplicates<W> {
    shards: [Mutex<Shard<W>>; SHARDS],
    hasher: foldhash::quality::RandomState,
    shard_max: usize,
    age_max: Duration,
}

#[derive(Debug)]
struct Shard<W> {
    entries: Entries<W>,
    /// Answered ones, oldest first: WRITEs, and all others.
    writes: VecDeque<(CallKey, Instant)>,
    others: VecDeque<(CallKey, Instant)>,
}

#[derive(Debug)]
enum Entry<W> {
    UnderWay(Vec<W>),
    Answered(Box<[u8]>),
}

impl<W> Duplicates<W> {
    /// Remembers at most `answers_max` answers to WRITEs and as many others, of some 300 bytes
    /// each, for `age_max`.
    #[must_use]
    pub(crate) fn new(answers_max: usize, age_max: Duration) -> Self {
        let shard = || Shard {
            entries: HashMap::default(),
            writes: VecDeque::new(),
            others: VecDeque::new(),
        };
        Self {
            shards: std::array::from_fn(|_| Mutex::new(shard())),
            hasher: foldhash::quality::RandomState::default(),
            shard_max: answers_max.div_ceil(SHARDS),
            age_max,
        }
    }

    /// The checksum of a caller and of what a call consists of.
    #[must_use]
    pub(crate) fn checksum(&self, claim: &Claim, parts: &[&[u8]]) -> u128 {
        let half = |salt: u64| self.hasher.hash_one((salt, claim, parts));
        u128::from(half(1)) << 64 | u128::from(half(2))
    }

    fn shard(&self, key: &CallKey) -> MutexGuard<'_, Shard<W>> {
        self.shards[key.checksum as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call came. `waiter` says where an answer would go.
    pub(crate) fn admit(&self, key: CallKey, waiter: impl FnOnce() -> W) -> Admission {
        let mut shard = self.shard(&key);
        match shard.entries.get_mut(&key) {
            None => {
                shard.entries.insert(key, Entry::UnderWay(Vec::new()));
                Admission::Run
            }
            Some(Entry::Answered(answer)) => Admission::Repeat(answer.clone()),
            Some(Entry::UnderWay(waiting)) if waiting.len() < WAITING_MAX => {
                waiting.push(waiter());
                Admission::Wait
            }
            Some(Entry::UnderWay(_)) => Admission::Drop,
        }
    }

    /// A call was executed. Returns who else waits for the answer.
    pub(crate) fn complete(&self, key: CallKey, answer: &[u8], now: Instant) -> Vec<W> {
        let mut shard = self.shard(&key);
        let before = shard.entries.insert(key, Entry::Answered(answer.into()));
        let Shard { entries, writes, others } = &mut *shard;
        let answered = if key.procedure == Procedure::Write { writes } else { others };
        answered.push_back((key, now));
        let excess = answered.len().saturating_sub(self.shard_max);
        forget(entries, answered, excess);
        match before {
            Some(Entry::UnderWay(waiting)) => waiting,
            _ => Vec::new(),
        }
    }

    /// Forgets answers that are too old.
    pub(crate) fn sweep(&self, now: Instant) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let is_old = |at: Instant| now.saturating_duration_since(at) > self.age_max;
            let Shard { entries, writes, others } = &mut *shard;
            for answered in [writes, others] {
                let old = answered.iter().take_while(|&&(_, at)| is_old(at)).count();
                forget(entries, answered, old);
            }
        }
    }

    /// How many answers are remembered.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| {
                let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
                shard.writes.len() + shard.others.len()
            })
            .sum()
    }
}

type Entries<W> = HashMap<CallKey, Entry<W>, foldhash::fast::RandomState>;

fn forget<W>(entries: &mut Entries<W>, answered: &mut VecDeque<(CallKey, Instant)>, count: usize) {
    for (key, _) in answered.drain(..count) {
        entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::Identity;

    fn key(xid: u32, checksum: u128) -> CallKey {
        CallKey {
            client: "192.0.2.1".parse().unwrap(),
            xid,
            procedure: Procedure::Remove,
            checksum,
        }
    }

    #[test]
    fn a_call_runs_once() {
        let cache = Duplicates::new(64, Duration::from_secs(100));
        let now = Instant::now();
        assert_eq!(cache.admit(key(1, 5), || 'a'), Admission::Run);
        for waiter in ['b', 'c', 'd', 'e'] {
            assert_eq!(cache.admit(key(1, 5), || waiter), Admission::Wait);
        }
        assert_eq!(cache.admit(key(1, 5), || 'f'), Admission::Drop);
        assert_eq!(cache.complete(key(1, 5), b"done", now), ['b', 'c', 'd', 'e']);
        assert_eq!(cache.admit(key(1, 5), || 'g'), Admission::Repeat((*b"done").into()));
        assert_eq!(cache.admit(key(1, 6), || 'h'), Admission::Run, "other arguments");
        assert_eq!(cache.admit(key(2, 5), || 'h'), Admission::Run, "another number");
        let other = CallKey { client: "192.0.2.2".parse().unwrap(), ..key(1, 5) };
        assert_eq!(cache.admit(other, || 'h'), Admission::Run, "another client");
        let other = CallKey { procedure: Procedure::RmDir, ..key(1, 5) };
        assert_eq!(cache.admit(other, || 'h'), Admission::Run, "another procedure");
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest_first() {
        let cache: Duplicates<()> = Duplicates::new(SHARDS * 4, Duration::from_secs(100));
        let now = Instant::now();
        for xid in 0..10 {
            assert_eq!(cache.admit(key(xid, 0), || ()), Admission::Run);
            cache.complete(key(xid, 0), b"x", now + Duration::from_secs(xid.into()));
        }
        assert_eq!(cache.len(), 4, "all are in one shard");
        assert!(matches!(cache.admit(key(9, 0), || ()), Admission::Repeat(_)));
        assert_eq!(cache.admit(key(5, 0), || ()), Admission::Run);
        cache.sweep(now + Duration::from_secs(108));
        assert!(matches!(cache.admit(key(9, 0), || ()), Admission::Repeat(_)));
        cache.sweep(now + Duration::from_secs(110));
        assert_eq!(cache.len(), 0);
        assert_eq!(cache.admit(key(5, 0), || ()), Admission::Wait, "what is under way stays");
    }

    #[test]
    fn writes_push_out_no_other_answer() {
        let cache: Duplicates<()> = Duplicates::new(SHARDS * 4, Duration::from_secs(100));
        let now = Instant::now();
        let run = |key: CallKey| {
            assert_eq!(cache.admit(key, || ()), Admission::Run);
            cache.complete(key, b"x", now);
        };
        run(key(0, 0));
        for xid in 1..1000 {
            run(CallKey { procedure: Procedure::Write, ..key(xid, 0) });
        }
        assert_eq!(cache.len(), 5);
        assert!(matches!(cache.admit(key(0, 0), || ()), Admission::Repeat(_)));
        let last = CallKey { procedure: Procedure::Write, ..key(999, 0) };
        assert!(matches!(cache.admit(last, || ()), Admission::Repeat(_)));
        cache.sweep(now + Duration::from_secs(101));
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn checksums_tell_callers_and_where_parts_end() {
        let cache: Duplicates<()> = Duplicates::new(1, Duration::ZERO);
        let sum = |claim: &Claim, parts: &[&[u8]]| cache.checksum(claim, parts);
        let nobody = Claim::Nobody;
        assert_ne!(sum(&nobody, &[b"ab", b"c"]), sum(&nobody, &[b"a", b"bc"]));
        assert_eq!(sum(&nobody, &[b"ab", b"c"]), sum(&nobody, &[b"ab", b"c"]));
        let user = |gid, groups: &[u32]| {
            let groups = groups.iter().copied().collect();
            Claim::User(Identity { uid: 1, gid, groups })
        };
        let sums = [nobody, user(1, &[]), user(1, &[2]), user(2, &[1]), user(1, &[2, 1])]
            .map(|claim| sum(&claim, &[b"a"]));
        for (i, one) in sums.iter().enumerate() {
            assert!(!sums[..i].contains(one), "{i}");
        }
    }
}
