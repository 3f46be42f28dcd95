//! `nicache card`, the card process.

mod pages;

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_bus::Window;
use nicache_cache::{CoherenceLink, Entry, NoWatcher, PathSettings, Paths, Store};
use nicache_card::{AccessRecord as Hit, AsProxy, Card, CardConfig, Handshake, OwnPorts};
use nicache_coherence::RevisionTable;
use nicache_http::KeyConfig;
use nicache_memory::{CardMemory, HugePages};
use nicache_port::{Divertible, PCAP_SNAPLEN_DEFAULT, Pcap, Port, RealtimeClock, ReceiveSteering};
use nicache_secret::random_bytes;
use nicache_tcp::isn::IsnKey;

use crate::control::{
    ACCESS_RECORDS_MAX, AccessRecord, Answer, CardChannel, Counters, FromCard, Question,
    RECORD_FIELD_BYTES_MAX, ToCard,
};
use crate::engine::{
    AnyPort, FirstPlace, Hottest, KernelL0, L0_SHARDS_MAX, Life, Ports, RECHECK_PORTS, Rechecker,
    Shard, ShardPort, Shards, SharedLedger, Sign, Verdicts, Waker, WatcherLink, Yielding,
    card_sample, merge, monotonic, older_cards, report, wait_for,
};
use crate::logs;
use crate::options::HandshakeKind;
use crate::policy::new_policy;
use crate::privileges;
use crate::setup::{CARD_NICENESS, CardSetup, PortsSetup, child_start, go_first};

/// How often access records are fetched from the shards.
const ACCESS_INTERVAL: Duration = Duration::from_millis(200);

/// How often the keys of SYN cookies are renewed.
const KEY_INTERVAL: Duration = Duration::from_secs(600);

