//! Engine, forwarder and the kernel's tables, in one loop that its process turns.
//!
//! The card can be another one at any time ([`Router::attach`]): what was under way is lost, as on
//! a wire, and connections go on.

mod following;
mod looking;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nicache_bus::{BusCounters, HostSide, Peer, Presence, Window};
use nicache_forward::Forwarder;
use nicache_forward::backend::Broken;
use nicache_forward::bus::Bus;
use nicache_forward::engine::{Engine, EngineConfig};
use nicache_forward::fast_path::FastPath;
use nicache_forward::modes::Mode;
use nicache_forward::nat::MappingError;
use nicache_forward::rules::Rule;
use nicache_forward::services::{Chosen, Health};
use nicache_tcp::Time;

use crate::config::Plan;
use crate::keep::{Keep, Keeper};
use crate::kernel::Kernel;
use crate::report::Rates;

/// Bytes of an entry.
const ENTRY_BYTES: u32 = 4096;
/// Receives that are posted at once at most: half of the ring.
const POSTS_MAX: u32 = 512;
/// Frames that wait to be forwarded at most: the paper's bound (section 5).
const QUEUE: usize = 400;
/// Buffers of main memory beside those that the card's cache has copies of.
const BUFFERS_BESIDE: u32 = 2048;
/// Frames that are forwarded before commands are looked at again.
const BATCH: usize = 64;
/// How long news of the kernel are gathered before its tables are read.
const NEWS_GATHER: Duration = Duration::from_millis(50);
/// Between two readings of them at least: neighbours come and go all the time.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// Between two looks at rates.
const TICK: Duration = Duration::from_secs(1);
/// Turns between two looks whether there is news.
const TURNS_PER_LOOK: u32 = 256;

/// Buffers of main memory, for a cache of so many bytes.
pub fn buffers(memory: u32) -> u32 {
    memory / ENTRY_BYTES + BUFFERS_BESIDE
}

/// Bytes of the window that a card and a router share.
pub fn window_bytes(memory: u32) -> usize {
    Bus::window_bytes(buffers(memory)) as usize
}

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    frames: u64,
    bytes: u64,
    bus: u64,
    begun: u64,
}

/// Engine, forwarder and the kernel's tables, in one loop that its process turns. The card can be
/// another one at any time ([`Router::attach`]).
#[derive(Debug)]
pub struct Router {
    plan: Plan,
    mode: Mode,
    engine: Option<Engine<Bus>>,
    forwarder: Forwarder,
    kernel: Kernel,
    /// When the kernel's tables are read again.
    read_at: Option<Time>,
    read_last: Option<Time>,
    permanent: HashSet<(usize, IpAddr)>,
    reasons: BTreeMap<(u16, u16), String>,
    keeper: Option<Keeper>,
    restored: u64,
    turns: u32,
    before: (Time, Totals),
    rates: Rates,
}

impl Router {
    /// Without a card. Connections that `keep` has are taken over.
    ///
    /// # Errors
    /// The plan's forwarded ports contradict each other.
    pub fn new(
        plan: Plan,
        kernel: Kernel,
        keep: Option<Keep>,
        now: Time,
    ) -> Result<Self, MappingError> {
        let mut forwarder = Forwarder::new(plan.config.clone(), now)?;
        let (keeper, restored) = match keep {
            None => (None, 0),
            Some(keep) => {
                let (keeper, restored) = Keeper::take_over(keep, &mut forwarder, now);
                (Some(keeper), restored)
            }
        };
        Ok(Self {
            mode: plan.mode,
            engine: None,
            forwarder,
            kernel,
            read_at: Some(now),
            read_last: None,
            permanent: HashSet::new(),
            reasons: BTreeMap::new(),
            keeper,
            restored,
            turns: 0,
            before: (now, Totals::default()),
            rates: Rates::default(),
            plan,
        })
    }

