//! What a router tells of itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use nicache_bus::BusClass;
use nicache_forward::Drop;
use nicache_forward::conntrack::{Connection, Phase};
use nicache_forward::note::Note;
use nicache_forward::pcache::{EntryId, Queue};
use nicache_forward::services::{Chosen, Health};
use nicache_forward::tcp_track::Direction;
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_tcp::Time;

use super::Router;
use crate::report::{
    BackEndReport, CacheReport, FLOWS_MAX, FlowReport, InterfaceReport, Report, RouterCounters,
    ServiceReport, WhyReport,
};

const PHASES: [(Phase, &str); 7] = [
    (Phase::Opening, "opening"),
    (Phase::Datagrams, "datagrams"),
    (Phase::Query, "query"),
    (Phase::Open, "open"),
    (Phase::Closing, "closing"),
    (Phase::TimeWait, "time_wait"),
    (Phase::Reset, "reset"),
];

fn phase_label(phase: Phase) -> &'static str {
    PHASES.iter().find(|(known, _)| *known == phase).map_or("", |(_, label)| label)
}

impl Router {
    /// Everything at this moment.
    pub fn report(&mut self, now: Time) -> Report {
        // One that slept has not looked at rates meanwhile.
        if now.since(self.before.0) >= super::TICK {
            self.tick(now);
        }
        let bus = self.bus();
        self.forwarder.catch_up_all();
        let forwarder = &self.forwarder;
        let counted = forwarder.counters();
        let mut counters = BTreeMap::new();
        let mut put = |name: &str, value: u64| {
            counters.insert(name.to_owned(), value);
        };
        for (counter, value) in counted.each() {
            put(counter.name, value);
        }
        let [switch_half_open, switch_looking, switch_opening] =
            forwarder.waiting_counts().map(u64::from);
        let mut own = RouterCounters {
            restored: self.restored,
            mappings: forwarder.nat().len() as u64,
            routes: forwarder.routes().iter().count() as u64,
            neighbours: forwarder.neighbours().len() as u64,
            switch_half_open,
            switch_looking,
            switch_opening,
            ..RouterCounters::default()
        };
        let fast = forwarder.fast_counters();
        if let Some(fast) = &fast {
            own.fast_packets = fast.packets;
            own.fast_bytes = fast.bytes;
            own.fast_connections = fast.connections;
            own.fast_entered = fast.entered;
            own.fast_voided = fast.voided;
            own.fast_unsent = fast.unsent;
            own.fast_failed = fast.failed;
        }
        let mut cache = CacheReport::default();
        if let Some(engine) = &self.engine {
            let done = engine.counters();
            for (counter, value) in done.each() {
                put(counter.name, value);
            }
            own.queued = engine.queued() as u64;
            own.free_buffers = engine.free_buffers() as u64;
            own.under_way = engine.under_way() as u64;
            let pcache = engine.pcache();
            let entries = u64::from(pcache.entries());
            let of = |queue| u64::from(pcache.len(queue));
            let queued = [Queue::Unbound, Queue::Victim, Queue::Priority].map(of);
            cache = CacheReport {
                entries,
                unbound: queued[0],
                victim: queued[1],
                priority: queued[2],
                pending: entries - queued.iter().sum::<u64>(),
                hit_rate: done.card_bytes as f64
                    / (done.card_bytes + done.memory_bytes).max(1) as f64,
            };
            debug_assert!(entries == 0 || pcache.queue(EntryId(0)).is_some() || cache.pending > 0);
        }
        for (counter, value) in own.each() {
            put(counter.name, value);
        }
        Report {
            mode: self.mode.to_string(),
            is_attached: self.engine.is_some(),
            has_fast_path: fast.is_some(),
            counters,
            dropped: Drop::ALL.map(|why| (why.label().to_owned(), counted.dropped_for(why))).into(),
            bus: BusClass::ALL.map(|class| (class.label().to_owned(), bus.of(class))).into(),
            cache,
            connections: PHASES
                .map(|(phase, label)| {
                    (label.to_owned(), u64::from(forwarder.connections().count(phase)))
                })
                .into(),
            rates: self.rates,
            interfaces: self.interfaces(),
            services: self.services(),
            flows: self.flows(now, |_| true).0,
        }
    }

