//! Programs of the server that ran before anybody watched, and what may rest on them.
//!
//! What such a program has read is in its memory, and nobody has seen it read. So no dynamic reply
//! is kept in whose time one of them did something, and none while one of them takes requests. Once
//! they have been started again, all is as if the server had been started after the watcher.
//!
//! A program is told apart by what the kernel handed to it when it was executed (the auxiliary
//! vector, which holds addresses that are random): a child has its parent's, with its parent's
//! memory, until it executes another program. Without random addresses (`setarch -R`) a program
//! that was started again may look as before, and is taken for the older one.

use std::collections::{HashMap, HashSet};

use crate::processes::{image_of, is_in_namespace, processes};
use crate::witnesses::event::{EventKind, LookupEvent, RequestStep};

/// Processes that are followed. With more nothing is believed to be new.
const PROCESSES_MAX: usize = 8192;
/// An older program is looked at again after this: it may have executed another one.
const LOOK_NS: u64 = 250_000_000;

#[derive(Clone, Copy, Debug)]
struct Process {
    is_older: bool,
    takes_requests: bool,
    looked_ns: u64,
}

/// Programs of the server that ran before anybody watched.
///
/// All times are CLOCK_MONOTONIC in nanoseconds.
pub(crate) struct OlderPrograms {
    images: HashSet<Box<[u8]>>,
    processes: HashMap<u32, Process>,
    /// When one of them may last have had a part in something.
    until_ns: u64,
    has_overflowed: bool,
}

impl OlderPrograms {
    /// All that run in this network namespace now.
    pub(crate) fn in_namespace(netns: u32, now_ns: u64) -> Self {
        Self::of(|| processes().filter(move |process| is_in_namespace(*process, netns)), now_ns)
    }

    fn of<I: Iterator<Item = u32>>(inside: impl Fn() -> I, now_ns: u64) -> Self {
        let mut older = Self {
            images: HashSet::new(),
            processes: HashMap::new(),
            until_ns: now_ns,
            has_overflowed: false,
        };
        // A child may have got a number that was passed already, while its parent ends.
        let mut is_complete = false;
        while !is_complete {
            is_complete = true;
            for process in inside() {
                if let Some(image) = image_of(process) {
                    is_complete &= !older.images.insert(image);
                    older.add(process, true, now_ns);
                }
            }
        }
        older
    }

