//! Endpoints that a file has something answer at: each is there once, and nothing is led to one of
//! them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use nicache_forward::tuple::{Endpoint, Protocol};

use super::error::{ConfigError, line_of};

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
        self.taken.insert((protocol, endpoint), (part, span));
        Ok(())
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
