//! Plays a workload back against a policy.

use std::ops::Range;
use std::time::Duration;

use nicache_policy::{Admission, Incoming, Key, Policy, Removal};

use crate::{Access, Counts, Workload};

/// A cache of names and sizes: a policy that is its directory, too.
#[derive(Debug)]
pub struct Cache<P> {
    policy: P,
    memory: u64,
    counts: Counts,
    /// Whether all accesses of the present request have been hits.
    request_hits: bool,
}

impl<P: Policy> Cache<P> {
    /// A cache that has so much room.
    pub fn new(policy: P, memory: u64) -> Self {
        Self { policy, memory, counts: Counts::default(), request_hits: true }
    }

    /// Plays one access back; `room` is what its object takes.
    #[inline]
    pub fn access(&mut self, access: Access, room: u64) {
        let key = Workload::key(access.object());
        if access.is_changed() && self.policy.contains(key) {
            self.policy.handle_remove(key, Removal::Purged);
            self.counts.purged += 1;
        }
        self.counts.accesses += 1;
        self.counts.bytes += access.bytes();
        if self.policy.handle_request(key) {
            self.counts.hits += 1;
            self.counts.hit_bytes += access.bytes();
        } else {
            self.request_hits = false;
            self.miss(key, access, room);
        }
        if access.ends_request() {
            self.counts.requests += 1;
            self.counts.request_hits += u64::from(self.request_hits);
            self.request_hits = true;
        }
    }

    #[inline]
    fn miss(&mut self, key: Key, access: Access, room: u64) {
        if !access.fills() {
            let _ = self.policy.handle_miss(key, None);
            return;
        }
        let admitted = self.policy.handle_miss(key, Some(room));
        if admitted == Admission::Reject || self.policy.handle_reply(key, room) == Admission::Reject
        {
            return;
        }
        if room > self.memory {
            return;
        }
        let incoming = Some(Incoming { key, bytes: room });
        while self.policy.occupancy().bytes + room > self.memory
            || self.policy.handle_insert(key, room).is_err()
        {
            if self.policy.evict(incoming).is_none() {
                self.policy.handle_remove(key, Removal::Refused);
                return;
            }
            self.counts.evicted += 1;
        }
    }

    /// A period of the policy is over.
    pub fn end_period(&mut self) {
        self.policy.handle_period_end();
    }

    /// What it did so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// Plays a workload back against a cache with so much memory. `progress` hears of every few
/// thousand accesses.
pub fn simulate<P: Policy>(
    policy: P,
    workload: &Workload,
    memory: u64,
    mut progress: impl FnMut(u64),
) -> Counts {
    let period = policy.period().filter(|_| !workload.seconds.is_empty());
    let mut clock = period.map(PeriodClock::new);
    let mut cache = Cache::new(policy, memory);
    let warm_up = workload.warm_up.min(workload.accesses.len());
    play(&mut cache, workload, 0..warm_up, &mut clock, &mut progress);
    cache.counts = Counts::default();
    play(&mut cache, workload, warm_up..workload.accesses.len(), &mut clock, &mut progress);
    cache.counts()
}

fn play<P: Policy>(
    cache: &mut Cache<P>,
    workload: &Workload,
    range: Range<usize>,
    clock: &mut Option<PeriodClock>,
    progress: &mut impl FnMut(u64),
) {
    const STEP: usize = 1 << 14;
    let Range { start, end } = range;
    for start in (start..end).step_by(STEP) {
        let step = start..end.min(start + STEP);
        let accesses = &workload.accesses[step.clone()];
        match clock {
            None => {
                for &access in accesses {
                    cache.access(access, workload.room.of(access.bytes()));
                }
            }
            Some(clock) => {
                for (&access, &second) in accesses.iter().zip(&workload.seconds[step]) {
                    for _ in 0..clock.periods_until(second) {
                        cache.end_period();
                    }
                    cache.access(access, workload.room.of(access.bytes()));
                }
            }
        }
        progress(accesses.len() as u64);
    }
}

/// Tells how many periods have ended.
#[derive(Clone, Copy, Debug)]
pub struct PeriodClock {
    period_ms: u64,
    next_ms: u64,
}

/// After so many periods without a request all popularity is forgotten anyway.
const PERIODS_MAX: u64 = 512;

impl PeriodClock {
    /// Periods of this length from second 0 on; at least a millisecond long.
    pub fn new(period: Duration) -> Self {
        let period_ms = (period.as_millis() as u64).max(1);
        Self { period_ms, next_ms: period_ms }
    }

    /// Periods that have ended between the last call and this second.
    #[inline]
    pub fn periods_until(&mut self, second: u32) -> u64 {
        let now_ms = u64::from(second) * 1000;
        if now_ms < self.next_ms {
            return 0;
        }
        let periods = (now_ms - self.next_ms) / self.period_ms + 1;
        self.next_ms += periods * self.period_ms;
        periods.min(PERIODS_MAX)
    }
}
