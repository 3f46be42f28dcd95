//! A card as the supervisor has it: its process, all that another process needs to take its place,
//! and who passes frames meanwhile.
//!
//! ```text
//!           Ready, Begin                 ends or is killed
//!  Starting ───────────▶ Serving ──────────────────────────▶ Waiting ──▶ Starting ...
//!     frames pass           the card has the frames             frames pass
//! ```
//!
//! A card that ends is started again, at once the first time, then less and less often. Its memory
//! is empty then; connections that it had changed are lost, others go on.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nicache_bus::Window;
use nicache_card::FlowKey;
use nicache_port::{PairSocket, TapConfig, TapQueue};
use nicache_xdp::{Connection, ProbeFiles, SteeringFiles};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::card_link::CardLink;
use super::children::{Child, OWN_PROGRAM, Role, describe, first_word, wait_readable};
use super::passing::Passing;
use super::standing::Standing;
use super::watch_unit::WatchUnit;
use super::watchdog::Watchdog;
use crate::control::{FromCard, Question, ToCard, misfit};
use crate::engine::{ledger_bytes, orphans};
use crate::setup::{CardSetup, PortsSetup, receive_message, send_message};
use crate::vitals::{LOOK_EVERY, Patience};

/// How long a card may stand still while it makes its memory ready; many gigabytes take seconds.
const START: Duration = Duration::from_secs(120);
/// Until a card or the watcher is told again what it did not take.
const AGAIN: Duration = Duration::from_millis(100);
/// A card that has served for so long may be started again at once.
const STEADY: Duration = Duration::from_secs(60);
/// Longest pause before a card is started again.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long the card may take to flush its files.
const FLUSH: Duration = Duration::from_millis(500);

/// What a card's process is given beside its setup. It is kept open here, so interfaces and
/// witness outlive a card.
#[derive(Debug)]
pub(super) struct CardFiles {
    /// Between what it stands.
    pub ports: CardPorts,
    /// Of the witness.
    pub witness: Arc<Vec<OwnedFd>>,
}

/// Between what a card stands.
#[derive(Debug)]
pub(super) enum CardPorts {
    /// Queues of TAPs. While there is no card, a thread passes their frames.
    Taps {
        /// Toward the clients.
        wire: Vec<TapQueue>,
        /// Toward the server.
        host: Vec<TapQueue>,
    },
    /// Existing interfaces. While there is no card, the programs pass their frames in the kernel.
    Interfaces(Box<Standing>),
}

impl CardPorts {
    /// The files that go to a card with its setup, in the order that [`PortsSetup`] says.
    fn files(&self, setup: &PortsSetup) -> Result<Vec<BorrowedFd<'_>>> {
        Ok(match self {
            Self::Taps { wire, host } => wire.iter().chain(host).map(AsFd::as_fd).collect(),
            Self::Interfaces(standing) => {
                let SteeringFiles { heartbeat, wire, host, host_queue, first, probe } =
                    standing.steering()?.files();
                let ProbeFiles { key, filter, inject, drivers: [driver, _] } = probe;
                let wants_probe = matches!(setup, PortsSetup::Interfaces { probe: Some(_), .. });
                let probe =
                    [key, filter].into_iter().chain(inject).chain(driver).filter(|_| wants_probe);
                let files = [
                    heartbeat,
                    host_queue,
                    wire.filter,
                    wire.sockets,
                    host.filter,
                    host.sockets,
                    first.first,
                    first.rest,
                ];
                files.into_iter().chain(probe).collect()
            }
        })
    }

    /// Has frames pass without a card, but not those of connections that are `lost`, from now on
    /// until what is returned is dropped.
    fn pass(&self, lost: HashSet<FlowKey>) -> Result<Passing> {
        match self {
            Self::Taps { wire, host } => {
                let again = |queue: &TapQueue| -> Result<TapQueue> {
                    let file = queue.as_fd().try_clone_to_owned()?;
                    TapQueue::from_owned_fd(file, &TapConfig::default()).context("a TAP queue")
                };
                let pairs =
                    wire.iter().zip(host).map(|(wire, host)| Ok((again(wire)?, again(host)?)));
                Passing::start(pairs.collect::<Result<_>>()?, lost)
            }
            Self::Interfaces(standing) => {
                let lost = lost.iter().map(|key| Connection {
                    client: SocketAddr::new(key.client.to_ip(), key.client_port),
                    server: SocketAddr::new(key.server.to_ip(), key.server_port),
                });
                if let Err(error) = standing.steering()?.end_term(lost) {
                    tracing::error!(
                        "until the next card only new connections pass, because the kernel took no list of those that are lost: {error}"
                    );
                }
                Ok(Passing::in_kernel())
            }
        }
    }

    /// Call before a card begins.
    fn begin_term(&self) -> Result<()> {
        match self {
            Self::Taps { .. } => Ok(()),
            Self::Interfaces(standing) => {
                standing.steering()?.begin_term().context("telling the kernel of a new card")
            }
        }
    }
}