/// Serves until told to stop.
pub(super) fn execute() -> Result<ExitCode> {
    let (setup, files, socket) = child_start::<CardSetup>(c"nicache-card")?;
    logs::start(setup.log_format);
    go_first(CARD_NICENESS);
    let mut files = files.into_iter();
    let opened = Ports::open(&setup.ports, setup.queues, &mut files);
    let Ports { mut pairs, heartbeat, tap, first, probe } = match opened {
        Err(error) if wants_probe(&setup.ports) => return unfit(socket, &error),
        opened => opened?,
    };
    let ledger = files.next().context("no ledger came with the setup")?;
    let watcher = files.next();
    // The maps first, then the links, which only need to stay open.
    let mut witness: Vec<OwnedFd> = files.collect();
    let secret = random_bytes()?;
    let l0 = if setup.l0 { level0(&setup, first.as_ref(), &witness, secret) } else { Vec::new() };
    let channel = Arc::new(CardChannel::new(socket));
    if let Some(probe) = probe {
        let failure = probe
            .send(&mut pairs, u64::from_ne_bytes(std::array::from_fn(|at| secret[at + 8])) | 1);
        let failure = failure.err().map(|error| format!("{error:#}"));
        let has_failed = failure.is_some();
        channel.send(&FromCard::Probed { l0: !l0.is_empty(), failure })?;
        if has_failed {
            return Ok(ExitCode::FAILURE);
        }
    }
    let pairs = capture(&setup, pairs)?;
    // What L0 answers goes back on the CPU that it came from.
    let steered = tap.as_deref().filter(|_| l0.is_empty());
    let steering = steering(steered, setup.queues.into());
    privileges::keep_capabilities(privileges::of_a_card(steering.iter().any(Option::is_some)))?;
    let ledger = Arc::new(Window::map(ledger).context("the ledger of connections")?);
    let mut watched = !witness.is_empty();
    // Without a witness: a table whose lease is never renewed, so nothing is stored or served.
    let table = if watched { revision_table(&witness)? } else { RevisionTable::on_heap() };
    let wakers = (0..pairs.len()).map(|_| Waker::new()).collect::<Result<Vec<_>, _>>()?;
    let verdicts = Verdicts::start(wakers.clone())?;
    let links: Vec<Link> = match watcher {
        Some(watcher) => {
            verdicts.connect(watcher).into_iter().map(|link| Box::new(link) as Link).collect()
        }
        None => wakers.iter().map(|_| Box::new(NoWatcher) as Link).collect(),
    };
    let mut prepared = prepare_shards(&setup, pairs, steering, links, &wakers, &table, secret)?;
    for (l0, prepared) in l0.into_iter().zip(&mut prepared) {
        prepared.card.set_l0(Box::new(l0));
    }
    channel.send(&FromCard::Ready)?;
    let older = match channel.receive()? {
        Some((ToCard::Begin, _)) => None,
        Some((ToCard::BeginAfter, sockets)) => Some(sockets),
        Some(_) | None => return Ok(ExitCode::FAILURE),
    };
    let signs: Vec<Sign> = prepared.iter().map(|_| Sign::default()).collect();
    let is_watched = heartbeat.is_some();
    let (older_cards, older) = match older.map(older_cards).transpose()? {
        Some((older_cards, life)) => {
            wait_for(&life);
            (older_cards, Some(life))
        }
        None => (Vec::new(), None),
    };
    let mut older_cards = older_cards.into_iter();
    let mut shards = Shards::new();
    for (mut prepared, sign) in prepared.into_iter().zip(&signs) {
        // Before its first frame, which may be the older's.
        older_cards.next().into_iter().for_each(|older| prepared.card.set_older_card(older));
        shards.push(prepared.start(&ledger, is_watched.then(|| sign.clone()))?);
    }
    let shards = Arc::new(shards);
    let yielding = Yielding::prepare(Arc::clone(&shards), older)?;
    let life = heartbeat.map(|heartbeat| Life::start(heartbeat, signs)).transpose()?;
    if setup.access_log {
        let (shards, channel) = (Arc::clone(&shards), Arc::clone(&channel));
        std::thread::Builder::new()
            .name("access".into())
            .spawn(move || send_access_records(&shards, &channel))?;
    }
    let shards_with_keys = Arc::clone(&shards);
    std::thread::Builder::new().name("keys".into()).spawn(move || renew_keys(&shards_with_keys))?;
    // Each has opened its files once it answers.
    shards.iter().try_for_each(|shard| shard.ask_patiently(|_| ()))?;
    privileges::filter_calls()?;
    let mut hottest = Hottest::new(monotonic());
    while let Some((message, files)) = channel.receive()? {
        match message {
            ToCard::Begin | ToCard::BeginAfter => {}
            ToCard::Watched => {
                let mut files = files.into_iter();
                let watcher = files.next().context("no socket to the watcher came")?;
                let another: Vec<OwnedFd> = files.collect();
                begin_watched(&shards, &another, verdicts.connect(watcher))?;
                witness.clear();
                witness.extend(another);
                watched = true;
            }
            ToCard::Yield => {
                yielding.begin(&shards, files)?;
                life.iter().for_each(Life::retire);
            }
            ToCard::Stop => {
                life.iter().for_each(Life::stop);
                for shard in shards.iter() {
                    if let Err(error) = shard.ask_patiently(|card| card.wire_mut().finish())? {
                        tracing::warn!("the capture is not whole: {error}");
                    }
                }
                return Ok(ExitCode::SUCCESS);
            }
            ToCard::Ask { id, question } => {
                let answer = answer(question, &shards, watched, &mut hottest)
                    .unwrap_or_else(|error| Answer::Refused { reason: format!("{error:#}") });
                channel.send_patiently(&FromCard::Answer { id, answer })?;
            }
        }
    }
    Ok(ExitCode::FAILURE)
}

fn wants_probe(ports: &PortsSetup) -> bool {
    matches!(ports, PortsSetup::Interfaces { probe: Some(_), .. })
}

/// Tells the supervisor that the ports cannot be used as they are.
fn unfit(socket: OwnedFd, error: &anyhow::Error) -> Result<ExitCode> {
    CardChannel::new(socket)
        .send(&FromCard::Probed { l0: false, failure: Some(format!("{error:#}")) })?;
    Ok(ExitCode::FAILURE)
}

fn revision_table(witness: &[OwnedFd]) -> Result<Arc<RevisionTable>> {
    let [control, revisions, ..] = witness else { bail!("the witness has no revision table") };
    Ok(Arc::new(RevisionTable::map(control.as_fd(), revisions.as_fd())?))
}

