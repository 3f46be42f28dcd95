//! A cache, a watcher that answers what it is told to, and a clock that the test moves.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nicache_cache::{
    AgeBounds, Answered, Asked, CoherenceLink, Counters, Example, Executor, FillId, Fills, Found,
    PathSettings, Proxy, Questions, Rechecks, Store, Waiters, Who,
};
use nicache_coherence::{
    Answer, Class, FillVerdict, Question, RecordNumber, RefusalReason, ReinstateVerdict,
    Reinstatement, RevisionTable, SourceSet, SourceSlot, Verdict,
};
use nicache_http::{
    ClientClass, HeaderScratch, Key, KeyConfig, Method, ReplyOutcome, RequestOutcome, Tokens,
    UriKey, parse_reply, parse_request,
};
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_tcp::Time;

const MEMORY_BYTES: usize = 1 << 20;
const ENTRIES: usize = 64;
/// T of dynamic pages.
pub(crate) const AGE: Duration = Duration::from_secs(600);
/// What every reply depends on.
pub(crate) const SOURCE: SourceSlot = SourceSlot(7);

/// How the watcher is.
#[derive(Debug)]
pub(crate) struct Mood {
    /// It takes no questions.
    pub is_busy: bool,
    /// It gives no answers.
    pub is_mute: bool,
    /// So many of its answers come; the others are on their way.
    pub arrive: usize,
    /// Why it refuses all replies, if it does.
    pub refused: Option<RefusalReason>,
    /// Why it calls replies outdated, if it does.
    pub outdated: Option<RefusalReason>,
    /// What it says of suspects.
    pub reinstatement: Reinstatement,
    /// What replies are to it.
    pub class: Class,
    /// How often it was asked.
    pub questions: usize,
}

struct Watcher {
    mood: Arc<Mutex<Mood>>,
    table: Arc<RevisionTable>,
    answers: VecDeque<Answer>,
}

impl CoherenceLink for Watcher {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        let mut mood = self.mood.lock().expect("one thread");
        if mood.is_busy {
            return false;
        }
        mood.questions += 1;
        let answer = match question {
            Question::Fill(request) => {
                let mut sources = SourceSet::new();
                sources.insert(SOURCE).expect("room for one");
                let stored = Verdict::Stored {
                    class: mood.class,
                    sources,
                    record: RecordNumber(1),
                    previous_unchanged: request
                        .previous
                        .is_some_and(|(_, since)| self.table.is_unchanged(&[SOURCE], since)),
                };
                let verdict = mood.outdated.map_or(stored, Verdict::Outdated);
                let verdict = mood.refused.map_or(verdict, Verdict::Refused);
                Answer::Fill(FillVerdict { id: request.id, verdict })
            }
            Question::Reinstate(request) => {
                let outcome = mood.reinstatement;
                Answer::Reinstate(ReinstateVerdict {
                    id: request.id,
                    stamp: request.stamp,
                    outcome,
                })
            }
        };
        if !mood.is_mute {
            self.answers.push_back(answer);
        }
        true
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        let mut mood = self.mood.lock().expect("one thread");
        if mood.arrive == 0 {
            return None;
        }
        self.answers.pop_front().inspect(|_| mood.arrive -= 1)
    }
}

/// The parts of a cache, and what they are called with.
pub(crate) struct Cache {
    pub store: Store,
    pub fills: Fills,
    pub waiters: Waiters<u32>,
    pub rechecks: Rechecks,
    pub questions: Questions,
    pub counters: Counters,
    pub table: Arc<RevisionTable>,
    pub keys: KeyConfig,
    pub now: Time,
    /// Of clients who ask.
    pub client_class: ClientClass,
    mood: Arc<Mutex<Mood>>,
}

impl Cache {
    /// An empty one, whose watcher agrees that replies are of this class.
    pub(crate) fn new(class: Class) -> Self {
        let table = RevisionTable::on_heap();
        table.renew_lease(u64::MAX);
        table.watch(SOURCE);
        Self::over(table, class)
    }

    /// That of another card of the same server.
    pub(crate) fn beside(other: &Self, class: Class) -> Self {
        Self::over(Arc::clone(&other.table), class)
    }

    fn over(table: Arc<RevisionTable>, class: Class) -> Self {
        let memory = CardMemory::new(MEMORY_BYTES, HugePages::No).expect("1 MiB");
        let policy = Box::new(Lru::new(MEMORY_BYTES as u64, ENTRIES as u32));
        let mood = Arc::new(Mutex::new(Mood {
            is_busy: false,
            is_mute: false,
            arrive: usize::MAX,
            refused: None,
            outdated: None,
            reinstatement: Reinstatement::Stays,
            class,
            questions: 0,
        }));
        let watcher = Watcher {
            mood: Arc::clone(&mood),
            table: Arc::clone(&table),
            answers: VecDeque::new(),
        };
        Self {
            store: Store::new(memory, policy, Arc::clone(&table), ENTRIES),
            fills: Fills::new(),
            waiters: Waiters::new(),
            rechecks: Rechecks::new(),
            questions: Questions::new(Box::new(watcher)),
            counters: Counters::default(),
            table,
            keys: KeyConfig::new([3; 16]),
            now: Time(1_000_000_000),
            client_class: ClientClass::default(),
            mood,
        }
    }

