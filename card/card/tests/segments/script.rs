//! A card between a scripted client and a scripted host: every segment is the test's own.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nicache_cache::{AgeBounds, CoherenceLink, PathSettings, Paths, Recheck, Store};
use nicache_card::{AsProxy, Card, CardConfig, Handshake, OwnPorts, Rechecker};
use nicache_coherence::{
    Answer, Class, FillVerdict, Question, RecordNumber, RefusalReason, ReinstateVerdict,
    Reinstatement, RevisionTable, SourceSet, SourceSlot, Verdict,
};
use nicache_http::{KeyConfig, proxy_header};
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_port::{Burst, Capabilities, MemoryPort, Offload, Port, memory_wire};
use nicache_tcp::{Flags, HeadRepr, SegmentHead, Seq, SynOptions, Time, Timestamps, checksum};

const MEMORY_BYTES: usize = 1 << 20;
/// The source of the object.
pub(crate) const SOURCE: SourceSlot = SourceSlot(7);
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
/// Where the card's own requests come from.
pub(crate) const CARD: [u8; 4] = [10, 0, 0, 3];
/// Where a proxy on the card's machine connects from, and the card's requests as one of its
/// clients.
pub(crate) const PROXY: [u8; 4] = [10, 0, 9, 1];
/// Ports that the card's own requests come from.
pub(crate) const OWN_PORTS: RangeInclusive<u16> = 60_001..=65_000;
/// T of dynamic pages.
const AGE_MAX: Duration = Duration::from_secs(600);
const UNIX_S: u64 = 1_700_000_000;
/// Payload bytes of a segment, either way.
pub(crate) const MSS: u16 = 1000;

/// What a host answers at a time to what it was sent, and after how long.
pub(crate) type Serve<'a> = dyn FnMut(Time, &[u8]) -> (Duration, Vec<u8>) + 'a;

/// One segment that the card has sent.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Its TCP header.
    pub head: SegmentHead,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Segment {
    /// Number behind the payload.
    pub(crate) fn end(&self) -> Seq {
        self.head.seq + self.payload.len() as u32
    }
}

/// A connection on which the script does not speak now.
#[derive(Debug)]
pub(crate) struct End {
    address: [u8; 4],
    port: u16,
    seq: Seq,
    ack: Seq,
}

/// A request that the host has.
#[derive(Debug)]
pub(crate) struct AtHost {
    seq: Seq,
    ack: Seq,
}

/// Says yes to every fill, or that it is out of date, and answers about suspects what it is told
/// to.
struct Agreeable {
    answers: Vec<Answer>,
    class: Class,
    outdated: Arc<Mutex<Option<RefusalReason>>>,
    refused: Arc<Mutex<Option<RefusalReason>>>,
    reinstatement: Arc<Mutex<Reinstatement>>,
    change_before_answer: Arc<Mutex<bool>>,
    /// Calls what has changed since the request was forwarded outdated.
    sees_changes: bool,
    table: Arc<RevisionTable>,
}

impl CoherenceLink for Agreeable {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        let answer = match question {
            Question::Fill(request) => {
                let mut sources = SourceSet::new();
                sources.insert(SOURCE).expect("room for one");
                let stored = Verdict::Stored {
                    class: self.class,
                    sources,
                    record: RecordNumber(1),
                    previous_unchanged: request
                        .previous
                        .is_some_and(|(_, since)| self.table.is_unchanged(&[SOURCE], since)),
                };
                let has_changed =
                    self.sees_changes && !self.table.is_unchanged(&[SOURCE], request.stamp);
                let seen =
                    if has_changed { Verdict::Outdated(RefusalReason::Changed) } else { stored };
                let verdict =
                    self.outdated.lock().expect("one thread").map_or(seen, Verdict::Outdated);
                let verdict =
                    self.refused.lock().expect("one thread").map_or(verdict, Verdict::Refused);
                Answer::Fill(FillVerdict { id: request.id, verdict })
            }
            Question::Reinstate(request) => {
                let outcome = *self.reinstatement.lock().expect("one thread");
                if *self.change_before_answer.lock().expect("one thread") {
                    self.table.record_change(SOURCE);
                }
                Answer::Reinstate(ReinstateVerdict {
                    id: request.id,
                    stamp: request.stamp,
                    outcome,
                })
            }
        };
        self.answers.push(answer);
        true
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop()
    }
}