    fn interfaces(&self) -> Vec<InterfaceReport> {
        let report = |(interface, named): (
            &nicache_forward::interface::Interface,
            &crate::config::Interfaced,
        )| {
            let external = |number: &usize| {
                self.forwarder.nat().external(*number).map(|it| it.address.to_string())
            };
            InterfaceReport {
                name: named.name.clone(),
                addresses: interface
                    .addresses
                    .iter()
                    .map(|(address, len)| format!("{address}/{len}"))
                    .collect(),
                mtu: interface.mtu,
                masquerade: interface.masquerade.iter().filter_map(external).collect(),
            }
        };
        self.forwarder.interfaces().iter().zip(&self.plan.interfaces).map(report).collect()
    }

    fn services(&self) -> Vec<ServiceReport> {
        let services = self.forwarder.services();
        let back_end = |service: usize, place: usize| {
            let chosen = Chosen { service: service as u16, back_end: place as u16 };
            let health = match services.health(chosen) {
                Health::Up => "up",
                Health::Down => "down",
                Health::Draining { .. } => "draining",
            };
            BackEndReport {
                address: services.endpoint(chosen).to_string(),
                weight: services.config(service).back_ends[place].weight,
                health: health.to_owned(),
                reason: self
                    .reasons
                    .get(&(chosen.service, chosen.back_end))
                    .cloned()
                    .unwrap_or_default(),
                connections: services.connections(chosen),
                names: self.plan.names_of(service, place),
            }
        };
        let report = |(number, name): (usize, &String)| {
            let config = services.config(number);
            ServiceReport {
                name: name.clone(),
                address: format!("{} {}", config.protocol, config.address),
                by: config.by_name.as_ref().map(|by_name| by_name.by.to_string()),
                back_ends: (0..config.back_ends.len())
                    .map(|place| back_end(number, place))
                    .collect(),
            }
        };
        self.plan.services.iter().enumerate().map(report).collect()
    }

    fn flow(&self, connection: &Connection<Note>, now: Time) -> FlowReport {
        let note = &connection.note;
        let ms = |at: Time| now.since(at).as_millis() as u64;
        FlowReport {
            original: connection.incoming(Direction::Original).to_string(),
            outgoing: connection.outgoing(Direction::Original).to_string(),
            state: phase_label(connection.phase()).to_owned(),
            packets: note.packets,
            bytes: note.bytes,
            age_ms: ms(note.begun),
            idle_ms: ms(connection.touched()),
            back_end: note
                .back_end()
                .map(|chosen| self.forwarder.services().endpoint(chosen).to_string()),
            rule: note.rule().map(|rule| u32::from(rule) + 1),
            is_fast: self.forwarder.is_fast(note),
            is_by_name: note.is_switched(),
        }
    }

    /// Of the connections that are wanted, those that have moved most bytes, and how many are
    /// wanted in all.
    fn flows(
        &self,
        now: Time,
        wanted: impl Fn(&Connection<Note>) -> bool,
    ) -> (Vec<FlowReport>, u64) {
        // The least of those that are kept is in front.
        let mut most = std::collections::BinaryHeap::new();
        let mut count = 0;
        for (id, connection) in
            self.forwarder.connections().iter().filter(|(_, connection)| wanted(connection))
        {
            count += 1;
            let bytes: u64 = connection.note.bytes.iter().sum();
            most.push(std::cmp::Reverse((bytes, id.0)));
            if most.len() > FLOWS_MAX {
                most.pop();
            }
        }
        let ids = most.into_sorted_vec().into_iter().map(|std::cmp::Reverse((_, id))| id);
        let connection =
            |id| self.forwarder.connections().get(nicache_forward::conntrack::ConnectionId(id));
        (ids.filter_map(connection).map(|connection| self.flow(connection, now)).collect(), count)
    }

    /// What is known of an address (port 0: whatever the port).
    pub fn why(&mut self, asked: SocketAddr, now: Time) -> WhyReport {
        self.forwarder.catch_up_all();
        let address = asked.ip();
        let is_it = |end: Endpoint| {
            end.address == address && (asked.port() == 0 || end.port == asked.port())
        };
        let (flows, count) = self.flows(now, |connection| {
            let ends = [
                connection.incoming(Direction::Original),
                connection.outgoing(Direction::Original),
            ];
            ends.iter().any(|tuple| is_it(tuple.source) || is_it(tuple.destination))
        });
        let mut says = Vec::new();
        self.say_services(&mut says, is_it);
        self.say_waiting(&mut says, is_it);
        if asked.port() != 0 {
            self.say_mappings(&mut says, asked.into());
        }
        self.say_way(&mut says, address, now);
        if count == 0 {
            says.push("It has no connection at this moment.".to_owned());
        }
        let shown = if asked.port() == 0 { address.to_string() } else { asked.to_string() };
        WhyReport { asked: shown, says, flows, count }
    }

