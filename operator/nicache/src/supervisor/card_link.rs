//! The supervisor's side of the conversation with a card: questions from any thread, answers and
//! access records by one reader thread. A card may end and another take its place; whoever asks
//! meanwhile hears so.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::access_log::AccessLog;
use crate::control::{ANSWER_TIMEOUT, Answer, FromCard, Question, ToCard};
use crate::setup::{receive_message, send_message};

type Waiting = Arc<Mutex<HashMap<u64, mpsc::Sender<Answer>>>>;

/// Asks the card.
#[derive(Debug)]
pub(crate) struct CardLink {
    connection: Mutex<Option<Connection>>,
    next_id: AtomicU64,
    pid: AtomicU32,
    restarts: AtomicU64,
    /// What cards were last told of `nicache bypass`: the next one begins with it.
    bypass: AtomicBool,
    access_log: Option<Arc<AccessLog>>,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<OwnedFd>,
    waiting: Waiting,
}

impl CardLink {
    /// A link to no card yet.
    pub(crate) fn new(access_log: Option<Arc<AccessLog>>) -> Self {
        Self {
            connection: Mutex::new(None),
            next_id: AtomicU64::new(1),
            pid: AtomicU32::new(0),
            restarts: AtomicU64::new(0),
            bypass: AtomicBool::new(false),
            access_log,
        }
    }

    /// Takes over the socket of a card that has said [`FromCard::Ready`], in place of an earlier
    /// one.
    pub(crate) fn connect(&self, socket: OwnedFd, pid: u32) -> Result<()> {
        let (socket, waiting) = (Arc::new(socket), Waiting::default());
        let reader = (Arc::clone(&socket), Arc::clone(&waiting), self.access_log.clone());
        let body = move || {
            read_all(&reader.0, &reader.1, reader.2.as_deref());
            // Whoever still waits hears at once that nothing comes.
            reader.1.lock().expect("no holder of this lock panics").clear();
        };
        std::thread::Builder::new().name("card-link".into()).spawn(body)?;
        if self.pid.swap(pid, Ordering::Relaxed) != 0 {
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
        *self.locked() = Some(Connection { socket, waiting });
        Ok(())
    }

    /// The card is gone.
    pub(crate) fn disconnect(&self) {
        *self.locked() = None;
    }

    /// Is there a card to ask?
    pub(super) fn is_connected(&self) -> bool {
        self.locked().is_some()
    }

    /// Process number of the card, or of the last one.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// How often another card has taken the place of one that ended.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Asks and waits for the answer, at most [`ANSWER_TIMEOUT`].
    pub(crate) fn ask(&self, question: Question) -> Result<Answer> {
        let answer = self.ask_while(question, ANSWER_TIMEOUT, || false)?;
        if let Answer::Bypass { on } = answer {
            self.bypass.store(on, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// Does every request go to the server?
    pub(crate) fn bypass(&self) -> bool {
        self.bypass.load(Ordering::Relaxed)
    }

    /// Asks and waits for the answer: for `step`, and again while `is_patient`.
    pub(crate) fn ask_while(
        &self,
        question: Question,
        step: Duration,
        mut is_patient: impl FnMut() -> bool,
    ) -> Result<Answer> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        let (socket, waiting) = {
            let connection = self.locked();
            let connection = connection.as_ref().context("the card is being started again")?;
            (Arc::clone(&connection.socket), Arc::clone(&connection.waiting))
        };
        let lock = || waiting.lock().expect("no holder of this lock panics");
        lock().insert(id, sender);
        let mut wait = || {
            // Of questions that are not taken out, there is room for so many.
            while let Err(error) =
                send_message(&*socket, &ToCard::Ask { id, question: question.clone() }, &[])
            {
                if error.downcast_ref() != Some(&rustix::io::Errno::AGAIN) || !is_patient() {
                    return Err(error);
                }
                std::thread::sleep(step);
            }
            loop {
                match answer.recv_timeout(step) {
                    Ok(answer) => return Ok(answer),
                    Err(mpsc::RecvTimeoutError::Timeout) if is_patient() => {}
                    Err(mpsc::RecvTimeoutError::Timeout) => bail!("the card does not answer"),
                    Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the card has ended"),
                }
            }
        };
        let result = wait();
        lock().remove(&id);
        result
    }

    /// Tells the card something that has no answer.
    pub(crate) fn tell(&self, message: &ToCard) {
        if let Some(connection) = &*self.locked() {
            let _ = send_message(&*connection.socket, message, &[]);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().expect("no holder of this lock panics")
    }
}

fn read_all(socket: &OwnedFd, waiting: &Waiting, access_log: Option<&AccessLog>) {
    loop {
        match receive_message::<FromCard>(socket) {
            Ok(None) => return,
            Ok(Some((FromCard::Ready | FromCard::Probed { .. }, _))) => {}
            Ok(Some((FromCard::Answer { id, answer }, _))) => {
                let asker = waiting.lock().expect("no holder of this lock panics").remove(&id);
                if let Some(asker) = asker {
                    let _ = asker.send(answer);
                }
            }
            Ok(Some((FromCard::AccessLog { records, dropped }, _))) => {
                if let Some(log) = access_log {
                    log.append(&records, dropped);
                }
            }
            Err(error) => {
                tracing::warn!("a message from the card: {error:#}");
                if error.downcast_ref::<rustix::io::Errno>().is_some() {
                    return;
                }
            }
        }
    }
}