/// A card as the supervisor has it: its process, all that another process needs to take its place,
/// and who passes frames meanwhile.
#[derive(Debug)]
pub(super) struct CardUnit {
    /// Of which cards are started.
    program: PathBuf,
    setup: CardSetup,
    files: CardFiles,
    link: Arc<CardLink>,
    /// Of the card in `state`.
    bond: Bond,
    /// What the card says of its connections, for the next one.
    ledger: Window,
    state: State,
    /// The card that is to take the place of the one at work, who wants it, and what it has of its
    /// own.
    successor: Option<Successor>,
    /// Cards that have been replaced and serve their last connections.
    older_cards: Vec<OlderCard>,
    /// Connections that were lost with the last card that ended.
    lost: HashSet<FlowKey>,
    /// Ends in a row, without a steady time between.
    failures: u32,
}

#[derive(Debug)]
struct OlderCard {
    card: Child,
    ledger: Window,
}

#[derive(Debug)]
struct Successor {
    card: Child,
    bond: Bond,
    patience: Patience,
    ledger: Window,
    /// Whether it has been told that every request goes to the server.
    bypass: bool,
    reply: mpsc::Sender<Result<u32>>,
}

#[derive(Debug)]
enum State {
    Serving { card: Child, since: Instant, watchdog: Watchdog },
    Starting { card: Child, patience: Patience, passing: Option<Passing> },
    Waiting { until: Instant, passing: Option<Passing> },
}

/// How far a card and the watcher have got with each other.
#[derive(Debug, Default)]
struct Bond {
    /// What the card has of the watcher; none: it has never heard of one.
    witness: Arc<Vec<OwnedFd>>,
    /// The watcher's end of the socket between card and watcher, until the watcher has it.
    socket: Option<OwnedFd>,
}

