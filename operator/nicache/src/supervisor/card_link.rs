//! The supervisor's side of the conversation with a card: questions from any thread, answers and
//! access records by one reader thread. A card may end and another take its place; whoever asks
//! meanwhile hears so.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

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
    /// How many cards there were so far.
    cards: AtomicU64,
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
            cards: AtomicU64::new(0),
            bypass: AtomicBool::new(false),
            access_log,
        }
    }

    /// Takes over the socket of a card that has said [`FromCard::Ready`], in place of an earlier
    /// one, once the card may `begin`. No question is sent meanwhile: the earlier card has each
    /// before it hears that it is replaced, or this one has it after its beginning. If `begin`
    /// fails, the earlier one is asked as before.
    pub(crate) fn connect(
        &self,
        socket: OwnedFd,
        pid: u32,
        begin: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let (socket, waiting) = (Arc::new(socket), Waiting::default());
        let reader = (Arc::clone(&socket), Arc::clone(&waiting), self.access_log.clone());
        let body = move || {
            read_all(&reader.0, &reader.1, reader.2.as_deref());
            // Whoever still waits hears at once that nothing comes.
            lock(&reader.1).clear();
        };
        let mut connection = self.locked();
        // What is remembered of `nicache bypass` after this, its asker tells the new card.
        self.cards.fetch_add(1, Ordering::SeqCst);
        std::thread::Builder::new().name("card-link".into()).spawn(body)?;
        begin()?;
        if self.pid.swap(pid, Ordering::Relaxed) != 0 {
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
        *connection = Some(Connection { socket, waiting });
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
        loop {
            let cards = self.cards.load(Ordering::SeqCst);
            let answer = self.ask_while(question.clone(), ANSWER_TIMEOUT, || false)?;
            if let Answer::Bypass { on } = answer {
                self.bypass.store(on, Ordering::SeqCst);
                if self.cards.load(Ordering::SeqCst) != cards {
                    // The one that has taken its place may have begun with what was said before.
                    continue;
                }
            }
            return Ok(answer);
        }
    }

    /// Does every request go to the server?
    pub(crate) fn bypass(&self) -> bool {
        self.bypass.load(Ordering::SeqCst)
    }

    /// Asks and waits for the answer: for `step`, and again while `is_patient`.
    pub(crate) fn ask_while(
        &self,
        question: Question,
        step: Duration,
        mut is_patient: impl FnMut() -> bool,
    ) -> Result<Answer> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = ToCard::Ask { id, question };
        let (sender, answer) = mpsc::channel();
        // Of questions that are not taken out, there is room for so many.
        let waiting = loop {
            match self.send_question(id, &message, &sender) {
                Ok(waiting) => break waiting,
                Err(error)
                    if error.downcast_ref() == Some(&rustix::io::Errno::AGAIN) && is_patient() =>
                {
                    std::thread::sleep(step);
                }
                Err(error) => return Err(error),
            }
        };
        // The reader has the only one then, and lets it go with the card.
        drop(sender);
        let result = loop {
            match answer.recv_timeout(step) {
                Ok(answer) => break Ok(answer),
                Err(mpsc::RecvTimeoutError::Timeout) if is_patient() => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    break Err(anyhow!("the card does not answer"));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    break Err(anyhow!("the card has ended"));
                }
            }
        };
        lock(&waiting).remove(&id);
        result
    }

    /// Sends a question to the card that is at work now, and says who waits for the answer. Nobody
    /// takes the card's place meanwhile, so it has the question before it hears of that.
    fn send_question(
        &self,
        id: u64,
        message: &ToCard,
        sender: &mpsc::Sender<Answer>,
    ) -> Result<Waiting> {
        let connection = self.locked();
        let connection = connection.as_ref().context("the card is being started again")?;
        let waiting = &connection.waiting;
        lock(waiting).insert(id, sender.clone());
        match send_message(&*connection.socket, message, &[]) {
            Ok(()) => Ok(Arc::clone(waiting)),
            Err(error) => {
                lock(waiting).remove(&id);
                Err(error)
            }
        }
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

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<u64, mpsc::Sender<Answer>>> {
    waiting.lock().expect("no holder of this lock panics")
}

fn read_all(socket: &OwnedFd, waiting: &Waiting, access_log: Option<&AccessLog>) {
    loop {
        match receive_message::<FromCard>(socket) {
            Ok(None) => return,
            Ok(Some((FromCard::Ready | FromCard::Probed { .. }, _))) => {}
            Ok(Some((FromCard::Answer { id, answer }, _))) => {
                let asker = lock(waiting).remove(&id);
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::thread::{ScopedJoinHandle, scope};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::children::wait_readable;
    use super::*;

    /// Both ends of a card's socket: the link's, and the card's.
    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    /// What a card is told next.
    fn told(card: &OwnedFd) -> ToCard {
        receive_message(card).unwrap().unwrap().0
    }

    /// A card answers the next question.
    fn answer(card: &OwnedFd, answer: Answer) -> Question {
        let ToCard::Ask { id, question } = told(card) else { panic!("a question") };
        send_message(card, &FromCard::Answer { id, answer }, &[]).unwrap();
        question
    }

    fn is_silent(card: &OwnedFd, patience: Duration) -> bool {
        !wait_readable(card.as_fd(), patience).unwrap()
    }

    #[test]
    fn what_is_asked_while_a_card_takes_over_is_asked_of_that_card() {
        let link = CardLink::new(None);
        let ((ours, older), (theirs, younger)) = (pair(), pair());
        link.connect(ours, 1, || Ok(())).unwrap();
        scope(|scope| {
            let mut asker: Option<ScopedJoinHandle<'_, Result<Answer>>> = None;
            link.connect(theirs, 2, || {
                let (is_there, there) = mpsc::channel();
                let link = &link;
                asker = Some(scope.spawn(move || {
                    is_there.send(()).unwrap();
                    link.ask(Question::PurgeAll)
                }));
                there.recv().unwrap();
                // The younger one may have a fill under way now.
                assert!(is_silent(&older, Duration::from_millis(300)), "the older one is asked");
                Ok(())
            })
            .unwrap();
            assert_eq!(answer(&younger, Answer::Purged { entries: 3 }), Question::PurgeAll);
            let answered = asker.unwrap().join().unwrap().unwrap();
            assert_eq!(answered, Answer::Purged { entries: 3 });
        });
        assert!(is_silent(&older, Duration::ZERO));
        // One that cannot begin takes nobody's place.
        let (ours, _never) = pair();
        assert!(link.connect(ours, 3, || Err(anyhow!("no"))).is_err());
        scope(|scope| {
            let asker = scope.spawn(|| link.ask(Question::Alive));
            assert_eq!(answer(&younger, Answer::Alive), Question::Alive);
            assert_eq!(asker.join().unwrap().unwrap(), Answer::Alive);
        });
    }

    /// The older card is told to turn its cache off, and another one takes its place before it has
    /// answered: that one has begun with what was said before, so it is told, too.
    #[test]
    fn bypass_is_told_to_the_card_that_takes_over_meanwhile() {
        let link = CardLink::new(None);
        let ((ours, older), (theirs, younger)) = (pair(), pair());
        link.connect(ours, 1, || Ok(())).unwrap();
        let (question, on) = (Question::Bypass { on: true }, Answer::Bypass { on: true });
        scope(|scope| {
            let asker = scope.spawn(|| link.ask(question.clone()));
            assert!(!is_silent(&older, Duration::from_secs(20)));
            let begin = || {
                assert!(!link.bypass());
                Ok(())
            };
            link.connect(theirs, 2, begin).unwrap();
            assert_eq!(answer(&older, on.clone()), question);
            assert!(!is_silent(&younger, Duration::from_secs(20)), "nobody tells it");
            assert_eq!(answer(&younger, on.clone()), question);
            assert_eq!(asker.join().unwrap().unwrap(), on);
        });
        assert!(link.bypass());
    }
}
