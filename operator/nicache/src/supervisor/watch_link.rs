//! The supervisor's side of the conversation with the watcher: one question at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::children::wait_readable;
use crate::inquiry::{FromWatch, ToWatch};
use crate::setup::{receive_message, send_message};

/// Asks the watcher, and knows whether there is one.
#[derive(Debug)]
pub(crate) struct WatchLink {
    link: Mutex<Link>,
    watching: Mutex<Watching>,
}

/// Who watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Watching {
    /// Process number of the watcher; 0: there is none.
    pub pid: u32,
    /// Why nothing is watched, if so.
    pub unavailable: Option<String>,
    /// What is not kept because this kernel lacks something, each a sentence.
    pub lacks: Vec<String>,
}

impl Watching {
    /// What the line that a service is there says of it; empty if everything is watched.
    pub(crate) fn reservation(&self) -> &'static str {
        match (&self.unavailable, self.lacks.as_slice()) {
            (Some(_), _) => "; nothing is cached yet, see the warning",
            (None, [_, ..]) => "; less is cached than could be, see the warning",
            (None, []) => "",
        }
    }
}

#[derive(Debug)]
struct Link {
    /// `None`: nobody answers.
    socket: Option<OwnedFd>,
    /// An answer that came too late is still to come, or there: it is nobody's any longer.
    is_late: bool,
}

impl WatchLink {
    /// A link to no watcher yet.
    pub(crate) fn new(watching: Watching) -> Self {
        Self {
            link: Mutex::new(Link { socket: None, is_late: false }),
            watching: Mutex::new(watching),
        }
    }

    /// Takes over the socket of a watcher that has sent its report.
    pub(crate) fn connect(&self, socket: OwnedFd) {
        *self.locked() = Link { socket: Some(socket), is_late: false };
    }

    /// Who watches now.
    pub(crate) fn set_watching(&self, watching: Watching) {
        *self.watching.lock().expect("no holder of this lock panics") = watching;
    }

    /// Who watches.
    pub(crate) fn watching(&self) -> Watching {
        self.watching.lock().expect("no holder of this lock panics").clone()
    }

    /// Asks and waits for the answer, at most `limit`. While an earlier answer is overdue nothing
    /// else is asked, so questions to a watcher that stands still do not pile up.
    ///
    /// # Errors
    /// The watcher does not answer in time, has gone, or is not there yet.
    pub(crate) fn ask(&self, question: &ToWatch, limit: Duration) -> Result<FromWatch> {
        let mut link = self.locked();
        if link.is_late {
            link.receive(limit)?;
        }
        send_message(link.socket()?, question, &[])?;
        link.receive(limit)
    }

    /// Tells the watcher something that has no answer, with open files attached.
    ///
    /// # Errors
    /// The watcher is gone, or not there yet, or has not taken out what it was told before.
    pub(crate) fn tell(&self, message: &ToWatch, files: &[BorrowedFd<'_>]) -> Result<()> {
        send_message(self.locked().socket()?, message, files)
    }

    fn locked(&self) -> MutexGuard<'_, Link> {
        self.link.lock().expect("no holder of this lock panics")
    }
}

impl Link {
    fn socket(&self) -> Result<&OwnedFd> {
        self.socket.as_ref().context("there is no watcher yet")
    }

    fn receive(&mut self, limit: Duration) -> Result<FromWatch> {
        self.is_late = !wait_readable(self.socket()?.as_fd(), limit)?;
        if self.is_late {
            bail!("the watcher does not answer");
        }
        Ok(receive_message(self.socket()?)?.context("the watcher is gone")?.0)
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);

    fn reply(watcher: &OwnedFd, records_count: u64) {
        let answer =
            FromWatch::Dependents { records: Vec::new(), records_count, every_dynamic: false };
        send_message(watcher, &answer, &[]).unwrap();
    }

    #[test]
    fn a_late_answer_is_not_taken_for_that_to_the_next_question() {
        let (ours, watcher) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let link = WatchLink::new(Watching::default());
        assert!(link.ask(&ToWatch::Databases, SHORT).is_err(), "there is no watcher yet");
        link.connect(ours);
        for _ in 0..3 {
            assert!(link.ask(&ToWatch::Databases, SHORT).is_err());
        }
        // Only the first question was sent.
        assert!(receive_message::<ToWatch>(&watcher).unwrap().is_some());
        assert!(!wait_readable(watcher.as_fd(), SHORT).unwrap());
        reply(&watcher, 1);
        let answering = std::thread::spawn(move || {
            assert!(receive_message::<ToWatch>(&watcher).unwrap().is_some());
            reply(&watcher, 2);
        });
        let answer = link.ask(&ToWatch::Databases, LONG).unwrap();
        assert!(matches!(answer, FromWatch::Dependents { records_count: 2, .. }));
        answering.join().unwrap();
        assert!(link.ask(&ToWatch::Databases, LONG).is_err(), "the watcher is gone");
    }
}