/// The card and what the two ends know.
pub(crate) struct Script {
    /// The card.
    pub card: Card<MemoryPort, MemoryPort>,
    client: MemoryPort,
    host: MemoryPort,
    /// Bytes of a segment of the host's replies at most.
    pub host_segment: usize,
    pub now: Time,
    /// What the card's clock says for `Date`, in seconds since 1970.
    pub unix_s: u64,
    /// Address of the client.
    client_address: [u8; 4],
    /// Who asks, for a host that looks at it.
    pub peer: Rc<Cell<[u8; 4]>>,
    /// Next number of the client.
    pub seq: Seq,
    /// Next number that the client expects.
    pub ack: Seq,
    /// Who changed what.
    pub table: Arc<RevisionTable>,
    /// Port that the client speaks from now.
    pub client_port: u16,
    /// How often the card has allocated memory.
    pub allocations: u64,
    /// Requests of the card's own so far.
    own_asks: u16,
    /// The card's requests that wait until a client's is answered.
    own_waiting: VecDeque<Recheck>,
    /// Did the card want to ask while the server works for a client?
    pub asks_beside: Arc<AtomicBool>,
    /// Executions for clients during which it wanted to ask for the same page.
    pub asked_for_same: u32,
    /// Its ports at the address of the proxy.
    own_ports: Arc<OwnPorts>,
    /// What has come for clients on which the script did not speak then.
    of_others: Vec<Segment>,
    /// Why the watcher calls all replies outdated, if it does.
    pub outdated: Arc<Mutex<Option<RefusalReason>>>,
    /// Why the watcher refuses all replies, if it does.
    pub refused: Arc<Mutex<Option<RefusalReason>>>,
    /// What the watcher answers about suspects.
    pub reinstatement: Arc<Mutex<Reinstatement>>,
    /// Whether the source changes between the watcher's verdict about a suspect and its arrival.
    pub change_before_answer: Arc<Mutex<bool>>,
    /// Whether the client offers timestamps with a SYN, and sends them.
    pub timestamps: bool,
    /// Whether the host does.
    pub host_timestamps: bool,
    /// The client's clock.
    pub tsval: u32,
    /// The checksum of the client's next segment is wrong.
    pub wrong_sum: bool,
    /// Frames pile up: the card does not look at them.
    piling: bool,
}

impl Script {
    /// A card that has seen nothing.
    pub(crate) fn new(handshake: Handshake) -> Self {
        Self::with_class(handshake, Class::Static)
    }

    /// A card that has seen nothing, with a watcher to whom all replies are of that class.
    pub(crate) fn with_class(handshake: Handshake, class: Class) -> Self {
        Self::with_flows(handshake, class, 16)
    }

    /// A card that has seen nothing and has room for `flows` connections, with a watcher to whom
    /// all replies are of that class.
    pub(crate) fn with_flows(handshake: Handshake, class: Class, flows: usize) -> Self {
        Self::made(handshake, class, flows, true)
    }

    /// A card that completes handshakes, and answers expected requests the short way or not.
    pub(crate) fn with_prediction(prediction: bool) -> Self {
        Self::made(Handshake::Card, Class::Static, 16, prediction)
    }

    /// A card whose watcher says that all replies are of that class, and that can ask the server by
    /// itself ([`Script::visit`]).
    pub(crate) fn with_ages(class: Class, ages: AgeBounds) -> Self {
        Self::with_ages_and_memory(class, ages, MEMORY_BYTES)
    }

    /// A card that can ask the server by itself ([`Script::visit`]), with a watcher that sees
    /// whether a reply's source has changed since its request was forwarded.
    pub(crate) fn with_changes(class: Class, ages: AgeBounds) -> Self {
        Self::asking_itself(class, ages, MEMORY_BYTES, true)
    }

