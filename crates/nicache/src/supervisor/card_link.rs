//! The supervisor's side of the conversation with the card: questions from any thread, answers and access records by one reader thread.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use anyhow::{Context, Result, bail};

use crate::access_log::AccessLog;
use crate::control::{ANSWER_TIMEOUT, Answer, Counters, FromCard, Question, ToCard};
use crate::setup::{receive_message, send_message};

type Waiting = Arc<Mutex<HashMap<u64, mpsc::Sender<Answer>>>>;

/// Asks the card.
#[derive(Debug)]
pub struct CardLink {
    socket: OwnedFd,
    waiting: Waiting,
    next_id: AtomicU64,
}

impl CardLink {
    /// Takes over the socket of a card that has said [`FromCard::Ready`].
    pub fn start(socket: OwnedFd, access_log: Option<Arc<AccessLog>>) -> Result<CardLink> {
        let waiting = Waiting::default();
        let reader = (socket.try_clone()?, Arc::clone(&waiting));
        let body = move || {
            read_all(&reader.0, &reader.1, access_log.as_deref());
            // Whoever still waits hears at once that nothing comes.
            reader.1.lock().expect("no holder of this lock panics").clear();
        };
        std::thread::Builder::new().name("card-link".into()).spawn(body)?;
        Ok(CardLink { socket, waiting, next_id: AtomicU64::new(1) })
    }

    /// Asks and waits for the answer, at most [`ANSWER_TIMEOUT`].
    pub fn ask(&self, question: Question) -> Result<Answer> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        self.locked().insert(id, sender);
        let sent = send_message(&self.socket, &ToCard::Ask { id, question }, &[]);
        let answer = sent.and_then(|()| answer.recv_timeout(ANSWER_TIMEOUT).context("the card does not answer"));
        self.locked().remove(&id);
        answer
    }

    /// Asks for the counters.
    pub fn counters(&self) -> Result<Counters> {
        match self.ask(Question::Counters)? {
            Answer::Counters(counters) => Ok(counters),
            other => bail!("the card answered {other:?}"),
        }
    }

    /// Tells the card to flush and end.
    pub fn stop(&self) {
        let _ = send_message(&self.socket, &ToCard::Stop, &[]);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<u64, mpsc::Sender<Answer>>> {
        self.waiting.lock().expect("no holder of this lock panics")
    }
}

fn read_all(socket: &OwnedFd, waiting: &Waiting, access_log: Option<&AccessLog>) {
    loop {
        match receive_message::<FromCard>(socket) {
            Ok(None) => return,
            Ok(Some((FromCard::Ready, _))) => {}
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
