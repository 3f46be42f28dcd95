//! Which request a process of the server worked on, and when: what it did then is not another
//! request's.
//!
//! Read first: `ebpf/requests.h` (what the kernel tells), `fastcgi.rs`; docs/coherence.md rules 1,
//! 2, 13 and 14.
//!
//! A fill gets everything that the server group did between forward and end of its request, but for
//! what is *proven* to be another request's (rule 1). Nothing is ever added, so whatever is not
//! understood here makes a source set larger, never smaller. An event is another request's if
//!
//! 1. its process works on one request at a time: it has one thread, and has always closed its
//!    connection before it took the next. A worker of PHP-FPM, Apache's prefork and synchronous
//!    gunicorn are such; nginx, Node and uvicorn are not as soon as two clients come at once, and
//!    are no longer followed from then on;
//! 2. it was between the beginning and the end of an *execution*. With FastCGI that is from the
//!    first byte of the request to the end of the reply (what is done after
//!    `fastcgi_finish_request` counts for everybody); with HTTP from the first byte to the next
//!    request or connection. A process that takes requests by connections has nothing to do with
//!    one that it has not read yet; so the end may be told late, or be missed, and what happens
//!    until the next request is at worst nobody's;
//! 3. that execution is for another client, by address and port. Client and port name a connection
//!    through the card, on which there is one request at a time. Requests of this machine itself
//!    name nobody: they may be made for any other;
//! 4. the fill's own request has been seen to be executed, for the client that the card knows. So
//!    the web server tells the truth about clients, or nothing is taken away: behind a proxy that
//!    hides them, no execution is the fill's own;
//! 5. no execution of the fill's own has sent anything to another program but a database: what that
//!    did then is part of it.
//!
//! Interleavings. *Worker reuse*: a process ends one request and begins another: each has its
//! interval. *Connections that stay open*: each request begins with its own record. *A client that
//! goes away*: no end is told; the next connection ends it. *A request that starts a program*: the
//! child is not a process that takes requests, and what it does counts for everybody; its start
//! voids what is under way (rule 4). *Two requests at once on one connection*: the stream is lost,
//! neither is known. *Several executions for one client* (server-side includes): all are the fill's
//! own. *Lost events, a process number used again*: forgotten at once ([`Attribution::clear`], the
//! kernel's word that a process has ended).
//!
//! What a request left in memory that processes share is not seen by this, and was not before:
//! `retained/` has the files that anybody has read, and the age of dynamic entries bounds the rest.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddrV4;

use crate::attribution::fastcgi::{Step, Stream};
use crate::witnesses::event::{EventKind, LookupEvent, RequestEvent, RequestStep, Sent};
use crate::witnesses::history::HISTORY_NS;

/// Processes followed at most; those of a further one are not told apart.
const PROCESSES_MAX: usize = 16_384;
/// Processes that take requests. With more of them every process is taken for one.
const TAKERS_MAX: usize = 65_536;
/// Executions remembered of a process.
const EXECUTIONS_MAX: usize = 8192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    FastCgi,
    Http,
}

/// One request in one process.
#[derive(Clone, Copy, Debug)]
struct Execution {
    from_ns: u64,
    /// `None`: under way.
    to_ns: Option<u64>,
    client: Option<SocketAddrV4>,
    connection: u64,
    protocol: Protocol,
}

impl Execution {
    fn covers(&self, time_ns: u64) -> bool {
        self.from_ns <= time_ns && self.to_ns.is_none_or(|to_ns| time_ns <= to_ns)
    }
}

#[derive(Debug, Default)]
struct Process {
    connection: u64,
    stream: Stream,
    /// In order of time.
    executions: VecDeque<Execution>,
}

impl Process {
    fn begin(&mut self, now_ns: u64, client: Option<SocketAddrV4>, protocol: Protocol) {
        self.end(now_ns);
        let is_old = |execution: &Execution| {
            execution.to_ns.is_some_and(|to_ns| to_ns + HISTORY_NS < now_ns)
        };
        while self.executions.len() >= EXECUTIONS_MAX || self.executions.front().is_some_and(is_old)
        {
            self.executions.pop_front();
        }
        let connection = self.connection;
        self.executions.push_back(Execution {
            from_ns: now_ns,
            to_ns: None,
            client,
            connection,
            protocol,
        });
    }

