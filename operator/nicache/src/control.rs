//! The two control protocols.
//!
//! *Supervisor and card* speak JSON messages, one per `SOCK_SEQPACKET` datagram, on the socket that
//! gave the card its setup ([`crate::setup`]): [`ToCard`] and [`FromCard`]. Every question has a
//! number that its answer repeats.
//!
//! *A command (`status`, `purge`, `bypass`) and the supervisor* speak lines of JSON on the Unix
//! socket `/run/nicache/NAME.sock`: one [`Request`] per connection, one [`Response`] back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nicache_admin::{CardSample, HotObject, Sample};
use serde::{Deserialize, Serialize};

use crate::asking::AskedRequest;
use crate::forward::status::ForwardStatus;
use crate::inquiry::{DatabaseReport, EntryReport, PageReport, WhoReport, WhyReport};
use crate::page::PageName;
use crate::serve::report::ServeStatus;
use crate::setup::{receive_message, send_message};
pub use crate::stranger_report::StrangerReport;

/// Longest request or response line, in bytes.
pub const LINE_BYTES_MAX: u64 = 1 << 20;
/// How long a command waits for the supervisor, and the supervisor for the card.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to look whether there is room for a message.
const ROOM: Duration = Duration::from_millis(10);
/// Most records in one [`FromCard::AccessLog`], so a message stays below
/// [`crate::setup::MESSAGE_BYTES_MAX`] even if every text field has its full
/// [`RECORD_FIELD_BYTES_MAX`] bytes, each of them escaped.
pub const ACCESS_RECORDS_MAX: usize = 8;
/// Hottest objects in one answer at most.
pub const HOTTEST_MAX: usize = 24;
/// Longest text field of an [`AccessRecord`], in bytes; the card cuts longer ones.
pub const RECORD_FIELD_BYTES_MAX: usize = 512;

// JSON writes a control byte as six characters; 512 bytes are ample for names and numbers.
const _: () = assert!(
    ACCESS_RECORDS_MAX * (3 * 6 * RECORD_FIELD_BYTES_MAX + 512) <= crate::setup::MESSAGE_BYTES_MAX
);

// As many hottest objects as there may be, with texts of control bytes.
const _: () = assert!(
    HOTTEST_MAX * (2 * 6 * crate::inquiry::TEXT_BYTES_MAX + 256) <= crate::setup::MESSAGE_BYTES_MAX
);

/// Supervisor to card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToCard {
    /// Answer this with [`FromCard::Answer`] of the same number.
    Ask {
        /// Number of the question.
        id: u64,
        /// The question.
        question: Question,
    },
    /// Take frames from now on. Sent once, after [`FromCard::Ready`].
    Begin,
    /// Take frames from now on, but another card goes on with the connections that it has: frames
    /// that belong to no connection go there. Attached: for each queue two sockets
    /// ([`nicache_port::PairSocket`]), in place of the wire and of the host.
    BeginAfter,
    /// Another card takes the frames from now on. Attached: the other ends of these sockets. This
    /// one ends when its connections have.
    Yield,
    /// The server's files are watched from now on, which they were not at the start, or by another
    /// watcher, which knows nothing of what the card has. Attached: a socket to the watcher, then
    /// the files of the kernel witness ([`WatchReport::files`](crate::setup::WatchReport::files)).
    Watched,
    /// Flush files and end with status 0.
    Stop,
}

/// What the supervisor asks of the card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Question {
    /// Do all threads of the card still work?
    Alive,
    /// How much of everything so far.
    Counters,
    /// How much of everything so far, and what is told of each queue.
    Cards,
    /// What is used most?
    Hottest,
    /// Drop all entries.
    PurgeAll,
    /// Drop the entries of some pages.
    PurgeTarget {
        /// Which pages.
        #[serde(flatten)]
        page: PageName,
    },
    /// What is there of this page, and what would these requests meet?
    Page {
        /// Which page it is.
        #[serde(flatten)]
        page: PageName,
        /// At most [`crate::inquiry::ASKED_MAX`].
        #[serde(default)]
        requests: Vec<AskedRequest>,
    },
    /// Which entries were judged by these?
    EntriesOf {
        /// The watcher's numbers, at most [`crate::inquiry::RECORDS_MAX`].
        records: Vec<u64>,
        /// All dynamic ones as well.
        every_dynamic: bool,
    },
    /// Stop (true) or resume (false) answering and storing.
    Bypass {
        /// New state.
        on: bool,
    },
}

