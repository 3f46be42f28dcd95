//! URLs of servers.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};

/// A server as a URL names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The `Host` field of requests.
    pub host: String,
    /// Where it is; IPv4, which is what the card speaks.
    pub address: SocketAddr,
}

/// The server of `http://HOST[:PORT][/]`.
pub(crate) fn server(url: &str) -> Result<Server> {
    let rest = url.strip_prefix("http://").context("url: only http:// is spoken")?;
    let host = rest.trim_end_matches('/');
    if host.contains('/') {
        bail!("url: it ends after address and port; paths are given apart");
    }
    let full = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let address = full
        .to_socket_addrs()
        .with_context(|| format!("url: `{host}` is not an address"))?
        .find(SocketAddr::is_ipv4)
        .with_context(|| format!("url: `{host}` has no IPv4 address"))?;
    Ok(Server { host: host.to_owned(), address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        assert_eq!(server("http://10.0.0.2").unwrap().address, "10.0.0.2:80".parse().unwrap());
        let named = server("http://10.0.0.2:8080/").unwrap();
        assert_eq!(
            (&*named.host, named.address),
            ("10.0.0.2:8080", "10.0.0.2:8080".parse().unwrap())
        );
        for wrong in [
            "10.0.0.2",
            "https://10.0.0.2/",
            "http://10.0.0.2/folder/",
            "http://no.such.host.invalid/",
        ] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }
}
