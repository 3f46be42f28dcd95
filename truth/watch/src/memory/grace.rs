//! When has everybody ended who may still go by the older text of a changed file?
//!
//! A program that has opened a changed file reads it, compiles it, and puts the result in the place
//! of what its processes share, all within the request that it works on. So two kinds of requests
//! show the older text after the file was opened anew:
//!
//! * those that the server took before the request that had opened it was done: until then the
//!   older text is in memory;
//! * those that it took after a request was done that had opened the file *before the change*, and
//!   was slow: that one may put the older text in the place of the newer. PHP does not check again
//!   for `opcache.revalidate_freq` seconds.
//!
//! This is the grace period of read-copy-update: the older text is gone once the file was opened
//! after the end of every request that had opened it before the change, and the request that did so
//! is over. `attribution/requests.rs` has the requests' ends. Where it does not know them (threads,
//! event loops, processes that take no requests), an opening is taken to be over after a few times
//! as long as any request took lately ([`Pace`]).

use crate::attribution::requests::{Attribution, End};

/// The least time for which an opening counts whose end is not known.
const UNKNOWN_NS_MIN: u64 = 100_000_000;
/// The most time for which an opening counts whose end is not known.
const UNKNOWN_NS_MAX: u64 = 10_000_000_000;
/// An opening whose end is not known counts for so many times as long as the longest request of
/// late.
const UNKNOWN_REQUESTS: u64 = 4;
/// For how long a request is one of late, at least.
const LATE_NS: u64 = 60_000_000_000;
/// Openings after a change that are remembered until one of them is known to have been late enough.
/// Of more of them, these are the latest.
const NEWER_MAX: usize = 64;

/// How long requests take.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    since_ns: u64,
    longest_ns: u64,
    /// Of the time before that.
    before_ns: u64,
}

impl Pace {
    /// A request took from one moment to the other.
    pub(crate) fn observe(&mut self, forwarded_ns: u64, finished_ns: u64) {
        if finished_ns >= self.since_ns.saturating_add(LATE_NS) {
            (self.since_ns, self.before_ns, self.longest_ns) = (finished_ns, self.longest_ns, 0);
        }
        self.longest_ns = self.longest_ns.max(finished_ns.saturating_sub(forwarded_ns));
    }

    fn unknown_ns(&self) -> u64 {
        (UNKNOWN_REQUESTS * self.longest_ns.max(self.before_ns).min(UNKNOWN_NS_MAX))
            .clamp(UNKNOWN_NS_MIN, UNKNOWN_NS_MAX)
    }
}

/// When processes have ended what they were at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    /// The requests of processes that work on one at a time.
    pub attribution: &'a Attribution,
    /// For those of others.
    pub pace: &'a Pace,
}

impl Ends<'_> {
    /// `None`: not yet.
    fn of(&self, reading: Reading) -> Option<u64> {
        let unknown_ns = reading.time_ns.saturating_add(self.pace.unknown_ns());
        match self.attribution.end_of(reading.process, reading.time_ns) {
            End::At(ns) => Some(ns),
            End::NotYet => None,
            End::AtLatest(ns) => Some(ns.min(unknown_ns)),
            End::Unknown { forgotten_ns } => {
                Some(unknown_ns.max(forgotten_ns.saturating_add(self.pace.unknown_ns())))
            }
        }
    }
}

/// A process has opened the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Which process has opened the file.
    pub process: u32,
    /// When (CLOCK_MONOTONIC).
    pub time_ns: u64,
}

/// The grace period of one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grace {
    /// Who has opened it and may not have ended.
    under_way: Vec<Reading>,
    /// Openings under way that were before a change of the file.
    older: Vec<Reading>,
    /// When the last of those that are known to have ended did so, if there was one.
    older_ended_ns: Option<u64>,
    /// Who has opened it since.
    newer: Vec<Reading>,
    is_pending: bool,
    over_ns: u64,
}

impl Grace {
    /// The server has opened the file; `is_changed`: it had changed since the last time.
    pub(crate) fn read(&mut self, reading: Reading, is_changed: bool, ends: Ends<'_>) {
        self.under_way.retain(|earlier| ends.of(*earlier).is_none_or(|ns| ns > reading.time_ns));
        if is_changed {
            for &earlier in &self.under_way {
                replace(&mut self.older, earlier);
            }
            self.newer.clear();
            self.is_pending = true;
        }
        if self.is_pending {
            if self.newer.len() >= NEWER_MAX {
                self.newer.remove(0);
            }
            self.newer.push(reading);
        }
        replace(&mut self.under_way, reading);
    }

    /// The file has another inode from now on: what was read is older than all that will be.
    pub(crate) fn inherit(&mut self, mut earlier: Self) {
        if !self.is_pending && self.under_way.is_empty() {
            return *self = earlier;
        }
        for reading in earlier.under_way.drain(..) {
            replace(&mut self.under_way, reading);
        }
        for reading in earlier.older.drain(..) {
            replace(&mut self.older, reading);
        }
        self.older_ended_ns = self.older_ended_ns.max(earlier.older_ended_ns);
        self.is_pending |= earlier.is_pending;
        self.over_ns = self.over_ns.max(earlier.over_ns);
        self.newer.extend(earlier.newer);
    }

