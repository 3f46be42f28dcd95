//! What `nicache run` does: builds everything up, waits for an end or a signal, takes everything down.
//!
//! Order of the start: reservations, namespaces, TAPs, watcher, card, publishing and sharing, programs beside the server, server. The watcher comes before the server so that
//! it sees the server's first file; the card before the server so that no frame is lost.
//!
//! A card that ends or stands still is started again, and requests pass to the server meanwhile ([`card_unit`]); without the watcher they pass until it is there ([`watch_unit`]). Whatever of supervisor and
//! server ends, the others end within a second. Children are killed by the kernel when the supervisor dies ([`children`]), the server's own children by the guard ([`guard`]), interfaces with the
//! card's open files, rules with the process that owns them.

pub(crate) mod attach;
pub(crate) mod card_link;
mod card_unit;
pub(crate) mod cards;
pub(crate) mod children;
mod control_server;
mod databases;
pub(crate) mod end;
pub(crate) mod guard;
pub(crate) mod hint;
pub(crate) mod instance;
mod listening;
pub(crate) mod namespace;
pub(crate) mod netlink;
pub(crate) mod notify;
mod orders;
mod outsiders;
mod passing;
mod place;
mod preload_files;
mod ready;
pub(crate) mod sampler;
mod standing;
pub(crate) mod tap;
mod watch_link;
mod watch_unit;
mod watchdog;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nicache_admin::AdminServer;
use rustix::thread::CapabilitySet;

use crate::access_log::AccessLog;
use crate::control::Status;
use crate::demo::Demo;
use crate::document_roots::document_roots;
use crate::inquiry::DatabaseReport;
use crate::live::Live;
use crate::options::{ReloadPhp, RunPlan, WatchKind};
use crate::publish::{self, Published};
use crate::setup::{CardSetup, PortsSetup, ServerSetup, WatchSetup, send_message};
use crate::{logs, share};
use card_link::CardLink;
use card_unit::{CardFiles, CardUnit};
use cards::Cards;
use children::{Child, Role};
use control_server::ControlServer;
use end::Signals;
use guard::Guard;
use instance::Instance;
use namespace::Namespace;
use orders::{Order, OrderDesk, Orders};
use place::Place;
use preload_files::{Part, PreloadFiles};
use ready::Readiness;
use sampler::Sampler;
use watch_link::{WatchLink, Watching};
use watch_unit::WatchUnit;

/// Runs until the end; the status for the shell.
pub(crate) fn run(plan: RunPlan) -> Result<ExitCode> {
    logs::start(plan.log_format);
    check_privilege("run")?;
    let demo = if plan.server.is_empty() { Some(Demo::unpack(plan.http_ports[0])?) } else { None };
    let argv = demo.as_ref().map_or_else(|| plan.server.clone(), Demo::command);
    check_program(&argv[0], demo.is_some())?;
    for command in &plan.with {
        if !is_in_path(&command[0]) {
            bail!("the program `{}` (--with) was not found: is it installed, and in PATH?", command[0]);
        }
    }
    let signals = Signals::catch()?;
    warn_of_roots(&plan, &argv);
    let mut running = Running::start(&plan, argv)?;
    if let Some(demo) = &demo {
        tracing::info!(folder = %demo.site().display(), "serving the demonstration site; edit its files and load them again");
    }
    let end = running.supervise(&signals);
    let code = running.stop(end?, &signals);
    drop(running);
    drop(demo);
    Ok(code)
}

/// Everything that lives while the server runs. Fields are dropped in this order.
struct Running<'a> {
    plan: &'a RunPlan,
    started: Instant,
    live: Option<Live>,
    admin: Option<AdminServer>,
    control: Option<ControlServer>,
    server: Child,
    _guard: Guard,
    published: Published,
    cards: Arc<Cards>,
    card_units: Vec<CardUnit>,
    orders: Orders,
    desk: OrderDesk,
    watch_link: Arc<WatchLink>,
    watch: WatchUnit,
    access_log: Option<Arc<AccessLog>>,
    readiness: Readiness,
    /// Where clients come from, and the server's addresses and default route.
    interface: String,
    addresses: (Ipv4Addr, Ipv6Addr),
    gateway: Ipv4Addr,
    namespace: Namespace,
    preload: Option<PreloadFiles>,
    /// Of each card; the first one's name is that of all.
    instances: Vec<Instance>,
    /// The server's command.
    argv: Vec<String>,
}

