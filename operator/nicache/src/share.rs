//! `--share PORT`: this machine's 127.0.0.1:PORT appears as 127.0.0.1:PORT to the server, by a relay.
//!
//! Unix sockets need nothing: the server sees the same files.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, Result};

use crate::relay;
use crate::supervisor::namespace::Namespace;

/// Starts one relay per port. Call it from a thread in the caller's network namespace.
pub(crate) fn start(ports: &[u16], server: &Namespace) -> Result<()> {
    for &port in ports {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = server
            .run(move || TcpListener::bind(address))
            .with_context(|| format!("--share {port}: cannot listen at {address} on the server's side"))?;
        relay::start(&format!("share {port}"), listener, address)?;
    }
    Ok(())
}
