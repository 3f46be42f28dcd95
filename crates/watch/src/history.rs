//! The look-ups of the last seconds, in order of time, in bounded memory.

use std::collections::VecDeque;

use crate::event::{EventKind, LookupEvent};

/// How long look-ups are kept, in nanoseconds. A reply that takes longer is not stored.
pub const HISTORY_NS: u64 = 10_000_000_000;

/// How many look-ups are kept at most: some 10 MB.
pub const HISTORY_EVENTS_MAX: usize = 65_536;

/// See the module's head.
#[derive(Debug, Default)]
pub struct History {
    events: VecDeque<LookupEvent>,
    /// Everything that happened after this is here.
    complete_after_ns: u64,
    hidden: bool,
}

impl History {
    /// An empty history that claims to be complete after `now_ns`.
    pub fn new(now_ns: u64) -> History {
        History { events: VecDeque::with_capacity(1024), complete_after_ns: now_ns, hidden: false }
    }

    /// Adds an event. Events come nearly in order: two processors may reserve room and read the clock the other way
    /// round.
    pub fn push(&mut self, event: LookupEvent) {
        self.hidden |= event.kind == EventKind::Hidden;
        let newest_ns = self.events.back().map_or(0, |last| last.time_ns).max(event.time_ns);
        let mut at = self.events.len();
        while at > 0 && self.events[at - 1].time_ns > event.time_ns {
            at -= 1;
        }
        self.events.insert(at, event);
        while self.events.len() > HISTORY_EVENTS_MAX
            || self.events.front().is_some_and(|first| first.time_ns + HISTORY_NS < newest_ns)
        {
            if let Some(dropped) = self.events.pop_front() {
                self.complete_after_ns = self.complete_after_ns.max(dropped.time_ns);
            }
        }
    }

    /// Are all look-ups since `time_ns` here?
    pub fn covers(&self, time_ns: u64) -> bool {
        time_ns > self.complete_after_ns
    }

    /// Can the server look things up unseen (io_uring, 32-bit system calls, file handles)? Once true, for good.
    pub fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Events from `time_ns` on, oldest first.
    pub fn since(&self, time_ns: u64) -> impl Iterator<Item = &LookupEvent> {
        let start = self.events.partition_point(|event| event.time_ns < time_ns);
        self.events.range(start..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64) -> LookupEvent {
        LookupEvent {
            time_ns,
            clock: nicache_coherence::Stamp(0),
            ret: 0,
            kind: EventKind::Lookup,
            tgid: 1,
            tid: 1,
            nr: 2,
            dirfd: -100,
            inode: None,
            mode: 0,
            size: 0,
            open_flags: 0,
            directory: None,
            incomplete: false,
            nofollow: false,
            own_root: false,
            path: Box::default(),
        }
    }

    #[test]
    fn events_come_out_in_order_of_time() {
        let mut history = History::new(0);
        for time_ns in [5, 9, 7, 8, 6] {
            history.push(event(time_ns));
        }
        assert_eq!(history.since(6).map(|event| event.time_ns).collect::<Vec<_>>(), [6, 7, 8, 9]);
    }

    #[test]
    fn what_was_dropped_is_not_covered() {
        let mut history = History::new(3);
        assert!(!history.covers(3) && history.covers(4));
        history.push(event(10));
        history.push(event(HISTORY_NS + 11));
        assert!(!history.covers(10) && history.covers(11));
        for n in 0..HISTORY_EVENTS_MAX as u64 {
            history.push(event(HISTORY_NS + 20 + n));
        }
        assert!(!history.covers(HISTORY_NS + 11) && history.covers(HISTORY_NS + 12));
    }
}