    /// A card, at a new attachment, with a window of [`window_bytes`] that nobody else uses.
    pub fn attach(&mut self, side: HostSide, window: Arc<Window>, mode: Mode) {
        let (buffers, entries) = (buffers(self.plan.memory), self.plan.memory / ENTRY_BYTES);
        let posts = POSTS_MAX.min(entries / 2).max(16);
        let setup =
            EngineConfig { mode, order: self.plan.order, entries, buffers, posts, queue: QUEUE };
        self.mode = mode;
        self.engine = Some(Engine::new(Bus::new(side, window, buffers), setup));
        let fast = self.forwarder.fast_counters().unwrap_or_default();
        let (frames, bytes) = (fast.packets, fast.bytes);
        self.before.1 = Totals { begun: self.before.1.begun, frames, bytes, bus: 0 };
    }

    /// Established connections are forwarded elsewhere from now on.
    ///
    /// # Errors
    /// What the system says; then they are not.
    pub fn set_fast_path(&mut self, path: Box<dyn FastPath>, now: Time) -> io::Result<()> {
        self.forwarder.set_fast_path(path, now)
    }

    /// The card is gone.
    pub fn detach(&mut self) {
        self.engine = None;
    }

    /// Another list of rules, also for connections that are there.
    pub fn set_rules(&mut self, rules: Vec<Rule>, now: Time) {
        self.plan.config.rules.clone_from(&rules);
        self.forwarder.set_rules(rules, now);
    }

    /// A health check's verdict. A back end that is drained stays so; the verdict counts also then.
    pub fn set_health(&mut self, chosen: Chosen, is_up: bool, reason: String) {
        let Some(service) = self.plan.config.services.get(usize::from(chosen.service)) else {
            return;
        };
        if usize::from(chosen.back_end) >= service.back_ends.len() {
            return;
        }
        self.forwarder.set_answers(chosen, is_up);
        self.reasons.insert((chosen.service, chosen.back_end), reason);
    }

    /// Back ends at an address get no new connections, and lose what they have after a time; or
    /// they get connections again, if they answer. Returns how many back ends these are.
    pub fn drain(
        &mut self,
        address: std::net::SocketAddr,
        within: Option<Duration>,
        now: Time,
    ) -> usize {
        let mut count = 0;
        for (service, config) in self.plan.config.services.iter().enumerate() {
            for (place, back_end) in config.back_ends.iter().enumerate() {
                if back_end.endpoint == address.into() {
                    let chosen = Chosen { service: service as u16, back_end: place as u16 };
                    let health = match within {
                        Some(within) => Health::Draining { until: now + within },
                        // As the last health check has found it.
                        None => self.forwarder.services().health_without_drain(chosen),
                    };
                    self.forwarder.set_health(chosen, health);
                    count += 1;
                }
            }
        }
        count
    }

    /// One turn: what came, what is to be sent, what is over. Returns how much was done.
    ///
    /// # Errors
    /// The card is broken, and is detached.
    pub fn turn(&mut self, now: Time, random: impl FnMut() -> u32) -> Result<usize, Broken> {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(TURNS_PER_LOOK) {
            self.look_for_news(now);
        }
        if self.read_at.is_some_and(|at| at <= now) {
            (self.read_at, self.read_last) = (None, Some(now));
            // The tables that were there before go on to count.
            if self.read_tables(now).is_err() {
                self.read_at = Some(now + TICK);
            }
        }
        let mut done = usize::from(self.forwarder.expire(now));
        let outcome = match &mut self.engine {
            None => Ok(0),
            Some(engine) => {
                engine.poll().and_then(|()| engine.forward(&mut self.forwarder, BATCH, now, random))
            }
        };
        if let Some(keeper) = &mut self.keeper {
            keeper.write(&mut self.forwarder, now);
        }
        if now.since(self.before.0) >= TICK {
            self.tick(now);
        }
        match outcome {
            Ok(count) => {
                done += count;
                Ok(done)
            }
            Err(error) => {
                self.detach();
                Err(error)
            }
        }
    }

    /// Asks for bells before it sleeps. False: there is something to do.
    ///
    /// # Errors
    /// The card is broken, and is detached.
    pub fn prepare_sleep(&mut self, now: Time) -> Result<bool, Broken> {
        self.look_for_news(now);
        let Some(engine) = &mut self.engine else { return Ok(true) };
        engine.prepare_sleep(&self.forwarder).inspect_err(|_| self.engine = None)
    }

    /// Whether the card runs on this processor, and has something to do.
    pub fn is_beside_card(&mut self) -> bool {
        self.presence().is_some_and(|presence| presence.pause() == Peer::Here)
    }