impl<'a> Running<'a> {
    fn start(plan: &'a RunPlan, argv: Vec<String>) -> Result<Self> {
        let access_log = plan.access_log.as_deref().map(AccessLog::open).transpose()?.map(Arc::new);
        if let Some(pcap) = &plan.pcap {
            std::fs::File::create(pcap)
                .with_context(|| format!("cannot create the capture file {}", pcap.display()))?;
        }
        let admin = plan.admin.map(|address| AdminServer::bind(address.0, plan.admin_reach)).transpose()?;
        let (instance, setting_up) = Instance::reserve(plan.name.as_deref(), plan.subnet)?;
        let control = ControlServer::bind(&instance.socket_path())?;
        let namespace = Namespace::create()?;
        let mut instances = vec![instance];
        while instances.len() < usize::from(plan.cards) {
            // One more network and interface; the lock that is held keeps others from choosing the same.
            instances.push(Instance::reserve_another()?);
        }
        let place = Place::make(plan, &instances, &namespace)?;
        drop(setting_up);

        let preload = match plan.watch {
            WatchKind::Kernel => None,
            WatchKind::Preload => Some(PreloadFiles::create(&instances[0].name)?),
        };
        let setup = WatchSetup {
            log_format: plan.log_format,
            server_netns: namespace.inode(),
            http_ports: plan.http_ports.clone(),
            session_files: plan.session_files.clone(),
            data_folders: plan.data_folders.clone(),
            follow_units: plan.follow_units.clone(),
            remote_databases: plan.remote_databases.clone(),
            preload: preload.as_ref().map(|files| files.memory.clone()),
        };
        let watch_link = Arc::new(WatchLink::new(Watching::default()));
        let mut watch = WatchUnit::start(setup, Arc::clone(&watch_link), false)?;
        watch.wait()?;
        let (orders, desk) = orders::orders()?;
        let (mut links, mut card_units) = (Vec::new(), Vec::new());
        for (number, (ports, ports_setup)) in place.cards.into_iter().enumerate() {
            let setup = CardSetup {
                ports: ports_setup,
                rechecker: place.rechecker[number],
                mtu: place.mtu,
                pcap: plan.pcap.as_deref().map(|path| capture_file(path, number)),
                ..card_setup(plan, watch.witness().len())
            };
            let link = Arc::new(CardLink::new(access_log.clone()));
            links.push(Arc::clone(&link));
            let files = CardFiles { ports, witness: Arc::clone(watch.witness()) };
            card_units.push(CardUnit::start(setup, files, link, &watch)?);
        }
        let cards = Arc::new(Cards::new(links));

        let networks: Vec<_> =
            instances.iter().map(|instance| (instance.interface.as_str(), instance.subnet)).collect();
        let published = publish::start(&plan.publish, &plan.http_ports, plan.outgoing, &networks)?;
        share::start(&plan.share, &namespace)?;
        // It may have become ready meanwhile.
        watch.handle(Instant::now())?;
        watch.note_server_start();
        let guard = Guard::start(&namespace)?;
        let server = {
            let environment = preload.as_ref().map_or_else(Vec::new, |files| files.environment(Part::Server));
            start_server(&namespace, &argv, &plan.with, environment)?
        };
        // A station of its own on a network is not reached from this machine by way of its card.
        let is_reached = plan.wire.is_none();
        let ways = instances.iter().filter(|_| is_reached).map(|instance| instance.subnet.server());
        let readiness = Readiness::new(plan.http_ports.clone(), place.addresses.0, ways);
        Ok(Running {
            plan,
            started: Instant::now(),
            live: None,
            admin,
            control: Some(control),
            server,
            _guard: guard,
            published,
            cards,
            card_units,
            orders,
            desk,
            watch_link,
            watch,
            access_log,
            readiness,
            interface: place.interface,
            addresses: place.addresses,
            gateway: place.gateway,
            namespace,
            preload,
            instances,
            argv,
        })
    }

    /// What `nicache status` shows, but for the counters.
    fn status(&self) -> Status {
        Status {
            name: self.instances[0].name.clone(),
            pid: std::process::id(),
            uptime_s: 0,
            url: self.url(),
            interface: self.interface.clone(),
            gateway: self.gateway,
            server_address: self.addresses.0,
            server_addresses: match self.plan.wire {
                None => self.instances.iter().map(|instance| instance.subnet.server()).collect(),
                Some(_) => vec![self.addresses.0],
            },
            server_address6: self.addresses.1,
            http_ports: self.plan.http_ports.clone(),
            server: self.argv.clone(),
            with: self.plan.with.clone(),
            server_pid: self.server.pid(),
            card_pid: self.cards.pids().first().copied().unwrap_or(0),
            card_pids: self.cards.pids(),
            card_restarts: self.cards.restarts(),
            watch_pid: self.watch_link.watching().pid,
            published: self.plan.publish.iter().map(ToString::to_string).collect(),
            admin: self.admin.as_ref().map(AdminServer::address),
            shared: self.plan.share.clone(),
            watch_unavailable: self.watch_link.watching().unavailable,
            watch_lacks: self.watch_link.watching().lacks,
            hint: None,
            writer_environment: self.preload.as_ref().map_or_else(Vec::new, |files| files.environment(Part::Writer)),
            databases: self
                .plan
                .remote_databases
                .iter()
                .map(|remote| DatabaseReport::unheard(remote.address))
                .collect(),
            counters: crate::control::Counters::default(),
        }
    }

    fn url(&self) -> String {
        let host = match self.addresses {
            (Ipv4Addr::UNSPECIFIED, v6) => format!("[{v6}]"),
            (v4, _) => v4.to_string(),
        };
        match self.plan.http_ports[0] {
            80 => format!("http://{host}/"),
            port => format!("http://{host}:{port}/"),
        }
    }

