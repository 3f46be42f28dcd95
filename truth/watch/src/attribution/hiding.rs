//! Programs in the server's network that do what nobody sees: by io_uring, or by 32-bit system
//! calls.
//!
//! Read first: `ebpf/uring.h` (when the kernel tells of one), docs/coherence.md rules 13, 21 and
//! 22.
//!
//! What such a program looks at is in no source set, and whom it asks is not known. So no reply is
//! kept in which it may have had a part. Which ones are that?
//!
//! *Of pages*: all replies, if the program is one of the server's: it takes requests, or has been
//! started, in the server's network, by whoever has started a program that does. As long as it is
//! there; and if it may answer requests itself, for good, because what it has read may be in memory
//! that programs share. One that a request has started, or by which nobody is answered, takes with
//! it what it has read. Of a program that has come to the network from elsewhere (`nsenter`) and
//! takes no requests, nothing is in a page unless a program of the server asks it.
//!
//! *Of files alone* (`nicache attach`, where all programs of a machine may be in the server's
//! network): those that are made while the program may answer the web server's clients: it has a
//! socket at which they ask, or has an ancestor in common with a program that has one. Nothing else
//! can have decided which file is sent without being asked (rule 22), and the file's bytes are
//! compared.
//!
//! Whoever hides is a stranger to all others ([`Peers`](crate::attribution::peers::Peers)): a page
//! that asks it, or a program that has started it, is not kept.
//!
//! What is not certain is on the safe side: a program that is gone when it is looked at had a part
//! as long as it was there.

use std::collections::{HashMap, HashSet};

use nicache_coherence::{FillRequest, RevisionTable};

use crate::attribution::listeners::{Listeners, Place};
use crate::attribution::requests::Attribution;
use crate::processes::{is_in_namespace, parent_of, sockets_of, start_of};
use crate::witnesses::event::LookupEvent;
use crate::witnesses::history::HISTORY_NS;
use crate::witnesses::members::Members;

/// Programs that are told apart. With more nothing is kept.
const PROGRAMS_MAX: usize = 1024;
/// Generations that are looked at from a process upward.
const ANCESTORS_MAX: usize = 64;

/// A program that does what nobody sees.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    name: Box<str>,
    /// A reply was refused because of it.
    is_told: bool,
    since_ns: u64,
    /// `None`: it is there.
    until_ns: Option<u64>,
    /// When its process was started ([`start_of`]); `None`: it was gone already.
    started: Option<u64>,
    /// Nobody is answered by it, the kernel says.
    is_bystander: bool,
    /// A request has started it.
    is_of_request: bool,
    /// What it had to do with pages when it was last looked at.
    part: Part,
    /// It might have answered the web server's clients then.
    may_serve: bool,
}

impl Program {
    /// Was it there between the two moments?
    fn overlaps(&self, from_ns: u64, to_ns: u64) -> bool {
        self.since_ns <= to_ns && self.until_ns.is_none_or(|until_ns| from_ns <= until_ns)
    }

    /// Is the program gone? That may not have been told: of one that has gone to another network,
    /// or because events were lost.
    fn has_ended(&mut self, process: u32, now_ns: u64) -> bool {
        let is_there = self.started.is_some() && start_of(process) == self.started;
        if !is_there {
            self.until_ns.get_or_insert(now_ns);
        }
        self.until_ns.is_some()
    }

    /// Tells the operator, once.
    fn tell(&mut self, process: u32, is_of_pages: bool) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let until = match is_of_pages && self.part == Part::ForGood {
            true => "nicache is started again",
            false => "it has ended",
        };
        tracing::warn!(
            "process {process} ({}) does what nobody sees (io_uring or 32-bit calls), and may have to do with replies: nothing is kept until {until}",
            self.name
        );
    }

    /// Its part if it has one.
    fn own_part(&self, takes_requests: bool) -> Part {
        let ends_with_it = self.is_of_request || (self.is_bystander && !takes_requests);
        if ends_with_it { Part::WhileThere } else { Part::ForGood }
    }
}