    /// The watcher's mood.
    pub(crate) fn mood(&self) -> MutexGuard<'_, Mood> {
        self.mood.lock().expect("one thread")
    }

    /// Time passes, and nothing happens.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Does what a card does that is polled again and again: the watcher is asked, answers at once,
    /// and then there is nothing left to say.
    pub(crate) fn talk(&mut self) {
        for _ in 0..3 {
            let Self { questions, fills, store, waiters, counters, now, .. } = self;
            questions.talk(fills, store, waiters, counters, *now);
        }
    }

    /// When the watcher is to be talked to, counted from now.
    pub(crate) fn talk_due(&self) -> Option<Duration> {
        let due = self.questions.due(&self.fills, &self.store)?;
        Some(if due > self.now { due.since(self.now) } else { Duration::ZERO })
    }

    /// The key of a page.
    pub(crate) fn key(&self, target: &str) -> Key {
        self.parsed(&request(target)).0
    }

    /// What there is for a request.
    pub(crate) fn find(&mut self, target: &str) -> Found {
        let (key, epoch) = (self.key(target), self.store.revisions().epoch());
        self.store.find(&key, epoch, self.now, &mut self.counters)
    }

    /// The request of a client with this number goes to the server.
    pub(crate) fn forward(&mut self, client: u8, target: &str) -> Option<FillId> {
        let address = Ipv4Addr::new(10, 0, 0, client);
        self.forward_as(
            Executor::Client(address.into()),
            SocketAddrV4::new(address, 4711),
            &request(target),
        )
    }

    /// The request goes to the server for whom it is said.
    pub(crate) fn forward_as(
        &mut self,
        by: Executor,
        client: SocketAddrV4,
        head: &[u8],
    ) -> Option<FillId> {
        let (key, page) = self.parsed(head);
        let settings = PathSettings {
            keeps_dynamic: true,
            ages: AgeBounds::fixed(AGE),
            ..PathSettings::default()
        };
        let asked = Asked {
            base: key,
            key,
            by: Who { by, tokens: Tokens::default(), proxy: Proxy::Absent },
            client,
            ages: settings.ages,
            settings: Arc::new(settings),
            class: self.client_class,
            page,
            port: 80,
            preface: None,
            head,
            goes_ahead: false,
        };
        self.fills.begin(asked, &mut self.store, self.now, &mut self.counters)
    }

    /// The server's reply to it comes whole.
    pub(crate) fn reply(&mut self, fill: FillId, body: &str) {
        self.begin_reply(fill, body.len());
        self.fills.handle_body(fill, body.as_bytes(), &mut self.store, &mut self.counters);
        assert_eq!(self.fills.finish(fill, true, &mut self.store, &mut self.counters), None);
    }

    /// The head of the reply comes; whether the fill goes on.
    pub(crate) fn begin_reply(&mut self, fill: FillId, body_len: usize) -> bool {
        let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
        let head =
            format!("HTTP/1.1 200 OK\r\n{date}\r\nContent-Length: {body_len}\r\n\r\n").into_bytes();
        let ReplyOutcome::Complete(reply) = parse_reply(&head, Method::Get) else {
            panic!("a whole head")
        };
        let answered = Answered { reply: &reply, head: &head, closes_once: false };
        self.fills.handle_head(fill, answered, &self.keys, &mut self.store, &mut self.counters)
    }

    /// A client asks, the server answers, and the watcher says what it thinks.
    pub(crate) fn visit(&mut self, client: u8, target: &str, body: &str) {
        let fill = self.forward(client, target).expect("a fill");
        self.reply(fill, body);
        self.talk();
    }

    /// The card is to ask for what a client has just asked for.
    pub(crate) fn ask_second(&mut self, target: &str) {
        let (key, head) = (self.key(target), request(target));
        let example = Example { port: 80, preface: None, proxy: Proxy::Absent, head: &head };
        let asked = self.rechecks.of(&key, &example, None, &self.keys).unwrap();
        self.rechecks.ask(asked, &mut self.counters);
    }

    fn parsed(&self, head: &[u8]) -> (Key, UriKey) {
        let mut scratch = HeaderScratch::new();
        let RequestOutcome::Complete(request) = parse_request(head, &mut scratch, &self.keys)
        else {
            panic!("a request that is looked up: {}", String::from_utf8_lossy(head))
        };
        (request.key, self.keys.uri_of(self.keys.origin_of(request.host), request.target))
    }
}

/// The head of a plain request.
pub(crate) fn request(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}
