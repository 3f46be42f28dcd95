//! `nicache host`, the host process.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_bus::{Attachment, BusClass, Presence, Window};
use nicache_coherence::RevisionTable;
use nicache_counters::Counter;
use nicache_host::files::Site;
use nicache_host::server::{Broken, CardLink, LiveSource, Route, Service, ServiceConfig};
use nicache_host::{BLOCK_BYTES, Coherence, Directory};
use nicache_port::{NAP, wait};
use nicache_secret::random_bytes;
use nicache_tcp::Time;

use super::channel::Inbox;
use super::messages::{
    CardAddress, CardReport, FromHost, HostReport, HostSetup, LivePath, Present, ToHost,
};
use super::turns::{Turns, take_turns};
use crate::engine::monotonic;
use crate::logs;
use crate::options::{CoherenceKind, RouteKind, SegmentationKind};
use crate::policy::new_policy;
use crate::setup::{CARD_NICENESS, child_start, go_first, send_message};

/// Cards have so long to tell all clients of the end.
const ENDING: Duration = Duration::from_millis(500);

/// Settings of the service; the supervisor lays out host memory by them, too.
pub(crate) fn service_config(setup: &HostSetup, secret: [u8; 16]) -> ServiceConfig {
    ServiceConfig {
        ports: setup.ports.clone(),
        connections: setup.connections as usize,
        secret,
        pages: setup.pages,
        places: (setup.connections * 2).clamp(1024, 65_536),
        cards: setup.cards.len() as u32,
        coherence: match setup.coherence {
            CoherenceKind::Lazy => Coherence::Lazy,
            CoherenceKind::Eager => Coherence::Eager,
            CoherenceKind::Update => Coherence::Update,
        },
        route: match setup.route {
            RouteKind::Fixed => Route::Fixed,
            RouteKind::Affinity => Route::Affinity,
        },
        card_cuts: setup.segmentation == SegmentationKind::Card,
    }
}

/// Serves until the supervisor is gone.
pub(crate) fn execute() -> Result<ExitCode> {
    let (setup, files, socket) = child_start::<HostSetup>(c"nicache-host")?;
    logs::start(setup.log_format);
    go_first(CARD_NICENESS);
    let mut files = files.into_iter();
    let window = files.next().context("no host memory came with the setup")?;
    let window = Arc::new(Window::map(window).context("host memory")?);
    let mut live = Vec::new();
    for LivePath { path, is_fifo } in &setup.live {
        let fifo = if *is_fifo {
            Some(files.next().context("no FIFO came with the setup")?)
        } else {
            None
        };
        live.push(LiveSource { path: path.clone().into_bytes(), fifo });
    }
    let witness: Vec<OwnedFd> = files.collect();
    let watched = match witness.as_slice() {
        [control, revisions, ..] => {
            let table = RevisionTable::map(control.as_fd(), revisions.as_fd())?;
            Some((Arc::new(table), setup.watched.coverage()))
        }
        _ => None,
    };
    let site = Site::new(setup.root.clone(), setup.index.clone(), setup.lists, watched);
    let port = |card: &CardAddress| CardLink {
        mac: card.mac,
        address: card.address.into(),
        peer_mac: card.peer_mac,
    };
    let ports: Vec<CardLink> = setup.cards.iter().map(port).collect();
    let config = service_config(&setup, random_bytes()?);
    let mut service = Service::new(&config, window, &ports, site, monotonic());
    live.into_iter().for_each(|source| service.add_live(source));
    let mut inbox = Inbox::new(socket);
    send_message(inbox.socket(), &FromHost::Ready, &[])?;
    let attachments = vec![None; setup.cards.len()];
    let mut host = Host { setup, service, attachments };
    take_turns(&mut host, &mut inbox)?;
    Ok(ExitCode::SUCCESS)
}

struct Host {
    setup: HostSetup,
    service: Service,
    /// The number of each card's attachment.
    attachments: Vec<Option<u64>>,
}

impl Turns for Host {
    type Message = ToHost;

    fn turn(&mut self, now: Time, supervisor: BorrowedFd<'_>) -> Result<usize> {
        let (done, broken) = self.service.turn(now, unix_ns());
        if let Some((card, error)) = broken {
            self.tell_broken(card, &error, supervisor)?;
        }
        Ok(done)
    }

    fn is_beside_card(&mut self) -> bool {
        self.service.is_beside_card()
    }

