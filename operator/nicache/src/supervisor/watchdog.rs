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
/// How long a card may stand still; where answers take long even so, this many times as long as
/// the slowest one lately, up to a maximum. A virtual machine does not know what its host keeps
/// from it.
const LIMIT: Duration = Duration::from_millis(630);
const SLOW_TIMES: u32 = 10;
const LIMIT_SLOW: Duration = Duration::from_secs(4);
/// The slowest answer counts for less with each that follows: by one part in this many.
const FORGET: u32 = 100;
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
            let (mut limit, mut slowest) = (LIMIT_AT_FIRST, Duration::ZERO);
            while stopped.recv_timeout(EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                let asked = Instant::now();
                if is_alive(&link, process, limit) {
                    // The first answer waits for another card.
                    if limit != LIMIT_AT_FIRST {
                        slowest = (slowest - slowest / FORGET).max(asked.elapsed());
                    }
                    limit = limit_after(slowest);
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

/// How long a card may stand still whose slowest answer took so long.
fn limit_after(slowest: Duration) -> Duration {
    (slowest * SLOW_TIMES).clamp(LIMIT, LIMIT_SLOW)
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
                "the card has not answered for {} s, because the machine gives it no CPU time; it is not replaced",
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
    fn a_card_on_a_slow_machine_has_more_time() {
        let limit = |ms| limit_after(Duration::from_millis(ms)).as_millis();
        assert_eq!((limit(1), limit(63), limit(200), limit(9000)), (630, 630, 2000, 4000));
    }

    #[test]
    fn who_has_ended_is_not_there() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty()).unwrap();
        assert!(is_there(&pidfd));
        // Its files are closed before it has ended.
        let link = CardLink::new(None);
        let (ours, theirs) = UnixStream::pair().unwrap();
        link.connect(ours.into(), process.id(), || Ok(())).unwrap();
        drop(theirs);
        assert!(!is_alive(&link, process.id(), LIMIT));
        process.kill().unwrap();
        assert!(!is_there(&pidfd));
        process.wait().unwrap();
        assert!(!is_there(&pidfd));
    }
}
