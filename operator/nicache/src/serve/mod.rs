//! `nicache serve`: a folder from memory of the card, which the host's own TCP manages.
//!
//! ```text
//! mod.rs        the supervisor: interfaces, witness, host memory; starts card and host, and starts them again
//! firmware.rs   the card process (offload/firmware)
//! ports.rs      its ports
//! counted.rs    what it tells of its counters, if it is asked to
//! host.rs       the host process (offload/host)
//! messages.rs   what they tell each other
//! channel.rs    a child's end of the socket
//! turns.rs      the loop of a process that works with a card: turns, naps, sleep
//! attachments.rs  which attachment is at work
//! restarts.rs   when children have ended too often to be started again
//! report.rs     what `nicache status` shows
//! sampler.rs    what viewers show
//! control.rs    what it answers commands
//! ```
//!
//! Card and host share what the supervisor has made for them and nothing else: host memory, and an
//! attachment for each card. Whoever ends is started again with a new attachment, which the other
//! side is given, too. A host that ends takes its connections with it; a card that ends does not.

pub(crate) mod attachments;
pub(crate) mod channel;
mod control;
mod counted;
pub(crate) mod firmware;
pub(crate) mod host;
pub(crate) mod messages;
mod ports;
pub(crate) mod report;
pub(crate) mod restarts;
mod sampler;
mod shared;
pub(crate) mod turns;

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_admin::AdminServer;
use nicache_bus::{Attachment, Meter, Window};
use nicache_host::BLOCK_BYTES;
use nicache_host::server::Layout;
use nicache_port::TapQueue;
use nicache_watch::{KernelWatcher, Outcome, Overseer, Resolver, why_unwatched};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::control::{ControlSocket, misfit};
use crate::logs;
use crate::options::{LiveOption, RouteKind, ServeOptions};
use crate::publish::{self, Published};
use crate::setup::{receive_message, send_message};
use crate::supervisor::children::{Child, Role, describe, first_word, wait_readable};
use crate::supervisor::instance::Instance;
use crate::supervisor::netlink::Netlink;
use crate::supervisor::requirements::check_privilege;
use crate::supervisor::signals::Signals;
use crate::supervisor::{notify, tap};
use attachments::Attachments;
use messages::{
    CardAddress, FirmwareSetup, FromFirmware, FromHost, HostReport, HostSetup, LivePath, PortSetup,
    ToFirmware, ToHost, WatchedFileSystems,
};
use report::ServeStatus;
use restarts::Restarts;
use sampler::Sampler;
use shared::Shared;

/// How long a child may take to start.
const START: Duration = Duration::from_secs(60);
/// Frames that may wait for a card: what comes while card and host are not given a processor. A SYN
/// that is dropped costs a second.
const QUEUE_FRAMES: u32 = 4096;
/// How long the host may take to tell all clients of the end.
const ENDING: Duration = Duration::from_secs(1);
/// Between two looks after the witness.
const OVERSIGHT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// Serves until Ctrl-C or SIGTERM; the status for the shell.
pub(crate) fn run(options: &ServeOptions) -> Result<ExitCode> {
    logs::start(options.log_format);
    check_privilege("serve")?;
    let root = std::path::absolute(&options.root)?;
    match std::fs::metadata(&root) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => bail!(
            "{} is not a folder: name the folder whose files are to be served",
            root.display()
        ),
        Err(error) => bail!("{}: {error}", root.display()),
    }
    let signals = Signals::catch()?;
    let mut serving = Serving::start(options, root.as_os_str().as_bytes().to_vec())?;
    serving.announce();
    let ended = serving.supervise(&signals);
    serving.tell_clients_of_end();
    drop(serving);
    if options.json {
        logs::print(&serde_json::json!({ "event": "ended", "failed": ended.is_err() }).to_string());
    }
    ended.map(|()| ExitCode::SUCCESS)
}

