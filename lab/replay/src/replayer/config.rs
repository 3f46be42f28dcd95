//! How a trace is replayed, and why it may not be.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::schedule::Demand;

/// Where to send requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// The `Host` field.
    pub host: String,
    /// Address and port.
    pub address: SocketAddr,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct ReplayerConfig {
    /// The server's addresses; sessions take turns. At least one.
    pub targets: Vec<ServerAddress>,
    /// Local addresses; connections take turns. None: the kernel chooses one, and about 28,000
    /// ports for each target. An address given here has so many for all targets together. A port is
    /// free again as soon as the server has closed, but a minute later if it lets the client close
    /// first.
    pub sources: Vec<IpAddr>,
    /// Most sessions at once, of all replayers together; infinite demand has always so many. 20 KB
    /// of memory each.
    pub clients: usize,
    /// Threads; sessions are dealt out to them in turn.
    pub replayers: usize,
    /// What makes a session begin.
    pub demand: Demand,
    /// The trace is repeated until this time is over, and what is not finished then is not counted;
    /// `None`: once.
    pub duration: Option<Duration>,
    /// Equal seeds draw equal times in [`Demand::Rate`].
    pub seed: u64,
}

/// Why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayerError {
    /// Nobody answers.
    #[error("no connection to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// Epoll cannot be used.
    #[error("cannot wait for sockets: {0}")]
    Epoll(io::Error),
    /// There is nowhere to send requests to, or no connection or thread to send them.
    #[error("a replay needs at least one target, client and replayer")]
    Nothing,
}
