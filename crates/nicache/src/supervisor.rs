//! What `nicache run` does: builds everything up, waits for an end or a signal, takes everything down.
//!
//! Order of the start: reservations, namespaces, TAPs, watcher, card, publishing and sharing, programs beside the server, server. The watcher comes before the server so that
//! it sees the server's first file; the card before the server so that no frame is lost.
//!
//! Invariant: whatever of supervisor, card, watcher and server ends, the others end within a second. Children are killed by the kernel
//! when the supervisor dies ([`children`]), the server's own children with process 1 of their PID namespace ([`namespace`]), interfaces with the
//! card's open files, rules with the process that owns them.

pub mod card_link;
pub mod children;
mod control_server;
pub mod end;
pub mod instance;
mod listening;
pub mod namespace;
pub mod netlink;
mod preload_files;
mod ready;
pub mod tap;
mod watch_link;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_port::TapQueue;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::CapabilitySet;

use crate::access_log::AccessLog;
use crate::control::{FromCard, Status};
use crate::demo::Demo;
use crate::inquiry::DatabaseReport;
use crate::live::Live;
use crate::options::{RunPlan, WatchKind};
use crate::publish::{self, Published};
use crate::setup::{CardSetup, ServerSetup, WatchReport, WatchSetup, receive_message, send_message};
use crate::{logs, share};
use card_link::CardLink;
use children::{Child, Role, describe, wait_readable};
use control_server::ControlServer;
use end::Signals;
use instance::Instance;
use namespace::Namespace;
use preload_files::{Part, PreloadFiles};
use ready::Readiness;
use watch_link::WatchLink;

/// How long the watcher may take to load its programs.
const WATCH_START: Duration = Duration::from_secs(20);
/// How long the card may take to make its memory ready; many gigabytes take seconds.
const CARD_START: Duration = Duration::from_secs(120);

/// Runs until the end; the status for the shell.
pub fn run(plan: RunPlan) -> Result<ExitCode> {
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
    control: Option<ControlServer>,
    server: Child,
    published: Published,
    card_link: Arc<CardLink>,
    card: Child,
    watch_link: Arc<WatchLink>,
    watch: Child,
    /// Keeps the kernel witness alive even if the watcher is killed.
    _witness: Vec<OwnedFd>,
    access_log: Option<Arc<AccessLog>>,
    readiness: Readiness,
    namespace: Namespace,
    preload: Option<PreloadFiles>,
    instance: Instance,
    /// The server's command.
    argv: Vec<String>,
    watch_unavailable: Option<String>,
}

