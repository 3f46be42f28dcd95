//! What is to be proved, and how.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::editor::Editor;
use crate::marker::Marker;
use crate::page::{Page, Popularity};

/// A piece of content with a version, and what changes it.
pub struct Subject {
    /// Its name.
    pub name: String,
    /// How pages show its version.
    pub marker: Marker,
    /// By how much the server itself may be behind its edits: a cache of its own, or a source that
    /// nobody can watch.
    pub lag: Duration,
    /// All of the server's workers are behind alike, so what one has shown directly is a floor
    /// for all.
    pub one_state: bool,
    /// The server itself may be behind for any time, by a mistake of its own: an old version is its
    /// own if it still gives that version directly later ([`Plan::direct`]), and a violation if
    /// not. The same holds for the last version.
    pub as_server: bool,
    /// Ways to change it, taken at random; at least one.
    pub editors: Vec<Box<dyn Editor>>,
}

impl Subject {
    /// The subject of an editor: shown as `NAME=VERSION`, without lag.
    pub fn new(editor: Box<dyn Editor>) -> Self {
        let name = editor.name().to_owned();
        let marker = Marker::named(&name);
        Self {
            name,
            marker,
            lag: Duration::ZERO,
            one_state: false,
            as_server: false,
            editors: vec![editor],
        }
    }

    /// The subjects of some editors, grouped by name.
    pub fn group(editors: impl IntoIterator<Item = Box<dyn Editor>>) -> Vec<Self> {
        let mut subjects: Vec<Self> = Vec::new();
        for editor in editors {
            match subjects.iter_mut().find(|subject| subject.name == editor.name()) {
                Some(subject) => subject.editors.push(editor),
                None => subjects.push(Self::new(editor)),
            }
        }
        subjects
    }
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<&str> = self.editors.iter().map(|editor| editor.kind()).collect();
        f.debug_struct("Subject")
            .field("name", &self.name)
            .field("marker", &self.marker)
            .field("lag", &self.lag)
            .field("one_state", &self.one_state)
            .field("as_server", &self.as_server)
            .field("editors", &kinds)
            .finish()
    }
}

/// How many connections read the pages, and where.
#[derive(Clone, Debug)]
pub struct Readers {
    /// Connections to the server that is to be proved.
    pub connections: usize,
    /// Connections past the cache, to [`Plan::direct`].
    pub direct_connections: usize,
    /// Threads that work the connections.
    pub threads: usize,
    /// Requests sent at once on a connection.
    pub pipeline: usize,
    /// Local addresses that connections come from in turns; empty: the kernel's choice.
    pub from: Vec<IpAddr>,
    /// A reply that takes longer is a violation.
    pub timeout: Duration,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            connections: 64,
            direct_connections: 4,
            threads: 2,
            pipeline: 1,
            from: Vec::new(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Where the server is reached without anything in front of it.
#[derive(Clone, Debug)]
pub struct Direct {
    /// Its address.
    pub address: SocketAddr,
    /// The network namespace in which it has that address; `None`: the caller's own.
    pub namespace: Option<Arc<File>>,
}

impl Direct {
    /// Runs `job` in its network namespace.
    pub(crate) fn within<T: Send>(&self, job: impl FnOnce() -> T + Send) -> io::Result<T> {
        match &self.namespace {
            None => Ok(job()),
            Some(namespace) => nicache_netns::within(namespace, job),
        }
    }
}

/// A proof to be run.
#[derive(Debug)]
pub struct Plan {
    /// The server, by way of what is to be proved.
    pub server: SocketAddr,
    /// The `Host` field of requests.
    pub host: String,
    /// Further request fields, without line ends.
    pub headers: Vec<String>,
    /// The server without anything in front of it.
    pub direct: Option<Direct>,
    /// What is read.
    pub pages: Vec<Page>,
    /// How often each.
    pub popularity: Popularity,
    /// What is edited.
    pub subjects: Vec<Subject>,
    /// Edits per second of each subject.
    pub edits_per_second: f64,
    /// Most edits that come at once.
    pub burst: u32,
    /// Least time from the end of an edit to the next of the same subject. Some servers compare
    /// times in seconds, and take two edits within one for one.
    pub least_gap: Duration,
    /// Who reads.
    pub readers: Readers,
    /// How pages of [`Page::within`] print the time.
    pub clock: Marker,
    /// How far a time that the server prints may be from its execution, besides.
    pub clock_slack: Duration,
    /// Statuses besides 200 that are not violations.
    pub statuses: Vec<u16>,
    /// Version of the first edit; `None`: one more than the pages show.
    pub first_version: Option<u64>,
    /// The run ends after this, whatever has happened.
    pub duration: Option<Duration>,
    /// Replies needed; the run ends when they are there, with [`Plan::edits`], if no duration is
    /// given.
    pub replies: u64,
    /// Edits needed besides the first of each subject.
    pub edits: u64,
    /// Rest before the last look, besides the longest lag.
    pub quiet: Duration,
    /// Equal seeds choose equal pages and edit times.
    pub seed: u64,
    /// Once true, the run goes on to its end: last edits, rest, last look.
    pub stop: Arc<AtomicBool>,
}

impl Plan {
    /// A plan for these, with 64 connections and 10 edits per second, that ends after 10 seconds.
    pub fn new(server: SocketAddr, pages: Vec<Page>, subjects: Vec<Subject>) -> Self {
        Self {
            server,
            host: server.to_string(),
            headers: Vec::new(),
            direct: None,
            pages,
            popularity: Popularity::Uniform,
            subjects,
            edits_per_second: 10.0,
            burst: 5,
            least_gap: Duration::ZERO,
            readers: Readers::default(),
            clock: Marker::named("time"),
            clock_slack: Duration::from_millis(100),
            statuses: Vec::new(),
            first_version: None,
            duration: Some(Duration::from_secs(10)),
            replies: 1,
            edits: 1,
            quiet: Duration::from_secs(1),
            seed: 1,
            stop: Arc::default(),
        }
    }
}