impl CardUnit {
    /// Starts a card and waits until it serves. On interfaces that are there it first finds out
    /// whether its way there works, and takes another one if it does not.
    pub(super) fn start(
        mut setup: CardSetup,
        mut files: CardFiles,
        link: Arc<CardLink>,
        watch: &WatchUnit,
    ) -> Result<Self> {
        let ledger = Window::create(
            "nicache-ledger",
            ledger_bytes(setup.queues, setup.clients.connections),
        )?;
        let program = PathBuf::from(OWN_PROGRAM);
        let mut is_proven = false;
        let (mut card, mut bond) = loop {
            if let CardPorts::Interfaces(standing) = &files.ports {
                (setup.ports, setup.l0) = (standing.setup(!is_proven), standing.wants_l0());
            }
            let (mut card, bond) = spawn(&program, &setup, &files, &ledger)?;
            let CardPorts::Interfaces(standing) = &mut files.ports else { break (card, bond) };
            if is_proven {
                break (card, bond);
            }
            let FromCard::Probed { l0, failure } = first_word(&mut card, START)?.0 else {
                return Err(misfit("the card"));
            };
            if let Some(reason) = failure {
                drop(card);
                if !standing.step_down(&reason)? {
                    // Better than a server that nobody reaches, if the frames do pass.
                    tracing::error!("{reason}: the card goes on because there is no other way");
                    is_proven = true;
                }
                continue;
            }
            if setup.l0 && !l0 {
                standing.without_l0();
            }
            (setup.ports, setup.l0) = (standing.setup(false), standing.wants_l0());
            break (card, bond);
        };
        bond.tell_watcher(watch);
        match first_word(&mut card, START)?.0 {
            FromCard::Ready => {}
            _ => return Err(misfit("the card")),
        }
        files.ports.begin_term()?;
        let begin = |card: &Child| send_message(&card.channel, &ToCard::Begin, &[]);
        let state = serving(card, &link, setup.bypass, begin)?;
        Ok(Self {
            program,
            setup,
            files,
            link,
            bond,
            ledger,
            state,
            successor: None,
            older_cards: Vec::new(),
            lost: HashSet::new(),
            failures: 0,
        })
    }