/// Has all shards store and serve what this witness and its watcher vouch for, and nothing else.
fn begin_watched(
    shards: &[Shard<ShardPort, ShardPort>],
    witness: &[OwnedFd],
    links: Vec<WatcherLink>,
) -> Result<()> {
    let table = revision_table(witness)?;
    for (shard, link) in shards.iter().zip(links) {
        let table = Arc::clone(&table);
        shard.ask_patiently(|card| card.begin_watched(table, Box::new(link)))?;
    }
    Ok(())
}

/// A shard's way to the watcher.
type Link = Box<dyn CoherenceLink + Send>;

/// A shard that takes no frames yet.
struct Prepared {
    number: usize,
    connections: u32,
    card: Card<ShardPort, ShardPort>,
    steering: Option<ReceiveSteering>,
    rechecker: Option<Rechecker>,
    waker: Waker,
}

impl Prepared {
    fn start(
        mut self,
        ledger: &Arc<Window>,
        sign: Option<Sign>,
    ) -> Result<Shard<ShardPort, ShardPort>> {
        if sign.is_some() {
            self.card.drain_ports()?;
        }
        let mut ledger = SharedLedger::of(ledger, self.number, self.connections);
        self.card.adopt(ledger.take().into_iter(), monotonic());
        self.card.keep_ledger(Box::new(ledger));
        let failed = |error| {
            tracing::error!("the card can no longer forward frames: {error}");
            std::process::exit(1);
        };
        Shard::start(
            self.number,
            self.card,
            self.steering,
            self.rechecker,
            sign,
            self.waker,
            failed,
        )
    }
}

fn prepare_shards(
    setup: &CardSetup,
    pairs: Vec<(AnyPort, AnyPort)>,
    steering: Vec<Option<ReceiveSteering>>,
    links: Vec<Link>,
    wakers: &[Waker],
    table: &Arc<RevisionTable>,
    secret: [u8; 16],
) -> Result<Vec<Prepared>> {
    let queues = pairs.len();
    let memory_bytes =
        usize::try_from(setup.memory_bytes / queues as u64).context("--memory is too large")?;
    let rechecker = match setup.rechecker {
        Some(addresses) => {
            let own_ports = Arc::new(OwnPorts::new(*RECHECK_PORTS.start()));
            let client = Rechecker::start(addresses, &own_ports)
                .context("starting the card's own client")?;
            let as_proxy = Some(AsProxy { address: addresses.proxy.into(), ports: own_ports });
            let own = nicache_card::Rechecker {
                address: addresses.own.into(),
                ports: RECHECK_PORTS,
                as_proxy,
            };
            Some((client, own))
        }
        None => None,
    };
    let mut shards = Vec::new();
    for (number, (((wire, host), steering), link)) in
        pairs.into_iter().zip(steering).zip(links).enumerate()
    {
        let mut config = card_config(setup, memory_bytes, secret)?;
        config.rechecker = rechecker.as_ref().map(|(_, own)| own.clone());
        let memory = CardMemory::new(memory_bytes, HugePages::Try).with_context(|| {
            format!("cannot take {memory_bytes} bytes of card memory: try a smaller --memory")
        })?;
        tracing::info!(shard = number, bytes = memory_bytes, pages = ?memory.pages(),
            "card memory is ready");
        let seed = u64::from(std::process::id()) << 16 | number as u64;
        let policy = new_policy(setup.policy, memory_bytes as u64, config.entries as u32, seed);
        let store = Store::new(memory, policy, Arc::clone(table), config.entries);
        let (wire, host) = (Divertible::new(wire), Divertible::new(host));
        let mut card = Card::new(wire, host, config, store, link, monotonic());
        card.set_lease_clock(nicache_clock::boottime_ns);
        card.set_bypass(setup.bypass);
        let rechecker = rechecker.as_ref().map(|(client, _)| client.clone());
        let waker = wakers[number].clone();
        let connections = setup.clients.connections;
        shards.push(Prepared { number, connections, card, steering, rechecker, waker });
    }
    Ok(shards)
}

/// Steering of the frames of each queue of a TAP, as far as there is any.
fn steering(tap: Option<&str>, queues: usize) -> Vec<Option<ReceiveSteering>> {
    let open = |number| {
        let opened = ReceiveSteering::open(tap?, number);
        opened
            .inspect_err(|error| {
                tracing::debug!(
                    shard = number,
                    "received frames cannot be steered to the card's CPU: {error}"
                );
            })
            .ok()
    };
    (0..queues).map(open).collect()
}

