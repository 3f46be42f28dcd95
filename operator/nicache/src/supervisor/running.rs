//! All that is up while the server of `nicache run` is.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use nicache_admin::AdminServer;
use nicache_netns::Namespace;
use nicache_secret::random_bytes;

use super::card_link::CardLink;
use super::card_setup::card_setup;
use super::card_unit::{CardFiles, CardUnit};
use super::cards::Cards;
use super::children::{Child, Role};
use super::control::Answering;
use super::guard::Guard;
use super::instance::Instance;
use super::orders::{OrderDesk, Orders, orders};
use super::place::Place;
use super::preload_files::{Part, PreloadFiles};
use super::ready::Readiness;
use super::sampler::Sampler;
use super::watch_link::{WatchLink, Watching};
use super::watch_unit::WatchUnit;
use super::{notify, outsiders};
use crate::access_log::AccessLog;
use crate::control::{ControlSocket, Status};
use crate::inquiry::DatabaseReport;
use crate::live::Live;
use crate::logs;
use crate::options::{ReloadPhp, RunPlan, WatchKind};
use crate::publish::{self, Published};
use crate::setup::{CardSetup, ServerSetup, WatchSetup, send_message};
use crate::share::{self, Share};

/// Everything that lives while the server runs. Fields are dropped in this order.
pub(super) struct Running<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) started: Instant,
    pub(super) live: Option<Live>,
    pub(super) admin: Option<AdminServer>,
    pub(super) control: ControlSocket,
    pub(super) server: Child,
    pub(super) _guard: Guard,
    pub(super) published: Published,
    /// Until somebody else looks after them.
    pub(super) shares: Vec<Share>,
    pub(super) cards: Arc<Cards>,
    pub(super) card_units: Vec<CardUnit>,
    pub(super) orders: Orders,
    pub(super) desk: OrderDesk,
    pub(super) watch_link: Arc<WatchLink>,
    pub(super) watch: WatchUnit,
    pub(super) access_log: Option<Arc<AccessLog>>,
    pub(super) readiness: Readiness,
    /// Where clients come from, and the server's addresses and default route.
    pub(super) interface: String,
    pub(super) addresses: (Ipv4Addr, Ipv6Addr),
    pub(super) gateway: Ipv4Addr,
    pub(super) namespace: Namespace,
    pub(super) preload: Option<PreloadFiles>,
    /// Of each card; the first one's name is that of all.
    pub(super) instances: Vec<Instance>,
    /// The server's command.
    pub(super) argv: Vec<String>,
}

impl<'a> Running<'a> {
    pub(super) fn start(plan: &'a RunPlan, argv: Vec<String>) -> Result<Self> {
        let access_log = plan.access_log.as_deref().map(AccessLog::open).transpose()?.map(Arc::new);
        if let Some(pcap) = &plan.pcap {
            std::fs::File::create(pcap)
                .with_context(|| format!("cannot create the capture file {}", pcap.display()))?;
        }
        let admin =
            plan.admin.map(|address| AdminServer::bind(address.0, plan.admin_reach)).transpose()?;
        let (instance, setting_up) = Instance::reserve(plan.name.as_deref(), plan.subnet)?;
        let control = ControlSocket::bind(&instance.socket_path())?;
        // Its file is open before a watcher is there, which takes everything that happens inside
        // for the server's doing.
        let namespace = Namespace::create().context(
            "cannot make a network namespace for the server: this needs root with CAP_SYS_ADMIN and a kernel with CONFIG_NET_NS",
        )?;
        let mut instances = vec![instance];
        while instances.len() < usize::from(plan.cards) {
            // One more network and interface; the lock that is held keeps others from choosing the
            // same.
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
        let (orders, desk) = orders()?;
        let resource_secret = random_bytes()?;
        let (mut links, mut card_units) = (Vec::new(), Vec::new());
        for (number, (ports, ports_setup)) in place.cards.into_iter().enumerate() {
            let setup = CardSetup {
                ports: ports_setup,
                rechecker: place.rechecker[number],
                mtu: place.mtu,
                pcap: plan.pcap.as_deref().map(|path| capture_file(path, number)),
                ..card_setup(plan, watch.witness().len(), resource_secret)
            };
            let link = Arc::new(CardLink::new(access_log.clone()));
            links.push(Arc::clone(&link));
            let files = CardFiles { ports, witness: Arc::clone(watch.witness()) };
            card_units.push(CardUnit::start(setup, files, link, &watch)?);
        }
        let cards = Arc::new(Cards::new(links));

        let networks: Vec<_> = instances
            .iter()
            .map(|instance| (instance.interface.as_str(), instance.subnet))
            .collect();
        let published = publish::start(&plan.publish, &plan.http_ports, plan.outgoing, &networks)?;
        let shares = share::start(&plan.share, &namespace)?;
        // It may have become ready meanwhile.
        watch.handle(Instant::now())?;
        watch.note_server_start();
        let guard = Guard::start(&namespace)?;
        let server = {
            let environment =
                preload.as_ref().map_or_else(Vec::new, |files| files.environment(Part::Server));
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
            control,
            server,
            _guard: guard,
            published,
            shares,
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
            writer_environment: self
                .preload
                .as_ref()
                .map_or_else(Vec::new, |files| files.environment(Part::Writer)),
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

    pub(super) fn begin_service(&mut self) -> Result<()> {
        let (card, watch) = (Arc::clone(&self.cards), Arc::clone(&self.watch_link));
        let watch_kind = match self.plan.watch {
            WatchKind::Kernel => "kernel",
            WatchKind::Preload => "preload",
        };
        let sampler = Arc::new(Sampler::new(self.status(), watch_kind, self.started, card, watch));
        let answering = Answering {
            status: self.status(),
            started: self.started,
            cards: Arc::clone(&self.cards),
            watch: Arc::clone(&self.watch_link),
            sampler: Arc::clone(&sampler),
            desk: self.desk.clone(),
        };
        self.control.answer(move |request| answering.respond(request))?;
        if let Some(admin) = &mut self.admin {
            admin.serve(sampler)?;
        }
        if self.plan.watch == WatchKind::Kernel {
            let (link, units) = (Arc::clone(&self.watch_link), self.plan.follow_units.clone());
            let (shares, reload) =
                (std::mem::take(&mut self.shares), self.plan.reload_php == ReloadPhp::Idle);
            outsiders::start(link, self.namespace.inode(), units, shares, reload)?;
        }
        Ok(())
    }

    pub(super) fn announce(&mut self) -> Result<()> {
        notify::tell("READY=1");
        if self.plan.json {
            let status = serde_json::json!({ "event": "ready", "status": self.status() });
            logs::print(&status.to_string());
        } else {
            let less = self.watch_link.watching().reservation();
            logs::print(&format!(
                "{} is served through the card {}{less}",
                self.url(),
                self.interface
            ));
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

/// One for each card, and that of the first has the name that was asked for.
fn capture_file(path: &Path, card: usize) -> PathBuf {
    if card == 0 { path.to_owned() } else { path.with_extension(format!("card{card}.pcap")) }
}

fn start_server(
    namespace: &Namespace,
    argv: &[String],
    with: &[Vec<String>],
    environment: Vec<(String, String)>,
) -> Result<Child> {
    // The namespace's thread is the parent: it lives as long as the supervisor, and its children
    // are in the network namespace.
    let server = namespace.run(|| Child::start(Role::Server))?;
    let setup = ServerSetup { argv: argv.to_vec(), with: with.to_vec(), environment };
    send_message(&server.channel, &setup, &[])?;
    Ok(server)
}
