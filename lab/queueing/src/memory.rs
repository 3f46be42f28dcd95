//! A memory: a list of the identifiers whose data it holds, a line size and a latency (koch2002,
//! section 2).
//!
//! Network processor's and host's memory are alike. Which data goes when there is no room is
//! decided by a policy of `nicache-policy`, the code that the card runs.

use nicache_policy::{
    Admission, Fifo, Incoming, Key, Lfu, Lru, Policy, Popularity, PopularityConfig, Removal,
};
use serde::Serialize;

use crate::config::MemoryPolicy;
use crate::time::{Clock, Time};

/// How long a memory takes for so many bytes: one latency for each line begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    line_bytes: u64,
    latency_cycles: f64,
    clock: Clock,
}

impl Access {
    pub(crate) fn new(line_bytes: u32, scale: u32, latency_cycles: f64, clock: Clock) -> Self {
        Self { line_bytes: u64::from(line_bytes) * u64::from(scale), latency_cycles, clock }
    }

    #[inline]
    pub(crate) fn time(&self, bytes: u32) -> Time {
        let lines = u64::from(bytes).div_ceil(self.line_bytes);
        self.clock.cycles(lines as f64 * self.latency_cycles)
    }
}

/// What is in a memory.
pub(crate) struct Memory {
    policy: Box<dyn Policy>,
    bytes_max: u64,
    /// By identifier; of use only for what the policy holds.
    stored_bytes: Vec<u32>,
    counts: MemoryState,
}

/// What a memory holds and has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MemoryState {
    /// Its size.
    pub bytes_max: u64,
    /// Bytes of data in it.
    pub bytes: u64,
    /// Data in it.
    pub objects: u64,
    /// Look-ups that found what they sought.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Data stored.
    pub insertions: u64,
    /// Data that made room for other data.
    pub evictions: u64,
}

/// The answer to a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// It is there, with so many bytes.
    Hit(u32),
    /// It is not; whether it may be stored once it comes.
    Miss(Admission),
}

impl Memory {
    /// Empty. There are `different` identifiers, and no data is smaller than `bytes_min`.
    pub(crate) fn new(
        policy: MemoryPolicy,
        bytes_max: u64,
        different: u32,
        bytes_min: u32,
    ) -> Self {
        let room = bytes_max / u64::from(bytes_min.max(1)) + 1;
        let objects_max = u32::try_from(room).unwrap_or(u32::MAX).min(different);
        let policy: Box<dyn Policy> = match policy {
            MemoryPolicy::Lru => Box::new(Lru::new(bytes_max, objects_max)),
            MemoryPolicy::Fifo => Box::new(Fifo::new(bytes_max, objects_max)),
            MemoryPolicy::Lfu => Box::new(Lfu::new(bytes_max, objects_max)),
            MemoryPolicy::Popularity => {
                Box::new(Popularity::new(&PopularityConfig::new(bytes_max, objects_max)))
            }
        };
        let counts = MemoryState { bytes_max, ..MemoryState::default() };
        Self { policy, bytes_max, stored_bytes: vec![0; different as usize], counts }
    }

    /// A request for the data of `id`.
    #[inline]
    pub(crate) fn handle_lookup(&mut self, id: u32) -> Lookup {
        let key = Key(id.into());
        if self.policy.handle_request(key) {
            self.counts.hits += 1;
            return Lookup::Hit(self.stored_bytes[id as usize]);
        }
        self.counts.misses += 1;
        Lookup::Miss(self.policy.handle_miss(key, None))
    }

