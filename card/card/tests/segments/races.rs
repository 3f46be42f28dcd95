//! Many clients of several classes ask for one page at the same time, while it changes: nobody is
//! told what was no longer true when they asked, nor what is for somebody else.

use std::collections::HashMap;

use nicache_cache::AgeBounds;
use nicache_coherence::{Class, Reinstatement};
use nicache_tcp::{Flags, Seq};
use proptest::prelude::*;

use crate::script::{CARD, End, OWN_PORTS, SOURCE, Script};

const CLASSES: [&str; 3] = ["Phone", "Desk", "Watch"];
const VISITORS: usize = 6;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A visitor who has nothing under way asks, as one of the classes.
    Ask {
        visitor: usize,
        class: usize,
    },
    /// The server works out the reply to one of the requests that it has.
    Execute(usize),
    /// It sends one that it has worked out.
    Reply(usize),
    Change,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..VISITORS, 0..CLASSES.len())
            .prop_map(|(visitor, class)| Step::Ask { visitor, class }),
        4 => any::<usize>().prop_map(Step::Execute),
        4 => any::<usize>().prop_map(Step::Reply),
        1 => Just(Step::Change),
        3 => (1_u64..12).prop_map(|times| Step::Wait(5 * times)),
    ]
}

/// A request that a visitor has made.
struct Asked {
    port: u16,
    class: usize,
    /// What the page said then.
    version: u32,
    got: Vec<u8>,
}

/// A request that the server has.
struct AtServer {
    port: u16,
    ack: Seq,
    class: usize,
    /// What the page said when it was worked out.
    version: Option<u32>,
}

struct Race {
    script: Script,
    /// The server tells classes apart.
    differs: bool,
    version: u32,
    visitors: [Option<Asked>; VISITORS],
    ends: HashMap<u16, End>,
    port: u16,
    at_server: Vec<AtServer>,
    /// Where the last request of each connection ends: what is sent again is not another one.
    taken: HashMap<u16, Seq>,
    replies: u32,
}

impl Race {
    fn new(class: Class, differs: bool) -> Self {
        let script = Script::with_changes(class, AgeBounds::default());
        *script.reinstatement.lock().expect("one thread") = Reinstatement::Gone;
        let (visitors, ends, taken) =
            (std::array::from_fn(|_| None), HashMap::new(), HashMap::new());
        Self {
            script,
            differs,
            version: 0,
            visitors,
            ends,
            port: 20_000,
            at_server: Vec::new(),
            taken,
            replies: 0,
        }
    }

    fn with<T>(&mut self, port: u16, job: impl FnOnce(&mut Script) -> T) -> T {
        let end = self.ends.get_mut(&port).expect("a connection");
        self.script.take_turns(end);
        let result = job(&mut self.script);
        self.script.take_turns(end);
        result
    }

    fn send(&mut self, port: u16, head: &[u8]) {
        self.with(port, |script| {
            script.send_client(Flags::ACK | Flags::PSH, 60_000, head);
            script.seq += head.len() as u32;
        });
    }

    fn ask(&mut self, visitor: usize, class: usize) {
        self.port += 1;
        let port = self.port;
        let end = self.script.open_as([10, 0, 1, visitor as u8 + 1], port);
        self.ends.insert(port, end);
        self.visitors[visitor] =
            Some(Asked { port, class, version: self.version, got: Vec::new() });
        let head =
            format!("GET /page HTTP/1.1\r\nHost: a\r\nUser-Agent: {}/1\r\n\r\n", CLASSES[class]);
        self.send(port, head.as_bytes());
    }

    /// The card asks as it wants to.
    fn ask_for_the_card(&mut self) {
        while let Some(own) = self.script.card.poll_recheck() {
            let used = |port: &u16| self.ends.contains_key(port);
            let Some(port) = OWN_PORTS.clone().find(|port| !used(port)) else { return };
            let end = self.script.open_as(CARD, port);
            self.ends.insert(port, end);
            self.send(port, &own.head);
        }
    }