/// What a program has to do with pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It may have had a part in all that was made since.
    ForGood,
    /// It may have had one as long as it was there.
    WhileThere,
    /// None, unless it is asked.
    Stranger,
}

/// Programs in the server's network that do what nobody sees. The [module](self) has the rules.
#[derive(Debug, Default)]
pub(crate) struct HidingPrograms {
    programs: HashMap<u32, Program>,
    /// One of the server's has been among them.
    is_for_good: bool,
    has_overflowed: bool,
}

/// What is known of all programs.
pub(crate) struct Surroundings<'a> {
    pub(crate) attribution: &'a Attribution,
    pub(crate) members: Option<&'a Members>,
    pub(crate) table: &'a RevisionTable,
    pub(crate) listeners: &'a mut Listeners,
}

impl Surroundings<'_> {
    /// The process and its ancestors in the server's network, from the process upward. The
    /// machine's first process is nobody's relative: it takes over those that have lost theirs.
    fn line(&self, process: u32) -> Vec<u32> {
        let netns = self.table.server_netns();
        let parent = |process: &u32| {
            parent_of(*process).filter(|parent| *parent > 1 && is_in_namespace(*parent, netns))
        };
        std::iter::successors(Some(process), parent).take(ANCESTORS_MAX).collect()
    }

    fn is_member(&self, process: u32) -> bool {
        self.members.is_some_and(|members| members.contains(process))
    }

    /// What has a program that is there to do with pages?
    fn part_of(&self, process: u32, program: &Program) -> Part {
        let takes_requests = self.attribution.takes_requests(process);
        let part = program.own_part(takes_requests);
        if program.is_of_request || takes_requests || self.is_member(process) {
            return part;
        }
        let top = |process| self.line(process).last().copied();
        let own = top(process);
        let mut takers = self.attribution.takers().peekable();
        match takers.peek().is_none() || takers.any(|taker| top(taker) == own) {
            true => part,
            false => Part::Stranger,
        }
    }

    /// May a program that is there answer the web server's clients, or has it been started with one
    /// that does?
    fn may_serve(&mut self, process: u32, now_ns: u64) -> bool {
        let netns = self.table.server_netns();
        let ports = self.table.service_ports();
        if ports.is_empty() || self.is_member(process) || !is_in_namespace(process, netns) {
            return true;
        }
        let line = self.line(process);
        let own: HashSet<u64> = sockets_of(process).into_iter().collect();
        for port in ports {
            let place = Place { network: netns.into(), address: None, port };
            let Some(found) = self.listeners.holders(process, place, now_ns) else { continue };
            let sockets = self.listeners.sockets_at(process, place, now_ns);
            let is_relative =
                |holder: &u32| self.line(*holder).iter().any(|ancestor| line.contains(ancestor));
            // No owners: it is not certain who listens there.
            if found.owners.is_empty()
                || sockets.iter().any(|socket| own.contains(socket))
                || found.owners.iter().chain(&found.others).any(is_relative)
            {
                return true;
            }
        }
        false
    }
}

impl HidingPrograms {
    /// A program does what nobody sees. `is_bystander`: nobody is answered by it.
    pub(crate) fn add(
        &mut self,
        event: &LookupEvent,
        is_bystander: bool,
        mut around: Surroundings<'_>,
        now_ns: u64,
    ) {
        let process = event.tgid;
        if self.programs.len() >= PROGRAMS_MAX && !self.programs.contains_key(&process) {
            self.has_overflowed = true;
            return;
        }
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let mut program = Program {
            name: name.trim_end().into(),
            is_told: false,
            since_ns: event.time_ns,
            until_ns: None,
            started: start_of(process),
            is_bystander,
            is_of_request: event.starter != 0,
            part: Part::ForGood,
            may_serve: true,
        };
        // One that has ended lately may have had the number.
        if let Some(earlier) = self.programs.get(&process) {
            program.since_ns = program.since_ns.min(earlier.since_ns);
            program.is_bystander &= earlier.is_bystander;
            program.is_of_request &= earlier.is_of_request;
        }
        program.part = program.own_part(around.attribution.takes_requests(process));
        let (part, may_serve) =
            (around.part_of(process, &program), around.may_serve(process, now_ns));
        if !program.has_ended(process, now_ns) {
            (program.part, program.may_serve) = (part, may_serve);
        }
        tracing::debug!(process, call = event.nr, ?program, "a program does what nobody sees");
        self.is_for_good |= program.part == Part::ForGood;
        self.programs.insert(process, program);
    }