/// What answers before each shard; none, with the reason in the log, if that cannot be.
fn level0(
    setup: &CardSetup,
    place: Option<&FirstPlace>,
    witness: &[OwnedFd],
    secret: [u8; 16],
) -> Vec<KernelL0> {
    let missing = match (place, witness) {
        (None, _) => "there is no XDP on the wire's interface",
        (_, []) => "the kernel is not the witness",
        _ if usize::from(setup.queues) > L0_SHARDS_MAX => "there are more than 8 queues",
        _ if setup.access_log || setup.pcap.is_some() => "it writes neither access log nor capture",
        (Some(place), [control, ..]) => {
            let seed = u64::from_le_bytes(std::array::from_fn(|at| secret[at]));
            match KernelL0::attach(place, control.as_fd(), seed, setup.queues.into()) {
                Ok(l0) => return l0,
                Err(error) => {
                    tracing::warn!("hits are not answered in the kernel: {error:#}");
                    return Vec::new();
                }
            }
        }
    };
    tracing::warn!("hits are not answered in the kernel: {missing}");
    Vec::new()
}

/// The ports, with a capture in front of the wire's if one is wanted.
fn capture(setup: &CardSetup, pairs: Vec<(AnyPort, AnyPort)>) -> Result<Vec<(AnyPort, AnyPort)>> {
    let capture = |(number, (wire, host))| Ok((wire_port(setup, wire, number)?, host));
    pairs.into_iter().enumerate().map(capture).collect()
}

fn wire_port(setup: &CardSetup, wire: AnyPort, number: usize) -> Result<AnyPort> {
    let Some(path) = &setup.pcap else { return Ok(wire) };
    if number > 0 {
        // One file per queue: a capture file has one writer.
        let path = path.with_extension(format!("{number}.pcap"));
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        return Ok(Box::new(Pcap::new(wire, file, RealtimeClock, PCAP_SNAPLEN_DEFAULT)?));
    }
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Box::new(Pcap::new(wire, file, RealtimeClock, PCAP_SNAPLEN_DEFAULT)?))
}

fn card_config(setup: &CardSetup, memory_bytes: usize, secret: [u8; 16]) -> Result<CardConfig> {
    let mut keys = KeyConfig::new(secret);
    if let Some(secret) = setup.resource_secret {
        keys = keys.with_resources(secret);
    }
    for cookie in &setup.ignore_cookies {
        keys = keys.allow_cookie(cookie);
    }
    for header in &setup.ignore_headers {
        keys = keys.allow_header(header);
    }
    for header in &setup.vary {
        keys = keys
            .separate_by(header)
            .ok()
            .with_context(|| format!("--vary {header}: not a header name, or too many headers"))?;
    }
    for path in &setup.paths {
        keys = keys.add_path(path.pattern()?, &path.ignore_cookie)?;
    }
    let mut config = CardConfig::new(setup.http_ports.clone(), memory_bytes, keys, secret);
    config.handshake = match setup.handshake {
        HandshakeKind::PassThrough => Handshake::PassThrough,
        HandshakeKind::Card => Handshake::Card,
    };
    config.flows = setup.clients.connections as usize;
    config.half_open = setup.clients.half_open as usize;
    config.patience = setup.clients.patience();
    config.access_log = setup.access_log;
    config.mtu = u16::try_from(setup.mtu).unwrap_or(u16::MAX);
    config.cache_status = setup.cache_status;
    let default = PathSettings {
        keeps_dynamic: setup.rechecks.wants_dynamic(),
        ages: setup.rechecks.bounds(),
        ..PathSettings::default()
    };
    let paths =
        setup.paths.iter().map(|path| path.settings(setup.rechecks)).collect::<Result<_>>()?;
    config.paths = Paths::new(default, paths);
    Ok(config)
}