/// A card and what it needs to be started again.
struct Card {
    instance: Instance,
    address: CardAddress,
    tap: TapQueue,
    child: Child,
    attachments: Attachments,
    is_attached: bool,
}

/// Everything that lives while files are served. Fields are dropped in this order.
struct Serving<'a> {
    options: &'a ServeOptions,
    admin: Option<AdminServer>,
    control: ControlSocket,
    host: Child,
    cards: Vec<Card>,
    _published: Published,
    host_setup: HostSetup,
    window: Window,
    meter: Option<Meter>,
    fifos: Vec<OwnedFd>,
    /// Control page, revision words, links.
    witness: Vec<OwnedFd>,
    /// Who looks after the witness, if there is one.
    overseer: Option<Overseer>,
    restarts: Restarts,
    started: Instant,
    shared: Arc<Shared>,
}

impl<'a> Serving<'a> {
    fn start(options: &'a ServeOptions, root: Vec<u8>) -> Result<Self> {
        let cache_bytes = u32::try_from(options.memory.0)
            .context("--memory: a card has less than 4G for blocks")?;
        let pages = u32::try_from(options.page_cache.0 / BLOCK_BYTES)
            .context("--page-cache is too large")?;
        if pages < 256 {
            bail!("--page-cache: at least 1M is needed");
        }
        let admin = options.admin.bind()?;
        let (live, fifos) = open_live(&options.live, &root)?;
        let meter = options.bus.map(Meter::create).transpose()?;
        let (witness, overseer, watched, unwatched) = match watch() {
            Ok((files, overseer, watched)) => {
                let reason = why_unkept(&root, watched);
                if let Some(reason) = &reason {
                    tracing::warn!("no file is kept, each is read for each reply: {reason}");
                }
                (files, Some(overseer), watched, reason)
            }
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::warn!("no file is kept, each is read for each reply: {reason}");
                (Vec::new(), None, WatchedFileSystems::default(), Some(reason))
            }
        };
        let mut taps = Vec::new();
        for number in 0..options.cards {
            taps.push(open_card(options, number)?);
        }
        let cards: Vec<CardAddress> = taps.iter().map(|(_, address, _)| address.clone()).collect();
        let host_setup = HostSetup {
            log_format: options.log_format,
            root,
            index: options.index.clone(),
            lists: options.list,
            ports: options.port.clone(),
            connections: options.connections,
            pages,
            cards,
            cache_bytes,
            policy: options.policy,
            coherence: options.coherence,
            route: options.route,
            segmentation: options.segmentation,
            live,
            watched,
            witness_files: witness.len(),
        };
        let window = host_memory(&host_setup)?;
        let first = &taps[0].0;
        let shared = Arc::new(Shared::default());
        let control = ControlSocket::bind(&first.socket_path())?;
        let published = publish::start(
            &options.publish,
            &options.port,
            false,
            &[(first.interface.as_str(), first.subnet)],
        )?;
        let host = start_host(&host_setup, &window, &fifos, &witness)?;
        let mut serving = Serving {
            options,
            admin,
            control,
            host,
            cards: Vec::new(),
            _published: published,
            host_setup,
            window,
            meter,
            fifos,
            witness,
            overseer,
            restarts: Restarts::default(),
            started: Instant::now(),
            shared,
        };
        for (number, (instance, address, tap)) in taps.into_iter().enumerate() {
            let (attachment, mut attachments) = (Attachment::create()?, Attachments::default());
            let attached = (attachments.begin(), &attachment);
            let child = serving.start_card(number, &tap, attached)?;
            serving.tell_host(number, attached)?;
            serving.cards.push(Card {
                instance,
                address,
                tap,
                child,
                attachments,
                is_attached: true,
            });
        }
        serving.begin_status(unwatched)?;
        Ok(serving)
    }

    fn urls(&self) -> Vec<String> {
        let port = self.options.port[0];
        let url = |card: &Card| match port {
            80 => format!("http://{}/", card.address.address),
            port => format!("http://{}:{port}/", card.address.address),
        };
        self.cards.iter().map(url).collect()
    }

    fn begin_status(&mut self, unwatched: Option<String>) -> Result<()> {
        let first = &self.cards[0].instance;
        let fixed = ServeStatus {
            name: first.name.clone(),
            pid: std::process::id(),
            uptime_s: 0,
            root: String::from_utf8_lossy(&self.host_setup.root).into_owned(),
            urls: self.urls(),
            host_pid: self.host.pid(),
            card_pids: self.cards.iter().map(|card| card.child.pid()).collect(),
            interfaces: self.cards.iter().map(|card| card.instance.interface.clone()).collect(),
            published: self.options.publish.iter().map(ToString::to_string).collect(),
            cache_bytes: u64::from(self.host_setup.cache_bytes),
            not_keeping: unwatched,
            restarts: 0,
            bus_busy_ns: None,
            bus_overhead_bytes: None,
            admin: self.admin.as_ref().map(AdminServer::address),
            report: HostReport::default(),
        };
        self.shared.set(fixed);
        let sampler = Arc::new(Sampler::new(Arc::clone(&self.shared), self.started));
        if let Some(admin) = &mut self.admin {
            admin.serve(Arc::clone(&sampler) as Arc<dyn nicache_admin::Source>)?;
        }
        let (shared, started) = (Arc::clone(&self.shared), self.started);
        self.control.answer(move |request| control::respond(&request, &shared, started, &sampler))
    }

    fn announce(&self) {
        notify::tell("READY=1");
        let urls = self.urls();
        if self.options.json {
            let status =
                serde_json::json!({ "event": "ready", "status": self.shared.get(self.started) });
            logs::print(&status.to_string());
            return;
        }
        for (card, url) in self.cards.iter().zip(&urls) {
            logs::print(&format!("{url} is served through the card {}", card.instance.interface));
        }
        for publish in &self.options.publish {
            logs::print(&format!("published at {}", publish.address));
        }
        if let Some(admin) = &self.admin {
            logs::print(&format!("its figures are at http://{}/", admin.address()));
        }
    }

    fn start_card(
        &self,
        number: usize,
        tap: &TapQueue,
        (attachment_number, attachment): (u64, &Attachment),
    ) -> Result<Child> {
        let mut child = Child::start(Role::Firmware)?;
        let setup = FirmwareSetup {
            log_format: self.options.log_format,
            card: number as u16,
            cache_bytes: self.host_setup.cache_bytes,
            // Frames from the wire are no longer than the host's buffers.
            ports: vec![PortSetup::Tap { super_frames: false }],
            bus: self.options.bus.map(|model| model.to_string()),
            tells: false,
            attachment: Some(attachment_number),
        };
        let clock = self.meter.as_ref().map(Meter::file);
        let attached = [self.window.file()].into_iter().chain(attachment.files());
        let files: Vec<BorrowedFd<'_>> =
            [tap.as_fd()].into_iter().chain(clock).chain(attached).collect();
        send_message(&child.channel, &setup, &files)?;
        match first_word(&mut child, START)?.0 {
            FromFirmware::Ready => Ok(child),
            FromFirmware::Broken { .. } => {
                bail!("the card began with an attachment that is broken")
            }
            FromFirmware::Unfit { reason, .. } => bail!("the card cannot use its port: {reason}"),
            FromFirmware::Counted(_) => bail!("the card counted before it was ready"),
        }
    }

    fn tell_host(
        &self,
        number: usize,
        (attachment_number, attachment): (u64, &Attachment),
    ) -> Result<()> {
        let message = ToHost::Attach { card: number as u16, attachment: attachment_number };
        send_message(&self.host.channel, &message, &attachment.files())
    }

    /// Waits for the end, and starts again what ends before it.
    fn supervise(&mut self, signals: &Signals) -> Result<()> {
        loop {
            self.wait(signals)?;
            while let Some(number) = signals.take() {
                if matches!(number, SIGINT | SIGTERM) {
                    return Ok(());
                }
            }
            if let Some(status) = self.host.try_wait()? {
                tracing::error!("the host process {}: it is started again", describe(status));
                self.count_restart()?;
                self.restart_host()?;
                continue;
            }
            for number in 0..self.cards.len() {
                if let Some(status) = self.cards[number].child.try_wait()? {
                    tracing::error!(
                        card = number,
                        "the card process {}: it is started again",
                        describe(status)
                    );
                    self.count_restart()?;
                    self.restart_card(number)?;
                } else if self.has_message(self.cards[number].child.channel.as_fd())? {
                    match receive_message::<FromFirmware>(&self.cards[number].child.channel)? {
                        Some((FromFirmware::Broken { attachment }, _)) => {
                            self.handle_broken(number, attachment)?;
                        }
                        Some((
                            FromFirmware::Ready
                            | FromFirmware::Unfit { .. }
                            | FromFirmware::Counted(_),
                            _,
                        ))
                        | None => {}
                    }
                }
            }
            if self.has_message(self.host.channel.as_fd())? {
                match receive_message::<FromHost>(&self.host.channel)? {
                    Some((FromHost::Broken { card, attachment }, _)) => {
                        self.handle_broken(usize::from(card), attachment)?;
                    }
                    Some((FromHost::Report(report), _)) => self.take_report(*report),
                    Some((FromHost::Ready | FromHost::Ended, _)) | None => {}
                }
            }
            self.oversee();
            if self.shared.is_wanted() {
                // A host that is just ending is not asked.
                let _ = send_message(&self.host.channel, &ToHost::Report, &[]);
            }
        }
    }

    /// No client waits for who is gone: their connections end as if the host's kernel had had them.
    fn tell_clients_of_end(&self) {
        if send_message(&self.host.channel, &ToHost::End, &[]).is_err() {
            return;
        }
        let deadline = Instant::now() + ENDING;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match wait_readable(self.host.channel.as_fd(), left) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
            match receive_message::<FromHost>(&self.host.channel) {
                // One that was sent before.
                Ok(Some((FromHost::Ready | FromHost::Broken { .. } | FromHost::Report(_), _))) => {}
                Ok(Some((FromHost::Ended, _)) | None) | Err(_) => return,
            }
        }
    }

    /// The table says by itself that everything has changed, once the witness is blind.
    fn oversee(&mut self) {
        let Some(overseer) = &mut self.overseer else { return };
        let blindness =
            overseer.handle_time(nicache_clock::monotonic_ns()).or_else(|| overseer.handle_gaps());
        if let Some(blindness) = blindness {
            tracing::warn!(
                "{blindness}. From now on no file is kept, each is read for each reply: start nicache again"
            );
            let mut status = self.shared.get(self.started);
            status.not_keeping = Some(blindness.to_string());
            self.shared.set(status);
        }
    }

    fn take_report(&self, report: HostReport) {
        let mut status = self.shared.get(self.started);
        status.report = report;
        status.host_pid = self.host.pid();
        status.card_pids = self.cards.iter().map(|card| card.child.pid()).collect();
        status.bus_busy_ns = self.meter.as_ref().map(Meter::busy_ns);
        status.bus_overhead_bytes = self.meter.as_ref().map(Meter::overhead_bytes);
        self.shared.answer(status);
    }

    fn has_message(&self, socket: BorrowedFd<'_>) -> Result<bool> {
        let mut files = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut files, Some(&now)).is_ok_and(|count| count > 0))
    }

    fn wait(&self, signals: &Signals) -> Result<()> {
        let children = self.cards.iter().map(|card| &card.child).chain([&self.host]);
        let files = children.flat_map(|child| [child.as_fd(), child.channel.as_fd()]);
        let files = files.chain(signals.files()).chain([self.shared.as_fd()]);
        let mut files: Vec<PollFd<'_>> =
            files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let pause = self.overseer.as_ref().map(|_| OVERSIGHT);
        match poll(&mut files, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn count_restart(&mut self) -> Result<()> {
        self.shared.count_restart();
        self.restarts.count(Instant::now(), "card and host")
    }

    /// Nothing of the old host is believed: it has new memory, and each card a new attachment.
    fn restart_host(&mut self) -> Result<()> {
        self.window = host_memory(&self.host_setup)?;
        self.host = start_host(&self.host_setup, &self.window, &self.fifos, &self.witness)?;
        for number in 0..self.cards.len() {
            if self.cards[number].child.try_wait()?.is_none() {
                self.attach(number)?;
            }
        }
        Ok(())
    }

    fn restart_card(&mut self, number: usize) -> Result<()> {
        // The host is told first: what it still sends would go nowhere.
        let _ = send_message(&self.host.channel, &ToHost::Detach { card: number as u16 }, &[]);
        self.cards[number].is_attached = false;
        let attachment = Attachment::create()?;
        let attached = (self.cards[number].attachments.begin(), &attachment);
        let child = self.start_card(number, &self.cards[number].tap, attached)?;
        self.cards[number].child = child;
        self.tell_host(number, attached)?;
        self.cards[number].is_attached = true;
        Ok(())
    }

    /// One that was replaced meanwhile is of no interest.
    fn handle_broken(&mut self, number: usize, attachment: Option<u64>) -> Result<()> {
        if !self.cards[number].attachments.is_at_work(attachment) {
            return Ok(());
        }
        tracing::warn!(card = number, "a new attachment");
        self.count_restart()?;
        self.attach(number)
    }

    /// A new attachment between a card and the host that there are.
    fn attach(&mut self, number: usize) -> Result<()> {
        let attachment = Attachment::create()?;
        let attached = (self.cards[number].attachments.begin(), &attachment);
        let files: Vec<BorrowedFd<'_>> =
            [self.window.file()].into_iter().chain(attachment.files()).collect();
        let message = ToFirmware::Attach { attachment: Some(attached.0) };
        // One that ends meanwhile is started again with another one.
        let told = send_message(&self.cards[number].child.channel, &message, &files)
            .and_then(|()| self.tell_host(number, attached));
        self.cards[number].is_attached = told.is_ok();
        Ok(())
    }
}

/// Loads the kernel's witness: control page, revision words, links; who looks after it; and which
/// file systems it sees.
fn watch() -> Result<(Vec<OwnedFd>, Overseer, WatchedFileSystems)> {
    let watcher = KernelWatcher::load(0)?;
    let files =
        [watcher.control_fd(), watcher.revisions_fd()].into_iter().chain(watcher.link_fds());
    let files = files.map(|file| file.try_clone_to_owned()).collect::<Result<Vec<_>, _>>()?;
    Ok((files, watcher.overseer()?, WatchedFileSystems::of(watcher.coverage())))
}

/// Why no file of the folder may be kept, if that is so.
fn why_unkept(root: &[u8], watched: WatchedFileSystems) -> Option<String> {
    let walk = Resolver::new(watched.coverage()).resolve_below(root, b"").ok()?;
    let Outcome::Found(node) = &walk.outcome else { return None };
    let path = String::from_utf8_lossy(root);
    if let Some(reason) = why_unwatched(node) {
        return Some(format!("{path}: {reason}"));
    }
    let is_on_overlay = !node.layers().is_empty();
    is_on_overlay
        .then(|| format!("{path}: it is on an overlayfs, whose files `nicache run` keeps and `nicache serve` does not"))
}

/// A card's interface with its network.
fn open_card(options: &ServeOptions, number: u16) -> Result<(Instance, CardAddress, TapQueue)> {
    let (name, subnet) =
        if number == 0 { (options.name.as_deref(), options.subnet) } else { (None, None) };
    let (instance, setting_up) = Instance::reserve(name, subnet)?;
    let tap = tap::open_wire(&instance.interface, 1, instance.subnet)?
        .pop()
        .context("a TAP without a queue")?;
    drop(setting_up);
    let name = &instance.interface;
    let mut netlink = Netlink::open()?;
    let index = netlink.index(name)?.with_context(|| format!("the interface {name} is gone"))?;
    let peer_mac = mac(instance.subnet.gateway());
    netlink
        .set_mac(index, peer_mac)
        .with_context(|| format!("cannot give {name} a MAC address"))?;
    netlink
        .set_queue(index, QUEUE_FRAMES)
        .with_context(|| format!("cannot set the queue of {name}"))?;
    let address = instance.subnet.server();
    let address = CardAddress { mac: mac(address), address, peer_mac };
    if options.route == RouteKind::Affinity {
        // Packets of one card's address come in by another card's interface. A container may not
        // let a network have its way.
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        if let Err(error) = std::fs::write(&path, "2") {
            tracing::warn!(
                "{path}: {error}; if it is 1, clients are not reached by another card than they came by"
            );
        }
    }
    Ok((instance, address, tap))
}

/// A MAC address of local administration (IEEE 802, bit 1 of the first byte), which follows from
/// the address.
fn mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x6e, a, b, c, d]
}

