//! What `nicache attach` does: a card between two interfaces that are there, in front of a server
//! that runs.
//!
//! Programs at both interfaces leave the service's frames to the card and let all others go from
//! one to the other ([`nicache_xdp::Steering`]). They do so with all frames while no card shows
//! that it lives, whatever becomes of the processes here; and they end with them.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use nicache_admin::AdminServer;
use nicache_secret::random_bytes;
use nicache_xdp::Rest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use super::card_link::CardLink;
use super::card_setup::{card_setup, connections_lost_max};
use super::card_unit::{CardFiles, CardPorts, CardUnit};
use super::cards::Cards;
use super::control::Answering;
use super::instance::Instance;
use super::netlink::Netlink;
use super::notify;
use super::orders::{Order, Orders, orders};
use super::requirements::check_privilege;
use super::sampler::Sampler;
use super::signals::Signals;
use super::standing::{Standing, StandingPlan};
use super::watch_link::{WatchLink, Watching};
use super::watch_unit::WatchUnit;
use crate::access_log::AccessLog;
use crate::control::{ControlSocket, Counters, Status};
use crate::live::Live;
use crate::logs;
use crate::options::AttachPlan;
use crate::setup::WatchSetup;

/// Runs until a signal.
pub(crate) fn run(plan: &AttachPlan) -> Result<ExitCode> {
    logs::start(plan.run.log_format);
    check_privilege("attach")?;
    let signals = Signals::catch()?;
    let mut attached = Attached::start(plan)?;
    attached.announce()?;
    attached.supervise(&signals)?;
    attached.stop();
    Ok(ExitCode::SUCCESS)
}

/// Fields are dropped in this order.
struct Attached<'a> {
    plan: &'a AttachPlan,
    live: Option<Live>,
    _admin: Option<AdminServer>,
    _control: ControlSocket,
    cards: Arc<Cards>,
    card: CardUnit,
    orders: Orders,
    watch: WatchUnit,
    access_log: Option<Arc<AccessLog>>,
    status: Status,
    _instance: Instance,
}

impl<'a> Attached<'a> {
    fn start(plan: &'a AttachPlan) -> Result<Self> {
        let started = Instant::now();
        let run = &plan.run;
        let access_log = run.access_log.as_deref().map(AccessLog::open).transpose()?.map(Arc::new);
        let mut admin =
            run.admin.map(|address| AdminServer::bind(address.0, run.admin_reach)).transpose()?;
        let (instance, setting_up) = Instance::reserve(run.name.as_deref(), None)?;
        drop(setting_up);
        let control = ControlSocket::bind(&instance.socket_path())?;
        let standing = stand(plan)?;

        let watch_link = Arc::new(WatchLink::new(Watching::default()));
        let mut watch = match server_netns(plan)? {
            Some(netns) => {
                WatchUnit::start(watch_setup(plan, netns), Arc::clone(&watch_link), true)?
            }
            None => WatchUnit::nobody(
                watch_setup(plan, 0),
                UNKNOWN_SERVER.to_owned(),
                Arc::clone(&watch_link),
            ),
        };
        watch.wait()?;
        let card_link = Arc::new(CardLink::new(access_log.clone()));
        let mut setup = card_setup(run, watch.witness().len(), random_bytes()?);
        setup.mtu = Netlink::open()?
            .mtu(&plan.wire)
            .with_context(|| format!("asking for the MTU of {}", plan.wire))?;
        setup.ports = standing.setup(true);
        let files = CardFiles {
            ports: CardPorts::Interfaces(Box::new(standing)),
            witness: Arc::clone(watch.witness()),
        };
        let card = CardUnit::start(setup, files, Arc::clone(&card_link), &watch)?;

        let cards = Arc::new(Cards::new(vec![card_link]));
        let status = status(plan, &instance, &cards, watch_link.watching(), admin.as_ref());
        let links = (Arc::clone(&cards), Arc::clone(&watch_link));
        let sampler = Arc::new(Sampler::new(status.clone(), "kernel", started, links.0, links.1));
        let (orders, desk) = orders()?;
        let answering = Answering {
            status: status.clone(),
            started,
            cards: Arc::clone(&cards),
            watch: watch_link,
            sampler: Arc::clone(&sampler),
            desk,
        };
        control.answer(move |request| answering.respond(request))?;
        if let Some(admin) = &mut admin {
            admin.serve(sampler)?;
        }
        Ok(Attached {
            plan,
            live: None,
            _admin: admin,
            _control: control,
            cards,
            card,
            orders,
            watch,
            access_log,
            status,
            _instance: instance,
        })
    }

    fn announce(&mut self) -> Result<()> {
        notify::tell("READY=1");
        if self.plan.run.json {
            logs::print(
                &serde_json::json!({ "event": "ready", "status": self.status }).to_string(),
            );
        } else {
            let ports = self
                .plan
                .run
                .http_ports
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            let less = self.watch.watching().reservation();
            logs::print(&format!(
                "port {ports} between {} and {} is the card's{less}",
                self.plan.wire, self.plan.host
            ));
            if let Some(admin) = self.status.admin {
                logs::print(&format!("its figures are at http://{admin}/"));
            }
        }
        self.live = Some(Live::start(Arc::clone(&self.cards), self.plan.run.log_format)?);
        Ok(())
    }

