//! What there is to see of a forwarder.

use std::collections::BTreeMap;
use std::fmt;

use nicache_counters::Counter;
use nicache_forward::counters::Counters;
use nicache_forward::engine::EngineCounters;
use serde::{Deserialize, Serialize};

/// Everything at one moment. Counters are since the start of the process, those of card and engine
/// since the last attachment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// How payload gets from a receive to a send.
    pub mode: String,
    /// Whether a card is there.
    pub is_attached: bool,
    /// Whether established connections are forwarded in the kernel.
    pub has_fast_path: bool,
    /// What the forwarder has done, by name ([`COUNTERS`]).
    pub counters: BTreeMap<String, u64>,
    /// Packets not passed on, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Bytes over the bus, by class.
    pub bus: BTreeMap<String, u64>,
    /// The card's cache.
    pub cache: CacheReport,
    /// Connections by state.
    pub connections: BTreeMap<String, u64>,
    /// Over the last second.
    pub rates: Rates,
    /// Interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// Services with their back ends.
    pub services: Vec<ServiceReport>,
    /// The connections that have moved most bytes.
    pub flows: Vec<FlowReport>,
}

/// The card's cache (Yocum and Chase 2001, Figures 3 and 4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheReport {
    /// Entries of 4 KiB.
    pub entries: u64,
    /// Free, or not worth keeping.
    pub unbound: u64,
    /// Sent, and goes next.
    pub victim: u64,
    /// Received and not sent.
    pub priority: u64,
    /// A receive or a send is under way.
    pub pending: u64,
    /// Share of payload bytes that were sent from the card, 0 to 1.
    pub hit_rate: f64,
}

/// What has happened in about a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Frames per second; a super-frame is one.
    pub frames: f64,
    /// Bits of payload per second that were sent on.
    pub bits: f64,
    /// Bytes over the bus per second.
    pub bus_bytes: f64,
    /// Connections begun per second.
    pub begun: f64,
}

/// An interface of the forwarder, as viewers are told of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// Its addresses, each with the length of the prefix.
    pub addresses: Vec<String>,
    /// Bytes of the longest IP packet.
    pub mtu: u32,
    /// Addresses that stand for inside ones here.
    pub masquerade: Vec<String>,
}

/// A service of the forwarder and its back ends, as viewers are told of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Its name.
    pub name: String,
    /// Protocol and address.
    pub address: String,
    /// Where the name is that a back end is chosen by: `sni` or `host`, if it is.
    #[serde(default)]
    pub by: Option<String>,
    /// Who answers.
    pub back_ends: Vec<BackEndReport>,
}

/// A back end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackEndReport {
    /// Where it listens.
    pub address: String,
    /// How much it gets, beside the others.
    pub weight: u16,
    /// `up`, `down` or `draining`.
    pub health: String,
    /// What the last check came to; empty without one.
    pub reason: String,
    /// Connections that it has.
    pub connections: u32,
    /// Names that it has; empty for a service by name: those that no other one has.
    #[serde(default)]
    pub names: Vec<String>,
}

/// A connection that is forwarded, for viewers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Addresses and ports of its first packet as it came in.
    pub original: String,
    /// Addresses and ports of its packets as they go out.
    pub outgoing: String,
    /// Where it stands.
    pub state: String,
    /// Packets, in the original direction and back.
    pub packets: [u64; 2],
    /// Bytes of IP.
    pub bytes: [u64; 2],
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// The back end, if a service chose one.
    pub back_end: Option<String>,
    /// The rule that it came under, counted from 1 as in the file.
    pub rule: Option<u32>,
    /// Its packets are forwarded in the kernel, in both directions.
    #[serde(default)]
    pub is_fast: bool,
    /// Its back end was chosen by name.
    #[serde(default)]
    pub is_by_name: bool,
}

impl FlowReport {
    /// Bytes in both directions.
    pub fn all_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// What is known of an address, or of one with a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhyReport {
    /// What was asked for.
    pub asked: String,
    /// Sentences, the most important one first.
    pub says: Vec<String>,
    /// Its connections, at most [`FLOWS_MAX`].
    pub flows: Vec<FlowReport>,
    /// All of its connections.
    pub count: u64,
}