fn host_memory(setup: &HostSetup) -> Result<Window> {
    let layout = Layout::new(&host::service_config(setup, [0; 16]));
    let bytes = usize::try_from(layout.bytes()).context("--page-cache is too large")?;
    Window::create("nicache-host", bytes)
        .context("cannot make host memory: try a smaller --page-cache")
}

/// FIFOs are opened for writing, too, so they stay open between two writers.
fn open_live(options: &[LiveOption], root: &[u8]) -> Result<(Vec<LivePath>, Vec<OwnedFd>)> {
    let (mut paths, mut fifos) = (Vec::new(), Vec::new());
    for LiveOption { path, file } in options {
        let shown = file.display();
        let is_playlist = file.extension().is_some_and(|extension| extension == "m3u8");
        let file = std::path::absolute(file)?;
        if is_playlist {
            let below = file
                .as_os_str()
                .as_bytes()
                .strip_prefix(root)
                .filter(|rest| rest.starts_with(b"/"));
            let below = below.with_context(|| {
                format!("--live {shown}: a playlist lies in the folder that is served")
            })?;
            let path = path.clone().unwrap_or_else(|| String::from_utf8_lossy(below).into_owned());
            paths.push(LivePath { path, is_fifo: false });
            continue;
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fifo = rustix::fs::open(&file, flags, Mode::empty())
            .with_context(|| format!("--live {shown}"))?;
        if FileType::from_raw_mode(rustix::fs::fstat(&fifo)?.st_mode) != FileType::Fifo {
            bail!(
                "--live {shown}: neither a FIFO (make one with `mkfifo {shown}`) nor a playlist (FILE.m3u8)"
            );
        }
        let name =
            file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        paths.push(LivePath {
            path: path.clone().unwrap_or_else(|| format!("/{name}")),
            is_fifo: true,
        });
        fifos.push(fifo);
    }
    Ok((paths, fifos))
}

fn start_host(
    setup: &HostSetup,
    window: &Window,
    fifos: &[OwnedFd],
    witness: &[OwnedFd],
) -> Result<Child> {
    let mut host = Child::start(Role::Host)?;
    let others = fifos.iter().chain(witness).map(AsFd::as_fd);
    let files: Vec<BorrowedFd<'_>> = [window.file()].into_iter().chain(others).collect();
    send_message(&host.channel, setup, &files)?;
    match first_word(&mut host, START)?.0 {
        FromHost::Ready => Ok(host),
        _ => Err(misfit("the host")),
    }
}
