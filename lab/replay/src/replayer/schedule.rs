//! Which session begins when.

use nicache_random::SplitMix64 as Random;

use crate::sessions::Sessions;

/// What makes a session begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// The end of another one: as much is asked for as the server can serve (the paper's infinite
    /// demand).
    Infinite,
    /// Its time in the log, which runs so many times as fast (open loop). The batches of a session
    /// keep their distances, too, as far as replies come in time.
    Log {
        /// Seconds of the log in a second.
        speed: f64,
    },
    /// Chance: so many a second on average, by a Poisson process (open loop). The batches of a
    /// session follow each other.
    Rate {
        /// Sessions of all replayers together in a second.
        sessions_per_second: f64,
    },
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A session that begins now, or should have.
    Session {
        /// Its index.
        index: usize,
        /// When it should begin.
        due_ns: u64,
    },
    /// Nothing before this time.
    At(u64),
    /// Nothing any longer.
    Over,
}

/// The sessions of one replayer: each so-many-th one.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    demand: Demand,
    start_ns: u64,
    /// Sessions of all replayers, their span, and whether they come again and again.
    sessions: usize,
    span_ns: u64,
    repeats: bool,
    /// The next session, and how often all have come.
    next: usize,
    round: u64,
    first: usize,
    step: usize,
    /// When the next session begins by chance.
    chance_ns: u64,
    random: Random,
}

impl Schedule {
    /// For replayer `number` of `of`.
    pub(super) fn new(
        demand: Demand,
        sessions: &Sessions,
        repeats: bool,
        (number, of): (usize, usize),
        seed: u64,
        start_ns: u64,
    ) -> Self {
        let mut schedule = Self {
            demand,
            start_ns,
            sessions: sessions.len(),
            span_ns: sessions.span_ns(),
            repeats,
            next: number,
            round: 0,
            first: number,
            step: of,
            chance_ns: start_ns,
            random: Random::new(seed ^ nicache_trace::mix(number as u64 + 1)),
        };
        schedule.draw();
        schedule
    }

    /// What is next at `now_ns`; a session is given out once.
    pub(super) fn poll(&mut self, now_ns: u64, sessions: &Sessions) -> Next {
        if self.next >= self.sessions {
            if !self.repeats || self.first >= self.sessions {
                return Next::Over;
            }
            self.next = self.first;
            self.round += 1;
        }
        let index = self.next;
        let due_ns = match self.demand {
            Demand::Infinite => now_ns,
            Demand::Log { speed } => {
                let at =
                    self.round as f64 * self.span_ns as f64 + sessions.get(index).begin_ns as f64;
                self.start_ns + (at / speed) as u64
            }
            Demand::Rate { .. } => self.chance_ns,
        };
        if due_ns > now_ns {
            return Next::At(due_ns);
        }
        self.next += self.step;
        self.draw();
        Next::Session { index, due_ns }
    }

    /// The parts of a Poisson process that are dealt out by chance are Poisson processes; these
    /// ones, which are begun each on its own, make one together.
    fn draw(&mut self) {
        if let Demand::Rate { sessions_per_second } = self.demand {
            let mean_ns = self.step as f64 * 1e9 / sessions_per_second;
            self.chance_ns += (-(1.0 - self.random.unit()).ln() * mean_ns) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::SessionConfig;
    use crate::synthetic::{SyntheticConfig, synthetic};

    /// A session a second.
    fn sessions(count: u32) -> Sessions {
        let config = SyntheticConfig {
            objects: 5,
            requests: count,
            bytes_max: 100,
            ..SyntheticConfig::default()
        };
        Sessions::of(&synthetic(&config), &SessionConfig::default())
    }

    /// What comes until `end_ns` if it is asked for when it said: index and due time.
    fn all(schedule: &mut Schedule, sessions: &Sessions, end_ns: u64) -> Vec<(usize, u64)> {
        let (mut now, mut got) = (0, Vec::new());
        while now < end_ns {
            match schedule.poll(now, sessions) {
                Next::Session { index, due_ns } => got.push((index, due_ns)),
                Next::At(at) => now = at,
                Next::Over => break,
            }
        }
        got
    }

    #[test]
    fn replayers_share_the_sessions_evenly() {
        let sessions = sessions(10);
        let mut seen = Vec::new();
        for number in 0..3 {
            let mut schedule = Schedule::new(Demand::Infinite, &sessions, false, (number, 3), 1, 0);
            let got = all(&mut schedule, &sessions, u64::MAX);
            assert!((3..=4).contains(&got.len()));
            seen.extend(got.iter().map(|session| session.0));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        // More replayers than sessions.
        let mut idle = Schedule::new(Demand::Infinite, &sessions, true, (10, 11), 1, 0);
        assert_eq!(idle.poll(0, &sessions), Next::Over);
    }

    #[test]
    fn the_log_s_times_are_kept_and_go_on_in_the_next_round() {
        let sessions = sessions(3);
        let mut schedule =
            Schedule::new(Demand::Log { speed: 2.0 }, &sessions, true, (0, 1), 1, 1000);
        let half = 500_000_000;
        let expected: Vec<(usize, u64)> = (0..6).map(|n| (n % 3, 1000 + n as u64 * half)).collect();
        assert_eq!(all(&mut schedule, &sessions, 2_999_999_999), expected);
        let mut late = Schedule::new(Demand::Log { speed: 2.0 }, &sessions, false, (0, 1), 1, 0);
        assert_eq!(late.poll(10 * half, &sessions), Next::Session { index: 0, due_ns: 0 });
        assert_eq!(late.poll(10 * half, &sessions), Next::Session { index: 1, due_ns: half });
    }

    #[test]
    fn chance_has_the_rate_asked_for_and_the_spread_of_a_poisson_process() {
        let sessions = sessions(100);
        let demand = Demand::Rate { sessions_per_second: 1000.0 };
        let mut dues: Vec<u64> = (0..2)
            .flat_map(|number| {
                let mut schedule = Schedule::new(demand, &sessions, true, (number, 2), 7, 0);
                all(&mut schedule, &sessions, 20_000_000_000)
            })
            .map(|session| session.1)
            .collect();
        assert!((19_400..20_600).contains(&dues.len()), "{}", dues.len());
        dues.sort_unstable();
        // Gaps longer than their mean of 1 ms: e^-1 of all.
        let long = dues.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count() as f64
            / dues.len() as f64;
        assert!((0.35..0.39).contains(&long), "{long}");
    }
}