/// Card to supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromCard {
    /// Whether frames come to the ports and leave, if that was [asked](crate::setup::ProbeSetup).
    /// Sent once, before `Ready`, which does not follow a `failure`.
    Probed {
        /// Whether small hits are answered before the card.
        l0: bool,
        /// Why the ports cannot be used.
        failure: Option<String>,
    },
    /// All memory is taken. Frames are forwarded from [`ToCard::Begin`] on. Sent once.
    Ready,
    /// To a question.
    Answer {
        /// Number of the question.
        id: u64,
        /// The answer.
        answer: Answer,
    },
    /// Requests that were hits, at most [`ACCESS_RECORDS_MAX`].
    AccessLog {
        /// Oldest first.
        records: Vec<AccessRecord>,
        /// Records lost since the last batch because nobody fetched them in time.
        dropped: u64,
    },
}

/// The card's answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// To [`Question::Alive`].
    Alive,
    /// To [`Question::Counters`].
    Counters(Counters),
    /// To [`Question::Cards`].
    Cards {
        /// Each queue.
        cards: Vec<CardSample>,
        /// All of them together.
        counters: Box<Counters>,
    },
    /// To [`Question::Hottest`].
    Hottest {
        /// At most [`HOTTEST_MAX`], hottest first.
        objects: Vec<HotObject>,
    },
    /// To both purges.
    Purged {
        /// Entries dropped.
        entries: u64,
    },
    /// To [`Question::Page`].
    Page(Box<PageReport>),
    /// To [`Question::EntriesOf`].
    Entries {
        /// At most [`crate::inquiry::ENTRIES_MAX`].
        entries: Vec<EntryReport>,
        /// All of them.
        count: u64,
    },
    /// To [`Question::Bypass`].
    Bypass {
        /// State now.
        on: bool,
    },
    /// Not possible.
    Refused {
        /// Why it is not possible.
        reason: String,
    },
}

/// The card's counters since its start. Those that the live line and `status` show by name have
/// fields; any others are in `more`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Requests answered by the card.
    pub hits: u64,
    /// Cacheable requests forwarded to the server.
    pub misses: u64,
    /// Requests that are not for the card.
    pub bypasses: u64,
    /// Entries in card memory.
    pub entries: u64,
    /// Card memory in use, in bytes.
    pub memory_used_bytes: u64,
    /// Card memory, in bytes.
    pub memory_bytes: u64,
    /// Bytes that did not cross the bus because the card sent them, headers included.
    pub bus_saved_bytes: u64,
    /// Bytes that crossed the bus toward the host.
    pub bus_to_host_bytes: u64,
    /// Bytes that crossed the bus toward the card.
    pub bus_from_host_bytes: u64,
    /// Whether everything is passed to the server by command.
    pub bypass_on: bool,
    /// Why nothing is cached at the moment, if so (no witness, lease expired).
    pub not_caching: Option<String>,
    /// Headers and cookies that keep requests from the card, those first that do so most often.
    pub unknown_names: Vec<StrangerReport>,
    /// All others by name: bypasses by reason, refusals by reason, drops, retransmissions, ...
    #[serde(flatten)]
    pub more: BTreeMap<String, u64>,
}

impl Counters {
    /// Share of all requests that the card answered, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses + self.bypasses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }

    /// By how much each has grown since `before`, by name: `hits`, `misses`, `bypasses`, and of the
    /// others those that have.
    pub fn since(&self, before: &Self) -> BTreeMap<String, u64> {
        let of_before = |name: &String| before.more.get(name).copied().unwrap_or(0);
        let others = self
            .more
            .iter()
            .map(|(name, value)| (name.clone(), value.saturating_sub(of_before(name))));
        let mut grown: BTreeMap<String, u64> = others.filter(|(_, value)| *value > 0).collect();
        for (name, now, then) in [
            ("hits", self.hits, before.hits),
            ("misses", self.misses, before.misses),
            ("bypasses", self.bypasses, before.bypasses),
        ] {
            grown.insert(name.to_owned(), now.saturating_sub(then));
        }
        grown
    }
}

/// One request that the card answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccessRecord {
    /// When the reply was begun, Unix time in seconds.
    pub unix_s: u64,
    /// The client's address.
    pub client: IpAddr,
    /// Request line without CR LF.
    pub request: String,
    /// Status code.
    pub status: u16,
    /// Body bytes of the reply.
    pub body_bytes: u64,
    /// `Referer`, if any.
    pub referer: Option<String>,
    /// `User-Agent`, if any.
    pub user_agent: Option<String>,
}

/// The card's end of its socket to the supervisor.
#[derive(Debug)]
pub struct CardChannel {
    socket: OwnedFd,
}

impl CardChannel {
    /// Wraps the socket left over from the setup.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Next message with its files, waiting for it. `None`: the supervisor is gone, so end at once.
    pub fn receive(&self) -> Result<Option<(ToCard, Vec<OwnedFd>)>> {
        receive_message(&self.socket)
    }