    /// Requests that were forwarded from this moment on show the file as it was opened last.
    /// `None`: not yet.
    pub(crate) fn over_ns(&mut self, ends: Ends<'_>) -> Option<u64> {
        if !self.is_pending {
            return Some(self.over_ns);
        }
        let older_ended_ns = &mut self.older_ended_ns;
        self.older.retain(|reading| match ends.of(*reading) {
            Some(ns) => {
                *older_ended_ns = Some(ns).max(*older_ended_ns);
                false
            }
            None => true,
        });
        if !self.older.is_empty() {
            return None;
        }
        let older_ended_ns = *older_ended_ns;
        // What happens in the same nanosecond may happen in any order.
        self.newer.retain(|reading| Some(reading.time_ns) > older_ended_ns);
        self.over_ns = self.newer.iter().filter_map(|reading| ends.of(*reading)).min()?;
        self.newer = Vec::new();
        self.is_pending = false;
        Some(self.over_ns)
    }
}

/// A process that has come to its next opening is done with the one before, or still within the
/// same request.
fn replace(readings: &mut Vec<Reading>, reading: Reading) {
    match readings.iter_mut().find(|other| other.process == reading.process) {
        Some(other) => other.time_ns = other.time_ns.max(reading.time_ns),
        None => readings.push(reading),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attribution::fastcgi::tests::request;
    use crate::witnesses::event::{EventKind, LookupEvent, Peer, RequestEvent, RequestStep, Sent};

    const SLOW: u32 = 1;
    const QUICK: u32 = 2;
    /// It takes no requests that anybody could tell apart.
    const THREADED: u32 = 3;

    /// Two processes of PHP-FPM, each with a request from one moment to another.
    struct Scene {
        attribution: Attribution,
        pace: Pace,
        grace: Grace,
    }

    impl Scene {
        fn new() -> Self {
            let mut scene = Self {
                attribution: Attribution::default(),
                pace: Pace::default(),
                grace: Grace::default(),
            };
            for process in [SLOW, QUICK] {
                scene.tell(
                    process,
                    0,
                    EventKind::Request(step(process, RequestStep::Connection)),
                    b"",
                );
            }
            scene
        }

        fn tell(&mut self, process: u32, time_ns: u64, kind: EventKind, bytes: &[u8]) {
            let blank = LookupEvent::blank(time_ns);
            let event = LookupEvent {
                kind,
                tgid: process,
                tid: process,
                ret: bytes.len() as i64,
                path: bytes.into(),
                ..blank
            };
            self.attribution.observe(&event);
        }

        fn begin(&mut self, process: u32, time_ns: u64) {
            let bytes = request(&[("REMOTE_ADDR", "10.0.0.1"), ("REMOTE_PORT", "1000")]);
            self.tell(
                process,
                time_ns,
                EventKind::Request(step(process, RequestStep::FastCgi)),
                &bytes,
            );
        }

        fn end(&mut self, process: u32, time_ns: u64) {
            let sent = Sent {
                to: Peer::Local(99),
                connection: process.into(),
                port: 0,
                ends_request: true,
            };
            self.tell(process, time_ns, EventKind::Sent(sent), b"");
        }

        fn read(&mut self, process: u32, time_ns: u64, is_changed: bool) {
            let ends = Ends { attribution: &self.attribution, pace: &self.pace };
            self.grace.read(Reading { process, time_ns }, is_changed, ends);
        }

        fn over_ns(&mut self) -> Option<u64> {
            self.grace.over_ns(Ends { attribution: &self.attribution, pace: &self.pace })
        }
    }

    fn step(process: u32, what: RequestStep) -> RequestEvent {
        RequestEvent { connection: process.into(), what, concurrent: false }
    }

    #[test]
    fn what_nobody_had_read_before_has_no_older_text() {
        let mut scene = Scene::new();
        scene.begin(QUICK, 10);
        scene.read(QUICK, 11, false);
        assert_eq!(scene.over_ns(), Some(0));
    }

    #[test]
    fn until_the_end_of_the_request_that_has_opened_the_file_the_older_text_is_there() {
        let mut scene = Scene::new();
        scene.begin(QUICK, 10);
        scene.read(QUICK, 11, true);
        assert_eq!(scene.over_ns(), None);
        scene.end(QUICK, 500);
        assert_eq!(scene.over_ns(), Some(500));
        // And so it stays.
        scene.begin(QUICK, 600);
        scene.read(QUICK, 601, false);
        assert_eq!(scene.over_ns(), Some(500));
    }

    #[test]
    fn who_has_opened_the_file_before_the_change_may_bring_the_older_text_back() {
        let mut scene = Scene::new();
        scene.begin(SLOW, 10);
        scene.read(SLOW, 11, false);
        scene.begin(QUICK, 20);
        scene.read(QUICK, 21, true);
        scene.end(QUICK, 22);
        assert_eq!(scene.over_ns(), None);
        scene.end(SLOW, 100);
        assert_eq!(scene.over_ns(), None);
        // It is read again by whoever finds the older text.
        scene.begin(QUICK, 110);
        scene.read(QUICK, 111, false);
        scene.end(QUICK, 112);
        assert_eq!(scene.over_ns(), Some(112));
    }

    #[test]
    fn who_had_ended_before_the_change_brings_nothing_back() {
        let mut scene = Scene::new();
        scene.begin(SLOW, 10);
        scene.read(SLOW, 11, false);
        scene.end(SLOW, 12);
        scene.begin(QUICK, 20);
        scene.read(QUICK, 21, true);
        scene.end(QUICK, 22);
        assert_eq!(scene.over_ns(), Some(22));
    }

    #[test]
    fn a_name_that_leads_to_another_file_has_the_same_readers() {
        let mut scene = Scene::new();
        scene.begin(SLOW, 10);
        scene.read(SLOW, 11, false);
        let earlier = std::mem::take(&mut scene.grace);
        scene.grace.inherit(earlier);
        scene.begin(QUICK, 20);
        scene.read(QUICK, 21, true);
        scene.end(QUICK, 22);
        assert_eq!(scene.over_ns(), None);
    }

    #[test]
    fn an_opening_without_a_known_end_counts_for_as_long_as_requests_take() {
        let mut scene = Scene::new();
        scene.read(THREADED, 1_000, true);
        assert_eq!(scene.over_ns(), Some(1_000 + UNKNOWN_NS_MIN));
        // A slow machine.
        scene.pace.observe(0, UNKNOWN_NS_MIN);
        let later = 10 * UNKNOWN_NS_MIN;
        scene.read(THREADED, later, true);
        assert_eq!(scene.over_ns(), Some(later + UNKNOWN_REQUESTS * UNKNOWN_NS_MIN));
        scene.pace.observe(0, u64::MAX / 2);
        scene.read(THREADED, u64::MAX / 4, true);
        assert_eq!(scene.over_ns(), Some(u64::MAX / 4 + UNKNOWN_NS_MAX));
    }

    #[test]
    fn slow_requests_are_forgotten_after_a_while() {
        let mut pace = Pace::default();
        pace.observe(0, UNKNOWN_NS_MIN);
        pace.observe(LATE_NS, LATE_NS);
        assert_eq!(pace.unknown_ns(), UNKNOWN_REQUESTS * UNKNOWN_NS_MIN);
        pace.observe(2 * LATE_NS, 2 * LATE_NS);
        assert_eq!(pace.unknown_ns(), UNKNOWN_NS_MIN);
    }

    #[test]
    fn what_was_under_way_when_events_were_lost_counts_from_then_on() {
        let mut scene = Scene::new();
        scene.begin(SLOW, 10);
        scene.read(SLOW, 11, true);
        scene.attribution.clear(5_000, None);
        assert_eq!(scene.over_ns(), Some(5_000 + UNKNOWN_NS_MIN));
    }

    proptest! {
        /// Whatever processes do when: a request that is taken once the grace period is over finds
        /// the newest text.
        #[test]
        fn no_request_after_the_grace_period_finds_an_older_text(
            jobs in proptest::collection::vec(
                (0..3_u32, 1..20_u64, 0..20_u64, 0..40_u64, any::<bool>()),
                1..12,
            ),
        ) {
            let mut scene = Scene::new();
            // Each process takes one request after the other: begins, opens the file, puts the text
            // in the memory that they share, ends.
            let mut free = [1_u64; 3];
            let mut steps = Vec::new();
            let mut changes = Vec::new();
            for (process, before, compile, after, changes_meanwhile) in jobs {
                let begin = free[process as usize] + before;
                let (open, publish) = (begin + before, begin + before + compile);
                let end = publish + after;
                free[process as usize] = end + 1;
                steps.push((begin, 0, process, open));
                steps.push((open, 1, process, open));
                steps.push((publish, 2, process, open));
                steps.push((end, 3, process, open));
                if changes_meanwhile {
                    changes.push(open + compile / 2);
                }
            }
            let version = |at: u64| changes.iter().filter(|change| **change < at).count();
            let mut connected = [false; 3];
            steps.sort_unstable();
            let (mut opened, mut memory) = (None, None);
            for (time, what, process, open) in steps {
                let id = process + 10;
                match what {
                    0 => {
                        if !std::mem::replace(&mut connected[process as usize], true) {
                            scene.tell(
                                id,
                                0,
                                EventKind::Request(step(id, RequestStep::Connection)),
                                b"",
                            );
                        }
                        scene.begin(id, time);
                    }
                    1 => {
                        let is_changed =
                            opened.is_some_and(|opened| version(opened) < version(time));
                        opened = Some(time);
                        scene.read(id, time, is_changed);
                    }
                    2 => memory = Some(version(open)),
                    _ => scene.end(id, time),
                }
                let is_read = opened.is_some_and(|opened| version(opened) == version(time + 1));
                if is_read
                    && scene.over_ns().is_some_and(|ns| ns < time)
                    && let Some(memory) = memory
                {
                    prop_assert_eq!(memory, version(time + 1), "at {}", time);
                }
            }
        }
    }
}