    /// The data of `id` has come, for which there was a miss with that admission; true if it is
    /// stored now.
    #[inline]
    pub(crate) fn handle_data(&mut self, id: u32, bytes: u32, admission: Admission) -> bool {
        let key = Key(id.into());
        let size = u64::from(bytes);
        let fits = self.policy.handle_reply(key, size);
        if (admission, fits) != (Admission::Admit, Admission::Admit) || size > self.bytes_max {
            return false;
        }
        if self.policy.contains(key) {
            // Another miss of the same data has stored it meanwhile.
            self.policy.handle_remove(key, Removal::Purged);
        }
        while self.policy.occupancy().bytes + size > self.bytes_max
            || self.policy.handle_insert(key, size).is_err()
        {
            if self.policy.evict(Some(Incoming { key, bytes: size })).is_none() {
                self.policy.handle_remove(key, Removal::Refused);
                return false;
            }
            self.counts.evictions += 1;
        }
        self.counts.insertions += 1;
        self.stored_bytes[id as usize] = bytes;
        true
    }

    /// The length of the policy's periods, if it has any.
    pub(crate) fn period(&self) -> Option<Time> {
        self.policy.period().map(|period| Time::from_seconds(period.as_secs_f64()))
    }

    /// A period of the policy is over.
    pub(crate) fn handle_period_end(&mut self) {
        self.policy.handle_period_end();
    }

    /// What it holds and has done.
    pub(crate) fn state(&self) -> MemoryState {
        let occupancy = self.policy.occupancy();
        MemoryState { bytes: occupancy.bytes, objects: occupancy.objects as u64, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_line_begun_costs_a_latency() {
        let access = Access::new(32, 4, 3.0, Clock::new(1000.0));
        let times = [0, 1, 128, 129, 1024].map(|bytes| access.time(bytes));
        assert_eq!(times, [Time(0), Time(3000), Time(3000), Time(6000), Time(24_000)]);
    }

    proptest! {
        /// The paper's words as a model: a list with the last used in front, and the last of it
        /// goes until there is room.
        #[test]
        fn lru_is_a_list(
            bytes_max in 0u64..200,
            accesses in prop::collection::vec((0u32..12, 1u32..90), 0..300),
        ) {
            let mut memory = Memory::new(MemoryPolicy::Lru, bytes_max, 12, 1);
            let mut list: Vec<(u32, u32)> = Vec::new();
            for (id, bytes) in accesses {
                match list.iter().position(|&(listed, _)| listed == id) {
                    Some(at) => {
                        prop_assert_eq!(memory.handle_lookup(id), Lookup::Hit(list[at].1));
                        let used = list.remove(at);
                        list.insert(0, used);
                    }
                    None => {
                        let Lookup::Miss(admission) = memory.handle_lookup(id) else {
                            return Err(TestCaseError::fail("a hit of what is not there"));
                        };
                        let stored = memory.handle_data(id, bytes, admission);
                        prop_assert_eq!(stored, u64::from(bytes) <= bytes_max);
                        if stored {
                            list.insert(0, (id, bytes));
                            while list.iter().map(|&(_, bytes)| u64::from(bytes)).sum::<u64>()
                                > bytes_max
                            {
                                list.pop();
                            }
                        }
                    }
                }
                let state = memory.state();
                prop_assert_eq!(state.objects, list.len() as u64);
                prop_assert_eq!(
                    state.bytes,
                    list.iter().map(|&(_, bytes)| u64::from(bytes)).sum::<u64>()
                );
            }
        }

        /// Whatever the policy: never more bytes than there is room for.
        #[test]
        fn no_policy_overfills_a_memory(
            bytes_max in 0u64..200,
            accesses in prop::collection::vec((0u32..12, 1u32..90, any::<bool>()), 0..300),
        ) {
            for policy in
                [MemoryPolicy::Lru, MemoryPolicy::Fifo, MemoryPolicy::Lfu, MemoryPolicy::Popularity]
            {
                let mut memory = Memory::new(policy, bytes_max, 12, 1);
                for &(id, bytes, late) in &accesses {
                    if let Lookup::Miss(admission) = memory.handle_lookup(id) {
                        memory.handle_data(id, bytes, admission);
                        if late {
                            memory.handle_data(id, bytes + 1, admission);
                        }
                    }
                    prop_assert!(memory.state().bytes <= bytes_max);
                }
            }
        }
    }
}
