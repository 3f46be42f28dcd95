//! A file and the machine's links, made into what the forwarder takes.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use nicache_forward::Config;
use nicache_forward::conntrack::Limits;
use nicache_forward::fan_out::Group;
use nicache_forward::first_bytes::By;
use nicache_forward::interface::Interface;
use nicache_forward::maglev::BACK_ENDS_MAX;
use nicache_forward::modes::Mode;
use nicache_forward::names::{Names, Pattern};
use nicache_forward::nat::{External, Filtering, Forwarded};
use nicache_forward::pcache::Order;
use nicache_forward::routes::Route;
use nicache_forward::rules::{Action, Rule};
use nicache_forward::services::{BackEnd, ByName, Chosen, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_tcp::frame::Tags;
use toml::Spanned;

use super::endpoints::{Endpoints, Part};
use super::error::{ConfigError, line_of};
use super::file::{
    ActionText, ByText, CheckKind, CheckText, File, GroupText, InterfaceText, Masquerade, RuleText,
    ServiceText, parse,
};
use super::taps::{TapPlan, beside, tap_of};
use super::values::{Address, Kept, LinkPortKind, Named, Ports, Socket, Transport, Word};
use crate::kernel::Link;

/// Source ports of the health checks, which no connection through the forwarder gets.
pub const OWN_PORTS: RangeInclusive<u16> = 900..=999;
/// Memory of the card for payload, unless the file says otherwise.
const MEMORY_BYTES: u64 = 4 << 20;
const MEMORY_BYTES_MIN: u64 = 256 << 10;
const MEMORY_BYTES_MAX: u64 = 2 << 30;
/// Connections at most: [`nicache_forward::Config::limits`] says what they cost.
const CONNECTIONS: u32 = 65_536;
const CONNECTIONS_MAX: u32 = 4 << 20;
/// Ports of a card: two fewer than the files that it can wait for ([`nicache_port::WAIT_FDS_MAX`]).
const PORTS_MAX: usize = nicache_port::WAIT_FDS_MAX - 2;
/// Ports that masquerading gives out: those below are for programs that this machine's users know
/// by their numbers.
const MASQUERADE_PORTS: RangeInclusive<u16> = 1024..=65_535;
/// The least that IPv6 takes (RFC 8200 section 5) is more than that of IPv4 (RFC 791).
const MTU_MIN: u32 = 576;

/// How a back end is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckWay {
    /// A connection is accepted.
    Tcp,
    /// A request is answered.
    Http {
        /// What is asked for.
        path: String,
        /// The `Host` of the request.
        host: String,
        /// The status of the answer; any from 200 to 399, if it is not said.
        status: Option<u16>,
    },
}

/// A health check of one back end.
#[derive(Clone, Debug)]
pub struct Check {
    /// The back end.
    pub chosen: Chosen,
    /// Where it is asked.
    pub target: SocketAddr,
    /// How it is asked.
    pub way: CheckWay,
    /// Between two checks.
    pub every: Duration,
    /// For an answer.
    pub timeout: Duration,
    /// So many good answers bring it up.
    pub rise: u32,
    /// So many bad ones bring it down.
    pub fall: u32,
}

/// An interface of the forwarder on this machine.
#[derive(Clone, Debug)]
pub struct Interfaced {
    /// For figures: `eth0`, or `eth0.7`.
    pub name: String,
    /// The kernel's interface.
    pub link: String,
    /// Its number there.
    pub index: u32,
    /// The VLAN of its frames, if they have a tag.
    pub vlan: Option<u16>,
    /// Ports that stay with this machine.
    pub keep: Vec<Kept>,
    /// The addresses are the kernel's.
    pub has_own_addresses: bool,
    /// What the file says of the longest IP packet; if nothing, it is what the link takes.
    pub mtu: Option<u32>,
}

/// A link of the kernel's, on which the card has a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linking {
    /// The kernel's interface.
    pub name: String,
    /// Its number there; 0: it is still to be made.
    pub index: u32,
    /// By what the card is on it.
    pub port: LinkPortKind,
    /// What a TAP is to be like.
    pub tap: Option<TapPlan>,
}