    /// Sends without waiting; an error when the supervisor is too slow (drop and count) or gone.
    pub fn send(&self, message: &FromCard) -> Result<()> {
        send_message(&self.socket, message, &[])
    }

    /// Sends as soon as the supervisor makes room; an error says that it is gone.
    pub fn send_patiently(&self, message: &FromCard) -> Result<()> {
        loop {
            match self.send(message) {
                Err(error) if error.downcast_ref() == Some(&rustix::io::Errno::AGAIN) => {
                    std::thread::sleep(ROOM);
                }
                sent => return sent,
            }
        }
    }
}

impl AsFd for CardChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

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
    /// Why there is no witness, if so.
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

/// The answer to a question does not fit it. `who` has answered.
pub fn misfit(who: &str) -> anyhow::Error {
    anyhow!(
        "{who} gave an answer that does not fit the question: it may be of another version; start nicache again"
    )
}

/// What a command says then.
pub fn unexpected() -> anyhow::Error {
    misfit("the nicache that runs")
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
    fn messages_survive_the_wire() {
        let more = BTreeMap::from([("bypass_cookie".to_owned(), 3)]);
        let counters = Counters { hits: 3, misses: 1, more, ..Counters::default() };
        let message = FromCard::Answer { id: 7, answer: Answer::Counters(counters.clone()) };
        let text = serde_json::to_string(&message).unwrap();
        assert!(text.contains("\"bypass_cookie\":3"), "{text}");
        assert_eq!(serde_json::from_str::<FromCard>(&text).unwrap(), message);
        assert!((counters.hit_rate() - 0.75).abs() < 1e-9);
        let ask = ToCard::Ask {
            id: 1,
            question: Question::PurgeTarget { page: PageName::parse("/").unwrap() },
        };
        assert_eq!(
            serde_json::from_str::<ToCard>(&serde_json::to_string(&ask).unwrap()).unwrap(),
            ask
        );
    }

    #[test]
    fn counters_grow() {
        let counters = |hits, cookies| {
            let more =
                BTreeMap::from([("bypass_cookie".to_owned(), cookies), ("waits".to_owned(), 1)]);
            Counters { hits, more, ..Counters::default() }
        };
        let grown = counters(9, 5).since(&counters(2, 3));
        let expected = [("bypass_cookie", 2), ("bypasses", 0), ("hits", 7), ("misses", 0)];
        assert_eq!(grown, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn a_full_batch_of_access_records_fits_a_message() {
        let text = "\u{1}".repeat(RECORD_FIELD_BYTES_MAX);
        let record = AccessRecord {
            unix_s: u64::MAX,
            client: "2001:db8::1".parse().unwrap(),
            request: text.clone(),
            status: 200,
            body_bytes: u64::MAX,
            referer: Some(text.clone()),
            user_agent: Some(text),
        };
        let batch =
            FromCard::AccessLog { records: vec![record; ACCESS_RECORDS_MAX], dropped: u64::MAX };
        assert!(serde_json::to_vec(&batch).unwrap().len() <= crate::setup::MESSAGE_BYTES_MAX);
    }

    #[test]
    fn samples_of_all_queues_and_hottest_objects_fit_a_message() {
        let crossing = |direction| nicache_admin::Crossing {
            class: "application_headers".into(),
            direction,
            bytes: u64::MAX,
        };
        let bus =
            [nicache_admin::Direction::ToHost, nicache_admin::Direction::FromHost].map(crossing);
        let number = u64::MAX;
        let card = CardSample {
            id: "63".into(),
            bus: bus.into_iter().cycle().take(10).collect(),
            hits: number,
            misses: number,
            bypasses: number,
            sent_bytes: number,
            saved_bytes: number,
            entries: number,
            memory_used_bytes: number,
            memory_bytes: number,
            flows: number,
            evictions: number,
            purges: number,
            waits: number,
            retransmits: number,
            drops: number,
        };
        let more = (0..200)
            .map(|name| (format!("fill_refused_with_a_long_name_{name}"), number))
            .collect();
        let counters = Box::new(Counters { more, ..Counters::default() });
        let cards = vec![card; usize::from(crate::options::run::QUEUES_MAX)];
        let text = "\u{1}".repeat(crate::inquiry::TEXT_BYTES_MAX);
        let object = HotObject {
            host: text.clone(),
            target: text,
            hits_per_s: f64::MAX,
            ..HotObject::default()
        };
        let objects = vec![object; HOTTEST_MAX];
        for answer in [Answer::Cards { cards, counters }, Answer::Hottest { objects }] {
            let message = FromCard::Answer { id: number, answer };
            assert!(serde_json::to_vec(&message).unwrap().len() <= crate::setup::MESSAGE_BYTES_MAX);
        }
    }

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