    /// Where this process runs, for the card.
    pub fn presence(&mut self) -> Option<&Presence> {
        Some(&self.engine.as_mut()?.backend().side().presence)
    }

    /// What wakes it: the card's bell, and the kernel's news.
    pub fn files(&mut self) -> Vec<BorrowedFd<'_>> {
        let news = self.kernel.news();
        let bell = self.engine.as_mut().map(|engine| engine.backend().side().bell.as_fd());
        std::iter::once(news).chain(bell).collect()
    }

    /// When there is something to do, if nothing comes before.
    pub fn next_due(&self) -> Option<Time> {
        // Connections that are forwarded elsewhere are looked after also when nothing comes here.
        let tick = self
            .forwarder
            .fast_counters()
            .filter(|fast| fast.connections > 0)
            .map(|_| self.before.0 + TICK);
        let waiting = self.engine.as_ref().and_then(Engine::next_due);
        self.forwarder.next_due().into_iter().chain(waiting).chain(self.read_at).chain(tick).min()
    }

    fn look_for_news(&mut self, now: Time) {
        if self.kernel.has_news() {
            let again = self.read_last.map_or(now, |last| last + READ_AGAIN);
            self.read_at.get_or_insert_with(|| (now + NEWS_GATHER).max(again));
        }
    }

    fn bus(&mut self) -> BusCounters {
        self.engine
            .as_mut()
            .map_or_else(BusCounters::default, |engine| engine.backend().side().counted.read())
    }

    fn tick(&mut self, now: Time) {
        self.forwarder.sweep(now);
        let bus = self.bus().total();
        let fast = self.forwarder.fast_counters().unwrap_or_default();
        let engine = self.engine.as_ref().map(|engine| *engine.counters()).unwrap_or_default();
        let totals = Totals {
            frames: engine.received + fast.packets,
            bytes: engine.card_bytes + engine.memory_bytes + fast.bytes,
            bus,
            begun: self.forwarder.counters().begun,
        };
        let (then, before) = std::mem::replace(&mut self.before, (now, totals));
        let seconds = now.since(then).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        self.rates = Rates {
            frames: rate(totals.frames, before.frames),
            bits: rate(totals.bytes, before.bytes) * 8.0,
            bus_bytes: rate(totals.bus, before.bus),
            begun: rate(totals.begun, before.begun),
        };
    }
}

#[cfg(test)]
mod tests {
    use nicache_forward::tuple::Protocol;

    use super::*;
    use crate::kernel::Link;

    /// A verdict that comes while a back end is drained is not forgotten.
    #[test]
    fn a_back_end_is_taken_back_as_it_is() {
        let link = Link {
            name: "eth0".to_owned(),
            index: 2,
            mac: [2, 0, 0, 0, 0, 2],
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            addresses: vec![([10, 1, 0, 1].into(), 24)],
        };
        let file = "[[interface]]\nname = \"eth0\"\n\
                    [[service]]\nprotocol = \"udp\"\naddress = \"10.1.0.1:53\"\n\
                    [[service.back-end]]\naddress = \"10.1.0.2:53\"";
        let plan = Plan::make(file, &[link], 1).unwrap();
        let Ok(kernel) = Kernel::open() else { return };
        let mut router = Router::new(plan, kernel, None, Time::ZERO).unwrap();
        let chosen = Chosen { service: 0, back_end: 0 };
        let address = "10.1.0.2:53".parse().unwrap();
        let health = |router: &Router| router.forwarder.services().health(chosen);
        let until = Time::ZERO + TICK;
        for (is_up, after) in [(false, Health::Down), (true, Health::Up)] {
            assert_eq!(router.drain(address, Some(TICK), Time::ZERO), 1);
            router.set_health(chosen, is_up, "told".to_owned());
            assert_eq!(health(&router), Health::Draining { until });
            let must_leave =
                router.forwarder.services().must_leave(chosen, Protocol::Udp, Time::ZERO);
            assert_eq!(must_leave, !is_up);
            assert_eq!(router.drain(address, None, Time::ZERO), 1);
            assert_eq!(health(&router), after);
        }
    }
}
