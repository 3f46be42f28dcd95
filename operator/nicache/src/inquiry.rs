//! What an operator asks about pages and sources (`nicache why`, `nicache who`), as it travels
//! between command, supervisor, card and watcher: JSON, see [`crate::control`].

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

use crate::stranger_report::StrangerReport;

/// Entries in one answer at most.
pub(crate) const ENTRIES_MAX: usize = 64;
/// Records in one question at most.
pub(crate) const RECORDS_MAX: usize = 1000;
/// Requests in one question at most.
pub(crate) const ASKED_MAX: usize = 4;
/// Bytes of the header fields of a request in an answer at most.
pub(crate) const FIELDS_BYTES_MAX: usize = 2048;
/// Bytes of the header fields of an entry in an answer at most.
pub(crate) const ENTRY_FIELDS_BYTES_MAX: usize = 256;
/// Paths of one entry that an answer names at most.
pub(crate) const PATHS_MAX: usize = 500;
/// Longest text in an answer, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 256;

/// What the card knows of a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageReport {
    /// Key of the first request that is asked about, on the first queue, in hexadecimal.
    pub key: Option<String>,
    /// What each of the requests that are asked about would meet.
    pub asked: Vec<MeetingReport>,
    /// Why the last request for it that was not looked up went to the server, a reason as
    /// `bypass_cookie`.
    pub bypass: Option<String>,
    /// How long ago that was, in milliseconds.
    pub bypass_ms: Option<u64>,
    /// What last became of a reply: `stored`, `first`, `differed`, or a reason as
    /// `fill_refused_wrote`.
    pub last: Option<String>,
    /// The header fields of its request that choose among replies, each `Name: value`; of a
    /// client's request only.
    pub last_request: Vec<String>,
    /// How long ago its request was forwarded, in milliseconds.
    pub last_ms: Option<u64>,
    /// The page is put aside, because its executions differ, for so many more milliseconds.
    pub put_aside_ms: Option<u64>,
    /// What last kept a request for it from the card: a header or a cookie.
    pub stranger: Option<StrangerReport>,
    /// Headers by which the server chooses among variants.
    pub vary: Vec<String>,
    /// At most [`ENTRIES_MAX`].
    pub entries: Vec<EntryReport>,
    /// All of them.
    pub entries_count: u64,
}

/// What a request would meet now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeetingReport {
    /// Whose request it is.
    pub title: String,
    /// `hit`, `other_class`, `suspect`, `lapsed`, `excluded`, `differs`, `not_worth`, `absent`, or
    /// a reason as `bypass_cookie`.
    pub meets: String,
    /// In what the client differs from those who have been answered.
    pub missing: Vec<String>,
    /// Queues that would answer it from memory; a connection belongs to one.
    pub queues_hit: usize,
    /// All queues of the cards.
    pub queues: usize,
    /// The key of its reply, in hexadecimal.
    pub key: Option<String>,
    /// What last became of a reply to such a request, as [`PageReport::last`].
    pub last: Option<String>,
    /// How long ago it was forwarded, in milliseconds.
    pub last_ms: Option<u64>,
    /// The page is put aside for so many more milliseconds.
    pub put_aside_ms: Option<u64>,
    /// What it says, each `Name: value`.
    pub fields: Vec<String>,
}

impl MeetingReport {
    /// Takes what another queue would do with the same request: the best counts, and it is told how
    /// many do it.
    pub fn join(&mut self, other: Self) {
        const BEST_FIRST: [&str; 7] =
            ["hit", "other_class", "suspect", "lapsed", "differs", "not_worth", "excluded"];
        let rank = |meets: &str| {
            BEST_FIRST.iter().position(|known| *known == meets).unwrap_or(BEST_FIRST.len())
        };
        let (queues_hit, queues) = (self.queues_hit + other.queues_hit, self.queues + other.queues);
        let is_newer =
            other.last_ms.is_some_and(|ago| self.last_ms.is_none_or(|before| ago < before));
        let (last, last_ms) = match is_newer {
            true => (other.last.clone(), other.last_ms),
            false => (self.last.take(), self.last_ms),
        };
        if rank(&other.meets) < rank(&self.meets) {
            *self = other;
        }
        (self.last, self.last_ms, self.queues_hit, self.queues) =
            (last, last_ms, queues_hit, queues);
    }
}

/// One entry of a page, as a card has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EntryReport {
    /// Key in hexadecimal.
    pub key: String,
    /// Number of the queue whose card memory holds it.
    pub shard: usize,
    /// The host that its request named.
    pub host: String,
    /// The request target.
    pub target: String,
    /// `static` or `dynamic`.
    pub class: String,
    /// `good`, `suspect` (the watcher is asked before it is served again) or `lapsed` (the server
    /// is asked before).
    pub state: String,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// For how long it may be served before the server has said the same again, in milliseconds.
    pub left_ms: u64,
    /// T, in milliseconds: what that is after each reply of the server, as earned so far.
    pub earned_ms: u64,
    /// Classes of clients that the server has given it to (Referer, Sec-Fetch-*, language, kind of
    /// program), counted together.
    pub classes: usize,
    /// The watcher's number for what it was judged by.
    pub record: u64,
    /// The header fields of its request that choose among replies, each `Name: value`; empty if
    /// they are not remembered.
    #[serde(default)]
    pub request: Vec<String>,
}