    /// A card that can ask the server by itself ([`Script::visit`]), with room for one small reply
    /// in each 4 KiB of `memory_bytes`. Its watcher says that all replies are of that class.
    pub(crate) fn with_ages_and_memory(class: Class, ages: AgeBounds, memory_bytes: usize) -> Self {
        Self::asking_itself(class, ages, memory_bytes, false)
    }

    fn asking_itself(
        class: Class,
        ages: AgeBounds,
        memory_bytes: usize,
        sees_changes: bool,
    ) -> Self {
        let own_ports = Arc::new(OwnPorts::new(*OWN_PORTS.start()));
        let as_proxy =
            Some(AsProxy { address: Ipv4Addr::from(PROXY).into(), ports: Arc::clone(&own_ports) });
        let rechecker =
            Rechecker { address: Ipv4Addr::from(CARD).into(), ports: OWN_PORTS, as_proxy };
        let script = Self::with_memory(memory_bytes, class, sees_changes, |config| {
            config.paths = Paths::new(
                PathSettings { keeps_dynamic: true, ages, ..PathSettings::default() },
                Vec::new(),
            );
            config.rechecker = Some(rechecker);
        });
        Self { own_ports, ..script }
    }

    fn made(handshake: Handshake, class: Class, flows: usize, prediction: bool) -> Self {
        Self::configured(class, |config| {
            config.handshake = handshake;
            config.flows = flows;
            config.prediction = prediction;
        })
    }

    fn configured(class: Class, configure: impl FnOnce(&mut CardConfig)) -> Self {
        Self::with_memory(MEMORY_BYTES, class, false, configure)
    }

    fn with_memory(
        memory_bytes: usize,
        class: Class,
        sees_changes: bool,
        configure: impl FnOnce(&mut CardConfig),
    ) -> Self {
        let (wire, client) = memory_wire(256, Capabilities::PLAIN, Capabilities::PLAIN);
        let (host_port, host) = memory_wire(256, Capabilities::PLAIN, Capabilities::PLAIN);
        let table = RevisionTable::on_heap();
        table.renew_lease(u64::MAX);
        table.watch(SOURCE);
        let memory = CardMemory::new(memory_bytes, HugePages::No).expect("a few MiB");
        let mut config = CardConfig::new(vec![80], memory_bytes, KeyConfig::new([3; 16]), [5; 16]);
        config.handshake = Handshake::Card;
        let settings = PathSettings {
            keeps_dynamic: true,
            ages: AgeBounds::fixed(AGE_MAX),
            ..PathSettings::default()
        };
        config.paths = Paths::new(settings, Vec::new());
        configure(&mut config);
        let policy = Box::new(Lru::new(memory_bytes as u64, config.entries as u32));
        let store = Store::new(memory, policy, Arc::clone(&table), config.entries);
        let outdated = Arc::default();
        let refused = Arc::default();
        let reinstatement = Arc::new(Mutex::new(Reinstatement::Stays));
        let change_before_answer = Arc::new(Mutex::new(false));
        let watcher = Agreeable {
            answers: Vec::new(),
            class,
            outdated: Arc::clone(&outdated),
            refused: Arc::clone(&refused),
            reinstatement: Arc::clone(&reinstatement),
            change_before_answer: Arc::clone(&change_before_answer),
            sees_changes,
            table: Arc::clone(&table),
        };
        let card = Card::new(wire, host_port, config, store, Box::new(watcher), Time(0));
        let now = Time(1_000_000_000);
        Self {
            card,
            client,
            host,
            now,
            unix_s: UNIX_S,
            client_address: CLIENT,
            peer: Rc::default(),
            seq: Seq(1000),
            ack: Seq(0),
            table,
            outdated,
            refused,
            reinstatement,
            change_before_answer,
            client_port: 40_000,
            allocations: 0,
            own_asks: 0,
            own_waiting: VecDeque::new(),
            asks_beside: Arc::default(),
            asked_for_same: 0,
            host_segment: usize::MAX,
            own_ports: Arc::new(OwnPorts::new(0)),
            of_others: Vec::new(),
            timestamps: false,
            host_timestamps: false,
            tsval: 1,
            wrong_sum: false,
            piling: false,
        }
    }