fn answer(
    question: Question,
    shards: &Shards,
    watched: bool,
    hottest: &mut Hottest,
) -> Result<Answer> {
    match question {
        Question::Alive => {
            // Whoever asks knows how long to wait.
            shards.iter().try_for_each(|shard| shard.ask_patiently(|_| ()))?;
            Ok(Answer::Alive)
        }
        Question::Counters => {
            let reports =
                shards.iter().map(|shard| shard.ask(settled_report)).collect::<Result<Vec<_>>>()?;
            let mut counters = merge(reports);
            counters.not_caching = unwatched(watched).or(counters.not_caching);
            Ok(Answer::Counters(counters))
        }
        Question::Cards => {
            let (mut cards, mut reports) = (Vec::new(), Vec::new());
            for (number, shard) in shards.iter().enumerate() {
                let (card, counters) = shard.ask(move |card| {
                    let counters = settled_report(card);
                    (card_sample(number, card), counters)
                })?;
                cards.push(card);
                reports.push(counters);
            }
            let mut counters = Box::new(merge(reports));
            let of_cards = counters.not_caching.take();
            counters.not_caching = unwatched(watched).or(of_cards);
            Ok(Answer::Cards { cards, counters })
        }
        Question::Hottest => Ok(Answer::Hottest { objects: hottest.look(shards, monotonic())? }),
        Question::PurgeAll => pages::purge(shards, None),
        Question::PurgeTarget { page } => pages::purge(shards, Some(page)),
        Question::Page { page: name, requests } => pages::describe(shards, name, requests),
        Question::EntriesOf { records, every_dynamic } => {
            let records: HashSet<u64> = records.into_iter().collect();
            let chosen = Arc::new(move |entry: &Entry| {
                every_dynamic && entry.is_dynamic() || records.contains(&entry.record().0)
            });
            let (entries, count) = pages::entries_where(shards, chosen)?;
            Ok(Answer::Entries { entries, count })
        }
        Question::Bypass { on } => {
            for shard in shards {
                shard.ask(move |card| card.set_bypass(on))?;
            }
            Ok(Answer::Bypass { on })
        }
    }
}

/// What is counted, with what L0 has answered.
fn settled_report(card: &mut Card<ShardPort, ShardPort>) -> Counters {
    card.settle_l0(monotonic());
    report(card)
}

fn unwatched(watched: bool) -> Option<String> {
    (!watched).then(|| "the server's files are not watched yet".to_owned())
}

/// Gives each shard another key for its SYN cookies from time to time.
fn renew_keys(shards: &Shards) {
    loop {
        std::thread::sleep(KEY_INTERVAL);
        let Ok(key) = random_bytes() else { continue };
        let renewed = shards.iter().try_for_each(|shard| {
            shard.ask_patiently(move |card| card.renew_cookie_key(IsnKey(key), monotonic()))
        });
        if renewed.is_err() {
            return;
        }
    }
}

fn send_access_records(shards: &Shards, channel: &CardChannel) {
    let mut lost_before = 0;
    loop {
        std::thread::sleep(ACCESS_INTERVAL);
        let mut records = Vec::new();
        let mut lost = 0;
        for shard in shards {
            let fetched = shard.ask_patiently(|card| {
                let mut records = Vec::new();
                card.drain_access_records(|record| records.push(to_record(record)));
                (records, card.counters().access_lost)
            });
            let Ok((some, lost_here)) = fetched else { return };
            records.extend(some);
            lost += lost_here;
        }
        let mut dropped = lost - lost_before;
        lost_before = lost;
        for batch in records.chunks(ACCESS_RECORDS_MAX) {
            let message = FromCard::AccessLog { records: batch.to_vec(), dropped };
            match channel.send(&message) {
                Ok(()) => dropped = 0,
                Err(_) => dropped += batch.len() as u64,
            }
        }
        // Told with the next batch.
        lost_before -= dropped.min(lost_before);
    }
}

fn to_record(hit: &Hit) -> AccessRecord {
    let text = |bytes: &[u8]| {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        text.truncate(text.floor_char_boundary(RECORD_FIELD_BYTES_MAX - 16));
        text
    };
    let given = |bytes: &[u8]| (!bytes.is_empty()).then(|| text(bytes));
    let method = if hit.head { "HEAD" } else { "GET" };
    let version = if hit.http10 { "HTTP/1.0" } else { "HTTP/1.1" };
    AccessRecord {
        unix_s: hit.time,
        client: hit.client.to_ip(),
        request: format!("{method} {} {version}", text(hit.target())),
        status: hit.status,
        body_bytes: u64::from(hit.body_bytes),
        referer: given(hit.referer()),
        user_agent: given(hit.user_agent()),
    }
}