    fn sleep(&mut self, inbox: &Inbox) -> Result<()> {
        let may_sleep = match self.service.prepare_sleep() {
            Ok(may_sleep) => may_sleep,
            Err((card, error)) => {
                self.tell_broken(card, &error, inbox.socket())?;
                return Ok(());
            }
        };
        let now = monotonic();
        let timeout = self.service.next_due().map(|due| due.since(now));
        if !may_sleep || timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        let mut files: Vec<BorrowedFd<'_>> = vec![inbox.socket()];
        files.extend(self.service.live_files());
        files.extend(self.service.bells().map(|bell| bell.as_fd()));
        self.service.presences().for_each(Presence::sleep);
        wait(&files, timeout)?;
        self.service.presences().for_each(Presence::wake);
        Ok(())
    }

    fn handle(
        &mut self,
        message: ToHost,
        files: Vec<OwnedFd>,
        supervisor: BorrowedFd<'_>,
    ) -> Result<()> {
        match message {
            ToHost::Attach { card, attachment: number } => {
                let files = files.try_into().ok().context("an attachment has three files")?;
                let attachment =
                    Attachment::from_files(files).context("an attachment from the supervisor")?;
                let directory = self.directory();
                let card = usize::from(card);
                *self.attachments.get_mut(card).context("no such card")? = Some(number);
                if let Err(error) = self.service.attach(card, attachment.host(), directory) {
                    self.tell_broken(card, &error, supervisor)?;
                }
            }
            ToHost::Detach { card } => self.service.detach(usize::from(card)),
            ToHost::Report => {
                send_message(supervisor, &FromHost::Report(Box::new(self.report())), &[])?;
            }
            ToHost::End => {
                self.tell_clients_of_end()?;
                send_message(supervisor, &FromHost::Ended, &[])?;
            }
        }
        Ok(())
    }
}

impl Host {
    fn tell_broken(&self, card: usize, error: &Broken, supervisor: BorrowedFd<'_>) -> Result<()> {
        tracing::error!(card, "{error}; waiting for another attachment");
        let attachment = self.attachments[card];
        send_message(supervisor, &FromHost::Broken { card: card as u16, attachment }, &[])
    }

    /// Ends all connections, and waits until the cards have sent what says so.
    fn tell_clients_of_end(&mut self) -> Result<()> {
        let begun = monotonic();
        self.service.end_all(begun);
        loop {
            let now = monotonic();
            self.service.turn(now, unix_ns());
            if self.service.has_said_all() || now.since(begun) >= ENDING {
                return Ok(());
            }
            wait(&[], Some(NAP))?;
        }
    }

    fn directory(&self) -> Directory {
        let places = Directory::places_of(u64::from(self.setup.cache_bytes));
        let bytes = u64::from(places) * BLOCK_BYTES;
        Directory::new(
            places,
            new_policy(self.setup.policy, bytes, places, u64::from(std::process::id())),
        )
    }

    fn report(&mut self) -> HostReport {
        let service = *self.service.counters();
        let live = *self.service.live();
        let site = *self.service.site().counters();
        let stack = *self.service.connections().counters();
        let present = Present {
            connections: self.service.connections().len() as u64,
            pages: self.service.pages().len() as u64,
        };
        let all = service.each().chain(live.each()).chain(site.each()).chain(stack.each());
        let counters = named(all.chain(present.each()));
        let cards = (0..self.setup.cards.len()).map(|card| self.card_report(card)).collect();
        HostReport { counters, cards }
    }

    fn card_report(&mut self, card: usize) -> CardReport {
        let Some(driver) = self.service.driver(card) else { return CardReport::default() };
        let crossed = driver.side().counted.read();
        let sent = *driver.counters();
        let directory = *driver.directory().counters();
        let blocks = driver.directory().len() as u64;
        let mut counters = named(sent.each().chain(directory.each()));
        counters.insert("blocks".to_owned(), blocks);
        let bus = BusClass::ALL
            .into_iter()
            .map(|class| (class.label().to_owned(), crossed.of(class)))
            .collect();
        CardReport { attached: true, bus, transfers: crossed.transfers, counters }
    }
}

fn named(counters: impl Iterator<Item = (&'static Counter, u64)>) -> BTreeMap<String, u64> {
    counters.map(|(counter, value)| (counter.name.to_owned(), value)).collect()
}

fn unix_ns() -> i128 {
    nicache_clock::unix_ns().into()
}
