//! `nicache forward`: packets between interfaces, whose payload stays on the card.
//!
//! ```text
//! mod.rs        the supervisor: interfaces, guard; starts card and forwarder again if they end
//! children.rs   what card and forwarder share, and how each is started
//! checks.rs     the health of back ends
//! kernel_path.rs  the fast path's programs, and why there are none
//! ports.rs      what the card is on each link by
//! place.rs      where the interfaces are: this namespace, or that of the demo
//! process.rs    the forwarder process (offload/router, offload/forward); the card process is that of `serve`, at other ports
//! messages.rs   what they tell each other
//! card_figures.rs  what the cards have counted
//! watch.rs      which links are gone, and which are there again
//! control.rs    what it answers commands
//! reload.rs     what of the file can be changed while it is in use
//! orders.rs     what is asked there, on its way to the forwarder and back
//! status.rs     what `nicache status` shows
//! sampler.rs    what viewers show
//! show.rs       what the demo prints
//! ```
//!
//! The supervisor has everything that must outlive a card or a forwarder: the memory for
//! connections, what health checks found, the guard's rules. Whoever ends is started again with a
//! new attachment, which the other side is given, too.

mod card_figures;
mod checks;
mod children;
mod control;
mod kernel_path;
pub(crate) mod messages;
mod orders;
mod place;
pub(crate) mod ports;
pub(crate) mod process;
mod reload;
mod sampler;
mod show;
pub(crate) mod status;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nicache_admin::AdminServer;
use nicache_forward::modes::Mode;
use nicache_router::config::{LinkPortKind, Plan};
use nicache_router::demo::Stage;
use nicache_router::guard;
use nicache_router::keep::Keep;
use nicache_router::kernel::{Kernel, Link};
use nicache_secret::random_u64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::cli::ForwardArgs;
use crate::control::ControlSocket;
use crate::logs;
use crate::publish::Nft;
use crate::serve::attachments::Attachments;
use crate::serve::messages::{CardCounted, FromFirmware, ToFirmware};
use crate::serve::restarts::Restarts;
use crate::setup::{MESSAGE_BYTES_MAX, receive_message, send_message};
use crate::supervisor::children::{Child, OWN_PROGRAM, describe};
use crate::supervisor::instance::{Instance, Lock};
use crate::supervisor::notify;
use crate::supervisor::requirements::check_privilege;
use crate::supervisor::signals::Signals;
use card_figures::CardFigures;
use checks::{Health, tell_health};
use children::{START, Shared, attach, start_card, start_forwarder};
use kernel_path::KernelPath;
use messages::{Answer, ForwarderSetup, FromForwarder, Question, ToForwarder};
use orders::{Asked, Order, Orders};
use place::Place;
use ports::Ports;
use sampler::Sampler;
use show::Show;
use status::About;
use watch::{Watch, lacks};

/// Forwards until Ctrl-C or SIGTERM; the status for the shell.
pub(crate) fn run(arguments: &ForwardArgs) -> Result<ExitCode> {
    logs::start(arguments.log_format);
    check_privilege("forward")?;
    let signals = Signals::catch()?;
    let mut forwarding = Forwarding::start(arguments)?;
    forwarding.announce();
    let ended = forwarding.supervise(&signals);
    logs::clear_live_line();
    drop(forwarding);
    if arguments.json {
        logs::print(&serde_json::json!({ "event": "ended", "failed": ended.is_err() }).to_string());
    }
    ended.map(|()| ExitCode::SUCCESS)
}

/// Everything that lives while packets are forwarded. Fields are dropped in this order.
struct Forwarding<'a> {
    arguments: &'a ForwardArgs,
    show: Option<Show>,
    admin: Option<AdminServer>,
    _control: ControlSocket,
    health: Option<Health>,
    card: Child,
    card_figures: CardFigures,
    forwarder: Child,
    guard: Nft,
    /// Of links that were gone, by their names, with the kernel's numbers of those that are there
    /// again.
    guards_again: BTreeMap<String, (u32, Nft)>,
    watch: Watch,
    kernel_path: KernelPath,
    ports: Ports,
    plan: Plan,
    /// Whose card and forwarder these are.
    program: PathBuf,
    setup: ForwarderSetup,
    mode: Mode,
    keep: Keep,
    kernel: Kernel,
    orders: Arc<Orders>,
    asked: HashMap<u64, std::sync::mpsc::Sender<Asked>>,
    questions: u64,
    /// Back ends that are drained, and when what they have is ended: for a forwarder that is
    /// started again.
    drained: BTreeMap<SocketAddr, Instant>,
    attachments: Attachments,
    restarts: Restarts,
    started: Instant,
    place: Place,
    instance: Instance,
}

