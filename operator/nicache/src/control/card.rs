//! What the supervisor and a card tell each other: JSON messages, one per `SOCK_SEQPACKET`
//! datagram, on the socket that gave the card its setup ([`crate::setup`]). Every question has a
//! number that its answer repeats.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::Result;
use nicache_admin::{CardSample, HotObject};
use serde::{Deserialize, Serialize};

use crate::asking::AskedRequest;
use crate::inquiry::{EntryReport, PageReport};
use crate::page::PageName;
use crate::setup::{receive_message, send_message};
use crate::stranger_report::StrangerReport;

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
}
