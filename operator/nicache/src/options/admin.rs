//! Where figures are shown.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use clap::Args;
use nicache_admin::{AdminError, AdminServer, Reach};

/// An address of this machine, by default a loopback one; port 0 is one of the system's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdminAddress(pub SocketAddr);

impl FromStr for AdminAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let alone =
            text.parse::<u16>().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = alone.or_else(|| text.parse().ok());
        address.map(AdminAddress).ok_or_else(|| {
            format!(
                "`{text}` is neither a port nor ADDR:PORT; write 9090, 127.0.0.1:9090 or [::1]:9090"
            )
        })
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who may look, by what the operator has said.
pub(crate) fn reach(anyone: bool) -> Reach {
    if anyone { Reach::Anyone } else { Reach::Machine }
}

/// Where figures are shown, and to whom.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdminOptions {
    /// Show figures at this address of this machine: a live page at /, metrics for Prometheus at
    /// /metrics, JSON at /api/status. Without ADDR it is 127.0.0.1. Nobody is asked for a password
    /// [default: nowhere]
    #[arg(long, value_name = "[ADDR:]PORT")]
    admin: Option<AdminAddress>,

    /// Let --admin be at an address that is not a loopback one: whoever reaches it sees how this
    /// nicache is run
    #[arg(long, requires = "admin")]
    admin_anyone: bool,
}

impl AdminOptions {
    /// Takes the address, if one was named.
    ///
    /// # Errors
    /// It is not of this machine or taken, or others could reach it and that was not said.
    pub(crate) fn bind(&self) -> Result<Option<AdminServer>, AdminError> {
        let reach = reach(self.admin_anyone);
        self.admin.map(|address| AdminServer::bind(address.0, reach)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_this_machine() {
        for (text, expected) in [
            ("9090", "127.0.0.1:9090"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9090", "[::1]:9090"),
            ("0", "127.0.0.1:0"),
        ] {
            assert_eq!(text.parse::<AdminAddress>().unwrap().to_string(), expected);
        }
        for text in ["", "localhost:9090", "127.0.0.1", ":9090", "99999", "::1:9090:"] {
            assert!(text.parse::<AdminAddress>().is_err(), "{text}");
        }
    }
}
