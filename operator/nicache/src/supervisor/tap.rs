//! The two TAP interfaces, between which the card stands.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context, Result, anyhow};
use nicache_port::{Tap, TapError, TapQueue};

use super::netlink::Netlink;
use crate::options::Subnet;

/// MTU of both interfaces, in bytes.
pub(crate) const MTU: u32 = 1500;

/// Name of the first interface in the server's network namespace.
pub(crate) const HOST_NAME: &str = "eth0";
const HOST_PREFIX: &str = "eth";
/// Routing table of the first card but one, less 1.
const FIRST_TABLE: u32 = 1000;

/// Creates the wire TAP in the calling thread's network namespace and gives it the gateway's
/// address.
pub(crate) fn open_wire(name: &str, queues: u16, subnet: Subnet) -> Result<Vec<TapQueue>> {
    let taps = open(name, queues)?;
    let mut netlink = Netlink::open()?;
    let index = bring_up(&mut netlink, name, subnet.gateway().into())?;
    add_ipv6(&mut netlink, index, subnet.gateway6());
    tracing::debug!(interface = name, index, gateway = %subnet.gateway(), "wire TAP is up");
    Ok(taps)
}

/// Gives the wire TAP the address of the card's own client.
pub(crate) fn add_rechecker(name: &str, subnet: Subnet) -> Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(name)?.with_context(|| format!("the interface {name} is gone"))?;
    netlink
        .add_address(index, subnet.rechecker().into(), 32)
        .with_context(|| format!("cannot give {name} the address {}", subnet.rechecker()))
}

/// Creates a host TAP in the calling thread's network namespace: the server's address, and loopback
/// up. The default route is that of the first one; what is sent from another one's address takes
/// its own.
pub(crate) fn open_host(number: u32, queues: u16, subnet: Subnet) -> Result<Vec<TapQueue>> {
    let name = format!("{HOST_PREFIX}{number}");
    let taps = open(&name, queues)?;
    let mut netlink = Netlink::open()?;
    let loopback =
        netlink.index("lo")?.context("the server's network namespace has no loopback")?;
    netlink.up(loopback, None).context("cannot bring up the server's loopback")?;
    let index = bring_up(&mut netlink, &name, subnet.server().into())?;
    let route = |source: IpAddr, gateway: IpAddr, netlink: &mut Netlink| match number {
        0 => netlink.add_default_route(index, gateway, None),
        _ => {
            let table = FIRST_TABLE + number;
            netlink.add_default_route(index, gateway, Some(table))?;
            netlink.add_source_rule(source, table)
        }
    };
    route(subnet.server().into(), subnet.gateway().into(), &mut netlink)
        .context("cannot set the server's default route")?;
    if number > 0 {
        // Clients come by any card, whatever way the server would take to them.
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        if let Err(error) = std::fs::write(&path, "2") {
            tracing::debug!("{path}: {error}");
        }
    }
    if add_ipv6(&mut netlink, index, subnet.server6())
        && let Err(error) = route(subnet.server6().into(), subnet.gateway6().into(), &mut netlink)
    {
        tracing::warn!("the server has no default route for IPv6: {error}");
    }
    Ok(taps)
}

/// Gives an interface an IPv6 address; false on a machine without IPv6.
fn add_ipv6(netlink: &mut Netlink, index: u32, address: Ipv6Addr) -> bool {
    let added = netlink.add_address(index, address.into(), Subnet::PREFIX6);
    if let Err(error) = &added {
        tracing::info!("no IPv6 to the server: {error}");
    }
    added.is_ok()
}

fn bring_up(netlink: &mut Netlink, name: &str, address: IpAddr) -> Result<u32> {
    let index = netlink.index(name)?.with_context(|| format!("the interface {name} is gone"))?;
    netlink
        .add_address(index, address, Subnet::PREFIX)
        .with_context(|| format!("cannot give {name} the address {address}"))?;
    netlink.up(index, Some(MTU)).with_context(|| format!("cannot bring up {name}"))?;
    Ok(index)
}

/// Creates a TAP interface in the calling thread's network namespace.
pub(crate) fn open(name: &str, queues: u16) -> Result<Vec<TapQueue>> {
    Tap::open(name, usize::from(queues)).map_err(|error| match error {
        TapError::NoDevice => anyhow!(
            "this machine has no TUN/TAP device (/dev/net/tun): load the driver with `modprobe tun`, or give a container \
             the device with `--device /dev/net/tun --cap-add NET_ADMIN`"
        ),
        TapError::NotPermitted => anyhow!("not allowed to create a TAP interface: run as root, e.g. `sudo nicache run`"),
        other => anyhow!(other).context(format!("cannot create the interface {name}")),
    })
}
