//! A scenario: one kind of request, over and over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use nicache_cache::{AgeBounds, CoherenceLink, PathSettings, Paths, Store};
use nicache_card::{Card, CardConfig, Handshake};
use nicache_coherence::{
    Answer, Class, FillVerdict, Question, RecordNumber, RefusalReason, RevisionTable, SourceSet,
    SourceSlot, Verdict,
};
use nicache_http::{HttpDate, KeyConfig};
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::Lru;
use nicache_tcp::Time;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::host::Host;
use super::instructions::Counter;
use super::stage::{StageEnd, StagePort, stage};

/// Connections, and requests of one turn: as many frames as the card takes at a time.
const CONNECTIONS: usize = 64;
const MEMORY_BYTES: usize = 64 << 20;
const SECRET: [u8; 16] = [7; 16];
const UNIX_S: u64 = 1_700_000_000;
/// The card's time advances by this much at each poll.
const POLL_NS: u64 = 20_000;
/// Polls after which an exchange must be over.
const POLLS_MAX: usize = 16;
/// A source that all entries depend on, beside everything.
const SOURCE: SourceSlot = SourceSlot(77);

/// What becomes of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Answered from card memory.
    Hit,
    /// Answered from card memory, each on a connection of its own; the card completes the
    /// handshake, and closes.
    HitWithConnection,
    /// Answered from card memory with the epoch moved since the last hit: the sources are compared.
    HitAfterWrite,
    /// Passed to the host, with the cache turned off.
    Bypass,
    /// Passed to the host, copied, hashed, and not stored since the watcher refuses.
    Miss,
}

/// One kind of request for one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scenario {
    /// What becomes of the requests.
    pub kind: Kind,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// The request has the headers that a browser sends, else those of `wrk`.
    pub browser: bool,
}

/// What one round gave, per request.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// Nanoseconds.
    pub ns: f64,
    /// Instructions.
    pub instructions: Option<f64>,
    /// Frames in and out.
    pub frames: f64,
}

impl Scenario {
    /// The scenario's name in tables.
    pub fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Hit => "hit",
            Kind::HitWithConnection => "hit with its connection",
            Kind::HitAfterWrite => "hit, epoch moved",
            Kind::Bypass => "forwarded, bypass",
            Kind::Miss => "forwarded, miss with refused fill",
        };
        let request = if self.browser { ", browser's headers" } else { "" };
        format!("{kind}, {} B{request}", self.body_bytes)
    }

    /// One round of about `time`.
    ///
    /// # Errors
    /// The card did something else.
    pub fn run(&self, time: Duration, counter: Option<&mut Counter>) -> Result<Round> {
        let mut rig = Rig::new(self);
        rig.prepare(self)?;
        let mut meter = Meter { counter, ..Meter::default() };
        // Warm up caches and branch predictors first.
        for _ in 0..200 {
            rig.turn(self, &mut meter)?;
        }
        let before = rig.tally();
        meter.reset();
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            for _ in 0..20 {
                rig.turn(self, &mut meter)?;
            }
        }
        let after = rig.tally();
        let requests = after.requests - before.requests;
        let hits = matches!(self.kind, Kind::Hit | Kind::HitWithConnection | Kind::HitAfterWrite);
        let (wanted, unwanted) = if hits {
            (after.hits - before.hits, after.host_requests - before.host_requests)
        } else {
            (after.host_requests - before.host_requests, after.hits - before.hits)
        };
        ensure!(
            wanted == requests && unwanted == 0 && requests > 0,
            "{}: of {requests} requests {wanted} were treated as meant, {unwanted} otherwise",
            self.label()
        );
        Ok(Round {
            ns: meter.time.as_nanos() as f64 / requests as f64,
            instructions: meter.instructions().map(|count| count as f64 / requests as f64),
            frames: (after.frames - before.frames) as f64 / requests as f64,
        })
    }

    fn requests(&self) -> Vec<Vec<u8>> {
        let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
             Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
             Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n\
             Referer: http://www.example.com/index.html\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n\
             Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\nPriority: u=0, i\r\n";
        let more = match (self.browser, self.kind) {
            (true, _) => browser,
            (false, Kind::HitWithConnection) => "Connection: close\r\n",
            (false, _) => "",
        };
        (0..CONNECTIONS)
            .map(|number| {
                format!("GET /object-{number} HTTP/1.1\r\nHost: 10.77.0.2\r\n{more}\r\n")
                    .into_bytes()
            })
            .collect()
    }

    /// A reply of the host with the fields that nginx sends for a file.
    fn reply(&self) -> Vec<u8> {
        let date = HttpDate::from_unix_s(UNIX_S);
        let date = String::from_utf8_lossy(date.as_bytes()).into_owned();
        let connection = if self.kind == Kind::HitWithConnection { "close" } else { "keep-alive" };
        let mut reply = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: {date}\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {}\r\nLast-Modified: Mon, 13 Nov 2023 10:00:00 GMT\r\nConnection: {connection}\r\n\
             ETag: \"6551f2a0-{:x}\"\r\nAccept-Ranges: bytes\r\n\r\n",
            self.body_bytes, self.body_bytes
        )
        .into_bytes();
        reply.extend((0..self.body_bytes).map(|at| (at % 251) as u8));
        reply
    }
}

