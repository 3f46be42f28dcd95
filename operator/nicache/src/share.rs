//! `--share PORT`: this machine's 127.0.0.1:PORT appears as 127.0.0.1:PORT to the server, by a
//! relay.
//!
//! Unix sockets need nothing: the server sees the same files.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result};
use nicache_netns::Namespace;

use crate::relay::{self, Gate};

/// A port that is shared, and the gate of its relay.
pub(crate) struct Share {
    pub port: u16,
    pub gate: Arc<Gate>,
}

/// Starts one relay per port. Call it from a thread in the caller's network namespace.
pub(crate) fn start(ports: &[u16], server: &Namespace) -> Result<Vec<Share>> {
    let start = |&port: &u16| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = server.run(move || TcpListener::bind(address)).with_context(|| {
            format!("--share {port}: cannot listen at {address} on the server's side")
        })?;
        let gate = relay::start(&format!("share {port}"), listener, address)?;
        Ok(Share { port, gate })
    };
    ports.iter().map(start).collect()
}