/// Supervisor to watcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum ToWatch {
    /// Serve a card, too. Attached: the watcher's end of the socket between both
    /// (`SOCK_SEQPACKET`). Without an answer: nobody waits for a watcher that is slow.
    ServeCard {
        /// The server was started before everything that it reads was seen. For its programs that
        /// run now only files are vouched for.
        server_is_older: bool,
    },
    /// On what does this entry depend?
    Explain {
        /// [`EntryReport::record`].
        record: u64,
    },
    /// What depends on a file or directory?
    DependsOnPath {
        /// Absolute.
        path: String,
    },
    /// What depends on a table?
    DependsOnTable {
        /// `TABLE`, `SCHEMA.TABLE` or `DATABASE:SCHEMA.TABLE`.
        table: String,
    },
    /// What have the relays of databases told?
    Databases,
    /// Which processes outside the server's network has it asked that would be its own if they
    /// began anew?
    Outsiders,
}

/// Watcher to supervisor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum FromWatch {
    /// To [`ToWatch::Explain`]; `None`: forgotten.
    Explained {
        /// The sources.
        sources: Option<SourcesReport>,
    },
    /// To the other two.
    Dependents {
        /// Records, newest first, at most [`RECORDS_MAX`]. Those of entries that are gone may be
        /// among them.
        records: Vec<u64>,
        /// All of them.
        records_count: u64,
        /// Every dynamic entry depends on it.
        every_dynamic: bool,
    },
    /// To [`ToWatch::Databases`].
    Databases {
        /// The databases with a relay, in the order in which they were given.
        databases: Vec<DatabaseReport>,
    },
    /// To [`ToWatch::Outsiders`].
    Outsiders {
        /// By their numbers.
        processes: Vec<u32>,
    },
}

/// A database that a relay tells of, since the start of the watcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatabaseReport {
    /// Where the server finds it: address and port.
    pub database: String,
    /// Whether pages that ask it may be kept.
    pub in_step: bool,
    /// What the relay has told: statements, and what they have come to.
    pub events: u64,
    /// Of these, statements that may change something.
    pub changes: u64,
    /// How often all its pages were voided because the relay could not vouch for them any longer.
    pub voided: u64,
}

impl DatabaseReport {
    /// The report of a database of which nothing has been heard.
    pub fn unheard(address: SocketAddrV4) -> Self {
        Self { database: address.to_string(), in_step: false, events: 0, changes: 0, voided: 0 }
    }
}

/// On what an entry depends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourcesReport {
    /// At most [`PATHS_MAX`].
    pub paths: Vec<PathReport>,
    /// All of them.
    pub paths_count: u64,
    /// Tables and rows.
    pub tables: Vec<String>,
    /// Files that the server's programs have read since their start; a change of any of them ends a
    /// dynamic entry, too.
    pub retained: u64,
}

/// One path that an entry depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathReport {
    /// The path as the server spelled it.
    pub path: String,
    /// `read`, `missing` or `listed`.
    pub used: String,
    /// Revision of what is there.
    pub revision: Option<u64>,
}

/// What `nicache why` tells of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyReport {
    /// What the card knows.
    pub page: PageReport,
    /// What the watcher knows of each entry, in the same order.
    pub sources: Vec<Option<SourcesReport>>,
    /// Why nothing is watched at the moment, if so.
    #[serde(default)]
    pub unwatched: Option<String>,
    /// What is not kept because this kernel lacks something, each a sentence.
    pub lacks: Vec<String>,
}

/// What `nicache who` tells of a file, a directory or a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhoReport {
    /// Entries that a change would purge, at most [`ENTRIES_MAX`].
    pub entries: Vec<EntryReport>,
    /// All of them.
    pub entries_count: u64,
    /// The server may hold the file in its memory, so a change purges every dynamic entry.
    pub every_dynamic: bool,
}

/// The header fields of a head for a report, but for `Host`, as far as `bytes_max` goes.
pub(crate) fn fields(head: &[u8], bytes_max: usize) -> Vec<String> {
    let lines = head
        .split(|byte| *byte == b'\n')
        .skip(1)
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty());
    let is_host = |line: &[u8]| line.len() >= 5 && line[..5].eq_ignore_ascii_case(b"host:");
    let mut left = bytes_max;
    let fits = |line: &String| match left.checked_sub(line.len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    lines.filter(|line| !is_host(line)).map(text).take_while(fits).collect()
}

/// Text for a report, cut to [`TEXT_BYTES_MAX`].
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::MESSAGE_BYTES_MAX;

    #[test]
    fn full_reports_fit_a_message() {
        let name = "\u{e9}".repeat(TEXT_BYTES_MAX / 2);
        let entry = EntryReport {
            key: "0".repeat(32),
            shard: 63,
            host: "h".repeat(255),
            target: name.clone(),
            class: "dynamic".into(),
            state: "suspect".into(),
            body_bytes: u64::MAX,
            left_ms: u64::MAX,
            earned_ms: u64::MAX,
            classes: usize::MAX,
            record: u64::MAX,
            request: vec!["\"".repeat(64); ENTRY_FIELDS_BYTES_MAX / 64],
        };
        let lines = vec!["\"".repeat(TEXT_BYTES_MAX); FIELDS_BYTES_MAX / TEXT_BYTES_MAX];
        let meeting = MeetingReport { fields: lines.clone(), ..MeetingReport::default() };
        let page = PageReport {
            entries: vec![entry; ENTRIES_MAX],
            asked: vec![meeting; ASKED_MAX],
            last_request: lines,
            ..PageReport::default()
        };
        assert!(serde_json::to_vec(&page).unwrap().len() < MESSAGE_BYTES_MAX);
        let records = vec![u64::MAX; RECORDS_MAX];
        let answer =
            FromWatch::Dependents { records, records_count: u64::MAX, every_dynamic: true };
        assert!(serde_json::to_vec(&answer).unwrap().len() < MESSAGE_BYTES_MAX);
    }
}