/// What follows from a file on this machine.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the forwarder takes.
    pub config: Config,
    /// How payload gets from a receive to a send.
    pub mode: Mode,
    /// Bytes of the card's cache.
    pub memory: u32,
    /// Which entry of a queue goes first.
    pub order: Order,
    /// The kernel's interfaces, in the order of the card's ports.
    pub links: Vec<Linking>,
    /// The forwarder's interfaces, in the order of its numbers.
    pub interfaces: Vec<Interfaced>,
    /// Names of services, in their order.
    pub services: Vec<String>,
    /// Of each service the names that its back ends have, as they are written.
    pub names: Vec<Vec<Vec<String>>>,
    /// Health checks.
    pub checks: Vec<Check>,
    /// Whether the kernel's routes are used.
    pub kernel_routes: bool,
}

/// Takes a file's parts in turn.
struct Maker<'a> {
    source: &'a str,
    links: &'a [Link],
    plan: Plan,
    endpoints: Endpoints,
    /// Where masquerading with each external address is written.
    masquerades: Vec<Range<usize>>,
}

impl Plan {
    /// From a file's text, the machine's links, and a number that nobody else knows. A TAP may be
    /// among the links, or still to be made.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn make(source: &str, links: &[Link], secret: u64) -> Result<Self, ConfigError> {
        let file = parse(source)?;
        let mut config = Config::new(Vec::new(), secret);
        config.limits = Limits { connections: CONNECTIONS, opening: CONNECTIONS / 4 };
        config.left_alone.push((Protocol::Tcp, OWN_PORTS));
        let plan = Self {
            config,
            mode: file.mode.map_or(Mode::Adaptive, |Word(mode)| mode),
            memory: MEMORY_BYTES as u32,
            order: file.order.map_or(Order::Mru, |Word(order)| order),
            links: Vec::new(),
            interfaces: Vec::new(),
            services: Vec::new(),
            names: Vec::new(),
            checks: Vec::new(),
            kernel_routes: file.kernel_routes.unwrap_or(true),
        };
        let (endpoints, masquerades) = (Endpoints::default(), Vec::new());
        let mut maker = Maker { source, links, plan, endpoints, masquerades };
        maker.sizes(&file)?;
        if file.interfaces.is_empty() {
            return Err(maker.error(
                0..0,
                "no interface: write [[interface]] and name = \"eth0\" for each one",
            ));
        }
        file.interfaces.iter().try_for_each(|interface| maker.interface(interface, &file))?;
        maker.keep();
        file.routes.iter().try_for_each(|route| maker.route(route))?;
        file.forwarded.iter().try_for_each(|forwarded| maker.forwarded(forwarded.get_ref()))?;
        file.services.iter().try_for_each(|service| maker.service(service))?;
        file.groups.iter().try_for_each(|group| maker.group(group.get_ref()))?;
        maker.endpoints.look_at_targets(source)?;
        file.rules.iter().try_for_each(|rule| maker.rule(rule))?;
        Ok(maker.plan)
    }

    /// Names that a back end of a service has, as they are written.
    pub fn names_of(&self, service: usize, back_end: usize) -> Vec<String> {
        self.names.get(service).and_then(|names| names.get(back_end)).cloned().unwrap_or_default()
    }
}

