//! The supervisor's side of the conversation with the watcher: one question at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::children::wait_readable;
use crate::inquiry::{FromWatch, ToWatch};
use crate::setup::{receive_message, send_message};

/// Asks the watcher.
#[derive(Debug)]
pub struct WatchLink {
    link: Mutex<Link>,
}

#[derive(Debug)]
struct Link {
    socket: OwnedFd,
    /// An answer that came too late is still to come, or there: it is nobody's any more.
    is_late: bool,
}

impl WatchLink {
    /// Takes over the socket of a watcher that has sent its report.
    pub fn new(socket: OwnedFd) -> WatchLink {
        WatchLink { link: Mutex::new(Link { socket, is_late: false }) }
    }

    /// A link to no watcher: questions are not answered.
    pub fn to_nobody() -> Result<WatchLink> {
        let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok(WatchLink::new(socket))
    }

    /// Asks and waits for the answer, at most `limit`. While an earlier answer is overdue nothing else is asked, so that questions to a
    /// watcher that stands still do not pile up.
    ///
    /// # Errors
    /// There is no answer in time, or the watcher is gone.
    pub fn ask(&self, question: &ToWatch, limit: Duration) -> Result<FromWatch> {
        self.ask_with(question, &[], limit)
    }

    /// The same with open files attached.
    ///
    /// # Errors
    /// As [`ask`](WatchLink::ask).
    pub fn ask_with(&self, question: &ToWatch, files: &[BorrowedFd<'_>], limit: Duration) -> Result<FromWatch> {
        let mut link = self.link.lock().expect("no holder of this lock panics");
        if link.is_late {
            link.receive(limit)?;
        }
        send_message(&link.socket, question, files)?;
        link.receive(limit)
    }
}

impl Link {
    fn receive(&mut self, limit: Duration) -> Result<FromWatch> {
        self.is_late = !wait_readable(self.socket.as_fd(), limit)?;
        if self.is_late {
            bail!("the watcher does not answer");
        }
        Ok(receive_message(&self.socket)?.context("the watcher is gone")?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);

    fn reply(watcher: &OwnedFd, records_count: u64) {
        let answer = FromWatch::Dependents { records: Vec::new(), records_count, every_dynamic: false };
        send_message(watcher, &answer, &[]).unwrap();
    }

    #[test]
    fn a_late_answer_is_not_taken_for_that_to_the_next_question() {
        let (ours, watcher) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let link = WatchLink::new(ours);
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
