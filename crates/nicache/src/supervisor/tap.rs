//! The two TAP interfaces, between which the card stands.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, anyhow};
use nicache_port::{Tap, TapError, TapQueue};

use super::netlink::Netlink;
use crate::options::Subnet;

/// MTU of both interfaces, in bytes.
pub const MTU: u32 = 1500;

/// Name of the host TAP in the server's network namespace.
pub const HOST_NAME: &str = "eth0";

/// Creates the wire TAP in the calling thread's network namespace and gives it the gateway's address.
pub fn open_wire(name: &str, queues: u16, subnet: Subnet) -> Result<Vec<TapQueue>> {
    let taps = open(name, queues)?;
    let index = bring_up(&mut Netlink::open()?, name, subnet.gateway())?;
    tracing::debug!(interface = name, index, gateway = %subnet.gateway(), "wire TAP is up");
    Ok(taps)
}

/// Gives the wire TAP the address of the card's own client.
pub fn add_rechecker(name: &str, subnet: Subnet) -> Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(name)?.with_context(|| format!("the interface {name} is gone"))?;
    netlink
        .add_address(index, subnet.rechecker(), 32)
        .with_context(|| format!("cannot give {name} the address {}", subnet.rechecker()))
}

/// Creates the host TAP in the calling thread's network namespace: the server's address, default route, and loopback up.
pub fn open_host(queues: u16, subnet: Subnet) -> Result<Vec<TapQueue>> {
    let taps = open(HOST_NAME, queues)?;
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index("lo")?.context("the server's network namespace has no loopback")?;
    netlink.up(loopback, None).context("cannot bring up the server's loopback")?;
    let index = bring_up(&mut netlink, HOST_NAME, subnet.server())?;
    netlink.add_default_route(index, subnet.gateway()).context("cannot set the server's default route")?;
    Ok(taps)
}

fn bring_up(netlink: &mut Netlink, name: &str, address: Ipv4Addr) -> Result<u32> {
    let index = netlink.index(name)?.with_context(|| format!("the interface {name} is gone"))?;
    netlink
        .add_address(index, address, Subnet::PREFIX)
        .with_context(|| format!("cannot give {name} the address {address}"))?;
    netlink.up(index, Some(MTU)).with_context(|| format!("cannot bring up {name}"))?;
    Ok(index)
}

fn open(name: &str, queues: u16) -> Result<Vec<TapQueue>> {
    Tap::open(name, usize::from(queues)).map_err(|error| match error {
        TapError::NoDevice => anyhow!(
            "this machine has no TUN/TAP device (/dev/net/tun): load the driver with `modprobe tun`, or give a container \
             the device with `--device /dev/net/tun --cap-add NET_ADMIN`"
        ),
        TapError::NotPermitted => anyhow!("not allowed to create a TAP interface: run as root, e.g. `sudo nicache run`"),
        other => anyhow!(other).context(format!("cannot create the interface {name}")),
    })
}