    /// A process has ended.
    pub(crate) fn forget(&mut self, event: &LookupEvent, attribution: &Attribution) {
        let Some(program) = self.programs.get_mut(&event.tgid) else { return };
        program.until_ns.get_or_insert(event.time_ns);
        // It may have begun to since it was looked at.
        if attribution.takes_requests(event.tgid) {
            (program.part, program.may_serve) = (program.own_part(true), true);
            self.is_for_good |= program.part == Part::ForGood;
        }
        let is_over = |program: &Program| {
            program.until_ns.is_some_and(|until_ns| until_ns + HISTORY_NS < event.time_ns)
        };
        self.programs.retain(|_, program| !is_over(program));
    }

    /// Has one of the server's programs been among them, that may answer requests?
    pub(crate) fn is_for_good(&self) -> bool {
        self.is_for_good || self.has_overflowed
    }

    /// May one of them have had a part in the reply?
    pub(crate) fn may_have_answered(
        &mut self,
        request: &FillRequest<'_>,
        mut around: Surroundings<'_>,
        now_ns: u64,
    ) -> bool {
        let is_of_pages = request.may_be_dynamic;
        let mut may_have = self.has_overflowed;
        for (&process, program) in &mut self.programs {
            if !program.has_ended(process, now_ns) {
                let (mut part, mut may_serve) = (program.part, program.may_serve);
                match is_of_pages {
                    true => part = around.part_of(process, program),
                    false => may_serve = around.may_serve(process, now_ns),
                }
                if !program.has_ended(process, now_ns) {
                    (program.part, program.may_serve) = (part, may_serve);
                }
            }
            self.is_for_good |= program.part == Part::ForGood;
            let counts =
                if is_of_pages { program.part != Part::Stranger } else { program.may_serve };
            if counts && program.overlaps(request.forwarded_ns, request.finished_ns) {
                program.tell(process, is_of_pages);
                may_have = true;
            }
        }
        may_have || (is_of_pages && self.is_for_good)
    }