    fn end(&mut self, now_ns: u64) {
        if let Some(last) = self.executions.back_mut() {
            last.to_ns.get_or_insert(now_ns);
        }
    }

    fn read_fastcgi(&mut self, event: &LookupEvent) {
        let mut steps = [None; 4];
        let mut count = 0;
        let bytes: &[u8] = if event.incomplete { b"" } else { &event.path };
        let len = usize::try_from(event.ret).unwrap_or(0);
        self.stream.feed(bytes, len, |step| {
            if let Some(place) = steps.get_mut(count) {
                *place = Some(step);
            }
            count += 1;
        });
        // Several requests at one go are none that could be told apart.
        if count > steps.len() {
            self.stream = Stream::lost();
            steps = [Some(Step::Lost), None, None, None];
        }
        for step in steps.into_iter().flatten() {
            match step {
                Step::Begun => self.begin(event.time_ns, None, Protocol::FastCgi),
                Step::Known(request) => {
                    if let Some(last) = self.executions.back_mut() {
                        last.client = request.client;
                    }
                }
                // What it does from here on may be for anybody; and so may be what it did, if there
                // were two.
                Step::Lost => {
                    if let Some(last) = self.executions.back_mut() {
                        last.client = None;
                    }
                }
            }
        }
    }

    fn at(&self, time_ns: u64) -> Option<&Execution> {
        let after = self.executions.partition_point(|execution| execution.from_ns <= time_ns);
        let last = self.executions.get(after.checked_sub(1)?)?;
        last.covers(time_ns).then_some(last)
    }
}

/// When an execution ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The execution ended, at this moment (CLOCK_MONOTONIC).
    At(u64),
    /// The execution ended, at this moment or before: it is told late.
    AtLatest(u64),
    /// The execution is under way.
    NotYet,
    /// No execution is known at that time; and everything was forgotten at this moment.
    Unknown {
        /// 0: never.
        forgotten_ns: u64,
    },
}

/// Which request each process of the server worked on, and when: what it did then is not another
/// request's. The [module](self) has the rules.
#[derive(Debug, Default)]
pub struct Attribution {
    processes: HashMap<u32, Process>,
    /// All that have taken a request or a connection, whether they are told apart or not.
    takers: HashSet<u32>,
    /// There are others, which are not known.
    has_other_takers: bool,
    forgotten_ns: u64,
}

impl Attribution {
    /// Takes note of what a process of the server did.
    pub fn observe(&mut self, event: &LookupEvent) {
        match event.kind {
            EventKind::Request(request) => self.observe_request(event, request),
            EventKind::Sent(Sent { connection, ends_request: true, .. }) => {
                if let Some(process) = self.processes.get_mut(&event.tgid)
                    && process.connection == connection
                {
                    process.end(event.time_ns);
                    process.stream.end();
                }
            }
            _ => {}
        }
    }

    /// Forgets everything: events have been lost. `takers`: the processes that take requests, if
    /// that is known from elsewhere; otherwise any process may be one, from now on.
    pub fn clear(&mut self, now_ns: u64, takers: Option<HashSet<u32>>) {
        self.processes.clear();
        self.forgotten_ns = now_ns;
        let takers = takers.filter(|takers| takers.len() < TAKERS_MAX);
        self.has_other_takers = takers.is_none();
        self.takers = takers.unwrap_or_else(|| std::mem::take(&mut self.takers));
    }

    /// When did the execution end that the process was at then?
    pub fn end_of(&self, process: u32, time_ns: u64) -> End {
        let execution = self.processes.get(&process).and_then(|process| process.at(time_ns));
        match execution.map(|execution| (execution.protocol, execution.to_ns)) {
            Some((Protocol::FastCgi, Some(to_ns))) => End::At(to_ns),
            Some((Protocol::FastCgi, None)) => End::NotYet,
            Some((Protocol::Http, Some(to_ns))) => End::AtLatest(to_ns),
            Some((Protocol::Http, None)) | None => End::Unknown { forgotten_ns: self.forgotten_ns },
        }
    }