impl<'a> Forwarding<'a> {
    fn start(arguments: &'a ForwardArgs) -> Result<Self> {
        let mut admin = arguments.admin.bind()?;
        let (instance, setting_up) = Instance::reserve(arguments.name.as_deref(), None)?;
        let (place, config) = find_place(arguments, &instance)?;
        drop::<Lock>(setting_up);
        let secret = random_u64()?;
        let named = arguments
            .config
            .as_ref()
            .map_or_else(|| "the demo".to_owned(), |path| path.display().to_string());
        let make = |links: &[Link]| {
            Plan::make(&config, links, secret).map_err(|error| anyhow!("{named}, {error}"))
        };
        // Nothing is made for a file that is not right.
        let taps = Ports::make_taps(&make(&tables(&place)?.1)?, &place)?;
        let watch = place.run(Watch::open).context("cannot ask the kernel for news of links")?;
        let (kernel, links) = tables(&place)?;
        let mut plan = make(&links)?;
        if let Some(memory) = arguments.memory {
            let fits = (256 << 10..=2 << 30).contains(&memory.0);
            plan.memory = u32::try_from(memory.0)
                .ok()
                .filter(|_| fits)
                .context("--memory is from 256K to 2G")?;
        }
        let mode = arguments.mode.unwrap_or(if arguments.demo { Mode::ALL[0] } else { plan.mode });
        let keep =
            Keep::create(plan.config.limits.connections).context("no memory for connections")?;
        // Nothing is forwarded before the kernel keeps out of it.
        let (rules, table) =
            (guard::rules(&instance.name, &plan), guard::table_name(&instance.name));
        let guard = place.run(move || Nft::own(&rules, &format!("netdev {table}")))?;
        let mut ports = Ports::start(&plan, &links, taps, &place)?;
        let kernel_path = KernelPath::start(arguments, &plan, &ports, &place);
        let (fast_path, fast_links) = (kernel_path.handles(), ports.fast());
        let setup = ForwarderSetup {
            log_format: arguments.log_format,
            config,
            links,
            memory: Some(plan.memory),
            secret,
            fast_path,
            fast_links,
        };
        let control = ControlSocket::bind(&instance.socket_path())?;
        let program = PathBuf::from(OWN_PROGRAM);
        let forwarder = start_forwarder(&program, &setup, &kernel, &keep, &kernel_path)?;
        let mut attachments = Attachments::default();
        let shared = Shared::create(&mut attachments, plan.memory)?;
        let card =
            start_card(&program, arguments, &plan, &place, (&kernel_path, &mut ports), &shared)?;
        attach(&forwarder, &shared, mode)?;
        let health = (!plan.checks.is_empty()).then(|| Health::start(&plan, &place)).transpose()?;
        let (orders, started) = (Arc::new(Orders::new()?), Instant::now());
        let sampler = Arc::new(Sampler::new(Arc::clone(&orders), started));
        if let Some(admin) = &mut admin {
            admin.serve(Arc::clone(&sampler) as Arc<dyn nicache_admin::Source>)?;
        }
        let answering = Arc::clone(&orders);
        control.answer(move |request| control::respond(request, &answering, &sampler))?;
        let show = place.stage().map(|stage| Show::start(stage, arguments)).transpose()?;
        Ok(Forwarding {
            arguments,
            show,
            admin,
            _control: control,
            health,
            card,
            card_figures: CardFigures::default(),
            forwarder,
            guard,
            guards_again: BTreeMap::new(),
            watch,
            kernel_path,
            ports,
            plan,
            program,
            setup,
            mode,
            keep,
            kernel,
            orders,
            asked: HashMap::new(),
            questions: 0,
            drained: BTreeMap::new(),
            attachments,
            restarts: Restarts::default(),
            started,
            place,
            instance,
        })
    }

