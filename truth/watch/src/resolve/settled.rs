//! Can a file have been changing while the server looked at it?
//!
//! What tells of a change may come when it begins, and the change may take its time: a long write,
//! or stores to a mapping. And a change time is only as fine as the kernel's tick until somebody
//! asks for it: what changes the file once more in the same tick leaves the time alone, and where
//! times are the only witness (Btrfs, tmpfs) nobody tells of it. So what the server saw of a file
//! is known only
//!
//! * if nobody had it open for writing when the server had opened it, and its time was old enough,
//!   or had been asked for; or
//! * if it was at rest before the request was forwarded, and nothing has been told of it since.
//!
//! *At rest*: its time has been asked for, so each later change is told at its beginning; and after
//! that nobody had it open for writing, so no earlier change was still under way.

use std::collections::HashMap;

use nicache_clock::{monotonic_ns, unix_ns};
use nicache_coherence::{RevisionTable, Rule, Stamp};

use crate::witnesses::event::{Identity, LookupEvent};

/// A file whose last change is this close before the request may be one whose change was still
/// under way.
pub(crate) const UNDER_WAY_NS: i128 = 20_000_000;
/// A change may have the same time as one that was this long before. The kernel's coarse clock is a
/// tick of up to 10 ms behind, and five more if the processor that moves it is held up
/// (`MAX_STALLED_JIFFIES`).
pub(crate) const SAME_TIME_NS: i128 = 80_000_000;
/// Files at rest that are remembered. With more of them all are forgotten, and looked at again.
const AT_REST_MAX: usize = 65_536;

/// Is this change time (nanoseconds since 1970) that close before `time_ns` (CLOCK_MONOTONIC), or
/// after it?
pub(crate) fn is_within(margin_ns: i128, changed_ns: i128, time_ns: u64) -> bool {
    let since_boot = i128::from(unix_ns()) - i128::from(monotonic_ns());
    changed_ns >= since_boot + i128::from(time_ns) - margin_ns
}

/// The change time of the file that was opened, if it will be another one after any further change;
/// 0: it tells nothing.
pub(crate) fn telling_change_ns(opened: &LookupEvent) -> u64 {
    let tells = opened.stillness.asked
        || !is_within(SAME_TIME_NS, opened.changed_ns.into(), opened.time_ns);
    if tells { opened.changed_ns } else { 0 }
}

/// May the server have read of it what was gone a moment later, with nobody to tell?
pub(crate) fn may_change_untold(opened: &LookupEvent) -> bool {
    let stillness = opened.stillness;
    stillness.being_written && Rule::OpenForWriting.holds()
        || stillness.only_times && telling_change_ns(opened) == 0
}

/// Files that were seen at rest.
#[derive(Debug, Default)]
pub(crate) struct AtRest {
    files: HashMap<Identity, Rest>,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    /// No change was under way then (CLOCK_MONOTONIC).
    since_ns: u64,
    /// Changes that began later have no stamp below.
    clock: Stamp,
}

impl AtRest {
    /// The file's time was asked for after the clock was `clock`, and then, before `now_ns`, nobody
    /// had it open for writing.
    pub(crate) fn note(
        &mut self,
        identity: Identity,
        clock: Stamp,
        now_ns: u64,
        table: &RevisionTable,
    ) {
        if self.files.get(&identity).is_some_and(|rest| rest.holds(identity, table)) {
            return;
        }
        if self.files.len() >= AT_REST_MAX {
            self.files.clear();
        }
        self.files.insert(identity, Rest { since_ns: now_ns, clock });
    }

    /// Has nobody been changing the file from `time_ns` on?
    pub(crate) fn has(&self, identity: Identity, time_ns: u64, table: &RevisionTable) -> bool {
        self.files
            .get(&identity)
            .is_some_and(|rest| rest.since_ns < time_ns && rest.holds(identity, table))
    }
}

impl Rest {
    fn holds(self, identity: Identity, table: &RevisionTable) -> bool {
        table.stamp_of(identity.slot()) < self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::witnesses::event::Stillness;

    const FILE: Identity = Identity { dev: 1, ino: 10 };

    #[test]
    fn a_file_is_at_rest_until_something_is_told_of_it() {
        let table = RevisionTable::on_heap();
        let mut at_rest = AtRest::default();
        assert!(!at_rest.has(FILE, u64::MAX, &table));
        table.record_change(FILE.slot());
        // What has the clock of the change may have been before it.
        at_rest.note(FILE, table.clock(), 100, &table);
        assert!(!at_rest.has(FILE, u64::MAX, &table));
        at_rest.note(FILE, table.advance_clock(), 200, &table);
        assert!(at_rest.has(FILE, 201, &table) && !at_rest.has(FILE, 200, &table));
        // The earlier time stays, as long as it holds.
        at_rest.note(FILE, table.advance_clock(), 300, &table);
        assert!(at_rest.has(FILE, 201, &table));
        table.record_change(FILE.slot());
        assert!(!at_rest.has(FILE, u64::MAX, &table));
        at_rest.note(FILE, table.advance_clock(), 400, &table);
        assert!(at_rest.has(FILE, 401, &table) && !at_rest.has(FILE, 400, &table));
    }

    #[test]
    fn a_time_tells_if_it_is_old_or_was_asked_for() {
        let (now_ns, time_ns) = (unix_ns(), monotonic_ns());
        for (age_ms, asked, only_times, being_written, expected) in [
            (500, false, true, false, (true, false)),
            (1, true, true, false, (true, false)),
            (1, false, true, false, (false, true)),
            // Further changes have their own witness there.
            (1, false, false, false, (false, false)),
            (500, true, false, true, (true, true)),
        ] {
            let event = LookupEvent {
                changed_ns: now_ns - age_ms * 1_000_000,
                stillness: Stillness { asked, only_times, being_written },
                ..LookupEvent::blank(time_ns)
            };
            assert_eq!(
                (telling_change_ns(&event) != 0, may_change_untold(&event)),
                expected,
                "{event:?}"
            );
        }
    }
}
