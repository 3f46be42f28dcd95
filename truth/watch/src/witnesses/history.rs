//! The look-ups of the last seconds, in order of time, in bounded memory.

use std::collections::{HashMap, VecDeque};

use crate::witnesses::event::{EventKind, LookupEvent};

/// How long look-ups are kept, in nanoseconds. A reply that takes longer is not stored.
pub const HISTORY_NS: u64 = 10_000_000_000;

/// How many look-ups are kept at most: some 10 MB.
pub const HISTORY_EVENTS_MAX: usize = 65_536;

/// The look-ups of the last seconds, in order of time, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: VecDeque<LookupEvent>,
    /// Everything that happened after this is here.
    complete_after_ns: u64,
    hidden: bool,
    /// Working directories that processes have gone to; `None`: unknown.
    directories: HashMap<u32, Option<Box<[u8]>>>,
}

/// Processes whose working directory is followed.
const DIRECTORIES_MAX: usize = 4096;

impl History {
    /// An empty history that claims to be complete after `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self { events: VecDeque::with_capacity(1024), complete_after_ns: now_ns, ..Self::default() }
    }

    /// Adds an event. Events come nearly in order: two processors may reserve room and read the
    /// clock the other way round.
    pub(crate) fn push(&mut self, mut event: LookupEvent) {
        self.hidden |= event.kind == EventKind::Hidden;
        self.follow_directory(&mut event);
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

    /// A process may go from directory to directory while it works, as PHP does for each script: a
    /// relative path is noted as the absolute one that it was at that moment.
    fn follow_directory(&mut self, event: &mut LookupEvent) {
        let known = self.directories.get(&event.tgid);
        if event.is_relative()
            && let Some(known) = known
        {
            match known {
                Some(directory) => {
                    let below = |path: &[u8]| [directory, &b"/"[..], path].concat().into();
                    event.path = below(&event.path);
                    if let Some(folder) =
                        event.folder.as_mut().filter(|path| !path.starts_with(b"/"))
                    {
                        *folder = below(folder);
                    }
                }
                None => event.incomplete = true,
            }
        }
        if event.kind == EventKind::Moved {
            if self.directories.len() >= DIRECTORIES_MAX {
                // What is forgotten must not be taken for a process that never moved.
                self.directories.values_mut().for_each(|directory| *directory = None);
                if !self.directories.contains_key(&event.tgid) {
                    self.hidden = true;
                    return;
                }
            }
            let is_known = event.path.starts_with(b"/") && !event.incomplete;
            self.directories.insert(event.tgid, is_known.then(|| event.path.clone()));
        }
    }

    /// A process has started another, which is where it is itself.
    pub(crate) fn handle_started(&mut self, parent: u32, child: u32) {
        let Some(directory) = self.directories.get(&parent).cloned() else { return };
        if self.directories.len() >= DIRECTORIES_MAX {
            self.hidden = true;
            return;
        }
        self.directories.insert(child, directory);
    }

    /// The process has ended: another may have its number.
    pub(crate) fn forget_process(&mut self, tgid: u32) {
        self.directories.remove(&tgid);
    }

    /// Events have been lost: any process that was seen to move may be elsewhere by now.
    pub(crate) fn forget_directories(&mut self) {
        self.directories.values_mut().for_each(|directory| *directory = None);
    }

    /// Are all look-ups since `time_ns` here?
    pub(crate) fn covers(&self, time_ns: u64) -> bool {
        time_ns > self.complete_after_ns
    }

    /// From now on the server can look things up unseen.
    pub(crate) fn hide(&mut self) {
        self.hidden = true;
    }

    /// Can the server look things up unseen (io_uring, 32-bit system calls, file handles)? Once
    /// true, for good.
    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// Events from `time_ns` on, oldest first.
    pub(crate) fn since(&self, time_ns: u64) -> impl Iterator<Item = &LookupEvent> {
        let start = self.events.partition_point(|event| event.time_ns < time_ns);
        self.events.range(start..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ns: u64) -> LookupEvent {
        LookupEvent::blank(time_ns)
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
    fn relative_paths_are_those_of_the_moment() {
        let mut history = History::new(0);
        let at =
            |time_ns, kind, path: &[u8]| LookupEvent { kind, path: path.into(), ..event(time_ns) };
        history.push(at(1, EventKind::Lookup, b"x"));
        history.push(at(2, EventKind::Moved, b"/a"));
        history.push(at(3, EventKind::Lookup, b"x"));
        history.push(at(4, EventKind::Moved, b"b"));
        history.push(at(5, EventKind::Lookup, b"x"));
        history.push(at(6, EventKind::Moved, b""));
        history.push(at(7, EventKind::Lookup, b"x"));
        history.push(at(8, EventKind::Lookup, b"/x"));
        let seen = history.since(0).filter(|event| event.kind == EventKind::Lookup);
        let seen: Vec<_> = seen
            .map(|event| (String::from_utf8_lossy(&event.path).into_owned(), event.incomplete))
            .collect();
        let expected =
            [("x", false), ("/a/x", false), ("/a/b/x", false), ("x", true), ("/x", false)];
        assert_eq!(seen, expected.map(|(path, incomplete)| (path.to_owned(), incomplete)));
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