impl<'a> Running<'a> {
    fn start(plan: &'a RunPlan, argv: Vec<String>) -> Result<Running<'a>> {
        let access_log = plan.access_log.as_deref().map(AccessLog::open).transpose()?.map(Arc::new);
        if let Some(pcap) = &plan.pcap {
            std::fs::File::create(pcap)
                .with_context(|| format!("cannot create the capture file {}", pcap.display()))?;
        }
        let (instance, setting_up) = Instance::reserve(plan.name.as_deref(), plan.subnet)?;
        let control = ControlServer::bind(&instance.socket_path())?;
        let namespace = Namespace::create()?;
        let (queues, subnet) = (plan.queues, instance.subnet);
        let wire = tap::open_wire(&instance.interface, queues, subnet)?;
        tap::add_rechecker(&instance.interface, subnet)?;
        let host = namespace.run(move || tap::open_host(queues, subnet))?;
        drop(setting_up);

        let (card_side, watch_side) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let preload = match plan.watch {
            WatchKind::Kernel => None,
            WatchKind::Preload => Some(PreloadFiles::create(&instance.name)?),
        };
        let setup = WatchSetup {
            log_format: plan.log_format,
            server_netns: namespace.inode(),
            http_ports: plan.http_ports.clone(),
            session_files: plan.session_files.clone(),
            data_folders: plan.data_folders.clone(),
            remote_databases: plan.remote_databases.clone(),
            preload: preload.as_ref().map(|files| files.memory.clone()),
        };
        let (watch, report, witness) = start_watch(&setup, watch_side)?;
        if let Some(reason) = &report.unavailable {
            tracing::warn!("nothing is cached, every request goes to the server: {reason}");
        }
        let setup = card_setup(plan, &instance, witness.len());
        let card = start_card(&setup, &wire, &host, card_side, &witness)?;
        // From here on only the card has the TAPs, and they vanish with it.
        drop((wire, host));
        let card_link = Arc::new(CardLink::start(card.channel.try_clone()?, access_log.clone())?);

        let watch_link = Arc::new(WatchLink::new(watch.channel.try_clone()?));

        let published = publish::start(&plan.publish, &plan.http_ports, plan.outgoing, &instance.interface, subnet)?;
        share::start(&plan.share, &namespace)?;
        let server = {
            let environment = preload.as_ref().map_or_else(Vec::new, |files| files.environment(Part::Server));
            start_server(&namespace, &argv, &plan.with, environment)?
        };
        Ok(Running {
            plan,
            started: Instant::now(),
            live: None,
            control: Some(control),
            server,
            published,
            card_link,
            card,
            watch_link,
            watch,
            _witness: witness,
            access_log,
            readiness: Readiness::new(plan.http_ports.clone(), subnet.server()),
            namespace,
            preload,
            instance,
            argv,
            watch_unavailable: report.unavailable,
        })
    }

    /// What `nicache status` shows, but for the counters.
    fn status(&self) -> Status {
        Status {
            name: self.instance.name.clone(),
            pid: std::process::id(),
            uptime_s: 0,
            url: self.url(),
            interface: self.instance.interface.clone(),
            gateway: self.instance.subnet.gateway(),
            server_address: self.instance.subnet.server(),
            http_ports: self.plan.http_ports.clone(),
            server: self.argv.clone(),
            with: self.plan.with.clone(),
            server_pid: self.server.pid(),
            card_pid: self.card.pid(),
            watch_pid: self.watch.pid(),
            published: self.plan.publish.iter().map(ToString::to_string).collect(),
            shared: self.plan.share.clone(),
            watch_unavailable: self.watch_unavailable.clone(),
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
        match self.plan.http_ports[0] {
            80 => format!("http://{}/", self.instance.subnet.server()),
            port => format!("http://{}:{port}/", self.instance.subnet.server()),
        }
    }

    fn begin_service(&mut self) -> Result<()> {
        if let Some(control) = self.control.take() {
            let (card, watch) = (Arc::clone(&self.card_link), Arc::clone(&self.watch_link));
            self.control = Some(control.serve(self.status(), self.started, card, watch)?);
        }
        Ok(())
    }

    fn announce(&mut self) -> Result<()> {
        if self.plan.json {
            let status = serde_json::json!({ "event": "ready", "status": self.status() });
            logs::print(&status.to_string());
        } else {
            logs::print(&format!("{} is served through the card {}", self.url(), self.instance.interface));
            for publish in &self.plan.publish {
                logs::print(&format!("published at {}", publish.address));
            }
        }
        self.live = Some(Live::start(Arc::clone(&self.card_link), self.plan.log_format)?);
        Ok(())
    }
}

pub fn check_privilege(command: &str) -> Result<()> {
    let effective = rustix::thread::capabilities(None)?.effective;
    if !effective.contains(CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN) {
        bail!(
            "nicache {command} needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN) for its network interfaces: try `sudo nicache {command} ...`"
        );
    }
    Ok(())
}

/// Looks a program up as the shell would, so that a typing error is found before anything is built up.
fn is_in_path(program: &str) -> bool {
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

fn start_watch(setup: &WatchSetup, to_card: OwnedFd) -> Result<(Child, WatchReport, Vec<OwnedFd>)> {
    let mut watch = Child::start(Role::Watch)?;
    send_message(&watch.channel, setup, &[to_card.as_fd()])?;
    let (report, files) = first_word::<WatchReport>(&mut watch, WATCH_START)?;
    if report.files != files.len() {
        bail!("the watcher announced {} files and sent {}", report.files, files.len());
    }
    Ok((watch, report, files))
}

fn start_card(
    setup: &CardSetup,
    wire: &[TapQueue],
    host: &[TapQueue],
    to_watch: OwnedFd,
    witness: &[OwnedFd],
) -> Result<Child> {
    let mut card = Child::start(Role::Card)?;
    let taps = wire.iter().chain(host).map(AsFd::as_fd);
    let others = std::iter::once(to_watch.as_fd()).chain(witness.iter().map(AsFd::as_fd));
    let files: Vec<BorrowedFd<'_>> = taps.chain(others).collect();
    send_message(&card.channel, setup, &files)?;
    match first_word(&mut card, CARD_START)?.0 {
        FromCard::Ready => Ok(card),
        other => bail!("the card began with {other:?}"),
    }
}

fn card_setup(plan: &RunPlan, instance: &Instance, witness_files: usize) -> CardSetup {
    CardSetup {
        log_format: plan.log_format,
        queues: plan.queues,
        memory_bytes: plan.memory_bytes,
        policy: plan.policy,
        handshake: plan.handshake,
        http_ports: plan.http_ports.clone(),
        server: instance.subnet.server(),
        gateway: instance.subnet.gateway(),
        wire_name: instance.interface.clone(),
        rechecker: instance.subnet.rechecker(),
        recheck_ms: plan.recheck.0,
        pcap: plan.pcap.clone(),
        access_log: plan.access_log.is_some(),
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
    // The namespace's thread is the parent: it lives as long as the supervisor, and its children are in the PID namespace.
    let server = namespace.run(|| Child::start(Role::Server))?;
    let setup = ServerSetup { argv: argv.to_vec(), with: with.to_vec(), environment };
    send_message(&server.channel, &setup, &[])?;
    Ok(server)
}

/// Waits for the first message of a child.
pub fn first_word<T: serde::de::DeserializeOwned>(child: &mut Child, limit: Duration) -> Result<(T, Vec<OwnedFd>)> {
    let title = child.role.title();
    if !wait_readable(child.channel.as_fd(), limit)? {
        bail!("{title} did not start within {} s", limit.as_secs());
    }
    match receive_message(&child.channel)? {
        Some(message) => Ok(message),
        None => {
            let status = child.wait(Duration::from_secs(1))?;
            bail!(
                "{title} {} at its start; its own message is above",
                status.map_or_else(|| "closed its socket".into(), describe)
            )
        }
    }
}