    fn begin_service(&mut self) -> Result<()> {
        let (card, watch) = (Arc::clone(&self.cards), Arc::clone(&self.watch_link));
        let watch_kind = match self.plan.watch {
            WatchKind::Kernel => "kernel",
            WatchKind::Preload => "preload",
        };
        let sampler = Arc::new(Sampler::new(self.status(), watch_kind, self.started, card, watch));
        if let Some(control) = self.control.take() {
            let (card, watch) = (Arc::clone(&self.cards), Arc::clone(&self.watch_link));
            self.control = Some(control.serve(
                self.status(),
                self.started,
                card,
                watch,
                Arc::clone(&sampler),
                self.desk.clone(),
            )?);
        }
        if let Some(admin) = &mut self.admin {
            admin.serve(sampler)?;
        }
        if self.plan.watch == WatchKind::Kernel {
            let (link, units) = (Arc::clone(&self.watch_link), self.plan.follow_units.clone());
            outsiders::start(link, self.namespace.inode(), units, self.plan.reload_php == ReloadPhp::Idle)?;
        }
        Ok(())
    }

    fn announce(&mut self) -> Result<()> {
        notify::tell("READY=1");
        if self.plan.json {
            let status = serde_json::json!({ "event": "ready", "status": self.status() });
            logs::print(&status.to_string());
        } else {
            let less = self.watch_link.watching().reservation();
            logs::print(&format!("{} is served through the card {}{less}", self.url(), self.interface));
            for publish in &self.plan.publish {
                logs::print(&format!("published at {}", publish.address));
            }
            if let Some(admin) = &self.admin {
                logs::print(&format!("its figures are at http://{}/", admin.address()));
            }
        }
        self.live = Some(Live::start(Arc::clone(&self.cards), self.plan.log_format)?);
        Ok(())
    }
}

/// Says which of the server's folders are on file systems that nobody watches: nothing of them will be kept.
fn warn_of_roots(plan: &RunPlan, argv: &[String]) {
    if plan.watch == WatchKind::Preload {
        return;
    }
    for root in document_roots(argv, &plan.with) {
        if let Some(kind) = root.unwatched {
            tracing::warn!(
                "the server's folder {} is on {kind}, where nobody sees every change: nothing of it is kept (docs/filesystems.md)",
                root.path.display()
            );
        }
    }
}

pub(crate) fn check_privilege(command: &str) -> Result<()> {
    let effective = rustix::thread::capabilities(None)?.effective;
    if !effective.contains(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN) {
        bail!(
            "nicache {command} needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) for its network interfaces: try `sudo nicache {command} ...`"
        );
    }
    Ok(())
}

/// Looks a program up as the shell would, so that a typing error is found before anything is built up.
pub(crate) fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if program.contains('/') {
        is_program(std::path::Path::new(program))
    } else {
        std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
    }
}

fn check_program(program: &str, demo: bool) -> Result<()> {
    match (is_in_path(program), demo) {
        (true, _) => Ok(()),
        (false, true) => bail!(
            "nginx is not installed, and the demonstration site needs it: run tools/setup (Debian, Ubuntu: apt-get install \
             nginx-light), or name another server: nicache run -- SERVER ARGS..."
        ),
        (false, false) => {
            bail!("the server program `{program}` was not found: is it installed, and in PATH?")
        }
    }
}

fn is_program(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// One for each card, and that of the first has the name that was asked for.
fn capture_file(path: &Path, card: usize) -> PathBuf {
    if card == 0 { path.to_owned() } else { path.with_extension(format!("card{card}.pcap")) }
}

/// Most connections that end with a card: those of all its queues, and those that an older one still has.
fn connections_lost_max(plan: &RunPlan) -> u32 {
    plan.clients.connections.saturating_mul(2 * u32::from(plan.queues))
}

fn card_setup(plan: &RunPlan, witness_files: usize) -> CardSetup {
    CardSetup {
        log_format: plan.log_format,
        ports: PortsSetup::Taps,
        mtu: tap::MTU,
        queues: plan.queues,
        memory_bytes: plan.memory_bytes,
        policy: plan.policy,
        handshake: plan.handshake,
        clients: plan.clients.clone(),
        http_ports: plan.http_ports.clone(),
        rechecker: None,
        rechecks: plan.rechecks,
        pcap: plan.pcap.clone(),
        access_log: plan.access_log.is_some(),
        l0: plan.l0,
        cache_status: plan.cache_status,
        ignore_cookies: plan.ignore_cookies.clone(),
        ignore_headers: plan.ignore_headers.clone(),
        vary: plan.vary.clone(),
        paths: plan.paths.clone(),
        witness_files,
    }
}

fn start_server(
    namespace: &Namespace,
    argv: &[String],
    with: &[Vec<String>],
    environment: Vec<(String, String)>,
) -> Result<Child> {
    // The namespace's thread is the parent: it lives as long as the supervisor, and its children are in the network namespace.
    let server = namespace.run(|| Child::start(Role::Server))?;
    let setup = ServerSetup { argv: argv.to_vec(), with: with.to_vec(), environment };
    send_message(&server.channel, &setup, &[])?;
    Ok(server)
}
