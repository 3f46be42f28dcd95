//! Notices a card that lives and does nothing: it is asked all the time, and killed if it does not answer. What is done about a dead card is another's business ([`card_unit`](super::card_unit)).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Signal, pidfd_send_signal};

use super::card_link::CardLink;
use super::children::wait_readable;
use crate::control::Question;

/// Between two questions.
const EVERY: Duration = Duration::from_millis(100);
/// How long an answer is waited for, in steps, so that a machine that stood still for a while is not taken for a card that does.
const STEP: Duration = Duration::from_millis(70);
const STEPS: u32 = 9;
/// All of it: the last step is for its end, which the kernel tells a moment after it has closed the card's files.
const LIMIT: Duration = STEP.saturating_mul(STEPS + 1);

/// Watches one card process; dropping it ends that.
#[derive(Debug)]
pub struct Watchdog {
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches the card behind `link`, whose process `pidfd` names.
    pub fn start(link: Arc<CardLink>, pidfd: OwnedFd) -> Result<Watchdog> {
        let (stop, stopped) = mpsc::channel::<()>();
        let body = move || {
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if link.ask_in_steps(Question::Alive, STEP, STEPS).is_ok() {
                    continue;
                }
                // It may have been told to stop meanwhile.
                if is_there(&pidfd) && stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    tracing::error!("the card has not answered for {} ms and is killed", LIMIT.as_millis());
                    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                }
                return;
            }
        };
        std::thread::Builder::new().name("watchdog".into()).spawn(body)?;
        Ok(Watchdog { _stop: stop })
    }
}

/// Is there a process yet, a step later? One that has ended does not stand still.
fn is_there(pidfd: &OwnedFd) -> bool {
    !wait_readable(pidfd.as_fd(), STEP).unwrap_or(false)
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
        assert!(link.ask_in_steps(Question::Alive, STEP, STEPS).is_err());
        process.kill().unwrap();
        assert!(!is_there(&pidfd));
        process.wait().unwrap();
        assert!(!is_there(&pidfd));
    }
}
