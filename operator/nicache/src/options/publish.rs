//! Ports that are offered at addresses of this machine.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A port of the server offered at an address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Publish {
    /// Where clients connect.
    pub address: SocketAddr,
    /// The server's port; `None`: the first HTTP port.
    pub server_port: Option<u16>,
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not ADDR:PORT or ADDR:PORT:SERVERPORT: 0.0.0.0 means all IPv4 addresses, and IPv6 addresses are in brackets, as in [::]:80"
            )
        };
        let port = |part: &str| part.parse::<u16>().ok().filter(|port| *port != 0);
        let (ip, ports): (IpAddr, &str) = match text.strip_prefix('[') {
            Some(rest) => {
                let (ip, ports) = rest.split_once("]:").ok_or_else(wrong)?;
                (IpAddr::V6(ip.parse().map_err(|_| wrong())?), ports)
            }
            None => {
                let (ip, ports) = text.split_once(':').ok_or_else(wrong)?;
                (IpAddr::V4(ip.parse().map_err(|_| wrong())?), ports)
            }
        };
        let (outer, server_port) = match ports.split_once(':') {
            None => (ports, None),
            Some((outer, inner)) => (outer, Some(port(inner).ok_or_else(wrong)?)),
        };
        Ok(Self { address: SocketAddr::new(ip, port(outer).ok_or_else(wrong)?), server_port })
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
        let publish: Publish = "[2001:db8::1]:8080:81".parse().unwrap();
        assert_eq!((publish.address.port(), publish.server_port), (8080, Some(81)));
        assert_eq!(publish.to_string(), "[2001:db8::1]:8080:81");
        let odd = [
            "8080",
            "127.0.0.1",
            "127.0.0.1:0",
            "::1:80",
            "[::1]",
            "[::1]80",
            "[1.2.3.4]:80",
            "1.2.3.4:80:81:82",
            "localhost:80",
        ];
        for text in odd {
            assert!(text.parse::<Publish>().is_err(), "{text}");
        }
    }
}