/// What has happened so far.
#[derive(Debug, Clone, Copy)]
struct Tally {
    requests: u64,
    hits: u64,
    host_requests: u64,
    frames: u64,
}

/// Time (and instructions) in the card.
#[derive(Default)]
struct Meter<'a> {
    time: Duration,
    counter: Option<&'a mut Counter>,
    counted_before: u64,
}

impl Meter<'_> {
    fn reset(&mut self) {
        self.time = Duration::ZERO;
        self.counted_before =
            self.counter.as_mut().and_then(|counter| counter.total()).unwrap_or(0);
    }

    fn instructions(&mut self) -> Option<u64> {
        let before = self.counted_before;
        self.counter.as_mut().and_then(|counter| counter.total()).map(|now| now - before)
    }

    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if let Some(counter) = &mut self.counter {
            counter.resume();
        }
        let start = cpu_time();
        let result = work();
        self.time += cpu_time().saturating_sub(start);
        if let Some(counter) = &mut self.counter {
            counter.pause();
        }
        result
    }
}

/// CPU time of this thread: what other processes take away does not count. The clock costs a system
/// call, a few nanoseconds per request when a poll handles a burst.
fn cpu_time() -> Duration {
    Duration::from_nanos(nicache_clock::thread_cpu_ns())
}

/// Says yes to every fill, or no.
struct Watcher {
    stores: bool,
    asked: Vec<u64>,
}

impl CoherenceLink for Watcher {
    fn ask(&mut self, question: &Question<'_>) -> bool {
        let Question::Fill(request) = question else { return false };
        self.asked.push(request.id);
        true
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        let id = self.asked.pop()?;
        let mut sources = SourceSet::new();
        let whole = sources.insert(SOURCE).is_ok();
        let verdict = if whole && self.stores {
            Verdict::Stored {
                class: Class::Static,
                sources,
                record: RecordNumber::default(),
                previous_unchanged: false,
            }
        } else {
            Verdict::Refused(RefusalReason::NoMatchingFile)
        };
        Some(Answer::Fill(FillVerdict { id, verdict }))
    }
}

/// A card with both its ends.
struct Rig {
    card: Card<StagePort, StagePort>,
    client: Client,
    host: Host,
    wire_end: StageEnd,
    host_end: StageEnd,
    revisions: Arc<RevisionTable>,
    now: Time,
    reply_bytes: u64,
    requests: u64,
}

