//! What a command (`status`, `purge`, `bypass`) and a running nicache tell each other: lines of
//! JSON on the Unix socket `/run/nicache/NAME.sock`, one [`Request`] per connection, one
//! [`Response`] back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nicache_admin::Sample;
use serde::{Deserialize, Serialize};

use super::ANSWER_TIMEOUT;
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

/// Folder of the control sockets.
pub fn run_folder() -> PathBuf {
    PathBuf::from("/run/nicache")
}

/// Asks a running nicache. `name`: which; `None`: the only one.
pub fn ask(name: Option<&str>, request: &Request) -> Result<Response> {
    ask_within(name, request, ANSWER_TIMEOUT * 2)
}

/// Asks a running nicache and waits for its answer for `limit` at most. `name`: which; `None`: the
/// only one.
pub fn ask_within(name: Option<&str>, request: &Request, limit: Duration) -> Result<Response> {
    let socket = find_socket(&run_folder(), name)?;
    let mut stream = UnixStream::connect(&socket).with_context(|| {
        format!("no nicache answers at {} (is it running, and are you root?)", socket.display())
    })?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    write_line(&mut stream, request)?;
    match read_line(&stream).context("nicache did not answer")? {
        Response::Error { reason } => bail!("{reason}"),
        response => Ok(response),
    }
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

fn find_socket(folder: &Path, name: Option<&str>) -> Result<PathBuf> {
    if let Some(name) = name {
        let path = folder.join(format!("{name}.sock"));
        if name.contains('/') || !path.exists() {
            bail!("no nicache named `{name}` is running{}", others(&live_sockets(folder)));
        }
        return Ok(path);
    }
    let mut live = live_sockets(folder);
    match live.len() {
        0 => bail!("no nicache is running (or it is another user's: try sudo)"),
        1 => Ok(live.remove(0)),
        _ => bail!("several are running; say which with --name{}", others(&live)),
    }
}

/// Sockets that somebody listens on.
fn live_sockets(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .filter(|path| UnixStream::connect(path).is_ok())
        .collect();
    sockets.sort();
    sockets
}

fn others(sockets: &[PathBuf]) -> String {
    let names: Vec<String> = sockets
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    if names.is_empty() { String::new() } else { format!(" (running: {})", names.join(", ")) }
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

    #[test]
    fn which_one_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let missing = find_socket(folder.path(), None).unwrap_err().to_string();
        assert!(missing.contains("no nicache is running"), "{missing}");
        let bind =
            |name: &str| std::os::unix::net::UnixListener::bind(folder.path().join(name)).unwrap();
        let _one = bind("one.sock");
        drop(bind("dead.sock"));
        assert_eq!(find_socket(folder.path(), None).unwrap(), folder.path().join("one.sock"));
        let _two = bind("two.sock");
        let several = find_socket(folder.path(), None).unwrap_err().to_string();
        assert!(several.contains("one, two"), "{several}");
        assert!(find_socket(folder.path(), Some("../one")).is_err());
    }
}