    fn supervise(&mut self, signals: &Signals) -> Result<()> {
        loop {
            self.wait(signals)?;
            self.watch.handle(Instant::now())?;
            self.card.handle(Instant::now())?;
            while let Some(Order::Upgrade { program, reply }) = self.orders.take() {
                self.card.upgrade(&program, reply);
            }
            self.card.join(&self.watch);
            while let Some(number) = signals.take() {
                match number {
                    SIGINT | SIGTERM => return Ok(()),
                    SIGUSR1 => {
                        if let Some(Err(error)) = self.access_log.as_ref().map(|log| log.reopen()) {
                            tracing::warn!("{error:#}");
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn wait(&self, signals: &Signals) -> Result<()> {
        let files = signals
            .files()
            .chain(self.watch.file())
            .chain(self.card.files())
            .chain([self.orders.as_fd()]);
        let mut files: Vec<PollFd<'_>> =
            files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let due = self.card.due().into_iter().chain(self.watch.due()).min();
        let due = due.map(|due| due.saturating_duration_since(Instant::now()));
        match poll(&mut files, due.map(Timespec::try_from).transpose()?.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn stop(&mut self) {
        notify::tell("STOPPING=1");
        self.live = None;
        self.card.stop();
        if self.plan.run.json {
            logs::print(&serde_json::json!({ "event": "ended", "failed": false }).to_string());
        }
    }
}

const UNKNOWN_SERVER: &str = "which programs are the server is not known, as --host is not one end of a veth whose other end is in the server's network \
                              namespace; name one of them with --server-pid";

fn stand(plan: &AttachPlan) -> Result<Standing> {
    Standing::make(StandingPlan {
        http_ports: plan.run.http_ports.clone(),
        wire: plan.wire.clone(),
        wire_rest: Rest::Redirect,
        host: plan.host.clone(),
        port: plan.port.of_card(plan.run.queues),
        l0: plan.run.l0,
        connections: connections_lost_max(&plan.run),
    })
}

/// The server's network namespace, by its inode number.
fn server_netns(plan: &AttachPlan) -> Result<Option<u64>> {
    if let Some(pid) = plan.server_pid {
        let namespace = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        return Ok(Some(
            namespace.with_context(|| format!("--server-pid: there is no process {pid}"))?.ino(),
        ));
    }
    let mut netlink = Netlink::open()?;
    let Some(wanted) =
        netlink.peer_namespace(&plan.host).context("looking for the other end of --host")?
    else {
        return Ok(None);
    };
    for entry in std::fs::read_dir("/proc")?.flatten() {
        // Processes end while one looks.
        let Ok(namespace) = std::fs::File::open(entry.path().join("ns/net")) else { continue };
        if netlink.namespace_number(namespace.as_fd()).ok().flatten() == Some(wanted) {
            return Ok(Some(namespace.metadata()?.ino()));
        }
    }
    Ok(None)
}

fn watch_setup(plan: &AttachPlan, server_netns: u64) -> WatchSetup {
    WatchSetup {
        log_format: plan.run.log_format,
        server_netns,
        http_ports: plan.run.http_ports.clone(),
        session_files: plan.run.session_files.clone(),
        data_folders: plan.run.data_folders.clone(),
        follow_units: Vec::new(),
        remote_databases: Vec::new(),
        preload: None,
    }
}

fn status(
    plan: &AttachPlan,
    instance: &Instance,
    cards: &Cards,
    watching: Watching,
    admin: Option<&AdminServer>,
) -> Status {
    Status {
        name: instance.name.clone(),
        pid: std::process::id(),
        uptime_s: 0,
        url: format!("{} - {}", plan.wire, plan.host),
        interface: plan.wire.clone(),
        gateway: std::net::Ipv4Addr::UNSPECIFIED,
        server_address: std::net::Ipv4Addr::UNSPECIFIED,
        server_addresses: Vec::new(),
        server_address6: std::net::Ipv6Addr::UNSPECIFIED,
        http_ports: plan.run.http_ports.clone(),
        server: Vec::new(),
        with: Vec::new(),
        server_pid: plan.server_pid.unwrap_or(0),
        card_pid: cards.pids().first().copied().unwrap_or(0),
        card_pids: cards.pids(),
        card_restarts: 0,
        watch_pid: watching.pid,
        published: Vec::new(),
        admin: admin.map(AdminServer::address),
        shared: Vec::new(),
        watch_unavailable: watching.unavailable,
        watch_lacks: watching.lacks,
        hint: None,
        writer_environment: Vec::new(),
        databases: Vec::new(),
        counters: Counters::default(),
    }
}