    fn about(&self) -> About {
        About {
            name: self.instance.name.clone(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            forwarder_pid: self.forwarder.pid(),
            card_pid: self.card.pid(),
            restarts: self.restarts.all(),
            cache_bytes: self.plan.memory.into(),
            fast_path: self.kernel_path.status(&self.ports),
            ports: self.ports.status(&self.card_figures),
            admin: self.admin.as_ref().map(AdminServer::address),
        }
    }

    fn announce(&self) {
        notify::tell("READY=1");
        if self.arguments.json {
            let mut ready = serde_json::json!({ "event": "ready", "status": self.about() });
            if let Some(stage) = self.place.stage() {
                ready["service"] = stage.service().into();
            }
            logs::print(&ready.to_string());
            return;
        }
        if let (Some(show), Some(stage)) = (&self.show, self.place.stage()) {
            show.introduce(stage, &self.instance.name);
            return;
        }
        let names: Vec<&str> =
            self.plan.interfaces.iter().map(|interface| &*interface.name).collect();
        logs::print(&format!(
            "{} forwards between {}, mode {}",
            self.instance.name,
            names.join(", "),
            self.mode
        ));
        for (service, name) in self.plan.config.services.iter().zip(&self.plan.services) {
            let by = service
                .by_name
                .as_ref()
                .map_or_else(String::new, |by_name| format!(", by {}", by_name.by));
            logs::print(&format!("service {name} at {} {}{by}", service.protocol, service.address));
        }
        if let Some(admin) = &self.admin {
            logs::print(&format!("its figures are at http://{}/", admin.address()));
        }
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
            let guards = self.guards_again.values_mut().map(|(_, guard)| guard);
            if std::iter::once(&mut self.guard).chain(guards).any(Nft::has_ended) {
                bail!(
                    "the nft process that keeps the kernel from answering ended: everything else is stopped, too"
                );
            }
            if let Some(status) = self.forwarder.try_wait()? {
                tracing::error!(
                    "the forwarder process {}: it is started again, with its connections",
                    describe(status)
                );
                self.count_restart()?;
                self.restart_forwarder()?;
                continue;
            }
            if let Some(status) = self.card.try_wait()? {
                tracing::error!("the card process {}: it is started again", describe(status));
                self.count_restart()?;
                self.restart_card()?;
                continue;
            }
            self.listen()?;
            self.look_at_links()?;
            self.pass_on_health();
            while let Some(order) = self.orders.take() {
                match order {
                    Order::Ask(question, reply) => self.ask(question, reply),
                    Order::Upgrade(program, reply) => {
                        let upgraded = self.upgrade(program)?;
                        let _ = reply.send(upgraded.map(|()| self.card.pid()));
                    }
                    Order::Reload(reply) => {
                        let _ = reply.send(self.reload().map_err(|error| format!("{error:#}")));
                    }
                }
            }
            if self.step_show()? {
                return Ok(());
            }
        }
    }