/// Connections in a report at most.
pub const FLOWS_MAX: usize = 20;

nicache_counters::counters! {
    /// What is in [`Report::counters`] beside the counters of forwarder and engine. Those of the
    /// fast path are 0 without one.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RouterCounters {
        restored: "Connections taken over from a forwarder that had ended.",
        mappings: gauge "Inside endpoints that have an external port at the moment.",
        fast_packets: "Packets forwarded in the kernel (fast path); they are among those passed on.",
        fast_bytes: "Bytes of IP forwarded in the kernel.",
        fast_connections: gauge "Connections that are forwarded in the kernel at the moment.",
        fast_entered: "Connections handed to the kernel.",
        fast_voided: "How often all decisions handed to the kernel became void at once.",
        fast_unsent: "Packets that the kernel took and could not send.",
        fast_failed: "Calls of the kernel for the fast path that failed.",
        switch_half_open: gauge "Clients of services by name whose handshake is not complete at the moment.",
        switch_looking: gauge "Connections of services by name whose name has not come at the moment.",
        switch_opening: gauge "Connections of services by name whose back end has not acknowledged the first bytes at the moment.",
        queued: gauge "Frames that wait to be forwarded at the moment.",
        free_buffers: gauge "Buffers of main memory that nothing refers to at the moment.",
        under_way: gauge "Packets and fetches that the card is not done with at the moment.",
        routes: gauge "Routes at the moment.",
        neighbours: gauge "Neighbors that are known or asked for at the moment.",
    }
}

/// Counters of connections of services by name that were reset, and why that was.
const RESETS: [(&str, &str); 8] = [
    ("switch_malformed", "malformed"),
    ("switch_too_long", "too long"),
    ("switch_late", "late"),
    ("switch_unknown_name", "unknown name"),
    ("switch_no_back_end", "no back end up"),
    ("switch_refused", "refused"),
    ("switch_silent", "no answer"),
    ("switch_pushed_out", "pushed out"),
];

/// All counters of [`Report::counters`].
pub const COUNTERS: [&[Counter]; 3] =
    [Counters::COUNTERS, EngineCounters::COUNTERS, RouterCounters::COUNTERS];

