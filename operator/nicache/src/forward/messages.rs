//! What supervisor and forwarder tell each other: JSON messages with open files attached, on the
//! socket that a child has at its start ([`crate::setup`]).

use std::net::SocketAddr;

use nicache_fastpath::Handles;
use nicache_router::kernel::Link;
use nicache_router::report::{Report, WhyReport};
use serde::{Deserialize, Serialize};

use crate::options::LogFormat;

/// Setup of the forwarder. Attached: two files of the kernel's tables, the memory for connections,
/// and with a fast path its program that takes packets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ForwarderSetup {
    /// Form of log lines.
    pub log_format: LogFormat,
    /// The configuration's text, which the supervisor has checked.
    pub config: String,
    /// The links that it was checked with.
    pub links: Vec<Link>,
    /// Bytes of the card's cache. Supervisors of earlier versions do not say them, and then they
    /// are those of the configuration.
    #[serde(default)]
    pub memory: Option<u32>,
    /// A number that nobody else knows, the same after a restart.
    pub secret: u64,
    /// The maps of the fast path, if there is one.
    pub fast_path: Option<Handles>,
    /// Links where it is, by the kernel's numbers.
    pub fast_links: Vec<u32>,
}

/// Supervisor to forwarder.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToForwarder {
    /// A card is there anew. Attached: the window, then the three files of the attachment.
    Attach {
        /// How payload gets from a receive to a send, from now on.
        mode: String,
        /// The number of the attachment.
        #[serde(default)]
        attachment: Option<u64>,
    },
    /// The card is gone.
    Detach,
    /// What health checks found.
    Health {
        /// The service's number.
        service: u16,
        /// The back end's number.
        back_end: u16,
        /// It answers.
        is_up: bool,
        /// What the check came to.
        reason: String,
    },
    /// Answer this with [`FromForwarder::Answer`] of the same number.
    Ask {
        /// Number of the question.
        id: u64,
        /// The question.
        question: Question,
    },
}

/// What is asked of a forwarder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(crate) enum Question {
    /// Everything.
    Report,
    /// What is known of an address? Port 0: whatever the port.
    Why {
        /// The address.
        asked: SocketAddr,
    },
    /// Give back ends at an address no new connections, or give them some again.
    Drain {
        /// The address.
        address: SocketAddr,
        /// After how many milliseconds what is left is ended; `None`: they get connections again.
        within_ms: Option<u64>,
    },
    /// Take the rules of another text of the configuration, which is the same but for these.
    Rules {
        /// The text, which the supervisor has checked.
        config: String,
    },
}

/// Forwarder to supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum FromForwarder {
    /// Packets are forwarded as soon as there is a card.
    Ready,
    /// The card is broken; another attachment is needed.
    Broken {
        /// The number of the attachment.
        #[serde(default)]
        attachment: Option<u64>,
    },
    /// To a question.
    Answer {
        /// Number of the question.
        id: u64,
        /// The answer.
        answer: Answer,
    },
}

/// To a [`Question`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To [`Question::Report`].
    Report(Box<Report>),
    /// To [`Question::Why`].
    Why(Box<WhyReport>),
    /// To [`Question::Drain`]: so many back ends.
    Drained {
        /// How many back ends are drained.
        back_ends: u64,
    },
    /// To [`Question::Rules`].
    Rules {
        /// So many rules are in force, or why they are not.
        taken: Result<u64, String>,
    },
}
