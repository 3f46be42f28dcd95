//! Who listens where, read from the kernel's socket tables: no connection is made, so the server sees nothing.

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
    let table = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let v4 = listeners(&table("tcp"), port);
    let v6 = listeners(&table("tcp6"), port);
    let any = |all: &[String], wanted: &str| all.iter().any(|address| address == wanted);
    let own = format!("{:08X}", u32::from_ne_bytes(server.octets()));
    let v6_any = "0".repeat(32);
    if any(&v4, "00000000") || any(&v4, &own) || any(&v6, &v6_any) || v6.iter().any(|address| address.ends_with(&own)) {
        Listening::Yes
    } else if v4.is_empty() && v6.is_empty() {
        Listening::No
    } else {
        Listening::LoopbackOnly
    }
}

/// The TCP ports at which a process listens.
pub(super) fn ports_of(process: u32) -> Vec<u16> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = descriptors
        .filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok()?.into_os_string().into_string().ok());
    let sockets: Vec<String> =
        links.filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let table = |name| std::fs::read_to_string(format!("/proc/{process}/net/{name}")).unwrap_or_default();
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_own = *fields.get(3)? == "0A" && sockets.iter().any(|socket| Some(&socket.as_str()) == fields.get(9));
        u16::from_str_radix(fields[1].split_once(':')?.1, 16).ok().filter(|_| is_own)
    };
    ["tcp", "tcp6"].iter().flat_map(|name| table(name).lines().filter_map(listening).collect::<Vec<_>>()).collect()
}

/// Local addresses (hexadecimal) of the sockets in state LISTEN (0A) on `port`.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (address, found) = fields.next()?.split_once(':')?;
        let state = fields.nth(1)?;
        (state == "0A" && u16::from_str_radix(found, 16) == Ok(port)).then(|| address.to_owned())
    };
    table.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000
   2: 0100007F:0051 0100007F:9C40 01 00000000:00000000 00:00000000
";
        assert_eq!(listeners(table, 80), ["00000000"]);
        assert_eq!(listeners(table, 8080), ["0100007F"]);
        assert!(listeners(table, 81).is_empty());
        assert!(listeners("garbage\n\n: :\n", 80).is_empty());
    }

    #[test]
    fn a_loopback_listener_is_told_apart() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(look(port, Ipv4Addr::new(10, 1, 2, 3)), Listening::LoopbackOnly);
        assert_eq!(look(port, Ipv4Addr::LOCALHOST), Listening::Yes);
        assert!(ports_of(std::process::id()).contains(&port));
        drop(listener);
        assert_eq!(look(port, Ipv4Addr::LOCALHOST), Listening::No);
        assert!(!ports_of(std::process::id()).contains(&port));
    }
}