    /// The server takes what has come, and the visitors look at what they have got.
    fn settle(&mut self) {
        self.ask_for_the_card();
        loop {
            let segments = self.script.take_at_host();
            if segments.is_empty() {
                break;
            }
            for segment in segments {
                let port = segment.head.src_port;
                if !self.ends.contains_key(&port) {
                    continue;
                }
                if segment.head.flags.syn() {
                    self.taken.remove(&port);
                    let ack = segment.head.seq + 1;
                    self.with(port, |script| {
                        script.send_host(Flags::SYN | Flags::ACK, Seq(500_000), ack, b"");
                    });
                } else if !segment.payload.is_empty()
                    && self.taken.insert(port, segment.end()) != Some(segment.end())
                {
                    let head = String::from_utf8_lossy(&segment.payload).into_owned();
                    let class = CLASSES
                        .iter()
                        .position(|class| head.contains(class))
                        .unwrap_or(CLASSES.len());
                    self.at_server.push(AtServer {
                        port,
                        ack: segment.end(),
                        class,
                        version: None,
                    });
                }
            }
        }
        for visitor in 0..VISITORS {
            let Some(asked) = &self.visitors[visitor] else { continue };
            let more = self.with(asked.port, Script::take_body);
            let Some(asked) = &mut self.visitors[visitor] else { continue };
            asked.got.extend(more);
            let text = String::from_utf8(asked.got.clone()).expect("text");
            if !text.ends_with('.') {
                continue;
            }
            let (_, body) = text.split_once("\r\n\r\n").expect("a head");
            let (version, class) = body.trim_end_matches('.').split_once(' ').expect("two words");
            let version: u32 = version.parse().expect("a number");
            let due = if self.differs { CLASSES[asked.class] } else { "all" };
            assert!(
                version >= asked.version,
                "told {version}, it was {} when it was asked for",
                asked.version
            );
            assert_eq!(class, due);
            let port = asked.port;
            self.visitors[visitor] = None;
            self.replies += 1;
            self.with(port, |script| script.send_client(Flags::RST, 0, b""));
            self.ends.remove(&port);
        }
    }

    fn execute(&mut self, which: usize) {
        let mut waiting: Vec<_> =
            self.at_server.iter_mut().filter(|request| request.version.is_none()).collect();
        let count = waiting.len().max(1);
        if let Some(request) = waiting.get_mut(which % count) {
            request.version = Some(self.version);
        }
    }

    fn reply(&mut self, which: usize) {
        let done: Vec<_> =
            (0..self.at_server.len()).filter(|at| self.at_server[*at].version.is_some()).collect();
        let Some(at) = done.get(which % done.len().max(1)) else { return };
        let AtServer { port, ack, class, version } = self.at_server.remove(*at);
        if !self.ends.contains_key(&port) {
            return;
        }
        // The card may ask as nobody.
        let who = if self.differs { CLASSES.get(class).unwrap_or(&"nobody") } else { "all" };
        let body = format!("{} {who}.", version.expect("it was worked out"));
        let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
        let reply =
            format!("HTTP/1.1 200 OK\r\n{date}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let is_own = OWN_PORTS.contains(&port);
        self.with(port, |script| {
            script.send_host(Flags::ACK, Seq(500_001), ack, reply.as_bytes());
            if is_own {
                script.take_body();
                script.send_client(Flags::RST, 0, b"");
            } else {
                script.send_client(Flags::ACK, 60_000, b"");
            }
        });
        if is_own {
            self.ends.remove(&port);
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Ask { visitor, class } if self.visitors[visitor].is_none() => {
                self.ask(visitor, class);
            }
            Step::Ask { .. } => {}
            Step::Execute(which) => self.execute(which),
            Step::Reply(which) => self.reply(which),
            Step::Change => {
                self.version += 1;
                self.script.table.record_change(SOURCE);
            }
            Step::Wait(ms) => self.script.wait(std::time::Duration::from_millis(ms)),
        }
        self.settle();
    }

    /// Everybody is answered.
    fn finish(&mut self) {
        for _ in 0..400 {
            if self.visitors.iter().all(Option::is_none) {
                return;
            }
            for step in [Step::Wait(20), Step::Execute(0), Step::Reply(0)] {
                self.take(step);
            }
        }
        panic!("somebody waits for ever: {:?}", self.script.card.counters());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nobody_is_told_what_was_no_longer_true(
        steps in prop::collection::vec(step(), 1..300),
        is_static in any::<bool>(),
        differs in any::<bool>(),
    ) {
        let mut race = Race::new(if is_static { Class::Static } else { Class::Dynamic }, differs);
        steps.into_iter().for_each(|step| race.take(step));
        race.finish();
        // At rest the card answers each class, when what was purged too often is no longer left
        // alone. Where the server tells classes apart that takes long.
        race.script.poll_once_after(std::time::Duration::from_secs(600));
        // This visitor's look may be the one purge too many, and the page be put aside once more.
        race.ask(0, 0);
        race.finish();
        race.script.poll_once_after(std::time::Duration::from_secs(600));
        for class in (0..CLASSES.len()).filter(|_| !differs) {
            let before = race.script.card.counters().hits;
            // The card pays for its own requests with one for twenty of the visitors', and this is
            // one visitor, with whom nobody else agrees.
            for _ in 0..42 {
                race.ask(0, class);
                race.finish();
                if race.script.card.counters().hits > before {
                    break;
                }
            }
            let counters = race.script.card.counters();
            prop_assert!(counters.hits > before, "{}: {counters:?}", CLASSES[class]);
        }
    }
}
