//! What the namespaces of measurements have in common: links, and routes over them.

use std::io;

use anyhow::{Context, Result};
use nicache_netns::Namespace;

/// Makes one, with its loopback up.
///
/// # Errors
/// Not permitted, or the kernel has no network namespaces.
pub(crate) fn create() -> Result<Namespace> {
    Namespace::with_loopback()
        .context("cannot make a network namespace: that needs root, e.g. `sudo nicache bench wire`")
}

/// Joins two namespaces by a pair of virtual Ethernet interfaces, `name` on both sides: `left` gets
/// the first address of `network` (three bytes of it) with /30, `right` the second. Both ends
/// coalesce what they receive, and both sides use the same congestion control.
///
/// # Errors
/// As [`Namespace::command`].
pub(crate) fn join(
    left: &Namespace,
    right: &Namespace,
    name: &str,
    network: &str,
) -> io::Result<()> {
    left.ip(&format!("link add {name} type veth peer name {name} netns {}", right.thread_id()))?;
    for (side, host) in [(left, 1), (right, 2)] {
        side.ip(&format!("address add {network}.{host}/30 dev {name}"))?;
        side.ip(&format!("link set {name} up"))?;
        // Without it a veth delivers every segment by itself, and bulk transfers slow down several
        // times.
        side.command(&format!("ethtool -K {name} gro on"))?;
        side.command(&cubic_route(name, network, host))?;
    }
    Ok(())
}

/// The command that makes connections on a /30 network use CUBIC, whatever the machine's default
/// is: BBR paces small replies and makes any server look several times slower here.
pub(crate) fn cubic_route(interface: &str, network: &str, host: u8) -> String {
    format!(
        "ip route replace {network}.0/30 dev {interface} proto kernel scope link src {network}.{host} congctl cubic"
    )
}
