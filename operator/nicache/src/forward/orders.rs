//! What is asked of `nicache forward`, on its way to the forwarder and back.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Result, bail};
use nicache_bus::Doorbell;

use super::messages::{Answer, Question};

/// How long the forwarder may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// What is wanted, with a way back for the answer.
#[derive(Debug)]
pub(super) enum Order {
    /// Ask the forwarder.
    Ask(Question, Sender<Asked>),
    /// Have card and forwarder of another program take over. The answer: the number of the card's
    /// process, or why not.
    Upgrade(PathBuf, Sender<Result<u32, String>>),
    /// Read the file again. The answer: what to ask of the forwarder next, or why nothing is
    /// changed.
    Reload(Sender<Result<Question, String>>),
}

/// An answer, with what only the supervisor knows.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// What the forwarder says.
    pub answer: Answer,
    /// About the whole.
    pub about: super::status::About,
}

/// Questions that wait for the supervisor's loop.
#[derive(Debug)]
pub(super) struct Orders {
    waiting: Mutex<VecDeque<Order>>,
    bell: Doorbell,
}

impl AsFd for Orders {
    /// Readable when somebody asks.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Orders {
    /// Orders of which nobody has given any yet.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new() -> Result<Self> {
        Ok(Self { waiting: Mutex::default(), bell: Doorbell::new()? })
    }

    /// The next one.
    pub(super) fn take(&self) -> Option<Order> {
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        if waiting.is_empty() {
            self.bell.hear();
        }
        waiting.pop_front()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// There is none in time.
    pub(super) fn ask(&self, question: Question) -> Result<Asked> {
        let (reply, answer) = channel();
        self.add(Order::Ask(question, reply));
        match answer.recv_timeout(ANSWER_TIMEOUT) {
            Ok(asked) => Ok(asked),
            Err(_) => bail!(
                "the forwarder process does not answer: it may just be started again; try once more"
            ),
        }
    }
}

/// How long two processes may take to start.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(125);

impl Orders {
    fn add(&self, order: Order) {
        self.waiting.lock().expect("no holder of this lock panics").push_back(order);
        self.bell.ring();
    }

    /// Has the file read again; what to ask of the forwarder next.
    pub(super) fn reload(&self) -> Result<Question> {
        let (reply, answer) = channel();
        self.add(Order::Reload(reply));
        match answer.recv_timeout(ANSWER_TIMEOUT) {
            Ok(question) => question.map_err(anyhow::Error::msg),
            Err(_) => bail!("the supervisor does not answer: `nicache status` says what it does"),
        }
    }

    /// Has card and forwarder of another program take over.
    pub(super) fn upgrade(&self, program: PathBuf) -> Result<u32> {
        let (reply, answer) = channel();
        self.add(Order::Upgrade(program, reply));
        match answer.recv_timeout(UPGRADE_TIMEOUT) {
            Ok(upgraded) => upgraded.map_err(anyhow::Error::msg),
            Err(_) => bail!("the supervisor does not answer: `nicache status` says what it does"),
        }
    }
}
