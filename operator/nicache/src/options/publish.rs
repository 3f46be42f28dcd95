//! Ports that are offered at addresses of this machine.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;

/// A port of the server offered at an address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    /// Where clients connect.
    pub address: SocketAddrV4,
    /// The server's port; `None`: the first HTTP port.
    pub server_port: Option<u16>,
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Publish, String> {
        let wrong =
            || format!("`{text}` is not ADDR:PORT or ADDR:PORT:SERVERPORT with an IPv4 address (0.0.0.0 means all)");
        let mut parts = text.split(':');
        let port = |part: &str| part.parse::<u16>().ok().filter(|port| *port != 0);
        let ip: Ipv4Addr = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
        let outer = parts.next().and_then(port).ok_or_else(wrong)?;
        let server_port = match parts.next() {
            None => None,
            Some(part) => Some(port(part).ok_or_else(wrong)?),
        };
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Publish { address: SocketAddrV4::new(ip, outer), server_port })
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server_port {
            None => write!(f, "{}", self.address),
            Some(port) => write!(f, "{}:{port}", self.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        let publish: Publish = "127.0.0.1:8080:81".parse().unwrap();
        assert_eq!((publish.address.port(), publish.server_port), (8080, Some(81)));
        for text in ["8080", "127.0.0.1", "127.0.0.1:0", "[::1]:80", "1.2.3.4:80:81:82", "localhost:80"] {
            assert!(text.parse::<Publish>().is_err(), "{text}");
        }
    }
}
