//! Notices a card that lives and does nothing: it is asked all the time, and killed if it does not
//! answer although it could ([`vitals`](crate::vitals)). What is done about a dead card is
//! another's business ([`card_unit`](super::card_unit)).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Signal, pidfd_send_signal};

use super::card_link::CardLink;
use super::children::wait_readable;
use crate::control::{Answer, Question};
use crate::vitals::{LOOK_EVERY, Patience};

/// Between two questions.
const EVERY: Duration = Duration::from_millis(100);
/// How long a card may stand still.
const LIMIT: Duration = Duration::from_millis(630);
/// How long one may that has never answered yet: it waits for the one before it to let go of the
/// frames.
const LIMIT_AT_FIRST: Duration = Duration::from_secs(10);
/// One that has not answered for so long, and does not stand still, is worth a line.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// Watches one card process; dropping it ends that.
#[derive(Debug)]
pub(super) struct Watchdog {
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches the card behind `link`, whose process `pidfd` names.
    pub(super) fn start(link: Arc<CardLink>, pidfd: OwnedFd) -> Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let process = link.pid();
        let body = move || {
            let mut limit = LIMIT_AT_FIRST;
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if is_alive(&link, process, limit) {
                    limit = LIMIT;
                    continue;
                }
                // It may have been told to stop meanwhile.
                if is_there(&pidfd) && stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    tracing::error!(
                        "the card has stood still for {} ms and is killed",
                        (limit + LOOK_EVERY).as_millis()
                    );
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                }
                return;
            }
        };
        std::thread::Builder::new().name("watchdog".into()).spawn(body)?;
        Ok(Self { _stop: stop })
    }
}

/// Does the card answer, however late, before it has stood still for so long?
fn is_alive(link: &CardLink, process: u32, limit: Duration) -> bool {
    let asked = Instant::now();
    let mut patience = None;
    let mut is_told = false;
    let answer = link.ask_while(Question::Alive, LOOK_EVERY, || {
        let is_over =
            patience.get_or_insert_with(|| Patience::with(process, limit - LOOK_EVERY)).is_over();
        if !is_over && !is_told && asked.elapsed() > TELL_AFTER {
            is_told = true;
            tracing::warn!(
                "the card has not answered for {} s, as it is not given the processor that it needs; it is left alone",
                asked.elapsed().as_secs()
            );
        }
        !is_over
    });
    matches!(answer, Ok(Answer::Alive))
}

/// Is there a process yet, a step later? One that has ended does not stand still.
fn is_there(pidfd: &OwnedFd) -> bool {
    !wait_readable(pidfd.as_fd(), LOOK_EVERY).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn who_has_ended_is_not_there() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).unwrap();
        assert!(is_there(&pidfd));
        // Its files are closed before it has ended.
        let link = CardLink::new(None);
        let (ours, theirs) = UnixStream::pair().unwrap();
        link.connect(ours.into(), process.id()).unwrap();
        drop(theirs);
        assert!(!is_alive(&link, process.id(), LIMIT));
        process.kill().unwrap();
        assert!(!is_there(&pidfd));
        process.wait().unwrap();
        assert!(!is_there(&pidfd));
    }
}