    /// They, and whoever has started one of them: its sockets may be theirs.
    pub(crate) fn family(&self) -> HashSet<u32> {
        let parent = |process: &u32| parent_of(*process).filter(|parent| *parent > 0);
        let line = |process| std::iter::successors(Some(process), parent).take(ANCESTORS_MAX);
        self.programs.keys().flat_map(|&process| line(process)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;

    use nicache_coherence::Stamp;
    use nicache_namespaces::Namespace;

    use super::*;
    use crate::witnesses::event::{EventKind, RequestEvent, RequestStep};

    /// A program that is ended with the test, and what it starts.
    struct Program(Child);

    impl Program {
        /// Starts it in a network, as somebody does who comes from another one.
        fn start(network: &Namespace, script: &'static str) -> Self {
            let start =
                move || Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn();
            Self(network.run(start).unwrap())
        }

        fn process(&self) -> u32 {
            self.0.id()
        }

        /// It has read a line.
        fn go_on(&self) {
            use std::io::Write;
            self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
        }

        /// Those that it has started, once there are so many.
        fn children(&self, count: usize) -> Vec<u32> {
            while self.all_children().len() < count {
                std::thread::yield_now();
            }
            self.all_children()
        }

        fn all_children(&self) -> Vec<u32> {
            let path = format!("/proc/{0}/task/{0}/children", self.process());
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().map(|word| word.parse().unwrap()).collect()
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            for child in self.all_children() {
                let child = rustix::process::Pid::from_raw(child as i32).unwrap();
                let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// What the watcher knows.
    struct Watcher {
        hiding: HidingPrograms,
        attribution: Attribution,
        listeners: Listeners,
        table: Arc<RevisionTable>,
    }

    impl Watcher {
        fn new(network: &Namespace) -> Self {
            let table = RevisionTable::on_heap();
            table.set_server_netns(network.inode());
            table.set_service_ports(&[80]);
            let (hiding, attribution) = Default::default();
            let listeners = Listeners::new(Arc::clone(&table));
            Self { hiding, attribution, listeners, table }
        }

        fn request(&mut self, process: u32, what: RequestStep) -> LookupEvent {
            let request = RequestEvent { connection: 1, what, concurrent: false };
            let event = event(process, EventKind::Request(request));
            if what == RequestStep::Gone {
                self.hiding.forget(&event, &self.attribution);
            }
            self.attribution.observe(&event);
            event
        }

        fn takes(&mut self, process: u32) {
            self.request(process, RequestStep::Connection);
        }

        fn hides(&mut self, process: u32, is_bystander: bool, starter: u32) {
            let kind = EventKind::Hides { is_bystander };
            let event = LookupEvent { starter, ..event(process, kind) };
            let Self { hiding, attribution, listeners, table } = self;
            let around = Surroundings { attribution, members: None, table, listeners };
            hiding.add(&event, is_bystander, around, 10);
        }

        /// Is no page (or file) kept that was asked for and answered between these moments?
        fn refuses(&mut self, may_be_dynamic: bool, during: (u64, u64)) -> bool {
            let request = FillRequest {
                id: 1,
                stamp: Stamp(1),
                asked: Stamp(1),
                forwarded_ns: during.0,
                finished_ns: during.1,
                lost: 0,
                body_len: 0,
                body_hash: [0; 32],
                last_modified: None,
                may_be_static: true,
                may_be_dynamic,
                previous: None,
                client: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1),
                target: b"/",
            };
            let Self { hiding, attribution, listeners, table } = self;
            let around = Surroundings { attribution, members: None, table, listeners };
            hiding.may_have_answered(&request, around, during.1)
        }
    }

    fn event(process: u32, kind: EventKind) -> LookupEvent {
        LookupEvent { tgid: process, tid: process, kind, ..LookupEvent::blank(10) }
    }

    const SERVER: &str = "sleep 60 & sleep 60 & wait";
    const NOW: (u64, u64) = (20, 30);

    #[test]
    fn whoever_comes_from_elsewhere_is_a_stranger() {
        let Some(network) = Namespace::new() else { return };
        let server = Program::start(&network, SERVER);
        let [worker, helper] = server.children(2)[..] else { panic!() };
        let guest = Program::start(&network, "read a");
        let mut watcher = Watcher::new(&network);
        watcher.takes(worker);
        watcher.hides(guest.process(), true, 0);
        assert!(!watcher.refuses(true, NOW));
        // What it looked at before it was seen to hide was seen.
        watcher.hides(helper, true, 0);
        assert!(watcher.refuses(true, NOW) && !watcher.refuses(true, (1, 9)));
        assert!(!watcher.hiding.is_for_good(), "nobody is answered by it");
        watcher.request(helper, RequestStep::Gone);
        assert!(!watcher.refuses(true, NOW));
        // It begins to answer.
        watcher.takes(guest.process());
        assert!(watcher.refuses(true, NOW) && watcher.hiding.is_for_good());
    }

    #[test]
    fn what_may_answer_hides_for_good() {
        let Some(network) = Namespace::new() else { return };
        let server = Program::start(&network, SERVER);
        let [worker, helper] = server.children(2)[..] else { panic!() };
        let mut watcher = Watcher::new(&network);
        watcher.takes(worker);
        watcher.hides(helper, false, 0);
        watcher.request(helper, RequestStep::Gone);
        assert!(watcher.refuses(true, (1000, 2000)) && watcher.hiding.is_for_good());
        // Before anybody has asked for anything, all may be the server's.
        let mut watcher = Watcher::new(&network);
        watcher.hides(Program::start(&network, "read a").process(), false, 0);
        assert!(watcher.refuses(true, NOW));
    }

    #[test]
    fn what_a_request_has_started_hides_until_it_ends() {
        let Some(network) = Namespace::new() else { return };
        let server = Program::start(&network, SERVER);
        let [worker, helper] = server.children(2)[..] else { panic!() };
        let mut watcher = Watcher::new(&network);
        watcher.takes(worker);
        watcher.hides(helper, true, worker);
        assert!(watcher.refuses(true, NOW));
        watcher.request(helper, RequestStep::Gone);
        assert!(watcher.refuses(true, (5, 12)) && !watcher.refuses(true, NOW));
        // One that is gone before anybody can look.
        watcher.hides(u32::MAX >> 2, true, 0);
        assert!(watcher.refuses(true, (5, 12)) && !watcher.refuses(true, NOW));
        assert!(!watcher.hiding.is_for_good());
        watcher.hides(u32::MAX >> 2, false, 0);
        assert!(watcher.refuses(true, NOW) && watcher.hiding.is_for_good());
    }

    #[test]
    fn files_are_kept_beside_whoever_has_nothing_to_do_with_the_web_server() {
        let Some(network) = Namespace::new() else { return };
        // Its helper has the socket, too.
        let server = Program::start(
            &network,
            "python3 -c 'import socket, time; s = socket.create_server((\"\", 80)); print(1, flush=True); time.sleep(60)' & sleep 60 & wait",
        );
        let [nginx, helper] = server.children(2)[..] else { panic!() };
        let mut watcher = Watcher::new(&network);
        let is_there = |watcher: &mut Watcher| {
            let place = Place { network: network.inode().into(), address: None, port: 80 };
            let found = watcher.listeners.holders(nginx, place, 10);
            watcher.listeners = Listeners::new(Arc::clone(&watcher.table));
            found.is_some_and(|found| !found.owners.is_empty())
        };
        while !is_there(&mut watcher) {
            std::thread::yield_now();
        }
        let guest = Program::start(&network, "read a");
        watcher.hides(guest.process(), false, 0);
        watcher.takes(guest.process());
        assert!(!watcher.refuses(false, NOW));
        assert!(watcher.refuses(true, NOW), "a page may have asked it");
        for process in [helper, nginx] {
            let mut watcher = Watcher::new(&network);
            watcher.hides(process, false, 0);
            assert!(watcher.refuses(false, NOW));
        }
    }

    /// What is known of who listens is known of a time.
    #[test]
    fn whoever_begins_to_listen_may_answer_at_once() {
        let Some(network) = Namespace::new() else { return };
        let begun = Program::start(
            &network,
            "read a; exec python3 -c 'import socket, time; s = socket.create_server((\"\", 80)); time.sleep(60)'",
        );
        let mut watcher = Watcher::new(&network);
        watcher.table.record_listening(1);
        watcher.hides(begun.process(), false, 0);
        assert!(!watcher.refuses(false, NOW), "nobody listens");
        begun.go_on();
        let place = Place { network: network.inode().into(), address: None, port: 80 };
        while Listeners::new(RevisionTable::on_heap())
            .sockets_at(begun.process(), place, 0)
            .is_empty()
        {
            std::thread::yield_now();
        }
        watcher.table.record_listening(40);
        assert!(watcher.refuses(false, (20, 50)));
    }

    #[test]
    fn there_are_not_too_many() {
        let Some(network) = Namespace::new() else { return };
        let mut watcher = Watcher::new(&network);
        for process in 0..=PROGRAMS_MAX as u32 {
            assert!(!watcher.hiding.has_overflowed);
            watcher.hides((u32::MAX >> 2) - process, true, 0);
        }
        assert!(
            watcher.refuses(true, (20_000, 30_000)) && watcher.refuses(false, (20_000, 30_000))
        );
    }
}