    /// A card that has `body` stored as the reply to [`Script::request`], and a connection on which
    /// that request was a miss: the client has the reply and has acknowledged it.
    pub(crate) fn with_stored(body: &[u8]) -> Self {
        let mut script = Self::new(Handshake::Card);
        script.store(body);
        script
    }

    /// Has the card store `body` as the reply to [`Script::request`], with a miss on a new
    /// connection.
    pub(crate) fn store(&mut self, body: &[u8]) {
        self.open();
        self.miss(body);
    }

    /// The request.
    pub(crate) fn request() -> &'static [u8] {
        b"GET /object HTTP/1.1\r\nHost: a\r\n\r\n"
    }

    /// Another watcher has taken the place of the one before, with a table of its own. All replies
    /// are of that class to it.
    pub(crate) fn begin_watched(&mut self, class: Class) {
        let table = RevisionTable::on_heap();
        table.renew_lease(u64::MAX);
        table.watch(SOURCE);
        let watcher = Agreeable {
            answers: Vec::new(),
            class,
            outdated: Arc::clone(&self.outdated),
            refused: Arc::clone(&self.refused),
            reinstatement: Arc::clone(&self.reinstatement),
            change_before_answer: Arc::clone(&self.change_before_answer),
            sees_changes: false,
            table: Arc::clone(&table),
        };
        self.card.begin_watched(Arc::clone(&table), Box::new(watcher));
        self.table = table;
    }

    /// A new connection, whatever became of the last one.
    pub(crate) fn open_another(&mut self) {
        self.take_at_client();
        self.take_at_host();
        self.client_port += 1;
        self.open();
    }

    /// A connection of another client, which the script does not speak on yet.
    pub(crate) fn open_as(&mut self, address: [u8; 4], port: u16) -> End {
        let mut end = Self::end_of(address, port);
        self.take_turns(&mut end);
        self.open();
        self.take_turns(&mut end);
        end
    }

    /// A client that has no connection.
    pub(crate) fn end_of(address: [u8; 4], port: u16) -> End {
        End { address, port, seq: Seq(1000), ack: Seq(0) }
    }

    /// Speaks on the other connection from now on.
    pub(crate) fn take_turns(&mut self, other: &mut End) {
        std::mem::swap(&mut self.client_address, &mut other.address);
        std::mem::swap(&mut self.client_port, &mut other.port);
        std::mem::swap(&mut self.seq, &mut other.seq);
        std::mem::swap(&mut self.ack, &mut other.ack);
    }

    /// The host takes the first request of the present connection, if it has been sent on.
    pub(crate) fn take_request(&mut self) -> Option<AtHost> {
        let port = self.client_port;
        let is_syn = |segment: &Segment| segment.head.flags.syn() && segment.head.src_port == port;
        let syn = self.take_at_host().into_iter().find(is_syn)?;
        let seq = Seq(500_000);
        self.send_host(Flags::SYN | Flags::ACK, seq, syn.head.seq + 1, b"");
        let is_request =
            |segment: &Segment| !segment.payload.is_empty() && segment.head.src_port == port;
        let request = self.take_at_host().into_iter().find(is_request).expect("the request");
        assert_eq!(request.payload, Self::request());
        Some(AtHost { seq: seq + 1, ack: request.end() })
    }

    /// The host replies on the present connection, and the client acknowledges. What has come for
    /// the client.
    pub(crate) fn reply(&mut self, at: &AtHost, body: &[u8]) -> Vec<u8> {
        let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT";
        let head = format!("HTTP/1.1 200 OK\r\n{date}\r\nContent-Length: {}\r\n\r\n", body.len());
        self.send_host(Flags::ACK, at.seq, at.ack, &[head.as_bytes(), body].concat());
        let got = self.take_body();
        self.send_client(Flags::ACK, 60_000, b"");
        got
    }

    /// Payload that has come for the present client.
    pub(crate) fn take_body(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        let segments =
            std::mem::take(&mut self.of_others).into_iter().chain(drain(&mut self.client));
        for segment in segments.collect::<Vec<_>>() {
            if segment.head.dst_port != self.client_port {
                self.of_others.push(segment);
            } else if !segment.payload.is_empty() {
                self.ack = segment.end();
                got.extend(segment.payload);
            }
        }
        got
    }

    /// Opens a connection that the card answers.
    fn open(&mut self) {
        self.send_client(Flags::SYN, 60_000, b"");
        self.seq += 1;
        let port = self.client_port;
        let segments = self.take_at_client().into_iter();
        let (mine, others): (Vec<_>, Vec<_>) =
            segments.partition(|segment| segment.head.dst_port == port);
        self.of_others.extend(others);
        let syn_ack = mine.into_iter().next().expect("an answer");
        assert!(syn_ack.head.flags.syn() && syn_ack.head.ack == self.seq);
        self.ack = syn_ack.head.seq + 1;
        self.send_client(Flags::ACK, 60_000, b"");
    }

    fn miss(&mut self, body: &[u8]) {
        self.ask(60_000);
        let syn = self.take_at_host().remove(0);
        assert!(syn.head.flags.syn());
        let seq = Seq(500_000);
        self.send_host(Flags::SYN | Flags::ACK, seq, syn.head.seq + 1, b"");
        self.store_from_host(seq + 1, body);
    }

    /// Has the card store `body`, with a miss on a connection that the host has accepted, where its
    /// next number is `seq`.
    pub(crate) fn store_on_host_connection(&mut self, seq: Seq, body: &[u8]) {
        self.ask(60_000);
        self.store_from_host(seq, body);
    }

    fn store_from_host(&mut self, mut seq: Seq, body: &[u8]) {
        let request = self
            .take_at_host()
            .into_iter()
            .find(|segment| !segment.payload.is_empty())
            .expect("the request");
        assert_eq!(request.payload, Self::request());
        let mut reply = format!(
            "HTTP/1.1 200 OK\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nContent-Length: {}\r\nETag: \"x\"\r\n\r\n",
            body.len()
        )
        .into_bytes();
        reply.extend(body);
        for part in reply.chunks(usize::from(MSS)) {
            self.send_host(Flags::ACK, seq, request.end(), part);
            seq += part.len() as u32;
        }
        let mut got = Vec::new();
        for segment in self.take_at_client() {
            if !segment.payload.is_empty() {
                assert_eq!(segment.head.seq, self.ack);
                self.ack = segment.end();
                got.extend(segment.payload);
            }
        }
        assert!(got.ends_with(body));
        self.send_client(Flags::ACK, 60_000, b"");
        assert_eq!(self.card.counters().cache.fills_stored, 1, "{:?}", self.card.counters());
        self.take_at_host();
    }

    /// The client asks, and has `window` bytes of room.
    pub(crate) fn ask(&mut self, window: u16) {
        self.send_client(Flags::ACK | Flags::PSH, window, Self::request());
        self.seq += Self::request().len() as u32;
    }

    /// A client asks on a connection of its own, and the host answers by `serve` if the request
    /// comes to it, after as much time as that says. Then the card asks as it wants to. The
    /// client's reply, and whether it came from the card.
    pub(crate) fn visit(
        &mut self,
        address: [u8; 4],
        request: &[u8],
        serve: &mut Serve<'_>,
    ) -> (Vec<u8>, bool) {
        self.client_port = self.client_port % 60_000 + 1;
        let outcome = self.ask_as(address, request, serve);
        self.answer_card(serve);
        outcome
    }

    /// The next of the card's own requests.
    fn poll_own(&mut self) -> Option<Recheck> {
        self.own_waiting.pop_front().or_else(|| self.card.poll_recheck())
    }

    /// The card asks as it wants to.
    pub(crate) fn answer_card(&mut self, serve: &mut Serve<'_>) {
        while let Some(own) = self.poll_own() {
            let client = Some((nicache_http::own_address(own.head.len() as u64), 4711));
            let header =
                own.preface.map(|version| proxy_header(version, client, (SERVER.into(), own.port)));
            let request = [&header.unwrap_or_default()[..], &own.head].concat();
            let count = if own.is_as_proxy { OwnPorts::COUNT } else { 5000 };
            let own_port = OWN_PORTS.start() + self.own_asks % count;
            let port = std::mem::replace(&mut self.client_port, own_port);
            self.own_asks += 1;
            if own.is_as_proxy {
                self.own_ports.note_open(own_port);
                self.ask_as(PROXY, &request, serve);
                self.own_ports.note_closed(own_port);
            } else {
                self.ask_as(CARD, &request, serve);
            }
            self.client_port = port;
        }
    }

    /// A client asks from the present port.
    pub(crate) fn ask_as(
        &mut self,
        address: [u8; 4],
        request: &[u8],
        serve: &mut Serve<'_>,
    ) -> (Vec<u8>, bool) {
        self.client_address = address;
        self.peer.set(address);
        (self.seq, self.ack) = (Seq(1000), Seq(0));
        self.open();
        self.send_client(Flags::ACK | Flags::PSH, 60_000, request);
        self.seq += request.len() as u32;
        let (mut got, mut is_hit) = (Vec::new(), true);
        for _ in 0..400 {
            for segment in self.take_at_host() {
                let next = segment.head.seq + 1;
                if segment.head.flags.syn() {
                    self.send_host(Flags::SYN | Flags::ACK, Seq(500_000), next, b"");
                } else if !segment.payload.is_empty() {
                    is_hit = false;
                    self.own_waiting.extend(self.card.poll_recheck());
                    self.asks_beside.store(!self.own_waiting.is_empty(), Ordering::Relaxed);
                    let (time, reply) = serve(self.now, &segment.payload);
                    self.wait(time);
                    self.own_waiting.extend(self.card.poll_recheck());
                    let line =
                        |head: &[u8]| head.split(|byte| *byte == b'\r').next().map(<[u8]>::to_vec);
                    let is_own = address == CARD || address == PROXY;
                    let is_same = |own: &Recheck| line(&own.head) == line(request);
                    self.asked_for_same +=
                        u32::from(!is_own && self.own_waiting.iter().any(is_same));
                    let mut seq = Seq(500_001);
                    for part in reply.chunks(self.host_segment) {
                        self.send_host(Flags::ACK, seq, segment.end(), part);
                        seq += part.len() as u32;
                    }
                }
            }
            got.extend(self.take_body());
            if !got.is_empty() {
                break;
            }
            self.wait(Duration::from_millis(5));
        }
        self.acknowledge(60_000);
        self.send_client(Flags::RST, 0, b"");
        self.take_at_host();
        (got, is_hit)
    }

    /// The client acknowledges everything before [`Script::ack`].
    pub(crate) fn acknowledge(&mut self, window: u16) {
        self.send_client(Flags::ACK, window, b"");
    }

    /// So many SYNs from elsewhere, each of another client. What they are answered with is not
    /// looked at.
    pub(crate) fn flood(&mut self, syns: u16) {
        let mut end = Self::end_of([10, 9, 9, 9], 1);
        self.take_turns(&mut end);
        for _ in 0..syns {
            self.client_port += 1;
            self.send_client(Flags::SYN, 60_000, b"");
            drain(&mut self.client);
            drain(&mut self.host);
        }
        self.take_turns(&mut end);
    }

    /// The client sends a segment of its own making at [`Script::seq`].
    pub(crate) fn send_client(&mut self, flags: Flags, window: u16, payload: &[u8]) {
        let timestamps = self.timestamps.then_some(Timestamps { val: self.tsval, ecr: 0 });
        let head = HeadRepr {
            src_port: self.client_port,
            dst_port: 80,
            seq: self.seq,
            ack: self.ack,
            flags,
            window,
            timestamps,
            syn_options: syn_options(flags, timestamps),
            ..Default::default()
        };
        let mut frame = frame(self.client_address, SERVER, &head, payload);
        if std::mem::take(&mut self.wrong_sum) {
            frame[50] ^= 1;
        }
        self.client.send(&[IoSlice::new(&frame)], Offload::default()).expect("room on the wire");
        self.poll();
    }

    /// The host sends a segment.
    pub(crate) fn send_host(&mut self, flags: Flags, seq: Seq, ack: Seq, payload: &[u8]) {
        let timestamps = self.host_timestamps.then_some(Timestamps { val: 1, ecr: self.tsval });
        let head = HeadRepr {
            src_port: 80,
            dst_port: self.client_port,
            seq,
            ack,
            flags,
            window: 60_000,
            timestamps,
            syn_options: syn_options(flags, timestamps),
            ..Default::default()
        };
        let frame = frame(SERVER, self.client_address, &head, payload);
        self.host.send(&[IoSlice::new(&frame)], Offload::default()).expect("room on the wire");
        self.poll();
    }

    /// What both ends send in `speak` comes to the card at once: it looks at the ports once.
    pub(crate) fn in_one_burst(&mut self, speak: impl FnOnce(&mut Self)) {
        self.piling = true;
        speak(self);
        self.piling = false;
        self.card.poll(self.now, self.unix_s).expect("ports in memory do not break");
    }

    fn poll(&mut self) {
        if self.piling {
            return;
        }
        let Self { card, now, unix_s, .. } = self;
        let counted = allocation_counter::measure(|| {
            for _ in 0..3 {
                card.poll(*now, *unix_s).expect("ports in memory do not break");
            }
        });
        self.allocations += counted.count_total;
    }

    /// Time passes, in steps of 5 ms.
    pub(crate) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now += Duration::from_millis(5);
            self.poll();
        }
    }

    /// The card looks once, after `time`.
    pub(crate) fn poll_once_after(&mut self, time: Duration) {
        self.now += time;
        self.card.poll(self.now, self.unix_s).expect("ports in memory do not break");
    }

    /// What the card has sent to the client.
    pub(crate) fn take_at_client(&mut self) -> Vec<Segment> {
        drain(&mut self.client)
    }

    /// What the card has sent to the host.
    pub(crate) fn take_at_host(&mut self) -> Vec<Segment> {
        drain(&mut self.host)
    }
}

