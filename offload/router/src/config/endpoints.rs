//! Endpoints that a file has something answer at: each is there once, this machine's own stack
//! does not answer there, too, and nothing is led to one of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::{Range, RangeInclusive};

use nicache_forward::tuple::{Endpoint, Protocol};

use super::error::{ConfigError, line_of};
use super::values::Kept;

/// What answers at an endpoint, or is led to one, as a file calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    PortForward,
    Service,
    FanOut,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::PortForward => "[[port-forward]]",
            Self::Service => "[[service]]",
            Self::FanOut => "[[fan-out]]",
        }
    }
}

/// What is written of endpoints and addresses so far, and where.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    taken: HashMap<(Protocol, Endpoint), (Part, Range<usize>)>,
    targets: Vec<(Protocol, Endpoint, Range<usize>)>,
    /// Inside ends of forwarded ports.
    insides: HashMap<(Protocol, Endpoint), Range<usize>>,
    /// Addresses of interfaces, with the interface's name.
    addresses: HashMap<IpAddr, (String, Option<Range<usize>>)>,
    /// Ports of addresses that stay with this machine, and why.
    kept: Vec<(IpAddr, Kept, String)>,
}

impl Endpoints {
    /// Something answers at an endpoint. An error: something else does.
    pub(super) fn take(
        &mut self,
        source: &str,
        (protocol, endpoint): (Protocol, Endpoint),
        part: Part,
        span: Range<usize>,
    ) -> Result<(), ConfigError> {
        if let Some((other, at)) = self.taken.get(&(protocol, endpoint)) {
            let message = format!(
                "{protocol} {endpoint} is the address of the {} in line {}: give this one another",
                other.name(),
                line_of(source, at.start)
            );
            return Err(ConfigError::at(source, span, message));
        }
        if let Some((_, kept, why)) = self.kept.iter().find(|(address, kept, _)| {
            (*address, kept.protocol) == (endpoint.address, protocol)
                && kept.ports.contains(&endpoint.port)
        }) {
            let (first, last) = (kept.ports.start(), kept.ports.end());
            let message = format!(
                "{protocol} ports {first}-{last} of {} stay with this machine ({why}), which would answer, too: give this {} another port, or an address of its own",
                endpoint.address,
                part.name()
            );
            return Err(ConfigError::at(source, span, message));
        }
        self.taken.insert((protocol, endpoint), (part, span));
        Ok(())
    }

    /// Ports of an address stay with this machine.
    pub(super) fn keep(&mut self, address: IpAddr, kept: Kept, why: String) {
        self.kept.push((address, kept, why));
    }

    /// The longest run of ports among some that does not stay with this machine at an address.
    pub(super) fn free_ports(
        &self,
        address: IpAddr,
        among: RangeInclusive<u16>,
    ) -> Option<RangeInclusive<u16>> {
        let kept = self.kept.iter().filter(|(at, _, _)| *at == address);
        let mut kept: Vec<(u16, u16)> =
            kept.map(|(_, kept, _)| (*kept.ports.start(), *kept.ports.end())).collect();
        kept.sort_unstable();
        let (mut next, mut best) = (Some(*among.start()), None);
        let mut take = |first: u16, last: u16| {
            let is_longer = |best: &RangeInclusive<u16>| last - first > best.end() - best.start();
            if first <= last && best.as_ref().is_none_or(is_longer) {
                best = Some(first..=last);
            }
        };
        for (first, last) in kept {
            let Some(from) = next else { break };
            if let Some(before) = first.checked_sub(1) {
                take(from, before.min(*among.end()));
            }
            next = last.checked_add(1).map(|after| after.max(from));
        }
        if let Some(from) = next {
            take(from, *among.end());
        }
        best
    }

    /// Packets are led to an endpoint.
    pub(super) fn lead(&mut self, protocol: Protocol, endpoint: Endpoint, span: Range<usize>) {
        self.targets.push((protocol, endpoint, span));
    }

    /// A forwarded port leads to an endpoint. An error: another one does, and answers could be of
    /// either.
    pub(super) fn lead_inside(
        &mut self,
        source: &str,
        inside: (Protocol, Endpoint),
        span: Range<usize>,
    ) -> Result<(), ConfigError> {
        if let Some(at) = self.insides.get(&inside) {
            let message = format!(
                "the [[port-forward]] in line {} leads to {} {}, too: one is enough",
                line_of(source, at.start),
                inside.0,
                inside.1
            );
            return Err(ConfigError::at(source, span, message));
        }
        self.insides.insert(inside, span.clone());
        self.lead(inside.0, inside.1, span);
        Ok(())
    }

    /// After all of the file. An error: something is led to where the forwarder itself answers,
    /// which it does not do twice for a packet.
    pub(super) fn look_at_targets(&self, source: &str) -> Result<(), ConfigError> {
        for (protocol, endpoint, span) in &self.targets {
            if let Some((part, at)) = self.taken.get(&(*protocol, *endpoint)) {
                let message = format!(
                    "{endpoint} is the address of the {} in line {}, which a packet comes to once only: write who answers there",
                    part.name(),
                    line_of(source, at.start)
                );
                return Err(ConfigError::at(source, span.clone(), message));
            }
        }
        Ok(())
    }

    /// An interface has an address; `span`: where it is written, if it is not the kernel's. An
    /// error: another interface has it, and one of both is written.
    pub(super) fn address(
        &mut self,
        source: &str,
        address: IpAddr,
        interface: &str,
        span: Option<Range<usize>>,
        at: Range<usize>,
    ) -> Result<(), ConfigError> {
        match self.addresses.get(&address) {
            Some((other, written)) if span.is_some() || written.is_some() => {
                let place = match written {
                    Some(span) => format!(" (line {})", line_of(source, span.start)),
                    None => String::new(),
                };
                let message = format!(
                    "`{other}`{place} has the address {address}, too: give `{interface}` another"
                );
                Err(ConfigError::at(source, span.unwrap_or(at), message))
            }
            Some(_) => Ok(()),
            None => {
                self.addresses.insert(address, (interface.to_owned(), span));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_of_ports_beside_those_that_are_kept() {
        let address = IpAddr::from([10, 1, 0, 1]);
        let free = |kept: &[&str]| {
            let mut endpoints = Endpoints::default();
            for kept in kept {
                endpoints.keep(address, kept.parse().unwrap(), String::new());
            }
            assert_eq!(
                endpoints.free_ports([10, 1, 0, 2].into(), 1024..=65_535),
                Some(1024..=65_535)
            );
            endpoints.free_ports(address, 1024..=65_535)
        };
        assert_eq!(free(&[]), Some(1024..=65_535));
        assert_eq!(free(&["tcp/22", "udp/0"]), Some(1024..=65_535));
        assert_eq!(free(&["tcp/1000-8000", "udp/1500-2000"]), Some(8001..=65_535));
        assert_eq!(free(&["tcp/60000", "udp/60001-65535"]), Some(1024..=59_999));
        assert_eq!(free(&["tcp/2000", "udp/40000"]), Some(2001..=39_999));
        assert_eq!(free(&["tcp/0-65535"]), None);
    }
}