    /// Has the process taken a request, as far as that can be said?
    pub fn takes_requests(&self, process: u32) -> bool {
        self.has_other_takers || self.takers.contains(&process)
    }

    /// The processes that have taken a request and are still there.
    pub fn takers(&self) -> impl Iterator<Item = u32> + '_ {
        self.takers.iter().copied()
    }

    fn observe_request(&mut self, event: &LookupEvent, request: RequestEvent) {
        if let RequestStep::Started(_) = request.what {
            return;
        }
        if request.what == RequestStep::Gone {
            self.takers.remove(&event.tgid);
        } else if self.takers.len() < TAKERS_MAX || self.takers.contains(&event.tgid) {
            self.takers.insert(event.tgid);
        } else {
            self.has_other_takers = true;
        }
        if request.concurrent || request.what == RequestStep::Gone {
            self.processes.remove(&event.tgid);
            return;
        }
        if request.what == RequestStep::Connection {
            if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&event.tgid) {
                return;
            }
            let process = self.processes.entry(event.tgid).or_default();
            process.end(event.time_ns);
            process.connection = request.connection;
            process.stream = Stream::default();
            return;
        }
        // One that is not known has taken its connection before events were lost.
        let Some(process) = self.processes.get_mut(&event.tgid) else { return };
        match request.what {
            _ if process.connection != request.connection => {
                drop(self.processes.remove(&event.tgid));
            }
            RequestStep::FastCgi => process.read_fastcgi(event),
            RequestStep::Http(client) => process.begin(event.time_ns, client, Protocol::Http),
            RequestStep::Connection | RequestStep::Gone | RequestStep::Started(_) => {}
        }
    }

    /// What is known not to belong to the request that was forwarded for this client between the
    /// two moments (CLOCK_MONOTONIC); `None` if its execution was not seen.
    pub fn others(&self, client: SocketAddrV4, from_ns: u64, to_ns: u64) -> Option<Others<'_>> {
        let mut own = Vec::new();
        for (&process, known) in &self.processes {
            let begin = known.executions.partition_point(|execution| execution.from_ns < from_ns);
            let during =
                known.executions.range(begin..).take_while(|execution| execution.from_ns <= to_ns);
            own.extend(
                during
                    .filter(|execution| execution.client == Some(client))
                    .map(|execution| (process, *execution)),
            );
        }
        (!own.is_empty()).then_some(Others { attribution: self, client, own })
    }
}

/// What belongs to other requests than one.
#[derive(Clone, Debug)]
pub struct Others<'a> {
    attribution: &'a Attribution,
    client: SocketAddrV4,
    /// Its executions, with their processes.
    own: Vec<(u32, Execution)>,
}