fn drain(port: &mut MemoryPort) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut burst = Burst::new(16);
    while port.receive(&mut burst).expect("in memory") > 0 {
        for frame in &burst {
            let frame = frame.data();
            let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let head = nicache_tcp::parse(&frame[34..end]).expect("the card sends valid headers");
            let payload = frame[34 + head.header_len..end].to_vec();
            assert!(payload.len() <= usize::from(MSS), "a segment of {} bytes", payload.len());
            segments.push(Segment { head, payload });
        }
    }
    segments
}

fn syn_options(flags: Flags, timestamps: Option<Timestamps>) -> Option<SynOptions> {
    flags.syn().then_some(SynOptions {
        mss: Some(MSS),
        window_scale: None,
        sack_permitted: false,
        timestamps,
        ecn: false,
    })
}

/// An Ethernet frame with that TCP header, sums filled in.
fn frame(source: [u8; 4], destination: [u8; 4], head: &HeadRepr, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0; head.len()];
    head.emit(&mut tcp);
    tcp.extend(payload);
    let pseudo = checksum::pseudo_header_v4(source, destination, tcp.len() as u32);
    let sum = checksum::finish(checksum::add(pseudo, checksum::sum(&tcp)));
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend(source);
    ip.extend(destination);
    let total = (ip.len() + tcp.len()) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = !checksum::sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [vec![2; 12], vec![0x08, 0x00], ip, tcp].concat()
}
