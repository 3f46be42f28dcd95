//! The two control protocols: a supervisor with its cards ([`card`]), and a command with the
//! nicache that is running ([`command`]), which comes by a [`socket`].

use std::time::Duration;

use anyhow::anyhow;

mod card;
mod client;
mod command;
mod socket;

pub use card::{
    ACCESS_RECORDS_MAX, AccessRecord, Answer, CardChannel, Counters, FromCard, HOTTEST_MAX,
    Question, RECORD_FIELD_BYTES_MAX, ToCard,
};
pub use client::{ask, ask_server_status, ask_within, run_folder};
pub use command::{LINE_BYTES_MAX, Request, Response, Status, read_line, write_line};

pub(crate) use socket::ControlSocket;

pub use crate::stranger_report::StrangerReport;

/// How long a command waits for the supervisor, and the supervisor for the card.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