impl Others<'_> {
    /// Is the event proven to be another request's?
    pub fn has(&self, event: &LookupEvent) -> bool {
        // A thread that was started since has a number of its own.
        (event.tid == event.tgid || event.starter != 0)
            && self.is_at_work(event.worker(), event.time_ns)
    }

    /// Is what a database received at that time from the process proven to be another request's?
    /// What was sent by an execution of the request's own may be received only after it has ended.
    pub fn has_statement(&self, process: u32, time_ns: u64) -> bool {
        let is_after_own =
            self.own.iter().any(|(own, execution)| *own == process && execution.from_ns <= time_ns);
        !is_after_own && self.is_at_work(process, time_ns)
    }

    fn is_at_work(&self, process: u32, time_ns: u64) -> bool {
        let execution =
            self.attribution.processes.get(&process).and_then(|process| process.at(time_ns));
        execution.and_then(|execution| execution.client).is_some_and(|client| client != self.client)
    }

    /// Has an execution of the request's own sent this to another program? A web server that has
    /// passed the request on is not meant.
    pub fn is_call(&self, event: &LookupEvent, sent: Sent) -> bool {
        let is_passed_on =
            self.own.iter().any(|(_, execution)| execution.protocol == Protocol::FastCgi);
        self.own.iter().any(|(process, execution)| {
            *process == event.worker()
                && execution.covers(event.time_ns)
                && execution.connection != sent.connection
                && !(is_passed_on && execution.protocol == Protocol::Http)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::attribution::fastcgi::tests::request;
    use crate::witnesses::event::Peer;

    const A: &str = "10.0.0.1:1000";
    const B: &str = "10.0.0.2:1000";

    fn client(text: &str) -> SocketAddrV4 {
        text.parse().unwrap()
    }

    fn event(time_ns: u64, process: u32, kind: EventKind) -> LookupEvent {
        LookupEvent { kind, tgid: process, tid: process, ..LookupEvent::blank(time_ns) }
    }

    fn step(time_ns: u64, process: u32, connection: u64, what: RequestStep) -> LookupEvent {
        event(
            time_ns,
            process,
            EventKind::Request(RequestEvent { connection, what, concurrent: false }),
        )
    }

    fn fastcgi(time_ns: u64, process: u32, connection: u64, of: &str) -> LookupEvent {
        let (address, port) = of.split_once(':').unwrap();
        let bytes = request(&[("REMOTE_ADDR", address), ("REMOTE_PORT", port)]);
        let read = step(time_ns, process, connection, RequestStep::FastCgi);
        LookupEvent { ret: bytes.len() as i64, path: bytes.into(), ..read }
    }

    fn sent(time_ns: u64, process: u32, connection: u64, ends_request: bool) -> LookupEvent {
        event(
            time_ns,
            process,
            EventKind::Sent(Sent { to: Peer::Local(99), connection, port: 0, ends_request }),
        )
    }

    fn lookup(time_ns: u64, process: u32) -> LookupEvent {
        event(time_ns, process, EventKind::Lookup)
    }

    fn observed(events: &[LookupEvent]) -> Attribution {
        let mut attribution = Attribution::default();
        events.iter().for_each(|event| attribution.observe(event));
        attribution
    }

    /// Process 1 works for A from 10 on, process 2 for B from 11 to 30.
    fn two_workers() -> Vec<LookupEvent> {
        vec![
            step(9, 1, 71, RequestStep::Connection),
            fastcgi(10, 1, 71, A),
            step(10, 2, 72, RequestStep::Connection),
            fastcgi(11, 2, 72, B),
            sent(30, 2, 72, true),
        ]
    }

    #[test]
    fn two_overlapping_requests_separate() {
        let attribution = observed(&two_workers());
        let others = attribution.others(client(A), 5, 40).unwrap();
        assert!(others.has(&lookup(20, 2)) && !others.has(&lookup(20, 1)));
        // Before and after B's request, and what another process or thread did.
        assert!(
            !others.has(&lookup(10, 2))
                && !others.has(&lookup(31, 2))
                && !others.has(&lookup(20, 3))
        );
        assert!(!others.has(&LookupEvent { tid: 5, ..lookup(20, 2) }));
        let others = attribution.others(client(B), 5, 40).unwrap();
        assert!(others.has(&lookup(20, 1)) && !others.has(&lookup(20, 2)));
        // Under way: no end is known.
        assert!(others.has(&lookup(1000, 1)));
    }

    #[test]
    fn a_request_whose_execution_was_not_seen_gets_everything() {
        let attribution = observed(&two_workers());
        assert!(attribution.others(client("10.0.0.3:1000"), 5, 40).is_none());
        assert!(attribution.others(client("10.0.0.1:1001"), 5, 40).is_none());
        // An earlier request of the same client is another one.
        assert!(attribution.others(client(A), 12, 40).is_none());
    }

    #[test]
    fn a_worker_is_used_again_on_the_same_and_on_another_connection() {
        let mut events = two_workers();
        events.extend([fastcgi(40, 2, 72, A), sent(50, 2, 72, true)]);
        events.extend([step(60, 2, 73, RequestStep::Connection), fastcgi(61, 2, 73, B)]);
        let attribution = observed(&events);
        let others = attribution.others(client(A), 35, 70).unwrap();
        assert!(
            !others.has(&lookup(45, 2)) && others.has(&lookup(25, 2)) && others.has(&lookup(65, 2))
        );
        assert!(!others.has(&lookup(55, 2)), "between two requests");
        // What A's execution has sent to a database may be received late.
        assert!(
            others.has_statement(2, 25)
                && !others.has_statement(2, 45)
                && !others.has_statement(2, 65)
        );
    }

    #[test]
    fn a_request_that_nobody_ends_is_ended_by_the_next_connection() {
        let mut events = two_workers();
        events.extend([step(40, 1, 74, RequestStep::Connection)]);
        let attribution = observed(&events);
        let others = attribution.others(client(B), 5, 60).unwrap();
        assert!(others.has(&lookup(39, 1)) && !others.has(&lookup(41, 1)));
    }

    #[test]
    fn two_requests_at_once_on_one_connection_are_not_told_apart() {
        let mut events = two_workers();
        events.push(fastcgi(20, 1, 71, B));
        let attribution = observed(&events);
        assert!(attribution.others(client(A), 5, 40).is_none());
        assert!(!attribution.others(client(B), 5, 40).unwrap().has(&lookup(15, 1)));
    }

    #[test]
    fn threads_lost_events_and_ended_processes_are_forgotten() {
        let concurrent =
            RequestEvent { connection: 72, what: RequestStep::Connection, concurrent: true };
        for last in
            [event(35, 2, EventKind::Request(concurrent)), step(35, 2, 0, RequestStep::Gone)]
        {
            let mut events = two_workers();
            events.push(last);
            let attribution = observed(&events);
            assert!(!attribution.others(client(A), 5, 40).unwrap().has(&lookup(20, 2)));
        }
        let mut attribution = observed(&two_workers());
        attribution.clear(0, None);
        // In the middle of a connection.
        attribution.observe(&fastcgi(40, 2, 72, B));
        assert!(attribution.others(client(B), 5, 50).is_none());
    }

    #[test]
    fn who_takes_requests_is_learned_again_after_a_loss() {
        let mut attribution = observed(&two_workers());
        assert!(attribution.takes_requests(2) && !attribution.takes_requests(9));
        attribution.clear(30, None);
        assert!(attribution.takes_requests(9), "anybody may");
        attribution.clear(40, Some(HashSet::from([1, 3])));
        assert!(attribution.takes_requests(3) && !attribution.takes_requests(2));
        assert!(!attribution.takes_requests(9));
        attribution.observe(&step(50, 9, 90, RequestStep::Connection));
        assert!(attribution.takes_requests(9));
        attribution.clear(60, Some((0..TAKERS_MAX as u32).collect()));
        assert!(attribution.takes_requests(u32::MAX));
    }

    #[test]
    fn prefork_servers_have_a_connection_at_a_time() {
        let http = |of: Option<&str>| RequestStep::Http(of.map(client));
        let attribution = observed(&[
            step(9, 1, 71, RequestStep::Connection),
            step(10, 1, 71, http(Some(A))),
            step(11, 2, 72, RequestStep::Connection),
            step(12, 2, 72, http(Some(B))),
            step(20, 2, 73, RequestStep::Connection),
            step(21, 2, 73, http(None)),
        ]);
        let others = attribution.others(client(A), 5, 40).unwrap();
        assert!(others.has(&lookup(15, 2)) && !others.has(&lookup(15, 1)));
        assert!(!others.has(&lookup(25, 2)), "a request of this machine");
    }

    #[test]
    fn what_a_request_asks_other_programs_is_found() {
        let attribution = observed(&two_workers());
        let others = attribution.others(client(A), 5, 40).unwrap();
        let is_call = |event: &LookupEvent| match event.kind {
            EventKind::Sent(sent) => others.is_call(event, sent),
            _ => false,
        };
        assert!(is_call(&sent(20, 1, 80, false)));
        assert!(!is_call(&sent(20, 1, 71, false)), "its reply");
        assert!(!is_call(&sent(20, 2, 80, false)), "another request's");
    }

    /// One worker's life: requests of clients, one after the other, each with some look-ups, and
    /// what goes wrong with it.
    #[derive(Clone, Debug)]
    struct Job {
        client: u8,
        lookups: u8,
        keeps: bool,
        aborted: bool,
        late_work: bool,
        hides_client: bool,
    }

    fn job() -> impl Strategy<Value = Job> {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), proptest::bool::weighted(0.2));
        (0..6_u8, 0..4_u8, flags).prop_map(
            |(client, lookups, (keeps, aborted, late_work, hides_client))| Job {
                client,
                lookups,
                keeps,
                aborted,
                late_work,
                hides_client,
            },
        )
    }

    fn name(client: u8) -> String {
        format!("10.0.0.{}:{}", client % 3 + 1, 1000 + u16::from(client))
    }

    /// The events of a worker, without their times, each look-up with the client that it was for.
    fn life(process: u32, jobs: &[Job]) -> Vec<(LookupEvent, Option<u8>)> {
        let mut events = Vec::new();
        let mut connection = u64::from(process) << 32;
        let mut is_open = false;
        for job in jobs {
            if !is_open {
                connection += 1;
                events.push((step(0, process, connection, RequestStep::Connection), None));
            }
            let of = if job.hides_client { "127.0.0.1:7".to_owned() } else { name(job.client) };
            events.push((fastcgi(0, process, connection, &of), None));
            for _ in 0..job.lookups {
                events.push((lookup(0, process), Some(job.client)));
            }
            if !job.aborted {
                events.push((sent(0, process, connection, true), None));
            }
            if job.late_work {
                events.push((lookup(0, process), Some(job.client)));
            }
            is_open = job.keeps && !job.aborted;
        }
        events
    }

    proptest! {
        /// However requests interleave: what one really did is never taken away from it; and whose
        /// execution is known and whole loses what others did meanwhile.
        #[test]
        fn a_set_always_holds_what_its_request_did(
            workers in proptest::collection::vec(proptest::collection::vec(job(), 1..5), 1..4),
            order in proptest::collection::vec(0..4_usize, 400),
            lost_at in proptest::option::of(0..200_usize),
        ) {
            let mut lives: Vec<_> = workers
                .iter()
                .enumerate()
                .map(|(at, jobs)| life(at as u32 + 1, jobs).into_iter().collect::<VecDeque<_>>())
                .collect();
            let mut attribution = Attribution::default();
            let mut all = Vec::new();
            for (at, turn) in order.iter().enumerate() {
                let turn = turn % lives.len();
                let Some((mut event, of)) = lives[turn].pop_front() else { continue };
                event.time_ns = at as u64 + 1;
                if lost_at == Some(at) {
                    attribution.clear(0, None);
                }
                attribution.observe(&event);
                all.push((event, of));
            }
            for of in 0..6 {
                let Some(others) = attribution.others(client(&name(of)), 0, 1000) else { continue };
                for (event, did) in &all {
                    prop_assert!(
                        *did != Some(of) || !others.has(event),
                        "{} of {} is missing",
                        event.time_ns,
                        of
                    );
                }
            }
        }

        #[test]
        fn whole_executions_lose_everything_of_the_others(
            workers in proptest::collection::vec(1..6_u8, 2..5),
            order in proptest::collection::vec(0..5_usize, 200),
        ) {
            let mut lives: Vec<_> = workers
                .iter()
                .enumerate()
                .map(|(at, lookups)| {
                    let job = Job {
                        client: at as u8,
                        lookups: *lookups,
                        keeps: false,
                        aborted: false,
                        late_work: false,
                        hides_client: false,
                    };
                    life(at as u32 + 1, &[job]).into_iter().collect::<VecDeque<_>>()
                })
                .collect();
            let mut attribution = Attribution::default();
            let mut all = Vec::new();
            let rest = (0..lives.len()).flat_map(|at| std::iter::repeat_n(at, 20));
            for (at, turn) in order.iter().copied().chain(rest).enumerate() {
                let turn = turn % lives.len();
                let Some((mut event, of)) = lives[turn].pop_front() else { continue };
                event.time_ns = at as u64 + 1;
                attribution.observe(&event);
                all.push((event, of));
            }
            for of in 0..workers.len() as u8 {
                let others = attribution.others(client(&name(of)), 0, 1000).unwrap();
                for (event, did) in all.iter().filter(|(_, did)| did.is_some()) {
                    prop_assert_eq!(others.has(event), *did != Some(of));
                }
            }
        }
    }
}