impl Maker<'_> {
    fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.source, span, message)
    }

    fn sizes(&mut self, file: &File) -> Result<(), ConfigError> {
        if let Some(memory) = &file.memory {
            let bytes = memory.get_ref().0.0;
            if !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&bytes) {
                return Err(self.error(memory.span(), "memory is from 256K to 2G"));
            }
            self.plan.memory = bytes as u32;
        }
        if let Some(connections) = &file.connections {
            let count = *connections.get_ref();
            if !(64..=CONNECTIONS_MAX).contains(&count) {
                return Err(self.error(
                    connections.span(),
                    format!("connections are from 64 to {CONNECTIONS_MAX}"),
                ));
            }
            self.plan.config.limits = Limits { connections: count, opening: count / 4 };
        }
        Ok(())
    }

    fn interface(&mut self, text: &Spanned<InterfaceText>, file: &File) -> Result<(), ConfigError> {
        let (span, text) = (text.span(), text.get_ref());
        let name = text.name.get_ref();
        let tap = tap_of(self.source, text, file)?;
        let found = self.links.iter().find(|link| link.name == *name).cloned();
        let Some(link) = found.or_else(|| tap.as_ref().map(|tap| tap.to_be_made(name))) else {
            let known: Vec<&str> =
                self.links.iter().map(|link| &*link.name).filter(|name| *name != "lo").collect();
            let message = format!(
                "this machine has no interface `{name}`; it has {} (nicache makes one only with port = \"tap\")",
                known.join(", ")
            );
            return Err(self.error(text.name.span(), message));
        };
        let link = &link;
        if !link.is_ethernet {
            let message = format!(
                "`{name}` is not an Ethernet interface: the forwarder needs one with a MAC address"
            );
            return Err(self.error(text.name.span(), message));
        }
        let (tags, label) = match &text.vlan {
            None => (Tags::default(), name.clone()),
            Some(vlan) => {
                let number = *vlan.get_ref();
                if !(1..=4094).contains(&number) {
                    return Err(self.error(vlan.span(), "a VLAN has a number from 1 to 4094"));
                }
                let bytes = [0x81, 0, (number >> 8) as u8, number as u8];
                (Tags::from_bytes(&bytes).expect("one tag"), format!("{name}.{number}"))
            }
        };
        if self.plan.interfaces.iter().any(|other| other.name == label) {
            return Err(self.error(
                text.name.span(),
                format!("`{label}` is there twice: one [[interface]] is enough"),
            ));
        }
        let has_own_addresses = text.addresses.is_empty();
        // Those of a TAP's kernel side are another station's.
        let addresses: Vec<(IpAddr, u8)> = if has_own_addresses
            && text.vlan.is_none()
            && tap.is_none()
        {
            // Those of a link alone lead nowhere, and this machine goes on to answer for them.
            link.addresses.iter().copied().filter(|(address, _)| !is_link_local(*address)).collect()
        } else {
            text.addresses
                .iter()
                .map(|address| (address.get_ref().0.0, address.get_ref().0.1))
                .collect()
        };
        if addresses.is_empty() {
            let or = if tap.is_some() { "" } else { ", or give it one with `ip address add`" };
            let message =
                format!("`{label}` has no address: write addresses = [\"10.1.0.1/24\"]{or}");
            return Err(self.error(span, message));
        }
        for (place, (address, _)) in addresses.iter().enumerate() {
            let written = text.addresses.get(place).map(Spanned::span);
            self.endpoints.address(self.source, *address, &label, written, span.clone())?;
        }
        let kind = text.port.as_ref().map_or_else(LinkPortKind::default, |port| port.get_ref().0);
        let port = match self.plan.links.iter().position(|other| other.name == *name) {
            Some(port) => {
                let other = &self.plan.links[port];
                if other.port != kind {
                    let message = format!(
                        "`{name}` has port = \"{}\" in another [[interface]]: write the same one for all VLANs of a link",
                        other.port
                    );
                    return Err(self.error(text.port.as_ref().map_or(span, Spanned::span), message));
                }
                port
            }
            None if self.plan.links.len() == PORTS_MAX => {
                return Err(self.error(
                    span,
                    format!("more than {PORTS_MAX} interfaces: VLANs of one count once"),
                ));
            }
            None => {
                let (name, index) = (name.clone(), link.index);
                self.plan.links.push(Linking { name, index, port: kind, tap: tap.clone() });
                self.plan.links.len() - 1
            }
        };
        let mtu = self.mtu(text, link)?;
        let masquerade = self.masquerade(text, &addresses)?;
        let kept = text.keep.iter().map(|Word(kept)| (kept.protocol, kept.ports.clone()));
        self.plan.config.left_alone.extend(kept);
        self.plan.config.interfaces.push(Interface {
            port: port as u8,
            tags,
            mac: if tap.is_some() { beside(link.mac) } else { link.mac },
            addresses,
            mtu,
            masquerade,
        });
        self.plan.interfaces.push(Interfaced {
            name: label,
            link: name.clone(),
            index: link.index,
            vlan: text.vlan.as_ref().map(|vlan| *vlan.get_ref()),
            keep: text.keep.iter().map(|Word(kept)| kept.clone()).collect(),
            has_own_addresses,
            mtu: text.mtu.as_ref().map(|mtu| *mtu.get_ref()),
        });
        Ok(())
    }

    /// What this machine's stack goes on to answer at: ports in `keep` at the interface's own
    /// addresses, and those of health checks at each address of the machine.
    fn keep(&mut self) {
        let interfaces = self.plan.interfaces.iter().zip(&self.plan.config.interfaces);
        for (named, interface) in interfaces {
            for (kept, (address, _)) in named
                .keep
                .iter()
                .flat_map(|kept| interface.addresses.iter().map(move |at| (kept, at)))
            {
                let why = format!("keep of `{}`", named.name);
                self.endpoints.keep(*address, kept.clone(), why);
            }
        }
        let checks = Kept { protocol: Protocol::Tcp, ports: OWN_PORTS };
        for (address, _) in self.links.iter().flat_map(|link| &link.addresses) {
            self.endpoints.keep(*address, checks.clone(), "health checks".to_owned());
        }
    }

    /// The number of an external address. If it is new, it gives out ports that do not stay with
    /// this machine; `None`: there are none.
    fn external_beside(&mut self, address: IpAddr) -> Option<usize> {
        let ports = self.endpoints.free_ports(address, MASQUERADE_PORTS)?;
        Some(self.external(address, ports, Filtering::AddressAndPort))
    }

    fn no_ports(&self, span: Range<usize>, address: IpAddr) -> ConfigError {
        self.error(span, format!("keep leaves all ports of {address} to this machine"))
    }

    fn mtu(&self, text: &InterfaceText, link: &Link) -> Result<u32, ConfigError> {
        let Some(mtu) = &text.mtu else { return Ok(link.mtu) };
        let bytes = *mtu.get_ref();
        if bytes < MTU_MIN || bytes > link.mtu {
            let message =
                format!("an mtu is from {MTU_MIN} to that of the interface, which is {}", link.mtu);
            return Err(self.error(mtu.span(), message));
        }
        Ok(bytes)
    }

    fn masquerade(
        &mut self,
        text: &InterfaceText,
        addresses: &[(IpAddr, u8)],
    ) -> Result<Vec<usize>, ConfigError> {
        let Some(masquerade) = &text.masquerade else { return Ok(Vec::new()) };
        let chosen: Vec<IpAddr> = match masquerade.get_ref() {
            Masquerade::Switch(false) => return Ok(Vec::new()),
            // Addresses of a link alone are of no use beyond it.
            Masquerade::Switch(true) => addresses
                .iter()
                .map(|(address, _)| *address)
                .filter(|address| !is_link_local(*address))
                .collect(),
            Masquerade::Addresses(list) => {
                list.iter().map(|Word(Address(address))| *address).collect()
            }
        };
        if chosen.is_empty() {
            return Err(
                self.error(masquerade.span(), "there is no address to masquerade with: list some")
            );
        }
        let ports =
            text.ports.as_ref().map_or(MASQUERADE_PORTS, |ports| ports.get_ref().0.0.clone());
        if ports.contains(OWN_PORTS.start()) || ports.contains(OWN_PORTS.end()) {
            let at = text.ports.as_ref().map_or_else(|| masquerade.span(), Spanned::span);
            let (first, last) = (OWN_PORTS.start(), OWN_PORTS.end());
            return Err(self.error(
                at,
                format!("ports {first} to {last} are those of the health checks: leave them out"),
            ));
        }
        let overlaps =
            |kept: &Kept| kept.ports.start() <= ports.end() && ports.start() <= kept.ports.end();
        if let Some(Word(kept)) = text.keep.iter().find(|Word(kept)| overlaps(kept)) {
            let message = format!(
                "this gives out ports {}-{}, and keep leaves {}-{} of them to this machine: write ports = \"...\" beside it with others",
                ports.start(),
                ports.end(),
                kept.ports.start(),
                kept.ports.end()
            );
            return Err(self.error(masquerade.span(), message));
        }
        let filtering = if text.open_mappings {
            Filtering::EndpointIndependent
        } else {
            Filtering::AddressAndPort
        };
        let mut numbers = Vec::new();
        for address in chosen {
            let number = self.external(address, ports.clone(), filtering);
            let external = &self.plan.config.externals[number];
            if (&external.ports, external.filtering) != (&ports, filtering) {
                let line =
                    self.masquerades.get(number).map_or(0, |at| line_of(self.source, at.start));
                let message = format!(
                    "line {line} masquerades with {address}, too: write the same ports and open-mappings for both"
                );
                return Err(self.error(masquerade.span(), message));
            }
            // All external addresses so far are those of interfaces.
            if number == self.masquerades.len() {
                self.masquerades.push(masquerade.span());
            }
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// The number of an external address, which is new if need be.
    fn external(
        &mut self,
        address: IpAddr,
        ports: RangeInclusive<u16>,
        filtering: Filtering,
    ) -> usize {
        let externals = &mut self.plan.config.externals;
        externals.iter().position(|external| external.address == address).unwrap_or_else(|| {
            externals.push(External { address, ports, filtering });
            externals.len() - 1
        })
    }

    fn interface_named(&self, name: &Spanned<String>) -> Result<usize, ConfigError> {
        let found =
            self.plan.interfaces.iter().position(|interface| interface.name == *name.get_ref());
        found.ok_or_else(|| {
            let known: Vec<&str> =
                self.plan.interfaces.iter().map(|interface| &*interface.name).collect();
            self.error(
                name.span(),
                format!("the file has no such interface; it has {}", known.join(", ")),
            )
        })
    }

    fn route(&mut self, text: &Spanned<super::file::RouteText>) -> Result<(), ConfigError> {
        let (span, text) = (text.span(), text.get_ref());
        let Word(to) = text.to;
        let gateway = text.via.as_ref().map(|via| via.get_ref().0.0);
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != to.address().is_ipv4()) {
            let via = text.via.as_ref().map_or(span, Spanned::span);
            return Err(
                self.error(via, "the router has another version of IP than the destination")
            );
        }
        let interface = match (&text.interface, gateway) {
            (Some(name), _) => self.interface_named(name)?,
            (None, Some(gateway)) => {
                let on_link = |interface: &Interface| {
                    let prefixes = interface.addresses.iter();
                    prefixes
                        .filter_map(|(address, len)| {
                            nicache_forward::prefix::Prefix::new(*address, *len)
                        })
                        .any(|prefix| prefix.contains(gateway))
                };
                self.plan.config.interfaces.iter().position(on_link).ok_or_else(|| {
                    self.error(
                        span,
                        format!("no interface has an address beside the router {gateway}: write interface = \"...\""),
                    )
                })?
            }
            (None, None) => {
                return Err(self.error(span, "write via = \"ROUTER\" or interface = \"NAME\""));
            }
        };
        self.plan.config.routes.push(Route { to, interface, gateway });
        Ok(())
    }

    fn connected(&self, protocol: &Spanned<Word<Transport>>) -> Result<Protocol, ConfigError> {
        match protocol.get_ref().0.0 {
            Protocol::Query => Err(self.error(protocol.span(), "write tcp or udp here")),
            protocol => Ok(protocol),
        }
    }

    fn same_version(
        &self,
        a: SocketAddr,
        b: &Spanned<Word<Socket>>,
    ) -> Result<SocketAddr, ConfigError> {
        let other = b.get_ref().0.0;
        if other.is_ipv4() == a.is_ipv4() {
            return Ok(other);
        }
        Err(self.error(b.span(), format!("{other} has another version of IP than {a}")))
    }

    fn forwarded(&mut self, text: &super::file::ForwardedText) -> Result<(), ConfigError> {
        let protocol = self.connected(&text.protocol)?;
        let external = text.from.get_ref().0.0;
        let internal = self.same_version(external, &text.to)?;
        let (external, internal) = (Endpoint::from(external), Endpoint::from(internal));
        let (outside, inside) = ((protocol, external), (protocol, internal));
        self.endpoints.take(self.source, outside, Part::PortForward, text.from.span())?;
        self.endpoints.lead_inside(self.source, inside, text.to.span())?;
        if self.external_beside(external.address).is_none() {
            return Err(self.no_ports(text.from.span(), external.address));
        }
        self.plan.config.forwarded.push(Forwarded { protocol, external, internal });
        Ok(())
    }

    fn service(&mut self, text: &Spanned<ServiceText>) -> Result<(), ConfigError> {
        let (span, text) = (text.span(), text.get_ref());
        let protocol = self.connected(&text.protocol)?;
        let address = text.address.get_ref().0.0;
        let own = (protocol, Endpoint::from(address));
        self.endpoints.take(self.source, own, Part::Service, text.address.span())?;
        if text.back_ends.is_empty() || text.back_ends.len() > BACK_ENDS_MAX {
            return Err(self
                .error(span, format!("a service has 1 to {BACK_ENDS_MAX} [[service.back-end]]")));
        }
        let masquerade = match &text.masquerade {
            None => None,
            Some(ours) if ours.get_ref().0.0.is_ipv4() != address.is_ipv4() => {
                return Err(
                    self.error(ours.span(), "this has another version of IP than the service")
                );
            }
            Some(ours) => {
                let address = ours.get_ref().0.0;
                let number = self.external_beside(address);
                Some(number.ok_or_else(|| self.no_ports(ours.span(), address))?)
            }
        };
        let number = self.plan.config.services.len() as u16;
        let mut back_ends = Vec::new();
        for (place, back_end) in text.back_ends.iter().enumerate() {
            let back_end = back_end.get_ref();
            let target = self.same_version(address, &back_end.address)?;
            if back_ends.iter().any(|other: &BackEnd| other.endpoint == target.into()) {
                return Err(self.error(
                    back_end.address.span(),
                    "this back end is there twice: give it a weight instead",
                ));
            }
            self.endpoints.lead(protocol, target.into(), back_end.address.span());
            back_ends
                .push(BackEnd { endpoint: target.into(), weight: back_end.weight.unwrap_or(1) });
            if let Some(check) = &text.check {
                let chosen = Chosen { service: number, back_end: place as u16 };
                let check = self.check(check, chosen, target, protocol)?;
                self.plan.checks.push(check);
            }
        }
        let by_name = self.by_name(text, protocol)?;
        let written = |named: &Spanned<Word<Named>>| {
            self.source[named.span()].trim_matches(['"', '\'']).to_owned()
        };
        let names = text
            .back_ends
            .iter()
            .map(|back_end| back_end.get_ref().names.iter().map(written).collect());
        let names = names.collect();
        self.plan.names.push(names);
        self.plan
            .services
            .push(text.name.clone().unwrap_or_else(|| format!("{protocol}/{address}")));
        let address = address.into();
        self.plan.config.services.push(ServiceConfig {
            protocol,
            address,
            back_ends,
            masquerade,
            by_name,
        });
        Ok(())
    }

    /// How a back end of a service is chosen by name, if it is.
    fn by_name(
        &self,
        text: &ServiceText,
        protocol: Protocol,
    ) -> Result<Option<ByName>, ConfigError> {
        let Some(by) = &text.by else {
            let named = text.back_ends.iter().find_map(|back_end| back_end.get_ref().names.first());
            if let Some(named) = named {
                let message = "names are for a service with by = \"sni\" or by = \"host\": write one of them beside its address";
                return Err(self.error(named.span(), message));
            }
            return match &text.proxy_protocol {
                None => Ok(None),
                Some(proxy) => {
                    let message = "proxy-protocol is for a service with by = \"sni\" or by = \"host\"; back ends of others see their clients' own addresses";
                    Err(self.error(proxy.span(), message))
                }
            };
        };
        if protocol != Protocol::Tcp {
            return Err(self.error(by.span(), "only a service of TCP can be by name"));
        }
        let mut all = Vec::new();
        for back_end in &text.back_ends {
            let mut patterns: Vec<Pattern> = Vec::new();
            for named in &back_end.get_ref().names {
                let Word(Named(pattern)) = named.get_ref();
                if patterns.contains(pattern) {
                    return Err(self.error(named.span(), "this back end has the name twice"));
                }
                patterns.push(pattern.clone());
            }
            all.push(patterns);
        }
        let names = Names::new(&all).map_err(|error| self.error(by.span(), error.to_string()))?;
        let by = match by.get_ref() {
            ByText::Sni => By::Sni,
            ByText::Host => By::Host,
        };
        Ok(Some(ByName { by, names, proxy_protocol: text.proxy_protocol.is_some() }))
    }

    fn check(
        &self,
        text: &Spanned<CheckText>,
        chosen: Chosen,
        back_end: SocketAddr,
        protocol: Protocol,
    ) -> Result<Check, ConfigError> {
        let (span, text) = (text.span(), text.get_ref());
        if protocol == Protocol::Udp && text.port.is_none() {
            return Err(self.error(
                span,
                "a service of UDP is checked at a TCP port: write port = ... into the check",
            ));
        }
        let mut target = back_end;
        target.set_port(text.port.unwrap_or_else(|| back_end.port()));
        let path = text.path.clone().unwrap_or_else(|| "/".to_owned());
        let host = text.host.clone().unwrap_or_else(|| target.ip().to_string());
        let is_plain = |word: &str| word.bytes().all(|byte| byte.is_ascii_graphic());
        if !path.starts_with('/') || !is_plain(&path) || !is_plain(&host) {
            return Err(self.error(
                span,
                "a path begins with /, and path and host have no spaces or line ends",
            ));
        }
        let way = match text.kind {
            CheckKind::Tcp
                if text.path.is_some() || text.status.is_some() || text.host.is_some() =>
            {
                return Err(self.error(span, "path, host and status are for kind = \"http\""));
            }
            CheckKind::Tcp => CheckWay::Tcp,
            CheckKind::Http => CheckWay::Http { path, host, status: text.status },
        };
        let time = |word: Option<Word<super::values::Span>>, ms| {
            word.map_or_else(|| Duration::from_millis(ms), |Word(span)| span.0)
        };
        let (rise, fall) = (text.rise.unwrap_or(2), text.fall.unwrap_or(3));
        if rise == 0 || fall == 0 {
            return Err(self.error(span, "rise and fall are 1 at least"));
        }
        let (every, timeout) = (time(text.every, 2000), time(text.timeout, 1000));
        Ok(Check { chosen, target, way, every, timeout, rise, fall })
    }

    fn group(&mut self, text: &GroupText) -> Result<(), ConfigError> {
        let address = text.address.get_ref().0.0;
        let own = (Protocol::Udp, Endpoint::from(address));
        self.endpoints.take(self.source, own, Part::FanOut, text.address.span())?;
        let targets =
            text.to.iter().map(|target| self.same_version(address, target).map(Endpoint::from));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        for (target, text) in targets.iter().zip(&text.to) {
            self.endpoints.lead(Protocol::Udp, *target, text.span());
        }
        let source =
            text.source.as_ref().map(|source| self.same_version(address, source)).transpose()?;
        if targets.is_empty() {
            return Err(self.error(
                text.address.span(),
                "a [[fan-out]] has at least one address in to = [...]",
            ));
        }
        self.plan.config.groups.push(Group {
            address: address.into(),
            targets,
            source: source.map(Endpoint::from),
        });
        Ok(())
    }

    fn rule(&mut self, text: &Spanned<RuleText>) -> Result<(), ConfigError> {
        let (span, text) = (text.span(), text.get_ref());
        let action = match (text.action.get_ref(), text.rate) {
            (ActionText::Allow, None) => Action::Allow,
            (ActionText::Drop, None) => Action::Drop,
            (ActionText::Limit, Some(Word(rate))) if rate.0 > 0 => {
                // A tenth of a second, and never less than a super-frame, which would never pass.
                let burst = text.burst.map_or(rate.0 / 10, |Word(burst)| burst.0).max(65_536);
                Action::Limit { bytes_per_s: rate.0, burst_bytes: burst }
            }
            (ActionText::Limit, _) => {
                return Err(self
                    .error(span, "a limit has a rate in bytes per second: write rate = \"10M\""));
            }
            _ => return Err(self.error(text.action.span(), "a rate is for action = \"limit\"")),
        };
        let interface =
            text.interface.as_ref().map(|name| self.interface_named(name)).transpose()?;
        self.plan.config.rules.push(Rule {
            interface,
            protocol: text.protocol.map(|Word(Transport(protocol))| protocol),
            source: text.source.map(|Word(prefix)| prefix),
            destination: text.destination.map(|Word(prefix)| prefix),
            ports: text.ports.as_ref().map(|Word(Ports(ports))| ports.clone()),
            action,
        });
        Ok(())
    }
}

/// An address that counts on its link alone.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
