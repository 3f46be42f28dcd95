//! What a command (`status`, `purge`, `bypass`) and a running nicache tell each other: lines of
//! JSON on the Unix socket `/run/nicache/NAME.sock`, one [`Request`] per connection, one
//! [`Response`] back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use nicache_admin::{Mode, Sample};
use serde::{Deserialize, Serialize};

use super::card::{Answer, Counters, Question};
use crate::asking::AskedRequest;
use crate::forward::status::ForwardStatus;
use crate::inquiry::{DatabaseReport, WhoReport, WhyReport};
use crate::page::PageName;
use crate::serve::report::ServeStatus;

/// Longest request or response line, in bytes.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// A command's request to the supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// Everything there is to know.
    Status,
    /// What a viewer shows, and makes rates of.
    Sample,
    /// Have a card of this program take the place of the one at work.
    Upgrade {
        /// Absolute path of a nicache.
        program: PathBuf,
    },
    /// Passed on to the card.
    Card {
        /// What is asked of it.
        question: Question,
    },
    /// What is there of a page, and on what does it depend?
    Why {
        /// Which page it is.
        #[serde(flatten)]
        page: PageName,
        /// What is asked for it, at most [`crate::inquiry::ASKED_MAX`].
        #[serde(default)]
        requests: Vec<AskedRequest>,
        /// The page as it was typed, if it may be the path of a file: what a `nicache nfs` tells
        /// about.
        #[serde(default)]
        path: Option<String>,
    },
    /// Which pages depend on a file, a directory or a table?
    Who {
        /// An absolute path, or a table.
        source: String,
    },
    /// What does a forwarder know of an address? Port 0: whatever the port.
    ForwardWhy {
        /// The address.
        asked: SocketAddr,
    },
    /// Give a forwarder's back ends at an address no new connections, or give them some again.
    Drain {
        /// The address.
        address: SocketAddr,
        /// After how many milliseconds what is left is ended; `None`: they get connections again.
        within_ms: Option<u64>,
    },
    /// Have a forwarder read its file again, and take the rules from it.
    ReloadForward,
}

impl Request {
    /// Whether a nicache of this kind has a response to it.
    pub(super) fn suits(&self, mode: Mode) -> bool {
        match self {
            Self::Status | Self::Sample => true,
            Self::Upgrade { .. } => matches!(mode, Mode::Run | Mode::Forward),
            Self::Card { .. } | Self::Who { .. } => mode == Mode::Run,
            Self::Why { .. } => matches!(mode, Mode::Run | Mode::Nfs),
            Self::ForwardWhy { .. } | Self::Drain { .. } | Self::ReloadForward => {
                mode == Mode::Forward
            }
        }
    }
}

/// The supervisor's response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Status`], of `nicache serve`.
    Serve(Box<ServeStatus>),
    /// To [`Request::Status`], of `nicache nfs`.
    Nfs(Box<nicache_gateway::Figures>),
    /// To [`Request::Status`], of `nicache forward`.
    Forward(Box<ForwardStatus>),
    /// To [`Request::ForwardWhy`].
    ForwardWhy(Box<nicache_router::report::WhyReport>),
    /// To [`Request::Drain`].
    Drained {
        /// So many back ends.
        back_ends: u64,
    },
    /// To [`Request::ReloadForward`]: these are in force.
    ReloadedForward {
        /// How many rules there are.
        rules: u64,
    },
    /// To [`Request::Sample`].
    Sample(Box<Sample>),
    /// To [`Request::Upgrade`]: the other card serves.
    Upgraded {
        /// Its process.
        card_pid: u32,
    },
    /// To [`Request::Card`].
    Card {
        /// What the card said.
        answer: Answer,
    },
    /// To [`Request::Why`].
    Why(Box<WhyReport>),
    /// To [`Request::Why`], of `nicache nfs`.
    NfsWhy(Box<nicache_gateway::FileReport>),
    /// To [`Request::Who`].
    Who(Box<WhoReport>),
    /// Not possible.
    Error {
        /// Why it is not possible.
        reason: String,
    },
}

/// What `nicache status` shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What commands call it (`--name`).
    pub name: String,
    /// The supervisor.
    pub pid: u32,
    /// Seconds since it was ready.
    pub uptime_s: u64,
    /// Where the server is reached.
    pub url: String,
    /// The wire interface of the first card.
    pub interface: String,
    /// This machine's address on that interface.
    pub gateway: Ipv4Addr,
    /// The server's address behind the first card.
    pub server_address: Ipv4Addr,
    /// One behind each card; the first is `server_address`.
    pub server_addresses: Vec<Ipv4Addr>,
    /// The server's IPv6 address, where there is IPv6.
    pub server_address6: Ipv6Addr,
    /// TCP ports that cards read HTTP on.
    pub http_ports: Vec<u16>,
    /// The server's command, as words.
    pub server: Vec<String>,
    /// The programs beside it, as words.
    pub with: Vec<Vec<String>>,
    /// The server's first process.
    pub server_pid: u32,
    /// The first card.
    pub card_pid: u32,
    /// Processes of all cards.
    pub card_pids: Vec<u32>,
    /// How often another card has taken the place of one that ended.
    pub card_restarts: u64,
    /// The watcher.
    pub watch_pid: u32,
    /// Where the server is reached from other machines.
    pub published: Vec<String>,
    /// Where the admin port is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// TCP ports of this machine that the server reaches as its own.
    pub shared: Vec<u16>,
    /// Why no witness is at work, if so.
    pub watch_unavailable: Option<String>,
    /// What is not kept because this kernel lacks something, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch_lacks: Vec<String>,
    /// Why nothing has been kept lately, if so, as a sentence with what there is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What the environment of a program must contain so its changes are seen at once; empty:
    /// every program's are.
    #[serde(default)]
    pub writer_environment: Vec<(String, String)>,
    /// Databases that relays tell of. If the watcher does not answer, none is in step.
    #[serde(default)]
    pub databases: Vec<DatabaseReport>,
    /// Of all cards together.
    pub counters: Counters,
}

/// Writes one line of JSON.
pub fn write_line<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

/// Reads one line of JSON of at most [`LINE_BYTES_MAX`].
pub fn read_line<T: serde::de::DeserializeOwned>(stream: impl Read) -> Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        bail!("a line that has no end");
    }
    serde_json::from_slice(&line).context("a line that cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_and_broken_lines_are_errors() {
        assert!(read_line::<Request>(&b"{\"command\":\"status\"}"[..]).is_err());
        assert!(read_line::<Request>(&b"{\"command\":\"dance\"}\n"[..]).is_err());
        assert!(read_line::<Request>(std::io::repeat(b' ')).is_err());
        assert_eq!(
            read_line::<Request>(&b"{\"command\":\"status\"}\n"[..]).unwrap(),
            Request::Status
        );
    }
}