    fn listen(&mut self) -> Result<()> {
        while has_message(self.forwarder.channel.as_fd()) {
            match receive_message::<FromForwarder>(&self.forwarder.channel)? {
                Some((FromForwarder::Broken { attachment }, _)) => {
                    self.handle_broken(attachment)?;
                }
                Some((FromForwarder::Answer { id, mut answer }, _)) => {
                    if let Answer::Report(report) = &mut answer {
                        self.card_figures.add_to(report);
                    }
                    if let Some(reply) = self.asked.remove(&id) {
                        // Whoever has asked may have lost patience.
                        let _ = reply.send(Asked { answer, about: self.about() });
                    }
                }
                Some((FromForwarder::Ready, _)) => {}
                None => return Ok(()),
            }
        }
        while has_message(self.card.channel.as_fd()) {
            match receive_message::<FromFirmware>(&self.card.channel)? {
                Some((FromFirmware::Broken { attachment }, _)) => self.handle_broken(attachment)?,
                Some((FromFirmware::Counted(counted), _)) => self.take_counted(counted)?,
                Some((FromFirmware::Ready | FromFirmware::Unfit { .. }, _)) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// A card that has lost a port goes on with the others. If its link is still there, another
    /// card can open it.
    fn take_counted(&mut self, counted: CardCounted) -> Result<()> {
        let lost: Vec<(usize, String)> = counted
            .ports
            .iter()
            .enumerate()
            .filter_map(|(number, port)| Some((number, port.lost.clone()?)))
            .collect();
        self.card_figures.take(counted);
        if lost.is_empty() {
            return Ok(());
        }
        self.watch.look_now(Instant::now());
        if self.look_at_links()? {
            return Ok(());
        }
        let gone = self.ports.gone();
        let Some((number, why)) = lost.iter().find(|(number, _)| !gone.contains(number)) else {
            return Ok(());
        };
        let link = self.plan.links.get(*number).map_or("a link", |link| &link.name);
        tracing::error!("the card has lost its port on {link} ({why}): it is started again");
        self.count_restart()?;
        self.restart_card()
    }

    /// Leaves out links that are gone, and takes back those that are there again. True: card and
    /// forwarder were started again for that.
    fn look_at_links(&mut self) -> Result<bool> {
        let now = Instant::now();
        let Some(links) = self.watch.look(now) else { return Ok(false) };
        self.ports.lose_absent(&links);
        self.ports.set_addresses(&links);
        let mut is_back = false;
        for number in self.ports.gone() {
            match self.bring_back(number, &links) {
                Ok(true) => is_back = true,
                Ok(false) => self.ports.set_gone(number, ports::GONE.to_owned()),
                Err(error) => self.ports.set_gone(number, format!("{error:#}")),
            }
        }
        if is_back {
            // Both have the number and the MAC address of the link that was there before.
            self.restart_forwarder()?;
            self.restart_card()?;
        }
        if is_back || !self.ports.gone().is_empty() {
            self.watch.look_again(now);
        }
        Ok(is_back)
    }

    /// Makes everything anew that goes by the number or the MAC address of a link that was gone.
    /// False: it is not there again.
    fn bring_back(&mut self, number: usize, links: &[Link]) -> Result<bool> {
        let link = self.plan.links.get(number).context("a port without a link")?.clone();
        let mut links = links.to_vec();
        let mut found = links.iter().find(|found| found.name == link.name).cloned();
        let mut made = None;
        if link.port == LinkPortKind::Tap && found.is_none() {
            made = Some(Ports::make_tap(&link, &self.place)?);
            links = tables(&self.place)?.1;
            found = links.iter().find(|found| found.name == link.name).cloned();
        }
        let Some(found) = found else {
            self.guards_again.remove(&link.name);
            return Ok(false);
        };
        // Before anything else: with its addresses the kernel begins to answer there.
        if link.port != LinkPortKind::Tap {
            self.guard_again(&link.name, found.index)?;
        }
        let before = self.setup.links.iter().find(|before| before.name == link.name);
        let comparable = before.filter(|_| link.port != LinkPortKind::Tap);
        if let Some(why) = comparable.and_then(|before| lacks(&found, before)) {
            bail!("{why}");
        }
        let mut known = self.setup.links.clone();
        known.retain(|before| before.name != link.name);
        known.push(found);
        let mut plan = Plan::make(&self.setup.config, &known, self.setup.secret)
            .map_err(|error| anyhow!("{error}"))?;
        plan.memory = self.plan.memory;
        let (kernel_path, place) = (&mut self.kernel_path, &self.place);
        let attach = |index: u32| kernel_path.attach(index, link.index, place);
        self.ports.bring_back(number, (&plan, &links), made, place, attach)?;
        self.plan = plan;
        self.setup.links = known;
        self.setup.fast_links = self.ports.fast();
        tracing::info!("the interface {} is there again, and taken back", link.name);
        Ok(true)
    }

    /// The table that there is has lost its chain with the link.
    fn guard_again(&mut self, name: &str, index: u32) -> Result<()> {
        if self.guards_again.get(name).is_some_and(|(guarded, _)| *guarded == index) {
            return Ok(());
        }
        self.guards_again.remove(name);
        let mut plan = self.plan.clone();
        plan.links.retain(|link| link.name == name);
        let instance = format!("{}_{index}", self.instance.name);
        let (rules, table) = (guard::rules(&instance, &plan), guard::table_name(&instance));
        let guard = self.place.run(move || Nft::own(&rules, &format!("netdev {table}")))?;
        self.guards_again.insert(name.to_owned(), (index, guard));
        Ok(())
    }

    fn ask(&mut self, question: Question, reply: std::sync::mpsc::Sender<Asked>) {
        self.questions += 1;
        let id = self.questions;
        if let Question::Drain { address, within_ms } = &question
            && self.is_back_end(*address)
        {
            match within_ms {
                Some(ms) => {
                    self.drained.insert(*address, Instant::now() + Duration::from_millis(*ms))
                }
                None => self.drained.remove(address),
            };
        }
        // One that is just ending is not asked, and the questioner hears that nobody answers.
        if send_message(&self.forwarder.channel, &ToForwarder::Ask { id, question }, &[]).is_ok() {
            self.asked.insert(id, reply);
        }
    }

    /// A forwarder that is started again has the new rules, too.
    fn reload(&mut self) -> Result<Question> {
        let path = self.arguments.config.as_ref().context("the demo has no file")?;
        let ForwarderSetup { config, links, secret, .. } = &self.setup;
        let (config, plan) = reload::read_again(path, config, links, *secret)?;
        let setup = ForwarderSetup { config, ..self.setup.clone() };
        // Or else there would be no forwarder after the next restart.
        if serde_json::to_vec(&setup)?.len() > MESSAGE_BYTES_MAX {
            bail!("nothing is changed: {} is too long", path.display());
        }
        self.plan.config.rules = plan.config.rules;
        self.setup = setup;
        Ok(Question::Rules { config: self.setup.config.clone() })
    }

    fn is_back_end(&self, address: SocketAddr) -> bool {
        let mut back_ends = self.plan.config.services.iter().flat_map(|service| &service.back_ends);
        back_ends.any(|back_end| back_end.endpoint == address.into())
    }

    fn pass_on_health(&mut self) {
        let Some(health) = &mut self.health else { return };
        health.bell.hear();
        while let Ok(verdict) = health.told.try_recv() {
            let endpoint = self.plan.config.services[usize::from(verdict.chosen.service)].back_ends
                [usize::from(verdict.chosen.back_end)]
            .endpoint;
            if verdict.is_up {
                tracing::info!("back end {endpoint} is up: {}", verdict.reason);
            } else {
                tracing::warn!("back end {endpoint} is down: {}", verdict.reason);
            }
            tell_health(&self.forwarder, &verdict);
            health.verdicts.insert((verdict.chosen.service, verdict.chosen.back_end), verdict);
        }
    }

    /// True: the demo has shown everything.
    fn step_show(&mut self) -> Result<bool> {
        let Some(show) = &mut self.show else { return Ok(false) };
        match show.poll(Instant::now()) {
            show::Step::Wait => {}
            show::Step::Ask(reply) => self.ask(Question::Report, reply),
            show::Step::Mode(mode) => {
                self.mode = mode;
                self.attach()?;
            }
            show::Step::End => return Ok(true),
        }
        Ok(false)
    }

    fn wait(&self, signals: &Signals) -> Result<()> {
        let children = [&self.card, &self.forwarder];
        let files = children.iter().flat_map(|child| [child.as_fd(), child.channel.as_fd()]);
        let health = self.health.as_ref().map(|health| health.bell.as_fd());
        let files = files
            .chain(signals.files())
            .chain([self.orders.as_fd(), self.guard.as_fd(), self.watch.as_fd()])
            .chain(self.guards_again.values().map(|(_, guard)| guard.as_fd()))
            .chain(health);
        let mut files: Vec<PollFd<'_>> =
            files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let due = self.show.as_ref().map(Show::due).into_iter().chain(self.watch.due()).min();
        let limit = due.map(|due| due.saturating_duration_since(Instant::now()));
        let limit = limit.map(Timespec::try_from).transpose()?;
        match poll(&mut files, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn count_restart(&mut self) -> Result<()> {
        self.restarts.count(Instant::now(), "card and forwarder")
    }

    /// Another program's forwarder and card take the places of those at work, as they would if
    /// these had ended. Should that fail, those of the program before take theirs, and the inner
    /// result says why.
    fn upgrade(&mut self, program: PathBuf) -> Result<Result<(), String>> {
        let before = std::mem::replace(&mut self.program, program);
        let outcome = self.restart_forwarder().and_then(|()| self.restart_card());
        let Err(error) = outcome else { return Ok(Ok(())) };
        tracing::error!("{} does not take over: {error:#}", self.program.display());
        let why = format!(
            "{} does not take over, and the program before goes on: {error:#}",
            self.program.display()
        );
        self.program = before;
        self.restart_forwarder()?;
        self.restart_card()?;
        Ok(Err(why))
    }

    /// It takes its connections from the memory that the supervisor keeps.
    fn restart_forwarder(&mut self) -> Result<()> {
        self.asked.clear();
        // There is never more than one: both would write connections.
        self.forwarder.signal(Signal::KILL);
        self.forwarder.wait(START)?;
        self.forwarder = start_forwarder(
            &self.program,
            &self.setup,
            &self.kernel,
            &self.keep,
            &self.kernel_path,
        )?;
        if let Some(health) = &self.health {
            health.verdicts.values().for_each(|verdict| tell_health(&self.forwarder, verdict));
        }
        for (address, until) in &self.drained {
            let left = until.saturating_duration_since(Instant::now());
            let question =
                Question::Drain { address: *address, within_ms: Some(left.as_millis() as u64) };
            // Nobody waits for an answer with this number.
            let _ =
                send_message(&self.forwarder.channel, &ToForwarder::Ask { id: 0, question }, &[]);
        }
        if self.card.try_wait()?.is_none() { self.attach() } else { Ok(()) }
    }

    fn restart_card(&mut self) -> Result<()> {
        // The forwarder is told first: what it still sends would go nowhere.
        let _ = send_message(&self.forwarder.channel, &ToForwarder::Detach, &[]);
        let shared = Shared::create(&mut self.attachments, self.plan.memory)?;
        self.card.signal(Signal::KILL);
        self.card.wait(START)?;
        self.card_figures.handle_restart();
        self.card = start_card(
            &self.program,
            self.arguments,
            &self.plan,
            &self.place,
            (&self.kernel_path, &mut self.ports),
            &shared,
        )?;
        // One that ends meanwhile is started again with another attachment.
        let _ = attach(&self.forwarder, &shared, self.mode);
        Ok(())
    }

    /// One that was replaced meanwhile is of no interest.
    fn handle_broken(&mut self, attachment: Option<u64>) -> Result<()> {
        if !self.attachments.is_at_work(attachment) {
            return Ok(());
        }
        tracing::warn!("a new attachment");
        self.count_restart()?;
        self.attach()
    }

    /// A new attachment between the card and the forwarder that there are. Its window is new, too:
    /// the old card may still write to the old one.
    fn attach(&mut self) -> Result<()> {
        let shared = Shared::create(&mut self.attachments, self.plan.memory)?;
        let message = ToFirmware::Attach { attachment: Some(shared.number) };
        // Either may end meanwhile, and is started again with another one.
        let _ = send_message(&self.card.channel, &message, &shared.files())
            .and_then(|()| attach(&self.forwarder, &shared, self.mode));
        Ok(())
    }
}

fn find_place(arguments: &ForwardArgs, instance: &Instance) -> Result<(Place, String)> {
    if let Some(path) = &arguments.config {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        return Ok((Place::Here, text));
    }
    let net = instance.subnet.gateway().octets()[1];
    let stage = Stage::build(&instance.interface, net).context("cannot build the demo")?;
    let config = stage.config();
    Ok((Place::Demo(Box::new(stage)), config))
}

/// The kernel's tables, and the links that there are.
fn tables(place: &Place) -> Result<(Kernel, Vec<Link>)> {
    let opened = place.run(|| -> std::io::Result<(Kernel, Vec<Link>)> {
        let mut kernel = Kernel::open()?;
        let links = kernel.links()?;
        Ok((kernel, links))
    });
    opened.context("cannot ask the kernel for its interfaces")
}

fn has_message(socket: BorrowedFd<'_>) -> bool {
    let mut files = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    poll(&mut files, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
}