    /// Readable when something has happened that [`handle`](CardUnit::handle) is for.
    pub(super) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let card = match &self.state {
            State::Serving { card, .. } => Some(card.as_fd()),
            State::Starting { card, .. } => Some(card.channel.as_fd()),
            State::Waiting { .. } => None,
        };
        let successor = self.successor.as_ref().map(|successor| successor.card.channel.as_fd());
        card.into_iter()
            .chain(successor)
            .chain(self.older_cards.iter().map(|older| older.card.as_fd()))
    }

    /// When [`handle`](CardUnit::handle) wants to be called at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        let soon = |pause| Instant::now() + pause;
        let state = match &self.state {
            State::Serving { .. } => None,
            State::Starting { .. } => Some(soon(LOOK_EVERY)),
            State::Waiting { until, .. } => Some(*until),
        };
        let successor = self.successor.as_ref().map(|_| soon(LOOK_EVERY));
        let is_bond_due = matches!(self.state, State::Serving { .. })
            && !self.bond.is_complete(&self.files.witness);
        state.into_iter().chain(successor).chain(is_bond_due.then(|| soon(AGAIN))).min()
    }

    /// Brings card and watcher together, as far as both are there: to be called whenever one of
    /// them may have come.
    pub(super) fn join(&mut self, watch: &WatchUnit) {
        if !Arc::ptr_eq(&self.files.witness, watch.witness()) {
            self.files.witness = Arc::clone(watch.witness());
            self.setup.witness_files = self.files.witness.len();
        }
        if let Some(successor) = &mut self.successor {
            successor.bond.tell_watcher(watch);
        }
        let is_told = match &self.state {
            State::Serving { card, .. } => self.bond.tell_card(card, &self.files.witness),
            State::Starting { .. } | State::Waiting { .. } => false,
        };
        self.bond.tell_watcher(watch);
        if is_told && self.setup.l0 {
            tracing::warn!(
                "hits are not answered in the kernel, because this card was there before the watcher: `nicache upgrade` starts one for which they are"
            );
        }
    }

    /// Has a card of `program` take the place of the one at work, whose connections stay with it
    /// until they end. Who asked hears when the other one serves, or why it does not; then nothing
    /// has changed.
    pub(super) fn upgrade(&mut self, program: &Path, reply: mpsc::Sender<Result<u32>>) {
        let bypass = self.link.bypass();
        let spawn = || -> Result<(Child, Bond, Window)> {
            if self.successor.is_some() || !matches!(self.state, State::Serving { .. }) {
                bail!("a card is being started already: try again");
            }
            let ledger = Window::create(
                "nicache-ledger",
                ledger_bytes(self.setup.queues, self.setup.clients.connections),
            )?;
            let setup = CardSetup { pcap: None, bypass, ..self.setup.clone() };
            let (card, bond) = spawn(program, &setup, &self.files, &ledger)?;
            Ok((card, bond, ledger))
        };
        match spawn() {
            Ok((card, bond, ledger)) => {
                let patience = Patience::with(card.pid(), START);
                self.successor = Some(Successor { card, bond, patience, ledger, bypass, reply });
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Looks after the card; does not wait for anything.
    pub(super) fn handle(&mut self, now: Instant) -> Result<()> {
        self.older_cards.retain_mut(|older| matches!(older.card.try_wait(), Ok(None)));
        self.handle_successor();
        match &mut self.state {
            State::Serving { card, since, .. } => {
                let Some(status) = card.try_wait()? else { return Ok(()) };
                if now.duration_since(*since) > STEADY {
                    self.failures = 0;
                }
                self.fail(&format!("the card {}", describe(status)), now)
            }
            State::Starting { card, patience, .. } => {
                if !wait_readable(card.channel.as_fd(), Duration::ZERO)? {
                    return match patience.is_over() {
                        true => self.fail("a new card stood still at its start", now),
                        false => Ok(()),
                    };
                }
                match receive_message(&card.channel) {
                    Ok(Some((FromCard::Ready, _))) => self.serve(),
                    Ok(_) | Err(_) => self.fail("a new card ended at its start", now),
                }
            }
            State::Waiting { until, passing } if now >= *until => {
                let passing = passing.take();
                self.setup.bypass = self.link.bypass();
                match spawn(&self.program, &self.setup, &self.files, &self.ledger) {
                    Ok((card, bond)) => {
                        let patience = Patience::with(card.pid(), START);
                        (self.bond, self.state) =
                            (bond, State::Starting { card, patience, passing });
                        Ok(())
                    }
                    Err(error) => self.fail(&format!("{error:#}"), now),
                }
            }
            State::Waiting { .. } => Ok(()),
        }
    }

    /// Looks whether a successor is ready, or has failed.
    fn handle_successor(&mut self) {
        let Some(successor) = &mut self.successor else { return };
        let said = match wait_readable(successor.card.channel.as_fd(), Duration::ZERO) {
            Ok(true) => Some(receive_message(&successor.card.channel)),
            _ if successor.patience.is_over() => None,
            _ => return,
        };
        let Some(Successor { card, bond, ledger, bypass, reply, .. }) = self.successor.take()
        else {
            return;
        };
        let program = card.program.clone();
        let result = match said {
            Some(Ok(Some((FromCard::Ready, _)))) => self.succeed(card, bond, ledger, bypass),
            Some(_) => {
                Err(anyhow!("the new card ended at its start; its own message is in the log"))
            }
            None => Err(anyhow!("the new card stood still at its start")),
        };
        match &result {
            Ok(pid) => {
                tracing::info!(pid, program = %program.display(), "another card has taken over");
                self.program = program;
            }
            Err(error) => tracing::error!("the card was not replaced: {error:#}"),
        }
        // Whoever asked may be gone.
        let _ = reply.send(result);
    }

    /// The successor takes the frames; the card at work keeps its connections.
    fn succeed(&mut self, card: Child, bond: Bond, ledger: Window, bypass: bool) -> Result<u32> {
        if !matches!(self.state, State::Serving { .. }) {
            bail!("the card at work ended meanwhile");
        }
        let pid = card.pid();
        let State::Serving { card: older, .. } = &self.state else { bail!("no card is at work") };
        let begin = |card: &Child| begin_after(card, older, self.setup.queues);
        let state = serving(card, &self.link, bypass, begin)?;
        let ledger = std::mem::replace(&mut self.ledger, ledger);
        self.bond = bond;
        if let State::Serving { card, .. } = std::mem::replace(&mut self.state, state) {
            self.older_cards.push(OlderCard { card, ledger });
        }
        Ok(pid)
    }

    /// Has the card flush its files and end; nobody takes its place.
    pub(super) fn stop(&mut self) {
        if let State::Serving { card, watchdog, .. } = std::mem::replace(
            &mut self.state,
            State::Waiting { until: Instant::now() + PAUSE_MAX, passing: None },
        ) {
            drop(watchdog);
            let mut card = card;
            self.link.tell(&ToCard::Stop);
            let _ = card.wait(FLUSH);
        }
        self.link.disconnect();
    }

    /// The new card has all that it needs: nobody else passes frames from now on.
    fn serve(&mut self) -> Result<()> {
        let waiting = State::Waiting { until: Instant::now(), passing: None };
        let State::Starting { card, passing, .. } = std::mem::replace(&mut self.state, waiting)
        else {
            return Ok(());
        };
        self.files.ports.begin_term()?;
        drop(passing);
        let begin = |card: &Child| match self.older_cards.last() {
            Some(older) => begin_after(card, &older.card, self.setup.queues),
            None => send_message(&card.channel, &ToCard::Begin, &[]),
        };
        self.state = serving(card, &self.link, self.setup.bypass, begin)?;
        tracing::warn!("another card serves, with an empty memory");
        Ok(())
    }

    /// Has frames pass, but not those of connections that only the card at work could go on with,
    /// or an older one, which hears of no frames without it, or one that was `lost` before.
    fn pass(&mut self, mut lost: HashSet<FlowKey>) -> Result<Passing> {
        let (shards, connections) = (self.setup.queues, self.setup.clients.connections);
        let ledgers =
            [&self.ledger].into_iter().chain(self.older_cards.iter().map(|older| &older.ledger));
        lost.extend(
            ledgers
                .flat_map(|ledger| orphans(ledger, shards, connections))
                .map(|orphan| orphan.key()),
        );
        self.lost.clone_from(&lost);
        self.files.ports.pass(lost)
    }

    fn fail(&mut self, what: &str, now: Instant) -> Result<()> {
        let pause = match self.failures {
            0 => Duration::ZERO,
            failures => Duration::from_secs(1 << failures.min(6)).min(PAUSE_MAX),
        };
        self.failures += 1;
        self.link.disconnect();
        // A capture file has one writer, and has ended with it.
        self.setup.pcap = None;
        let old = std::mem::replace(
            &mut self.state,
            State::Waiting { until: now + pause, passing: None },
        );
        let passing = match old {
            State::Starting { passing: Some(passing), .. }
            | State::Waiting { passing: Some(passing), .. } => passing,
            State::Serving { since, .. } if now.duration_since(since) > STEADY => {
                self.pass(HashSet::new())?
            }
            // This card may not have come to reset what the one before it had left behind.
            _ => {
                let before = std::mem::take(&mut self.lost);
                self.pass(before)?
            }
        };
        tracing::error!(
            "{what}; requests pass to the server, and a card is started again in {} s",
            pause.as_secs()
        );
        self.state = State::Waiting { until: now + pause, passing: Some(passing) };
        Ok(())
    }
}

/// Has cards of `program` take the place of all; who asked hears of the last one, or of what has
/// failed.
pub(super) fn upgrade_all(
    cards: &mut [CardUnit],
    program: &Path,
    reply: mpsc::Sender<Result<u32>>,
) -> Result<()> {
    let (sender, results) = mpsc::channel();
    cards.iter_mut().for_each(|card| card.upgrade(program, sender.clone()));
    drop(sender);
    let collect = move || {
        let all: Result<Vec<u32>> = results.into_iter().collect();
        let _ = reply.send(all.and_then(|pids| pids.first().copied().context("there is no card")));
    };
    std::thread::Builder::new().name("upgrade".into()).spawn(collect)?;
    Ok(())
}

/// The card may take frames, and an older one goes on with its connections.
fn begin_after(card: &Child, older: &Child, queues: u16) -> Result<()> {
    let pairs = (0..2 * queues).map(|_| PairSocket::pair()).collect::<Result<Vec<_>, _>>()?;
    let (to_older, from_younger): (Vec<_>, Vec<_>) =
        pairs.iter().map(|(one, other)| (one.as_fd(), other.as_fd())).unzip();
    // One first stops reading, then the other begins, so no frame is taken by the wrong one.
    send_message(&older.channel, &ToCard::Yield, &from_younger)?;
    send_message(&card.channel, &ToCard::BeginAfter, &to_older)
}

/// The card serves once it may `begin`. `bypass`: whether it was told at its start that every
/// request goes to the server.
fn serving(
    card: Child,
    link: &Arc<CardLink>,
    bypass: bool,
    begin: impl FnOnce(&Child) -> Result<()>,
) -> Result<State> {
    // What may fail comes before the older one yields.
    let (channel, process) = (card.channel.try_clone()?, card.as_fd().try_clone_to_owned()?);
    link.connect(channel, card.pid(), || {
        begin(&card)?;
        let on = link.bypass();
        if on == bypass {
            return Ok(());
        }
        // It has become another while this card started. Nobody waits for the answer.
        send_message(&card.channel, &ToCard::Ask { id: 0, question: Question::Bypass { on } }, &[])
    })?;
    let watchdog = Watchdog::start(Arc::clone(link), process)?;
    Ok(State::Serving { card, since: Instant::now(), watchdog })
}

impl Bond {
    /// Both have all they need of each other, and `witness` is that of the last watcher.
    fn is_complete(&self, witness: &Arc<Vec<OwnedFd>>) -> bool {
        Arc::ptr_eq(&self.witness, witness) && self.socket.is_none()
    }

    /// Gives the watcher its end, if it is there and can take it.
    fn tell_watcher(&mut self, watch: &WatchUnit) {
        // Another one would write changes where this card does not look.
        if Arc::ptr_eq(&self.witness, watch.witness())
            && self.socket.as_ref().is_some_and(|socket| watch.serve_card(socket.as_fd()))
        {
            self.socket = None;
        }
    }

    /// Gives a card at work what it lacks of the last watcher, if it can take it. True: just now.
    fn tell_card(&mut self, card: &Child, witness: &Arc<Vec<OwnedFd>>) -> bool {
        if Arc::ptr_eq(&self.witness, witness) {
            return false;
        }
        let Ok((bond, card_side)) = Self::with(witness) else { return false };
        let files: Vec<BorrowedFd<'_>> =
            card_side.iter().chain(witness.iter()).map(AsFd::as_fd).collect();
        let is_told = send_message(&card.channel, &ToCard::Watched, &files).is_ok();
        if is_told {
            *self = bond;
        }
        is_told
    }

    /// A bond with the watcher whose witness this is, if there is one, and the card's end of their
    /// socket.
    fn with(witness: &Arc<Vec<OwnedFd>>) -> Result<(Self, Option<OwnedFd>)> {
        let witness = Arc::clone(witness);
        if witness.is_empty() {
            return Ok((Self { witness, socket: None }, None));
        }
        let (card, watcher) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { witness, socket: Some(watcher) }, Some(card)))
    }
}

/// Starts a card's process and gives it what it needs.
fn spawn(
    program: &Path,
    setup: &CardSetup,
    files: &CardFiles,
    ledger: &Window,
) -> Result<(Child, Bond)> {
    let (bond, card_side) = Bond::with(&files.witness)?;
    let card = Child::start_program(program, Role::Card)?;
    let own = files.ports.files(&setup.ports)?.into_iter().chain([ledger.file()]);
    let attached: Vec<BorrowedFd<'_>> =
        own.chain(card_side.iter().chain(files.witness.iter()).map(AsFd::as_fd)).collect();
    send_message(&card.channel, setup, &attached)?;
    Ok((card, bond))
}