    /// Those that are known.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> + '_ {
        self.processes.keys().copied()
    }

    /// Takes note of what a process did. A database may be older: what it is asked is known.
    pub(crate) fn observe(&mut self, event: &LookupEvent, now_ns: u64) {
        let request = match event.kind {
            EventKind::Sql(_) | EventKind::DatabaseStarted(_) | EventKind::DatabaseGone { .. } => {
                return;
            }
            EventKind::Request(request) => request,
            _ => {
                if self.is_older(event.tgid, now_ns) {
                    self.until_ns = now_ns;
                }
                return;
            }
        };
        match request.what {
            RequestStep::Gone => {
                if self.processes.remove(&event.tgid).is_some_and(|process| process.is_older) {
                    self.until_ns = now_ns;
                }
            }
            RequestStep::Started(_) => {
                let child = request.connection as u32;
                let parent = self.processes.get(&event.tgid);
                if parent.is_some_and(|parent| !parent.is_older) {
                    self.add(child, false, now_ns);
                }
            }
            _ => {
                if self.is_older(event.tgid, now_ns) {
                    self.until_ns = now_ns;
                }
                if let Some(process) = self.processes.get_mut(&event.tgid) {
                    process.takes_requests = true;
                }
            }
        }
    }

    /// Events have been lost: the number of a new one that has ended may be that of an older one's
    /// child; and any of these may take requests, unless it is known who does (`takers`).
    pub(crate) fn handle_lost(&mut self, netns: u32, takers: Option<&HashSet<u32>>, now_ns: u64) {
        let inside = processes().filter(|process| is_in_namespace(*process, netns));
        self.forget_and_look(inside, takers, now_ns);
    }

    fn forget_and_look(
        &mut self,
        inside: impl Iterator<Item = u32>,
        takers: Option<&HashSet<u32>>,
        now_ns: u64,
    ) {
        self.until_ns = now_ns;
        self.processes.retain(|_, known| known.is_older);
        for process in inside {
            if self.is_older(process, now_ns)
                && let Some(known) = self.processes.get_mut(&process)
            {
                known.takes_requests |= takers.is_none_or(|takers| takers.contains(&process));
            }
        }
    }

    /// May a reply rest on one of them whose request was forwarded then?
    pub(crate) fn may_have_answered(&mut self, forwarded_ns: u64, now_ns: u64) -> bool {
        let takers = self.processes.iter().filter(|(_, known)| known.takes_requests);
        let older: Vec<u32> =
            takers.filter(|(_, known)| known.is_older).map(|(&process, _)| process).collect();
        let is_there = older.into_iter().any(|process| self.is_older(process, now_ns));
        is_there || self.has_overflowed || forwarded_ns <= self.until_ns
    }

    /// Does the process run a program that is older than the watcher? Whoever is gone may have.
    fn is_older(&mut self, process: u32, now_ns: u64) -> bool {
        match self.processes.get(&process) {
            Some(known) if !known.is_older => return false,
            Some(known) if now_ns < known.looked_ns + LOOK_NS => return true,
            _ => {}
        }
        let Some(image) = image_of(process) else {
            self.until_ns = now_ns;
            return true;
        };
        let is_older = self.images.contains(&image);
        // What it did until just now may have been done by the program before.
        self.until_ns = now_ns;
        self.add(process, is_older, now_ns);
        is_older
    }

    fn add(&mut self, process: u32, is_older: bool, looked_ns: u64) {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&process) {
            self.has_overflowed = true;
            return;
        }
        let takes_requests = self.processes.get(&process).is_some_and(|known| known.takes_requests);
        self.processes.insert(process, Process { is_older, takes_requests, looked_ns });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::witnesses::event::RequestEvent;

    const SECOND: u64 = 1_000_000_000;

    /// A program that is ended with the test. It reads lines.
    struct Program(Child);

    impl Program {
        fn start(script: &str) -> Self {
            let mut command = Command::new("sh");
            let child = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            Self(child.spawn().unwrap())
        }

        fn tell(&mut self, line: &str) {
            writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
        }

        fn process(&self) -> u32 {
            self.0.id()
        }

        /// The process that it has started.
        fn child(&self) -> u32 {
            let path = format!("/proc/{0}/task/{0}/children", self.process());
            let children = || std::fs::read_to_string(&path).unwrap();
            until(|| !children().is_empty());
            children().trim().parse().unwrap()
        }

        /// Until the shell waits for a line: it has been executed to its end.
        fn wait(&self) {
            let path = format!("/proc/{}/syscall", self.process());
            until(|| std::fs::read_to_string(&path).unwrap().starts_with("0 0x0 "));
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it waits for another program")]
    fn until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn request(process: u32, what: RequestStep, connection: u64) -> LookupEvent {
        let kind = EventKind::Request(RequestEvent { what, connection, concurrent: false });
        LookupEvent { tgid: process, kind, ..LookupEvent::blank(0) }
    }

    fn takes(process: u32) -> LookupEvent {
        request(process, RequestStep::Connection, 1)
    }

    #[test]
    fn a_program_is_older_until_it_executes_another() {
        let mut program = Program::start("read a; exec sh -c 'read b; sleep 100'");
        let process = program.process();
        program.wait();
        let mut older = OlderPrograms::of(|| std::iter::once(process), 10);
        assert!(older.may_have_answered(10, 10) && !older.may_have_answered(11, 11));
        older.observe(&takes(process), 20);
        assert!(older.may_have_answered(SECOND, SECOND), "it takes requests");
        let image = image_of(process);
        program.tell("go on");
        until(|| image_of(process) != image);
        // It may have done something before.
        assert!(older.may_have_answered(2 * SECOND, 2 * SECOND));
        assert!(!older.may_have_answered(2 * SECOND + 1, 2 * SECOND + 1));
        older.observe(&takes(process), 3 * SECOND);
        assert!(!older.may_have_answered(3 * SECOND, 3 * SECOND), "it is known");
    }

    #[test]
    fn a_child_is_as_old_as_its_parent() {
        let mut program = Program::start("read a; (read b; read c)");
        let process = program.process();
        program.wait();
        let mut older = OlderPrograms::of(|| std::iter::once(process), 10);
        program.tell("go on");
        let child = program.child();
        older.observe(&takes(child), 20);
        assert!(older.may_have_answered(SECOND, SECOND));
        older.observe(&request(child, RequestStep::Gone, 0), 2 * SECOND);
        assert!(older.may_have_answered(2 * SECOND, 3 * SECOND), "it may have had it");
        assert!(!older.may_have_answered(2 * SECOND + 1, 3 * SECOND));
        // One that takes no requests counts while it does something.
        let look_up =
            LookupEvent { tgid: process, kind: EventKind::Lookup, ..LookupEvent::blank(0) };
        older.observe(&look_up, 5 * SECOND);
        assert!(older.may_have_answered(4 * SECOND, 6 * SECOND));
        assert!(!older.may_have_answered(5 * SECOND + 1, 6 * SECOND));
    }

    #[test]
    fn what_a_new_program_starts_is_new() {
        let old = Program::start("read a");
        let mut older = OlderPrograms::of(|| std::iter::once(old.process()), 10);
        let new = Program::start("read a");
        new.wait();
        older.observe(&takes(new.process()), 20);
        assert!(older.may_have_answered(20, 30), "it may have executed another one since");
        assert!(!older.may_have_answered(21, 30));
        // A program that is gone when it is heard of.
        older.observe(&request(new.process(), RequestStep::Started(0), 999_999_999), 40);
        older.observe(&takes(999_999_999), 50);
        assert!(!older.may_have_answered(21, 60));
        older.observe(&takes(999_999_998), 70);
        assert!(older.may_have_answered(70, 80) && !older.may_have_answered(71, 80));
    }

    /// The end of a new one is among the events that were lost, and its number has been given to an
    /// older one's child.
    #[test]
    fn what_is_known_of_new_ones_does_not_outlive_lost_events() {
        let old = Program::start("read a");
        old.wait();
        let process = old.process();
        let mut older = OlderPrograms::of(|| std::iter::once(process), 10);
        older
            .processes
            .insert(process, Process { is_older: false, takes_requests: true, looked_ns: 10 });
        assert!(!older.may_have_answered(20, 30));
        older.forget_and_look(std::iter::once(process), Some(&HashSet::new()), 40);
        assert!(!older.may_have_answered(SECOND, SECOND), "it takes no requests");
        older.forget_and_look(std::iter::once(process), Some(&HashSet::from([process])), 50);
        assert!(older.may_have_answered(SECOND, SECOND));
        let mut older = OlderPrograms::of(|| std::iter::once(process), 10);
        older.forget_and_look(std::iter::once(process), None, 40);
        assert!(older.may_have_answered(SECOND, SECOND));
    }

    #[test]
    fn with_too_many_processes_nothing_is_believed() {
        let mut older = OlderPrograms::of(std::iter::empty, 10);
        for process in 1..=PROCESSES_MAX as u32 {
            older.add(process, false, 20);
        }
        assert!(!older.may_have_answered(30, 40));
        older.add(u32::MAX, false, 50);
        assert!(older.may_have_answered(60, 70));
    }
}
