//! Who listens where, read from the kernel's socket tables: no connection is made, so the server
//! sees nothing.

use std::net::Ipv4Addr;

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
    let table = |name: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default()
    };
    let (v4, v6) = (table("tcp"), table("tcp6"));
    let (v4, v6) = (addresses_on(&v4, port), addresses_on(&v6, port));
    let any = |all: &[&str], wanted: &str| all.contains(&wanted);
    let own = format!("{:08X}", u32::from_ne_bytes(server.octets()));
    let v6_any = "0".repeat(32);
    if any(&v4, "00000000")
        || any(&v4, &own)
        || any(&v6, &v6_any)
        || v6.iter().any(|address| address.ends_with(&own))
    {
        Listening::Yes
    } else if v4.is_empty() && v6.is_empty() {
        Listening::No
    } else {
        Listening::LoopbackOnly
    }
}

/// The addresses (hexadecimal) of those that listen on `port`.
fn addresses_on(table: &str, port: u16) -> Vec<&str> {
    listeners(table)
        .filter(|listener| listener.port == port)
        .map(|listener| listener.address)
        .collect()
}

/// The TCP ports at which a process listens.
pub(super) fn ports_of(process: u32) -> Vec<u16> {
    let descriptors =
        std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|descriptor| {
        std::fs::read_link(descriptor.path()).ok()?.into_os_string().into_string().ok()
    });
    let sockets: Vec<String> = links
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table =
        |name| std::fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    let tables = table("tcp") + &table("tcp6");
    let own =
        listeners(&tables).filter(|listener| sockets.iter().any(|socket| socket == listener.inode));
    own.map(|listener| listener.port).collect()
}

/// A socket in state LISTEN.
struct Listener<'a> {
    /// Hexadecimal.
    address: &'a str,
    port: u16,
    inode: &'a str,
}

/// The listening sockets of tables like `/proc/net/tcp` (proc_pid_net(5)).
fn listeners(tables: &str) -> impl Iterator<Item = Listener<'_>> {
    tables.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let (state, inode) = (fields.get(3)?, fields.get(9)?);
        (*state == "0A").then_some(Listener { address, port, inode })
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use nicache_netns::Namespace;

    use super::*;

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 71 1 0 100 0 0 10 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 72 1 0 100 0 0 10 0
   2: 0100007F:0051 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 73 1 0 100 0 0 10 0
";
        assert_eq!(addresses_on(table, 80), ["00000000"]);
        assert_eq!(addresses_on(table, 8080), ["0100007F"]);
        assert!(addresses_on(table, 81).is_empty());
        assert_eq!(
            listeners(table).map(|listener| listener.inode).collect::<Vec<_>>(),
            ["71", "72"]
        );
        assert!(addresses_on("garbage\n\n: :\n", 80).is_empty());
    }

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
