//! Who listens where, read from the kernel's socket tables: no connection is made, so the server
//! sees nothing.

use std::net::{IpAddr, Ipv4Addr};

use nicache_netlink::{listening, listening_of};

/// Where somebody listens for TCP in the calling thread's network namespace, on one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listening {
    /// Nobody.
    No,
    /// Only on the loopback address, out of the clients' reach.
    LoopbackOnly,
    /// Within reach.
    Yes,
}

/// Looks for a listener on `port` that `server` reaches.
pub(super) fn look(port: u16, server: Ipv4Addr) -> Listening {
    let all: Vec<IpAddr> = listening()
        .into_iter()
        .filter(|socket| socket.port == port)
        // One of IPv4, as a socket of IPv6 has it.
        .map(|socket| socket.address.to_canonical())
        .collect();
    if all.iter().any(|address| address.is_unspecified() || *address == server) {
        Listening::Yes
    } else if all.is_empty() {
        Listening::No
    } else {
        Listening::LoopbackOnly
    }
}

/// The TCP ports at which a process listens.
pub(super) fn ports_of(process: u32) -> Vec<u16> {
    let descriptors =
        std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|descriptor| {
        std::fs::read_link(descriptor.path()).ok()?.into_os_string().into_string().ok()
    });
    let sockets: Vec<u64> = links
        .filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect();
    let all = listening_of(process).into_iter();
    all.filter(|socket| sockets.contains(&socket.inode)).map(|socket| socket.port).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nicache_netns::Namespace;

    use super::*;

    /// In a network of its own: elsewhere, other programs listen at ports that were just given
    /// back.
    #[test]
    fn a_loopback_listener_is_told_apart() {
        let Ok(network) = Namespace::with_loopback() else { return };
        network.run(|| {
            assert_eq!(look(80, Ipv4Addr::LOCALHOST), Listening::No);
            let listener = TcpListener::bind("127.0.0.1:80").unwrap();
            assert_eq!(look(80, Ipv4Addr::new(10, 1, 2, 3)), Listening::LoopbackOnly);
            assert_eq!(look(80, Ipv4Addr::LOCALHOST), Listening::Yes);
            drop(listener);
            // A program that another test starts has the socket, too, until it is executed.
            while look(80, Ipv4Addr::LOCALHOST) != Listening::No {
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn the_ports_of_a_process_are_those_of_its_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(ports_of(std::process::id()).contains(&port));
        drop(listener);
        assert!(!ports_of(std::process::id()).contains(&port));
    }
}
