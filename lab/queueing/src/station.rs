//! A station of the queueing network: jobs come, wait in order of arrival, are served and leave.
//!
//! A station has one server, or as many as there are jobs: then nobody waits, which is how the
//! paper models its bus (koch2002, section 2). It does not schedule anything itself: it says which
//! job is served until when, and is told when that time has come.
//!
//! What it measures allows Little's law to be checked: the time integral of the number of jobs and
//! the sum of the jobs' own times are counted independently.

use std::collections::VecDeque;

use crate::time::Time;

/// How many jobs can be served at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Servers {
    /// One after the other, first come, first served.
    One,
    /// All at once.
    Unlimited,
}

/// A job whose service has begun; the station wants to hear of it at `until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun<J> {
    /// The job.
    pub job: J,
    /// When its service ends.
    pub until: Time,
}

/// A station for jobs of type `J`.
#[derive(Debug)]
pub struct Station<J> {
    servers: Servers,
    waiting: VecDeque<Waiting<J>>,
    in_service: u64,
    counts: StationCounts,
    changed: Time,
}

#[derive(Debug)]
struct Waiting<J> {
    job: J,
    service: Time,
    since: Time,
}

/// What a station has measured since the beginning or the last reset. Integrals are in picoseconds
/// times jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StationCounts {
    /// Since when.
    pub since: Time,
    /// Jobs that came.
    pub arrivals: u64,
    /// Jobs whose service began.
    pub begun: u64,
    /// Jobs that left.
    pub completions: u64,
    /// Sum of the times between coming and beginning, of the jobs that began.
    pub wait_ps: u128,
    /// Sum of the times of service of the jobs that began.
    pub service_ps: u128,
    /// Integral of the number of jobs waiting or served.
    pub jobs_ps: u128,
    /// Integral of the number of jobs waiting.
    pub waiting_ps: u128,
    /// Time in which at least one was served.
    pub busy_ps: u128,
    /// Most jobs waiting at a time.
    pub waiting_max: usize,
}

impl<J> Station<J> {
    /// A station without jobs.
    pub fn new(servers: Servers) -> Self {
        Self {
            servers,
            waiting: VecDeque::new(),
            in_service: 0,
            counts: StationCounts::default(),
            changed: Time::ZERO,
        }
    }

    /// A job comes that needs `service`. If it is served at once, the caller schedules its end.
    #[inline]
    pub fn handle_arrival(&mut self, now: Time, job: J, service: Time) -> Option<Begun<J>> {
        self.integrate(now);
        self.counts.arrivals += 1;
        if self.servers == Servers::One && self.in_service > 0 {
            self.waiting.push_back(Waiting { job, service, since: now });
            self.counts.waiting_max = self.counts.waiting_max.max(self.waiting.len());
            return None;
        }
        Some(self.begin(now, Waiting { job, service, since: now }))
    }

    /// The service of a job has ended. If another begins, the caller schedules its end.
    #[inline]
    pub fn handle_completion(&mut self, now: Time) -> Option<Begun<J>> {
        self.integrate(now);
        self.counts.completions += 1;
        self.in_service = self.in_service.saturating_sub(1);
        let next = self.waiting.pop_front()?;
        Some(self.begin(now, next))
    }

    /// Forgets what was measured; the jobs stay.
    pub fn reset(&mut self, now: Time) {
        self.integrate(now);
        self.counts = StationCounts {
            since: now,
            waiting_max: self.waiting.len(),
            ..StationCounts::default()
        };
    }

    /// What was measured up to `now`.
    pub fn counts(&mut self, now: Time) -> StationCounts {
        self.integrate(now);
        self.counts
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Jobs in service.
    pub fn in_service(&self) -> u64 {
        self.in_service
    }

    #[inline]
    fn begin(&mut self, now: Time, next: Waiting<J>) -> Begun<J> {
        self.in_service += 1;
        self.counts.begun += 1;
        self.counts.wait_ps += u128::from((now - next.since).0);
        self.counts.service_ps += u128::from(next.service.0);
        Begun { job: next.job, until: now + next.service }
    }

    #[inline]
    fn integrate(&mut self, now: Time) {
        let span = u128::from((now - self.changed).0);
        self.changed = now;
        if span == 0 || self.in_service == 0 {
            return;
        }
        self.counts.busy_ps += span;
        self.counts.waiting_ps += span * self.waiting.len() as u128;
        self.counts.jobs_ps += span * (self.waiting.len() as u128 + u128::from(self.in_service));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_serves_in_order_of_arrival() {
        let mut station = Station::new(Servers::One);
        assert_eq!(
            station.handle_arrival(Time(0), 'a', Time(10)),
            Some(Begun { job: 'a', until: Time(10) })
        );
        assert_eq!(station.handle_arrival(Time(2), 'b', Time(5)), None);
        assert_eq!(station.handle_arrival(Time(3), 'c', Time(1)), None);
        assert_eq!(station.handle_completion(Time(10)), Some(Begun { job: 'b', until: Time(15) }));
        assert_eq!(station.handle_completion(Time(15)), Some(Begun { job: 'c', until: Time(16) }));
        assert_eq!(station.handle_completion(Time(16)), None);
        let counts = station.counts(Time(20));
        assert_eq!(
            (counts.arrivals, counts.begun, counts.completions, counts.waiting_max),
            (3, 3, 3, 2)
        );
        assert_eq!((counts.wait_ps, counts.service_ps, counts.busy_ps), (8 + 12, 16, 16));
        assert_eq!((counts.jobs_ps, counts.waiting_ps), (10 + 13 + 13, 20));
    }

    #[test]
    fn where_servers_are_unlimited_nobody_waits() {
        let mut station = Station::new(Servers::Unlimited);
        for start in 0..10 {
            let begun = station.handle_arrival(Time(start), start, Time(100));
            assert_eq!(begun, Some(Begun { job: start, until: Time(start + 100) }));
        }
        assert_eq!((station.waiting(), station.in_service()), (0, 10));
        for start in 0..10 {
            assert_eq!(station.handle_completion(Time(start + 100)), None);
        }
        let counts = station.counts(Time(200));
        assert_eq!((counts.wait_ps, counts.jobs_ps, counts.busy_ps), (0, 1000, 109));
    }

    #[test]
    fn a_reset_keeps_the_jobs() {
        let mut station = Station::new(Servers::One);
        station.handle_arrival(Time(0), 1, Time(10));
        station.handle_arrival(Time(0), 2, Time(10));
        station.reset(Time(4));
        assert_eq!(station.handle_completion(Time(10)).map(|begun| begun.job), Some(2));
        assert_eq!(station.handle_completion(Time(20)), None);
        let counts = station.counts(Time(20));
        assert_eq!((counts.since, counts.arrivals, counts.completions), (Time(4), 0, 2));
        assert_eq!((counts.jobs_ps, counts.busy_ps), (12 + 10, 16));
    }
}