impl Report {
    /// A counter by name; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Bytes over the bus for each byte of payload that was sent.
    pub fn bus_per_byte(&self) -> f64 {
        let sent = self.counter("card_bytes") + self.counter("memory_bytes");
        self.bus.values().sum::<u64>() as f64 / sent.max(1) as f64
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |name: &str| self.counter(name);
        let Rates { frames, bits, bus_bytes, begun } = self.rates;
        writeln!(
            f,
            "mode         {}{}",
            self.mode,
            if self.is_attached { "" } else { " (NO CARD)" }
        )?;
        writeln!(
            f,
            "now          {:.1} Mb/s of payload, {frames:.0} frames/s, {:.1} MB/s over the bus, {begun:.0} connections/s begun",
            bits / 1e6,
            bus_bytes / 1e6
        )?;
        let CacheReport { entries, unbound, victim, priority, pending, hit_rate } = &self.cache;
        writeln!(
            f,
            "payload      {:.1} % sent from the card, {:.2} bytes over the bus for each, {} entries spilled, {} packets lost",
            hit_rate * 100.0,
            self.bus_per_byte(),
            of("spilled"),
            of("lost")
        )?;
        writeln!(
            f,
            "cache        {entries} entries: {unbound} unbound, {victim} victim, {priority} priority, {pending} pending; {} frames queued",
            of("queued")
        )?;
        let states: Vec<String> = self
            .connections
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        let states = if states.is_empty() { "none".to_owned() } else { states.join(", ") };
        if self.has_fast_path {
            writeln!(
                f,
                "fast path    {} connections, {} packets with {} bytes forwarded in the kernel; {} handed over, {} times void",
                of("fast_connections"),
                of("fast_packets"),
                of("fast_bytes"),
                of("fast_entered"),
                of("fast_voided")
            )?;
        }
        writeln!(f, "connections  {states}; {} begun, {} mappings", of("begun"), of("mappings"))?;
        let drops: Vec<String> = self
            .dropped
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(why, count)| format!("{count} {why}"))
            .collect();
        writeln!(
            f,
            "dropped      {}",
            if drops.is_empty() { "none".to_owned() } else { drops.join(", ") }
        )?;
        let bus: Vec<String> =
            self.bus.iter().map(|(class, bytes)| format!("{bytes} {class}")).collect();
        writeln!(f, "bus bytes    {}", bus.join(", "))?;
        for interface in &self.interfaces {
            let masquerade = match interface.masquerade.as_slice() {
                [] => String::new(),
                some => format!(", masquerades as {}", some.join(", ")),
            };
            let InterfaceReport { name, addresses, mtu, .. } = interface;
            writeln!(f, "interface    {name}: {}, mtu {mtu}{masquerade}", addresses.join(", "))?;
        }
        if self.services.iter().any(|service| service.by.is_some()) {
            let resets: Vec<String> = RESETS
                .iter()
                .map(|(name, why)| (of(name), why))
                .filter(|(count, _)| *count > 0)
                .map(|(count, why)| format!("{count} {why}"))
                .collect();
            writeln!(
                f,
                "by name      {} accepted, {} chosen, {} spliced; waiting: {} handshakes, {} for a name, {} for a back end; {} cookies; reset: {}",
                of("switch_accepted"),
                of("switch_chosen"),
                of("switch_spliced"),
                of("switch_half_open"),
                of("switch_looking"),
                of("switch_opening"),
                of("switch_cookies_sent"),
                if resets.is_empty() { "none".to_owned() } else { resets.join(", ") }
            )?;
        }
        for service in &self.services {
            let by = service.by.as_ref().map_or_else(String::new, |by| format!(", by {by}"));
            writeln!(f, "service      {} at {}{by}", service.name, service.address)?;
            for BackEndReport { address, weight, health, reason, connections, names } in
                &service.back_ends
            {
                let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
                let names = match (names.as_slice(), &service.by) {
                    (_, None) => String::new(),
                    ([], Some(_)) => ", all other names".to_owned(),
                    (names, Some(_)) => format!(", {}", names.join(" ")),
                };
                writeln!(
                    f,
                    "  {address:<24} {health:<8} weight {weight}, {connections} connections{names}{reason}"
                )?;
            }
        }
        for flow in &self.flows {
            writeln!(f, "flow         {flow}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FlowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            original,
            outgoing,
            state,
            packets,
            bytes,
            age_ms,
            idle_ms,
            back_end,
            rule,
            is_fast,
            is_by_name,
        } = self;
        write!(f, "{original}")?;
        if original != outgoing {
            write!(f, ", leaves as {outgoing}")?;
        }
        write!(
            f,
            ": {state}, {} bytes in {} packets, back {} in {}",
            bytes[0], packets[0], bytes[1], packets[1]
        )?;
        write!(
            f,
            "; began {:.1} s ago, silent for {:.1} s",
            *age_ms as f64 / 1e3,
            *idle_ms as f64 / 1e3
        )?;
        if let Some(back_end) = back_end {
            write!(f, "; back end {back_end}{}", if *is_by_name { " by name" } else { "" })?;
        }
        if let Some(rule) = rule {
            write!(f, "; rule {rule}")?;
        }
        if *is_fast {
            write!(f, "; fast path")?;
        }
        Ok(())
    }
}

impl fmt::Display for WhyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.asked)?;
        self.says.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))?;
        self.flows.iter().try_for_each(|flow| writeln!(f, "  {flow}"))?;
        if self.count > self.flows.len() as u64 {
            writeln!(f, "  and {} more connections", self.count - self.flows.len() as u64)?;
        }
        Ok(())
    }
}
