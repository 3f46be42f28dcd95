//! `--publish` and `--outgoing`: the server's ports at this machine's addresses, and the server's
//! way out.
//!
//! Done by the kernel's address translation, so the server sees each client's real address.
//! The rules live in one table with `flags owner`: the kernel removes it when the `nft` process
//! that made it ends, and that process ends with its standard input, which only the supervisor
//! holds. Without nftables a relay in user space takes over for `--publish`, and says so.
//!
//! The published port itself is held by a listening socket of the supervisor that no connection
//! reaches, because the rules catch them before: another program cannot take the port meanwhile,
//! and taking one that is in use is an error at the start instead of a silent hijack.

mod forwarding;
mod nft;
mod scene;
mod sysctl;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use anyhow::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::options::{Publish, Subnet};
use crate::relay;
use forwarding::{Forwarding, IpVersion};
pub(crate) use nft::Nft;
use scene::{Mapping, Scene};
use sysctl::set_sysctl;

/// Everything that is in force for one nicache; dropping it undoes it.
#[derive(Debug)]
pub(crate) struct Published {
    /// The processes that hold the rules, one for each card; when one ends, its rules are gone.
    pub nfts: Vec<Nft>,
    _reserved: Vec<OwnedFd>,
    _forwarding: Vec<Forwarding>,
}

/// Puts everything in force that is asked for. Call it once the wire TAP is up.
pub(crate) fn start(
    publish: &[Publish],
    http_ports: &[u16],
    outgoing: bool,
    networks: &[(&str, Subnet)],
) -> Result<Published> {
    let mappings: Vec<Mapping> =
        publish.iter().map(|publish| mapping(publish, http_ports)).collect();
    if mappings.is_empty() && !outgoing {
        return Ok(Published { nfts: Vec::new(), _reserved: Vec::new(), _forwarding: Vec::new() });
    }
    let mut reserved = Vec::new();
    for mapping in &mappings {
        reserved.push(reserve(mapping.address)?);
    }
    let start = |(number, &(interface, subnet))| {
        let left = networks.len() - number;
        Nft::start(&Scene {
            interface,
            subnet,
            mappings: &mappings,
            outgoing,
            card: number,
            one_of: left,
        })
    };
    match networks.iter().enumerate().map(start).collect::<Result<Vec<_>>>() {
        Ok(nfts) => {
            if mappings
                .iter()
                .any(|mapping| mapping.address.is_ipv4() && accepts_loopback(mapping.address.ip()))
            {
                // Replies to 127.0.0.1 come in by the wire TAP; the rules keep everything else from
                // there out.
                for (interface, _) in networks {
                    set_sysctl(&format!("net/ipv4/conf/{interface}/route_localnet"), "1")?;
                }
            }
            // What comes from ::1 cannot leave the loopback interface, whatever it is translated
            // to.
            for (mapping, listener) in mappings.iter().zip(&reserved) {
                if mapping.address.is_ipv6() && accepts_loopback(mapping.address.ip()) {
                    let server = mapping.server(networks[0].1);
                    relay::start(
                        &format!("publish {}", mapping.address),
                        listener.try_clone()?.into(),
                        server,
                    )?;
                }
            }
            let mut forwarding = Vec::new();
            if outgoing {
                forwarding.push(Forwarding::switch_on(IpVersion::V4)?);
            }
            if mappings
                .iter()
                .any(|mapping| mapping.address.is_ipv6() && !mapping.address.ip().is_loopback())
            {
                forwarding.push(Forwarding::switch_on(IpVersion::V6)?);
            }
            Ok(Published { nfts, _reserved: reserved, _forwarding: forwarding })
        }
        Err(error) => {
            drop(reserved);
            if mappings.is_empty() {
                tracing::warn!(
                    "--outgoing is not possible: {error:#}; the server reaches this machine only"
                );
            }
            if let Some(&(_, subnet)) = networks.first() {
                relay_instead(&mappings, subnet, &error)?;
            }
            Ok(Published { nfts: Vec::new(), _reserved: Vec::new(), _forwarding: Vec::new() })
        }
    }
}

fn mapping(publish: &Publish, http_ports: &[u16]) -> Mapping {
    let server_port = publish.server_port.or_else(|| http_ports.first().copied()).unwrap_or(80);
    Mapping { address: publish.address, server_port }
}

/// Whether a published address covers this machine's loopback.
fn accepts_loopback(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

fn relay_instead(mappings: &[Mapping], subnet: Subnet, why: &anyhow::Error) -> Result<()> {
    for mapping in mappings {
        let address = mapping.address;
        let listener = reserve(address)?.into();
        relay::start(&format!("publish {address}"), listener, mapping.server(subnet))?;
        tracing::warn!(
            %address,
            "published by a relay in user space instead of address translation: the server sees {} as every client's address, \
             and connections cost more. Reason: {why:#}",
            if address.is_ipv4() { IpAddr::V4(subnet.gateway()) } else { IpAddr::V6(
                subnet.gateway6()) }
        );
    }
    Ok(())
}

/// Listens at the address without ever accepting. (Binding alone would not keep out others that set
/// SO_REUSEADDR, as servers do.)
fn reserve(address: SocketAddr) -> Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Connections of an earlier run in TIME_WAIT are not an obstacle; a listener is.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    let bound =
        rustix::net::bind(&socket, &address).and_then(|()| rustix::net::listen(&socket, 128));
    bound.map_err(|error| taken(address, &error.into()))?;
    Ok(socket)
}

fn taken(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AddrInUse => anyhow::anyhow!(
            "--publish {address}: the port is taken by another program (see `ss -ltnp 'sport = :{}'`); stop it or choose another port",
            address.port()
        ),
        ErrorKind::AddrNotAvailable => anyhow::anyhow!(
            "--publish {address}: {} is not an address of this machine (see `ip addr`); {} means all of them",
            address.ip(),
            if address.is_ipv4() { "0.0.0.0" } else { "[::]" }
        ),
        _ => anyhow::anyhow!("--publish {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nicache_netns::Namespace;

    use super::*;

    #[test]
    fn a_port_in_use_and_a_foreign_address_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = reserve(listener.local_addr().unwrap()).unwrap_err().to_string();
        assert!(error.contains("taken by another program"), "{error}");
        let error = reserve("192.0.2.99:1".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("not an address of this machine"), "{error}");
    }

    #[test]
    fn a_reserved_port_is_nobody_elses() {
        // In a network of its own nobody else takes it when it was given back.
        let Ok(network) = Namespace::with_loopback() else { return };
        network.run(|| {
            let address = "127.0.0.1:80".parse().unwrap();
            let held = reserve(address).unwrap();
            assert!(TcpListener::bind(address).is_err());
            drop(held);
            // A program that another test starts has the socket, too, until it is executed.
            while TcpListener::bind(address).is_err() {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn the_server_port_defaults_to_the_first_http_port() {
        let publish = |text: &str| mapping(&text.parse().unwrap(), &[8080, 81]).server_port;
        assert_eq!((publish("0.0.0.0:80"), publish("0.0.0.0:80:443")), (8080, 443));
    }
}