    fn say_services(&self, says: &mut Vec<String>, is_it: impl Fn(Endpoint) -> bool) {
        for service in self.services().iter().zip(0..).filter_map(|(report, number)| {
            let config = self.forwarder.services().config(number);
            let back_end = |place: usize| is_it(config.back_ends[place].endpoint);
            Some(if is_it(config.address) {
                let up =
                    report.back_ends.iter()
                        .filter(|back_end| back_end.health == "up" && back_end.weight > 0).count();
                let all = report.back_ends.len();
                let advice = if up == 0 { ": new connections are refused until one is up" } else { "" };
                let by = match report.by.as_deref() {
                    Some("sni") => " Which one answers depends on the name in the TLS ClientHello.",
                    Some(_) => " Which one answers depends on the host of the first request.",
                    None => "",
                };
                format!(
                    "It is the address of the service {}, of whose {all} back ends {up} are up{advice}.{by}",
                    report.name
                )
            } else {
                let place = (0..report.back_ends.len()).find(|place| back_end(*place))?;
                let BackEndReport { health, reason, connections, names, .. } =
                    &report.back_ends[place];
                let reason = if reason.is_empty() { "it is not checked" } else { reason };
                let names = match (names.as_slice(), &report.by) {
                    (_, None) => String::new(),
                    ([], Some(_)) => " It has all names that no other one has.".to_owned(),
                    (names, Some(_)) => format!(" It has the names {}.", names.join(", ")),
                };
                format!(
                    "It is a back end of the service {}, and {health} ({reason}), with {connections} connections.{names}",
                    report.name
                )
            })
        }) {
            says.push(service);
        }
    }

    fn say_waiting(&self, says: &mut Vec<String>, is_it: impl Fn(Endpoint) -> bool) {
        let all = self
            .forwarder
            .waiting()
            .filter(|(tuple, _)| is_it(tuple.source) || is_it(tuple.destination));
        for (tuple, waiting) in all.take(FLOWS_MAX) {
            says.push(format!(
                "The connection {tuple} of the service {} waits for {}; {} bytes have come.",
                self.plan.services[usize::from(waiting.service)],
                waiting.state,
                waiting.bytes
            ));
        }
    }

    fn say_mappings(&self, says: &mut Vec<String>, end: Endpoint) {
        let nat = self.forwarder.nat();
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            if let Some(mapping) = nat.find_external(protocol, end).and_then(|id| nat.get(id)) {
                says.push(format!(
                    "From outside, {protocol} to it leads to {} inside.",
                    mapping.internal
                ));
            }
            let mut numbers = (0..).map_while(|number| nat.external(number).map(|_| number));
            let found =
                numbers.find_map(|through| nat.get(nat.find_internal(protocol, end, through)?));
            if let Some(mapping) = found {
                says.push(format!("Outside it is seen as {protocol} {}.", mapping.external));
            }
        }
    }

    fn say_way(&self, says: &mut Vec<String>, address: IpAddr, _now: Time) {
        if self.forwarder.is_ours(address) {
            says.push("The address is the forwarder's own.".to_owned());
            return;
        }
        let Some(route) = self.forwarder.routes().find(address) else {
            says.push(
                "No route leads there by an interface of the forwarder: senders are told that it is unreachable. `ip route add` gives it one."
                    .to_owned(),
            );
            return;
        };
        let name = &self.plan.interfaces[route.interface].name;
        let next = route.gateway.unwrap_or(address);
        let way = match route.gateway {
            Some(gateway) => format!("by the router {gateway}"),
            None => "on the link itself".to_owned(),
        };
        let mac = match self.forwarder.neighbours().find(route.interface, next) {
            Some([a, b, c, d, e, f]) => {
                format!("{next} is {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
            }
            None => format!(
                "{next} has not told its MAC address: frames wait a second for it, and are dropped then"
            ),
        };
        says.push(format!("The route {} leads there by {name}, {way}; {mac}.", route.to));
    }
}