impl Rig {
    fn new(scenario: &Scenario) -> Self {
        let (wire, wire_end) = stage();
        let (host_port, host_end) = stage();
        let revisions = RevisionTable::on_heap();
        revisions.renew_lease(u64::MAX);
        revisions.watch(SOURCE);
        let mut config = CardConfig::new(vec![80], MEMORY_BYTES, KeyConfig::new(SECRET), SECRET);
        // What a hit costs is measured, not how often there is one.
        let ages = AgeBounds::fixed(Duration::from_secs(86_400));
        config.paths = Paths::new(PathSettings { ages, ..PathSettings::default() }, Vec::new());
        if scenario.kind == Kind::HitWithConnection {
            config.handshake = Handshake::Card;
        }
        let memory = CardMemory::new(MEMORY_BYTES, HugePages::Try).expect("64 MiB of memory");
        let policy = Box::new(Lru::new(MEMORY_BYTES as u64, config.entries as u32));
        let store = Store::new(memory, policy, Arc::clone(&revisions), config.entries);
        let link = Box::new(Watcher {
            stores: scenario.kind != Kind::Miss,
            asked: Vec::with_capacity(CONNECTIONS),
        });
        let now = Time(1_000_000_000);
        let reply = scenario.reply();
        let reply_bytes = reply.len() as u64;
        Self {
            card: Card::new(wire, host_port, config, store, link, now),
            client: Client::new(wire_end.clone(), scenario.requests()),
            host: Host::new(host_end.clone(), reply),
            wire_end,
            host_end,
            revisions,
            now,
            reply_bytes,
            requests: 0,
        }
    }

    /// Opens the connections and fills card memory.
    fn prepare(&mut self, scenario: &Scenario) -> Result<()> {
        let mut meter = Meter::default();
        self.card.set_bypass(scenario.kind == Kind::Bypass);
        self.open(&mut meter)?;
        self.ask(&mut meter)?;
        for _ in 0..POLLS_MAX {
            self.poll(&mut meter)?;
        }
        let stored = self.card.counters().cache.fills_stored;
        let expected =
            if matches!(scenario.kind, Kind::Bypass | Kind::Miss) { 0 } else { CONNECTIONS as u64 };
        ensure!(
            stored == expected,
            "{}: {stored} of {expected} objects were stored: {:?}",
            scenario.label(),
            self.card.counters()
        );
        Ok(())
    }

    /// A request on every connection, with all that belongs to it.
    fn turn(&mut self, scenario: &Scenario, meter: &mut Meter<'_>) -> Result<()> {
        match scenario.kind {
            Kind::HitAfterWrite => {
                // Another source in the same table changes: the epoch moves, the entries stay.
                self.revisions.watch(SourceSlot(78));
                self.revisions.record_change(SourceSlot(78));
            }
            Kind::HitWithConnection => {
                self.now = Time(self.now.0 + 2_000_000);
                self.open(meter)?;
            }
            Kind::Hit | Kind::Bypass | Kind::Miss => {}
        }
        self.ask(meter)?;
        if scenario.kind == Kind::HitWithConnection {
            self.client.close_all();
            self.poll(meter)?;
        }
        Ok(())
    }

    fn open(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        self.client.open_all();
        // To the host and back, if it is the host that completes the handshake.
        self.poll(meter)?;
        self.poll(meter)?;
        self.client.acknowledge_all();
        self.poll(meter)
    }

    /// Sends all requests and polls until all replies are there.
    fn ask(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        let wanted = self.client.received + self.reply_bytes * CONNECTIONS as u64;
        self.client.ask_all();
        self.requests += CONNECTIONS as u64;
        for _ in 0..POLLS_MAX {
            self.poll(meter)?;
            if self.client.received >= wanted {
                return Ok(());
            }
        }
        bail!("{} of {wanted} reply bytes came: {:?}", self.client.received, self.card.counters())
    }

    fn poll(&mut self, meter: &mut Meter<'_>) -> Result<()> {
        self.now = Time(self.now.0 + POLL_NS);
        let ticks = (self.now.0 / 1_000_000) as u32;
        self.client.set_ticks(ticks);
        self.host.set_ticks(ticks.wrapping_add(500_000));
        let now = self.now;
        let card = &mut self.card;
        meter.time(|| card.poll(now, UNIX_S))?;
        self.client.take_all();
        self.host.answer_all();
        Ok(())
    }

    fn tally(&self) -> Tally {
        Tally {
            requests: self.requests,
            hits: self.card.counters().hits,
            host_requests: self.host.requests,
            frames: self.wire_end.frames() + self.host_end.frames(),
        }
    }
}
